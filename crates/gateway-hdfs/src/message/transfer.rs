//! Messages of the data transfer protocol (datatransfer.proto). Packet headers and acknowledgements, one for every 64 KiB or
//! so, are written and read by hand.

include!(concat!(env!("OUT_DIR"), "/transfer.rs"));

/// `Status`: it went well.
pub const SUCCESS: i32 = 0;
/// `Status`: it did not; the text says why.
pub const ERROR: i32 = 1;
/// `Status`: the bytes do not match their checksum.
pub const ERROR_CHECKSUM: i32 = 2;
/// `Status`: the request is wrong.
pub const ERROR_INVALID: i32 = 3;
/// `Status` of a reader that compared the checksums.
pub const CHECKSUM_OK: i32 = 6;
/// `Status`: the gateway does not do that.
pub const ERROR_UNSUPPORTED: i32 = 7;
/// `Status` of an acknowledgement out of turn: the server restarts, wait for it.
pub const OOB_RESTART: i32 = 8;

/// `ChecksumType`: no checksums.
pub const CHECKSUM_NULL: i32 = 0;
/// `ChecksumType`: CRC-32 of IEEE 802.3.
pub const CHECKSUM_CRC32: i32 = 1;
/// `ChecksumType`: CRC-32C.
pub const CHECKSUM_CRC32C: i32 = 2;

/// `BlockChecksumType`: MD5 over the checksums of pieces.
pub const MD5_OF_CRCS: i32 = 1;
/// `BlockChecksumType`: the CRC of all bytes.
pub const COMPOSITE_CRC: i32 = 2;

/// `BlockConstructionStage`: goes on behind what is there.
pub const SETUP_APPEND: i32 = 0;
/// `BlockConstructionStage`: the same, after a pipeline failed.
pub const SETUP_APPEND_RECOVERY: i32 = 1;
/// `BlockConstructionStage`: goes on with a block after a pipeline failed.
pub const SETUP_STREAMING_RECOVERY: i32 = 3;
/// `BlockConstructionStage`: ends a block after a pipeline failed; no packets follow.
pub const CLOSE_RECOVERY: i32 = 5;
/// `BlockConstructionStage`: a new block.
pub const SETUP_CREATE: i32 = 6;

/// `HandshakeAnswer::status`: it is not served.
pub const HANDSHAKE_ERROR: i32 = 2;

/// What stands before the bytes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketHeader {
    /// First byte within the block.
    pub offset: u64,
    /// 0, 1, 2 ... within an operation; -1 is a sign of life.
    pub number: i64,
    /// Whether it is the last one; then it has no bytes.
    pub last: bool,
    /// Bytes of the block in it.
    pub length: u32,
    /// Whether the bytes must be durable when it is acknowledged.
    pub sync: bool,
}

/// The two lengths before a packet's header: of all that follows the header (these four bytes counted), and of the header.
pub const PACKET_LENGTHS: usize = 6;

/// A packet's header that says nothing about durability, with the two lengths before it.
pub const PACKET_HEADER: usize = PACKET_LENGTHS + 25;

/// Sequence number of a packet that is only a sign of life.
pub const HEARTBEAT: i64 = -1;
/// Sequence number of an acknowledgement that is about no packet.
pub const NO_PACKET: i64 = -2;

