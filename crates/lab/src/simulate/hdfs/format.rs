//! Numbers as Hadoop's protocols write them: the first byte is the highest.

use base::checksum::crc32c;
use gateway_hdfs::message::transfer::PACKET_LENGTHS;

/// A name of sixteen bytes.
pub fn id(number: u128) -> [u8; 16] {
    number.to_be_bytes()
}

/// A frame of Hadoop RPC: its parts, with the length of all of them before.
pub fn frame(parts: [&[u8]; 2]) -> Vec<u8> {
    let length = parts.iter().map(|part| part.len()).sum::<usize>() as u32;
    [&length.to_be_bytes(), parts[0], parts[1]].concat()
}

/// An operation of the data transfer protocol: version, number, request.
pub fn operation(version: u16, number: u8, request: &[u8]) -> Vec<u8> {
    [&version.to_be_bytes(), &[number][..], request].concat()
}

/// The checksums of a packet's bytes, one for each `unit` of them.
pub fn sums(bytes: &[u8], unit: usize) -> Vec<u8> {
    bytes.chunks(unit).flat_map(|part| crc32c(part).to_be_bytes()).collect()
}

/// The two lengths before a packet's header: of what follows the header, and of the header.
pub fn packet_lengths(bytes: [u8; PACKET_LENGTHS]) -> (usize, usize) {
    let [a, b, c, d, e, f] = bytes;
    ((u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(4), u16::from_be_bytes([e, f]).into())
}
