//! One row of the table: what was measured over the rounds, beside what, against which bar, and the verdict.

use serde_json::{Value, json};

/// What a row must reach.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// The value, at least so much.
    AtLeast(f64),
    /// The value, at most so much.
    AtMost(f64),
    /// Value over raw, at least so much.
    RatioAtLeast(f64),
    /// Value over raw, at most so much.
    RatioAtMost(f64),
    /// At most so much more than the floor.
    AboveFloorAtMost(f64),
    /// Shown, not judged.
    Shown,
}

/// How a row did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It reached its bar, or has none.
    Ok,
    /// It missed its bar.
    Fail,
    /// It did not do what it claims (fewer bytes on the device than its payload): its numbers mean nothing.
    Invalid,
}

impl Verdict {
    /// The word in the table.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Fail => "FAIL",
            Verdict::Invalid => "invalid",
        }
    }
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Half are faster.
    pub p50: f64,
    /// One in a hundred is slower.
    pub p99: f64,
    /// One in a thousand is slower.
    pub p999: f64,
}

impl Latency {
    /// Percentiles of these durations in nanoseconds. None of nothing.
    pub fn of(mut nanos: Vec<u64>) -> Option<Latency> {
        nanos.sort_unstable();
        let last = nanos.len().checked_sub(1)?;
        let at = |part: f64| nanos[(last as f64 * part).round() as usize] as f64 / 1e3;
        Some(Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999) })
    }
}

/// Bytes that had to reach or leave the device, and those that the kernel counted for the server meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// What the row stored or read.
    pub payload: u64,
    /// What the kernel counted.
    pub kernel: u64,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The unit of values and raw values.
    pub unit: &'static str,
    /// One value a round.
    pub values: Vec<f64>,
    /// One raw value a round; empty if nothing is beside it.
    pub raw: Vec<f64>,
    /// What raw is, for people.
    pub raw_is: String,
    /// The program that measured raw: `fio`, `internal`, `cp`.
    pub raw_tool: &'static str,
    /// One value a round of a bare program that does only what cannot be left out (`floor.rs`); empty if there is none.
    pub floor: Vec<f64>,
    /// What it must reach.
    pub bar: Bar,
    /// Latencies, where they matter.
    pub latency: Option<Latency>,
    /// One entry a round, where the kernel's count decides whether the row is valid.
    pub moved: Vec<Moved>,
    /// What else must be said.
    pub note: String,
}

impl Row {
    /// A row without raw, bar, latencies and bytes.
    pub fn new(name: &'static str, unit: &'static str) -> Row {
        Row {
            name,
            unit,
            values: Vec::new(),
            raw: Vec::new(),
            raw_is: String::new(),
            raw_tool: "",
            floor: Vec::new(),
            bar: Bar::Shown,
            latency: None,
            moved: Vec::new(),
            note: String::new(),
        }
    }

    /// The median of the rounds.
    pub fn value(&self) -> f64 {
        median(&self.values).unwrap_or(f64::NAN)
    }

    /// The median of raw.
    pub fn raw_value(&self) -> Option<f64> {
        median(&self.raw)
    }

    /// The median of the floor.
    pub fn floor_value(&self) -> Option<f64> {
        median(&self.floor)
    }

    /// Value over raw.
    pub fn ratio(&self) -> Option<f64> {
        self.raw_value().filter(|raw| *raw > 0.0).map(|raw| self.value() / raw)
    }

    /// How it did.
    pub fn verdict(&self) -> Verdict {
        if !self.value().is_finite() || self.moved.iter().any(|moved| moved.kernel < moved.payload) {
            return Verdict::Invalid;
        }
        let (value, ratio) = (self.value(), self.ratio());
        let reached = match self.bar {
            Bar::AtLeast(bar) => value >= bar,
            Bar::AtMost(bar) => value <= bar,
            Bar::RatioAtLeast(bar) => ratio.is_some_and(|ratio| ratio >= bar),
            Bar::RatioAtMost(bar) => ratio.is_some_and(|ratio| ratio <= bar),
            Bar::AboveFloorAtMost(bar) => self.floor_value().is_some_and(|floor| value <= floor + bar),
            Bar::Shown => true,
        };
        if reached { Verdict::Ok } else { Verdict::Fail }
    }

