//! What was said, judged as a whole: the settings of a node or of a client, or everything that is wrong with them.

use super::address::{ADDRESS_UNSAID, Reach, advertised, console, hdfs, keepers, kept_by, listening, meta};
use super::device::device;
use super::source::{Fault, Origin, Said, Value};
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::limit::{HDFS_MIN_BLOCK_SIZE, PLACE_NAME_MAX, REPAIR_AFTER};
use base::unit::parse_bytes;
use net::{Credentials, Secret, Tls};
use node::log::Form;
use node::{Cluster, DeviceSetting, MetaPlace, PLACE_UNSAID, Settings};
use os::disk::Backend;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// The permission bits that let everybody read, change or run a file.
const EVERYBODY: u32 = 0o007;

/// Longest file that may be a secret's.
const SECRET_FILE_MAX: u64 = 4096;

/// Longest file with certificates: an authority's list of many has 200 KiB.
const PEM_FILE_MAX: u64 = 1 << 20;

/// What `repair_after` may be: longer than a node is away that is started again, and short enough to be counted in nanoseconds.
const REPAIR_AFTER_LEAST: Duration = Duration::from_secs(30);
const REPAIR_AFTER_MOST: Duration = Duration::from_secs(365 * 86_400);

/// Keys that are said together or not at all.
const OF_TLS: [&str; 3] = ["tls.certificate", "tls.key", "tls.authority"];

/// Keys that mean something only in a cluster.
const OF_A_CLUSTER: [&str; 6] = ["name", "site", "rack", "advertise", "meta", "keepers"];

/// The settings of a node, if nothing is wrong.
pub fn serving(said: &Said) -> std::result::Result<Settings, Vec<Fault>> {
    let mut judge = Judge { said, faults: Vec::new() };
    let has_secret = judge.says("secret") || judge.says("secret_file");
    let secret = judge.secret();
    let tls = judge.tls();
    let listen = judge.text("listen").unwrap_or(ADDRESS_UNSAID).to_string();
    let reach = judge.checked("listen", &listen, |listen| listening(listen, has_secret));
    let trust = matches!(said.get("hdfs_trust_any_user_name"), Some((Value::Switch(true), _)));
    let hdfs = judge.optional("hdfs", |said| hdfs(said, trust));
    let hdfs_min_block_size = judge.parsed("hdfs_min_block_size", min_block_size).unwrap_or(HDFS_MIN_BLOCK_SIZE);
    let repair_after = judge.parsed("repair_after", repair_after).unwrap_or(REPAIR_AFTER);
    // What is wrong with the address is said once.
    let beside = if reach.is_some() { listen.as_str() } else { ADDRESS_UNSAID };
    let console = judge.optional("console", |said| console(said, beside, has_secret));
    let backend = judge.parsed("disk", Backend::from_name).unwrap_or(Backend::Auto);
    let log = judge.parsed("log", Form::from_name).unwrap_or(Form::Text);
    let devices = judge.devices();
    let as_new = judge.paths("as_new");
    let metadata_dir = judge.path("metadata_dir");
    let cluster = judge.cluster(&listen, reach);
    match cluster.as_ref().map(|cluster| &cluster.meta).filter(|_| metadata_dir.is_some()) {
        Some(MetaPlace::Node(_)) => {
            judge.fault("metadata_dir", "another node keeps the metadata, as `meta` or `keepers` says; leave it out here");
        }
        Some(MetaPlace::Several { own: None, .. }) => judge.fault(
            "metadata_dir",
            "this node is none of `keepers`: neither `advertise` nor `listen` is spelled as one of them; mend that, or leave metadata_dir out here",
        ),
        _ => (),
    }
    let (Some(console), Some(hdfs), true) = (console, hdfs, judge.faults.is_empty()) else {
        return Err(judge.faults);
    };
    let settings = Settings { hdfs_min_block_size, repair_after, ..Settings::new(&listen, devices) };
    Ok(Settings { backend, console, hdfs, log, as_new, metadata_dir, secret, tls, cluster, ..settings })
}

/// What a client knows of the cluster and what it shows in TLS, if nothing is wrong.
pub fn credentials(said: &Said) -> std::result::Result<(Credentials, Option<Tls>), Vec<Fault>> {
    let mut judge = Judge { said, faults: Vec::new() };
    let credentials = Credentials { cluster: judge.parsed("cluster", cluster_id), secret: judge.secret() };
    let tls = judge.tls();
    if judge.faults.is_empty() { Ok((credentials, tls)) } else { Err(judge.faults) }
}

struct Judge<'a> {
    said: &'a Said,
    faults: Vec<Fault>,
}

