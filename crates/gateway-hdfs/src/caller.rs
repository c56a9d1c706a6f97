//! Who asks: the user that a connection named, as far as it can be believed, and which call it is.

use std::sync::Arc;

/// Who asks, in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user's name. Simple authentication believes the client.
    pub user: Arc<str>,
    /// Groups that the user is in on this machine, the primary one first.
    pub groups: Arc<[String]>,
    /// Whether the user may do everything: whoever runs the server, and members of the superusers' group.
    pub superuser: bool,
    /// The client's 16 bytes that name it in retried calls; empty if it gave none.
    pub client_id: [u8; 16],
    /// The call's number, unique with `client_id`.
    pub call: i32,
    /// Where the client is, `host:port`.
    pub address: Arc<str>,
}

impl Caller {
    /// Where the client is, without its port.
    pub fn machine(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}
