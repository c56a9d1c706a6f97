//! Questions about names, devices and nodes: one call each.

use crate::client::Client;
use base::error::{Error, ErrorKind, Result};
use base::limit::{EMPTY_DIRECTORIES_MAX, LISTED_TOGETHER_MAX, LONG_QUESTION, SHORT_LOCATED_PAGE, SHORT_PAGE};
use base::permission::{Denied, Wanted};
use base::policy::{Class, Compression, Policy};
use net::message::file::{self, Attributes, Entry, ListAnswer, Looked};
use net::message::session::{NodeStatus, NodeStatusAnswer};

/// How often a tree is walked to be removed, with nothing changed meanwhile; after that others may change directories.
const WALKS_MAX: u32 = 4;

/// How often it is walked at all.
const LOOKS_MAX: u32 = 64;

/// What lies under a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Files.
    pub files: u64,
    /// Directories, the path itself included.
    pub directories: u64,
    /// Bytes in those files.
    pub bytes: u64,
}

/// How a directory is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Make what is missing above, and do not mind if it exists.
    pub parents: bool,
    /// Permission bits; none means 0755.
    pub mode: Option<u32>,
    /// Who owns it and what is made above; none: the client's user.
    pub owner: Option<String>,
    /// Which group of people does; none: the client's.
    pub group: Option<String>,
    /// What a gateway keeps with it, at most `base::limit::NOTE_MAX` bytes.
    pub note: Vec<u8>,
    /// Permission bits of what is made above; none means 0755.
    pub above_mode: Option<u32>,
    /// The bits before a umask took some of them, which count instead where the directory hands down an access control list; none: `mode`.
    pub open: Option<u32>,
    /// It belongs to the group of its directory, and so does what is made above.
    pub group_above: bool,
}

/// What lies on the way to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The attributes of the root, then of each name of the path as far as there is something. Fewer than the path has names: the
    /// rest is missing, or the last that was found is a file.
    pub found: Vec<Attributes>,
    /// The version of the directories: another one as soon as one is renamed, goes, or has other rights. 0: the node has none.
    pub version: u64,
    /// What is above the path was left out, because the asker knows it.
    pub without_above: bool,
}

/// A directory's entries one after another, asked for in pages.
pub struct Listing {
    client: Client,
    path: String,
    located: bool,
    /// How many names to ask for first; 0: a whole page.
    first: usize,
    page: std::vec::IntoIter<Entry>,
    after: String,
    more: bool,
}

impl Listing {
    /// The next entry in the order of the names' bytes; none at the end.
    pub async fn next(&mut self) -> Result<Option<Entry>> {
        loop {
            if let Some(entry) = self.page.next() {
                return Ok(Some(entry));
            }
            if !self.more {
                return Ok(None);
            }
            let (path, after) = (&self.path, &self.after);
            // A small directory comes whole with a short page, and nobody waits for a turn. One that does not is asked from the start again: what a
            // whole page has is how it was at one moment.
            let first = std::mem::take(&mut self.first);
            let mut answer = self.client.page(path, after, first as u32, self.located).await?;
            if first > 0 && answer.more {
                answer = self.client.page(path, after, 0, self.located).await?;
            }
            if let Some(last) = answer.entries.last() {
                // A node that answers the same page again must not keep anybody here for ever.
                if last.name <= self.after {
                    return Err(out_of_order(&self.path));
                }
                self.after = last.name.clone();
            }
            self.more = answer.more && !answer.entries.is_empty();
            self.page = answer.entries.into_iter();
        }
    }
}

fn out_of_order(path: &str) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!(
            "the node listed {path} out of order; nothing was changed; check that client and node have one version"
        ),
    )
}

impl Client {
    /// The attributes of a path. `NotFound` if there is nothing.
    pub async fn stat(&self, path: &str) -> Result<Attributes> {
        self.ask(&file::Stat { path: path.to_string() }).await
    }

    /// The attributes of the file of this number. `NotFound` if it is gone.
    pub async fn stat_inode(&self, inode: u64) -> Result<Attributes> {
        let ask = file::Locate { path: String::new(), inode, offset: 0, length: 0 };
        self.ask(&ask).await.map(|answer| answer.attributes)
    }

    /// What lies on the way to a path. `known`: the version of the directories above it, if all of them were looked up before;
    /// while it is the present one only what the path names is answered. 0: they were not.
    pub async fn lookup(&self, path: &str, known: u64) -> Result<Found> {
        self.lookup_wanting(path, known, Wanted::default()).await
    }

    /// The same for somebody who must be allowed to do this there: else `Denied`.
    pub async fn lookup_wanting(&self, path: &str, known: u64, wanted: Wanted) -> Result<Found> {
        let Wanted { ancestor, parent, access, owner } = wanted;
        let wanted = Some(file::Wanted { ancestor, parent, access, owner });
        let answer = self.ask(&file::Lookup { path: path.to_string(), known, wanted, user: self.user() }).await?;
        let file::LookupAnswer { found, version, without_above } = answer;
        Ok(Found { found, version, without_above })
    }

