//! The formats as they are: fixed inputs give the bytes in `golden/`, and those are read back. With `STORMWELL_GOLDEN=write`
//! the files are written anew, which is a change of format.

use base::env::Random;
use base::id::{BagId, ChunkId, DeviceId, Generation, GroupId, Owner};
use base::version::ProgramVersion;
use bytes::Bytes;
use chunk::format::{
    CheckpointHeader, DataHeader, EARLY_HEADER, EarlyHeader, GROUP_HEADER, GroupHeader, Identity, LogPosition, Reader,
    Record,
};
use chunk::{Asking, Handling};
use sim::random::SimRandom;

const DEVICE: DeviceId = DeviceId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

fn identity() -> Identity {
    Identity {
        version: 1,
        device: DEVICE,
        capacity: 1 << 30,
        data_segment: 64 << 20,
        journal_segment: 8 << 20,
        least: ProgramVersion::default(),
    }
}

fn data_header() -> DataHeader {
    DataHeader {
        chunk: ChunkId(0xC0FFEE),
        owner: Owner::Bag(BagId(7)),
        generation: Generation(3),
        sequence: 1001,
        previous: 1000,
        durable_data: 900,
        durable_journal: 950,
        incarnation: 77,
        segment: 5,
        block: 12,
        offset: 0,
        length: 10_000,
        cell: 0,
        seals: Some((10_000, 0xABCD_EF01)),
        newer: 0,
        crcs: vec![1, 2, 0xFFFF_FFFF],
    }
}

/// That of a cell, as version 3 has it.
fn cell_header() -> DataHeader {
    DataHeader {
        owner: Owner::Group(GroupId(4)),
        offset: 4096,
        cell: 1 << 20,
        seals: Some((0x101000, 5)),
        ..data_header()
    }
}

/// As version 4 has it.
fn fourth_identity() -> Identity {
    let least = ProgramVersion { major: 7, minor: 8, patch: 9 };
    Identity { version: 4, least, ..identity() }
}

/// That of a record of an owner and with a flag that no program knew when version 4 was made.
fn newer_header() -> DataHeader {
    DataHeader { owner: Owner::new(200, 5).expect("an owner"), newer: 1 << 7, ..data_header() }
}

fn records() -> Vec<Record> {
    let (chunk, owner, generation) = (ChunkId(9), Owner::Group(GroupId(4)), Generation(2));
    vec![
        Record::Append { chunk, owner, generation, offset: 5, payload: Bytes::from_static(b"thirteen byte") },
        Record::Seal { chunk, owner, generation, length: 18, crc: 0x1234_5678 },
        Record::Fence { chunk, generation },
        Record::Delete { chunk },
        Record::Release { chunk, start: 3, end: 9 },
        Record::Acknowledge { chunk, pass: 1, handling: Handling { grant: 44, by: None, push_floor: 0 } },
        Record::SealBag { bag: BagId(6), epoch: 12 },
        Record::DropBag { bag: BagId(6) },
    ]
}

/// Acknowledgements that may be asked again, as version 4 has them, and of bags that retain.
fn handled() -> Vec<Record> {
    let chunk = ChunkId(0x0123_4567_89AB_CDEF_0002_0000_0000_0009);
    let by = Some(Asking { session: 0xFEDC_BA98_7654_3210, number: 12, floor: 11 });
    let handling = Handling { grant: 44, by, push_floor: 8 };
    let old = Handling { grant: 45, by: None, push_floor: 0 };
    vec![
        Record::Acknowledge { chunk, pass: 1, handling },
        Record::Handle { chunk, pass: 2, handling },
        Record::Handle { chunk, pass: 3, handling: old },
    ]
}

fn handled_bytes() -> Vec<u8> {
    let mut bytes = Vec::new();
    handled().iter().zip(60..).for_each(|(record, sequence)| record.encode(sequence, &mut bytes));
    bytes
}

fn group() -> Vec<u8> {
    let mut body = Vec::new();
    for (place, record) in records().iter().enumerate() {
        record.encode(50 + place as u64, &mut body);
    }
    let header = GroupHeader {
        length: body.len() as u32,
        records_crc: GroupHeader::crc_of(DEVICE, &body),
        segment: 1,
        block: 2,
        incarnation: 3,
        previous: 49,
        first: 50,
        last: 57,
        durable_data: 40,
        durable_journal: 45,
    };
    let mut out = vec![0; GROUP_HEADER];
    header.encode(DEVICE, &mut out);
    out.extend_from_slice(&body);
    out
}

/// As version 5 has it.
fn early_header() -> EarlyHeader {
    EarlyHeader { length: handled_bytes().len() as u32, previous: 58, last: 62 }
}

fn early_entry() -> Vec<u8> {
    let mut entry = [vec![0; EARLY_HEADER], handled_bytes()].concat();
    early_header().encode(DEVICE, &mut entry);
    entry
}

