//! Messages about the store as a whole, and those of protocols beside ClientProtocol.

include!(concat!(env!("OUT_DIR"), "/status.rs"));

/// `ServerDefaults::checksum`: CRC32C.
pub const CHECKSUM_CRC32C: i32 = 2;

/// `DatanodeReport::kind`: all servers.
pub const REPORT_ALL: i32 = 1;
/// `DatanodeReport::kind`: those that work.
pub const REPORT_LIVE: i32 = 2;
/// Those that are not heard of.
pub const REPORT_DEAD: i32 = 3;

/// `SafeMode::action`: leave it.
pub const SAFE_MODE_LEAVE: i32 = 1;
/// `SafeMode::action`: enter it.
pub const SAFE_MODE_ENTER: i32 = 2;
/// `SafeMode::action`: say whether it is on.
pub const SAFE_MODE_GET: i32 = 3;
/// `SafeMode::action`: leave it, whatever is wrong.
pub const SAFE_MODE_FORCE_EXIT: i32 = 4;

/// `Number::value` of a server that serves.
pub const STATE_ACTIVE: u64 = 1;
