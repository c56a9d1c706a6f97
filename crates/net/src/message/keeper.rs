//! What the keepers of one store's metadata say to each other: their messages, and how they begin a store together.

use super::id::Id;
use prost::Message;

/// Messages of one keeper to another, which may be lost: the bytes of `meta::KeeperMessage`, one after the other, are the payload.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Step {
    /// The store.
    #[prost(message, required, tag = "1")]
    pub store: Id,
    /// The number of the keeper that says them.
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// The number of the keeper that they are for.
    #[prost(uint64, tag = "3")]
    pub to: u64,
    /// What the directory of the one who says them was given when it was made: another directory is another keeper, whatever its number.
    #[prost(message, required, tag = "4")]
    pub draw: Id,
    /// The bytes of each message.
    #[prost(uint32, repeated, tag = "5")]
    pub parts: Vec<u32>,
}

/// Asks a node that is to be a keeper what it has, to make a store together.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Form {
    /// Where the keepers are as who asks was told, `host:port` each, in that order.
    #[prost(string, repeated, tag = "1")]
    pub keepers: Vec<String>,
    /// Which of them asks, counted from zero.
    #[prost(uint32, tag = "2")]
    pub place: u32,
    /// What its directory was given when it was made.
    #[prost(message, required, tag = "3")]
    pub draw: Id,
}

/// What a node that is to be a keeper has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FormAnswer {
    /// Where the keepers are as who answers was told.
    #[prost(string, repeated, tag = "1")]
    pub keepers: Vec<String>,
    /// Which of them answers, counted from zero.
    #[prost(uint32, tag = "2")]
    pub place: u32,
    /// What its directory was given when it was made.
    #[prost(message, required, tag = "3")]
    pub draw: Id,
    /// The store that it keeps; none: none yet.
    #[prost(message, optional, tag = "4")]
    pub begun: Option<Begin>,
    /// It has the metadata of a store that it keeps alone.
    #[prost(bool, tag = "5")]
    pub alone: bool,
}

/// A store begins, or has begun, with these keepers. Whoever is one of them, by its draw, begins it, too; twice is once.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Begin {
    /// The store.
    #[prost(message, required, tag = "1")]
    pub store: Id,
    /// When it began, in milliseconds since 1970: the root directory's times.
    #[prost(uint64, tag = "2")]
    pub made: u64,
    /// The keepers.
    #[prost(message, repeated, tag = "3")]
    pub seats: Vec<Seat>,
}

/// One of several keepers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Seat {
    /// Its number, which no other one of the store ever has.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// The node that it is on.
    #[prost(message, required, tag = "2")]
    pub node: Id,
    /// What its directory was given when it was made.
    #[prost(message, required, tag = "3")]
    pub draw: Id,
    /// Where its node listens, `host:port`.
    #[prost(string, tag = "4")]
    pub address: String,
}
