//! `stormwell serve`: the whole store in one process.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use base::error::{Error, ErrorKind};
use base::policy::Class;
use base::unit::parse_bytes;
use clap::Args;
use node::log::{Form, Level, Log};
use node::{DeviceSetting, Door};
use os::disk::Backend;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Serves a store until SIGINT or SIGTERM
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell serve
  stormwell serve --data /nvme/stormwell:ssd --data /disk/stormwell:hdd:2T --at 127.0.0.1:7400

CLASS is memory, nvm, ssd, hdd or bulk (ssd unless said). CAPACITY is what the device may use, for instance 500G; without it
most of what the file system has free. Port 0 picks a free port. When it is ready it says on stderr
`stormwell: serving on HOST:PORT` (with --log json a line with \"text\":\"serving\"). Hadoop's clients reach the store as
hdfs://127.0.0.1:8020 (a free port if that one is taken; the log says which): set fs.defaultFS to it. The console answers /metrics,
/health/live and /health/ready over HTTP; curl 127.0.0.1:7401/metrics shows them. STORMWELL_DISK=auto|uring|threads|memory chooses how disks are driven
(volatile, for trials, forgets at the end of the process what was not synced).")]
pub struct Serve {
    /// A directory that becomes a device; may be given several times
    #[arg(long = "data", value_name = "DIR[:CLASS[:CAPACITY]]", default_value = "./stormwell-data", value_parser = device)]
    devices: Vec<DeviceSetting>,
    /// How disks are driven: auto, uring, threads, memory or volatile
    #[arg(long, env = "STORMWELL_DISK", default_value = "auto", hide = true, value_parser = backend)]
    disk: Backend,
    /// A --data directory whose device is gone for good: a new device is made there
    #[arg(long, value_name = "DIR")]
    as_new: Vec<PathBuf>,
    /// Where metrics and health are, or `off`; without it the port after --at's
    #[arg(long, value_name = "HOST:PORT", env = "STORMWELL_CONSOLE")]
    console: Option<String>,
    /// Where Hadoop's clients find the store as an HDFS, or `off`; without it 127.0.0.1:8020 or a free port
    #[arg(long, value_name = "HOST:PORT", env = "STORMWELL_HDFS")]
    hdfs: Option<String>,
    /// Lets --hdfs be an address that other machines reach: whoever does may say to be any user, the superuser too
    #[arg(long)]
    hdfs_trust_any_user_name: bool,
    /// How the log on stderr looks: text or json
    #[arg(long, value_name = "FORM", env = "STORMWELL_LOG", default_value = "text", value_parser = form)]
    log: Form,
}

fn form(name: &str) -> base::error::Result<Form> {
    Form::from_name(name)
}

/// Where the console is: as it was said, or at the port after the store's (a free one for port 0).
fn console(said: Option<&str>, at: &str) -> base::error::Result<Door> {
    match said {
        Some("off") => Ok(Door::Off),
        Some(said) => {
            check_address(said)?;
            Ok(Door::At(said.to_string()))
        }
        None => Ok(Door::Near(near(at))),
    }
}

/// Where Hadoop's clients find the store: as it was said, or at the port that they know.
fn hdfs(said: Option<&str>, trust_any_user_name: bool) -> base::error::Result<Door> {
    let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
    match said {
        Some("off") => Ok(Door::Off),
        Some(said) => {
            if let Reach::Others { unspecified } = reach(said)? {
                if unspecified {
                    return invalid(format!(
                        "--hdfs {said} names every address of this machine; clients are sent to the one given here for their \
                         data, so name the one by which they reach it"
                    ));
                }
                if !trust_any_user_name {
                    return invalid(format!(
                        "--hdfs {said} can be reached from other machines, and Hadoop's simple authentication believes whatever \
                         user name a client gives; if everybody who reaches it may do everything, add \
                         --hdfs-trust-any-user-name; otherwise use 127.0.0.1:PORT"
                    ));
                }
            }
            Ok(Door::At(said.to_string()))
        }
        None => Ok(Door::Near("127.0.0.1:8020".to_string())),
    }
}

/// The `host:port` after this one; port 0 stays 0.
pub fn near(at: &str) -> String {
    let (host, port) = at.rsplit_once(':').unwrap_or((at, "0"));
    let port: u16 = port.parse().unwrap_or(0);
    let next = if port == 0 { 0 } else { port.checked_add(1).unwrap_or(0) };
    format!("{host}:{next}")
}

fn backend(name: &str) -> base::error::Result<Backend> {
    Backend::from_name(name)
}

/// Reads `DIR[:CLASS[:CAPACITY]]`. A directory with a colon in its name is written with its class.
fn device(text: &str) -> std::result::Result<DeviceSetting, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let class_at = |place: Option<usize>| place.filter(|at| *at > 0).and_then(|at| Class::from_name(parts[at]));
    let (last, before) = (parts.len() - 1, parts.len().checked_sub(2));
    let (directory, class, capacity) = match (class_at(Some(last)), class_at(before)) {
        _ if last == 0 => (text.to_string(), Class::default(), None),
        (Some(class), _) => (parts[..last].join(":"), class, None),
        (None, Some(class)) => {
            let capacity = parse_bytes(parts[last]).map_err(|error| error.to_string())?;
            (parts[..last - 1].join(":"), class, Some(capacity))
        }
        (None, None) => {
            return Err(format!(
                "'{}' is no class of devices: write DIR[:CLASS[:CAPACITY]] with memory, nvm, ssd, hdd or bulk",
                if last == 1 { parts[1] } else { parts[last - 1] }
            ));
        }
    };
    if directory.is_empty() {
        return Err("the directory has no name".to_string());
    }
    if capacity == Some(0) {
        return Err("a device of no capacity holds nothing".to_string());
    }
    Ok(DeviceSetting { directory: PathBuf::from(directory), class, capacity })
}

