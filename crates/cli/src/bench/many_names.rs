//! Rows about what a store of many names costs: memory, coming back after a kill, and taking all of them apart beside other work.

mod beside;

use super::ground::{Ground, at};
use super::mixed::all_done;
use super::resources::SAMPLE;
use super::row::{Bar, Latency, Row, median};
use super::sequential::wrong;
use crate::child::Server;
use crate::context::Context;
use crate::exit::say;
use base::error::{ErrorKind, Result};
use base::unit::show_bytes;
use beside::Beside;
use bytes::Bytes;
use client::{Client, PackOptions, PackerOptions};
use harness::sampler::Sampler;
use harness::stopwatch::Stopwatch;
use os::process::usage;
use std::time::Duration;

/// Names that are removed if nobody says how many.
pub const NAMES: u64 = 10_000_000;

/// The same in a quick run.
pub const NAMES_QUICK: u64 = 20_000;

/// Files of one directory.
const OF_DIRECTORY: u64 = 1000;

/// One name for so many that are removed stays: those are looked at meanwhile, for what is removed cannot be looked at any more.
const REMOVED_FOR_EACH_THAT_STAYS: u64 = 10;

/// Sessions that look at names, each at one at a time: few, so that what they wait for is the store and not each other.
const LOOKERS: usize = 4;

/// Sessions that make names, each one at a time.
const WRITERS: usize = 32;

/// Kills; each is looked at by counting every name.
const KILLS_MAX: usize = 3;

/// Work alone goes on for so many times as long as other rows do: longer than the store waits before it merges its log.
const ALONE: u32 = 3;

/// The server counts as idle after so long without a client: every change is in its tree by then.
const IDLE: Duration = Duration::from_secs(8);

/// In a quick run it is only given a breath.
const IDLE_QUICK: Duration = Duration::from_millis(100);

/// What is left of a removal is asked so often, and told so often.
const LOOK: Duration = Duration::from_millis(50);
const TELL: Duration = Duration::from_secs(10);

/// Everything is below this.
const ROOT: &str = "/bench-many-names";

/// What the store counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Totals {
    files: u64,
    directories: u64,
}

/// Of a new store, which has its root.
const EMPTY: Totals = Totals { files: 0, directories: 1 };

/// A server of our own with trees of empty files: `first` and `second` are removed, `staying` is looked at.
struct Names<'a> {
    ground: &'a Ground,
    context: Context,
    server: Server,
    sampler: Sampler,
    /// Files of each tree that is removed.
    half: u64,
    staying: u64,
    /// What there must be, by what was answered.
    made: Totals,
    /// How long the server rests before something is measured, and how long work goes on alone.
    idle: Duration,
    alone: Duration,
}

/// File `number` of a tree, named as a job's output often is.
fn path(tree: &str, number: u64) -> String {
    format!("{ROOT}/{tree}/{:06}/part-{number:08}.parquet", number / OF_DIRECTORY)
}

/// Directories of a tree of so many files, its own among them.
fn directories(files: u64) -> u64 {
    files.div_ceil(OF_DIRECTORY) + 1
}

fn tell(context: &Context, text: &str) {
    if !context.quiet {
        say(&format!("bench: {text}"));
    }
}

/// All four rows; those about the removal only if it is wanted.
pub async fn rows(ground: &Ground, context: &Context, removal: bool) -> Result<Vec<Row>> {
    let mut names = Names::start(ground, context)?;
    let memory = names.fill_and_weigh().await?;
    let restart = names.kill_and_restart().await?;
    let mut rows = vec![memory, restart];
    if removal {
        rows.extend(names.remove_beside_others().await?);
        let peak = names.sampler.peak() as f64 / 1e6;
        rows[0].note.push_str(&format!("; at the most {peak:.0} MB while the names were removed"));
    }
    names.end().await?;
    Ok(rows)
}

