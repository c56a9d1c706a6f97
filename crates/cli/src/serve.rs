//! `stormwell serve`: a node, which alone is a whole store.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::settings::{self, ADDRESS_VARIABLE, Fault, Origin, Said, Value};
use clap::Args;
use node::Settings;
use node::log::{Form, Level, Log};
use os::disk::Backend;
use std::sync::Arc;

/// Serves a store until SIGINT or SIGTERM
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell serve
  stormwell serve --data /nvme/stormwell:ssd --data /disk/stormwell:hdd:2T --at 127.0.0.1:7400
  stormwell serve --config /etc/stormwell/stormwell.toml

Options count before the environment, and that before --config FILE; each option is a key of the file and a variable: --as-new is as_new and
STORMWELL_AS_NEW. docs/operate/configuration.md lists them; `stormwell config check FILE` names every fault. `stormwell init` makes a cluster.

CLASS is memory, nvm, ssd or hdd (ssd unless said). CAPACITY is what the device may use, for instance 500G; without it
most of what the file system has free. Port 0 picks a free port. When it is ready it says on stderr
`stormwell: serving on HOST:PORT` (with --log json a line with \"text\":\"serving\"). Hadoop's clients reach the store as
hdfs://127.0.0.1:8020 (a free port if that one is taken; the log says which): set fs.defaultFS to it. The console answers /metrics,
/health/live and /health/ready over HTTP; curl 127.0.0.1:7401/metrics shows them. STORMWELL_DISK=auto|uring|threads chooses how disks are driven
(volatile, for trials, forgets at the end of the process what was not synced).")]
pub struct Serve {
    /// Where to listen; without it at the store's address, --at
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "at")]
    listen: Option<String>,
    /// Where others reach this node; without it where it listens
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// The node's name, unique in its cluster; without it the first 8 digits of its id
    #[arg(long)]
    name: Option<String>,
    /// Where the node stands
    #[arg(long)]
    site: Option<String>,
    /// Where in the site
    #[arg(long)]
    rack: Option<String>,
    /// Who keeps the metadata: local, or node://HOST:PORT
    #[arg(long)]
    meta: Option<String>,
    /// Who keeps the metadata together, instead of --meta: three or five nodes, the same on all, in one order
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', conflicts_with = "meta")]
    keepers: Vec<String>,
    /// A directory that becomes a device; may be given several times; without it ./stormwell-data
    #[arg(long, value_name = "DIR[:CLASS[:CAPACITY]]", value_parser = device)]
    data: Vec<String>,
    /// Where the metadata are kept, which need not be a device; without it the first --data directory
    #[arg(long, value_name = "DIR")]
    metadata_dir: Option<String>,
    /// How disks are driven: auto, uring, threads or volatile
    #[arg(long, hide = true, value_parser = backend)]
    disk: Option<String>,
    /// A --data directory whose device is gone for good, or was removed and its directory emptied: a new device is made there
    #[arg(long, value_name = "DIR")]
    as_new: Vec<String>,
    /// Where metrics and health are, or `off`; without it the port after the node's, on loopback
    #[arg(long, value_name = "HOST:PORT")]
    console: Option<String>,
    /// Where Hadoop's clients find the store as an HDFS, or `off`; without it 127.0.0.1:8020 or a free port
    #[arg(long, value_name = "HOST:PORT")]
    hdfs: Option<String>,
    /// Lets --hdfs be an address that other machines reach: whoever does may say to be any user, the superuser too
    #[arg(long)]
    hdfs_trust_any_user_name: bool,
    /// How the log on stderr looks: text or json
    #[arg(long, value_name = "FORM", value_parser = form)]
    log: Option<String>,
}

fn form(name: &str) -> base::error::Result<String> {
    Form::from_name(name).map(|_| name.to_string())
}

fn backend(name: &str) -> base::error::Result<String> {
    Backend::from_name(name).map(|_| name.to_string())
}

fn device(text: &str) -> base::error::Result<String> {
    settings::device(text).map(|_| text.to_string())
}

/// A store that lost one of its threads would answer half of what it is asked; one that ended is started again by
/// whoever watches it, and recovers. A fault in the task of one connection ends that connection alone.
fn end_on_panic(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
        if base::fault::is_contained() {
            let text =
                format!("a fault in Stormwell itself ends one connection: {panic}; others go on; report this text");
            log.say(Level::Error, "fault", &text, &[]);
            return;
        }
        let text = format!(
            "a fault in Stormwell itself, the server ends: {panic}; everything acknowledged is safe; start it again, and \
             report this text"
        );
        log.say(Level::Error, "fault", &text, &[]);
        std::process::abort();
    }));
}

