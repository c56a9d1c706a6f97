//! What HDFS keeps with a file or directory and the store does not know: it travels as the `note` of the attributes, opaque
//! to everybody else.

use crate::gateway::{BLOCK_SIZE, REPLICATION};
use prost::Message;

/// What HDFS keeps with a file or directory. All zeros and empty: nothing was said.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HdfsAttributes {
    /// Bytes in a block of this file; zero: the gateway's default.
    #[prost(uint64, tag = "1")]
    pub block_size: u64,
    /// Copies that the user asked for; zero: the gateway's default.
    #[prost(uint32, tag = "2")]
    pub replication: u32,
    /// Number of the storage policy set here; zero: as above.
    #[prost(uint32, tag = "3")]
    pub storage_policy: u32,
    /// Name of the erasure coding policy that was set here; empty: as above. A label only.
    #[prost(string, tag = "4")]
    pub erasure_coding: String,
    // 5 was the access control list, which the store keeps now (record 0429).
    /// Superusers may not read this file: somebody set the extended attribute that says so.
    #[prost(bool, tag = "8")]
    pub unreadable_by_superuser: bool,
}

impl HdfsAttributes {
    /// Reads a note. Bytes that are none count as an empty one: they were not written by this gateway.
    pub fn read(bytes: &[u8]) -> HdfsAttributes {
        HdfsAttributes::decode(bytes).unwrap_or_default()
    }

    /// Bytes in a block of the file.
    pub fn block_size(&self) -> u64 {
        if self.block_size == 0 { BLOCK_SIZE } else { self.block_size }
    }

    /// Copies that the file should have.
    pub fn replication(&self) -> u32 {
        if self.replication == 0 { REPLICATION } else { self.replication }
    }
}

#[cfg(test)]
mod tests {
    use super::HdfsAttributes;
    use crate::message::names::BatchedKey;
    use crate::message::rpc::ConnectionContext;
    use prost::Message;
    use sim::random::SimRandom;

    /// Whatever is in a note, or where an answer says that the next one goes on, or in what says who calls, is read or refused; a note is
    /// read as one that this gateway writes, and that one is read as it is.
    #[test]
    fn fuzz_notes() {
        let whole = HdfsAttributes { block_size: 1 << 20, replication: 3, ..HdfsAttributes::default() };
        assert_eq!(HdfsAttributes::read(&whole.encode_to_vec()), whole);
        for seed in sim::fuzz::seeds(2_000) {
            let random = SimRandom::new(seed);
            let mut note = whole.encode_to_vec();
            let mut other = sim::fuzz::readable(&random, 10, |bytes| HdfsAttributes::decode(bytes).is_ok());
            for _ in 0..5 {
                sim::fuzz::damage(&random, &mut note);
                sim::fuzz::damage(&random, &mut other);
                for bytes in [&note, &other] {
                    let read = HdfsAttributes::read(bytes);
                    assert!(read.block_size() > 0 && read.replication() > 0, "seed {seed}");
                    assert_eq!(HdfsAttributes::read(&read.encode_to_vec()), read, "seed {seed}");
                    drop(BatchedKey::decode(bytes.as_slice()));
                    drop(ConnectionContext::decode(bytes.as_slice()));
                }
            }
        }
    }
}
