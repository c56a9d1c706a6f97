//! `stormwell demo`: a real data set goes in, comes back identical, and survives a kill in the middle, with the speed
//! shown beside the bare disk. It uses this program's own commands and its public port, nothing else.

pub mod compare;
mod foreign;
mod report;
mod stream;
pub mod tree;

use crate::bench::{Direction, Raw, at, free_bytes};
use crate::child::{Server, end_all_when_told, run, start};
use crate::context::Context;
use crate::exit::{Exit, Fault, Result, report as report_error, say};
use crate::output::Output;
use crate::show;
use base::error::{Error, ErrorKind};
use base::unit::{GIB, show_bytes};
use clap::Args;
use compare::compare;
use harness::scratch::Scratch;
use harness::stopwatch::Stopwatch;
use report::{Line, Report};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stream::Stream;
use tree::Tree;

/// What goes through the bag, and what its device may hold at once.
const STREAM: u64 = 4 * GIB;
const DEVICE: &str = "1G";

/// What goes through the bag while the server is killed.
const STREAM_KILLED: u64 = GIB;

/// Bytes that the bare disk is measured with.
const RAW: u64 = GIB;

/// A stream that is not in its middle after so long is killed where it is. The other server is dead meanwhile, and whoever puts gives up after
/// `limit::CALL_SILENCE_MAX`.
const MIDDLE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Put a tree, stream through a bag, kill the server in the middle, and compare every acknowledged byte
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell demo
  stormwell demo ~/src

It starts servers of its own, works in a new directory below --data, and removes it at the end. Exit code 1 means that a
byte was lost or differs.")]
pub struct Demo {
    /// The tree to put; by default the sources that cargo downloaded to build this program
    #[arg(value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Directory to work in
    #[arg(long, value_name = "DIR", default_value = "stormwell-data")]
    data: PathBuf,
}

/// Everything that the parts of the demonstration share.
struct Stage<'a> {
    context: &'a Context,
    scratch: Scratch,
    tree: Tree,
    /// Holds the tree; its device may grow.
    store: Server,
    /// Holds the bag on a device of 1 GiB.
    queue: Server,
    /// Bytes a second that the bare disk writes.
    raw: f64,
    raw_is: String,
    report: Report,
}

impl Demo {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        end_all_when_told();
        let watch = Stopwatch::start();
        let mut stage = self.stage(context)?;
        if let Err(Fault::Error(error)) = stage.all().await {
            // A command or a client that gave up is a mismatch like any other.
            report_error(&error);
            stage.report.fail(error.text());
        }
        let mut output = Output::open()?;
        stage.report.print(&mut output, context.json)?;
        let lost = stage.report.lost();
        if !context.json {
            let verdict = if lost == 0 {
                "Every acknowledged byte was there.".to_string()
            } else {
                format!(
                    "{} went wrong, as said above: this is a fault in Stormwell.",
                    show::count(lost, "thing", "things")
                )
            };
            output.line(&format!("{verdict} All of it took {:.0} s.", watch.seconds()))?;
            if lost == 0 {
                how_to_go_on(&mut output)?;
            }
            output.flush()?;
        }
        Ok(if lost == 0 { Exit::Done } else { Exit::Failed })
    }

    fn stage<'a>(&self, context: &'a Context) -> Result<Stage<'a>> {
        let scratch = Scratch::new(&self.data, "demo")?;
        let tree = Tree::choose(self.tree.as_deref(), scratch.path())?;
        // The tree three times (cp, the store, get), twice again after the kill, the bag's device and the raw file.
        let needed = tree.bytes.saturating_mul(6).saturating_add(RAW + 2 * GIB);
        let free = free_bytes(scratch.path())?;
        if free < needed {
            let text = format!(
                "the demonstration needs {} of room and {} has {}; free some, or name another disk with --data DIR",
                show_bytes(needed),
                scratch.path().display(),
                show_bytes(free)
            );
            return Err(Error::new(ErrorKind::Full, text).into());
        }
        let stage_say = |text: &str| {
            if !context.quiet {
                say(&format!("demo: {text}"))
            }
        };
        stage_say(&format!("the tree is {}: {}", tree.about, amount(&tree)));
        if tree.others > 0 {
            stage_say(&format!("{} symbolic links and the like in it are left out", tree.others));
        }
        let store = Server::start(&[scratch.join("store")])?;
        let queue = Server::start(&[format!("{}:ssd:{DEVICE}", scratch.join("bag"))])?;
        stage_say(&format!(
            "two servers run: {} for the tree, {} for a bag on a device of 1 GiB; data is in {}",
            store.address(),
            queue.address(),
            scratch.path().display()
        ));
        Ok(Stage { context, scratch, tree, store, queue, raw: 0.0, raw_is: String::new(), report: Report::default() })
    }
}

