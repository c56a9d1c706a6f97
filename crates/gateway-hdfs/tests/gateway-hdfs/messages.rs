//! The bytes of each message, empty and with every field: they are Hadoop's, so they never change.

use gateway_hdfs::message;
use prost::Message;
use std::fmt::{Debug, Write};

/// The highest field number that is tried.
const FIELD_MAX: u32 = 40;

/// Lists every message, as module and name.
macro_rules! messages {
    ($($module:ident { $($name:ident)* })*) => {
        /// All messages, as the golden file has them.
        fn written() -> String {
            let mut text = String::new();
            $($(write::<message::$module::$name>(concat!(stringify!($module), "::", stringify!($name)), &mut text);)*)*
            text
        }
    };
}

messages! {
    files {
        Create CreateAnswer Append AppendAnswer AddBlock BlockAnswer AbandonBlock GetAdditionalDatanode
        Complete Truth Nothing ReportBadBlocks ReportedBlock RenewLease RecoverLease IsFileClosed Fsync
        UpdateBlockForPipeline UpdatePipeline ListOpenFiles ListedOpenFile ListOpenFilesAnswer
    }
    hdfs {
        ExtendedBlock Token DatanodeId DatanodeInfo LocatedBlock LocatedBlocks Permission FileStatus
    }
    located {
        GetBlockLocations GetBlockLocationsAnswer GetReplicaVisibleLength GetReplicaVisibleLengthAnswer
    }
    names {
        PathRequest BoolAnswer EmptyAnswer StatusAnswer ListingRequest ListingAnswer Listing
        BatchedListingRequest BatchedListingAnswer BatchedListing RemoteFailure BatchedKey MkdirsRequest
        RenameRequest Rename2Request DeleteRequest ConcatRequest TruncateRequest SetReplicationRequest
        SetPermissionRequest SetOwnerRequest SetTimesRequest CheckAccessRequest BlockSizeAnswer
        EnclosingRootAnswer AclEntryProto AclRequest AclAnswer AclStatus XattrProto XattrRequest
        XattrsRequest XattrsAnswer
    }
    policies {
        SummaryAnswer Summary QuotaAnswer QuotaUsage SetQuotaRequest SetPolicyRequest StorageTypes
        StoragePolicy StoragePolicyAnswer StoragePoliciesAnswer CodingPolicy CodingPolicyAnswer
        CodingPoliciesAnswer Codec CodecsAnswer
    }
    rpc {
        RequestHeader ResponseHeader Sasl ConnectionContext UserInformation CallHeader
    }
    status {
        ServerDefaults ServerDefaultsAnswer StoreStats ReplicatedBlockStats StripedBlockStats DatanodeReport
        DatanodeReportAnswer StorageReportAnswer DatanodeStorages StorageReport Storage SafeMode YesOrNo
        Number EndOfList CorruptFilesAnswer CorruptFiles TopologyAnswer Topology VersionAnswer NamespaceInfo
        StorageInfo Name GroupsAnswer ServiceStatus DatanodeInfoAnswer DatanodeLocalInfo
    }
    transfer {
        BaseHeader OperationHeader HandshakeAnswer Caching ReadBlock Checksum WriteBlock ChecksumOptions
        BlockChecksum BlockChecksumAnswer ReadChecksum OperationAnswer ReadStatus
    }
}

/// A message empty, with every field, and how it reads then.
fn write<M: Message + Default + PartialEq + Debug>(name: &str, text: &mut String) {
    let read = |bytes: &[u8]| M::decode(bytes).ok().map(|message| message.encode_to_vec());
    let filled = M::decode(&filled(&read)[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let bytes = filled.encode_to_vec();
    assert_eq!(M::decode(&bytes[..]).as_ref(), Ok(&filled), "{name}");
    // Of any other wire type and a number that nobody has: skipped.
    for unknown in [varint(FIELD_MAX + 1, 7), delimited(FIELD_MAX + 1, b"new"), key(FIELD_MAX + 1, 5, &[0; 4])] {
        assert_eq!(M::decode(&[&bytes[..], &unknown].concat()[..]).as_ref(), Ok(&filled), "{name}");
    }
    let (empty, bytes) = (hexadecimal(&M::default().encode_to_vec()), hexadecimal(&bytes));
    writeln!(text, "{name}\n  empty {empty:?}\n  filled {bytes:?}\n  {filled:?}").expect("a string takes all");
}

/// Bytes with every field that `read` knows, found by trying; each twice, so that one sees which may be repeated. `read` reads a message and
/// writes it again.
fn filled(read: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Vec<u8> {
    let is_known = |field: Vec<u8>| read(&field).is_some_and(|bytes| Some(bytes) != read(&[]));
    let mut bytes = Vec::new();
    for number in 1..=FIELD_MAX {
        // No message begins with this letter: it has no wire type.
        let text = format!("g{number}");
        if is_known(varint(number, 1)) {
            let below_zero = (-i64::from(number)) as u64;
            bytes.extend([varint(number, u64::from(number)), varint(number, below_zero)].concat());
        } else if is_known(delimited(number, text.as_bytes())) {
            bytes.extend([delimited(number, b"gg"), delimited(number, text.as_bytes())].concat());
        } else if read(&delimited(number, text.as_bytes())).is_none() {
            let within = filled(&|within| read(&delimited(number, within)));
            bytes.extend([delimited(number, &within), delimited(number, &[])].concat());
        }
    }
    bytes
}

fn key(number: u32, wire_type: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3 | wire_type), &mut bytes);
    bytes.extend_from_slice(value);
    bytes
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    let mut bytes = key(number, 0, &[]);
    prost::encoding::encode_varint(value, &mut bytes);
    bytes
}

fn delimited(number: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = key(number, 2, &[]);
    prost::encoding::encode_varint(value.len() as u64, &mut bytes);
    bytes.extend_from_slice(value);
    bytes
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every message has the bytes and the fields that it had when the golden file was made. With `STORMWELL_GOLDEN=write` the file is
/// written anew: for a message or field that is new. What is there stays, for Hadoop's clients know it.
#[test]
fn golden() {
    let (written, path) = (written(), concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway-hdfs/golden/messages.txt"));
    if std::env::var("STORMWELL_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(path, &written).expect("written");
    }
    let golden = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let differs = golden.lines().zip(written.lines()).find(|(golden, written)| golden != written);
    assert_eq!(differs, None, "{path} has another line");
    assert!(golden == written, "{path} has other messages");
}

/// Each message of `proto/` is in the list above, or this test would say nothing of it.
#[test]
fn none_is_left_out() {
    let written = written();
    let listed: Vec<&str> = written.lines().filter(|line| !line.starts_with(' ')).collect();
    let mut defined = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/proto")).expect("a directory") {
        let path = entry.expect("an entry").path();
        let module = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("text");
        let names = text.lines().filter_map(|line| line.strip_prefix("message ")?.split([' ', '{']).next());
        defined.extend(names.map(|name| format!("{module}::{name}")));
    }
    defined.sort_unstable_by_key(|name| listed.iter().position(|listed| listed == name));
    assert_eq!(defined, listed);
}
