//! The same change to many names: those on the command line, and with `-R` everything below them, several at once.

use crate::exit::{Exit, Result, report};
use crate::path;
use base::error::{Error, ErrorKind};
use client::{Attributes, Client};
use std::future::Future;
use tokio::task::JoinSet;

/// Changes on their way at once: enough that one sync of the metadata log carries many.
const AT_ONCE: usize = 64;

/// Changes that are on their way, and how those before them fared.
struct Changes {
    running: JoinSet<(String, base::error::Result<()>)>,
    failed: bool,
}

impl Changes {
    async fn start(
        &mut self,
        path: String,
        change: impl Future<Output = base::error::Result<()>> + Send + 'static,
    ) -> Result<()> {
        while self.running.len() >= AT_ONCE {
            self.finish_one().await?;
        }
        self.running.spawn(async move { (path, change.await) });
        Ok(())
    }

    async fn finish_one(&mut self) -> Result<()> {
        match self.running.join_next().await {
            Some(Ok((path, Err(error)))) => self.complain(&path, error),
            Some(Err(error)) => Err(Error::new(ErrorKind::Io, format!("it was cut off: {error}; run it again")).into()),
            Some(Ok((_, Ok(())))) | None => Ok(()),
        }
    }

    /// Reports a failure and goes on, unless there is nobody to go on with.
    fn complain(&mut self, path: &str, mut error: Error) -> Result<()> {
        if error.kind() == ErrorKind::Unreachable {
            return Err(error.into());
        }
        if !error.text().contains(path) {
            error = error.during(path);
        }
        report(&error);
        self.failed = true;
        Ok(())
    }
}

/// Does `change` to every path, and with `recursive` to everything below; what fails is reported, the rest is done. A
/// single path without more ends with its own error.
pub async fn each<F>(
    client: &Client,
    paths: &[String],
    recursive: bool,
    change: impl Fn(Client, String, Attributes) -> F,
) -> Result<Exit>
where
    F: Future<Output = base::error::Result<()>> + Send + 'static,
{
    let mut changes = Changes { running: JoinSet::new(), failed: false };
    for top in paths {
        let attributes = match client.stat(top).await {
            Ok(attributes) => attributes,
            Err(error) if paths.len() == 1 => return Err(error.into()),
            Err(error) => {
                changes.complain(top, error)?;
                continue;
            }
        };
        let directory = attributes.directory;
        if paths.len() == 1 && !(recursive && directory) {
            change(client.clone(), top.clone(), attributes).await?;
            return Ok(Exit::Done);
        }
        changes.start(top.clone(), change(client.clone(), top.clone(), attributes)).await?;
        let mut pending = if recursive && directory { vec![top.clone()] } else { Vec::new() };
        while let Some(directory) = pending.pop() {
            let mut listing = client.list_all(&directory);
            loop {
                let entry = match listing.next().await {
                    Ok(Some(entry)) => entry,
                    Ok(None) => break,
                    Err(error) => {
                        changes.complain(&directory, error)?;
                        break;
                    }
                };
                let below = path::join(&directory, &entry.name);
                if entry.attributes.directory {
                    pending.push(below.clone());
                }
                changes.start(below.clone(), change(client.clone(), below, entry.attributes)).await?;
            }
        }
    }
    while !changes.running.is_empty() {
        changes.finish_one().await?;
    }
    Ok(if changes.failed { Exit::Failed } else { Exit::Done })
}
