//! Words that every crate shares: ids, units, limits, policy, checksums, errors, buffers, and the outside world as traits.
//! Nothing here opens a file or a socket, reads a clock or rolls dice.

pub mod acl;
pub mod attributes;
pub mod buffer;
pub mod burst;
pub mod checksum;
pub mod disk;
pub mod ended;
pub mod env;
pub mod error;
pub mod fault;
pub mod id;
pub mod layout;
pub mod limit;
pub mod metric;
pub mod moved;
pub mod net;
pub mod permission;
pub mod places;
pub mod planted;
pub mod policy;
pub mod protobuf;
pub mod quota;
pub mod request;
pub mod session;
pub mod stripe;
pub mod unit;
pub mod version;
pub mod watched;
