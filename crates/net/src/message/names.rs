//! Names that are made, moved and removed, whatever they stand for.

use super::file::{Asked, Looked, User};
use prost::Message;

/// Makes a directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MakeDirectory {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Make what is missing above, and do not mind if it exists.
    #[prost(bool, tag = "2")]
    pub parents: bool,
    /// Permission bits; absent means 0755.
    #[prost(uint32, optional, tag = "3")]
    pub mode: Option<u32>,
    /// Who owns it and what is made above; absent: the session's user.
    #[prost(string, optional, tag = "4")]
    pub owner: Option<String>,
    /// Which group of people does; absent: the session's.
    #[prost(string, optional, tag = "5")]
    pub group: Option<String>,
    /// What a gateway keeps with it.
    #[prost(bytes = "vec", tag = "6")]
    pub note: Vec<u8>,
    /// Permission bits of what is made above; absent means 0755.
    #[prost(uint32, optional, tag = "7")]
    pub above_mode: Option<u32>,
    // 8 was a note for these: lists of access are handed down by the store.
    // 9 was a version of the directories to rely on: whoever asked had judged the rights itself.
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
    /// Permission bits before a umask took some of them, which count instead of `mode` where the directory hands down an access control list;
    /// absent: `mode`.
    #[prost(uint32, optional, tag = "33")]
    pub open: Option<u32>,
    /// It belongs to the group of its directory, and so does what is made above.
    #[prost(bool, tag = "34")]
    pub group_above: bool,
    /// What is made above has the permission bits of the directory that is there, and its owner may go there and write; `above_mode` is not
    /// looked at.
    #[prost(bool, tag = "35")]
    pub above_alike: bool,
}

/// Moves a file or directory, atomically.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Rename {
    /// Absolute path of what is moved.
    #[prost(string, tag = "1")]
    pub from: String,
    /// Its new absolute path.
    #[prost(string, tag = "2")]
    pub to: String,
    /// Replace a file, or an empty directory, of that name.
    #[prost(bool, tag = "3")]
    pub replace: bool,
    // 4 was a version of the directories to rely on: whoever asked had judged the rights itself.
    /// Which call of a gateway's client this is; absent: none that may be asked at another gateway.
    #[prost(message, optional, tag = "30")]
    pub asked: Option<Asked>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
    /// It is as good as removed, into somebody's trash: it goes as `Delete` would let it.
    #[prost(bool, tag = "5")]
    pub removes: bool,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
}

/// Removes a file or directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Delete {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// With everything below.
    #[prost(bool, tag = "2")]
    pub recursive: bool,
    // 3 was a version of the directories to rely on: whoever asked had judged the rights itself.
    /// Which call of a gateway's client this is; absent: none that may be asked at another gateway.
    #[prost(message, optional, tag = "30")]
    pub asked: Option<Asked>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
}
