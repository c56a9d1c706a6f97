//! The work tree: where it is, which files belong to it, where its build goes.

use std::path::{Path, PathBuf};
use std::process::Command;

/// One file of the tree. Files that are not UTF-8 (golden files, corpora) have no text.
pub struct TreeFile {
    /// The path from the root, with `/`.
    pub path: String,
    /// What it holds, if that is text.
    pub text: Option<String>,
}

/// The root of the tree that the current directory lies in.
pub fn root() -> Result<PathBuf, String> {
    let here = std::env::current_dir().map_err(|error| format!("the current directory cannot be read: {error}"))?;
    let found = here.ancestors().find(|directory| directory.join("crates/xtask/Cargo.toml").is_file());
    found
        .map(Path::to_path_buf)
        .ok_or_else(|| format!("{} lies outside the repository; go there first", here.display()))
}

/// Where cargo puts what a release build makes.
pub fn release_directory(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    root.join(target).join("release")
}

/// Every file that git tracks or would track, in the order of their paths.
pub fn files(root: &Path) -> Result<Vec<TreeFile>, String> {
    let listing = Command::new("git")
        .args(["ls-files", "-co", "--exclude-standard", "-z"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("git does not start: {error}; install git"))?;
    if !listing.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim()));
    }
    let mut paths: Vec<String> = String::from_utf8_lossy(&listing.stdout)
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        // A file that was deleted and not yet committed is still listed; it is no part of the tree any more.
        if let Ok(bytes) = std::fs::read(root.join(&path)) {
            files.push(TreeFile { path, text: String::from_utf8(bytes).ok() });
        }
    }
    Ok(files)
}