impl PacketHeader {
    /// Appends lengths and header of a packet with so many bytes of checksums.
    pub fn encode(&self, checksums: usize, bytes: &mut Vec<u8>) {
        let following = 4 + checksums as u32 + self.length;
        bytes.extend_from_slice(&following.to_be_bytes());
        bytes.extend_from_slice(&(if self.sync { 27u16 } else { 25 }).to_be_bytes());
        bytes.push(0x09);
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.push(0x11);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&[0x18, u8::from(self.last), 0x25]);
        bytes.extend_from_slice(&self.length.to_le_bytes());
        if self.sync {
            bytes.extend_from_slice(&[0x28, 1]);
        }
    }

    /// Reads a header, without the lengths before it. None: these bytes are no header.
    pub fn decode(mut bytes: &[u8]) -> Option<PacketHeader> {
        let (mut header, mut seen) = (PacketHeader::default(), 0u8);
        while let Some((tag, rest)) = bytes.split_first() {
            bytes = match *tag {
                0x09 => {
                    let (value, rest) = rest.split_first_chunk::<8>()?;
                    header.offset = u64::from_le_bytes(*value);
                    rest
                }
                0x11 => {
                    let (value, rest) = rest.split_first_chunk::<8>()?;
                    header.number = i64::from_le_bytes(*value);
                    rest
                }
                0x25 => {
                    let (value, rest) = rest.split_first_chunk::<4>()?;
                    header.length = u32::from_le_bytes(*value);
                    rest
                }
                0x18 | 0x28 => {
                    let (value, rest) = rest.split_first()?;
                    if *value > 1 {
                        return None;
                    }
                    *(if *tag == 0x18 { &mut header.last } else { &mut header.sync }) = *value == 1;
                    rest
                }
                _ => return None,
            };
            seen |= 1 << (tag >> 3);
        }
        // Fields 1 to 4 are required; a negative offset is none.
        (seen & 0b1_1110 == 0b1_1110 && header.offset <= i64::MAX as u64).then_some(header)
    }
}

/// Appends the acknowledgement of a packet with its length before it: one server, this status.
pub fn encode_acknowledgement(number: i64, status: i32, bytes: &mut Vec<u8>) {
    let length_at = bytes.len();
    bytes.extend_from_slice(&[0, 0x08]);
    prost::encoding::encode_varint(((number << 1) ^ (number >> 63)) as u64, bytes);
    // Every status is below 16: it is one byte, and it is the lower half of the flag.
    let status = status as u8 & 0xF;
    bytes.extend_from_slice(&[0x10, status, 0x22, 1, status]);
    bytes[length_at] = (bytes.len() - length_at - 1) as u8;
}

