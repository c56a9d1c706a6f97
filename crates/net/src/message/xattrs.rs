//! Extended attributes.

use super::file::{Asked, Looked};
use prost::Message;

/// Asks for extended attributes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetXattrs {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Only this one; empty: all.
    #[prost(string, tag = "2")]
    pub name: String,
}

/// An extended attribute.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Xattr {
    /// Its name with the namespace: `user.origin`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Any bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Extended attributes in the order of their names' bytes; `base::limit::XATTRS_BYTES_MAX` bounds them all together.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct XattrsAnswer {
    /// The attributes.
    #[prost(message, repeated, tag = "1")]
    pub xattrs: Vec<Xattr>,
}

/// Sets or removes an extended attribute.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetXattr {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Its name with the namespace.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Its value; absent removes it.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
    /// Which call of a gateway's client this is; absent: none that may be asked at another gateway.
    #[prost(message, optional, tag = "30")]
    pub asked: Option<Asked>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
}
