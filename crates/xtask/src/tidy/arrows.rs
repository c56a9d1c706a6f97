//! Rules between crates: who may depend on whom, and the lints that all of them share.

use super::Finding;
use crate::tree::TreeFile;

/// What each crate may depend on. A new arrow is a decision: add it here and in ARCHITECTURE.md, with the reason.
const ARROWS: [(&str, &[&str]); 15] = [
    ("base", &[]),
    ("os", &["base"]),
    ("sim", &["base"]),
    ("net", &["base"]),
    ("chunk", &["base"]),
    ("meta", &["base", "quorum"]),
    ("quorum", &["base"]),
    ("client", &["base", "net"]),
    ("gateway-hdfs", &["base", "client"]),
    ("node", &["base", "os", "net", "chunk", "meta", "client", "gateway-hdfs"]),
    ("harness", &["base", "os"]),
    ("cli", &["base", "os", "net", "client", "node", "harness"]),
    ("lab", &["base", "os", "sim", "net", "chunk", "meta", "client", "gateway-hdfs", "node", "harness"]),
    // It compiles files of `net` and `node` once more; of net it takes what those files name.
    ("interleavings", &["base", "chunk", "net"]),
    ("xtask", &[]),
];

/// The crate that every other one's tests may use.
const FOR_TESTS: &str = "sim";

/// What clippy must ban, so that time, chance, disk and network are handed in.
const BANS: [&str; 14] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::spawn",
    "std::thread::sleep",
    "tokio::time::Instant::now",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::fs::OpenOptions::open",
    "std::net::TcpStream::connect",
    "std::net::TcpListener::bind",
    "tokio::net::TcpStream::connect",
    "tokio::net::TcpListener::bind",
    "tokio::sync::mpsc::unbounded_channel",
    "std::sync::mpsc::channel",
];

/// Checks the manifests of all crates.
pub fn check(files: &[TreeFile]) -> Vec<Finding> {
    let mut manifests = Vec::new();
    for file in files {
        let owner = file.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml"));
        if let (Some(owner), Some(text)) = (owner.filter(|owner| !owner.contains('/')), &file.text) {
            manifests.push((owner, file.path.as_str(), text.as_str()));
        }
    }
    let members: Vec<&str> = manifests.iter().map(|(owner, _, _)| *owner).collect();
    manifests.iter().flat_map(|(owner, path, text)| manifest(owner, path, text, &members)).collect()
}

/// Checks that clippy.toml is there and bans what it must.
pub fn bans(files: &[TreeFile]) -> Vec<Finding> {
    let text = files.iter().find(|file| file.path == "clippy.toml").and_then(|file| file.text.as_deref());
    let Some(text) = text else {
        return vec![Finding::new(
            "clippy.toml",
            1,
            "missing",
            "restore it: it bans taking time, chance, disk and network",
        )];
    };
    let missing = BANS.iter().filter(|ban| !text.contains(&format!("path = \"{ban}\"")));
    missing
        .map(|ban| Finding::new("clippy.toml", 1, format!("`{ban}` is not banned"), "ban it and name the substitute"))
        .collect()
}

fn manifest(owner: &str, path: &str, text: &str, members: &[&str]) -> Vec<Finding> {
    let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == owner) else {
        return vec![Finding::new(
            path,
            1,
            format!("`{owner}` has no row in the table of arrows"),
            "add one in xtask's tidy/arrows.rs",
        )];
    };
    let mut findings = Vec::new();
    let mut section = "";
    for (index, line) in text.lines().enumerate() {
        let mut key = line.split(['.', '=', ' ']).next().unwrap_or_default().trim_matches('"');
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end().trim_end_matches(']');
            // `[dependencies.chunk]` is a section and a dependency in one line.
            let Some((kind, name)) = section.rsplit_once("dependencies.") else { continue };
            section = &section[..kind.len() + "dependencies".len()];
            key = name;
        }
        let for_tests = section.ends_with("dev-dependencies") && (key == FOR_TESTS || key == owner);
        if section.ends_with("dependencies") && members.contains(&key) && !allowed.contains(&key) && !for_tests {
            let what = format!("`{owner}` depends on `{key}`");
            let instead = "arrows run one way (ARCHITECTURE.md): hand it in through a trait of base, or move the code";
            findings.push(Finding::new(path, index + 1, what, instead));
        }
        if section == "package" && key == "name" && !line.contains(&format!("\"{owner}\"")) {
            findings.push(Finding::new(
                path,
                index + 1,
                "the package is not named as its folder",
                "give both one name",
            ));
        }
    }
    let lints = text.split("[lints]").nth(1).is_some_and(|rest| rest.trim_start().starts_with("workspace = true"));
    if !lints {
        findings.push(Finding::new(path, 1, "the shared lints are off", "add `[lints]` with `workspace = true`"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{BANS, bans, check};
    use crate::tree::TreeFile;

    fn file(path: &str, text: &str) -> TreeFile {
        TreeFile { path: path.to_owned(), text: Some(text.to_owned()) }
    }

    /// What is found in a tree of base, chunk, os, sim and `owner` with these dependency sections.
    fn findings(owner: &str, sections: &str) -> Vec<String> {
        let manifest = |name: &str, sections: &str| {
            let text = format!("[package]\nname = \"{name}\"\n{sections}\n[lints]\nworkspace = true\n");
            file(&format!("crates/{name}/Cargo.toml"), &text)
        };
        let mut files = vec![manifest(owner, sections)];
        files.extend(
            ["base", "chunk", "os", "sim"].into_iter().filter(|name| *name != owner).map(|name| manifest(name, "")),
        );
        check(&files).into_iter().map(|finding| finding.to_string()).collect()
    }

    /// Arrows of the table are fine, in every spelling; others are not.
    #[test]
    fn arrows() {
        assert!(
            findings("node", "[dependencies]\nchunk.workspace = true\nos = { path = \"../os\" }\nserde = \"1\"")
                .is_empty()
        );
        assert!(findings("chunk", "[dependencies]\nos = { workspace = true }")[0].contains("`chunk` depends on `os`"));
        assert!(findings("chunk", "[target.'cfg(unix)'.dependencies]\nos.workspace = true")[0].contains(":4: "));
        assert!(
            findings(
                "chunk",
                "[dependencies.os]
workspace = true"
            )[0]
            .contains(":3: `chunk` depends on `os`")
        );
    }

    /// The simulation is for tests.
    #[test]
    fn simulation() {
        assert!(findings("chunk", "[dev-dependencies]\nsim.workspace = true").is_empty());
        assert!(findings("chunk", "[dependencies]\nsim.workspace = true")[0].contains("`chunk` depends on `sim`"));
        assert!(findings("chunk", "[dev-dependencies]\nos.workspace = true")[0].contains("`chunk` depends on `os`"));
    }

    /// A crate without a row, with another name than its folder, or without the shared lints.
    #[test]
    fn manifests() {
        assert!(findings("table", "")[0].contains("no row"));
        let found = check(&[file("crates/chunk/Cargo.toml", "[package]\nname = \"log\"\n")]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    /// Every ban must stand in clippy.toml.
    #[test]
    fn bans_stand() {
        assert_eq!(bans(&[]).len(), 1);
        let all: String = BANS.iter().map(|ban| format!("{{ path = \"{ban}\", reason = \"x\" }},\n")).collect();
        assert!(bans(&[file("clippy.toml", &all)]).is_empty());
        let some = all.replacen("std::thread::sleep", "x", 1);
        assert!(bans(&[file("clippy.toml", &some)])[0].to_string().contains("`std::thread::sleep` is not banned"));
    }
}
