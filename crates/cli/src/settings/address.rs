//! Addresses that people write: whether they are any, and who can reach them.

use base::error::{Error, ErrorKind, Result};
use node::{Door, MetaPlace};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Where a store is and listens unless something else is said.
pub const ADDRESS_UNSAID: &str = "127.0.0.1:7400";

/// Longest address of a keeper: a host has 253 letters at the most, a port five digits.
const KEEPER_MAX: usize = 253 + 6;

/// Who reaches an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Programs on this machine.
    Ourselves,
    /// Other machines, too; `unspecified`: by any address of this one.
    Others { unspecified: bool },
}

fn invalid<T>(text: String) -> Result<T> {
    Err(Error::new(ErrorKind::Invalid, text))
}

/// Host and port of `HOST:PORT`.
fn parts(at: &str) -> Result<(&str, u16)> {
    let host_and_port = at.rsplit_once(':').filter(|(host, _)| !host.is_empty() && !host.contains(char::is_whitespace));
    match host_and_port.map(|(host, port)| (host, port.parse::<u16>())) {
        Some((host, Ok(port))) => Ok((host, port)),
        _ => invalid(format!("'{at}' is not HOST:PORT; write for instance {ADDRESS_UNSAID}")),
    }
}

/// Who reaches an address; an error if it is none.
pub fn reach(at: &str) -> Result<Reach> {
    let (host, _) = parts(at)?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return Ok(Reach::Ourselves);
    }
    Ok(Reach::Others { unspecified: address.is_some_and(|address| address.is_unspecified()) })
}

/// Where a node listens: what others reach only if they have to prove a secret.
pub fn listening(at: &str, has_secret: bool) -> Result<Reach> {
    let reach = reach(at)?;
    if reach == Reach::Ourselves || has_secret {
        return Ok(reach);
    }
    invalid(format!(
        "{at} can be reached from other machines, and there is no secret that would keep strangers out; make one with \
         `stormwell init` and serve with --config {}, or listen on 127.0.0.1:PORT",
        super::FILE_UNSAID
    ))
}

/// Where others reach a node: an address that can be connected to.
pub fn advertised(at: &str) -> Result<String> {
    let (_, port) = parts(at)?;
    if port == 0 || reach(at)? == (Reach::Others { unspecified: true }) {
        return invalid(format!(
            "nobody can connect to {at}; name the address and port by which others reach this node"
        ));
    }
    Ok(at.to_string())
}

/// Who keeps the metadata: `local` or `node://HOST:PORT`.
pub fn meta(text: &str) -> Result<MetaPlace> {
    match (text, text.strip_prefix("node://")) {
        ("local", _) => Ok(MetaPlace::Local),
        (_, Some(at)) => advertised(at).map(MetaPlace::Node),
        _ => invalid(format!("'{text}' keeps no metadata; write local, or node://HOST:PORT of the node that does")),
    }
}

/// Who keeps the metadata together: one, three or five nodes, all different.
pub fn keepers(list: &[&str]) -> Result<Vec<String>> {
    if !matches!(list.len(), 1 | 3 | 5) {
        return invalid(format!(
            "{} keepers are named; name one, three or five: of three one may be away, of five two, and of an even number no more than of one less",
            list.len()
        ));
    }
    let distinct: BTreeSet<&&str> = list.iter().collect();
    if distinct.len() < list.len() {
        return invalid("one keeper is named twice; each is another node with an address of its own".to_string());
    }
    list.iter().map(|at| keeper(at)).collect()
}

/// The address of one of them, which they write into their files.
fn keeper(at: &str) -> Result<String> {
    let good = |letter: char| letter.is_alphanumeric() || "._-:[]%".contains(letter);
    if at.len() > KEEPER_MAX || !at.chars().all(good) {
        return invalid(format!("'{}' is not HOST:PORT; write for instance {ADDRESS_UNSAID}", at.escape_debug()));
    }
    advertised(at)
}

/// What a node whose own address is `own` is told of the metadata by a list of those who keep them. One alone is no more than `meta` can say.
pub fn kept_by(keepers: Vec<String>, own: &str) -> MetaPlace {
    let place = keepers.iter().position(|keeper| keeper == own);
    match (&keepers[..], place) {
        ([_], Some(_)) => MetaPlace::Local,
        ([only], None) => MetaPlace::Node(only.clone()),
        _ => MetaPlace::Several { keepers, own: place },
    }
}

/// Where the console is: as it was said, or at the port after the store's (a free one for port 0). It asks for no secret, so
/// that it is beyond loopback only where somebody said so.
pub fn console(said: Option<&str>, listen: &str, has_secret: bool) -> Result<Door> {
    match said {
        Some("off") => Ok(Door::Off),
        Some(said) => {
            listening(said, has_secret)?;
            Ok(Door::At(said.to_string()))
        }
        None if reach(listen)? == Reach::Ourselves => Ok(Door::Near(near(listen))),
        None => Ok(Door::Near(near(&format!("127.0.0.1:{}", parts(listen)?.1)))),
    }
}

