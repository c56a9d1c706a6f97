//! `stormwell bench`: what this machine and this program reach, a row each, beside what the bare device or system does.

mod appends;
mod floor;
mod ground;
mod loopback;
mod many_names;
mod metadata;
mod mixed;
mod payload;
mod raw;
mod recovery;
mod resources;
mod row;
mod sequential;
mod small;
mod space;
mod table;

pub use ground::{at, free_bytes};
pub use payload::Payload;
pub use raw::{Direction, Raw};

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use base::error::{Error, ErrorKind};
use base::unit::{MIB, parse_bytes, show_bytes};
use clap::Args;
use ground::Ground;
use harness::stopwatch::Stopwatch;
use row::{Row, Verdict};
use std::path::PathBuf;
use std::time::Duration;
use table::Table;

/// Measure this machine and this program, beside the bare disk
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell bench
  stormwell bench --quick
  stormwell bench --data /mnt/fast --only bag_push,bag_pull

It starts a server of its own on a new directory, which it removes at the end. A row that misses its bar says FAIL;
one that moved fewer bytes than it claims is invalid, and then the exit code is 1. Rows that begin with names_ run only
if --only names them: with ten million names they take many minutes.")]
pub struct Bench {
    /// Directory on the disk to measure
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Only these rows
    #[arg(long, value_name = "ROW", value_delimiter = ',', value_parser = ROWS)]
    only: Vec<String>,
    /// Rounds of every row; ours and raw alternate, and the median counts
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Bytes of the large rows
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = parse_bytes)]
    size: u64,
    /// Put and get this tree in the rows with small files, instead of the sources that cargo downloaded
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Files that the rows about many names make and remove
    #[arg(long, value_name = "COUNT", default_value_t = many_names::NAMES, value_parser = clap::value_parser!(u64).range(1..))]
    names: u64,
    /// One short round of 256 MiB: shows that everything runs, not how fast
    #[arg(long)]
    quick: bool,
}

/// Every row, in the order in which they run.
const ROWS: [&str; 24] = [
    "start_to_first_write",
    "memory_idle",
    "bag_push",
    "bag_pull",
    "cpu_push",
    "file_write",
    "file_read",
    "file_read_hot",
    "append_4k",
    "append_4k_1",
    "append_4k_8",
    "small_put",
    "small_get",
    "meta_create",
    "meta_stat",
    "meta_list",
    "mixed",
    "recover",
    "space",
    "names_memory",
    "names_restart",
    "names_stat",
    "names_load",
    "memory_bench",
];

/// How long rows last that go on for a time.
const TIME: Duration = Duration::from_secs(3);

/// The same in a quick run.
const TIME_QUICK: Duration = Duration::from_millis(500);

/// What was measured so far, and what is still wanted.
struct Run {
    only: Vec<String>,
    table: Table,
    quiet: bool,
    verdicts: Vec<Verdict>,
}

impl Run {
    fn wants(&self, rows: &[&str]) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| rows.contains(&name.as_str()))
    }

    /// Whether one of these rows was named: they are no part of a whole run.
    fn names(&self, rows: &[&str]) -> bool {
        !self.only.is_empty() && self.wants(rows)
    }

    fn begin(&self, what: &str) {
        if !self.quiet {
            say(&format!("bench: {what}"));
        }
    }

    /// Prints those of these rows that are wanted.
    fn end(&mut self, rows: impl IntoIterator<Item = Row>) -> Result<()> {
        for row in rows {
            if self.wants(&[row.name]) {
                self.table.print(&row)?;
                self.verdicts.push(row.verdict());
            }
        }
        Ok(())
    }
}

