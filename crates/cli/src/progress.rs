//! How far a copy has come: counters, a live line on a terminal, plain lines elsewhere, and the summary at the end.

use crate::context::Context;
use crate::exit::{Exit, Fault, Result, code_of, report, say};
use crate::show;
use base::env::Clock;
use base::error::{Error, ErrorKind};
use base::unit::Time;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The live line changes this often: a person sees it move, and the drawing costs nothing.
const LIVE_STEP: Duration = Duration::from_millis(200);
/// Plain lines come this often, so that a log of an hour has some hundreds of them.
const PLAIN_STEP: Duration = Duration::from_secs(5);
/// After so many complaints of one command the rest are only counted.
const COMPLAINTS_MAX: u64 = 20;

/// Counters of one copy, shared by everything that works on it. Relaxed: nobody draws conclusions from their order.
pub struct Progress {
    verb: &'static str,
    noun: &'static str,
    clock: Arc<dyn Clock>,
    start: Time,
    /// How long it took until the work itself began, if that was not at once.
    waited: OnceLock<Duration>,
    quiet: bool,
    bar: Option<ProgressBar>,
    files: AtomicU64,
    bytes: AtomicU64,
    files_found: AtomicU64,
    bytes_found: AtomicU64,
    /// Whether everything is found, so that time left can be told.
    all_found: AtomicBool,
    failed: AtomicU64,
    skipped: AtomicU64,
    /// The kind of the first failure.
    first: OnceLock<ErrorKind>,
    /// What makes going on pointless.
    end: OnceLock<Error>,
    /// Whether there is that.
    over: watch::Sender<bool>,
}

/// What the counters said at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Moment {
    files: u64,
    bytes: u64,
    /// Files and bytes there are, once known.
    whole: Option<(u64, u64)>,
    elapsed: Duration,
    /// The part of it in which the work had not begun.
    waited: Duration,
}