impl<'a> Judge<'a> {
    fn says(&self, key: &str) -> bool {
        self.said.get(key).is_some()
    }

    fn text(&self, key: &str) -> Option<&'a str> {
        match self.said.get(key) {
            Some((Value::Text(text), _)) => Some(text),
            _ => None,
        }
    }

    fn fault(&mut self, key: &str, text: impl Into<String>) {
        let origin = self.said.get(key).map(|(_, origin)| origin.clone());
        // An option and a variable are named like the key already.
        let key = if matches!(origin, Some(Origin::Option(_) | Origin::Variable(_))) { "" } else { key };
        self.faults.push(Fault { origin, key: key.to_string(), text: text.into() });
    }

    /// What `check` makes of a value; a fault of the key if it refuses it.
    fn checked<T>(&mut self, key: &str, value: &str, check: impl FnOnce(&str) -> Result<T>) -> Option<T> {
        check(value).map_err(|error| self.fault(key, error.text())).ok()
    }

    /// The same for what may be said or not.
    fn optional<T>(&mut self, key: &str, check: impl FnOnce(Option<&str>) -> Result<T>) -> Option<T> {
        check(self.text(key)).map_err(|error| self.fault(key, error.text())).ok()
    }

    /// What was said and is right.
    fn parsed<T>(&mut self, key: &str, parse: impl FnOnce(&str) -> Result<T>) -> Option<T> {
        let text = self.text(key)?;
        self.checked(key, text, parse)
    }

    fn words(&self, key: &str) -> Vec<(&'a str, &'a Origin)> {
        match self.said.get(key) {
            Some((Value::List(words), origin)) => words.iter().map(|word| (word.as_str(), origin)).collect(),
            _ => Vec::new(),
        }
    }

    fn paths(&self, key: &str) -> Vec<std::path::PathBuf> {
        self.words(key).into_iter().map(|(path, origin)| origin.path(path)).collect()
    }

    fn path(&self, key: &str) -> Option<std::path::PathBuf> {
        match self.said.get(key) {
            Some((Value::Text(path), origin)) => Some(origin.path(path)),
            _ => None,
        }
    }

    fn devices(&mut self) -> Vec<DeviceSetting> {
        if !self.says("data") {
            return vec![DeviceSetting {
                directory: "./stormwell-data".into(),
                class: Default::default(),
                capacity: None,
            }];
        }
        let mut devices = Vec::new();
        let mut seen = BTreeSet::new();
        for (text, origin) in self.words("data") {
            let Some(mut device) = self.checked("data", text, device) else { continue };
            let named = device.directory.display().to_string();
            device.directory = origin.path(&named);
            if !seen.insert(device.directory.clone()) {
                self.fault("data", format!("{named} is given twice; each device has its own directory"));
            }
            devices.push(device);
        }
        if self.words("data").is_empty() {
            self.fault("data", "no device is named; name at least one directory");
        }
        devices
    }

    fn secret(&mut self) -> Option<Secret> {
        if self.says("secret") && self.says("secret_file") {
            self.fault("secret", "both `secret` and `secret_file` are said; say one of them");
            return None;
        }
        if let Some((Value::Text(text), origin)) = self.said.get("secret") {
            if let Origin::Line(file, _) = origin {
                self.checked("secret", "", |_| private(file))?;
            }
            return self.checked("secret", text, Secret::from_hex);
        }
        let (Value::Text(name), origin) = self.said.get("secret_file")? else { return None };
        let file = origin.path(name);
        self.checked("secret_file", "", |_| read_secret(&file))
    }

    fn tls(&mut self) -> Option<Tls> {
        let said: Vec<&str> = OF_TLS.into_iter().filter(|key| self.says(key)).collect();
        let (first, missing) = (*said.first()?, OF_TLS.iter().find(|key| !said.contains(key)));
        if let Some(missing) = missing {
            self.fault(first, format!("`{missing}` is not said; TLS wants {}", OF_TLS.join(", ")));
            return None;
        }
        if !self.says("secret") && !self.says("secret_file") {
            self.fault(
                first,
                "there is TLS and no secret; the secret says who may speak: make one with `stormwell init`",
            );
            return None;
        }
        let [certificate, key, authority] = OF_TLS.map(|key| self.pem(key));
        let (certificate, key, authority) = (certificate?, key?, authority?);
        self.checked(first, "", |_| Tls::from_pem(&certificate, &key, &authority))
    }

    /// The bytes of a file of TLS.
    fn pem(&mut self, key: &str) -> Option<Vec<u8>> {
        let (Value::Text(name), origin) = self.said.get(key)? else { return None };
        let file = origin.path(name);
        self.checked(key, "", |_| {
            if os::file::metadata(&file)?.len() > PEM_FILE_MAX {
                return invalid(format!("{} has more than {PEM_FILE_MAX} bytes; it is no PEM file", file.display()));
            }
            if key == "tls.key" {
                private(&file)?;
            }
            os::file::read(&file)
        })
    }

    fn cluster(&mut self, listen: &str, reach: Option<Reach>) -> Option<Cluster> {
        if !self.says("cluster") {
            for key in OF_A_CLUSTER {
                if self.says(key) {
                    self.fault(
                        key,
                        "this is for a node of a cluster, and `cluster` is not said; make one with `stormwell init`",
                    );
                }
            }
            return None;
        }
        let id = self.parsed("cluster", cluster_id);
        let name = self.parsed("name", place_name).unwrap_or_default();
        let site = self.parsed("site", place_name).unwrap_or_else(|| PLACE_UNSAID.to_string());
        let rack = self.parsed("rack", place_name).unwrap_or_else(|| PLACE_UNSAID.to_string());
        let advertise = self.parsed("advertise", advertised);
        let meta = self.parsed("meta", meta);
        let keepers = self.keepers();
        if reach == Some(Reach::Others { unspecified: true }) && !self.says("advertise") {
            let text =
                format!("{listen} names every address of this machine; say in `advertise` by which others reach it");
            self.fault("listen", text);
        }
        let own = advertise.as_deref().unwrap_or(listen);
        if matches!(&meta, Some(MetaPlace::Node(at)) if at == own) {
            self.fault("meta", format!("{own} is this node itself; write local if it keeps the metadata"));
        }
        let meta = keepers.map(|keepers| kept_by(keepers, own)).or(meta).unwrap_or(MetaPlace::Local);
        Some(Cluster { id: id?, name, site, rack, advertise, meta })
    }

    /// Those who keep the metadata together.
    fn keepers(&mut self) -> Option<Vec<String>> {
        if !self.says("keepers") {
            return None;
        }
        if self.says("meta") {
            self.fault("keepers", "both `meta` and `keepers` say who keeps the metadata; leave one of them out");
            return None;
        }
        let list: Vec<&str> = self.words("keepers").into_iter().map(|(word, _)| word).collect();
        self.checked("keepers", "", |_| keepers(&list))
    }
}

