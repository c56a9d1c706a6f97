//! Keeps count: adds what a run has checked to the tables of docs/trust.md. A table stands between
//! `<!-- counts: NAME -->` and `<!-- end -->` and has rows `| what | number |`; numbers only ever grow.

use base::error::{Error, ErrorKind, Result};
use std::path::Path;

/// Adds these counts to the table `name` of the document at `path`; a row that is not there yet is appended.
pub fn add(path: &Path, name: &str, counts: &[(String, u64)]) -> Result<()> {
    let trouble = |error: std::io::Error| {
        Error::new(ErrorKind::Io, format!("{}: {error}; the counts of this run were not added", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(trouble)?;
    let text = added(&text, name, counts).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, format!("{} has no table `{name}`; the counts were not added", path.display()))
    })?;
    std::fs::write(path, text).map_err(trouble)
}

/// Puts a row in place of the one that begins with `key`, or behind the others, of the table between `<!-- NAME -->` and
/// `<!-- end -->` in the document at `path`.
pub fn set_row(path: &Path, name: &str, key: &str, row: &str) -> Result<()> {
    let text = os::file::read_text(path)?;
    let Some(text) = with_row(&text, name, key, row) else {
        let text = format!("{} has no place for the table `{name}`; it was not changed", path.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    };
    os::file::replace(path, text.as_bytes())
}

/// Puts a table in place of what stands between `<!-- NAME -->` and `<!-- end -->` in the document at `path`.
pub fn replace(path: &Path, name: &str, table: &str) -> Result<()> {
    let text = os::file::read_text(path)?;
    let opening = format!("<!-- {name} -->\n");
    let start = text.find(&opening).map(|at| at + opening.len());
    let end = start.and_then(|start| text[start..].find("<!-- end -->").map(|length| start + length));
    let (Some(start), Some(end)) = (start, end) else {
        let text = format!("{} has no place for the table `{name}`; it was not changed", path.display());
        return Err(Error::new(ErrorKind::Invalid, text));
    };
    os::file::replace(path, format!("{}{table}{}", &text[..start], &text[end..]).as_bytes())
}

fn with_row(text: &str, name: &str, key: &str, row: &str) -> Option<String> {
    let opening = format!("<!-- {name} -->\n");
    let start = text.find(&opening)? + opening.len();
    let end = start + text[start..].find("<!-- end -->")?;
    let mut lines: Vec<&str> = text[start..end].lines().collect();
    match lines.iter_mut().find(|line| line.starts_with(key)) {
        Some(line) => *line = row,
        None => lines.push(row),
    }
    Some(format!("{}{}\n{}", &text[..start], lines.join("\n"), &text[end..]))
}

fn added(text: &str, name: &str, counts: &[(String, u64)]) -> Option<String> {
    let opening = format!("<!-- counts: {name} -->\n");
    let start = text.find(&opening)? + opening.len();
    let end = start + text[start..].find("<!-- end -->")?;
    let mut lines: Vec<String> = text[start..end].lines().map(str::to_owned).collect();
    for (what, count) in counts {
        let mine = format!("| {what} | ");
        match lines.iter_mut().find(|line| line.starts_with(&mine)) {
            Some(line) => {
                let before: u64 = line[mine.len()..].trim_end_matches(['|', ' ']).parse().ok()?;
                *line = format!("{mine}{} |", before.saturating_add(*count));
            }
            None => lines.push(format!("{mine}{count} |")),
        }
    }
    Some(format!("{}{}\n{}", &text[..start], lines.join("\n"), &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::{added, with_row};

    /// A known row is replaced, a new one appended, and nothing else changes.
    #[test]
    fn one_row_is_set() {
        let text = "a\n<!-- planted -->\n| fault | from 0 |\n|---|---|\n| A: x | 3 |\n| B: y | 4 |\n<!-- end -->\nz\n";
        let set = |text: &str, key, row| with_row(text, "planted", key, row).expect("the table is there");
        let text = set(&set(text, "| A:", "| A: x | 7 |"), "| C:", "| C: z | 1 |");
        let wanted = "a\n<!-- planted -->\n| fault | from 0 |\n|---|---|\n| A: x | 7 |\n| B: y | 4 |\n| C: z | 1 |\n<!-- end -->\nz\n";
        assert_eq!(text, wanted);
        assert_eq!(with_row(&text, "none", "| A:", ""), None);
    }

    /// A known row grows, a new one is appended, other tables stay as they are.
    #[test]
    fn counts_only_grow() {
        let text = "a\n<!-- counts: kills -->\n| what | number |\n|---|---|\n| trials | 3 |\n<!-- end -->\nz\n";
        let more = added(text, "kills", &[("trials".into(), 2), ("lost".into(), 0)]).expect("the table is there");
        assert!(more.contains("| trials | 5 |\n| lost | 0 |\n<!-- end -->\nz\n"), "{more}");
        assert_eq!(added(text, "seeds", &[]), None);
    }
}
