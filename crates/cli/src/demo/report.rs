//! What the demonstration says at its end: a table of what was done, how fast, beside what, and what was lost.

use crate::exit::Result;
use crate::output::Output;
use serde_json::{Value, json};

/// One thing that was done.
pub struct Line {
    /// What.
    pub what: &'static str,
    /// How much.
    pub amount: String,
    /// How fast, for people.
    pub speed: String,
    /// The same for programs: numbers by name.
    pub numbers: Value,
    /// Beside what.
    pub beside: String,
    /// Things that were acknowledged and are missing or wrong.
    pub lost: u64,
}

/// Everything that was done, in order.
#[derive(Default)]
pub struct Report {
    lines: Vec<Line>,
    faults: Vec<String>,
    failed: bool,
}

impl Report {
    /// One more thing was done.
    pub fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    /// What was found to be wrong, in words.
    pub fn faults(&mut self, named: impl IntoIterator<Item = String>) {
        self.faults.extend(named);
    }

    /// Something that should have gone on by itself gave up.
    pub fn fail(&mut self, why: &str) {
        self.faults.push(why.to_string());
        self.failed = true;
    }

    /// Everything that was lost, wrong, or gave up.
    pub fn lost(&self) -> u64 {
        self.lines.iter().map(|line| line.lost).sum::<u64>() + u64::from(self.failed)
    }

    /// Prints it.
    pub fn print(&self, output: &mut Output, json: bool) -> Result<()> {
        if json {
            for line in &self.lines {
                let mut object = json!({
                    "what": line.what,
                    "amount": line.amount,
                    "speed": line.speed,
                    "beside": line.beside,
                    "lost": line.lost,
                });
                if let (Some(object), Some(numbers)) = (object.as_object_mut(), line.numbers.as_object()) {
                    object.extend(numbers.clone());
                }
                output.json(&object)?;
            }
            return output.flush();
        }
        let heads = ["what was done", "how much", "how fast", "beside", "lost"].map(str::to_string);
        let mut rows = vec![heads];
        for line in &self.lines {
            let what = line.what.to_string();
            rows.push([what, line.amount.clone(), line.speed.clone(), line.beside.clone(), line.lost.to_string()]);
        }
        let mut widths = [0; 5];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        for row in &rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            output.line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        for fault in &self.faults {
            output.line(&format!("WRONG: {fault}"))?;
        }
        output.flush()
    }
}
