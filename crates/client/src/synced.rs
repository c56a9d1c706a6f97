//! How much of a file is synced, told to the metadata store while the file is being written: if its writer and a device are lost together,
//! what is missing is known to be missing.

use crate::client::Client;
use base::error::ErrorKind;
use base::fault::contained;
use net::message::file::SyncLength;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Between two such words. Each is a change of the metadata, of which the store makes some ten thousand in a second, and a program that
/// syncs each line has a thousand syncs in that time.
const EVERY: Duration = Duration::from_secs(1);

/// Tells it from the first sync on. No sync waits for it.
#[derive(Default)]
pub(crate) struct SyncedLength {
    telling: Option<(watch::Sender<SyncLength>, JoinHandle<()>)>,
}

impl SyncedLength {
    /// So much is synced. The first time it is told at once, then the newest of what came within a second.
    pub fn note(&mut self, client: &Client, synced: SyncLength) {
        match &self.telling {
            Some((newest, _)) => drop(newest.send_replace(synced)),
            None => {
                let (newest, told) = watch::channel(synced);
                let telling = tokio::spawn(contained(tell(client.clone(), told)));
                self.telling = Some((newest, telling));
            }
        }
    }
}

/// Its file is closed, which says how long it is, or has lost its writer.
impl Drop for SyncedLength {
    fn drop(&mut self) {
        if let Some((_, telling)) = &self.telling {
            telling.abort();
        }
    }
}

async fn tell(client: Client, mut told: watch::Receiver<SyncLength>) {
    loop {
        let synced = *told.borrow_and_update();
        let is_told = match client.ask(&synced).await {
            // A store of an older version does not know it.
            Err(error) if error.kind() == ErrorKind::Unsupported => return,
            // Silent, or short of memory: it is told again. Behind the end of its group or of its writer's time it says nothing new.
            Err(error) => !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy | ErrorKind::Io),
            Ok(_) => true,
        };
        tokio::time::sleep(EVERY).await;
        if is_told && told.changed().await.is_err() {
            return;
        }
    }
}
