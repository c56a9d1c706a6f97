//! Opening files for writing: create and append.

use super::blocks;
use super::elsewhere::{appended_elsewhere, created_elsewhere, held_by};
use super::leases::{Wish, may_take, take_back};
use super::located::block_at;
use super::open::{OpenFile, Opener, reserve_block};
use crate::caller::Caller;
use crate::gateway::{Gateway, REPLICATION};
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::files::{Append, AppendAnswer, CREATE, Create, CreateAnswer, LAZY_PERSIST, NEW_BLOCK, OVERWRITE};
use crate::message::hdfs::FileStatus;
use crate::names::{self, Looks, Purpose, ResolvedPath, Written};
use crate::refusal::{ALREADY_BEING_CREATED, FILE_EXISTS, FILE_NOT_FOUND, ILLEGAL_ARGUMENT, RETRIABLE, Refusal};
use crate::rpc::budget::Share;
use base::env::Clock;
use base::error::ErrorKind;
use base::limit::HOLDER_MAX;
use base::permission::{WRITE, Wanted};
use client::{Attributes, CreateOptions, FileWriter, Looked, Tries};
use std::future::Future;
use std::sync::Arc;

/// How a file was opened.
enum Made {
    /// It is open here.
    Here(Arc<OpenFile>),
    /// The call was answered before, through another gateway: with the file of this number.
    Before(u64),
}

/// Why a file was not opened.
enum Unmade {
    /// No device has room for its first bytes, in HDFS's words. Nothing was done.
    NoRoom(Refusal),
    /// Something else.
    Refused(Refusal),
}

impl<R: Into<Refusal>> From<R> for Unmade {
    fn from(refusal: R) -> Unmade {
        Unmade::Refused(refusal.into())
    }
}

/// Opens a file for writing, as soon as there is room: what was deleted comes back by and by, so no room now may be some in a moment. Between
/// two tries nothing is held but the call's memory: neither the path, which may be another's meanwhile, nor a client that is gone.
async fn when_there_is_room<F: Future<Output = Result<Made, Unmade>>>(
    clock: &dyn Clock,
    share: &Share,
    open: impl Fn() -> F,
) -> Result<Made, Refusal> {
    let mut tries = Tries::default();
    loop {
        let refusal = match open().await {
            Err(Unmade::NoRoom(refusal)) => refusal,
            Err(Unmade::Refused(refusal)) => return Err(refusal),
            Ok(made) => return Ok(made),
        };
        share.set_changes(false);
        let goes_on = share.stand(tries.goes_on(clock)).await;
        share.set_changes(true);
        // Who has to give up because his memory is wanted is told of what he waited for.
        if !goes_on.unwrap_or(false) {
            return Err(refusal);
        }
    }
}

/// Makes a file and opens it. If no device has room it waits for some.
pub async fn create(gateway: &Arc<Gateway>, caller: &Caller, ask: Create) -> Result<CreateAnswer, Refusal> {
    match when_there_is_room(&*gateway.clock, &caller.share, || make(gateway, caller, &ask)).await? {
        Made::Here(file) => Ok(created(gateway, &file, &HdfsAttributes::read(&file.attributes.note))),
        Made::Before(inode) => created_elsewhere(gateway, caller, &ask, inode).await,
    }
}

async fn make(gateway: &Arc<Gateway>, caller: &Caller, ask: &Create) -> Result<Made, Unmade> {
    check_holder(&ask.holder)?;
    check_block_size(gateway, ask.block_size)?;
    let machine = caller.machine();
    let _alone = gateway.files.opening(&ask.path).await;
    names::check_replication(ask.replication, &ask.path)?;
    check_room(gateway, caller, &ask.path)?;
    {
        let _opening = gateway.files.openings.begin();
        if let Some((writer, path, note)) = create_unseen(gateway, caller, ask).await? {
            return Ok(made(gateway, writer, opener(caller, &ask.holder), &path, &note));
        }
    }
    let mut looks = Looks::default();
    loop {
        let (resolved, note) = to_create(gateway, caller, ask).await?;
        let path = resolved.path.as_str();
        let overwrite = ask.flags & OVERWRITE != 0;
        let options = CreateOptions { overwrite, ..options(ask, &note) };
        // What is replaced is what was seen.
        let seen = Looked { seen: vec![resolved.seen()], ..Looked::default() };
        let store = caller.judged(&gateway.client).relying_on(seen);
        let opening = gateway.files.openings.begin();
        let writer = match store.create(path, options).await {
            Ok(writer) => writer,
            Err(error) if error.kind() == ErrorKind::Exists => return Err(exists(path, machine).into()),
            Err(error) if error.kind() == ErrorKind::Full => return Err(Unmade::NoRoom(no_room(path))),
            Err(error) => {
                looks.again(error)?;
                continue;
            }
        };
        let replaced = resolved.last().map(|replaced| replaced.inode).filter(|replaced| *replaced != writer.inode());
        let file = made(gateway, writer, opener(caller, &ask.holder), path, &note);
        // What was replaced may have a write under way, on a device that is away: nobody else waits for that.
        drop(opening);
        if let Some(replaced) = replaced {
            end(gateway, replaced).await;
        }
        return Ok(file);
    }
}