impl Serve {
    /// Serves until a signal comes.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let settings = match self.settings(context)? {
            Ok(settings) => settings,
            Err(faults) => {
                faults.iter().for_each(|fault| say(&format!("stormwell: {fault}")));
                return Ok(Exit::Usage);
            }
        };
        let world = Arc::new(node::OsWorld);
        let (log, form) = (Log::new(context.clock.clone(), settings.log, world.clone()), settings.log);
        end_on_panic(log.clone());
        if let Err(error) = os::machine::raise_open_files() {
            log.say(Level::Warn, "start", error.text(), &[]);
        }
        let net = Arc::new(os::net::TcpNet);
        let running = node::start(settings, world, net, context.clock.clone(), context.random.clone()).await?;
        for note in &running.notes {
            log.say(Level::Info, "start", note, &[]);
        }
        let console = running.console.as_deref().unwrap_or("off");
        let hdfs = running.hdfs.as_ref().map_or("off".to_string(), |at| format!("hdfs://{at}"));
        let fields: [(&str, &dyn std::fmt::Display); 4] =
            [("at", &running.address), ("console", &console), ("hdfs", &hdfs), ("process", &std::process::id())];
        log.say(Level::Info, "start", "serving", &fields);
        if form == Form::Text {
            // Scripts and tests wait for this very line.
            say(&format!("stormwell: serving on {}", running.address));
        }
        let signal = os::signal::end().await?;
        if !context.quiet {
            log.say(Level::Info, "stop", &format!("{signal} came, stopping"), &[]);
        }
        running.stop().await;
        Ok(Exit::Done)
    }

    /// Everything that is said, by whomever, or what is wrong with it.
    fn settings(self, context: &Context) -> Result<std::result::Result<Settings, Vec<Fault>>> {
        let (said, mut faults) = settings::gather(self.said(context), context.config.as_deref())?;
        // The store's address for all commands is the weakest word for where to listen.
        let mut address = Said::default();
        address.say_text(
            "listen",
            settings::variable(ADDRESS_VARIABLE),
            Origin::Variable(ADDRESS_VARIABLE.to_string()),
        );
        let judged = settings::serving(&said.over(address));
        Ok(match judged {
            Ok(settings) if faults.is_empty() => Ok(settings),
            Ok(_) => Err(faults),
            Err(more) => {
                faults.extend(more);
                Err(faults)
            }
        })
    }

    /// What the options say.
    fn said(self, context: &Context) -> Said {
        let mut said = Said::default();
        said.say_text("listen", context.at_option.clone(), Origin::Option("at"));
        for (key, option, text) in [
            ("listen", "listen", self.listen),
            ("advertise", "advertise", self.advertise),
            ("name", "name", self.name),
            ("site", "site", self.site),
            ("rack", "rack", self.rack),
            ("meta", "meta", self.meta),
            ("metadata_dir", "metadata-dir", self.metadata_dir),
            ("disk", "disk", self.disk),
            ("console", "console", self.console),
            ("hdfs", "hdfs", self.hdfs),
            ("log", "log", self.log),
        ] {
            said.say_text(key, text, Origin::Option(option));
        }
        context.say_secret(&mut said);
        for (key, option, list) in
            [("keepers", "keepers", self.keepers), ("data", "data", self.data), ("as_new", "as-new", self.as_new)]
        {
            if !list.is_empty() {
                said.say(key, Value::List(list), Origin::Option(option));
            }
        }
        if self.hdfs_trust_any_user_name {
            said.say("hdfs_trust_any_user_name", Value::Switch(true), Origin::Option("hdfs-trust-any-user-name"));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::end_on_panic;
    use base::fault::contained;
    use node::log::{Form, Log};
    use os::clock::SystemClock;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};
    use std::sync::Arc;

    /// Says to a child of this test which fault is planted in it.
    const PLANTED: &str = "STORMWELL_TEST_FAULT";

    fn child(planted: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = "serve::tests::a_fault_reaches_no_further_than_it_must";
        command.args(["--exact", name, "--nocapture"]).env(PLANTED, planted).output().expect("it starts")
    }

    /// What a child does: its hook is the server's.
    fn plant(planted: &str) {
        end_on_panic(Log::new(Arc::new(SystemClock::new()), Form::Text, Arc::new(node::OsWorld)));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let fault = async { panic!("planted") };
        match planted {
            "connection" => {
                let ended = runtime.block_on(async { tokio::spawn(contained(fault)).await });
                assert!(ended.is_err_and(|error| error.is_panic()));
                assert_eq!(base::fault::contained_faults(), 1);
            }
            "task" => drop(runtime.block_on(async { tokio::spawn(fault).await })),
            _ => {
                let thread = os::thread::spawn("engine", || panic!("planted")).expect("a thread");
                drop(thread.join());
            }
        }
    }

    /// A fault in the task of a connection is said, and the process goes on; one in another task or in a thread, as engines have, ends
    /// the process.
    #[test]
    fn a_fault_reaches_no_further_than_it_must() {
        if let Ok(planted) = std::env::var(PLANTED) {
            return plant(&planted);
        }
        let connection = child("connection");
        let said = String::from_utf8_lossy(&connection.stderr).into_owned();
        assert!(connection.status.success() && said.contains("ends one connection"), "{said}");
        for planted in ["task", "thread"] {
            let ended = child(planted);
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(ended.status.signal() == Some(libc::SIGABRT) && said.contains("the server ends"), "{said}");
        }
    }
}