#[cfg(test)]
mod tests {
    use super::{
        CHECKSUM_CRC32C, CHECKSUM_OK, Checksum, HEARTBEAT, NO_PACKET, OOB_RESTART, OperationAnswer, PACKET_HEADER,
        PACKET_LENGTHS, PacketHeader, ReadChecksum, ReadStatus, SUCCESS, encode_acknowledgement,
    };
    use base::env::Random;
    use prost::Message;
    use sim::random::SimRandom;

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        hexadecimal.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
    }

    fn packet(header: PacketHeader, checksums: usize) -> Vec<u8> {
        let mut encoded = Vec::new();
        header.encode(checksums, &mut encoded);
        assert_eq!(PacketHeader::decode(&encoded[PACKET_LENGTHS..]), Some(header), "what was written is read");
        encoded
    }

    /// Answers and statuses are the bytes that a Java client knows.
    #[test]
    fn answers_are_javas_bytes() {
        let begun = OperationAnswer { first_bad_link: Some(String::new()), ..OperationAnswer::default() };
        assert_eq!(begun.encode_length_delimited_to_vec(), bytes("04 08 00 12 00"));
        let checksum = Checksum { kind: CHECKSUM_CRC32C, bytes: 512 };
        let read = OperationAnswer { read: Some(ReadChecksum { checksum, offset: 0 }), ..OperationAnswer::default() };
        assert_eq!(read.encode_length_delimited_to_vec(), bytes("0d 08 00 22 09 0a 05 08 02 10 80 04 10 00"));
        assert_eq!(ReadStatus { status: CHECKSUM_OK }.encode_length_delimited_to_vec(), bytes("02 08 06"));
    }

    /// Packet headers are the bytes that a Java client knows, and are read as they were written.
    #[test]
    fn packet_headers_are_javas_bytes() {
        let data = packet(PacketHeader { length: 4, ..PacketHeader::default() }, 4);
        let expected = "00 00 00 0c 00 19 09 00 00 00 00 00 00 00 00 11 00 00 00 00 00 00 00 00 18 00 25 04 00 00 00";
        assert_eq!((data.len(), data), (PACKET_HEADER, bytes(expected)));
        let last = packet(PacketHeader { offset: 4, number: 1, last: true, ..PacketHeader::default() }, 0);
        let expected = "00 00 00 04 00 19 09 04 00 00 00 00 00 00 00 11 01 00 00 00 00 00 00 00 18 01 25 00 00 00 00";
        assert_eq!(last, bytes(expected));
        let alive = packet(PacketHeader { number: HEARTBEAT, ..PacketHeader::default() }, 0);
        let expected = "00 00 00 04 00 19 09 00 00 00 00 00 00 00 00 11 ff ff ff ff ff ff ff ff 18 00 25 00 00 00 00";
        assert_eq!(alive, bytes(expected));
        let synced = packet(PacketHeader { sync: true, ..PacketHeader::default() }, 0);
        assert_eq!(synced.len(), PACKET_HEADER + 2);
    }

    /// What is no header is refused: cut anywhere, with a field missing, with an offset below zero.
    #[test]
    fn broken_packet_headers_are_refused() {
        let whole = packet(PacketHeader { offset: 9, sync: true, ..PacketHeader::default() }, 0);
        let header = &whole[PACKET_LENGTHS..];
        for cut in 0..25 {
            assert_eq!(PacketHeader::decode(&header[..cut]), None, "cut at {cut}");
        }
        assert_eq!(PacketHeader::decode(&header[9..]), None, "without an offset");
        let mut negative = header.to_vec();
        negative[8] = 0x80;
        assert_eq!(PacketHeader::decode(&negative), None);
        let mut unknown = header.to_vec();
        unknown[0] = 0x31;
        assert_eq!(PacketHeader::decode(&unknown), None);
    }

    /// Whatever the bytes: a header, which written anew is read as the same one, or none.
    #[test]
    fn fuzz_packet_headers() {
        for seed in sim::fuzz::seeds(20_000) {
            let random = SimRandom::new(seed);
            let header = PacketHeader {
                offset: random.next() >> random.below(64),
                number: random.next() as i64,
                last: random.one_in(2),
                length: random.next() as u32 >> 1,
                sync: random.one_in(2),
            };
            let mut encoded = Vec::new();
            header.encode(0, &mut encoded);
            let mut encoded = encoded.split_off(PACKET_LENGTHS);
            for _ in 0..random.below(4) {
                let at = random.below(encoded.len() as u64 + 1) as usize;
                match random.below(4) {
                    0 => encoded.truncate(at),
                    1 => encoded.insert(at, random.next() as u8),
                    2 => encoded.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
                    _ => encoded.extend_from_within(at..),
                }
            }
            if let Some(read) = PacketHeader::decode(&encoded) {
                assert!(read.offset <= i64::MAX as u64, "seed {seed}");
                let mut again = Vec::new();
                PacketHeader { length: 0, ..read }.encode(0, &mut again);
                let expected = Some(PacketHeader { length: 0, ..read });
                assert_eq!(PacketHeader::decode(&again[PACKET_LENGTHS..]), expected, "seed {seed}");
            }
        }
    }

    /// Acknowledgements are the bytes that a Java client knows.
    #[test]
    fn acknowledgements_are_javas_bytes() {
        let acknowledged = |number, status| {
            let mut encoded = vec![7];
            encode_acknowledgement(number, status, &mut encoded);
            encoded.split_off(1)
        };
        assert_eq!(acknowledged(0, SUCCESS), bytes("07 08 00 10 00 22 01 00"));
        assert_eq!(acknowledged(HEARTBEAT, SUCCESS), bytes("07 08 01 10 00 22 01 00"));
        assert_eq!(acknowledged(NO_PACKET, OOB_RESTART)[..5], bytes("07 08 03 10 08"));
        assert_eq!(acknowledged(300, SUCCESS), bytes("08 08 d8 04 10 00 22 01 00"));
    }
}
