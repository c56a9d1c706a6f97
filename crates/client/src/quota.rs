//! Quotas of directories: setting and reading them, and moving or deleting what has to be counted for one before.

use crate::client::Client;
use base::error::{ErrorKind, Result};
use base::limit::UNANSWERED_MAX;
use net::message::quota::{GetQuota, NO_QUOTA, Quota, SetQuota};
use std::time::Duration;

/// What to change of a directory's quota; none leaves a limit as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewQuota {
    /// Most files and directories, its own name included; `Some(None)`: as many as come.
    pub names: Option<Option<u64>>,
    /// Most bytes, as often as each file counts; `Some(None)`: as many as come.
    pub bytes: Option<Option<u64>>,
}

/// Between two questions about a count that goes on.
const COUNT_PAUSE: Duration = Duration::from_millis(20);

impl Client {
    /// The quota of a directory itself, and what counts against it; none: it has none.
    pub async fn quota(&self, path: &str) -> Result<Option<Quota>> {
        self.ask(&GetQuota { path: path.to_string() }).await.map(|answer| answer.quota)
    }

    /// Changes the quota of a directory, and waits until what is below it is counted. The quota as it is then.
    pub async fn set_quota(&self, path: &str, new: NewQuota) -> Result<Option<Quota>> {
        let wire = |limit: Option<Option<u64>>| limit.map(|limit| limit.unwrap_or(NO_QUOTA));
        let ask = SetQuota { path: path.to_string(), names: wire(new.names), bytes: wire(new.bytes) };
        let mut quota = self.ask(&ask).await?.quota;
        while quota.is_some_and(|quota| quota.counting) {
            tokio::time::sleep(COUNT_PAUSE).await;
            quota = self.quota(path).await?;
        }
        Ok(quota)
    }

    /// Asks for a change of what has this name. If that crosses a quota and is too much to be counted at once, it is counted before.
    pub(crate) async fn ask_counted<A: net::message::Ask>(&self, path: &str, ask: &A) -> Result<A::Answer> {
        let until = self.session.clock.now().after(UNANSWERED_MAX);
        loop {
            match self.ask(ask).await {
                Err(error) if error.kind() == ErrorKind::Busy && self.session.clock.now() < until => {
                    // What is no directory, or is gone by now, says so when it is asked again.
                    let _ = self.set_quota(path, NewQuota::default()).await;
                    tokio::time::sleep(COUNT_PAUSE).await;
                }
                other => return other,
            }
        }
    }
}