    /// The bar in words.
    pub fn bar_text(&self) -> String {
        match self.bar {
            Bar::AtLeast(bar) => format!(">= {}", shown(bar)),
            Bar::AtMost(bar) => format!("<= {}", shown(bar)),
            Bar::RatioAtLeast(bar) => format!(">= {bar:.2} of raw"),
            Bar::RatioAtMost(bar) => format!("<= {bar:.2} of raw"),
            Bar::AboveFloorAtMost(bar) => format!("<= floor + {bar:.2}"),
            Bar::Shown => "shown".to_string(),
        }
    }

    /// The row as one object.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "name": self.name,
            "value": number(self.value()),
            "unit": self.unit,
            "raw": self.raw_value().map(number),
            "ratio": self.ratio().map(number),
            "bar": self.bar_text(),
            "verdict": self.verdict().name(),
            "rounds": self.values.len(),
            "min": smallest(&self.values).map(number),
            "max": largest(&self.values).map(number),
        });
        if !self.raw.is_empty() {
            object["raw_min"] = json!(smallest(&self.raw).map(number));
            object["raw_max"] = json!(largest(&self.raw).map(number));
            object["raw_is"] = json!(self.raw_is);
            object["raw_tool"] = json!(self.raw_tool);
        }
        if let Some(floor) = self.floor_value() {
            object["floor"] = number(floor);
            object["floor_min"] = json!(smallest(&self.floor).map(number));
            object["floor_max"] = json!(largest(&self.floor).map(number));
        }
        if let Some(latency) = self.latency {
            object["latency_unit"] = json!("us");
            object["p50"] = json!(number(latency.p50));
            object["p99"] = json!(number(latency.p99));
            object["p999"] = json!(number(latency.p999));
        }
        if let Some(least) = self.least_moved() {
            object["payload_bytes"] = json!(least.payload);
            object["kernel_bytes"] = json!(least.kernel);
        }
        if !self.note.is_empty() {
            object["note"] = json!(self.note);
        }
        object
    }

    /// The round in which the kernel counted the least for the payload.
    pub fn least_moved(&self) -> Option<Moved> {
        let excess = |moved: &Moved| moved.kernel as i128 - i128::from(moved.payload);
        self.moved.iter().copied().min_by_key(excess)
    }
}

/// The middle of these values; the mean of the two in the middle of an even number.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The smallest of these values.
pub fn smallest(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// The largest of these values.
pub fn largest(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

/// A number with as many digits as mean something.
pub fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// The same, as a number for programs.
fn number(value: f64) -> Value {
    shown(value).parse::<f64>().map_or(Value::Null, |rounded| json!(rounded))
}

#[cfg(test)]
mod tests {
    use super::{Bar, Latency, Moved, Row, Verdict, median};

    /// A verdict compares medians, and a row that moved fewer bytes than its payload is invalid however fast it was.
    #[test]
    fn verdicts() {
        let mut row = Row::new("bag_push", "MB/s");
        assert_eq!(row.verdict(), Verdict::Invalid, "a row without rounds says nothing");
        row.values = vec![80.0, 91.0, 95.0];
        row.raw = vec![100.0, 100.0, 500.0];
        row.bar = Bar::RatioAtLeast(0.9);
        assert_eq!(row.verdict(), Verdict::Ok);
        row.bar = Bar::RatioAtLeast(0.92);
        assert_eq!(row.verdict(), Verdict::Fail);
        row.bar = Bar::AboveFloorAtMost(1.5);
        assert_eq!(row.verdict(), Verdict::Fail, "there is no floor");
        row.floor = vec![90.0, 0.0, 100.0];
        assert_eq!(row.verdict(), Verdict::Ok);
        row.floor = vec![89.0];
        assert_eq!(row.verdict(), Verdict::Fail);
        row.moved = vec![Moved { payload: 10, kernel: 11 }, Moved { payload: 10, kernel: 9 }];
        assert_eq!(row.verdict(), Verdict::Invalid);
        assert_eq!(row.to_json()["kernel_bytes"], 9);
    }

    /// Medians and percentiles are those of the sorted values.
    #[test]
    fn middles() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let latency = Latency::of((0..=1000).rev().map(|n| n * 1000).collect()).unwrap();
        assert_eq!((latency.p50, latency.p99, latency.p999), (500.0, 990.0, 999.0));
        assert!(Latency::of(Vec::new()).is_none());
    }
}