/// A file that the store opened is open here from now on, unless its answer was one to another gateway.
fn made(gateway: &Gateway, writer: FileWriter, opener: Opener<'_>, path: &str, note: &HdfsAttributes) -> Made {
    match writer.is_lost() {
        true => Made::Before(writer.inode()),
        false => Made::Here(opened(gateway, writer, opener, path, note)),
    }
}

/// The way to where a file is to be made after a look at what has its name, and what is kept with it.
async fn to_create(
    gateway: &Gateway,
    caller: &Caller,
    ask: &Create,
) -> Result<(ResolvedPath, HdfsAttributes), Refusal> {
    let machine = caller.machine();
    let wanted = Wanted { ancestor: WRITE, ..Wanted::default() };
    let resolved = ResolvedPath::look(gateway, caller, &ask.path, Purpose::Create, wanted).await?;
    let path = resolved.path.as_str();
    match resolved.last() {
        Some(existing) if existing.directory => {
            return Err(Refusal::new(FILE_EXISTS, format!("{path} already exists as a directory")));
        }
        Some(_) if ask.flags & OVERWRITE != 0 => (),
        Some(old) => {
            may_take(gateway, old, path, &ask.holder, machine, Wish::Create).await?;
            return Err(exists(path, machine));
        }
        None => {
            if !ask.parents {
                names::check_parent(&resolved)?;
            }
            if ask.flags & CREATE == 0 {
                let text = format!("Can't overwrite non-existent {path} for client {machine}");
                return Err(Refusal::not_found(text));
            }
        }
    }
    let note = note_of(ask)?;
    Ok((resolved, note))
}

/// What is answered to who made this file.
pub fn created(gateway: &Gateway, file: &OpenFile, note: &HdfsAttributes) -> CreateAnswer {
    CreateAnswer { status: Some(status(gateway, &file.attributes, note)) }
}

/// Makes a file without a look at what has its name, if nothing has. `None`: nothing was done, look.
async fn create_unseen(
    gateway: &Gateway,
    caller: &Caller,
    ask: &Create,
) -> Result<Option<(FileWriter, String, HdfsAttributes)>, Unmade> {
    if ask.flags & CREATE == 0 {
        return Ok(None);
    }
    let path = Written::read(gateway, caller, &ask.path, Purpose::Create).await?.path;
    // Whatever speaks against a label is said after what has the name was looked at.
    let Ok(note) = note_of(ask) else { return Ok(None) };
    match caller.judged(&gateway.client).create(&path, options(ask, &note)).await {
        Ok(writer) => Ok(Some((writer, path, note))),
        Err(error) if names::is_refused(&error) => Ok(None),
        Err(error) if error.kind() == ErrorKind::Full => Err(Unmade::NoRoom(no_room(&path))),
        Err(error) => Err(error.into()),
    }
}

/// What is kept with a new file.
fn note_of(ask: &Create) -> Result<HdfsAttributes, Refusal> {
    let erasure_coding = ask.erasure_coding.clone().unwrap_or_default();
    if !erasure_coding.is_empty() {
        names::check_coding_policy(&erasure_coding)?;
    }
    let storage_policy = match ask.storage_policy.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => names::storage_policy_named(name)?,
        None if ask.flags & LAZY_PERSIST != 0 => names::LAZY_PERSIST,
        None => 0,
    };
    let (block_size, replication) = (ask.block_size, ask.replication);
    Ok(HdfsAttributes { block_size, replication, erasure_coding, storage_policy, ..HdfsAttributes::default() })
}

/// How a new file is made that may not replace another.
fn options(ask: &Create, note: &HdfsAttributes) -> CreateOptions {
    CreateOptions {
        parents: ask.parents,
        note: prost::Message::encode_to_vec(note),
        copies: note.replication(),
        holder: held_by(&ask.holder),
        ..names::file_options((ask.masked, ask.unmasked))
    }
}