impl Stage<'_> {
    async fn all(&mut self) -> Result<()> {
        self.put_and_get().await?;
        self.foreign().await?;
        self.stream().await?;
        self.kill().await
    }

    fn say(&self, text: &str) {
        if !self.context.quiet {
            say(&format!("demo: {text}"));
        }
    }

    /// The tree goes in beside `cp -r` and comes back, and is compared.
    async fn put_and_get(&mut self) -> Result<()> {
        let root = self.tree.root.display().to_string();
        let at = self.store.address().to_string();
        let (copy, back) = (self.scratch.join("cp"), self.scratch.join("get"));
        self.tree.warm()?;
        // Nobody shall pay for pages that others left dirty.
        tree::sync_file_system(self.scratch.path())?;
        self.say("cp -r of the tree, then syncfs");
        let copied = self.tree.copy_with_cp(copy.as_ref())?;
        self.say("stormwell put of the tree");
        let watch = Stopwatch::start();
        run(&["put", &root, "/tree", "--at", &at, "--quiet"])?;
        let put = watch.seconds();
        tree::sync_file_system(self.scratch.path())?;
        self.say("stormwell get of the tree, and compare");
        let watch = Stopwatch::start();
        run(&["get", "/tree", &back, "--at", &at, "--quiet"])?;
        tree::sync_file_system(self.scratch.path())?;
        let got = watch.seconds();
        let found = compare(&self.tree, back.as_ref())?;
        for path in [&copy, &back] {
            std::fs::remove_dir_all(path).map_err(Error::from)?;
        }
        self.report.faults(found.named);
        let beside = format!("cp -r + syncfs: {}", speeds(&self.tree, copied));
        for (what, seconds, lost) in [("put a tree", put, 0), ("get it, compare it", got, found.wrong)] {
            self.report.add(Line {
                what,
                amount: amount(&self.tree),
                speed: speeds(&self.tree, seconds),
                numbers: self.numbers(seconds, copied),
                beside: beside.clone(),
                lost,
            });
        }
        Ok(())
    }

    fn numbers(&self, seconds: f64, copied: f64) -> serde_json::Value {
        json!({
            "seconds": seconds,
            "files_per_second": self.tree.files.len() as f64 / seconds,
            "bytes_per_second": self.tree.bytes as f64 / seconds,
            "raw_seconds": copied,
            "ratio": copied / seconds,
        })
    }

    /// Four times what the device can hold goes through the bag, beside the bare disk.
    async fn stream(&mut self) -> Result<()> {
        let disk = Raw::new(self.scratch.path());
        self.say(&format!("the bare disk: {}", disk.description()));
        self.raw = disk.sequential(Direction::Write, RAW)? / 1e6;
        disk.clean()?;
        self.raw_is = format!("bare disk ({}): {:.0} MB/s", disk.tool(), self.raw);
        self.say(&format!("{} through the bag: two producers, two consumers", show_bytes(STREAM)));
        let account = Stream::new("stream", STREAM, 1).run(&at(self.context, self.queue.address())).await?;
        self.add_stream("stream through a bag", &account, account.seconds);
        Ok(())
    }

    fn add_stream(&mut self, what: &'static str, account: &stream::Account, seconds: f64) {
        self.report.faults(account.named.clone());
        self.report.add(Line {
            what,
            amount: account.amount(),
            speed: format!("{:.0} MB/s in and out", account.speed()),
            numbers: json!({
                "seconds": seconds,
                "bytes_per_second": account.speed() * 1e6,
                "raw_bytes_per_second": self.raw * 1e6,
                "ratio": account.speed() / self.raw,
                "handled": account.handled,
                "acknowledged": account.pushed - account.lost,
            }),
            beside: self.raw_is.clone(),
            lost: account.lost + account.wrong,
        });
    }

    /// Both servers are killed in the middle of a put and a stream and started again; everything goes on by itself.
    async fn kill(&mut self) -> Result<()> {
        self.say("again, and both servers are killed with SIGKILL in the middle");
        let root = self.tree.root.display().to_string();
        let at_store = self.store.address().to_string();
        let watcher = at(self.context, &at_store).connect("demo").await?;
        let files_before = watcher.devices().await?.files;
        let stream = Stream::new("stream-killed", STREAM_KILLED, 2);
        let (handled, chunks) = (stream.handled(), stream.chunks());
        let context = at(self.context, self.queue.address());
        let watch = Stopwatch::start();
        let streaming = tokio::spawn(async move { stream.run(&context).await });
        let mut putting = start(&["put", &root, "/killed", "--at", &at_store, "--quiet"])?;

        let wanted = files_before + (self.tree.files.len() as u64 / 3).max(1);
        let mut stored = files_before;
        while stored < wanted && putting.ended()?.is_none() {
            stored = watcher.devices().await?.files;
        }
        let in_the_middle = putting.ended()?.is_none();
        self.store.child().kill();
        let killed_store = Stopwatch::start();
        wait_for(&handled, chunks / 3, || streaming.is_finished()).await;
        self.queue.child().kill();
        let handled_then = handled.load(Ordering::Relaxed);
        self.store.start_again()?;
        let down = killed_store.seconds();
        self.queue.start_again()?;
        let stored_then = stored.saturating_sub(files_before);
        self.say(&format!(
            "killed with {stored_then} of {} files stored{} and {handled_then} of {chunks} chunks handled; both serve again, {:.2} s after the first kill",
            self.tree.files.len(),
            if in_the_middle { "" } else { " (the put had ended before the kill could come)" },
            down
        ));
        putting.finish()?;
        let put = watch.seconds();
        let account = streaming
            .await
            .map_err(|error| Error::new(ErrorKind::Io, format!("the stream was cut off: {error}")))??;
        self.after_the_kill(put, down, &account).await
    }

    /// Reads back what was put before and during the kill.
    async fn after_the_kill(&mut self, put: f64, down: f64, account: &stream::Account) -> Result<()> {
        self.say("get both trees, and compare every byte");
        let at_store = self.store.address().to_string();
        let (mut lost, mut bytes) = (0, 0);
        for (path, name) in [("/tree", "before"), ("/killed", "during")] {
            let back = self.scratch.join(name);
            run(&["get", path, &back, "--at", &at_store, "--quiet"])?;
            let found = compare(&self.tree, back.as_ref())?;
            lost += found.wrong;
            bytes += found.bytes;
            self.report.faults(found.named.into_iter().map(|fault| format!("{path}: {fault}")));
            std::fs::remove_dir_all(&back).map_err(Error::from)?;
        }
        self.report.add(Line {
            what: "put, server killed (-9) in it",
            amount: amount(&self.tree),
            speed: speeds(&self.tree, put),
            numbers: json!({ "seconds": put, "seconds_without_server": down, "bytes_compared": bytes }),
            beside: format!("no server for {down:.2} s; {} compared", show_bytes(bytes)),
            lost,
        });
        self.add_stream("stream, server killed in it", account, account.seconds);
        Ok(())
    }
}

