//! How much of a file is synced, told to the metadata store while the file is being written: if its writer and a device are lost together,
//! what is missing is known to be missing.

use crate::client::Client;
use base::error::ErrorKind;
use base::fault::contained;
use net::message::file::SyncLength;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// From a sync until it is told, and between two such words. Each is a change of the metadata, of which the store makes some ten thousand in
/// a second, and a program that syncs each line has a thousand syncs in that time; a file that is closed within it needs none.
const EVERY: Duration = Duration::from_secs(1);

/// Tells it from the first sync on. No sync waits for it.
#[derive(Default)]
pub(crate) struct Synced {
    telling: Option<(watch::Sender<SyncLength>, JoinHandle<()>)>,
}

impl Synced {
    /// So much is synced.
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

    /// No more is synced by this writer, and the file is not closed: it stays open until its session is over. Told once more, at once.
    pub async fn end(&mut self, client: &Client) {
        if let Some((newest, telling)) = self.telling.take() {
            telling.abort();
            let synced = *newest.borrow();
            // Nobody is there to whom an error could be told, and the syncs were answered.
            let _ = client.ask(&synced).await;
        }
    }
}

/// Its file is closed, or its writer is gone.
impl Drop for Synced {
    fn drop(&mut self) {
        if let Some((_, telling)) = &self.telling {
            telling.abort();
        }
    }
}

/// Tells the newest length, at most once in `EVERY`.
async fn tell(client: Client, mut told: watch::Receiver<SyncLength>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let synced = *told.borrow_and_update();
        let is_told = match client.ask(&synced).await {
            Ok(_) => true,
            // A store of an older version does not know it.
            Err(error) if error.kind() == ErrorKind::Unsupported => return,
            // Silent, or short of memory or log: it is told again. Refused, it says nothing new: its group or its writer's time is over.
            Err(error) => {
                !matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy | ErrorKind::Full | ErrorKind::Io)
            }
        };
        if is_told && told.changed().await.is_err() {
            return;
        }
    }
}