fn invalid<T>(text: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, text))
}

fn cluster_id(text: &str) -> Result<ClusterId> {
    match ClusterId::from_hex(text) {
        Some(id) => Ok(id),
        None => {
            invalid(format!("'{text}' is no cluster's id, which is 32 hexadecimal digits; `stormwell init` draws one"))
        }
    }
}

/// Least bytes in a block: HDFS allows any, and a block has one at least.
fn min_block_size(text: &str) -> Result<u64> {
    match parse_bytes(text).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))? {
        0 => invalid("a block has at least one byte; write 1, or a size like 1M".to_string()),
        bytes => Ok(bytes),
    }
}

/// How long a device is away before it is given up by itself: a number of seconds, minutes, hours or days, or never.
fn repair_after(text: &str) -> Result<Duration> {
    if text == "off" {
        return Ok(Duration::MAX);
    }
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let said = units.iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.parse::<u64>().ok()?;
        number.checked_mul(*seconds).map(Duration::from_secs)
    });
    match said {
        Some(time) if time >= REPAIR_AFTER_LEAST && time <= REPAIR_AFTER_MOST => Ok(time),
        Some(_) => invalid(format!("{text} is no time to wait; say 30s at least and 365d at most, or off")),
        None => invalid(format!("'{text}' is no time; write 90s, 10m, 2h or 1d, or off")),
    }
}

/// A name of a node, site or rack.
fn place_name(text: &str) -> Result<String> {
    let good = |letter: char| letter.is_alphanumeric() || "._-".contains(letter);
    if text.is_empty() || text.len() > PLACE_NAME_MAX || !text.chars().all(good) {
        return invalid(format!(
            "'{}' is no name; use 1 to {PLACE_NAME_MAX} bytes of letters, digits, '.', '_' and '-'",
            text.escape_debug()
        ));
    }
    Ok(text.to_string())
}

fn read_secret(file: &Path) -> Result<Secret> {
    let about = os::file::metadata(file)?;
    if about.len() > SECRET_FILE_MAX {
        return invalid(format!("{} has more than {SECRET_FILE_MAX} bytes; it is no secret's file", file.display()));
    }
    private(file)?;
    Secret::from_hex(&os::file::read_text(file)?).map_err(|error| error.during(file.display()))
}

