//! A file that has its name only when it is whole: it is written under a temporary name beside it, and renamed when it is closed.

use crate::client::Client;
use crate::room::when_there_is_room;
use crate::writer::{CreateOptions, FileWriter};
use base::error::{Error, ErrorKind, Result};
use base::limit::PATH_MAX;

/// How temporary names begin; sixteen hex digits follow.
const TEMPORARY: &str = ".stormwell-put-";

/// A file under its temporary name. Dropped, it stays there: `finish` or `remove` ends it.
pub struct Unfinished {
    client: Client,
    path: String,
    temporary: String,
    overwrite: bool,
    /// Of the file; none as long as it is not known that it was made.
    inode: Option<u64>,
}

impl Client {
    /// Makes a file under a temporary name in the directory of `path`, to be written, closed and then given its name by `finish`.
    /// What has the name stays until then. `Exists` before anything is made if the name is a directory's, or a file's that
    /// `options` do not overwrite. If no device has room it waits for some.
    pub async fn create_beside(&self, path: &str, options: CreateOptions) -> Result<(Unfinished, FileWriter)> {
        match self.stat(path).await {
            Ok(found) if found.directory => {
                let text = format!("{path} is a directory; nothing was done; remove it, or choose another name");
                return Err(Error::new(ErrorKind::Exists, text));
            }
            Ok(_) if !options.overwrite => {
                return Err(Error::new(ErrorKind::Exists, format!("{path} exists already; nothing was done")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let directory = directory_of(path);
        let temporary = format!("{directory}/{TEMPORARY}{:016x}", self.session.random.next());
        if temporary.len() > PATH_MAX {
            let text = format!(
                "{path} is written under a temporary name beside it, which would have {} bytes, and {PATH_MAX} are the most; nothing was done; choose a shorter path",
                temporary.len()
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let overwrite = options.overwrite;
        let mut begun = Unfinished { client: self.clone(), path: path.to_string(), temporary, overwrite, inode: None };
        let options = CreateOptions { overwrite: false, ..options };
        let made = when_there_is_room(&*self.session.clock, || self.create(&begun.temporary, options.clone()));
        match made.await {
            Ok(writer) => {
                begun.inode = Some(writer.inode());
                Ok((begun, writer))
            }
            // It may have been made all the same.
            Err(error) if error.kind() == ErrorKind::Unreachable => Err(begun.give_up(error).await),
            Err(error) => Err(begun.named(error)),
        }
    }
}

impl Unfinished {
    /// The name that it has meanwhile.
    pub fn temporary(&self) -> &str {
        &self.temporary
    }

    /// The directory that it is in.
    pub fn directory(&self) -> &str {
        match directory_of(&self.path) {
            "" => "/",
            directory => directory,
        }
    }

    /// Gives it its name, once it is closed. `Exists` if somebody else has the name by now and it may not be replaced. If its directory
    /// has another name by now, it gets its own there, as a file that is open does.
    pub async fn finish(&self) -> Result<()> {
        match self.client.rename(&self.temporary, &self.path, self.overwrite).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let Some(now) = self.moved().await? else { return Err(error) };
                let name = self.path.rsplit_once('/').map_or(self.path.as_str(), |(_, name)| name);
                self.client.rename(&now, &format!("{}/{name}", directory_of(&now)), self.overwrite).await
            }
            ended => ended,
        }
    }

    /// Where it is, still under its temporary name, if its directory was moved.
    async fn moved(&self) -> Result<Option<String>> {
        let Some(inode) = self.inode else { return Ok(None) };
        match self.client.path_of(inode).await {
            Ok(now) => {
                let name = |path: &str| path.rsplit_once('/').map(|(_, name)| name.to_string());
                Ok((now != self.temporary && name(&now) == name(&self.temporary)).then_some(now))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes it. The error says what may be left.
    pub async fn remove(&self) -> Result<()> {
        let removed = match self.client.delete(&self.temporary, false).await {
            Err(error) if error.kind() == ErrorKind::NotFound => match self.moved().await {
                Ok(Some(now)) => self.client.delete(&now, false).await,
                looked => looked.map(|_| ()),
            },
            removed => removed.map(|_| ()),
        };
        match removed {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                let text = format!(
                    "what was written of {} may be left in the store, because it could not be removed ({}); remove {} by hand",
                    self.path,
                    error.text().split("; ").next().unwrap_or_default(),
                    self.temporary
                );
                Err(Error::new(error.kind(), text))
            }
            _ => Ok(()),
        }
    }

    /// Removes it because of this error, which is answered in words that name the file, and what may be left of it.
    pub(crate) async fn give_up(self, error: Error) -> Error {
        let error = self.named(error);
        match self.remove().await {
            Ok(()) => error,
            Err(left) => {
                let what = error.text().rsplit_once("; ").map_or(error.text(), |(what, _)| what);
                Error::new(error.kind(), format!("{what}; {}", left.text()))
            }
        }
    }

    /// People know the file by its own name.
    pub fn named(&self, error: Error) -> Error {
        let text = error.text().replace(&self.temporary, &self.path);
        let error = Error::new(error.kind(), text);
        if error.text().contains(&self.path) { error } else { error.during(format!("put {}", self.path)) }
    }
}

/// What is before the last slash.
fn directory_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}
