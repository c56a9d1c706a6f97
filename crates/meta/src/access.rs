//! Who may ask what: each request that names a file or directory is judged here, for whatever door it came through, in the step that answers it.
//! The rules are those of `base::permission`; this file says what a request needs.

use crate::format::InodeRecord;
use crate::key::Key;
use crate::path::Path;
use crate::request::{FileRef, NewInode, PutFile, Request, User};
use crate::state::State;
use base::acl::AclEntry;
use base::attributes::NewAttributes;
use base::error::{Error, ErrorKind, Result};
use base::id::{InodeId, SessionId};
use base::permission::{
    self, Denied, EXECUTE, READ, Rights, STICKY, SUPERUSERS_GROUP, WRITE, Wanted, Way, may, may_access, may_give,
    may_go,
};
use std::sync::Arc;

/// What decides who may do what with a file or directory, as it is remembered of directories.
#[derive(Debug, Default)]
pub struct InodeRights {
    directory: bool,
    /// Permission bits.
    pub mode: u32,
    owner: String,
    group: String,
    acl: Vec<AclEntry>,
}

impl InodeRights {
    /// As the rules know it.
    pub fn view(&self) -> Rights<'_> {
        let InodeRights { directory, mode, owner, group, acl } = self;
        Rights { directory: *directory, mode: *mode, owner, group, acl }
    }
}

/// Who asks, and what the session that asks is.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    /// Owner of what is made, and in which groups.
    pub user: Arc<User>,
    /// May do everything.
    pub superuser: bool,
    /// The session that asks.
    session: SessionId,
    /// It asks for somebody else, as a gateway does for its clients.
    asked_for: bool,
    /// The directory below which everything may go, as was judged in the steps before.
    pub judged: Option<InodeId>,
}

impl Asker {
    /// As the rules know it.
    pub fn user(&self) -> permission::User<'_> {
        permission::User { name: &self.user.name, groups: &self.user.groups, superuser: self.superuser }
    }
}

/// Rights on what a path names.
const READS: Wanted = Wanted { ancestor: 0, parent: 0, access: READ, owner: false };
const LISTS: Wanted = Wanted { access: READ | EXECUTE, ..READS };
const WRITES: Wanted = Wanted { access: WRITE, ..READS };
const OWNS: Wanted = Wanted { access: 0, owner: true, ..READS };
/// None but to go there.
const GOES: Wanted = Wanted { access: 0, ..READS };
/// To take a name out of its directory, and to put one into the deepest directory that is there.
const REMOVES: Wanted = Wanted { parent: WRITE, access: 0, ..READS };
const MAKES: Wanted = Wanted { ancestor: WRITE, access: 0, ..READS };

/// What is made under a name.
#[derive(Clone, Copy)]
enum Making {
    Directory,
    File,
    /// A file, over one that has the name.
    FileOver,
}

impl Making {
    fn file(overwrite: bool) -> Making {
        if overwrite { Making::FileOver } else { Making::File }
    }
}

impl State {
    /// Takes a session for the one that asks from now on; `user`: for whom, if it says so, which only a superuser's may. That takes rights
    /// away, and never gives any.
    pub fn asked_by(&mut self, session: SessionId, user: Option<User>) -> Result<()> {
        let own = self.sessions.user(session);
        // Whoever begins a session without a name is believed as one with any name is.
        let known = session == SessionId(0) || self.sessions.is_open(session);
        let superuser = known && own.name.is_empty() || self.is_superuser(&own);
        self.asker = Asker { user: own, superuser, session, asked_for: false, judged: None };
        let Some(user) = user else { return Ok(()) };
        if !superuser {
            return Err(self.unless_over(self.superuser_only()));
        }
        let superuser = self.is_superuser(&user);
        self.asker = Asker { user: Arc::new(user), superuser, session, asked_for: true, judged: None };
        Ok(())
    }

    fn is_superuser(&self, user: &User) -> bool {
        let named = !user.name.is_empty() && user.name == self.superuser;
        named || user.groups.iter().any(|group| group == SUPERUSERS_GROUP)
    }

    /// What is said to a session that may not: one that is over has nobody's rights, and is told that it is over.
    fn unless_over(&self, denied: Error) -> Error {
        match self.asker.session {
            SessionId(0) => denied,
            session => self.check_session(session).err().unwrap_or(denied),
        }
    }

    /// Refuses a request that its asker may not make.
    pub fn judge(&mut self, request: &Request) -> Result<()> {
        if self.asker.superuser {
            return Ok(());
        }
        self.permit_request(request).map_err(|error| match error.kind() {
            ErrorKind::Denied => self.unless_over(error),
            _ => error,
        })
    }

