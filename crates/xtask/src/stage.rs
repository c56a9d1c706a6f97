//! Stages: named steps with a bound on their time, run one after another, with a table at the end.

use crate::tool;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Under continuous integration a stage that takes so many times its bound is ended, and has failed. Machines of the same two cores differ
/// by more than a half: the build took 466 s on one and 1,093 s on another, for a bound of 720 s.
const SLOWEST: u32 = 2;

/// So many lines that a program printed last are printed again after all stages if it failed: of a log that is cut, the end is kept.
const LAST_LINES: usize = 60;

/// No more than so many characters of each.
const LAST_CHARACTERS: usize = 300;

/// A step with a name and a bound.
pub struct Stage {
    /// One word, as `cargo x test NAME` takes it.
    pub name: &'static str,
    /// How long it should take at most on two cores.
    pub bound: Duration,
    /// What it does.
    pub action: Action,
    /// Whether the stages after it can only run if it passed.
    pub needed: bool,
}

/// What a stage does.
pub enum Action {
    /// Runs a program in the root of the tree.
    Run(Run),
    /// Runs a program in a fresh directory.
    RunAside(Run),
    /// Calls a function with the root and the time after which whatever it started is to be ended.
    Call(fn(&Path, Option<Duration>) -> Result<(), String>),
}

/// A program to run.
pub struct Run {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Variables set for it.
    pub environment: Vec<(String, String)>,
    /// A line that it must print, so that a test selected by name cannot pass by not existing.
    pub must_print: Option<String>,
}

impl Run {
    /// The program that these words, separated by spaces, name.
    pub fn of(words: &str) -> Run {
        Run { words: words.split_whitespace().map(str::to_owned).collect(), environment: Vec::new(), must_print: None }
    }

    /// The same with a variable set.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Run {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The line to paste into a shell that does the same.
    pub fn shell(&self) -> String {
        let mut line = String::new();
        for (name, value) in &self.environment {
            let _ = write!(line, "{name}={} ", quoted(value));
        }
        line + &self.words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// Runs it in `directory` to its end, or for `limit` at most; then it and everything it started are killed.
    pub fn execute(&self, directory: &Path, limit: Option<Duration>) -> Result<(), String> {
        let Some((program, arguments)) = self.words.split_first() else { unreachable!("a run names a program") };
        let mut command = Command::new(program);
        command.args(arguments).envs(self.environment.iter().cloned()).current_dir(directory).stdin(Stdio::null());
        // `cargo run` says which package it runs, and ring is built again whenever these change, with all that stands on it: minutes.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                command.env_remove(name);
            }
        }
        let mut output = None;
        if limit.is_some() || self.must_print.is_some() {
            let pipe = std::io::pipe().and_then(|(output, input)| Ok((output, input.try_clone()?, input)));
            let (read, out, errors) = pipe.map_err(|error| format!("no pipe: {error}"))?;
            command.stdout(out).stderr(errors);
            output = Some(read);
        }
        // A group of its own, so that a hung stage ends with its servers. Not at a terminal: Ctrl-C would miss the group.
        if limit.is_some() {
            command.process_group(0);
        }
        let mut child = command.spawn().map_err(|error| format!("{program} does not start: {error}"))?;
        // It has our ends of the pipe, and the reader waits for the last one to be closed.
        drop(command);
        let printed = output.map(|output| Printed::follow(output, self.must_print.clone()));
        let ended = wait(&mut child, limit);
        let Some(printed) = printed else { return ended };
        let printed = printed.at_the_end();
        match ended {
            Ok(()) if printed.wanted.is_none() => Ok(()),
            Ok(()) => Err(format!("it never printed `{}`", printed.wanted.as_deref().unwrap_or_default())),
            Err(text) => Err(printed.last.iter().fold(text, |text, line| text + "\n  " + line)),
        }
    }
}

/// What a program has printed so far, as far as it is of use when it ends.
#[derive(Default)]
struct Printed {
    /// A line that it must print and has not.
    wanted: Option<String>,
    lines: u64,
    last: VecDeque<String>,
}

/// A program whose output a thread passes on.
struct Followed {
    printed: Arc<Mutex<Printed>>,
    thread: std::thread::JoinHandle<()>,
}

impl Printed {
    fn follow(output: impl Read + Send + 'static, wanted: Option<String>) -> Followed {
        let printed = Arc::new(Mutex::new(Printed { wanted, ..Printed::default() }));
        let seen = printed.clone();
        let thread = std::thread::spawn(move || {
            // Bytes that are no text are shown as such: a reader that gave up would stop the program at a full pipe.
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                lock(&seen).take(&line);
            }
        });
        Followed { printed, thread }
    }

    fn take(&mut self, line: &str) {
        if self.wanted.as_deref() == Some(line) {
            self.wanted = None;
        }
        self.lines += 1;
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line.chars().take(LAST_CHARACTERS).collect());
    }
}