/// Waits until the counter is there, or the work has ended, or it takes too long.
async fn wait_for(counter: &Arc<AtomicU64>, value: u64, ended: impl Fn() -> bool) {
    let watch = Stopwatch::start();
    while counter.load(Ordering::Relaxed) < value && !ended() && watch.elapsed() < MIDDLE_WAIT_MAX {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// `5,098 files, 70.7 MiB`.
fn amount(tree: &Tree) -> String {
    format!("{}, {}", show::count(tree.files.len() as u64, "file", "files"), show_bytes(tree.bytes))
}

/// `19,760 files/s, 287 MB/s`.
fn speeds(tree: &Tree, seconds: f64) -> String {
    let files = (tree.files.len() as f64 / seconds) as u64;
    format!("{} files/s, {}", show::thousands(files), show::rate(tree.bytes, Duration::from_secs_f64(seconds)))
}

/// The last lines: what to paste next.
fn how_to_go_on(output: &mut Output) -> Result<()> {
    let program = crate::child::program()?;
    let here = std::env::current_dir().ok();
    let short = here.and_then(|here| program.strip_prefix(here).ok().map(PathBuf::from));
    let name = short.unwrap_or(program).display().to_string();
    output.line("")?;
    output.line("To go on, start a store of your own (its data lives in ./stormwell-data; Ctrl-C stops it):")?;
    output.line(&format!("  {name} serve"))?;
    output.line("and in another terminal paste:")?;
    output.line(&format!("  {name} put docs /docs"))?;
    output.line(&format!("  {name} ls -lhR /docs"))?;
    output.line("  hdfs dfs -ls -R hdfs://127.0.0.1:8020/docs      # where Hadoop is")?;
    output.line(&format!("  seq 1000000 | {name} bag push numbers - --lines --create"))?;
    output.line(&format!("  {name} bag pull numbers --no-wait --exec 'wc -l' -j 2"))
}
