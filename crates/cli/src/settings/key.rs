//! The table of all keys: one row is a key of the TOML file, a variable of the environment and a row of
//! docs/operate/configuration.md.

/// What a key's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Text in quotes.
    Text,
    /// `true` or `false`.
    Switch,
    /// Texts in brackets; in the environment separated by commas.
    List,
}

/// One thing that can be set.
#[derive(Debug)]
pub struct Key {
    /// Its name in the file; a dot stands between a table and a key in it.
    pub name: &'static str,
    /// What its value is.
    pub takes: Takes,
    /// What counts if nobody says anything.
    pub unless_said: &'static str,
    /// What it does, in one sentence.
    pub what: &'static str,
}

const fn key(name: &'static str, takes: Takes, unless_said: &'static str, what: &'static str) -> Key {
    Key { name, takes, unless_said, what }
}

/// Every key, in the order in which people read about them.
pub const KEYS: &[Key] = &[
    key("cluster", Takes::Text, "none", "The cluster's id, 32 hexadecimal digits; `stormwell init` draws it"),
    key(
        "secret_file",
        Takes::Text,
        "none",
        "A file with the cluster's secret, which every connection proves; `stormwell init` makes it",
    ),
    key("secret", Takes::Text, "none", "The secret itself, 64 hexadecimal digits, instead of `secret_file`"),
    key(
        "tls.certificate",
        Takes::Text,
        "none",
        "A PEM file with the certificate that is shown on every connection; with it all of them are TLS",
    ),
    key("tls.key", Takes::Text, "none", "A PEM file with the certificate's key"),
    key(
        "tls.authority",
        Takes::Text,
        "none",
        "A PEM file with the authority that signed the certificates of all others",
    ),
    key("name", Takes::Text, "the first 8 digits of its id", "The node's name for people, unique in the cluster"),
    key("site", Takes::Text, "default", "Where the node stands; leaving a site means crossing a slow link"),
    key("rack", Takes::Text, "default", "Where in the site; what stands in a rack is lost together"),
    key("meta", Takes::Text, "local", "Who keeps the metadata: `local`, or another node as `node://HOST:PORT`"),
    key(
        "keepers",
        Takes::List,
        "none",
        "Who keeps the metadata together, instead of `meta`: three or five nodes, each `HOST:PORT`; the same on all, in one order",
    ),
    key(
        "listen",
        Takes::Text,
        "127.0.0.1:7400",
        "Where the node listens, `HOST:PORT`; port 0 is a free one; beyond loopback it wants a secret",
    ),
    key("advertise", Takes::Text, "where it listens", "Where others reach the node, `HOST:PORT`"),
    key("data", Takes::List, "./stormwell-data", "The directories that become devices, each `DIR[:CLASS[:CAPACITY]]`"),
    key(
        "metadata_dir",
        Takes::Text,
        "the first directory of `data`",
        "Where the metadata are kept, a directory that need not be one of `data`; only on a node that keeps them",
    ),
    key(
        "as_new",
        Takes::List,
        "none",
        "Directories of `data` whose device is gone for good: new devices are made there",
    ),
    key(
        "disk",
        Takes::Text,
        "auto",
        "How disks are driven: `auto` (io_uring where it may; the metadata log by threads), `uring`, `threads` or `volatile`",
    ),
    key(
        "console",
        Takes::Text,
        "the port after the node's, on loopback",
        "Where metrics and health are, `HOST:PORT` or `off`; beyond loopback it wants a secret, and asks nobody for it",
    ),
    key(
        "hdfs",
        Takes::Text,
        "127.0.0.1:8020, or a free port",
        "Where Hadoop's clients find the store as an HDFS, `HOST:PORT` or `off`",
    ),
    key(
        "hdfs_trust_any_user_name",
        Takes::Switch,
        "false",
        "Lets `hdfs` be an address that other machines reach: whoever does may say to be any user",
    ),
    key(
        "hdfs_min_block_size",
        Takes::Text,
        "1K",
        "Least bytes in a block of a file that Hadoop's clients make, as `dfs.namenode.fs-limits.min-block-size` of HDFS",
    ),
    key(
        "repair_after",
        Takes::Text,
        "off",
        "How long a device is away before what it has gets copies elsewhere, as `90s`, `10m` or `2h`, or `off`: only a person gives it up; the same on all nodes that keep the metadata",
    ),
    key("log", Takes::Text, "text", "How the log on stderr looks: `text` or `json`"),
];

/// The row with this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

impl Key {
    /// The variable of the environment: the name in capitals after `STORMWELL_`, with `_` for a dot.
    pub fn variable(&self) -> String {
        format!("STORMWELL_{}", self.name.to_ascii_uppercase().replace('.', "_"))
    }
}

/// Longest word that is compared with the keys.
const WORD_MAX: usize = 64;

/// The key that somebody may have meant by a word that is none; none if no key is like it.
pub fn nearest(word: &str) -> Option<&'static str> {
    if word.len() > WORD_MAX {
        return None;
    }
    let near = KEYS.iter().map(|key| (distance(word, key.name), key.name)).min()?;
    (near.0 <= (near.1.len() / 3).max(2)).then_some(near.1)
}

/// How many letters have to be put in, left out, changed or swapped with their neighbour.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    // Three rows of the table are alive: two letters back, one letter back, this letter.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.iter().enumerate() {
        let mut row = vec![at + 1];
        for (to, wanted) in other.iter().enumerate() {
            let changed = last[to] + usize::from(letter != wanted);
            let mut best = changed.min(last[to + 1] + 1).min(row[to] + 1);
            if at > 0 && to > 0 && one[at - 1] == *wanted && *letter == other[to - 1] {
                best = best.min(before[to - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::{KEYS, distance, find, nearest};
    use std::collections::BTreeSet;

    /// A slip of the fingers leads to the key that was meant, and a word that is like none leads nowhere.
    #[test]
    fn slips_are_understood() {
        for (slip, meant) in [
            ("listn", "listen"),
            ("lsiten", "listen"),
            ("Secret-File", "secret_file"),
            ("secretfile", "secret_file"),
            ("cosnole", "console"),
            ("advertize", "advertise"),
            ("rock", "rack"),
        ] {
            assert_eq!(nearest(slip), Some(meant), "{slip}");
        }
        assert_eq!(nearest("replication_factor"), None);
        assert_eq!(nearest(&"listen".repeat(100)), None);
        assert_eq!((distance("", "ab"), distance("ab", "ba"), distance("abc", "abc")), (2, 1, 0));
    }

    /// Names and variables are unique, so that nothing can mean two things.
    #[test]
    fn keys_are_apart() {
        let names: BTreeSet<&str> = KEYS.iter().map(|key| key.name).collect();
        let variables: BTreeSet<String> = KEYS.iter().map(|key| key.variable()).collect();
        assert_eq!((names.len(), variables.len()), (KEYS.len(), KEYS.len()));
        assert_eq!(find("secret_file").map(|key| key.variable()), Some("STORMWELL_SECRET_FILE".to_string()));
        assert!(find("at").is_none() && find("config").is_none(), "these variables belong to all commands");
    }

    /// The page for operators lists every key with its variable, what counts unless it is said, and what it does; and no other.
    #[test]
    fn the_page_lists_every_key() {
        let page = include_str!("../../../../docs/operate/configuration.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let expected: Vec<String> = KEYS
            .iter()
            .map(|key| format!("| `{}` | `{}` | {} | {} |", key.name, key.variable(), key.unless_said, key.what))
            .collect();
        assert_eq!(rows, expected, "write these rows:\n{}\n", expected.join("\n"));
    }
}