impl Followed {
    /// All that it printed, once it has ended; whatever it left behind may keep its output open, or go on printing, and is not waited for.
    fn at_the_end(self) -> Printed {
        let (mut seen, mut since, start) = (0, Instant::now(), Instant::now());
        let (quiet, all) = (Duration::from_secs(2), Duration::from_secs(5));
        while !self.thread.is_finished() && since.elapsed() < quiet && start.elapsed() < all {
            let lines = lock(&self.printed).lines;
            if lines > seen {
                (seen, since) = (lines, Instant::now());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::mem::take(&mut *lock(&self.printed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a stage ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Ok,
    /// Over its bound, but not by so much that it fails.
    Slow,
    Failed,
    /// An earlier stage that it needs failed. Counts as failed.
    NotRun,
}

struct Row {
    name: &'static str,
    bound: Duration,
    took: Duration,
    verdict: Verdict,
    /// Why it failed, and the end of what it printed.
    error: Option<String>,
}

/// Runs the stages in order and prints the table. `Ok(true)` if all passed.
pub fn run_all(root: &Path, stages: Vec<Stage>) -> Result<bool, String> {
    let ci = tool::in_ci();
    let mut rows = Vec::with_capacity(stages.len());
    let mut blocked = false;
    for stage in stages {
        let row = if blocked {
            Row { name: stage.name, bound: stage.bound, took: Duration::ZERO, verdict: Verdict::NotRun, error: None }
        } else {
            run_one(root, &stage, ci)?
        };
        blocked |= stage.needed && row.verdict == Verdict::Failed;
        rows.push(row);
    }
    print!("{}{}", errors(&rows), table(&rows));
    Ok(rows.iter().all(|row| passed(row.verdict)))
}

fn run_one(root: &Path, stage: &Stage, ci: bool) -> Result<Row, String> {
    let repeat = match &stage.action {
        Action::Run(run) => run.shell(),
        Action::RunAside(_) | Action::Call(_) if stage.name == "tidy" => "cargo x tidy".to_owned(),
        Action::RunAside(_) | Action::Call(_) => format!("cargo x test build {}", stage.name),
    };
    println!("==> {} (at most {} s): {repeat}", stage.name, stage.bound.as_secs());
    let limit = ci.then_some(stage.bound * SLOWEST);
    let start = Instant::now();
    let result = match &stage.action {
        Action::Run(run) => run.execute(root, limit),
        Action::RunAside(run) => aside(stage.name, |directory| run.execute(directory, limit))?,
        Action::Call(function) => function(root, limit),
    };
    let took = start.elapsed();
    let verdict = judge(result.is_ok(), took, stage.bound, ci);
    match &result {
        Err(text) => println!("{}: FAILED after {:.1} s: {}", stage.name, took.as_secs_f64(), first_line(text)),
        Ok(()) => println!("{}: {:.1} s", stage.name, took.as_secs_f64()),
    }
    if result.is_ok() && verdict != Verdict::Ok {
        println!("warning: {} took {:.1} s; its bound is {} s", stage.name, took.as_secs_f64(), stage.bound.as_secs());
    }
    if verdict == Verdict::Failed {
        println!("repeat: {repeat}");
    }
    Ok(Row { name: stage.name, bound: stage.bound, took, verdict, error: result.err() })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Why stages failed, one after another.
fn errors(rows: &[Row]) -> String {
    let failed = rows.iter().filter_map(|row| Some((row.name, row.error.as_ref()?)));
    failed.fold(String::new(), |all, (name, text)| format!("{all}\n==> {name} FAILED: {text}\n"))
}

/// Over the bound is a warning; over `SLOWEST` times the bound fails under continuous integration.
fn judge(ok: bool, took: Duration, bound: Duration, ci: bool) -> Verdict {
    if !ok || (ci && took > bound * SLOWEST) {
        Verdict::Failed
    } else if took > bound {
        Verdict::Slow
    } else {
        Verdict::Ok
    }
}

fn passed(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Ok | Verdict::Slow)
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("\n{:<14} {:>8} {:>8}  verdict\n", "stage", "seconds", "bound");
    for row in rows {
        let word = match row.verdict {
            Verdict::Ok => "ok",
            Verdict::Slow => "ok, slow",
            Verdict::Failed => "FAILED",
            Verdict::NotRun => "not run: an earlier stage failed",
        };
        let _ = writeln!(text, "{:<14} {:>8.1} {:>8}  {word}", row.name, row.took.as_secs_f64(), row.bound.as_secs());
    }
    let good = rows.iter().filter(|row| passed(row.verdict)).count();
    let _ = writeln!(text, "{good} passed, {} failed", rows.len() - good);
    text
}

/// Calls `action` with a fresh directory, which is removed unless the action failed. The outer error: no directory.
pub fn aside<T>(name: &str, action: impl FnOnce(&Path) -> Result<T, String>) -> Result<Result<T, String>, String> {
    let directory: PathBuf = std::env::temp_dir().join(format!("stormwell-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory)
        .map_err(|error| format!("{} cannot be made: {error}; remove it or set TMPDIR", directory.display()))?;
    let result = action(&directory);
    match result {
        Ok(_) => {
            let _ = std::fs::remove_dir_all(&directory);
        }
        Err(_) => println!("{name}: its directory is kept: {}", directory.display()),
    }
    Ok(result)
}

fn wait(child: &mut Child, limit: Option<Duration>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let status = child.try_wait().map_err(|error| format!("waiting for it failed: {error}"))?;
        match status {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("it ended with {status}")),
            None => {}
        }
        if let Some(limit) = limit.filter(|limit| start.elapsed() > *limit) {
            let group = format!("-{}", child.id());
            // First politely: the tutorial's shell has a group of its own to end.
            for signal in ["-TERM", "-KILL"] {
                let _ = Command::new("kill").args([signal, "--", &group]).stderr(Stdio::null()).status();
                std::thread::sleep(Duration::from_millis(200));
            }
            let _ = child.wait();
            return Err(format!("it was still running after {} s and was killed", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@,+".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::{LAST_LINES, Row, Run, Verdict, errors, judge, table};
    use std::path::Path;
    use std::time::Duration;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// A slow stage is a warning at a desk, and fails under continuous integration only beyond two bounds.
    #[test]
    fn bounds() {
        assert_eq!(judge(true, seconds(10), seconds(10), true), Verdict::Ok);
        assert_eq!(judge(true, seconds(20), seconds(10), true), Verdict::Slow);
        assert_eq!(judge(true, seconds(21), seconds(10), true), Verdict::Failed);
        assert_eq!(judge(true, seconds(99), seconds(10), false), Verdict::Slow);
        assert_eq!(judge(false, seconds(1), seconds(10), false), Verdict::Failed);
    }

    /// The last line counts the stages, and a stage that was not run counts as failed.
    #[test]
    fn last_line() {
        let row = |verdict| Row { name: "x", bound: seconds(1), took: seconds(1), verdict, error: None };
        let text = table(&[row(Verdict::Ok), row(Verdict::Slow), row(Verdict::Failed), row(Verdict::NotRun)]);
        assert_eq!(text.lines().last(), Some("2 passed, 2 failed"));
    }

    /// What is printed for repeating can be pasted into a shell.
    #[test]
    fn shell_line() {
        let mut run = Run::of("cargo test -- a").with("STORMWELL_DISK", "threads");
        run.words.push("b c".to_owned());
        assert_eq!(run.shell(), "STORMWELL_DISK=threads cargo test -- a 'b c'");
    }

    /// A run fails by its status, by a line that it did not print, and by its limit; then its children are gone too.
    #[test]
    fn endings() {
        let here = Path::new(".");
        assert_eq!(Run::of("true").execute(here, None), Ok(()));
        assert!(Run::of("false").execute(here, None).is_err());
        let mut print = Run::of("echo one");
        print.must_print = Some("one".to_owned());
        assert_eq!(print.execute(here, None), Ok(()));
        print.must_print = Some("two".to_owned());
        assert!(print.execute(here, None).is_err());
        let mut hang = Run::of("sh -c");
        hang.words.push("sleep 600 & wait".to_owned());
        let error = hang.execute(here, Some(Duration::from_millis(50)));
        assert!(error.is_err_and(|text| text.contains("was killed")));
    }

    /// Whoever is left behind and goes on printing is not waited for either.
    #[test]
    fn leftovers_that_print() {
        let mut run = Run::of("sh -c");
        run.words.push("(for i in $(seq 300); do echo $i; sleep 0.1; done) & exit 3".to_owned());
        let start = std::time::Instant::now();
        assert!(run.execute(Path::new("."), Some(seconds(50))).is_err());
        assert!(start.elapsed() < seconds(25), "it prints for half a minute");
    }

    /// Of a stage that failed under continuous integration the last lines are printed again at the end, though it left something behind
    /// that keeps its output open.
    #[test]
    fn last_lines_again() {
        let mut run = Run::of("sh -c");
        run.words.push("seq 100; printf '\\377\\n'; echo why >&2; setsid sleep 60 & exit 3".to_owned());
        let error = run.execute(Path::new("."), Some(seconds(50)));
        let error = error.expect_err("it failed");
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines.len(), LAST_LINES + 1, "{error}");
        assert_eq!(lines[LAST_LINES - 2..], ["  100", "  \u{fffd}", "  why"], "{error}");
        let failed =
            Row { name: "x", bound: seconds(1), took: seconds(1), verdict: Verdict::Failed, error: Some(error) };
        assert!(errors(&[failed]).starts_with("\n==> x FAILED: it ended with exit status: 3\n  43\n"));
    }
}