/// Refuses a file with a secret that everybody on the machine may read.
fn private(file: &Path) -> Result<()> {
    let mode = os::file::metadata(file)?.permissions().mode();
    if mode & EVERYBODY == 0 {
        return Ok(());
    }
    invalid(format!("everybody on this machine may read the secret in {0}; chmod 600 {0}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::super::source::{Fault, parse};
    use super::{credentials, serving};
    use base::id::ClusterId;
    use base::limit::REPAIR_AFTER;
    use node::{Door, MetaPlace};
    use std::path::Path;
    use std::time::Duration;

    const CLUSTER: &str = "cluster = \"00000000000000000000000000000007\"\n";

    fn faults(text: &str) -> Vec<String> {
        let (said, faults) = parse(Path::new("s.toml"), text);
        assert_eq!(faults, [], "{text}");
        serving(&said).err().unwrap_or_default().iter().map(Fault::to_string).collect()
    }

    /// What is said arrives in the settings; what is not said has its default.
    #[test]
    fn settings_of_a_node() {
        let text = format!(
            "{CLUSTER}name = \"n1\"\nsite = \"s\"\nadvertise = \"127.0.0.1:9\"\nmeta = \"node://127.0.0.1:8\"\n\
             listen = \"127.0.0.1:0\"\ndata = [\"a:hdd:1G\", \"/b\"]\nas_new = [\"a\"]\nconsole = \"off\"\nlog = \"json\"\n"
        );
        let settings = serving(&parse(Path::new("c/s.toml"), &text).0).expect("no fault");
        let cluster = settings.cluster.expect("a cluster");
        assert_eq!((cluster.id, cluster.name.as_str()), (ClusterId(7), "n1"));
        assert_eq!((cluster.site.as_str(), cluster.rack.as_str()), ("s", "default"));
        assert_eq!(cluster.advertise.as_deref(), Some("127.0.0.1:9"));
        assert_eq!(cluster.meta, MetaPlace::Node("127.0.0.1:8".to_string()));
        assert_eq!((settings.listen.as_str(), settings.console), ("127.0.0.1:0", Door::Off));
        assert_eq!(settings.devices[0].directory, Path::new("c/a"));
        assert_eq!(
            (settings.devices[1].directory.as_path(), settings.as_new[0].as_path()),
            (Path::new("/b"), Path::new("c/a"))
        );
        let plain = serving(&parse(Path::new("s.toml"), "").0).expect("no fault");
        assert_eq!(
            (plain.listen.as_str(), plain.cluster.is_none(), plain.secret.is_none()),
            ("127.0.0.1:7400", true, true)
        );
        assert_eq!(plain.devices[0].directory, Path::new("./stormwell-data"));
    }

    /// How long devices are waited for has a unit, or is for ever.
    #[test]
    fn how_long_devices_are_waited_for() {
        let said = |text: &str| serving(&parse(Path::new("s.toml"), text).0).map(|settings| settings.repair_after);
        assert_eq!(said(""), Ok(REPAIR_AFTER));
        for (text, seconds) in [("90s", 90), ("5m", 300), ("2h", 7200), ("1d", 86_400)] {
            assert_eq!(said(&format!("repair_after = \"{text}\"\n")), Ok(Duration::from_secs(seconds)));
        }
        assert_eq!(said("repair_after = \"off\"\n"), Ok(Duration::MAX));
        for wrong in ["10", "1s", "400d", "99999999999999999999d", "-1m", "soon", ""] {
            let told = faults(&format!("repair_after = \"{wrong}\"\n"));
            assert!(told.len() == 1 && told[0].contains("repair_after"), "{wrong}: {told:?}");
        }
    }

    /// Several keepers: a node finds its own place by `advertise`, else by `listen`, and only a keeper has a directory for metadata.
    #[test]
    fn several_keepers() {
        let meta = |text: &str| {
            let text = format!("{CLUSTER}keepers = [\"a:1\", \"127.0.0.1:2\", \"c:3\"]\n{text}");
            serving(&parse(Path::new("s.toml"), &text).0).expect("no fault").cluster.expect("a cluster").meta
        };
        let several =
            |own| MetaPlace::Several { keepers: ["a:1", "127.0.0.1:2", "c:3"].map(str::to_string).to_vec(), own };
        assert_eq!(meta("listen = \"127.0.0.1:2\"\nmetadata_dir = \"m\"\n"), several(Some(1)));
        assert_eq!(meta("listen = \"127.0.0.1:2\"\nadvertise = \"c:3\"\n"), several(Some(2)));
        assert_eq!(meta("listen = \"127.0.0.1:9\"\n"), several(None));
        let three = "keepers = [\"a:1\", \"b:2\", \"c:3\"]\n";
        assert!(faults(three)[0].contains("`cluster` is not said"));
        for (more, why) in [
            ("meta = \"local\"\n", "s.toml:2: keepers: both `meta` and `keepers`"),
            ("metadata_dir = \"m\"\n", "s.toml:3: metadata_dir: this node is none of `keepers`"),
        ] {
            let said = faults(&format!("{CLUSTER}{three}{more}"));
            assert!(said.len() == 1 && said[0].starts_with(why), "{said:?}");
        }
        assert!(faults(&format!("{CLUSTER}keepers = [\"a:1\", \"b:2\"]\n"))[0].contains("2 keepers are named"));
        let one = |listen: &str| {
            let text = format!("{CLUSTER}keepers = [\"127.0.0.1:1\"]\nlisten = \"{listen}\"\n");
            serving(&parse(Path::new("s.toml"), &text).0).expect("no fault").cluster.expect("a cluster").meta
        };
        assert_eq!(one("127.0.0.1:1"), MetaPlace::Local);
        assert_eq!(one("127.0.0.1:2"), MetaPlace::Node("127.0.0.1:1".to_string()));
    }

    /// All faults are named at once, each with its line and what to do.
    #[test]
    fn all_faults_at_once() {
        let said = faults(
            "cluster = \"7\"\nname = \"a b\"\nlisten = \"0.0.0.0:7400\"\nmeta = \"etcd://x\"\ndata = [\"a:floppy\", \"b\", \"b\"]\n\
             disk = \"tape\"\nlog = \"xml\"\nconsole = \"here\"\nhdfs = \"0.0.0.0:1\"\n",
        );
        for expected in [
            "s.toml:1: cluster: '7' is no cluster's id",
            "s.toml:2: name: 'a b' is no name",
            "s.toml:3: listen: 0.0.0.0:7400 can be reached from other machines, and there is no secret",
            "s.toml:4: meta: 'etcd://x' keeps no metadata",
            "s.toml:5: data: 'floppy' is no class",
            "s.toml:5: data: b is given twice",
            "s.toml:6: disk:",
            "s.toml:7: log: 'xml' is no form",
            "s.toml:8: console: 'here' is not HOST:PORT",
            "s.toml:9: hdfs: 0.0.0.0:1 names every address",
        ] {
            assert!(said.iter().any(|fault| fault.starts_with(expected)), "no {expected:?} in {said:#?}");
        }
        assert_eq!(said.len(), 10, "{said:#?}");
    }

    /// TLS is whole or not there, stands on a secret, and says which of its files is wrong.
    #[test]
    fn tls_is_whole() {
        assert!(faults("[tls]\nkey = \"k\"\n")[0].starts_with("s.toml:2: tls.key: `tls.certificate` is not said"));
        let three = "[tls]\ncertificate = \"/none/c\"\nkey = \"/none/k\"\nauthority = \"/none/a\"\n";
        assert!(faults(three)[0].contains("there is TLS and no secret"));
        let said = faults(&format!("secret_file = \"/none/s\"\n{three}"));
        for file in ["/none/s", "/none/c", "/none/k", "/none/a"] {
            assert!(said.iter().any(|fault| fault.contains(file)), "{said:?}");
        }
    }

    /// Keys that do not fit together are a fault: of a cluster without one, two secrets, an address nobody can use, oneself.
    #[test]
    fn keys_fit_together() {
        assert!(faults("rack = \"r\"\n")[0].contains("`cluster` is not said"));
        assert!(faults("secret = \"a\"\nsecret_file = \"b\"\n")[0].contains("say one of them"));
        assert!(faults("secret_file = \"/none/such\"\n")[0].starts_with("s.toml:1: secret_file: "));
        let own = format!("{CLUSTER}listen = \"127.0.0.1:7\"\nmeta = \"node://127.0.0.1:7\"\n");
        assert!(faults(&own)[0].contains("write local"));
        assert!(faults("data = []\n")[0].contains("at least one"));
        let all = format!("{CLUSTER}listen = \"[::]:7\"\nsecret_file = \"/none\"\n");
        assert!(faults(&all).iter().any(|fault| fault.contains("`advertise`")));
        let (said, _) = parse(Path::new("s.toml"), "cluster = \"x\"\nname = \"a b\"\n");
        assert_eq!(credentials(&said).expect_err("a fault").len(), 1, "a client's concern is the cluster");
    }
}
