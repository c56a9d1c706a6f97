//! `cargo x tidy`: the rules of the tree that neither the compiler nor clippy keeps. Each finding says what to do instead.

mod arrows;
mod bytes;
mod circles;
mod document;
mod rust;
mod words;

use crate::source::Source;
use crate::tree::{self, TreeFile};
use std::fmt;
use std::path::Path;

/// Where and how the tree breaks a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file's path from the root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is there.
    pub what: String,
    /// What to do instead.
    pub instead: &'static str,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, instead: &'static str) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into(), instead }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line, self.what, self.instead)
    }
}

/// How much of the tree is over the sizes that we aim for.
#[derive(Default, Debug, PartialEq, Eq)]
struct Sizes {
    files: usize,
    functions: usize,
}

/// Checks the tree at `root` and prints what it finds. `Ok(true)` if it found nothing.
pub fn run(root: &Path) -> Result<bool, String> {
    let files = tree::files(root)?;
    let (findings, sizes) = check(root, &files);
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} findings in {} files; {} files over {} lines, {} functions over {}",
        findings.len(),
        files.len(),
        sizes.files,
        rust::FILE_LINES_AIM,
        sizes.functions,
        rust::FUNCTION_LINES_AIM
    );
    Ok(findings.is_empty())
}

fn check(root: &Path, files: &[TreeFile]) -> (Vec<Finding>, Sizes) {
    let mut findings = arrows::check(files);
    findings.extend(arrows::bans(files));
    findings.extend(circles::check(files));
    let mut sizes = Sizes::default();
    for file in files {
        let path = file.path.as_str();
        findings.extend(words::check_path(path));
        let Some(text) = &file.text else { continue };
        let source = path.ends_with(".rs").then(|| Source::parse(path, text));
        findings.extend(document::machine_paths(path, text, source.as_ref()));
        if path.ends_with(".md") {
            findings.extend(document::check(path, text, |target| root.join(target).exists()));
        }
        if let Some(source) = &source {
            findings.extend(rust::check(path, text, source));
            findings.extend(bytes::check(path, source));
            findings.extend(words::check(path, source));
            sizes.files += usize::from(text.lines().count() > rust::FILE_LINES_AIM);
            sizes.functions += source.functions().iter().filter(|f| f.length > rust::FUNCTION_LINES_AIM).count();
        }
    }
    findings.sort();
    (findings, sizes)
}

#[cfg(test)]
mod tests {
    use super::{Finding, Sizes, check};
    use crate::source::Source;
    use crate::tree::{self, TreeFile};

    /// The split form of a snippet, for the tests of the rules.
    pub fn source(path: &str, text: &str) -> Source {
        Source::parse(path, text)
    }

    /// A finding names the place, what is there and what to do instead.
    #[test]
    fn one_line() {
        let finding = Finding::new("a.rs", 3, "`Util`", "say what it does");
        assert_eq!(finding.to_string(), "a.rs:3: `Util`; say what it does");
    }

    /// Files that are no text and an empty tree are no trouble; what is missing from the tree is.
    #[test]
    fn odd_trees() {
        let root = tree::root().expect("tests run inside the tree");
        let golden = TreeFile { path: "crates/chunk/tests/golden/one.bin".to_owned(), text: None };
        let (findings, sizes) = check(&root, &[golden]);
        assert_eq!(sizes, Sizes::default());
        assert!(findings.iter().all(|finding| finding.path == "clippy.toml"), "{findings:?}");
        assert_eq!(findings.len(), 1);
    }

    /// Xtask keeps its own rules.
    #[test]
    fn own_rules() {
        let root = tree::root().expect("tests run inside the tree");
        let mut files = tree::files(&root).expect("git is there");
        files.retain(|file| file.path.starts_with("crates/xtask/") || file.path == "clippy.toml");
        let (findings, _) = check(&root, &files);
        assert!(findings.is_empty(), "{}", findings.iter().map(|finding| format!("{finding}\n")).collect::<String>());
    }
}