    /// The path that a file or directory has now. `NotFound` if it is gone.
    pub async fn path_of(&self, inode: u64) -> Result<String> {
        self.ask(&file::PathOf { inode }).await.map(|answer| answer.path)
    }

    /// A page of a directory: names after `after` (empty: from the start), at most `limit` of them
    /// (0: as many as a page holds).
    pub async fn list(&self, path: &str, after: &str, limit: u32) -> Result<ListAnswer> {
        self.page(path, after, limit, false).await
    }

    /// The same, with the places of the bytes of closed files that have few extents; fewer names are a page then. A node of an older version
    /// says no places.
    pub async fn list_located(&self, path: &str, after: &str, limit: u32) -> Result<ListAnswer> {
        self.page(path, after, limit, true).await
    }

    async fn page(&self, path: &str, after: &str, limit: u32, extents: bool) -> Result<ListAnswer> {
        let (path, after, user) = (path.to_string(), after.to_string(), self.user());
        self.ask(&file::List { path, after, limit, extents, also: Vec::new(), user }).await
    }

    /// The first of these directories, each whole and with places as `list_located` has them: as many as come with one short page. None if the
    /// first one has more names than that. An error is the first one's; whatever is wrong with another one, that one is not among them.
    pub async fn list_together_located(&self, paths: &[String]) -> Result<Vec<Vec<Entry>>> {
        let Some((path, also)) = paths.split_first() else { return Ok(Vec::new()) };
        // No more than what counts as a short question, with its other fields.
        let mut bytes = path.len();
        let few = also.iter().take(LISTED_TOGETHER_MAX - 1).take_while(|path| {
            bytes += path.len();
            bytes <= LONG_QUESTION / 2
        });
        let (path, also) = (path.clone(), few.cloned().collect());
        let limit = SHORT_LOCATED_PAGE as u32;
        let ask = file::List { path, limit, extents: true, also, user: self.user(), ..file::List::default() };
        let file::ListAnswer { entries, more, others } = self.ask(&ask).await?;
        let whole = std::iter::once(entries).chain(others.into_iter().map(|other| other.entries));
        Ok(if more { Vec::new() } else { whole.take(paths.len()).collect() })
    }

    /// All of a directory, page by page.
    pub fn list_all(&self, path: &str) -> Listing {
        self.listing(path, false, SHORT_PAGE)
    }

    /// The same, with places as `list_located` has them.
    pub fn list_all_located(&self, path: &str) -> Listing {
        self.listing(path, true, SHORT_LOCATED_PAGE)
    }

    /// The same of a directory that has more than a short page, as `list_together_located` told.
    pub fn list_large_located(&self, path: &str) -> Listing {
        self.listing(path, true, 0)
    }

    fn listing(&self, path: &str, located: bool, first: usize) -> Listing {
        Listing {
            client: self.clone(),
            path: path.to_string(),
            located,
            first,
            page: Vec::new().into_iter(),
            after: String::new(),
            more: true,
        }
    }

    /// Makes a directory; with `parents` also what is missing above, and it may exist.
    pub async fn make_directory(&self, path: &str, parents: bool) -> Result<()> {
        self.make_directory_with(path, DirectoryOptions { parents, ..DirectoryOptions::default() }).await
    }

    /// Makes a directory that has all this from the start.
    pub async fn make_directory_with(&self, path: &str, options: DirectoryOptions) -> Result<()> {
        let DirectoryOptions { parents, mode, owner, group, note, above_mode, open, group_above } = options;
        let path = path.to_string();
        let user = self.user();
        let ask = file::MakeDirectory {
            path,
            parents,
            mode,
            owner,
            group,
            note,
            above_mode,
            user,
            open,
            group_above,
            above_alike: false,
        };
        self.ask(&ask).await.map(|_| ())
    }

    /// Moves a file or directory, atomically; with `replace` over a file or an empty directory.
    pub async fn rename(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        self.rename_as(from, to, replace, false).await
    }

    /// The same into somebody's trash, which is as good as removing it: `Denied` of a tree below which the user's rights have to be judged before
    /// (`judge_below`).
    pub async fn rename_away(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        self.rename_as(from, to, replace, true).await
    }

    async fn rename_as(&self, from: &str, to: &str, replace: bool, removes: bool) -> Result<()> {
        let (from_path, to) = (from.to_string(), to.to_string());
        let (asked, looked, user) = (self.asked, self.looked(), self.user());
        let ask = file::Rename { from: from_path, to, replace, removes, asked, looked, user };
        self.ask_counted(from, &ask).await.map(|_| ())
    }