    fn permit_request(&mut self, request: &Request) -> Result<()> {
        match request {
            Request::Stat { path } | Request::GetPolicy { path } | Request::GetQuota { path } => {
                self.permit(path, GOES)
            }
            Request::Lookup { path, wanted, .. } => self.permit(path, *wanted),
            Request::List { path, .. } | Request::DiskUsage { path, .. } => self.permit_looking_in(path),
            Request::Locate { file: FileRef::Path(path), .. } | Request::GetXattrs { path, .. } => {
                self.permit(path, READS)
            }
            Request::Locate { file: FileRef::Inode(inode), .. } => self.permit_inode(*inode, READ),
            Request::PathOf { inode } => self.permit_inode(*inode, 0),
            Request::Mkdir { path, new, .. } => self.permit_making(path, Making::Directory, new),
            Request::Create { path, overwrite, new, .. } => self.permit_making(path, Making::file(*overwrite), new),
            Request::AppendOpen { file: FileRef::Path(path), .. } | Request::Truncate { path, .. } => {
                self.permit(path, WRITES)
            }
            Request::AppendOpen { file: FileRef::Inode(inode), .. } | Request::Fence { inode, .. } => {
                self.permit_inode(*inode, WRITE)
            }
            Request::Rename { from, to, removes, .. } => {
                self.permit_removing(from, *removes)?;
                self.permit(to, MAKES)
            }
            Request::Delete { path, recursive } => self.permit_removing(path, *recursive),
            Request::JudgeBelow { path, .. } => self.permit(path, REMOVES),
            Request::SetAttributes { path, new } => self.permit_setting(path, new),
            Request::SetXattr { path, name, .. } => self.permit_xattr(path, name),
            Request::SetPolicy { path, .. } => self.permit(path, WRITES),
            Request::SetQuota { .. } => Err(self.superuser_only()),
            Request::Concat { target, sources } => {
                self.permit(target, WRITES)?;
                sources.iter().try_for_each(|source| self.permit(source, Wanted { access: READ, ..REMOVES }))
            }
            // It names no path: what is done under a lease was judged when that was given. Files of `PutFiles` are judged one by one.
            _ => Ok(()),
        }
    }

    /// Refuses a small file or directory that its asker may not make.
    pub fn judge_put(&mut self, file: &PutFile) -> Result<()> {
        if self.asker.superuser {
            return Ok(());
        }
        // One that is there gets other bits and times.
        if file.directory && self.look_up(&file.path).is_ok_and(|found| found.is_some()) {
            return self.permit(&file.path, OWNS);
        }
        let making = if file.directory { Making::Directory } else { Making::file(file.overwrite) };
        self.permit_making(&file.path, making, &NewInode::with_mode(file.mode))
    }

    /// Whether the asker may read a file that it is shown: only then it is told where its bytes are.
    pub fn may_read(&self, record: &InodeRecord) -> bool {
        self.asker.superuser || may_access(self.asker.user(), &self.rights_of(record).view(), "", READ).is_ok()
    }

    /// Whether the asker sees an extended attribute of this name.
    pub fn sees_xattr(&self, name: &str) -> bool {
        self.asker.superuser || !name.starts_with("trusted.")
    }

    fn superuser_only(&self) -> Error {
        Denied::Superuser { user: self.asker.user.name.clone() }.into()
    }

    /// Refuses unless the asker has these rights at the end of the way to a path. What is missing on the way is found missing afterwards.
    fn permit(&mut self, path: &Path, wanted: Wanted) -> Result<()> {
        let (above, last) = self.way_to(path)?;
        self.permit_way(path, (&above, last.as_ref()), wanted)
    }

    fn permit_way(
        &self,
        path: &Path,
        (above, last): (&[Arc<InodeRights>], Option<&InodeRights>),
        wanted: Wanted,
    ) -> Result<()> {
        let above: Vec<Rights<'_>> = above.iter().map(|rights| rights.view()).collect();
        let text = path.to_string();
        let way = Way { path: &text, above: &above, last: last.map(InodeRights::view) };
        may_go(self.asker.user(), &way)?;
        Ok(may(self.asker.user(), &way, wanted)?)
    }

    /// Something is made under this name, or is there already: a directory, or a file that is replaced or in the way.
    fn permit_making(&mut self, path: &Path, making: Making, new: &NewInode) -> Result<()> {
        let (above, last) = self.way_to(path)?;
        let wanted = match (&last, making) {
            // A directory takes no place of anything: that something is there is said to whoever may go there.
            (Some(_), Making::Directory) => GOES,
            (Some(last), _) if last.directory => GOES,
            (Some(_), Making::FileOver) => Wanted { access: WRITE, ..MAKES },
            _ => MAKES,
        };
        self.permit_way(path, (&above, last.as_ref()), wanted)?;
        Ok(may_give(self.asker.user(), new.owner.as_deref(), new.group.as_deref())?)
    }

    /// Refuses somebody who may not list this.
    pub fn judge_looking_in(&mut self, path: &Path) -> Result<()> {
        if self.asker.superuser { Ok(()) } else { self.permit_looking_in(path) }
    }

    /// What is in a directory is shown, or counted.
    fn permit_looking_in(&mut self, path: &Path) -> Result<()> {
        let (above, last) = self.way_to(path)?;
        let wanted = if last.as_ref().is_some_and(|last| last.directory) { LISTS } else { GOES };
        self.permit_way(path, (&above, last.as_ref()), wanted)
    }

