//! `stormwell top`: what a store does just now, again and again.

mod moment;
mod page;
mod picture;

use crate::context::Context;
use crate::exit::{Exit, Fault, Result, report, say};
use crate::output::Output;
use base::error::Error;
use base::unit::Time;
use clap::Args;
use client::StatusQuery;
use moment::Moment;
use page::Page;
use std::io::IsTerminal;
use std::time::Duration;

/// Shows what the store does: devices, rates, latencies, calls, memory, bags
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell top
  stormwell top --interval 10s
  stormwell top --interval 1s --count 5 --json

On a terminal it draws in place until Ctrl-C; elsewhere it prints a block for each interval, with --json an object. Rates and
latencies are those of the interval, from the node's metrics; a latency lies between bounds that double, and is as exact as that.
It needs no session, so it works while the store takes no writes; a store that goes away is asked again.")]
pub struct Top {
    /// Time between two looks: 500ms, 2s, 1m
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// End after so many intervals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// The shortest interval costs a node nothing that anybody sees; the longest is an hour.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Reads `500ms`, `2s`, `1m`, or `2`, which means seconds.
fn interval(text: &str) -> std::result::Result<Duration, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit {
        "ms" => Some(0.001),
        "s" | "" => Some(1.0),
        "m" | "min" => Some(60.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(scale).map(|(number, scale)| number * scale);
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| INTERVALS.contains(time))
        .ok_or_else(|| format!("'{text}' is no interval; write 500ms, 2s or 1m, from 100ms to 60m"))
}

/// One look at the store.
struct Look {
    at: Time,
    answer: client::LookAnswer,
    page: Page,
}

async fn look(onlooker: &StatusQuery, context: &Context) -> base::error::Result<Look> {
    let (answer, page) = onlooker.look().await?;
    Ok(Look { at: context.clock.now(), answer, page: Page::read(&page) })
}

impl Top {
    /// Shows until a signal comes or the count is reached. A store that answers no more at the end is an error.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let onlooker = StatusQuery::connect(context.settings("top")?).await?;
        let mut before = look(&onlooker, context).await?;
        let mut screen = Screen::open(context)?;
        let mut told = std::pin::pin!(os::signal::end());
        let mut shown = 0;
        loop {
            let next = async {
                tokio::time::sleep(self.interval).await;
                look(&onlooker, context).await
            };
            let looked = tokio::select! {
                biased;
                signal = &mut told => {
                    signal?;
                    return screen.close().map(|()| Exit::Done);
                }
                looked = next => looked,
            };
            shown += 1;
            let last = self.count == Some(shown);
            match looked {
                Ok(now) => {
                    screen.show(&Moment::between(&before, &now), &context.at)?;
                    before = now;
                }
                Err(error) if last => {
                    screen.close()?;
                    return Err(Fault::Error(error));
                }
                Err(error) => screen.complain(&error)?,
            }
            if last {
                return screen.close().map(|()| Exit::Done);
            }
        }
    }
}

/// Where it is shown.
struct Screen {
    output: Output,
    json: bool,
    /// Whether stdout is a terminal, so that the picture stays in its place.
    in_place: bool,
    drawn: bool,
}

/// A terminal that does not say how large it is.
const SIZE_USUAL: (usize, usize) = (24, 80);

impl Screen {
    fn open(context: &Context) -> Result<Screen> {
        let in_place = !context.json && std::io::stdout().is_terminal();
        Ok(Screen { output: Output::open()?, json: context.json, in_place, drawn: false })
    }

    fn show(&mut self, moment: &Moment, at: &str) -> Result<()> {
        if self.json {
            self.output.json(&picture::object(moment))?;
            return self.output.flush();
        }
        let lines = picture::lines(moment, at);
        if self.in_place {
            return self.draw(&lines);
        }
        for line in lines {
            self.output.line(&line)?;
        }
        self.output.line("")?;
        self.output.flush()
    }

    /// Draws over what was drawn before: the cursor goes to the upper left corner, each line ends with an erased rest.
    fn draw(&mut self, lines: &[String]) -> Result<()> {
        let (rows, columns) = os::terminal::size().unwrap_or(SIZE_USUAL);
        let begin = if self.drawn { "\x1b[H" } else { "\x1b[?25l\x1b[2J\x1b[H" };
        self.drawn = true;
        let mut picture = begin.to_string();
        for line in lines.iter().take(rows.saturating_sub(1)) {
            picture.extend(self.output.name(line).chars().take(columns));
            picture.push_str("\x1b[K\n");
        }
        picture.push_str("\x1b[J");
        self.output.bytes(picture.as_bytes())
    }

    /// The store did not answer; it is asked again.
    fn complain(&mut self, error: &Error) -> Result<()> {
        if self.in_place {
            return self.draw(&[format!("no answer: {error}"), "asking again; Ctrl-C ends".to_string()]);
        }
        report(error);
        say("stormwell: asking again");
        Ok(())
    }

    /// Gives the cursor back.
    fn close(&mut self) -> Result<()> {
        if self.drawn { self.output.bytes(b"\x1b[?25h") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::interval;
    use std::time::Duration;

    /// Intervals are read with their unit, and those that make no sense are refused.
    #[test]
    fn intervals() {
        for (text, millis) in [("500ms", 500), ("2s", 2000), ("2", 2000), ("1.5s", 1500), ("1m", 60_000)] {
            assert_eq!(interval(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "0", "1ms", "2h", "s", "-1s", "1e3s", "99999999999999999999m", "1..2s"] {
            assert!(interval(bad).is_err(), "{bad:?}");
        }
    }
}
