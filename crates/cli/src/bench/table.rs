//! How rows are printed: a table for people, or one object a row for programs.

use super::row::{Row, largest, shown, smallest};
use crate::exit::{Result, say};
use crate::output::Output;
use base::unit::show_bytes;

/// Prints rows as they come, to stdout.
pub struct Table {
    output: Output,
    json: bool,
    started: bool,
}

impl Table {
    /// A table for people, or objects.
    pub fn new(json: bool) -> Result<Table> {
        Ok(Table { output: Output::open()?, json, started: false })
    }

    /// Prints one row.
    pub fn print(&mut self, row: &Row) -> Result<()> {
        if self.json {
            self.output.json(&row.to_json())?;
            return self.output.flush();
        }
        if !self.started {
            self.started = true;
            let line = format!("{:<21} {:>18} {:>10} {:>6}  {:<22} verdict", "row", "value", "raw", "ratio", "bar");
            self.output.line(&line)?;
        }
        let value = format!("{} {}", shown(row.value()), row.unit);
        let raw = row.raw_value().map_or_else(|| "-".to_string(), shown);
        let ratio = row.ratio().map_or_else(|| "-".to_string(), |ratio| format!("{ratio:.2}"));
        let (bar, verdict) = (row.bar_text(), row.verdict().name());
        self.output.line(&format!("{:<21} {value:>18} {raw:>10} {ratio:>6}  {bar:<22} {verdict}", row.name))?;
        for line in details(row) {
            self.output.line(&format!("    {line}"))?;
        }
        self.output.flush()
    }

    /// Prints the last line: after a table on stdout, beside objects on stderr.
    pub fn finish(&mut self, line: &str) -> Result<()> {
        if self.json {
            say(line);
            return Ok(());
        }
        self.output.line(line)?;
        self.output.flush()
    }
}

/// What does not fit in the columns.
fn details(row: &Row) -> Vec<String> {
    let mut lines = Vec::new();
    let spread = |values: &[f64]| {
        let (low, high) = (smallest(values).unwrap_or(f64::NAN), largest(values).unwrap_or(f64::NAN));
        format!("{}..{}", shown(low), shown(high))
    };
    let mut first = format!("median of {} ({})", row.values.len(), spread(&row.values));
    if !row.raw.is_empty() {
        first.push_str(&format!("; raw is {} ({})", row.raw_is, spread(&row.raw)));
    }
    lines.push(first);
    if let Some(floor) = row.floor_value() {
        let (floor, spread) = (shown(floor), spread(&row.floor));
        lines.push(format!("a bare program that does only what cannot be left out: {floor} ({spread})"));
    }
    if let Some(latency) = row.latency {
        let (p50, p99, p999) = (shown(latency.p50), shown(latency.p99), shown(latency.p999));
        lines.push(format!("latency in us: p50 {p50}, p99 {p99}, p99.9 {p999}"));
    }
    if let Some(moved) = row.least_moved() {
        let (kernel, payload) = (show_bytes(moved.kernel), show_bytes(moved.payload));
        lines.push(format!("the kernel counted {kernel} on the device for {payload} of payload"));
    }
    if !row.note.is_empty() {
        lines.push(row.note.clone());
    }
    lines
}
