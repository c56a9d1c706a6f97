//! The bytes of frames: as they were, and any others without harm.

use crate::support::Seeded;
use base::buffer::Pool;
use base::env::Random;
use base::error::ErrorKind;
use base::id::RequestId;
use net::decode::{Decoder, Frame};
use net::frame::{self, FAILURE, HELLO, Header, REPLY};
use net::message::session::Hello;
use net::message::{Ask, bag};
use prost::Message;

/// A greeting, a push with 5,000 bytes beside it, and a refusal, as version 2 writes them.
fn golden_frames() -> Vec<u8> {
    let mut bytes = Vec::new();
    let hello = Hello {
        version_min: 2,
        version_max: 2,
        session: 5.into(),
        program: "stormwell put".into(),
        ..Hello::default()
    };
    frame::append(&mut bytes, Header { kind: HELLO, ..Header::default() }, |bytes| hello.encode(bytes).unwrap());
    let payload: Vec<u8> = (0..5000u32).map(|at| (at % 251) as u8).collect();
    let header = Header {
        kind: bag::Push::KIND,
        number: 0x0102_0304_0506_0708,
        payload_length: 5000,
        payload_crc: base::checksum::crc32c(&payload),
        credit: 4 << 20,
        floor: 0x0102_0304_0506_0700,
        request: RequestId(0x1111_2222_3333_4444_5555_6666_7777_8888),
        ..Header::default()
    };
    let push = crate::support::push(3);
    frame::append(&mut bytes, header, |bytes| push.encode(bytes).unwrap());
    bytes.extend_from_slice(&payload);
    let refusal = net::message::Failure { code: 8, text: "no room".into() };
    let header = Header { kind: bag::Push::KIND, flags: REPLY | FAILURE, number: 9, ..Header::default() };
    frame::append(&mut bytes, header, |bytes| refusal.encode(bytes).unwrap());
    bytes
}

/// Feeds `bytes` in pieces of at most `step` and gives the frames before the first error.
fn decode(bytes: &[u8], step: usize) -> (Vec<Frame>, base::error::Result<()>) {
    let mut decoder = Decoder::new(Pool::new(1 << 20));
    let mut frames = Vec::new();
    let mut rest = bytes;
    loop {
        loop {
            match decoder.next(&mut |_| Ok(std::task::Poll::Ready(None))) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
        if rest.is_empty() {
            return (frames, Ok(()));
        }
        let space = decoder.space();
        let length = space.len().min(rest.len()).min(step);
        assert!(length > 0, "a decoder without space would read for ever");
        space[..length].copy_from_slice(&rest[..length]);
        decoder.filled(length);
        rest = &rest[length..];
    }
}

/// What a fuzzer calls: any bytes, in pieces of any size, end in frames or a reason, and the pieces do not matter.
pub fn fuzz_decoder(bytes: &[u8]) {
    let (whole, ending) = decode(bytes, usize::MAX);
    for step in [1, 47, 5000] {
        let (pieces, other) = decode(bytes, step);
        assert_eq!(ending, other, "pieces of {step}");
        assert_eq!(whole.len(), pieces.len(), "pieces of {step}");
        for (a, b) in whole.iter().zip(&pieces) {
            assert_eq!((a.header, &a.message), (b.header, &b.message));
            assert_eq!(a.payload.clone().into_bytes(), b.payload.clone().into_bytes());
        }
    }
}

/// Version 2 frames are written today as they were when the golden file was made, and read back.
#[test]
fn golden() {
    let bytes = golden_frames();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/golden/frames-2.bin");
    if std::env::var_os("STORMWELL_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/golden")).unwrap();
        std::fs::write(path, &bytes).unwrap();
    }
    assert_eq!(bytes, std::fs::read(path).unwrap(), "{path} differs: the wire format changed");
    let (frames, ending) = decode(&bytes, 1000);
    assert_eq!(ending, Ok(()));
    assert_eq!(frames.len(), 3);
    assert_eq!(frames[1].payload.length(), 5000);
    assert_eq!(frames[1].payload.verify(), Ok(()));
    let header = frames[1].header;
    assert_eq!((header.number, header.floor, header.credit), (0x0102_0304_0506_0708, 0x0102_0304_0506_0700, 4 << 20));
}

/// Whoever speaks version 1 is told that it is another version, and which, as soon as its first bytes are here: they are fewer than a
/// header of today.
#[test]
fn an_older_version_is_named() {
    let old = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/net/golden/frames-1.bin")).unwrap();
    for length in [6, 48, 71, old.len()] {
        for step in [1, 48, 5000] {
            let (frames, ending) = decode(&old[..length], step);
            let error = ending.unwrap_err();
            assert_eq!((frames.len(), error.kind()), (0, ErrorKind::Unsupported), "{length} {step}");
            assert!(error.text().contains("versions 2 to 2, the other side 1 to 1"), "{error}");
        }
    }
}

/// Frames cut, mixed up and damaged at random never panic, and the damage is always noticed in headers and messages.
#[test]
fn fuzz_any_bytes() {
    let golden = golden_frames();
    fuzz_decoder(&golden);
    for corpus in [&b""[..], b"SWFR", b"GET / HTTP/1.1\r\nHost: stormwell\r\n\r\n.................", &[0xFF; 100]] {
        fuzz_decoder(corpus);
    }
    for seed in sim::fuzz::seeds(150) {
        let random = Seeded::new(seed);
        let mut bytes = golden.clone();
        for _ in 0..=random.below(3) {
            if bytes.is_empty() {
                break;
            }
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes.truncate(at.max(1)),
                2 => bytes.splice(at..at, golden[..200].iter().copied()).for_each(drop),
                _ => bytes.drain(at..(at + 60).min(bytes.len())).for_each(drop),
            }
        }
        let attempt = std::panic::catch_unwind(|| fuzz_decoder(&bytes));
        assert!(attempt.is_ok(), "seed {seed}");
    }
}

/// Messages and payloads of every size pass the decoder in pieces of every size.
#[test]
fn sizes_and_pieces() {
    let mut bytes = Vec::new();
    let sizes =
        [(0, 0), (1, 0), (0, 1), (100, 40_000), (32_768, 0), (32_768, 1), (40_000, 0), (40_000, 70_000), (9, 9)];
    for (message, payload) in sizes {
        let header = Header { kind: 69, payload_length: payload, ..Header::default() };
        frame::append(&mut bytes, header, |bytes| bytes.extend((0..message).map(|at| at as u8)));
        bytes.extend((0..payload).map(|at| (at / 3) as u8));
    }
    for step in [1, 48, 4096, 65_536, usize::MAX] {
        let (frames, ending) = decode(&bytes, step);
        assert_eq!(ending, Ok(()));
        assert_eq!(frames.len(), sizes.len(), "pieces of {step}");
        for (frame, (message, payload)) in frames.iter().zip(sizes) {
            assert!(frame.message.iter().copied().eq((0..message).map(|at| at as u8)));
            let bytes = frame.payload.clone().into_bytes();
            assert!(bytes.iter().copied().eq((0..payload).map(|at| (at / 3) as u8)), "pieces of {step}");
        }
    }
}