/// Opens a file at its end. If no device has room it waits for some.
pub async fn append(gateway: &Arc<Gateway>, caller: &Caller, ask: Append) -> Result<AppendAnswer, Refusal> {
    match when_there_is_room(&*gateway.clock, &caller.share, || open_end(gateway, caller, &ask)).await? {
        Made::Here(file) => appended(gateway, &file, ask.flags).await,
        Made::Before(inode) => appended_elsewhere(gateway, caller, &ask, inode).await,
    }
}

async fn open_end(gateway: &Arc<Gateway>, caller: &Caller, ask: &Append) -> Result<Made, Unmade> {
    check_holder(&ask.holder)?;
    let machine = caller.machine();
    let _alone = gateway.files.opening(&ask.path).await;
    check_room(gateway, caller, &ask.path)?;
    let mut looks = Looks::default();
    loop {
        let found = names::way_to_file(gateway, caller, &ask.path, WRITE).await;
        let resolved = found.map_err(|refusal| not_appended(refusal, &ask.path, machine))?;
        let (path, old) = (resolved.path.as_str(), resolved.file()?);
        if HdfsAttributes::read(&old.note).storage_policy == names::LAZY_PERSIST {
            return Err(Refusal::unsupported(format!("Cannot append to lazy persist file {path}")).into());
        }
        may_take(gateway, old, path, &ask.holder, machine, Wish::Append).await?;
        let store = caller.store(&gateway.client).relying_on(resolved.looked());
        let _opening = gateway.files.openings.begin();
        match store.append_as(path, &held_by(&ask.holder), None).await {
            Ok(writer) => {
                let note = HdfsAttributes::read(&writer.attributes().note);
                return Ok(made(gateway, writer, opener(caller, &ask.holder), path, &note));
            }
            Err(error) if error.kind() == ErrorKind::Busy && gateway.client.stat_inode(old.inode).await?.open => {
                let why = Wish::Append.refused(path, &ask.holder, machine, "somebody else just opened it");
                return Err(Refusal::new(ALREADY_BEING_CREATED, why).into());
            }
            Err(error) if error.kind() == ErrorKind::Full => return Err(Unmade::NoRoom(no_room(path))),
            Err(error) => looks.again(error)?,
        }
    }
}

/// What is answered to who opened this file at its end.
pub async fn appended(gateway: &Gateway, file: &Arc<OpenFile>, flags: Option<u32>) -> Result<AppendAnswer, Refusal> {
    let mut status = status(gateway, &file.attributes, &HdfsAttributes::read(&file.attributes.note));
    let mut state = file.state.lock().await;
    let length = state.position();
    status.length = length;
    let filled = length % file.block_size;
    // A block that is full is not shown: clients take it for one with room.
    if filled == 0 || flags.unwrap_or(0) & NEW_BLOCK != 0 {
        return Ok(AppendAnswer { block: None, status: Some(status) });
    }
    let base = length - filled;
    let begun = match reserve_block(&state, base, file.block_size).await {
        Ok(()) => state.begin_block(file, base).await,
        Err(error) => Err(error),
    };
    let block = match begun {
        Ok(block) => block,
        Err(error) => {
            drop(state);
            take_back(gateway, file).await?;
            return Err(error.into());
        }
    };
    state.present = Some(block);
    let block = block_at(gateway, block, state.stamp, filled);
    Ok(AppendAnswer { block: Some(block), status: Some(status) })
}

/// Who opens a file by this call.
pub fn opener<'a>(caller: &'a Caller, holder: &'a str) -> Opener<'a> {
    Opener { holder, user: &caller.user, machine: caller.machine() }
}

/// Refuses names of holders that nobody has: they are kept with each open file.
pub fn check_holder(holder: &str) -> Result<(), Refusal> {
    if holder.len() <= HOLDER_MAX {
        return Ok(());
    }
    let text = format!("the client's name has {} bytes, {HOLDER_MAX} are the most; nothing was done", holder.len());
    Err(Refusal::new(ILLEGAL_ARGUMENT, text))
}

/// Refuses blocks that are smaller than the setting allows, in HDFS's words.
fn check_block_size(gateway: &Gateway, bytes: u64) -> Result<(), Refusal> {
    let least = gateway.min_block_size;
    if bytes >= least {
        return Ok(());
    }
    Err(Refusal::io(format!(
        "Specified block size is less than configured minimum value (dfs.namenode.fs-limits.min-block-size, which is          hdfs_min_block_size here): {bytes} < {least}"
    )))
}