/// Where Hadoop's clients find the store: as it was said, or at the port that they know.
pub fn hdfs(said: Option<&str>, trust_any_user_name: bool) -> Result<Door> {
    match said {
        Some("off") => Ok(Door::Off),
        Some(said) => {
            if let Reach::Others { unspecified } = reach(said)? {
                if unspecified {
                    return invalid(format!(
                        "{said} names every address of this machine; clients are sent to the one given here for their data, \
                         so name the one by which they reach it"
                    ));
                }
                if !trust_any_user_name {
                    return invalid(format!(
                        "{said} can be reached from other machines, and Hadoop's simple authentication believes whatever user \
                         name a client gives; if everybody who reaches it may do everything, add --hdfs-trust-any-user-name; \
                         otherwise use 127.0.0.1:PORT"
                    ));
                }
            }
            Ok(Door::At(said.to_string()))
        }
        None => Ok(Door::Near("127.0.0.1:8020".to_string())),
    }
}

/// The `host:port` after this one; port 0 stays 0.
fn near(at: &str) -> String {
    let (host, port) = at.rsplit_once(':').unwrap_or((at, "0"));
    let port: u16 = port.parse().unwrap_or(0);
    let next = if port == 0 { 0 } else { port.checked_add(1).unwrap_or(0) };
    format!("{host}:{next}")
}

#[cfg(test)]
mod tests {
    use super::{advertised, console, hdfs, keepers, kept_by, listening, meta};
    use node::{Door, MetaPlace};

    /// Nothing is served beyond loopback without a secret, and whoever tries is told how to make one.
    #[test]
    fn addresses() {
        for good in ["127.0.0.1:7400", "127.9.9.9:0", "localhost:1", "[::1]:7400"] {
            assert!(listening(good, false).is_ok(), "{good}");
        }
        for strange in ["0.0.0.0:7400", "192.168.0.1:1", "[::]:1", "example.org:1"] {
            let refusal = listening(strange, false).expect_err(strange);
            assert!(refusal.text().contains("no secret") && refusal.text().contains("stormwell init"), "{refusal}");
            assert!(listening(strange, true).is_ok(), "{strange}");
        }
        for bad in ["127.0.0.1", ":7400", "127.0.0.1:x", "", "a b:1", "127.0.0.1:65536"] {
            assert!(listening(bad, true).is_err(), "{bad}");
        }
    }

    /// What others are told to connect to can be connected to.
    #[test]
    fn advertised_addresses() {
        assert_eq!(advertised("10.0.0.1:7400"), Ok("10.0.0.1:7400".to_string()));
        assert!(["0.0.0.0:7400", "[::]:7400", "10.0.0.1:0", "10.0.0.1"].iter().all(|bad| advertised(bad).is_err()));
        assert_eq!(meta("local"), Ok(MetaPlace::Local));
        assert_eq!(meta("node://a:1"), Ok(MetaPlace::Node("a:1".to_string())));
        assert!(["", "etcd://a:1", "node://a", "a:1"].iter().all(|bad| meta(bad).is_err()));
    }

    /// Keepers are one, three or five that can be connected to, and a node among them knows its place.
    #[test]
    fn several_keepers() {
        let three = ["a:7400", "b:7400", "c:7400"];
        let list = keepers(&three).expect("three");
        let several = |own| MetaPlace::Several { keepers: three.map(str::to_string).to_vec(), own };
        assert_eq!(kept_by(list.clone(), "c:7400"), several(Some(2)));
        assert_eq!(kept_by(list, "d:7400"), several(None));
        let one = keepers(&["a:7400"]).expect("one");
        assert_eq!(kept_by(one.clone(), "a:7400"), MetaPlace::Local);
        assert_eq!(kept_by(one, "b:7400"), MetaPlace::Node("a:7400".to_string()));
        assert!(keepers(&["a:1", "b:1", "c:1", "d:1", "e:1"]).is_ok());
        for (bad, why) in [
            (&[][..], "0 keepers"),
            (&["a:1", "b:1"], "2 keepers"),
            (&["a:1", "b:1", "c:1", "d:1"], "4 keepers"),
            (&["a:1", "b:1", "a:1"], "named twice"),
            (&["a:1", "b:1", "0.0.0.0:1"], "nobody can connect"),
            (&["a:1", "b:1", "c:0"], "nobody can connect"),
            (&["a:1", "b:1", "c"], "HOST:PORT"),
            (&["a:1", "b:1", "c\":1"], "HOST:PORT"),
        ] {
            assert!(keepers(bad).is_err_and(|error| error.text().contains(why)), "{bad:?}");
        }
    }

    /// The console is beside the store unless it is said where, and beyond loopback only if it is said.
    #[test]
    fn consoles() {
        assert_eq!(console(None, "127.0.0.1:7400", false), Ok(Door::Near("127.0.0.1:7401".to_string())));
        assert_eq!(console(None, "[::1]:0", false), Ok(Door::Near("[::1]:0".to_string())));
        assert_eq!(console(None, "10.0.0.1:7400", true), Ok(Door::Near("127.0.0.1:7401".to_string())));
        assert_eq!(console(Some("off"), "127.0.0.1:7400", false), Ok(Door::Off));
        assert_eq!(console(Some("127.0.0.1:9"), "127.0.0.1:7400", false), Ok(Door::At("127.0.0.1:9".to_string())));
        assert!(console(Some("0.0.0.0:9"), "127.0.0.1:7400", false).is_err());
        assert_eq!(console(Some("0.0.0.0:9"), "127.0.0.1:7400", true), Ok(Door::At("0.0.0.0:9".to_string())));
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
}
