//! Rules for documents and for any text: one title, links that lead somewhere, no path of somebody's machine.

use super::Finding;
use crate::source::Source;

/// Directories at the root of a machine that no file of the tree may name.
const MACHINE_DIRECTORIES: [&str; 3] = ["work", "root", "tmp"];

/// A document has one title, and every relative link leads to something for which `exists` says yes.
pub fn check(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut titles = 0;
    for (number, line) in prose(text) {
        titles += usize::from(line.starts_with("# "));
        if titles > 1 && line.starts_with("# ") {
            findings.push(Finding::new(path, number, "a second title", "use `##`, or make it a document of its own"));
        }
        for target in links(&line) {
            let outside = target.contains("://") || target.starts_with("mailto:") || target.starts_with('#');
            let file = target.split('#').next().unwrap_or_default();
            if !outside && resolve(path, file).is_none_or(|file| !exists(&file)) {
                let what = format!("the link to `{target}` leads nowhere");
                findings.push(Finding::new(path, number, what, "mend the path, or write what it should lead to"));
            }
        }
    }
    if titles == 0 {
        findings.push(Finding::new(path, 1, "no title", "begin with a `# ` line"));
    }
    findings
}

/// Absolute paths of one machine. Tests may use a temporary directory's name.
pub fn machine_paths(path: &str, text: &str, source: Option<&Source>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let test = |line: usize| path.contains("/tests/") || source.is_some_and(|source| source.is_test(line));
    for (index, line) in text.lines().enumerate() {
        for directory in MACHINE_DIRECTORIES {
            let name = format!("/{directory}/");
            let alone = |offset: usize| {
                !line[..offset].ends_with(|before: char| before.is_alphanumeric() || "._-~/})".contains(before))
            };
            if line.match_indices(&name).any(|(offset, _)| alone(offset)) && !test(index + 1) {
                let what = format!("a path under {name}");
                findings.push(Finding::new(path, index + 1, what, "use a path from the root of the tree, or mktemp"));
            }
        }
    }
    findings
}

/// The lines outside code blocks, with code between backticks taken out, numbered from 1.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            lines.push((index + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("``")));
        }
    }
    lines
}

fn links(line: &str) -> Vec<&str> {
    let after = line.split("](").skip(1);
    after.filter_map(|rest| rest.split_once(')')).filter_map(|(target, _)| target.split_whitespace().next()).collect()
}

/// The path from the root of what `target` means in the document at `path`; none if it lies outside the tree.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{check, machine_paths};
    use crate::tidy::tests::source;

    fn findings(text: &str) -> Vec<String> {
        let exists = |target: &str| matches!(target, "README.md" | "docs/start.md" | "docs");
        check("docs/numbers.md", text, exists).into_iter().map(|finding| finding.to_string()).collect()
    }

    /// One title, outside code blocks.
    #[test]
    fn titles() {
        assert!(findings("# One\n\n```sh\n# a comment\n```\n").is_empty());
        assert!(findings("## One\n")[0].contains("no title"));
        assert!(findings("# One\n# Two\n")[0].contains(":2: a second title"));
    }

    /// Relative links lead to files of the tree; code, anchors and other sites are left alone.
    #[test]
    fn links() {
        assert!(
            findings("# A\n[a](start.md) [b](../README.md#x) [c](#d) [e](https://e.org/f) `[g](h)` [i](.)\n")
                .is_empty()
        );
        assert!(findings("# A\n\n[a](begin.md)\n")[0].contains(":3: the link to `begin.md`"));
        assert!(findings("# A\n[a](../../x)\n")[0].contains("leads nowhere"));
    }

    /// Paths of this machine, except temporary ones in tests and those that only look alike.
    #[test]
    fn machine() {
        let count = |path: &str, text: &str| machine_paths(path, text, Some(&source(path, text))).len();
        for bad in ["cd /work/main", "see `/root/.cargo`", "put /tmp/x"] {
            assert_eq!(count("docs/a.md", bad), 1, "{bad}");
        }
        for good in ["docs/work/a", "https://e.org/tmp/x", "$(mktemp -d)/root/x", "~/work/x"] {
            assert_eq!(count("docs/a.md", good), 0, "{good}");
        }
        assert_eq!(count("crates/cli/tests/cli/main.rs", "let a = \"/tmp/x\";"), 0);
    }
}
