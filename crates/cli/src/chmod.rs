//! `stormwell chmod`: permission bits of files and directories.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::{below, path};
use clap::Args;
use client::NewAttributes;

/// Sets permission bits of files and directories
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell chmod 640 /logs/today.log
  stormwell chmod -R g+w,o-rwx /shared

MODE is octal, or what chmod(1) takes: who (u, g, o, a), then +, - or =, then any of r, w, x, X (x for directories and for
what somebody may execute already), s and t; several with commas. The owner may, and whoever
runs the server or is in supergroup.")]
pub struct Chmod {
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The bits
    #[arg(value_parser = parse, allow_hyphen_values = true)]
    mode: Mode,
    /// The files or directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

/// What becomes of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    /// They are these.
    Exactly(u32),
    /// They change, one step after another.
    Steps(Vec<Step>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    /// The bits of those it is about, special ones included.
    who: u32,
    sign: char,
    bits: u32,
    /// X was asked for.
    execute_where_sensible: bool,
}

impl Mode {
    fn apply(&self, before: u32, directory: bool) -> u32 {
        let steps = match self {
            Mode::Exactly(bits) => return *bits,
            Mode::Steps(steps) => steps,
        };
        steps.iter().fold(before, |mode, step| {
            let executable = step.execute_where_sensible && (directory || mode & 0o111 != 0);
            let bits = (step.bits | if executable { 0o111 } else { 0 }) & step.who;
            match step.sign {
                '+' => mode | bits,
                '-' => mode & !bits,
                _ => mode & !step.who | bits,
            }
        })
    }
}

fn parse(text: &str) -> std::result::Result<Mode, String> {
    if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        return match u32::from_str_radix(text, 8) {
            Ok(bits) if bits <= 0o7777 => Ok(Mode::Exactly(bits)),
            _ => Err("octal bits go from 0 to 7777".to_string()),
        };
    }
    text.split(',').map(step).collect::<std::result::Result<Vec<_>, _>>().map(Mode::Steps)
}

fn step(text: &str) -> std::result::Result<Step, String> {
    let wrong = || format!("{text:?} is not like u+x or go=r");
    let sign_at = text.find(['+', '-', '=']).ok_or_else(wrong)?;
    let (who, rest) = text.split_at(sign_at);
    let mut step = Step { who: 0, sign: '=', bits: 0, execute_where_sensible: false };
    for letter in who.chars() {
        step.who |= match letter {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => 0o7777,
            _ => return Err(wrong()),
        };
    }
    if who.is_empty() {
        step.who = 0o7777;
    }
    let mut letters = rest.chars();
    step.sign = letters.next().ok_or_else(wrong)?;
    for letter in letters {
        match letter {
            'r' => step.bits |= 0o444,
            'w' => step.bits |= 0o222,
            'x' => step.bits |= 0o111,
            's' => step.bits |= 0o6000,
            't' => {
                step.bits |= 0o1000;
                step.who |= 0o1000;
            }
            'X' => step.execute_where_sensible = true,
            _ => return Err(wrong()),
        }
    }
    Ok(step)
}

impl Chmod {
    /// Sets them; what fails is reported, the rest is done.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        let client = context.connect("chmod").await?;
        let mode = self.mode;
        below::each(&client, &paths, self.recursive, |client, path, attributes| {
            let mode = mode.apply(attributes.mode & 0o7777, attributes.directory);
            let new = NewAttributes { mode: Some(mode), ..NewAttributes::default() };
            async move { client.set_attributes(&path, new).await }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    /// Modes mean what they mean to chmod(1).
    #[test]
    fn modes() {
        for (text, before, directory, after) in [
            ("640", 0o777, false, 0o640),
            ("0", 0o777, false, 0),
            ("1777", 0, true, 0o1777),
            ("u+x", 0o644, false, 0o744),
            ("go-rwx", 0o4755, false, 0o4700),
            ("a=r", 0o777, false, 0o444),
            ("+X", 0o644, false, 0o644),
            ("+X", 0o744, false, 0o755),
            ("u=rwX,g=rX,o=", 0o600, true, 0o750),
            ("u+s,+t", 0o755, false, 0o5755),
        ] {
            let mode = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(mode.apply(before, directory), after, "{text}");
        }
        for bad in ["8", "10000", "u", "x+u", "u+q", "", "u+x,", "+7"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