    /// A name goes; `whole`: with everything below it, which is judged before and step by step (`JudgeBelow`).
    fn permit_removing(&mut self, path: &Path, whole: bool) -> Result<()> {
        self.permit(path, REMOVES)?;
        if !whole {
            return Ok(());
        }
        match self.look_up(path)? {
            Some(found) if self.asker.judged == Some(found.inode) => Ok(()),
            Some(found) if found.record.directory && self.has_names(found.inode)? => {
                Err(Denied::Below { path: path.to_string() }.into())
            }
            _ => Ok(()),
        }
    }

    fn permit_setting(&mut self, path: &Path, new: &NewAttributes) -> Result<()> {
        let NewAttributes { mode, owner, group, acl, modified_ms, accessed_ms, note, copies } = new;
        let owned = mode.is_some() || owner.is_some() || group.is_some() || acl.is_some();
        let written = modified_ms.is_some() || accessed_ms.is_some() || note.is_some() || copies.is_some();
        let (above, last) = self.way_to(path)?;
        // Owners could give themselves the bit to write, so a read-only copy gets its times without. HDFS, whose clients are asked for, wants it.
        let mine = |last: &InodeRights| !self.asker.asked_for && last.owner == self.asker.user.name;
        let needs_write = written && !owned && !last.as_ref().is_some_and(mine);
        let wanted = Wanted { owner: owned, access: if needs_write { WRITE } else { 0 }, ..GOES };
        self.permit_way(path, (&above, last.as_ref()), wanted)?;
        if last.is_some() {
            may_give(self.asker.user(), owner.as_deref(), group.as_deref())?;
        }
        Ok(())
    }

    fn permit_xattr(&mut self, path: &Path, name: &str) -> Result<()> {
        let (above, last) = self.way_to(path)?;
        // In a directory like /shared everybody may write, but only its owner says things about it.
        let sticky = last.as_ref().is_some_and(|last| last.directory && last.mode & STICKY != 0);
        let wanted = match name.split_once('.') {
            Some(("user", _)) if sticky => OWNS,
            Some(("user", _)) => WRITES,
            // Who may not read a file may be a superuser, too, as everybody may say who comes there.
            Some(("security", "hdfs.unreadable.by.superuser")) => GOES,
            _ => return Err(self.superuser_only()),
        };
        self.permit_way(path, (&above, last.as_ref()), wanted)
    }

    /// Refuses unless the asker has these rights on a file by its number, and may go where it is. Not of one that it writes itself.
    fn permit_inode(&mut self, inode: InodeId, access: u32) -> Result<()> {
        let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { return Ok(()) };
        if record.writer.as_ref().is_some_and(|writer| writer.session == self.asker.session.to_bytes()) {
            return Ok(());
        }
        let path = self.path_of(inode)?.unwrap_or_default();
        // To what is being taken apart no way leads, nor to a tree that was moved below the deepest path: then the file alone decides.
        match Path::parse(&path) {
            Ok(path) => self.permit(&path, Wanted { access, ..GOES }),
            Err(_) => Ok(may_access(self.asker.user(), &self.rights_of(&record).view(), &path, access)?),
        }
    }

    /// Refuses unless the asker may list a directory that it comes to while it counts.
    pub fn permit_listing(&self, inode: InodeId) -> Result<()> {
        if self.asker.superuser {
            return Ok(());
        }
        let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { return Ok(()) };
        let rights = self.rights_of(&record);
        if may_access(self.asker.user(), &rights.view(), "", READ | EXECUTE).is_ok() {
            return Ok(());
        }
        let path = self.shown(inode)?;
        Ok(may_access(self.asker.user(), &rights.view(), &path, READ | EXECUTE)?)
    }

    /// What is on the way to a path, as far as it is there, and what it names. A file on the way ends it.
    fn way_to(&mut self, path: &Path) -> Result<(Vec<Arc<InodeRights>>, Option<InodeRights>)> {
        let mut above = Vec::new();
        let Some((parent, _)) = path.split() else {
            return Ok((above, self.look_up(path)?.map(|found| self.rights_of(&found.record))));
        };
        let ends = parent.match_indices('/').map(|(at, _)| at).chain([parent.len()]);
        for end in ends {
            match self.directory(&parent[..end]) {
                Ok(directory) => above.push(directory.rights),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok((above, None)),
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    above.push(Arc::default());
                    return Ok((above, None));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((above, self.look_up(path)?.map(|found| self.rights_of(&found.record))))
    }

    /// What of a record decides who may do what.
    pub fn rights_of(&self, record: &InodeRecord) -> InodeRights {
        let InodeRecord { directory, mode, ref owner, ref group, .. } = *record;
        InodeRights {
            directory,
            mode,
            owner: owner.clone().unwrap_or_else(|| self.superuser.clone()),
            group: group.clone().unwrap_or_else(|| SUPERUSERS_GROUP.to_string()),
            acl: record.acl(),
        }
    }
}