impl<'a> Names<'a> {
    fn start(ground: &'a Ground, context: &Context) -> Result<Names<'a>> {
        let mut server = Server::start(&[ground.scratch.join("many-names")])?;
        let sampler = Sampler::start(server.child().id(), SAMPLE)?;
        let context = at(context, server.address());
        let (half, staying) = (ground.names.div_ceil(2), ground.names.div_ceil(REMOVED_FOR_EACH_THAT_STAYS));
        let (idle, alone) = if ground.quick { (IDLE_QUICK, ground.time) } else { (IDLE, ground.time * ALONE) };
        Ok(Names { ground, context, server, sampler, half, staying, made: EMPTY, idle, alone })
    }

    async fn connect(&self) -> Result<Client> {
        self.context.connect("bench").await
    }

    fn tell(&self, text: &str) {
        tell(&self.context, text);
    }

    /// What the store itself counts.
    async fn totals(&self) -> Result<Totals> {
        let answer = self.connect().await?.devices().await?;
        Ok(Totals { files: answer.files, directories: answer.directories })
    }

    /// An error unless the store counts what was made.
    async fn check(&self, when: &str) -> Result<()> {
        let (found, made) = (self.totals().await?, self.made);
        if found == made { Ok(()) } else { Err(wrong(&format!("the store counts {found:?} {when}, not {made:?}"))) }
    }

    /// Goes through all names, one by one: an error unless they are there.
    async fn walk(&self, when: &str) -> Result<()> {
        let found = self.connect().await?.disk_usage("/").await?;
        let found = Totals { files: found.files, directories: found.directories };
        let made = self.made;
        if found == made { Ok(()) } else { Err(wrong(&format!("a walk finds {found:?} {when}, not {made:?}"))) }
    }

    fn memory(&mut self) -> Result<f64> {
        self.server.child().check()?;
        Ok(usage(self.server.child().id())?.anonymous_bytes as f64 / 1e6)
    }

    /// Makes all names; the row `names_memory`.
    async fn fill_and_weigh(&mut self) -> Result<Row> {
        let empty = self.memory()?;
        let watch = Stopwatch::start();
        self.made.directories += 1;
        for (tree, files) in [("staying", self.staying), ("first", self.half), ("second", self.half)] {
            self.fill(tree, files, &watch).await?;
            self.made.files += files;
            self.made.directories += directories(files);
        }
        let seconds = watch.seconds();
        self.check("when all names were made").await?;
        tokio::time::sleep(self.idle).await;
        let mut row = Row::new("names_memory", "MB");
        row.values = vec![self.memory()?];
        row.bar = Bar::AtMost(400.0);
        let tree = self.ground.scratch.path().join("many-names/meta/tree.redb");
        row.note = format!(
            "RssAnon of the server, {:.1} s after {} empty files in {} directories were made ({:.0} a second, 256 in a request); \
             {empty:.1} MB before, at the most {:.0} MB meanwhile; the tree's file has {}",
            self.idle.as_secs_f64(),
            self.made.files,
            self.made.directories,
            self.made.files as f64 / seconds,
            self.sampler.peak() as f64 / 1e6,
            show_bytes(os::file::metadata(&tree)?.len()),
        );
        self.tell(&format!("{:.0} MB of memory; {}", row.value(), row.note));
        Ok(row)
    }

    /// Puts the files of a tree, as many in a request as it takes.
    async fn fill(&self, tree: &str, files: u64, watch: &Stopwatch) -> Result<()> {
        let mut packer = self.connect().await?.packer(PackerOptions::default());
        let options = PackOptions { parents: true, ..PackOptions::default() };
        let mut told = watch.elapsed();
        for number in 0..files {
            packer.put(&path(tree, number), Bytes::new(), options).await?;
            if number % OF_DIRECTORY == 0 {
                all_done(packer.take_results())?;
                if watch.elapsed().saturating_sub(told) >= TELL {
                    told = watch.elapsed();
                    self.tell(&format!("{} names made in {:.0} s", self.made.files + number, told.as_secs_f64()));
                }
            }
        }
        all_done(packer.close().await?)
    }

    /// Kills the server while names are made and starts it again; the row `names_restart`.
    async fn kill_and_restart(&mut self) -> Result<Row> {
        let mut row = Row::new("names_restart", "s");
        row.bar = Bar::AtMost(0.5);
        for round in 0..self.ground.rounds.min(KILLS_MAX) {
            let directory = format!("{ROOT}/killed-{round}");
            self.connect().await?.make_directory(&directory, false).await?;
            self.made.directories += 1;
            let load = Beside::creates(&self.clients(WRITERS).await?, &format!("{directory}/file"));
            tokio::time::sleep(self.ground.time).await;
            let mut watch = Stopwatch::start();
            let kill = || {
                watch = Stopwatch::start();
                self.server.child().kill();
            };
            let answered = load.cut_off(kill).await?;
            self.server.start_again()?;
            let client = self.connect().await?;
            let file = client.stat(&path("second", self.half / 2)).await?;
            row.values.push(watch.seconds());
            if file.directory {
                return Err(wrong("a file has become a directory"));
            }
            self.sampler = Sampler::start(self.server.child().id(), SAMPLE)?;
            self.count_load(&directory, answered).await?;
        }
        let watch = Stopwatch::start();
        self.walk("after the kills").await?;
        row.note = format!(
            "kill -9 after {:.1} s of creates by {WRITERS} clients, beside {} files; from the kill until a stat is answered, \
             its files in the page cache; then the store counted all of them, and a walk found them in {:.1} s",
            self.ground.time.as_secs_f64(),
            self.made.files,
            watch.seconds()
        );
        self.tell(&format!("back in {:.2} s", median(&row.values).unwrap_or(f64::NAN)));
        Ok(row)
    }

    /// Counts what a load left that was cut off: what it heard of is there, and of each writer at the most one file more.
    async fn count_load(&mut self, directory: &str, answered: u64) -> Result<()> {
        let files = self.connect().await?.disk_usage(directory).await?.files;
        if files < answered || files > answered + WRITERS as u64 {
            return Err(wrong(&format!("{files} files are there after a kill where {answered} were answered")));
        }
        self.made.files += files;
        self.check("after a kill").await
    }

    async fn clients(&self, count: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.connect().await?);
        }
        Ok(clients)
    }

    /// The rows `names_stat` and `names_load`: each alone, then while one half of the names is taken apart.
    async fn remove_beside_others(&mut self) -> Result<[Row; 2]> {
        let (lookers, writers) = (self.clients(LOOKERS).await?, self.clients(WRITERS).await?);
        tokio::time::sleep(self.idle).await;
        self.tell("stats alone");
        let idle = Beside::stats(&lookers, self.staying).end_after(self.alone).await?;
        self.tell("stats while a half of the names is removed");
        let beside = Beside::stats(&lookers, self.staying);
        let first = self.remove("first").await?;
        let busy = beside.end().await?;

        let directory = format!("{ROOT}/load");
        writers[0].make_directory(&directory, false).await?;
        self.made.directories += 1;
        tokio::time::sleep(self.idle).await;
        self.tell("creates alone");
        let load_alone = Beside::creates(&writers, &format!("{directory}/alone")).end_after(self.alone).await?;
        self.tell("creates while the other half is removed");
        let beside = Beside::creates(&writers, &format!("{directory}/beside"));
        let second = self.remove("second").await?;
        let load = beside.end().await?;
        self.made.files += (load_alone.nanos.len() + load.nanos.len()) as u64;
        self.check("when both halves were removed").await?;

        let (mut stat, mut made) = (Row::new("names_stat", "us p99"), Row::new("names_load", "creates/s"));
        let removal = |seconds: f64| {
            format!(
                "{} files with their directories were taken apart in {seconds:.1} s, {:.0} a second",
                self.half,
                self.half as f64 / seconds
            )
        };
        stat.bar = Bar::RatioAtMost(2.0);
        (stat.raw_is, stat.raw_tool) = ("the same stats alone".to_string(), "internal");
        if let (Some(idle), Some(busy)) = (Latency::of(idle.nanos), Latency::of(busy.nanos)) {
            (stat.values, stat.raw, stat.latency) = (vec![busy.p99], vec![idle.p99], Some(busy));
            stat.note = format!(
                "{LOOKERS} clients, any of {} files that stay; alone p50 {:.0} us; {}",
                self.staying,
                idle.p50,
                removal(first)
            );
        }
        made.bar = Bar::RatioAtLeast(0.9);
        (made.values, made.raw) = (vec![load.per_second()], vec![load_alone.per_second()]);
        (made.raw_is, made.raw_tool) = ("the same creates alone".to_string(), "internal");
        made.latency = Latency::of(load.nanos);
        made.note =
            format!("{WRITERS} clients, create and close of an empty file in one directory; {}", removal(second));
        Ok([stat, made])
    }

    /// Removes a half as `stormwell rm -r` does and waits until the store has taken it apart: its names are gone at once, but it counts
    /// each file and directory until it is. Answers with the seconds.
    async fn remove(&mut self, tree: &str) -> Result<f64> {
        let client = self.connect().await?;
        self.made.files -= self.half;
        self.made.directories -= directories(self.half);
        let watch = Stopwatch::start();
        client.delete(&format!("{ROOT}/{tree}"), true).await?;
        self.taken_apart(&client, &watch).await?;
        Ok(watch.seconds())
    }

    /// Waits until no more directories are counted than there are. One goes after all that was in it.
    async fn taken_apart(&self, client: &Client, watch: &Stopwatch) -> Result<()> {
        let mut told = watch.elapsed();
        loop {
            let counted = client.devices().await?;
            if counted.directories <= self.made.directories {
                return Ok(());
            }
            if watch.elapsed().saturating_sub(told) >= TELL {
                told = watch.elapsed();
                self.tell(&format!("{} files and {} directories are left", counted.files, counted.directories));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Removes the rest: nothing is left.
    async fn end(mut self) -> Result<()> {
        self.tell("removing what is left");
        let client = self.connect().await?;
        client.delete(ROOT, true).await?;
        self.made = EMPTY;
        self.taken_apart(&client, &Stopwatch::start()).await?;
        self.check("in the end").await?;
        self.walk("in the end").await?;
        match client.stat(&path("staying", 0)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(wrong("a file that was removed is there")),
        }
        let directory = self.ground.scratch.path().join("many-names");
        drop(self.server);
        std::fs::remove_dir_all(directory)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{OF_DIRECTORY, directories, path};
    use std::collections::BTreeSet;

    /// As many directories are counted as the paths have, and no two files have one path.
    #[test]
    fn paths() {
        for files in [1, OF_DIRECTORY - 1, OF_DIRECTORY, OF_DIRECTORY + 1, 3 * OF_DIRECTORY] {
            let all: BTreeSet<String> = (0..files).map(|number| path("first", number)).collect();
            assert_eq!(all.len() as u64, files);
            let below: BTreeSet<&str> = all.iter().filter_map(|path| Some(path.rsplit_once('/')?.0)).collect();
            assert_eq!(below.len() as u64 + 1, directories(files), "{files} files");
        }
    }
}
