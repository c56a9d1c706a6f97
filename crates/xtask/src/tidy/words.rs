//! Words that the glossary refuses, as identifiers and as file names.

use super::Finding;
use crate::source::Source;

/// Refused everywhere, also as part of a longer name.
const REFUSED: [(&str, &str); 13] = [
    ("shard", "say chunk, region or group"),
    ("slab", "say buffer, segment or group"),
    ("brick", "say device"),
    ("blob", "say chunk or bytes"),
    ("manager", "name it by what it does"),
    ("helper", "name it by what it does"),
    ("util", "name it by what it does"),
    ("utils", "name it by what it does"),
    ("common", "name it by what is in it"),
    ("smart", "name it by what it does"),
    ("misc", "name it by what is in it"),
    ("v2", "replace the old one, or name the difference"),
    ("partition", "say region, part or range; only a network is partitioned"),
];

/// Names of other people's crates and interfaces that contain a refused word.
const FOREIGN: [&str; 3] = ["futures_util", "partition_point", "is_partitioned"];

/// Where the word for a cut network is at home.
const NETWORK_HOMES: [&str; 2] = ["crates/net/", "crates/sim/"];

/// Looks at every identifier of a file.
pub fn check(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (offset, identifier) in source.identifiers() {
        // Iterators split themselves in two with a method of this name.
        let method = source.code[..offset].ends_with('.') && identifier == "partition";
        if method || FOREIGN.contains(&identifier) {
            continue;
        }
        if let Some((word, instead)) = refused(path, identifier) {
            let what = format!("`{identifier}` holds the refused word `{word}`");
            findings.push(Finding::new(path, source.line_of(offset), what, instead));
        }
    }
    findings
}

/// Looks at the names of the file and its directories.
pub fn check_path(path: &str) -> Vec<Finding> {
    let parts = path.split(|character: char| !character.is_alphanumeric() && character != '_');
    let found = parts.into_iter().find_map(|part| refused(path, part));
    let finding =
        |(word, instead)| Finding::new(path, 1, format!("the file name holds the refused word `{word}`"), instead);
    found.map(finding).into_iter().collect()
}

fn refused(path: &str, name: &str) -> Option<(&'static str, &'static str)> {
    let words = split(name);
    let at_home = NETWORK_HOMES.iter().any(|home| path.starts_with(home));
    REFUSED.into_iter().find(|(refused, _)| {
        let hit = words.iter().any(|word| word == refused || word.strip_suffix('s') == Some(refused));
        hit && !(at_home && *refused == "partition")
    })
}

/// The words of a name in snake case, camel case or capitals, in small letters.
fn split(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (place, character) in characters.iter().enumerate() {
        let before = place.checked_sub(1).map(|place| characters[place]);
        let after_small = before.is_some_and(|before| before.is_lowercase() || before.is_ascii_digit());
        // In `HTTPUtil` a word starts at the last capital of the run.
        let last_capital =
            before.is_some_and(char::is_uppercase) && characters.get(place + 1).is_some_and(|c| c.is_lowercase());
        if *character == '_' || (character.is_uppercase() && (after_small || last_capital)) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| *character != '_') {
            word.extend(character.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{check, check_path, split};
    use crate::tidy::tests::source;

    fn count(path: &str, text: &str) -> usize {
        check(path, &source(path, text)).len()
    }

    /// Names fall apart into words in every case.
    #[test]
    fn words() {
        assert_eq!(split("read_HTTPUtil2"), ["read", "http", "util2"]);
        assert_eq!(split("BlobStore"), ["blob", "store"]);
        assert_eq!(split("MAX_SHARDS"), ["max", "shards"]);
    }

    /// Refused words inside names of every case, also in the plural; not inside other words, comments and strings.
    #[test]
    fn identifiers() {
        for bad in [
            "struct BlobStore;",
            "fn smart() {}",
            "const MAX_SHARDS: u8 = 1;",
            "mod utils;",
            "fn read_v2() {}",
            "let task_helper = 1;",
        ] {
            assert_eq!(count("crates/chunk/src/a.rs", bad), 1, "{bad}");
        }
        for good in [
            "fn utility() {}",
            "// a helper\n",
            "let a = \"blob\";",
            "fn commonly() {}",
            "a.partition_point(b);",
            "a.partition(b);",
        ] {
            assert_eq!(count("crates/chunk/src/a.rs", good), 0, "{good}");
        }
    }

    /// Only the network is partitioned.
    #[test]
    fn cut_networks() {
        assert_eq!(count("crates/sim/src/a.rs", "fn partition() {}"), 0);
        assert_eq!(count("crates/meta/src/a.rs", "fn partition() {}"), 1);
    }

    /// File and directory names.
    #[test]
    fn paths() {
        assert_eq!(check_path("crates/chunk/src/helpers.rs").len(), 1);
        assert_eq!(check_path("crates/common/src/lib.rs").len(), 1);
        assert_eq!(check_path("docs/format_v2.md").len(), 1);
        assert_eq!(check_path("docs/utility.md").len(), 0);
    }
}
