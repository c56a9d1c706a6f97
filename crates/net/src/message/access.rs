//! For whom something is asked, and what that one must be allowed to.

use prost::Message;

/// For whom a gateway asks. Only a session of a superuser may ask for another user, and is judged as that one then.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct User {
    /// The name; whom what is made belongs to.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The groups that the user is in; at most `base::limit::GROUPS_MAX` count.
    #[prost(string, repeated, tag = "2")]
    pub groups: Vec<String>,
}

/// What whoever asks must be allowed to, as `base::permission::Wanted` says.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Wanted {
    /// Rights on the deepest directory above the path that is there.
    #[prost(uint32, tag = "1")]
    pub ancestor: u32,
    /// Rights on the directory that the path is in, if it is there.
    #[prost(uint32, tag = "2")]
    pub parent: u32,
    /// Rights on what the path names, if it is there.
    #[prost(uint32, tag = "3")]
    pub access: u32,
    /// To own that.
    #[prost(bool, tag = "4")]
    pub owner: bool,
}

/// Asks whether everything below a directory may be removed: a bounded part of it is looked at in each call.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct JudgeBelow {
    /// Absolute path of the directory.
    #[prost(string, tag = "1")]
    pub path: String,
    /// `JudgeBelowAnswer::next` of the call before; empty: from the start.
    #[prost(bytes = "vec", tag = "2")]
    pub resume: Vec<u8>,
    /// How many empty directories were told in the calls before.
    #[prost(uint32, tag = "3")]
    pub empty: u32,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
}

/// As far as was looked everything may go.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct JudgeBelowAnswer {
    /// The version of the directories, to rely on (`Looked::directories`).
    #[prost(fixed64, tag = "1")]
    pub version: u64,
    /// Directories that may go only because they are empty (`Looked::empty`).
    #[prost(uint64, repeated, tag = "2")]
    pub empty: Vec<u64>,
    /// To go on with; empty: that was all.
    #[prost(bytes = "vec", tag = "3")]
    pub next: Vec<u8>,
    /// The number of the directory (`Looked::below`).
    #[prost(uint64, tag = "4")]
    pub top: u64,
}
