//! Somebody else's client, if this machine has one: it puts a file over HDFS's protocol, Stormwell gets it, and the other way
//! round.

use super::Stage;
use super::compare::same;
use super::report::Line;
use crate::bench::at;
use crate::child::run;
use crate::exit::Result;
use crate::show;
use base::error::Error;
use base::unit::show_bytes;
use client::StatusQuery;
use harness::child::{Child, bound};
use harness::stopwatch::Stopwatch;
use serde_json::json;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What the Python client does: `ADDRESS put FILE PATH`, or `get PATH FILE`.
const PYTHON: &str = "
import shutil, sys, hdfs_native
address, what, source, target = sys.argv[1:]
store = hdfs_native.Client(address)
if what == 'put':
    with open(source, 'rb') as file, store.create(target) as writer:
        while part := file.read(1 << 22): writer.write(part)
else:
    with store.read(source) as reader, open(target, 'wb') as file:
        while part := reader.read(1 << 22): file.write(part)
";

/// A client of HDFS that is none of ours.
enum Foreign {
    /// Hadoop's own.
    Hadoop(PathBuf),
    /// `hdfs-native` for Python.
    Python(PathBuf),
}

impl Foreign {
    /// One that is on the search path, if any.
    fn find() -> Option<Foreign> {
        let directories = std::env::var_os("PATH")?;
        let found = |name: &str| {
            std::env::split_paths(&directories).map(|directory| directory.join(name)).find(|path| path.is_file())
        };
        if let Some(hdfs) = found("hdfs") {
            return Some(Foreign::Hadoop(hdfs));
        }
        let python = found("python3")?;
        let mut probe = bound(Command::new(&python));
        probe.args(["-c", "import hdfs_native"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success()).then_some(Foreign::Python(python))
    }

    fn name(&self) -> &'static str {
        match self {
            Foreign::Hadoop(_) => "hdfs dfs",
            Foreign::Python(_) => "hdfs-native (Python)",
        }
    }

    /// Puts a file of this machine, or gets one.
    fn copy(&self, address: &str, what: &str, from: &str, to: &str) -> Result<()> {
        let command = match self {
            Foreign::Hadoop(program) => {
                let mut command = Command::new(program);
                command.args(["dfs", "-fs", address, if what == "put" { "-put" } else { "-get" }, from, to]);
                command
            }
            Foreign::Python(program) => {
                let mut command = Command::new(program);
                command.args(["-c", PYTHON, address, what, from, to]);
                command
            }
        };
        Ok(Child::start(format!("{} {what}", self.name()), command)?.finish()?)
    }
}

impl Stage<'_> {
    /// The tree as one file goes in by each of the two clients and comes back by the other.
    pub(super) async fn foreign(&mut self) -> Result<()> {
        let Some(foreign) = Foreign::find() else {
            self.say("no client of HDFS is on this machine (`hdfs` or Python's hdfs-native): that step is left out");
            return Ok(());
        };
        let context = at(self.context, self.store.address());
        let (look, _) = StatusQuery::connect(context.settings("demo")?).await?.look().await?;
        let address = format!("hdfs://{}", look.hdfs);
        self.say(&format!(
            "{} puts the tree as one file into {address}, and gets one that stormwell put",
            foreign.name()
        ));
        let one = self.scratch.join("one");
        let bytes = self.tree.join_into(one.as_ref())?;
        let (theirs, ours) = (self.scratch.join("theirs"), self.scratch.join("ours"));
        let store = self.store.address().to_string();
        let watch = Stopwatch::start();
        foreign.copy(&address, "put", &one, "/by-them")?;
        let put = watch.seconds();
        run(&["get", "/by-them", &ours, "--at", &store, "--quiet"])?;
        run(&["put", &one, "/by-us", "--at", &store, "--quiet"])?;
        let watch = Stopwatch::start();
        foreign.copy(&address, "get", "/by-us", &theirs)?;
        let got = watch.seconds();
        let mut lost = 0;
        for copy in [&ours, &theirs] {
            if same(one.as_ref(), copy.as_ref())?.is_none() {
                self.report.faults([format!("{copy} is not what was put")]);
                lost += 1;
            }
            std::fs::remove_file(copy).map_err(Error::from)?;
        }
        std::fs::remove_file(&one).map_err(Error::from)?;
        let rate = |seconds: f64| show::rate(bytes, Duration::from_secs_f64(seconds));
        self.report.add(Line {
            what: "the same by an HDFS client",
            amount: format!("1 file, {}", show_bytes(bytes)),
            speed: format!("{} in, {} out", rate(put), rate(got)),
            numbers: json!({ "seconds_put": put, "seconds_get": got, "bytes": bytes, "client": foreign.name() }),
            beside: format!("{}, its start included", foreign.name()),
            lost,
        });
        Ok(())
    }
}
