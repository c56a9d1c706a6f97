//! Rules for one Rust file, those that clippy does not have: sizes, globs, notes left behind, what may panic, where tests and docs stand.

use super::Finding;
use crate::source::Source;

/// A file over this many lines is a finding.
const FILE_LINES_MAX: usize = 800;
/// A file over this many lines is counted.
pub const FILE_LINES_AIM: usize = 600;
/// A function over this many lines is a finding.
const FUNCTION_LINES_MAX: usize = 100;
/// A function over this many lines is counted.
pub const FUNCTION_LINES_AIM: usize = 60;

/// All rules of this file.
pub fn check(path: &str, text: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        let what = format!("{lines} lines, at most {FILE_LINES_MAX}");
        findings.push(Finding::new(path, 1, what, "split it by what its parts do"));
    }
    if !text.starts_with("//!") {
        findings.push(Finding::new(path, 1, "no `//!` in the first line", "say in one line what belongs in this file"));
    }
    for function in source.functions().iter().filter(|function| function.length > FUNCTION_LINES_MAX) {
        let what = format!("`{}` has {} lines, at most {FUNCTION_LINES_MAX}", function.name, function.length);
        findings.push(Finding::new(path, function.line, what, "move straight pieces into functions with names"));
    }
    findings.extend(globs(path, source));
    findings.extend(left_behind(path, source));
    findings.extend(panics(path, source));
    findings.extend(non_ascii(path, source));
    findings.extend(doc_fences(path, source));
    findings
}

/// Also re-exports and those in tests, which clippy's `wildcard_imports` lets pass.
fn globs(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (offset, word) in source.identifiers() {
        if word != "use" {
            continue;
        }
        let statement = source.code[offset..].split(';').next().unwrap_or_default();
        if statement.contains('*') {
            let line = source.line_of(offset);
            findings.push(Finding::new(
                path,
                line,
                "glob import",
                "name what is used, so that a reader sees where it comes from",
            ));
        }
    }
    findings
}

fn left_behind(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        let mut add = |what: &str, instead| findings.push(Finding::new(path, index + 1, what, instead));
        for word in ["TODO", "FIXME", "XXX"] {
            if comment.split(|character: char| !character.is_alphanumeric()).any(|found| found == word) {
                add(word, "do it, or open an issue and say in the comment what holds today");
            }
        }
        if code.contains("#[ignore") {
            add("ignored test", "make it fast enough to run, or delete it");
        }
    }
    findings
}

fn panics(path: &str, source: &Source) -> Vec<Finding> {
    if path.starts_with("crates/xtask/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (index, code) in source.code.lines().enumerate() {
        for call in [".unwrap()", ".expect("] {
            if code.contains(call) && !source.is_test(index + 1) {
                let what = format!("`{call}` outside tests");
                let instead = "return an `Error`, or match and say in `unreachable!` why it cannot be";
                findings.push(Finding::new(path, index + 1, what, instead));
            }
        }
    }
    findings
}

fn non_ascii(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, (code, comment)) in source.code.lines().zip(source.comments.lines()).enumerate() {
        let odd = code.chars().chain(comment.chars()).find(|character| !character.is_ascii());
        if let Some(character) = odd.filter(|_| !source.is_test(index + 1)) {
            let what = format!("`{character}` outside a string");
            findings.push(Finding::new(path, index + 1, what, "use ASCII in code and comments"));
        }
    }
    findings
}

/// Examples in doc comments would be compiled as tests of their own, which no stage runs.
fn doc_fences(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut open = false;
    for (index, comment) in source.comments.lines().enumerate() {
        let trimmed = comment.trim_start();
        let Some(doc) = trimmed.strip_prefix("///").or_else(|| trimmed.strip_prefix("//!")) else {
            open = false;
            continue;
        };
        if let Some(language) = doc.trim_start().strip_prefix("```") {
            if !open && language.trim() != "text" {
                let what = format!("code fence ```{}", language.trim());
                findings.push(Finding::new(
                    path,
                    index + 1,
                    what,
                    "write ```text for drawings, and a test for an example",
                ));
            }
            open = !open;
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tests::source;

    /// What the rules say about a file of a crate with this body.
    fn findings(body: &str) -> Vec<String> {
        findings_at("crates/chunk/src/log.rs", &format!("//! A file.\n{body}"))
    }

    fn findings_at(path: &str, text: &str) -> Vec<String> {
        check(path, text, &source(path, text)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[track_caller]
    fn fires(body: &str, words: &str) {
        let found = findings(body);
        assert!(found.iter().any(|finding| finding.contains(words)), "no `{words}` in {found:?}");
    }

    /// Good code has no findings.
    #[test]
    fn good() {
        let body = "use std::{fmt, io};\n/// ```text\n/// a b\n/// ```\nfn a() -> u8 {\n    \"todo! \u{e4} .unwrap()\".len() as u8\n}\n";
        assert_eq!(findings(body), Vec::<String>::new());
    }

    /// Long files and long functions, tests included.
    #[test]
    fn sizes() {
        fires(&"\n".repeat(800), "801 lines, at most 800");
        assert!(findings(&"\n".repeat(799)).is_empty());
        let long = |lines: usize| {
            format!("#[cfg(test)]\nmod tests {{\n    fn long() {{\n{}    }}\n}}\n", "        a();\n".repeat(lines - 2))
        };
        fires(&long(101), "`long` has 101 lines, at most 100");
        assert!(findings(&long(100)).is_empty());
    }

    /// A file without a first line that says what it is for.
    #[test]
    fn header() {
        assert!(findings_at("crates/chunk/src/log.rs", "fn a() {}\n")[0].contains("no `//!`"));
    }

    /// Glob imports in every spelling, in tests as well.
    #[test]
    fn globs() {
        fires("use super::*;\n", ":2: glob import");
        fires("pub use a::{\n    b,\n    c::*,\n};\n", ":2: glob import");
        fires("#[cfg(test)]\nmod tests {\n    use super::*;\n}\n", ":4: glob import");
    }

    /// Notes and switched-off tests that were left behind.
    #[test]
    fn left_behind() {
        fires("// TODO: later\n", "TODO");
        fires("/* FIXME */\n", "FIXME");
        fires("#[ignore = \"slow\"]\nfn a() {}\n", "ignored test");
    }

    /// Unwrapping outside tests; inside tests and in xtask it is allowed.
    #[test]
    fn panics() {
        fires("fn a() {\n    b.unwrap();\n}\n", "`.unwrap()` outside tests");
        fires("fn a() {\n    b.expect(\"c\");\n}\n", "`.expect(` outside tests");
        assert!(findings("#[cfg(test)]\nmod tests {\n    fn a() {\n        b.unwrap();\n    }\n}\n").is_empty());
        assert!(findings_at("crates/xtask/src/a.rs", "//! A.\nfn a() {\n    b.unwrap();\n}\n").is_empty());
    }

    /// Characters beyond ASCII in code and comments, but not in strings.
    #[test]
    fn non_ascii() {
        fires("// a \u{2014} b\n", "outside a string");
        fires("fn gr\u{fc}n() {}\n", "outside a string");
    }

    /// Doc examples that no stage would run.
    #[test]
    fn doc_fences() {
        fires("/// ```\n/// a();\n/// ```\nfn a() {}\n", ":2: code fence");
        fires("/// ```text\n/// a\n/// ```\n/// ```rust\n/// ```\nfn a() {}\n", ":5: code fence");
    }
}
