//! What was measured, as a table for people and as JSON.

use serde_json::{Value, json};

/// One measurement.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What the clients did: `push`, `pull`, `write` and so on
    pub what: &'static str,
    /// Devices.
    pub devices: usize,
    /// What each can do, in bytes a second.
    pub rate: u64,
    /// Clients.
    pub clients: usize,
    /// Bytes of a chunk.
    pub chunk: usize,
    /// Chunks on their way, of each client; zero: as many as it found right.
    pub window: usize,
    /// Chunks that each device had to do with, on average.
    pub each: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What all clients got together, in bytes a second.
    pub throughput: f64,
    /// What it is compared with, in bytes a second.
    pub of: f64,
    /// The least part of that which is good enough; none if it is only shown.
    pub bar: Option<f64>,
    /// Seconds of processors for each GiB, of servers and clients together.
    pub processor: f64,
    /// Memory of the whole process in bytes, without files (RssAnon).
    pub memory: u64,
    /// What else there is to say.
    pub note: String,
}

/// The head of the table.
pub const HEAD: &str = "\
| experiment | nodes and devices | clients | chunk, window | chunks a device | MB/s | of what they can | bar | | processor for a GiB | memory |
|---|---|---|---|---|---|---|---|---|---|---|";

impl Row {
    /// The part of what it is compared with.
    pub fn ratio(&self) -> f64 {
        if self.of > 0.0 { self.throughput / self.of } else { 0.0 }
    }

    /// Whether it is good enough. What is only shown is.
    pub fn holds(&self) -> bool {
        self.bar.is_none_or(|bar| self.ratio() >= bar)
    }

    /// A line of the table.
    pub fn line(&self) -> String {
        let verdict = match (self.bar, self.holds()) {
            (None, _) => "shown",
            (Some(_), true) => "ok",
            (Some(_), false) => "missed",
        };
        let note = if self.note.is_empty() { String::new() } else { format!(" ({})", self.note) };
        format!(
            "| {}, {}{note} | {} x {:.0} MB/s | {} | {} KiB, {} | {} | {:.0} | {:.3} | {} | {verdict} | {:.2} s | {:.0} MB |",
            self.experiment,
            self.what,
            self.devices,
            self.rate as f64 / 1e6,
            self.clients,
            self.chunk >> 10,
            if self.window == 0 { "its own".to_string() } else { self.window.to_string() },
            self.each,
            self.throughput / 1e6,
            self.ratio(),
            self.bar.map_or("-".to_string(), |bar| format!(">= {bar:.2}")),
            self.processor,
            self.memory as f64 / 1e6,
        )
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        json!({
            "experiment": self.experiment, "what": self.what, "devices": self.devices, "device_bytes_per_second": self.rate,
            "clients": self.clients, "chunk_bytes": self.chunk, "window_chunks": self.window,
            "chunks_per_device": self.each, "seconds": self.seconds, "bytes_per_second": self.throughput,
            "compared_with_bytes_per_second": self.of, "ratio": self.ratio(), "bar": self.bar, "holds": self.holds(),
            "processor_seconds_per_gib": self.processor, "memory_bytes": self.memory, "note": self.note,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Row;

    /// A row that reaches its bar is good, one below is not, one without a bar is only shown.
    #[test]
    fn verdicts() {
        let row =
            Row { experiment: "weak", what: "push", throughput: 97.0, of: 100.0, bar: Some(0.97), ..Row::default() };
        assert!(row.holds() && row.line().contains("| 0.970 | >= 0.97 | ok |"), "{}", row.line());
        let row = Row { throughput: 96.0, ..row };
        assert!(!row.holds() && row.line().contains("| missed |"), "{}", row.line());
        let row = Row { bar: None, ..row };
        assert!(row.holds() && row.line().contains("| - | shown |"), "{}", row.line());
    }
}