impl Bench {
    /// Measures.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        crate::child::end_all_when_told();
        let watch = Stopwatch::start();
        let (size, rounds, time) =
            if self.quick { (256 * MIB, 1, TIME_QUICK) } else { (self.size, self.rounds as usize, TIME) };
        if size < ground::CHUNK {
            return Err(Error::new(ErrorKind::Invalid, "--size is less than one chunk; give 4MiB or more").into());
        }
        let mut ground = Ground::new(context, &self.data, size, rounds, time)?;
        (ground.tree, ground.quick) = (self.tree, self.quick);
        ground.names = if self.quick { self.names.min(many_names::NAMES_QUICK) } else { self.names };
        let mut run =
            Run { only: self.only, table: Table::new(context.json)?, quiet: context.quiet, verdicts: Vec::new() };
        run.begin(&format!(
            "large rows move {}, {rounds} round(s), raw is {}, in {}",
            show_bytes(ground.size),
            ground.raw.description(),
            ground.scratch.path().display()
        ));
        if ground.size < size {
            run.begin(&format!("not {}: the disk has too little room", show_bytes(size)));
        }
        measure(&mut run, &mut ground, context).await?;
        summary(&mut run, watch.elapsed())
    }
}

async fn measure(run: &mut Run, ground: &mut Ground, context: &Context) -> Result<()> {
    if run.wants(&["start_to_first_write"]) {
        run.begin("start to first durable write");
        run.end([resources::start_to_first_write(ground, context).await?])?;
    }
    if run.wants(&["memory_idle"]) {
        run.begin("memory of an idle server");
        run.end([resources::memory_idle(ground).await?])?;
    }
    if run.wants(&["bag_push", "bag_pull", "cpu_push"]) {
        run.begin("bags: 4 MiB chunks pushed and pulled");
        let beside_raw = run.wants(&["bag_push", "bag_pull"]);
        run.end(sequential::bags(ground, beside_raw).await?)?;
    }
    if run.wants(&["file_write", "file_read"]) {
        run.begin("one large file, written and read cold");
        run.end(sequential::files(ground).await?)?;
    }
    if run.wants(&["file_read_hot"]) {
        run.begin("one large file, read hot");
        run.end([sequential::hot(ground).await?])?;
    }
    if run.wants(&["append_4k"]) {
        run.begin("synced appends of 64 writers");
        run.end([appends::many(ground).await?])?;
    }
    if run.wants(&["append_4k_1"]) {
        run.begin("synced appends of one writer");
        run.end([appends::one(ground).await?])?;
    }
    if run.wants(&["append_4k_8"]) {
        run.begin("synced appends of one writer that does not wait for each");
        run.end([appends::ahead(ground).await?])?;
    }
    if run.wants(&["small_put", "small_get"]) {
        run.begin("a tree of small files, put and got");
        run.end(small::rows(ground).await?)?;
    }
    if run.wants(&["meta_create", "meta_stat", "meta_list"]) {
        run.begin("names made, looked at, listed");
        run.end(metadata::rows(ground).await?)?;
    }
    if run.wants(&["mixed"]) {
        run.begin("small files all over a large set, read and replaced, beside a stream");
        run.end([mixed::row(ground).await?])?;
    }
    if run.wants(&["recover"]) {
        run.begin("a server killed under load comes back");
        run.end([recovery::recover(ground, context).await?])?;
    }
    if run.wants(&["space"]) {
        run.begin("space after 90 % was deleted");
        run.end([space::space(ground, context).await?])?;
    }
    if run.names(&["names_memory", "names_restart", "names_stat", "names_load"]) {
        run.begin("many names made, recovered, and removed beside other work");
        let removal = run.names(&["names_stat", "names_load"]);
        run.end(many_names::rows(ground, context, removal).await?)?;
    }
    if run.wants(&["memory_bench"]) {
        run.end([resources::memory_bench(ground, run.verdicts.len())?])?;
    }
    Ok(())
}

/// The last line, and how the command ends.
fn summary(run: &mut Run, took: Duration) -> Result<Exit> {
    let count = |verdict: Verdict| run.verdicts.iter().filter(|one| **one == verdict).count();
    let (failed, invalid) = (count(Verdict::Fail), count(Verdict::Invalid));
    let line = format!(
        "{} rows in {:.0} s: {} ok, {failed} FAIL, {invalid} invalid",
        run.verdicts.len(),
        took.as_secs_f64(),
        count(Verdict::Ok)
    );
    run.table.finish(&line)?;
    Ok(if invalid > 0 { Exit::Failed } else { Exit::Done })
}
