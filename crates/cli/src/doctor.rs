//! `stormwell doctor`: looks at the machine, at data directories and at the store, and says what stands in the way.

mod directory;
mod machine;
mod store;

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;

/// Looks at this machine, its disks and the store on it, and says what to do
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell doctor
  stormwell doctor --data /nvme/stormwell --data /disk/stormwell
  stormwell doctor --json --at 127.0.0.1:7400

It needs no running store and changes nothing. In each data directory it writes and reads a scratch file of 4 MiB, which is
gone when it ends, whatever happens. Run it as the user who runs `stormwell serve`, from the same service or shell: limits
belong to those. It ends with 1 if something is in trouble, with 0 otherwise; warnings are no trouble.")]
pub struct Doctor {
    /// A directory that is a device or is to become one; may be given several times
    #[arg(long, value_name = "DIR", default_value = "./stormwell-data")]
    data: Vec<PathBuf>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Ok,
    /// It works, slower or less safely than it could.
    Warning,
    /// It does not work, or loses data.
    Trouble,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Trouble => "TROUBLE",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, in a word or two; programs know checks by it.
    pub name: &'static str,
    /// Which one, where there are several: a directory, an address.
    pub subject: String,
    /// How bad it is.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// What that means; empty if it is as it should be.
    pub means: String,
    /// A command to paste or a thing to do; empty if there is nothing to do.
    pub remedy: String,
}

impl Check {
    /// Something that is as it should be.
    pub fn ok(name: &'static str, seen: impl Into<String>) -> Check {
        let (subject, means, remedy) = (String::new(), String::new(), String::new());
        Check { name, subject, state: State::Ok, seen: seen.into(), means, remedy }
    }

    /// Something that works and could be better.
    pub fn warning(name: &'static str, seen: impl Into<String>, means: &str, remedy: impl Into<String>) -> Check {
        let (means, remedy) = (means.to_string(), remedy.into());
        Check { state: State::Warning, means, remedy, ..Check::ok(name, seen) }
    }

    /// Something that does not work or loses data.
    pub fn trouble(name: &'static str, seen: impl Into<String>, means: &str, remedy: impl Into<String>) -> Check {
        Check { state: State::Trouble, ..Check::warning(name, seen, means, remedy) }
    }

    /// The same, of this one of several.
    #[must_use]
    pub fn of(self, subject: impl Into<String>) -> Check {
        Check { subject: subject.into(), ..self }
    }
}

impl Doctor {
    /// Looks at everything; each check is shown when it is done.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let mut output = Output::open()?;
        let mut states = Vec::new();
        let mut show = |checks: Vec<Check>| -> Result<()> {
            for check in checks {
                if context.json {
                    output.json(&object(&check))?;
                } else {
                    for line in lines(&check) {
                        let line = output.name(&line);
                        output.line(&line)?;
                    }
                }
                states.push(check.state);
            }
            output.flush()
        };
        show(machine::checks(context))?;
        for data in &self.data {
            show(directory::checks(data, context))?;
        }
        show(store::checks(context).await)?;
        let count = |state| states.iter().filter(|one| **one == state).count();
        let (warnings, troubles) = (count(State::Warning), count(State::Trouble));
        if !context.quiet {
            say(&format!(
                "stormwell: {} looked at: {} ok, {warnings} with a warning, {troubles} in trouble",
                crate::show::count(states.len() as u64, "thing", "things"),
                count(State::Ok)
            ));
        }
        Ok(if troubles > 0 { Exit::Failed } else { Exit::Done })
    }
}

fn object(check: &Check) -> serde_json::Value {
    json!({
        "check": check.name,
        "subject": check.subject,
        "state": check.state.name().to_ascii_lowercase(),
        "seen": check.seen,
        "means": check.means,
        "do": check.remedy,
    })
}

/// One line, and one each for what it means and what to do.
fn lines(check: &Check) -> Vec<String> {
    let seen = if check.subject.is_empty() { check.seen.clone() } else { format!("{}: {}", check.subject, check.seen) };
    let mut lines = vec![format!("{:<8} {:<14} {seen}", check.state.name(), check.name)];
    for (head, text) in [("means", &check.means), ("do", &check.remedy)] {
        if !text.is_empty() {
            lines.push(format!("{:<8} {head:>14} {text}", ""));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Check, lines, object};

    /// A check that needs something done says what in a line of its own, and as a field for programs.
    #[test]
    fn looks() {
        let fine = Check::ok("memory", "8.0 GiB");
        assert_eq!(lines(&fine), ["ok       memory         8.0 GiB"]);
        let bad = Check::trouble("data", "no file can be made", "it cannot be a device", "chown me /d").of("/d");
        let shown = lines(&bad);
        assert_eq!(shown[0], "TROUBLE  data           /d: no file can be made");
        assert!(shown[1].ends_with("means it cannot be a device") && shown[2].ends_with("do chown me /d"), "{shown:?}");
        assert_eq!(
            (object(&bad)["state"].as_str(), object(&bad)["do"].as_str()),
            (Some("trouble"), Some("chown me /d"))
        );
    }
}
