//! The pictures of the experiments: from rows as they are printed for programs, so that sizes may be measured one at a time.

use super::bags::Buffer;
use super::joins::Seen;
use super::plot::{Chart, Line};
use base::error::{Error, ErrorKind, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Where pictures lie, from the root of the tree.
const PICTURES: &str = "docs/pictures";

/// A picture and the name of its file.
pub type Named = (&'static str, Chart);

/// Writes pictures to where they lie.
pub fn record(charts: &[Named]) -> Result<()> {
    std::fs::create_dir_all(PICTURES)?;
    for (name, chart) in charts {
        os::file::replace(&Path::new(PICTURES).join(format!("{name}.svg")), chart.svg().as_bytes())?;
    }
    Ok(())
}

/// The rows in files that `--json` printed.
pub fn rows_of(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(file).map_err(|error| Error::from(error).during(file.display().to_string()))?;
        let wrong = |what: String| Error::new(ErrorKind::Invalid, format!("{}: {what}", file.display()));
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let object = object.map_err(|error| wrong(error.to_string()))?;
            let found = object["rows"].as_array().ok_or_else(|| wrong("it has no rows".to_string()))?;
            rows.extend(found.iter().cloned());
        }
    }
    rows.sort_by_key(|row| row["devices"].as_u64());
    Ok(rows)
}

/// The pictures of those experiments with several sizes that have rows here.
pub fn of_rows(rows: &[Value]) -> Vec<Named> {
    let of = |experiment: &str| rows.iter().filter(|row| row["experiment"] == experiment).cloned().collect::<Vec<_>>();
    let mut charts = Vec::new();
    let weak = of("weak scaling");
    if !weak.is_empty() {
        charts.push(("weak-scaling", weak_scaling(&weak)));
    }
    for (experiment, name, title) in [
        ("strong scaling", "strong-scaling", "Strong scaling of bags: the same work for all sizes"),
        ("one client", "one-client", "One client: a bag, and a file"),
    ] {
        let rows = of(experiment);
        if !rows.is_empty() {
            charts.push((name, throughput(title, &rows)));
        }
    }
    charts
}

fn weak_scaling(rows: &[Value]) -> Chart {
    let mut lines = lines(rows, |row| number(row, "ratio"));
    // Read off the original's charts: SSD behind 40 Gbit/s up to 16 nodes, behind 10 Gbit/s at 64.
    let read = vec![(1.0, 0.99), (2.0, 0.95), (4.0, 0.95), (8.0, 0.95), (16.0, 0.95), (64.0, 0.87)];
    lines.push(Line::dashed("Hurricane, read", read));
    let (x, y) = ("nodes, and as many clients".to_string(), "throughput, part of the devices' sum".to_string());
    Chart {
        title: "Weak scaling of bags: as many clients as nodes".to_string(),
        x,
        y,
        doubling: true,
        floor: 0.7,
        lines,
    }
}

/// Throughput by devices, beside their sum.
fn throughput(title: &str, rows: &[Value]) -> Chart {
    let mut lines = lines(rows, |row| number(row, "bytes_per_second") / 1e6);
    let sum = rows.iter().filter(|row| row["what"] == "push");
    let sum = sum.map(|row| (number(row, "devices"), number(row, "compared_with_bytes_per_second") / 1e6)).collect();
    lines.push(Line::dashed("the devices' sum", sum));
    Chart { title: title.to_string(), x: "nodes".to_string(), y: "MB/s".to_string(), doubling: true, floor: 0.0, lines }
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(0.0)
}

/// A line for each thing that was done.
fn lines(rows: &[Value], value: impl Fn(&Value) -> f64) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let (what, point) = (row["what"].as_str().unwrap_or(""), (number(row, "devices"), value(row)));
        match lines.iter_mut().find(|line| line.name == what) {
            Some(line) => line.points.push(point),
            None => lines.push(Line::new(what, vec![point])),
        }
    }
    lines
}

/// Bytes by seconds, and what the devices hold.
pub fn backlog(buffer: &Buffer, backlog: &[(f64, f64)]) -> Chart {
    let points = megabytes(backlog);
    let (end, capacity) =
        (points.last().map_or(1.0, |point| point.0), buffer.capacity as f64 / 1e6 * buffer.run.devices as f64);
    Chart {
        title: "Unbounded buffer: producers and consumers at once".to_string(),
        x: "seconds".to_string(),
        y: "pushed and not pulled, MB".to_string(),
        doubling: false,
        floor: 0.0,
        lines: vec![
            Line::new("backlog", points),
            Line::dashed("what the devices hold", vec![(0.0, capacity), (end, capacity)]),
        ],
    }
}

/// Throughput by seconds, and what the devices can do.
pub fn joining(seen: &Seen) -> Chart {
    Chart {
        title: "A node joins, and one is drained, while clients push".to_string(),
        x: "seconds".to_string(),
        y: "MB/s".to_string(),
        doubling: false,
        floor: 0.0,
        lines: vec![
            Line::new("push", megabytes(&seen.curve)),
            Line::dashed("devices that take chunks", megabytes(&seen.devices)),
        ],
    }
}

fn megabytes(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    curve.iter().map(|(second, bytes)| (*second, bytes / 1e6)).collect()
}

#[cfg(test)]
mod tests {
    use super::of_rows;
    use serde_json::json;

    /// Each thing that was done is a line, beside what it is compared with; experiments without rows have no picture.
    #[test]
    fn pictures_of_rows() {
        let row = |devices: u64, what: &str, bytes: u64| {
            json!({ "experiment": "strong scaling", "what": what, "devices": devices, "bytes_per_second": bytes,
                    "compared_with_bytes_per_second": 80_000_000 * devices })
        };
        let charts = of_rows(&[row(1, "push", 79_000_000), row(1, "pull", 78_000_000), row(2, "push", 158_000_000)]);
        let [(name, chart)] = &charts[..] else { panic!("one picture") };
        assert_eq!(*name, "strong-scaling");
        let points: Vec<_> = chart.lines.iter().map(|line| (&line.name[..], line.points.clone())).collect();
        assert_eq!(points[0], ("push", vec![(1.0, 79.0), (2.0, 158.0)]));
        assert_eq!(points[1], ("pull", vec![(1.0, 78.0)]));
        assert_eq!(points[2], ("the devices' sum", vec![(1.0, 80.0), (2.0, 160.0)]));
    }
}