/// The file is open from now on.
pub fn opened(
    gateway: &Gateway,
    writer: FileWriter,
    opener: Opener<'_>,
    path: &str,
    note: &HdfsAttributes,
) -> Arc<OpenFile> {
    let file = Arc::new(OpenFile::new(writer, opener, path, note.block_size()));
    gateway.files.open.insert(file.clone(), gateway.clock.now());
    file
}

/// Refuses while as many files are open as may be: before anything is made that would have to be ended again.
fn check_room(gateway: &Gateway, caller: &Caller, path: &str) -> Result<(), Refusal> {
    if gateway.files.open.has_room(&caller.user, caller.superuser) {
        return Ok(());
    }
    let text = format!("too many files are open for writing; {path} was not opened; close some, or try again later");
    Err(Refusal::new(RETRIABLE, text))
}

/// What a writer is told of its file. It has as many copies as clients are shown places.
fn status(gateway: &Gateway, attributes: &Attributes, note: &HdfsAttributes) -> FileStatus {
    let status = names::file_status("", attributes, note, &gateway.superuser);
    // Clients leave out checksums for files that are to be lost with the memory; none are here.
    let storage_policy = status.storage_policy.filter(|policy| *policy != names::LAZY_PERSIST).or(Some(0));
    FileStatus { replication: Some(REPLICATION), storage_policy, ..status }
}

/// A file that was replaced is gone for whoever wrote it.
async fn end(gateway: &Gateway, inode: u64) {
    if let Some(file) = gateway.files.open.get(inode) {
        drop(file.take_away().await);
        gateway.files.open.remove(inode);
    }
}

/// A refusal to find a file, in the words of an append.
fn not_appended(refusal: Refusal, path: &str, machine: &str) -> Refusal {
    if refusal.class != FILE_NOT_FOUND {
        return refusal;
    }
    if refusal.text.starts_with("Path is not a file") {
        let text = format!("Cannot append to directory {path}; already exists as a directory.");
        return Refusal::new(FILE_EXISTS, text);
    }
    Refusal::not_found(format!("Failed to append to non-existent file {path} for client {machine}"))
}

fn exists(path: &str, machine: &str) -> Refusal {
    Refusal::new(FILE_EXISTS, format!("{path} for client {machine} already exists"))
}

/// What clients of HDFS see when it is full.
pub fn no_room(path: &str) -> Refusal {
    Refusal::io(format!(
        "File {path} could only be written to 0 of the 1 minReplication nodes. There are 1 datanode(s) running and 0 \
         node(s) are excluded in this operation. (The store is full; what was acknowledged is safe.)"
    ))
}

/// The stamp of a file that nobody writes.
pub fn stamp_of(attributes: &Attributes) -> u64 {
    blocks::first_stamp(attributes.generation)
}

#[cfg(test)]
mod tests {
    use super::{Made, Unmade, no_room, when_there_is_room};
    use crate::rpc::budget::Share;
    use base::limit::FULL_WAIT;
    use sim::clock::SimClock;
    use std::cell::Cell;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};
    use std::time::Duration;

    /// Files are opened once there is room. Until then their calls change nothing, so that they are given up when their clients are gone; when
    /// there was none for as long as a put waits they are refused with what they waited for. Other refusals are told at once.
    #[tokio::test(start_paused = true)]
    async fn waits_for_room() {
        let (clock, share, tries, room) = (SimClock::new(), Share::default(), Cell::new(0), Cell::new(false));
        share.set_changes(true);
        let open = || async {
            assert!(share.changes(), "it may make a file");
            tries.set(tries.get() + 1);
            if room.get() { Ok(Made::Before(7)) } else { Err(Unmade::NoRoom(no_room("/a"))) }
        };
        let mut opening = pin!(when_there_is_room(&clock, &share, open));
        let mut context = Context::from_waker(Waker::noop());
        assert!(opening.as_mut().poll(&mut context).is_pending() && !share.changes());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(opening.as_mut().poll(&mut context).is_pending() && !share.changes() && tries.get() > 1);
        room.set(true);
        assert!(matches!(opening.await, Ok(Made::Before(7))) && share.changes());
        room.set(false);
        let mut opening = pin!(when_there_is_room(&clock, &share, open));
        assert!(opening.as_mut().poll(&mut context).is_pending());
        clock.advance(FULL_WAIT);
        let refused = opening.await.map(drop).expect_err("there was none for too long");
        assert!(refused.text.contains("The store is full"), "{refused:?}");
        let refused = when_there_is_room(&clock, &share, || async { Err(no_room("/b").into()) }).await;
        assert!(refused.is_err_and(|refused| refused.text.contains("/b")));
    }
}
