//! Reading a page of metrics as Prometheus does: series with labels and numbers.

use std::collections::BTreeMap;

/// The labels of a series, by name.
pub type Labels = BTreeMap<String, String>;

/// The numbers of a page, by the metric's name. Lines that cannot be read are left out: a newer node may say more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    metrics: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Page {
    /// Reads the text.
    pub fn read(text: &str) -> Page {
        let mut page = Page::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some((name, labels, value)) = series(line) {
                page.metrics.entry(name).or_default().push((labels, value));
            }
        }
        page
    }

    /// Whether there is nothing on it.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// The series of a metric.
    pub fn all(&self, name: &str) -> &[(Labels, f64)] {
        self.metrics.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of a metric over the series that have all these labels; zero without one.
    pub fn sum(&self, name: &str, wanted: &[(&str, &str)]) -> f64 {
        let matching = self.all(name).iter().filter(|(labels, _)| has(labels, wanted));
        // Not `sum`, whose zero is negative.
        matching.fold(0.0, |sum, (_, value)| sum + value)
    }

    /// The cumulative buckets of a histogram over the series that have these labels: upper bound in seconds and count.
    pub fn buckets(&self, name: &str, wanted: &[(&str, &str)]) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (labels, count) in self.all(&format!("{name}_bucket")).iter().filter(|(labels, _)| has(labels, wanted)) {
            let Some(bound) = labels.get("le").and_then(|bound| number(bound)) else { continue };
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((bound, *count)),
            }
        }
        buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        buckets
    }
}

fn has(labels: &Labels, wanted: &[(&str, &str)]) -> bool {
    wanted.iter().all(|(name, value)| labels.get(*name).is_some_and(|found| found == value))
}

/// `NaN` is no number here: nothing can be made of it.
fn number(text: &str) -> Option<f64> {
    if text == "+Inf" { Some(f64::INFINITY) } else { text.parse().ok().filter(|value: &f64| !value.is_nan()) }
}

/// `name{label="value",...} number`.
fn series(line: &str) -> Option<(String, Labels, f64)> {
    let (front, value) = line.trim_end().rsplit_once(' ')?;
    let value = number(value)?;
    let Some((name, rest)) = front.split_once('{') else {
        return Some((front.to_string(), Labels::new(), value));
    };
    let mut labels = Labels::new();
    let mut rest = rest.strip_suffix('}')?;
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"")?;
        let (text, after) = quoted(after)?;
        labels.insert(label.to_string(), text);
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some((name.to_string(), labels, value))
}

/// The text up to the closing quote, without its escapes, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[place + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Page, series};

    /// What a node writes is read back, with escapes and infinite bounds; sums and buckets go over the series that match.
    #[test]
    fn pages() {
        let page = Page::read(
            "# HELP a Things, {x=\"1\"} 3\n# TYPE a gauge\na 7\nb{k=\"x\\\"\\\\\\n\",l=\"1\"} 2.5\nb{k=\"y\",l=\"1\"} 4\n\
             c_bucket{k=\"x\",le=\"0.1\"} 1\nc_bucket{k=\"x\",le=\"+Inf\"} 3\nc_bucket{k=\"y\",le=\"0.1\"} 5\n\
             c_bucket{k=\"y\",le=\"+Inf\"} 5\n",
        );
        assert_eq!(page.sum("a", &[]), 7.0);
        assert_eq!(page.sum("b", &[("k", "x\"\\\n")]), 2.5);
        assert_eq!(page.sum("b", &[("l", "1")]), 6.5);
        assert_eq!(page.sum("d", &[]), 0.0);
        assert_eq!(page.buckets("c", &[]), [(0.1, 6.0), (f64::INFINITY, 8.0)]);
        assert_eq!(page.buckets("c", &[("k", "x")]), [(0.1, 1.0), (f64::INFINITY, 3.0)]);
    }

    /// Lines that are no series are left out and do no harm.
    #[test]
    fn strange_lines() {
        for line in ["", "a", "a b", "a NaN", "a{ 1", "a{b} 1", "a{b=\"c} 1", "a{b=\"c\\\"} 1", "a{b=\"\\", "{} 1x"] {
            assert!(series(line).is_none(), "{line:?}");
        }
        assert!(Page::read("garbage\n\u{0}\n").is_empty());
    }
}
