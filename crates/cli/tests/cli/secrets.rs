//! A new cluster as an operator makes it: its files, what is wrong with them, and who is served.

use crate::store::{Ended, binary, noise, run, scratch, started};
use harness::child::Server;
use harness::scratch::Scratch;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A directory of our own with a new cluster in it, and a server if one was started.
struct Cluster {
    /// Before the directory, which it uses.
    server: Option<Server>,
    directory: Scratch,
}

impl Cluster {
    fn init(name: &str) -> Cluster {
        let cluster = Cluster { server: None, directory: scratch(&format!("secrets-{name}")) };
        cluster.run(&["init", "a.toml"]).done();
        cluster
    }

    fn run(&self, words: &[&str]) -> Ended {
        self.run_with(words, &[])
    }

    fn run_with(&self, words: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = binary();
        command.args(words).current_dir(self.directory.path()).envs(variables.iter().copied());
        run(command, b"")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Says more in the configuration.
    fn say(&self, text: &str) {
        let file = self.path("a.toml");
        let before = std::fs::read_to_string(&file).unwrap();
        std::fs::write(file, before + text).unwrap();
    }

    /// Serves by the configuration; where, as a client on this machine reaches it.
    fn serve(&mut self, words: &[&str]) -> String {
        let mut command = binary();
        command.args(["serve", "--config", "a.toml"]).args(words).current_dir(self.directory.path());
        self.server.insert(started(command)).address.replace("0.0.0.0", "127.0.0.1")
    }
}

fn bits(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// `init` makes a configuration that has no fault and a secret for its owner only; it replaces nothing, and no two clusters
/// are alike.
#[test]
fn a_new_cluster_is_two_files() {
    let cluster = Cluster::init("new");
    let (config, secret) = (cluster.path("a.toml"), cluster.path("a.secret"));
    assert_eq!(bits(&secret), 0o600);
    let text = std::fs::read_to_string(&secret).unwrap();
    assert!(text.trim().len() == 64 && text.trim().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert!(!std::fs::read_to_string(&config).unwrap().contains(text.trim()));
    assert_eq!(cluster.run(&["config", "check", "a.toml"]).done().text(), "");
    let before = (std::fs::read(&config).unwrap(), std::fs::read(&secret).unwrap());
    cluster.run(&["init", "a.toml"]).failed(7, "nothing was changed");
    std::fs::remove_file(&config).unwrap();
    cluster.run(&["init", "a.toml"]).failed(7, "a.secret is there already");
    assert_eq!(std::fs::read(&secret).unwrap(), before.1);
    let other = cluster.run(&["init", "--json", "--quiet"]).done();
    assert!(other.stderr.is_empty(), "{}", other.stderr);
    let other = other.text();
    assert!(other.contains(r#""config":"stormwell.toml""#) && other.contains(r#""secret_file":"stormwell.secret""#));
    assert_ne!(std::fs::read(cluster.path("stormwell.secret")).unwrap(), before.1);
    assert_ne!(std::fs::read(cluster.path("stormwell.toml")).unwrap(), before.0);
    cluster.run(&["config", "check"]).done();
}

/// Whoever names the configuration need not name the node's address: it is where the file says that it listens. `init` makes the directory
/// of its files.
#[test]
fn the_configuration_says_where() {
    let mut cluster = Cluster::init("where");
    cluster.run(&["init", "new/place/stormwell.toml"]).done();
    assert!(cluster.path("new/place/stormwell.secret").is_file());
    cluster.say("data = [\"d:ssd:256M\"]\nconsole = \"off\"\nhdfs = \"off\"\n");
    let address = cluster.serve(&["--at", "127.0.0.1:0"]);
    cluster.say(&format!("listen = \"{address}\"\n"));
    cluster.run(&["--config", "a.toml", "mkdir", "/there"]).done();
    assert_eq!(cluster.run(&["--config", "a.toml", "ls", "/"]).done().text().lines().count(), 1);
    // What is said on the command line counts more.
    let elsewhere = cluster.run(&["--config", "a.toml", "ls", "/", "--at", "127.0.0.1:1"]);
    assert!(elsewhere.stderr.contains("no store answers at 127.0.0.1:1"), "{}", elsewhere.stderr);
}

/// `config check` names every fault with its line and the key that was meant, looks at the environment and at the secret's
/// file, and `serve` refuses for the same reasons.
#[test]
fn every_fault_is_named() {
    let cluster = Cluster::init("faults");
    cluster.say("lisen = \"x\"\nadvertise = \"0.0.0.0:1\"\nlog = \"xml\"\n");
    std::fs::set_permissions(cluster.path("a.secret"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let lines = std::fs::read_to_string(cluster.path("a.toml")).unwrap().lines().count();
    let variables = [("STORMWELL_DISK", "tape"), ("STORMWELL_HDFS_TRUST_ANY_USER_NAME", "yes")];
    let ended = cluster.run_with(&["config", "check", "a.toml"], &variables).failed(2, "6 faults");
    let said = ended.text();
    for expected in [
        format!("a.toml:{}: lisen: there is no such key; did you mean `listen`?", lines - 2),
        format!("a.toml:{}: advertise: nobody can connect to 0.0.0.0:1", lines - 1),
        format!("a.toml:{lines}: log: 'xml' is no form of the log"),
        "secret_file: everybody on this machine may read the secret in a.secret; chmod 600 a.secret".to_string(),
        "STORMWELL_DISK: ".to_string(),
        "STORMWELL_HDFS_TRUST_ANY_USER_NAME: 'yes' is neither true nor false".to_string(),
    ] {
        assert!(said.lines().any(|line| line.contains(&expected)), "no {expected:?} in {said}");
    }
    let ended = cluster.run_with(&["config", "check", "a.toml", "--json"], &variables);
    assert_eq!((ended.code, ended.text().lines().count()), (2, 6));
    let line = format!(r#""fault":"there is no such key","file":"a.toml","key":"lisen","line":{}"#, lines - 2);
    assert!(ended.text().contains(&line), "{}", ended.text());
    cluster.run(&["serve", "--config", "a.toml"]).failed(2, "did you mean `listen`?");
    cluster.run(&["ls", "--config", "a.toml"]).failed(2, "chmod 600");
    cluster.run(&["config", "check", "none.toml"]).failed(3, "none.toml");
}

/// Beyond loopback only who knows the secret is served, however it is given; everybody else is told what to do, and an option
/// beats the configuration.
#[test]
fn who_has_the_secret_is_served() {
    let mut cluster = Cluster::init("serve");
    cluster.say("data = [\"data:ssd:512M\"]\nconsole = \"off\"\nhdfs = \"off\"\nlisten = \"127.0.0.1:1\"\n");
    cluster.run(&["config", "check", "a.toml"]).done();
    let at = cluster.serve(&["--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:7400"]);
    assert!(cluster.path("data").join("chunks").is_dir(), "paths are relative to the file");
    let content = noise(300_000, 5);
    std::fs::write(cluster.path("f"), &content).unwrap();
    cluster.run(&["put", "f", "/f", "--at", &at, "--secret-file", "a.secret"]).done();
    let config = cluster.run(&["cat", "/f", "--at", &at, "--config", "a.toml"]).done();
    assert_eq!(config.stdout, content);
    let variables = [("STORMWELL_AT", at.as_str()), ("STORMWELL_SECRET_FILE", "a.secret")];
    cluster.run_with(&["ls", "/"], &variables).done();
    cluster.run_with(&["doctor"], &variables).done();
    cluster.run(&["ls", "/", "--at", &at]).failed(9, "--secret-file");
    cluster.run(&["init", "b.toml"]).done();
    cluster.run(&["ls", "/", "--at", &at, "--secret-file", "b.secret"]).failed(9, "does not know the secret");
    cluster.run(&["ls", "/", "--at", &at, "--config", "b.toml"]).failed(9, "belongs to cluster");
    // An option beats what the environment says.
    cluster.run_with(&["ls", "/", "--secret-file", "b.secret"], &variables).failed(9, "does not know");
    cluster.run(&["ls", "/", "--at", &at, "--secret-file", "f"]).failed(2, "it is no secret's file");
}

/// With `tls.*` in the configuration every command speaks TLS with a certificate; who does not is refused and told what to
/// set, and a key that everybody may read is a fault.
#[test]
fn tls_by_configuration() {
    let mut cluster = Cluster::init("tls");
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap().signed_by(&key, &authority).unwrap();
    for (name, text) in [("ca.pem", authority.pem()), ("c.pem", certificate.pem()), ("k.pem", key.serialize_pem())] {
        std::fs::write(cluster.path(name), text).unwrap();
    }
    cluster.say("data = [\"data:ssd:512M\"]\nconsole = \"off\"\nhdfs = \"off\"\n");
    let plain = std::fs::read_to_string(cluster.path("a.toml")).unwrap();
    std::fs::write(cluster.path("plain.toml"), &plain).unwrap();
    cluster.say("[tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\nauthority = \"ca.pem\"\n");
    std::fs::set_permissions(cluster.path("k.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    cluster.run(&["config", "check", "a.toml"]).failed(2, "1 fault");
    std::fs::set_permissions(cluster.path("k.pem"), std::fs::Permissions::from_mode(0o600)).unwrap();
    cluster.run(&["config", "check", "a.toml"]).done();
    let at = cluster.serve(&["--at", "127.0.0.1:0"]);
    std::fs::write(cluster.path("f"), noise(300_000, 5)).unwrap();
    cluster.run(&["put", "f", "/f", "--at", &at, "--config", "a.toml"]).done();
    assert_eq!(cluster.run(&["cat", "/f", "--at", &at, "--config", "a.toml"]).done().stdout, noise(300_000, 5));
    cluster.run(&["ls", "/", "--at", &at, "--config", "plain.toml"]).failed(9, "tls.authority");
}
