//! Ids as messages have them.

use prost::Message;

/// A 128-bit id: device, chunk, node or session.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Id {
    /// The upper half.
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    /// The lower half.
    #[prost(fixed64, tag = "2")]
    pub low: u64,
}

impl From<u128> for Id {
    fn from(value: u128) -> Id {
        Id { high: (value >> 64) as u64, low: value as u64 }
    }
}

impl Id {
    /// The id as one number.
    pub fn value(self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}
