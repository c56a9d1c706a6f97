//! How rows are printed: a table for people, or one object a row for programs.

use super::row::{Row, largest, shown, smallest};
use base::unit::show_bytes;

/// Prints rows as they come, to stdout.
pub struct Table {
    json: bool,
    started: bool,
}

impl Table {
    /// A table for people, or objects.
    pub fn new(json: bool) -> Table {
        Table { json, started: false }
    }

    /// Prints one row.
    pub fn print(&mut self, row: &Row) {
        if self.json {
            println!("{}", row.to_json());
            return;
        }
        if !self.started {
            self.started = true;
            println!("{:<21} {:>16} {:>12} {:>6}  {:<22} verdict", "row", "value", "raw", "ratio", "bar");
        }
        let value = format!("{} {}", shown(row.value()), row.unit);
        let raw = row.raw_value().map_or_else(|| "-".to_string(), shown);
        let ratio = row.ratio().map_or_else(|| "-".to_string(), |ratio| format!("{ratio:.2}"));
        let (bar, verdict) = (row.bar_text(), row.verdict().name());
        println!("{:<21} {value:>16} {raw:>12} {ratio:>6}  {bar:<22} {verdict}", row.name);
        for line in details(row) {
            println!("    {line}");
        }
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
