//! Messages of the calls that ask where a file's blocks are (ClientNamenodeProtocol.proto, ClientDatanodeProtocol.proto).

include!(concat!(env!("OUT_DIR"), "/located.rs"));

impl GetBlockLocationsAnswer {
    /// The tag of `located`, for whoever encodes it in parts.
    pub const LOCATED: u32 = 1;
}
