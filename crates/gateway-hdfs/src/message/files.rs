//! Messages of the calls about open files and their blocks (ClientNamenodeProtocol.proto).

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// `Create::flags`: make the file if it is not there.
pub const CREATE: u32 = 1;
/// `Create::flags`: replace a file of that name.
pub const OVERWRITE: u32 = 2;
/// `Create::flags`: the file may be lost with the memory.
pub const LAZY_PERSIST: u32 = 16;
/// `Append::flags`: begin a new block although the last one is not full.
pub const NEW_BLOCK: u32 = 32;
