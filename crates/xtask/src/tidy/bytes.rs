//! Where bytes get their meaning: stored bytes only in files named `format.rs`, messages only in `net::message`, those of
//! somebody else's protocol in the `.proto` files of its gateway.

use super::Finding;
use crate::source::Source;

/// Files that turn numbers into bytes: formats, the frame header, what a proof of the secret is made of, and the primitives below them.
const NUMBER_HOMES: [&str; 7] =
    ["format.rs", "frame.rs", "secret.rs", "checksum.rs", "buffer.rs", "random.rs", "id.rs"];

/// Directories whose bytes mean nothing to anybody who stores them: simulated disks, and the benchmark's test data.
/// Gateways say numbers as their protocols want them.
const FREE_DIRECTORIES: [&str; 3] = ["crates/sim/", "crates/cli/src/bench/", "crates/gateway-hdfs/src/"];

/// Where messages are derived by hand: ours, what of them is stored as it is sent (record 0442), and what a gateway keeps in notes.
const MESSAGE_HOMES: [&str; 4] = [
    "crates/net/src/message",
    "crates/base/src/attributes.rs",
    "crates/base/src/acl.rs",
    "crates/gateway-hdfs/src/hdfs_attributes.rs",
];

/// Both rules of this file.
pub fn check(path: &str, source: &Source) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut findings = Vec::new();
    if !NUMBER_HOMES.contains(&name) && !FREE_DIRECTORIES.iter().any(|directory| path.starts_with(directory)) {
        findings.extend(numbers(path, source));
    }
    if name != "format.rs" && !MESSAGE_HOMES.iter().any(|home| path.starts_with(home)) {
        findings.extend(messages(path, source));
    }
    findings
}

fn numbers(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (offset, word) in source.identifiers() {
        let order = word.strip_prefix("to_").or_else(|| word.strip_prefix("from_"));
        let line = source.line_of(offset);
        if order.is_some_and(|order| matches!(order, "le_bytes" | "be_bytes" | "ne_bytes")) && !source.is_test(line) {
            let what = format!("`{word}` outside a format file");
            findings.push(Finding::new(path, line, what, "put what the bytes mean into this crate's format.rs"));
        }
    }
    findings
}

fn messages(path: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (offset, _) in source.code.match_indices("derive(") {
        let derives = source.code[offset..].split(')').next().unwrap_or_default();
        let line = source.line_of(offset);
        let mut words = derives.split(|character: char| !character.is_alphanumeric());
        if words.any(|word| matches!(word, "Message" | "Oneof" | "Enumeration")) && !source.is_test(line) {
            let instead = "define messages in net::message, foreign ones in .proto files, stored records in this crate's format.rs";
            findings.push(Finding::new(path, line, "a prost message", instead));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::tests::source;

    fn count(path: &str, text: &str) -> usize {
        check(path, &source(path, text)).len()
    }

    /// Numbers become bytes only where a format is drawn, in the simulation and in tests.
    #[test]
    fn numbers() {
        let text = "fn a() {\n    let b = c.to_le_bytes();\n}\n";
        assert_eq!(count("crates/chunk/src/log.rs", text), 1);
        assert_eq!(count("crates/chunk/src/log.rs", "let a = u32::from_be_bytes(b);"), 1);
        assert_eq!(count("crates/chunk/src/format.rs", text), 0);
        assert_eq!(count("crates/sim/src/disk.rs", text), 0);
        assert_eq!(count("crates/chunk/tests/chunk/main.rs", text), 0);
    }

    /// Messages are derived in one place; the trait itself may be used anywhere.
    #[test]
    fn messages() {
        let text = "#[derive(Clone, PartialEq, prost::Message)]\nstruct A {}\n";
        assert_eq!(count("crates/node/src/serve.rs", text), 1);
        assert_eq!(count("crates/net/src/message/bag.rs", text), 0);
        assert_eq!(count("crates/meta/src/format.rs", text), 0);
        assert_eq!(count("crates/gateway-hdfs/src/hdfs_attributes.rs", text), 0);
        assert_eq!(count("crates/gateway-hdfs/src/message/names.rs", text), 1);
        assert_eq!(count("crates/node/src/serve.rs", "use prost::Message;\n"), 0);
    }
}