/// Keeps the line moving until it is dropped.
pub struct Ticker {
    progress: Arc<Progress>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Ticker {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        if let Some(bar) = &self.progress.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress {
    /// Counters at zero, and what shows them until it is dropped. `noun` is what is counted: `file` or `chunk`.
    pub fn start(context: &Context, verb: &'static str, noun: &'static str) -> (Arc<Progress>, Ticker) {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !context.quiet).then(|| {
            let bar = ProgressBar::new_spinner();
            match ProgressStyle::with_template("{spinner} {wide_msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        let progress = Arc::new(Progress {
            verb,
            noun,
            clock: context.clock.clone(),
            start: context.clock.now(),
            waited: OnceLock::new(),
            quiet: context.quiet,
            bar,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            files_found: AtomicU64::new(0),
            bytes_found: AtomicU64::new(0),
            all_found: AtomicBool::new(false),
            failed: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            first: OnceLock::new(),
            end: OnceLock::new(),
            over: watch::Sender::new(false),
        });
        let task = (!context.quiet).then(|| tokio::spawn(progress.clone().tick()));
        (progress.clone(), Ticker { progress, task })
    }

    async fn tick(self: Arc<Progress>) {
        let mut before = Moment::default();
        loop {
            tokio::time::sleep(if self.bar.is_some() { LIVE_STEP } else { PLAIN_STEP }).await;
            let moment = self.moment();
            let line = moving_line(self.verb, self.noun, moment);
            match &self.bar {
                Some(bar) => {
                    bar.set_message(line);
                    bar.tick();
                }
                // While nothing moves, a log need not say so again and again.
                None if (before.files, before.bytes) == (moment.files, moment.bytes) => {}
                None => say(&line),
            }
            before = moment;
        }
    }

    /// The work begins only now: the time before says nothing of how long the rest takes.
    pub fn begins(&self) {
        let _earlier = self.waited.set(self.clock.now().since(self.start));
    }

    /// So many more files and bytes are to be copied.
    pub fn found(&self, files: u64, bytes: u64) {
        self.files_found.fetch_add(files, Ordering::Relaxed);
        self.bytes_found.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Everything that is to be copied has been found.
    pub fn found_all(&self) {
        self.all_found.store(true, Ordering::Relaxed);
    }

    /// So many more files, or chunks, are copied.
    pub fn copied(&self, files: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
    }

    /// So many more bytes are copied.
    pub fn copied_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that one thing failed. The others go on, unless they would fail too: then `stopped` says so.
    pub fn complain(&self, error: &Error) {
        let before = self.failed.fetch_add(1, Ordering::Relaxed);
        let _earlier = self.first.set(error.kind());
        if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Full) {
            self.stop(error.clone());
        } else if before < COMPLAINTS_MAX {
            self.between_lines(|| report(error));
        } else if before == COMPLAINTS_MAX {
            self.between_lines(|| say("stormwell: more failures follow; from here on they are only counted"));
        }
    }

    /// Says that one thing was left out because it cannot be read. Each is named, however many they are: whoever reads this
    /// has to get them again.
    pub fn leave_out(&self, name: &str, error: &Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if self.first.set(error.kind()).is_ok() {
            return self.between_lines(|| report(&error.clone().during(format!("left out {name}"))));
        }
        let why = error.text().split("; ").next().unwrap_or_default();
        let why = why.strip_prefix(&format!("read {name}: ")).unwrap_or(why);
        self.between_lines(|| say(&format!("stormwell: left out {name}: {why}")));
    }

    /// What ended the copy, if that is that nobody answers any more.
    pub fn lost(&self) -> Option<&Error> {
        self.end.get().filter(|error| error.kind() == ErrorKind::Unreachable)
    }

    /// Ends the copy: what is on its way is finished or dropped, nothing new is begun. The first reason is told at the end.
    pub fn stop(&self, reason: Error) {
        let _earlier = self.end.set(reason);
        self.over.send_replace(true);
    }

    /// Ends the copy when a signal comes that would end the program, with these words on what stands and what to do; a second one ends
    /// the program at once, for a disk or a pipe may never answer who reads from it. For as long as what comes back is not aborted.
    pub fn stop_at_signal(self: &Arc<Progress>, stands: &'static str) -> JoinHandle<()> {
        let interrupted = self.clone();
        tokio::spawn(async move {
            if let Ok(signal) = os::signal::end().await {
                interrupted.stop(Error::new(ErrorKind::Io, format!("{signal} ended it; {stands}")));
            }
            if let Ok(signal) = os::signal::end().await {
                say(&format!(
                    "stormwell: {signal} came again: what was on its way may be left as .stormwell-put-* or .stormwell-get-*"
                ));
                std::process::exit(code_of(ErrorKind::Io) as i32);
            }
        })
    }

    /// Waits until the copy has to end.
    pub async fn until_stopped(&self) {
        let mut over = self.over.subscribe();
        // Its sender lives as long as `self`.
        let _over = over.wait_for(|over| *over).await;
    }

    /// Whether the copy has to end.
    pub fn stopped(&self) -> bool {
        self.end.get().is_some()
    }

    /// How the copy ended: with what stopped it; with the code of a single failure if that was everything asked for; or
    /// with `Failed` if others were copied or failed too.
    pub fn outcome(&self) -> Result<Exit> {
        if let Some(reason) = self.end.get() {
            return Err(Fault::Error(reason.clone()));
        }
        Ok(match (self.failures(), self.first.get()) {
            (1, Some(kind)) if self.files.load(Ordering::Relaxed) == 0 => code_of(*kind),
            (0, _) => Exit::Done,
            _ => Exit::Failed,
        })
    }

    /// Says that one thing was left out on purpose.
    pub fn skip(&self, what: &str) {
        if self.skipped.fetch_add(1, Ordering::Relaxed) < COMPLAINTS_MAX && !self.quiet {
            self.between_lines(|| say(&format!("stormwell: skipped {what}")));
        }
    }

    /// Prints without tearing the live line.
    fn between_lines(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Files, or chunks, that were copied so far.
    pub fn done(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Things that failed so far.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    fn moment(&self) -> Moment {
        let whole = self
            .all_found
            .load(Ordering::Relaxed)
            .then(|| (self.files_found.load(Ordering::Relaxed), self.bytes_found.load(Ordering::Relaxed)));
        Moment {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            whole,
            elapsed: self.clock.now().since(self.start),
            waited: self.waited.get().copied().unwrap_or_default(),
        }
    }

    /// The last line on stderr, and the same as an object. Call it when the ticker is gone.
    pub fn summary(&self) -> Value {
        let (moment, failed, skipped) = (self.moment(), self.failures(), self.skipped.load(Ordering::Relaxed));
        if !self.quiet {
            say(&summary_line(self.verb, self.noun, moment, failed, skipped));
        }
        let noun = self.noun;
        json!({
            format!("{noun}s"): moment.files,
            "bytes": moment.bytes,
            "seconds": moment.elapsed.as_secs_f64(),
            format!("{noun}s_per_second"): show::per_second(moment.files, moment.elapsed),
            "bytes_per_second": show::per_second(moment.bytes, moment.elapsed),
            "failed": failed,
            "skipped": skipped,
        })
    }
}

/// `put: 1,234 of 4,000 files, 1.2 GiB, 4,000 files/s, 412 MB/s, 12 s left`.
fn moving_line(verb: &str, noun: &str, moment: Moment) -> String {
    let mut line = format!("{verb}: {}", show::thousands(moment.files));
    if let Some((files, _)) = moment.whole {
        line.push_str(&format!(" of {}", show::thousands(files)));
    }
    line.push_str(&format!(" {noun}s, {}, {}", base::unit::show_bytes(moment.bytes), rates(noun, moment)));
    if let Some(left) = time_left(noun, moment) {
        line.push_str(&format!(", {} left", show::duration(left)));
    }
    line
}

/// `put: 4,000 files, 1.2 GiB in 2.31 s: 1,732 files/s, 412 MB/s; 2 failed`.
fn summary_line(verb: &str, noun: &str, moment: Moment, failed: u64, skipped: u64) -> String {
    let mut line = format!(
        "{verb}: {}, {} in {}: {}",
        show::count(moment.files, noun, &format!("{noun}s")),
        base::unit::show_bytes(moment.bytes),
        show::duration(moment.elapsed),
        rates(noun, moment)
    );
    for (number, word) in [(failed, "failed"), (skipped, "skipped")] {
        if number > 0 {
            line.push_str(&format!("; {} {word}", show::thousands(number)));
        }
    }
    line
}

fn rates(noun: &str, moment: Moment) -> String {
    let files = show::per_second(moment.files, moment.elapsed) as u64;
    format!("{} {noun}s/s, {}", show::thousands(files), show::rate(moment.bytes, moment.elapsed))
}

/// By files or by bytes, whichever takes longer: many small files or few large ones may come last. Chunks, of which several are on
/// their way at once and large ones for long, by bytes.
fn time_left(noun: &str, moment: Moment) -> Option<Duration> {
    let (files, bytes) = moment.whole?;
    let by = |done: u64, whole: u64| {
        let missing = whole.saturating_sub(done);
        let worked = moment.elapsed.saturating_sub(moment.waited);
        (done > 0).then(|| worked.as_secs_f64() / done as f64 * missing as f64)
    };
    let by_files = by(moment.files, files).filter(|_| noun != "chunk" || bytes == 0);
    let seconds = by_files.into_iter().chain(by(moment.bytes, bytes)).fold(0.0, f64::max);
    (moment.files > 0 || moment.bytes > 0).then(|| Duration::from_secs_f64(seconds.min(1e9)))
}

#[cfg(test)]
mod tests {
    use super::{Moment, moving_line, summary_line, time_left};
    use std::time::Duration;

    const HALF: Moment = Moment {
        files: 1000,
        bytes: 10 << 20,
        whole: Some((2000, 30 << 20)),
        elapsed: Duration::from_secs(2),
        waited: Duration::ZERO,
    };

    /// Lines for people: counts, rates, and time left once the whole is known.
    #[test]
    fn lines() {
        assert_eq!(
            moving_line("put", "file", HALF),
            "put: 1,000 of 2,000 files, 10.0 MiB, 500 files/s, 5.24 MB/s, 4.00 s left"
        );
        let unknown = Moment { whole: None, ..HALF };
        assert_eq!(moving_line("put", "file", unknown), "put: 1,000 files, 10.0 MiB, 500 files/s, 5.24 MB/s");
        assert_eq!(
            summary_line("get", "file", HALF, 0, 0),
            "get: 1,000 files, 10.0 MiB in 2.00 s: 500 files/s, 5.24 MB/s"
        );
        assert!(summary_line("pull", "chunk", HALF, 2, 1).ends_with("; 2 failed; 1 skipped"));
    }

    /// Time left follows the slower of files and bytes, and is not told before anything is known.
    #[test]
    fn time_left_is_the_longer() {
        assert_eq!(time_left("file", HALF), Some(Duration::from_secs(4)));
        assert_eq!(time_left("file", Moment { whole: None, ..HALF }), None);
        assert_eq!(time_left("file", Moment { whole: Some((5, 5)), ..Moment::default() }), None);
        // Four large chunks, one of them done and the others nearly.
        let elapsed = Duration::from_secs(9);
        let nearly = Moment { files: 1, bytes: 90, whole: Some((4, 100)), elapsed, ..Moment::default() };
        assert_eq!(time_left("chunk", nearly), Some(Duration::from_secs(1)));
        assert_eq!(time_left("file", nearly), Some(Duration::from_secs(27)));
        // It began only after three seconds.
        let later = Moment { bytes: 60, waited: Duration::from_secs(3), ..nearly };
        assert_eq!(time_left("chunk", later), Some(Duration::from_secs(4)));
    }
}