fn checkpoint() -> CheckpointHeader {
    let place = |segment| LogPosition { segment, incarnation: 10, block: 30, last: 99 };
    CheckpointHeader {
        version: 1,
        number: 8,
        base: 8,
        sequence: 500,
        length: 1234,
        body_crc: 0xFEED_BEEF,
        data: place(3),
        journal: place(1),
    }
}

fn encoded() -> Vec<(&'static str, Vec<u8>)> {
    let mut header = vec![0; 4096];
    data_header().encode(DEVICE, &mut header);
    let mut cell = vec![0; 4096];
    cell_header().encode(DEVICE, &mut cell);
    let mut newer = vec![0; 4096];
    newer_header().encode(DEVICE, &mut newer);
    vec![
        ("identity-4", fourth_identity().encode()),
        ("newer-header", newer),
        ("identity", identity().encode()),
        ("data-header", header),
        ("cell-header", cell),
        ("journal-group", group()),
        ("handled-records", handled_bytes()),
        ("early-entry", early_entry()),
        ("checkpoint-header", checkpoint().encode(DEVICE)),
    ]
}

fn decode_records(bytes: &[u8]) -> Vec<Record> {
    let mut reader = Reader(bytes);
    std::iter::from_fn(|| Record::decode(&mut reader)).map(|(_, record)| record).collect()
}

/// Version 1 of every format stays what it is, and what was added to it since.
#[test]
fn golden_files() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chunk/golden");
    for (name, bytes) in encoded() {
        let path = format!("{folder}/{name}.bin");
        if std::env::var("STORMWELL_GOLDEN").is_ok_and(|value| value == "write") {
            std::fs::create_dir_all(folder).expect("folder");
            std::fs::write(&path, &bytes).expect("written");
        }
        let kept = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(kept == bytes, "{name} is encoded differently now: a new format version is needed");
        match name {
            "identity-4" => assert_eq!(Identity::decode(&kept), Ok(fourth_identity())),
            "newer-header" => assert_eq!(DataHeader::decode(DEVICE, &kept), Some(newer_header())),
            "identity" => assert_eq!(Identity::decode(&kept), Ok(identity())),
            "data-header" => assert_eq!(DataHeader::decode(DEVICE, &kept), Some(data_header())),
            "cell-header" => assert_eq!(DataHeader::decode(DEVICE, &kept), Some(cell_header())),
            "journal-group" => assert_eq!(decode_records(&kept[GROUP_HEADER..]), records()),
            "early-entry" => {
                let (header, records) = EarlyHeader::decode(DEVICE, &kept).expect("an entry");
                assert_eq!((header, decode_records(records)), (early_header(), handled()));
            }
            "handled-records" => assert_eq!(decode_records(&kept), handled()),
            _ => assert_eq!(CheckpointHeader::decode(DEVICE, &kept), Some(checkpoint())),
        }
    }
}

fn decode_all(bytes: &[u8]) {
    let _ = Identity::decode(bytes);
    let _ = DataHeader::decode(DEVICE, bytes);
    let _ = GroupHeader::decode(DEVICE, bytes);
    let _ = CheckpointHeader::decode(DEVICE, bytes);
    let _ = EarlyHeader::decode(DEVICE, bytes);
    let _ = decode_records(bytes);
    let _ = decode_records(bytes.get(GROUP_HEADER..).unwrap_or_default());
}

/// Damaged bytes are refused, not fatal: every decoder on mutated and cut golden bytes and on noise.
#[test]
fn fuzz_decoders() {
    for round in sim::fuzz::seeds(3000) {
        let random = SimRandom::new(round);
        for (_, mut bytes) in encoded() {
            for _ in 0..=random.below(4) {
                let place = random.below(bytes.len() as u64) as usize;
                bytes[place] = random.next() as u8;
            }
            if round % 3 == 0 {
                bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
            }
            decode_all(&bytes);
        }
    }
}

/// Records that were added to version 1 keep their bytes, too, and come back.
#[test]
fn added_records() {
    let mut out = Vec::new();
    let (handle, pass) = (
        Record::Handle { chunk: ChunkId(9), pass: 1, handling: Handling { grant: 44, by: None, push_floor: 0 } },
        Record::Pass { bag: BagId(6), pass: 3, retain: true },
    );
    handle.encode(70, &mut out);
    pass.encode(71, &mut out);
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let chunk = ChunkId(9).to_bytes().to_vec();
    let expected = [numbers(&[28, 9, 70, 0]), chunk, numbers(&[44, 0, 1, 0, 16, 10, 71, 0, 6, 0, 3, 1])].concat();
    assert_eq!(out, expected);
    assert_eq!(decode_records(&out), [handle, pass]);
}
