//! Who asks: the user that a connection named, as far as it can be believed, and which call it is.

use crate::rpc::budget::Share;
use client::{Client, User};
use std::sync::Arc;

/// Who asks, in one call.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user's name. Simple authentication believes the client.
    pub user: Arc<str>,
    /// As whom the store judges: the user, with the groups that it is in on this machine, the primary one first.
    pub judged_as: Arc<User>,
    /// Whether the user may do everything: whoever runs the server, and members of the superusers' group.
    pub superuser: bool,
    /// The client's 16 bytes that name it in retried calls; empty if it gave none.
    pub client_id: [u8; 16],
    /// The call's number, unique with `client_id`.
    pub call: i32,
    /// The client has asked it before: here, or at another gateway.
    pub again: bool,
    /// Where the client is, `host:port`.
    pub address: Arc<str>,
    /// The memory that this call holds for its answer.
    pub(crate) share: Arc<Share>,
}

impl Caller {
    /// The store, which judges whether the caller may do what is asked of it here, for changes of this call: one that was made for it before
    /// is answered as then.
    pub fn judged(&self, client: &Client) -> Client {
        self.store(client).asking_for(self.judged_as.clone())
    }

    /// The same for what was judged when it was looked up, and is asked in the gateway's own name.
    pub fn store(&self, client: &Client) -> Client {
        if self.client_id == [0; 16] { client.clone() } else { client.asked_by(self.client_id, self.call as u32) }
    }

    /// Where the client is, without its port.
    pub fn machine(&self) -> &str {
        let host = self.address.rsplit_once(':').map_or(&*self.address, |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}
