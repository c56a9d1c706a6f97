//! The text in which Prometheus reads metrics (exposition format 0.0.4).

use base::metric::{BOUNDS, Counted};
use std::fmt::{Display, Write};

/// A page of metrics as it is written.
#[derive(Default)]
pub struct Page {
    text: String,
}

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

/// Label names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// Begins a metric: its samples follow.
    pub fn metric(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// One number of the metric that was begun.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.write(format_args!("{name}{} {value}\n", Braces(labels, None)));
    }

    /// A metric that is one number.
    pub fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The buckets, sum and count of a histogram.
    pub fn histogram(&mut self, name: &str, labels: Labels<'_>, counted: &Counted) {
        let mut below = 0_u64;
        for (place, count) in counted.buckets.iter().enumerate() {
            below = below.saturating_add(*count);
            let bound = match place {
                BOUNDS.. => "+Inf".to_string(),
                _ => Counted::bound(place).as_secs_f64().to_string(),
            };
            self.write(format_args!("{name}_bucket{} {below}\n", Braces(labels, Some(("le", &bound)))));
        }
        self.write(format_args!("{name}_sum{} {}\n", Braces(labels, None), counted.sum.as_secs_f64()));
        self.write(format_args!("{name}_count{} {below}\n", Braces(labels, None)));
    }

    /// The whole page.
    pub fn finish(self) -> String {
        self.text
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.text.write_fmt(text);
    }
}

/// `{a="1",b="2"}`, or nothing without labels.
struct Braces<'a>(Labels<'a>, Option<(&'a str, &'a str)>);

impl Display for Braces<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut before = '{';
        for (name, value) in self.0.iter().chain(self.1.as_ref()) {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, "{before}{name}=\"{value}\"")?;
            before = ',';
        }
        if before == ',' { f.write_char('}') } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Page};
    use base::metric::Histogram;
    use std::time::Duration;

    /// A page reads as Prometheus expects: escaped labels, cumulative buckets that end with everything.
    #[test]
    fn page() {
        let mut page = Page::default();
        page.metric("a_total", Kind::Counter, "Things.");
        page.sample("a_total", &[("place", "x\"\\\n")], 7);
        let histogram = Histogram::default();
        histogram.add(Duration::from_micros(40));
        histogram.add(Duration::from_secs(60));
        page.histogram("b_seconds", &[("kind", "k")], &histogram.counted());
        let text = page.finish();
        assert!(
            text.starts_with("# HELP a_total Things.\n# TYPE a_total counter\na_total{place=\"x\\\"\\\\\\n\"} 7\n")
        );
        for line in [
            "b_seconds_bucket{kind=\"k\",le=\"0.000032\"} 0",
            "b_seconds_bucket{kind=\"k\",le=\"0.000064\"} 1",
            "b_seconds_bucket{kind=\"k\",le=\"16.777216\"} 1",
            "b_seconds_bucket{kind=\"k\",le=\"+Inf\"} 2",
            "b_seconds_sum{kind=\"k\"} 60.00004",
            "b_seconds_count{kind=\"k\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
    }
}