    /// Removes a file or directory; with `recursive` everything below too.
    pub async fn delete(&self, path: &str, recursive: bool) -> Result<()> {
        let is_unjudged = |error: &Error| matches!(Denied::read(error), Some(Denied::Below { .. }));
        for walks in 1.. {
            let client = match self.delete_judged(path, recursive).await {
                Err(error) if is_unjudged(&error) => {
                    let looked = self.judge_below(path).await?;
                    let directories = if walks < WALKS_MAX { looked.directories } else { 0 };
                    self.relying_on(Looked { directories, ..looked })
                }
                done => return done,
            };
            match client.delete_judged(path, recursive).await {
                // Something in it has changed, or it is another directory.
                Err(error) if (error.kind() == ErrorKind::Stale || is_unjudged(&error)) && walks < LOOKS_MAX => (),
                done => return done,
            }
        }
        unreachable!("the last walk ends it")
    }

    /// The same, but `Denied` of a tree below which the user's rights have to be judged before (`judge_below`).
    pub async fn delete_judged(&self, path: &str, recursive: bool) -> Result<()> {
        let path_text = path.to_string();
        let (asked, looked, user) = (self.asked, self.looked(), self.user());
        let ask = file::Delete { path: path_text, recursive, asked, looked, user };
        self.ask_counted(path, &ask).await.map(|_| ())
    }

    /// What somebody relies on who removes everything below a directory and may, however much that is; else `Denied`.
    pub async fn judge_below(&self, path: &str) -> Result<Looked> {
        let mut looked = Looked::default();
        let mut resume = Vec::new();
        loop {
            let (path_text, empty, user) = (path.to_string(), looked.empty.len() as u32, self.user());
            let ask = file::JudgeBelow { path: path_text, resume: resume.clone(), empty, user };
            let file::JudgeBelowAnswer { version, empty, next, top } = self.ask(&ask).await?;
            // What was seen first counts: what has changed since is told when it is relied on.
            if resume.is_empty() {
                (looked.directories, looked.below) = (version, top);
            }
            looked.empty.extend(empty);
            if next.is_empty() {
                return Ok(looked);
            }
            if next == resume || looked.empty.len() > EMPTY_DIRECTORIES_MAX {
                return Err(out_of_order(path));
            }
            resume = next;
        }
    }

    /// Counts what lies under a path, however much that is.
    pub async fn disk_usage(&self, path: &str) -> Result<Usage> {
        let mut usage = Usage::default();
        let mut resume = Vec::new();
        loop {
            let answer = self.ask(&file::DiskUsage { path: path.to_string(), resume: resume.clone() }).await?;
            usage.files = usage.files.saturating_add(answer.files);
            usage.directories = usage.directories.saturating_add(answer.directories);
            usage.bytes = usage.bytes.saturating_add(answer.bytes);
            if answer.next.is_empty() {
                return Ok(usage);
            }
            if answer.next == resume {
                return Err(out_of_order(path));
            }
            resume = answer.next;
        }
    }

    /// Sets the wishes for the bytes under a path.
    pub async fn set_policy(&self, path: &str, policy: Policy) -> Result<()> {
        let policy = file::Policy {
            tier: policy.tier.map_or(0, |class| class.code().saturating_add(1)),
            replicas: policy.replicas.unwrap_or(0),
            compression: policy.compression.map_or(0, |compression| compression.code().saturating_add(1)),
            least: policy.least.unwrap_or(0),
        };
        let compression = policy.compression;
        self.ask(&file::SetPolicy { path: path.to_string(), policy }).await?;
        // A node of an older version takes what it knows and leaves the rest out.
        if compression > 0 && self.ask(&file::GetPolicy { path: path.to_string() }).await?.compression != compression {
            let text = format!(
                "the node that keeps the metadata has a version that does not compress files; the other wishes for {path} are set; start a newer version there and set this one again"
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        Ok(())
    }

    /// The wishes that were set at a path itself, and those in force there, inherited ones included.
    pub async fn get_policy(&self, path: &str) -> Result<(Policy, Policy)> {
        let answer = self.ask(&file::GetPolicy { path: path.to_string() }).await?;
        let file::PolicyAnswer { tier, replicas, compression, own, least } = answer;
        let in_force = policy(path, &file::Policy { tier, replicas, compression, least })?;
        Ok((policy(path, &own.unwrap_or_default())?, in_force))
    }

    /// How the node is that this client talks to.
    pub async fn node_status(&self) -> Result<NodeStatusAnswer> {
        self.ask(&NodeStatus {}).await
    }
}

fn policy(path: &str, answer: &file::Policy) -> Result<Policy> {
    let tier = match answer.tier.checked_sub(1) {
        None => None,
        Some(code) => Some(Class::from_code(code).ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("{path} has a policy for a device class of number {code} that this program does not know; use the node's version"),
            )
        })?),
    };
    let compression = match answer.compression.checked_sub(1) {
        None => None,
        Some(code) => Some(Compression::from_code(code).ok_or_else(|| {
            let text = format!("{path} is to be compressed in a way of number {code} that this program does not know; use the node's version");
            Error::new(ErrorKind::Unsupported, text)
        })?),
    };
    let some = |copies: u32| (copies != 0).then_some(copies);
    Ok(Policy { tier, replicas: some(answer.replicas), least: some(answer.least), compression })
}
