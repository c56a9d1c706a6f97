//! Pictures of curves as SVG, readable on light and on dark pages.

use std::fmt::Write;

/// Lines over two axes.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What goes to the right, with its unit.
    pub x: String,
    /// What goes up, with its unit.
    pub y: String,
    /// Whether each step to the right doubles.
    pub doubling: bool,
    /// The least that goes up; the axis begins at zero without it.
    pub floor: f64,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line, from left to right.
#[derive(Clone, Debug)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
    /// Whether it is what others are compared with.
    pub dashed: bool,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 95.0;

/// Colours that stand out from white and from black.
const COLOURS: [&str; 5] = ["#1f8ad1", "#e07b00", "#2f9e44", "#c2459a", "#8a7f00"];

/// Text and axes are grey enough for a white page; a page that is dark gets them light.
const STYLE: &str = "text{font:13px sans-serif;fill:#333}.t{font-size:15px;font-weight:bold}.a{stroke:#777;fill:none}\
.g{stroke:#8884;fill:none}.l{fill:none;stroke-width:2.2}.d{stroke-dasharray:6 5;stroke-width:1.6}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.a{stroke:#aaa}}";

/// Where values lie in the picture.
struct Scale {
    from: f64,
    to: f64,
    at: f64,
    until: f64,
    doubling: bool,
}

impl Scale {
    fn place(&self, value: f64) -> f64 {
        let bend = |value: f64| if self.doubling { value.max(1e-9).log2() } else { value };
        let span = (bend(self.to) - bend(self.from)).abs().max(1e-9);
        self.at + (bend(value) - bend(self.from)) / span * (self.until - self.at)
    }

    /// Round values to write at the axis.
    fn marks(&self) -> Vec<f64> {
        if self.doubling {
            return std::iter::successors(Some(self.from), |mark| Some(mark * 2.0))
                .take_while(|mark| *mark <= self.to * 1.001)
                .collect();
        }
        let step = round_step((self.to - self.from) / 6.0);
        let first = (self.from / step).ceil() as i64;
        (first..).map(|number| number as f64 * step).take_while(|mark| *mark <= self.to + step * 1e-6).collect()
    }
}

/// The least of 1, 2, 5 and 10 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let least = least.max(1e-9);
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

impl Chart {
    /// The picture.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MIN, f64::max);
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::MAX, f64::min);
        let from = if self.doubling { least(&mut points().map(|point| point.0)) } else { 0.0 };
        let highest = most(&mut points().map(|point| point.1)).max(self.floor + 1e-6);
        let step = round_step((highest - self.floor) / 6.0);
        let to = (highest / step).ceil() * step;
        let x = Scale {
            from,
            to: most(&mut points().map(|point| point.0)),
            at: LEFT,
            until: WIDTH - RIGHT,
            doubling: self.doubling,
        };
        let y = Scale { from: self.floor, to, at: HEIGHT - BOTTOM, until: TOP, doubling: false };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\
             <title>{title}</title><style>{STYLE}</style>\n\
             <text class=\"t\" x=\"{LEFT}\" y=\"24\">{title}</text>\n",
            title = escaped(&self.title)
        );
        self.axes(&mut svg, &x, &y);
        for (place, line) in self.lines.iter().enumerate() {
            line.draw(&mut svg, &x, &y, COLOURS[place % COLOURS.len()]);
        }
        self.legend(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn axes(&self, svg: &mut String, x: &Scale, y: &Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for mark in y.marks() {
            let at = y.place(mark);
            // Writing to a string does not fail.
            let _ = writeln!(svg, "<path class=\"g\" d=\"M{LEFT} {at:.1}H{right}\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                at + 4.0,
                number(mark)
            );
        }
        for mark in x.marks() {
            let at = x.place(mark);
            let _ = writeln!(svg, "<path class=\"a\" d=\"M{at:.1} {bottom}v5\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 19.0,
                number(mark)
            );
        }
        let _ = writeln!(svg, "<path class=\"a\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
        let middle = (LEFT + right) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 40.0,
            escaped(&self.x)
        );
        let half = (TOP + bottom) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"17\" y=\"{half}\" text-anchor=\"middle\" transform=\"rotate(-90 17 {half})\">{}</text>",
            escaped(&self.y)
        );
    }

    fn legend(&self, svg: &mut String) {
        let y = HEIGHT - 20.0;
        let mut x = LEFT;
        for (place, line) in self.lines.iter().enumerate() {
            let (colour, dash) = (COLOURS[place % COLOURS.len()], if line.dashed { " d" } else { "" });
            let _ = writeln!(svg, "<path class=\"l{dash}\" stroke=\"{colour}\" d=\"M{x} {}h24\"/>", y - 4.0);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{}</text>", x + 30.0, escaped(&line.name));
            x += 46.0 + 7.0 * line.name.chars().count() as f64;
        }
    }
}

impl Line {
    /// A line of what was measured.
    pub fn new(name: &str, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.to_string(), points, dashed: false }
    }

    /// A line to compare with.
    pub fn dashed(name: &str, points: Vec<(f64, f64)>) -> Line {
        Line { dashed: true, ..Line::new(name, points) }
    }

    fn draw(&self, svg: &mut String, x: &Scale, y: &Scale, colour: &str) {
        let places: Vec<(f64, f64)> = self.points.iter().map(|point| (x.place(point.0), y.place(point.1))).collect();
        let way: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if self.dashed { " d" } else { "" };
        let _ = writeln!(svg, "<polyline class=\"l{dash}\" stroke=\"{colour}\" points=\"{}\"/>", way.join(" "));
        // So many points are measurements one by one; more are a curve.
        if places.len() <= 16 && !self.dashed {
            for (x, y) in places {
                let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chart, Line, Scale, round_step};

    /// Marks are round numbers within the axis; on a doubling axis they are the measured sizes.
    #[test]
    fn marks() {
        assert_eq!([0.13, 0.2, 3.0, 51.0, 900.0].map(round_step), [0.2, 0.2, 5.0, 100.0, 1000.0]);
        let scale = Scale { from: 0.0, to: 30.0, at: 0.0, until: 300.0, doubling: false };
        assert_eq!(scale.marks(), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        let scale = Scale { from: 1.0, to: 16.0, at: 0.0, until: 100.0, doubling: true };
        assert_eq!(scale.marks(), [1.0, 2.0, 4.0, 8.0, 16.0]);
        assert!((scale.place(4.0) - 50.0).abs() < 1e-9);
    }

    /// A picture has both axes' labels, the names of its lines, escaped, and every point within its edges.
    #[test]
    fn picture() {
        let chart = Chart {
            title: "a < b & c".to_string(),
            x: "nodes".to_string(),
            y: "MB/s".to_string(),
            doubling: true,
            floor: 0.0,
            lines: vec![
                Line::new("push", vec![(1.0, 80.0), (16.0, 1250.0)]),
                Line::dashed("devices", vec![(1.0, 80.0), (16.0, 1280.0)]),
            ],
        };
        let svg = chart.svg();
        for part in ["a &lt; b &amp; c", ">nodes<", ">MB/s<", ">push<", "prefers-color-scheme:dark"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let points =
            svg.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap_or("").split([' ', ',']));
        let values: Vec<f64> = points.map(|value| value.parse().expect("a number")).collect();
        assert_eq!(values.len(), 8);
        assert!(
            values.chunks(2).all(|at| (0.0..=720.0).contains(&at[0]) && (0.0..=400.0).contains(&at[1])),
            "{values:?}"
        );
    }
}