/// Who reaches an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Programs on this machine.
    Ourselves,
    /// Other machines, too; `unspecified`: by any address of this one.
    Others { unspecified: bool },
}

/// Who reaches an address; an error if it is none.
fn reach(at: &str) -> base::error::Result<Reach> {
    let invalid = |text: String| Err(Error::new(ErrorKind::Invalid, text));
    let host_and_port = at.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    let Some((host, Ok(_))) = host_and_port.map(|(host, port)| (host, port.parse::<u16>())) else {
        return invalid(format!("'{at}' is not HOST:PORT; write for instance 127.0.0.1:7400"));
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return Ok(Reach::Ourselves);
    }
    Ok(Reach::Others { unspecified: address.is_some_and(|address| address.is_unspecified()) })
}

/// Refuses addresses that others could reach, and what is no address.
fn check_address(at: &str) -> base::error::Result<()> {
    if reach(at)? == Reach::Ourselves {
        return Ok(());
    }
    let text = format!(
        "{at} can be reached from other machines, and this version has no secret that would keep strangers out, so it \
         listens on loopback only; use --at 127.0.0.1:PORT"
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Refuses a directory that is named twice.
fn check_devices(devices: &[DeviceSetting]) -> base::error::Result<()> {
    let mut seen = BTreeSet::new();
    match devices.iter().find(|device| !seen.insert(&device.directory)) {
        None => Ok(()),
        Some(twice) => {
            let text =
                format!("--data {} is given twice; each device has its own directory", twice.directory.display());
            Err(Error::new(ErrorKind::Invalid, text))
        }
    }
}

/// A store that lost one of its threads would answer half of what it is asked; one that ended is started again by
/// whoever watches it, and recovers.
fn end_on_panic(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
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
        check_address(&context.at)?;
        check_devices(&self.devices)?;
        let world = Arc::new(node::OsWorld);
        let log = Log::new(context.clock.clone(), self.log, world.clone());
        end_on_panic(log.clone());
        if let Err(error) = os::machine::raise_open_files() {
            log.say(Level::Warn, "start", error.text(), &[]);
        }
        let settings = node::Settings {
            backend: self.disk,
            console: console(self.console.as_deref(), &context.at)?,
            hdfs: hdfs(self.hdfs.as_deref(), self.hdfs_trust_any_user_name)?,
            log: self.log,
            as_new: self.as_new,
            ..node::Settings::new(&context.at, self.devices)
        };
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
        if self.log == Form::Text {
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
}

#[cfg(test)]
mod tests {
    use super::{check_address, check_devices, console, device, hdfs};
    use base::policy::Class;
    use node::Door;
    use std::path::Path;

    /// A device is a directory, perhaps a class, perhaps a capacity; a colon in a name does not get in the way.
    #[test]
    fn devices() {
        for (text, directory, class, capacity) in [
            ("data", "data", Class::Ssd, None),
            ("./a/b", "./a/b", Class::Ssd, None),
            ("/d:hdd", "/d", Class::Hdd, None),
            ("/d:memory:1.5G", "/d", Class::Memory, Some(3 << 29)),
            ("/d:ssd:4096", "/d", Class::Ssd, Some(4096)),
            ("a:b:nvm", "a:b", Class::Nvm, None),
            ("a:b:nvm:1T", "a:b", Class::Nvm, Some(1 << 40)),
        ] {
            let read = device(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
            assert_eq!((read.directory.as_path(), read.class, read.capacity), (Path::new(directory), class, capacity));
        }
        for bad in ["", ":ssd", "/d:floppy", "/d:ssd:", "/d:ssd:many", "/d:10G", "/d:ssd:0", "/d:", "/d:x:10G"] {
            assert!(device(bad).is_err(), "{bad:?}");
        }
        assert!(device("/d:floppy").is_err_and(|refusal| refusal.contains("'floppy'")));
    }

    /// Nothing is served beyond loopback.
    #[test]
    fn addresses() {
        for good in ["127.0.0.1:7400", "127.9.9.9:0", "localhost:1", "[::1]:7400"] {
            assert_eq!(check_address(good), Ok(()), "{good}");
        }
        for bad in ["0.0.0.0:7400", "192.168.0.1:1", "[::]:1", "example.org:1", "127.0.0.1", ":7400", "127.0.0.1:x", ""]
        {
            assert!(check_address(bad).is_err(), "{bad}");
        }
        assert!(check_address("0.0.0.0:1").is_err_and(|error| error.text().contains("no secret")));
    }

    /// The console is beside the store unless it is said where.
    #[test]
    fn consoles() {
        assert_eq!(console(None, "127.0.0.1:7400"), Ok(Door::Near("127.0.0.1:7401".to_string())));
        assert_eq!(console(None, "[::1]:0"), Ok(Door::Near("[::1]:0".to_string())));
        assert_eq!(console(Some("off"), "127.0.0.1:7400"), Ok(Door::Off));
        assert_eq!(console(Some("127.0.0.1:9"), "127.0.0.1:7400"), Ok(Door::At("127.0.0.1:9".to_string())));
        assert!(console(Some("0.0.0.0:9"), "127.0.0.1:7400").is_err());
    }

    /// Hadoop's clients find the store where they look for it; beyond loopback only if somebody says that names are believed.
    #[test]
    fn hdfs_addresses() {
        assert_eq!(hdfs(None, false), Ok(Door::Near("127.0.0.1:8020".to_string())));
        assert_eq!(hdfs(Some("off"), false), Ok(Door::Off));
        assert_eq!(hdfs(Some("127.0.0.1:9"), false), Ok(Door::At("127.0.0.1:9".to_string())));
        let refused = |at, trust| hdfs(Some(at), trust).expect_err(at).text().to_string();
        assert!(refused("192.168.0.1:8020", false).contains("--hdfs-trust-any-user-name"));
        assert!(refused("storage:8020", false).contains("--hdfs-trust-any-user-name"));
        assert_eq!(hdfs(Some("192.168.0.1:8020"), true), Ok(Door::At("192.168.0.1:8020".to_string())));
        assert!(refused("0.0.0.0:8020", true).contains("every address"));
        assert!(refused("[::]:8020", true).contains("every address"));
        assert!(refused("nonsense", true).contains("HOST:PORT"));
    }

    /// A directory is one device.
    #[test]
    fn directories_are_named_once() {
        let devices = ["a", "b", "a:hdd"].map(|text| device(text).unwrap());
        assert!(check_devices(&devices[..2]).is_ok());
        assert!(check_devices(&devices).is_err_and(|error| error.text().contains("a is given twice")));
    }
}
