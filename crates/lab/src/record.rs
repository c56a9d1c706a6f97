//! Keeps count: adds what a run has checked to the tables of docs/trust.md. The counts of a table stand between
//! `<!-- counts: NAME -->` and `<!-- end -->` in rows `| what | number |`; the runs that they are the sum of, with the commit that each was
//! of, between `<!-- runs: NAME -->` and `<!-- end -->` in rows `| commit | what | from | to | how many |`.

use base::error::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::Command;

/// A run of which counts are going to be added.
pub struct Run {
    table: String,
    /// The code that ran, as git names it.
    commit: String,
    /// What ran: each kind has its own numbers.
    kind: String,
    /// The first and the last number.
    numbers: (u64, u64),
}

impl Run {
    /// A run of the code that is checked out, with these numbers. Refused as `commit` is, and if numbers among these were counted at this
    /// commit before.
    pub fn begin(path: &Path, table: &str, kind: &str, from: u64, count: u64) -> Result<Run> {
        let commit = commit(path)?;
        let numbers = (from, from.saturating_add(count.saturating_sub(1)));
        let run = Run { table: table.to_string(), commit, kind: kind.to_string(), numbers };
        run.is_new(&os::file::read_text(path)?)?;
        Ok(run)
    }

    /// Adds the run and these counts to the document at `path`; a row that is not there yet is appended.
    pub fn add(&self, path: &Path, counts: &[(String, u64)]) -> Result<()> {
        let text = os::file::read_text(path)?;
        self.is_new(&text)?;
        let added = added(&text, &self.table, counts).and_then(|text| self.noted(&text));
        let Some(text) = added else {
            let text = format!("{} has no table `{}`; the counts were not added", path.display(), self.table);
            return Err(Error::new(ErrorKind::Invalid, text));
        };
        os::file::replace(path, text.as_bytes())
    }

    fn is_new(&self, text: &str) -> Result<()> {
        let opening = format!("<!-- runs: {} -->\n", self.table);
        let rows =
            text.split_once(&opening).and_then(|(_, rest)| rest.split_once("<!-- end -->")).map(|(rows, _)| rows);
        for row in rows.unwrap_or_default().lines() {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [commit, kind, from, to, _] = cells.as_slice() else { continue };
            let (Ok(from), Ok(to)) = (from.parse::<u64>(), to.parse::<u64>()) else { continue };
            if *commit == self.commit && *kind == self.kind && from <= self.numbers.1 && self.numbers.0 <= to {
                let text = format!(
                    "{kind} {from} to {to} of commit {commit} are counted in table `{}` already; nothing was added; run others",
                    self.table
                );
                return Err(Error::new(ErrorKind::Exists, text));
            }
        }
        Ok(())
    }

    fn noted(&self, text: &str) -> Option<String> {
        let Run { table, commit, kind, numbers: (from, to) } = self;
        let row = format!("| {commit} | {kind} | {from} | {to} | {} |", to - from + 1);
        // No row begins with this whole one: it is appended.
        with_row(text, &format!("runs: {table}"), &row, &row)
    }
}

/// The commit that is checked out. Refused if the tree has changes, the document at `path` aside: then no commit says what runs.
pub fn commit(path: &Path) -> Result<String> {
    let document = format!(":(exclude){}", path.display());
    if !git(&["status", "--porcelain", "--", ".", &document])?.trim().is_empty() {
        let text =
            "the tree has changes that are no commit, so what ran could not be said; nothing was run; commit them";
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(git(&["rev-parse", "--short", "HEAD"])?.trim().to_string())
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(ErrorKind::Io, format!("git {} failed: {}; nothing was counted", arguments.join(" "), said.trim())))
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
    use super::{Run, added, with_row};
    use base::error::ErrorKind;

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

    /// Each run has its row; what was counted at a commit is not counted again there, nor a part of it, but at another commit.
    #[test]
    fn runs_are_counted_once() {
        let head = "| commit | what | from | to | how many |\n|---|---|---|---|---|\n";
        let text = format!("a\n<!-- runs: seeds -->\n{head}<!-- end -->\nz\n");
        let run = |commit: &str, kind: &str, from, to| {
            let (table, commit, kind) = ("seeds".to_string(), commit.to_string(), kind.to_string());
            Run { table, commit, kind, numbers: (from, to) }
        };
        let text = run("abc1234", "seeds", 10, 19).noted(&text).expect("the table is there");
        let text = run("abc1234", "seeds", 20, 20).noted(&text).expect("the table is there");
        let rows = "| abc1234 | seeds | 10 | 19 | 10 |\n| abc1234 | seeds | 20 | 20 | 1 |\n<!-- end -->\nz\n";
        assert_eq!(text, format!("a\n<!-- runs: seeds -->\n{head}{rows}"));
        for (from, to) in [(10, 19), (0, 10), (15, 16), (19, 30), (0, 100), (20, 20)] {
            let refused = run("abc1234", "seeds", from, to).is_new(&text).expect_err("some were counted");
            assert_eq!(refused.kind(), ErrorKind::Exists, "{from} to {to}");
        }
        for (commit, kind, from, to) in
            [("abc1234", "seeds", 0, 9), ("abc1234", "others", 10, 19), ("abc1235", "seeds", 10, 19)]
        {
            assert!(run(commit, kind, from, to).is_new(&text).is_ok(), "{commit} {kind} {from}");
        }
    }
}
