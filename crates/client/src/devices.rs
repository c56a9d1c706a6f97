//! Questions about devices, and what is done with one as a whole: one call each.

use crate::client::Client;
use base::error::Result;
use net::message::file::{self, DevicesAnswer};
use net::message::{Id, device};

impl Client {
    /// All devices, and the namespace's totals.
    pub async fn devices(&self) -> Result<DevicesAnswer> {
        self.ask(&file::Devices {}).await
    }

    /// Begins to read every live byte of a device and to compare checksums, `rate` bytes a second (zero: a sensible rate). One
    /// that is under way goes on. How far it is, `scrubbed` says.
    pub async fn scrub(&self, device: Id, rate: u64) -> Result<()> {
        self.ask_at(device, &device::Scrub { device, rate }).await.map(drop)
    }

    /// How the last scrub of a device went, or goes, as its node has it now. None: it was not scrubbed since the node started.
    pub async fn scrubbed(&self, device: Id) -> Result<Option<device::ScrubState>> {
        self.ask_at(device, &device::Scrubbed { device, ranges: false }).await.map(|answer| answer.state)
    }

    /// Begins to empty a device, which then leaves the store; how far it is, `devices` says. `Full` if the others have too little
    /// room: then nothing was done. One that has left it already is done.
    pub async fn drain(&self, device: Id) -> Result<()> {
        self.ask(&device::Drain { device }).await.map(drop)
    }

    /// Gives a device up, for good: nobody counts on what it has any more. `Busy` if it serves: then nothing was done.
    pub async fn give_up(&self, device: Id) -> Result<()> {
        self.ask(&device::Lost { device }).await.map(drop)
    }

    /// What the last scrub of a device found damaged. `NotFound` if it was not scrubbed since the node started.
    pub async fn damage(&self, device: Id) -> Result<device::DamageAnswer> {
        self.ask(&device::Damage { device }).await
    }
}
