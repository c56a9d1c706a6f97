//! Between the words of the wire and those of the metadata store: every question and every answer, in both directions.

use crate::metadata::Translate;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, Generation, GroupId, InodeId, Owner};
use base::limit::{
    COMPOUND_FILES_MAX, CONCAT_FILES_MAX, ENTRY_MAX, FRAME_MESSAGE_MAX, GROUPS_MAX, HOLDERS_TOLD_MAX,
    LISTED_EXTENTS_BYTES, LISTED_TOGETHER_MAX, LOCATED, REFUSED_MAX,
};
use base::permission::Wanted;
use base::policy::{Class, Compression, Level, Policy};
use base::unit::WallTime;
use meta::request::{
    Asked, BagInfo, BagState, Began, DIRECTORY_MODE, Entry, Extent, FileRef, Limit, Located, NewGroup, NewInode, Open,
    PutFile, Refused, Seen, User,
};
use meta::{Path, Reply, Request};
use net::message::{Ask, Done, Failure, Id, bag, file, kind_name, quota, session};
use net::{Call, Payload, Responder};
use prost::Message;
use std::time::Duration;

/// Permission bits when a client names none.
const FILE_MODE: u32 = 0o644;

/// What a call asks of the metadata store, and what turns the store's answer into the call's.
pub fn request(call: &mut Call) -> Result<(Request, Translate)> {
    Ok(match call.kind {
        session::Renew::KIND => {
            let session::Renew { owner: name, group, groups, again } = call.ask()?;
            let first = Some(group).filter(|group| !group.is_empty());
            let groups = first.into_iter().chain(groups).take(GROUPS_MAX).collect();
            (if again { Request::Renew } else { Request::OpenSession { user: User { name, groups } } }, done)
        }
        file::Stat::KIND => (Request::Stat { path: path(&call.ask::<file::Stat>()?.path)? }, attributes),
        file::Lookup::KIND => (lookup(call.ask()?)?, found),
        file::JudgeBelow::KIND => (judge_below(call.ask()?)?, below),
        file::PathOf::KIND => (Request::PathOf { inode: InodeId(call.ask::<file::PathOf>()?.inode) }, path_of),
        file::List::KIND => (list(call.ask()?, call.respond.room())?, entries),
        file::MakeDirectory::KIND => (make_directory(call.ask()?)?, done),
        file::Create::KIND => (create(call.ask()?)?, opened),
        file::Append::KIND => (append(call.ask()?)?, opened),
        file::Answered::KIND => {
            let file::Answered { asked } = call.ask()?;
            (Request::Answered { asked: asked_of(asked) }, answered)
        }
        file::NextGroup::KIND => (next_group(call.ask()?), group),
        file::Close::KIND => (close(call.ask()?), attributes),
        file::PackGroup::KIND => (pack_group(call.ask()?)?, group),
        file::FinishPack::KIND => (Request::FinishPack { group: GroupId(call.ask::<file::FinishPack>()?.group) }, done),
        file::PutFiles::KIND => (put_files(call.ask()?)?, files),
        file::Locate::KIND => (locate(call.ask()?)?, located),
        file::Rename::KIND => (rename(call.ask()?)?, done),
        file::Delete::KIND => (delete(call.ask()?)?, done),
        file::SetAttributes::KIND => (set_attributes(call.ask()?)?, done),
        file::GetXattrs::KIND => {
            let ask: file::GetXattrs = call.ask()?;
            let name = (!ask.name.is_empty()).then_some(ask.name);
            (Request::GetXattrs { path: path(&ask.path)?, name }, xattrs)
        }
        file::SetXattr::KIND => {
            let ask: file::SetXattr = call.ask()?;
            let set = Request::SetXattr { path: path(&ask.path)?, name: ask.name, value: ask.value };
            (asked(ask.asked, seen(ask.looked, set)), done)
        }
        file::Truncate::KIND => {
            let ask: file::Truncate = call.ask()?;
            (seen(ask.looked, Request::Truncate { path: path(&ask.path)?, length: ask.length }), attributes)
        }
        file::Concat::KIND => {
            let ask: file::Concat = call.ask()?;
            at_most("files to be joined", ask.sources.len(), CONCAT_FILES_MAX)?;
            let sources = ask.sources.iter().map(|source| path(source)).collect::<Result<_>>()?;
            let concat = Request::Concat { target: path(&ask.target)?, sources };
            (asked(ask.asked, seen(ask.looked, concat)), attributes)
        }
        file::SetPolicy::KIND => {
            let ask: file::SetPolicy = call.ask()?;
            (Request::SetPolicy { path: path(&ask.path)?, policy: policy_from(&ask.policy)? }, done)
        }
        file::GetPolicy::KIND => (Request::GetPolicy { path: path(&call.ask::<file::GetPolicy>()?.path)? }, policy),
        quota::SetQuota::KIND => {
            let quota::SetQuota { path: text, names, bytes } = call.ask()?;
            (Request::SetQuota { path: path(&text)?, names: limit(names), bytes: limit(bytes) }, quota_found)
        }
        quota::GetQuota::KIND => (Request::GetQuota { path: path(&call.ask::<quota::GetQuota>()?.path)? }, quota_found),
        quota::Reserve::KIND => {
            let quota::Reserve { inode, generation, length } = call.ask()?;
            (Request::Reserve { inode: InodeId(inode), generation: Generation(generation), length }, done)
        }
        file::DiskUsage::KIND => {
            let ask: file::DiskUsage = call.ask()?;
            let resume = (!ask.resume.is_empty()).then_some(ask.resume);
            (Request::DiskUsage { path: path(&ask.path)?, resume }, disk_usage)
        }
        file::BeginBlock::KIND => {
            let file::BeginBlock { inode, generation, base, number } = call.ask()?;
            let (inode, generation) = (InodeId(inode), Generation(generation));
            (Request::BeginBlock { inode, generation, base, number }, done)
        }
        file::SyncLength::KIND => (sync_length(call.ask()?), done),
        file::Holders::KIND => {
            let file::Holders { seen, asked } = call.ask()?;
            at_most("holders", seen.len() + asked.len(), HOLDERS_TOLD_MAX)?;
            let seen = seen.into_iter().map(|holder| (holder.name, Duration::from_millis(holder.ago_ms)));
            (Request::Holders { seen: seen.collect(), asked }, silent)
        }
        other => {
            let name = kind_name(other).unwrap_or("this");
            return Err(Error::new(ErrorKind::Unsupported, format!("this node does not answer {name}")));
        }
    })
}

/// Refuses a question that names more of something than it may, before each of them takes memory of its own: what waits for the store is
/// then as large as `limit::call_memory` says.
fn at_most(what: &str, count: usize, most: usize) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    let text = format!(
        "{count} {what} are named in one question, {most} are the most; nothing was done; do it in several steps"
    );
    Err(Error::new(ErrorKind::Invalid, text))
}

/// A change that depends on what the asker has found at its paths, unless it has looked at nothing.
fn seen(looked: Option<file::Looked>, change: Request) -> Request {
    let Some(file::Looked { directories, seen, empty, below }) = looked else { return change };
    if directories == 0 && seen.is_empty() && empty.is_empty() && below == 0 {
        return change;
    }
    let seen = seen.into_iter().map(|file::Seen { inode, version }| {
        let inode = (inode != 0).then_some(InodeId(inode));
        Seen { inode, version }
    });
    let (seen, empty) = (seen.collect(), empty.into_iter().map(InodeId).collect());
    let below = (below != 0).then_some(InodeId(below));
    Request::Provided { directories, seen, empty, below, change: Box::new(change) }
}

/// A change that may be asked again at another gateway, if it is one.
fn asked(asked: Option<file::Asked>, change: Request) -> Request {
    match asked {
        None => change,
        Some(asked) => Request::Asked { asked: asked_of(asked), change: Box::new(change) },
    }
}

/// What is asked for another user, if it is.
fn of(user: Option<file::User>, request: Request) -> Request {
    match user {
        None => request,
        Some(file::User { name, groups }) => {
            let groups = groups.into_iter().take(GROUPS_MAX).collect();
            Request::For { user: User { name, groups }, request: Box::new(request) }
        }
    }
}

fn wanted(wanted: file::Wanted) -> Wanted {
    let file::Wanted { ancestor, parent, access, owner } = wanted;
    Wanted { ancestor, parent, access, owner }
}

fn asked_of(asked: file::Asked) -> Asked {
    Asked { client: asked.client.value(), call: asked.call }
}

fn path(text: &str) -> Result<Path> {
    Path::parse(text)
}

fn some_time(milliseconds: u64) -> Option<WallTime> {
    (milliseconds != 0).then_some(WallTime(milliseconds))
}

fn mode(mode: u32, usual: u32) -> u32 {
    if mode == 0 { usual } else { mode }
}

fn page(limit: u32) -> usize {
    match limit as usize {
        0 => base::limit::LIST_PAGE_MAX,
        limit => limit,
    }
}

fn lookup(ask: file::Lookup) -> Result<Request> {
    let wanted = wanted(ask.wanted.unwrap_or_default());
    Ok(of(ask.user, Request::Lookup { path: path(&ask.path)?, known: ask.known, wanted }))
}

fn judge_below(ask: file::JudgeBelow) -> Result<Request> {
    let file::JudgeBelow { path: text, resume, empty, user } = ask;
    let resume = (!resume.is_empty()).then_some(resume);
    Ok(of(user, Request::JudgeBelow { path: path(&text)?, resume, empty: empty as usize }))
}

fn rename(ask: file::Rename) -> Result<Request> {
    let file::Rename { from, to, replace, removes, asked, looked, user } = ask;
    let rename = Request::Rename { from: path(&from)?, to: path(&to)?, replace, removes };
    Ok(of(user, self::asked(asked, seen(looked, rename))))
}

fn delete(ask: file::Delete) -> Result<Request> {
    let file::Delete { path: text, recursive, asked, looked, user } = ask;
    let delete = Request::Delete { path: path(&text)?, recursive };
    Ok(of(user, self::asked(asked, seen(looked, delete))))
}

/// `room`: bytes that there are for the answer.
fn list(ask: file::List, room: usize) -> Result<Request> {
    let after = (!ask.after.is_empty()).then_some(ask.after);
    let located = ask.extents;
    let entry = if located { ENTRY_MAX + LISTED_EXTENTS_BYTES } else { ENTRY_MAX };
    let (limit, others) = match room < FRAME_MESSAGE_MAX {
        true => (page(ask.limit).min(room / entry), 0),
        false => (page(ask.limit), LISTED_TOGETHER_MAX - 1),
    };
    // A path that no question can name, which renames make, has to be asked for by itself to hear so.
    let also = ask.also.iter().take(others).map_while(|other| path(other).ok()).collect();
    Ok(of(ask.user, Request::List { path: path(&ask.path)?, after, limit, located, also }))
}

fn make_directory(ask: file::MakeDirectory) -> Result<Request> {
    let file::MakeDirectory { path: text, parents, mode, owner, group, note, above_mode, user, .. } = ask;
    let file::MakeDirectory { open, group_above, above_alike, .. } = ask;
    let (mode, above_mode) = (mode.unwrap_or(DIRECTORY_MODE), above(above_mode, above_alike));
    let new = NewInode { mode, open, owner, group, group_above, note, above_mode, ..NewInode::default() };
    Ok(of(user, Request::Mkdir { path: path(&text)?, parents, new }))
}

/// Permission bits of directories that are made on the way.
fn above(mode: Option<u32>, alike: bool) -> Option<u32> {
    if alike { None } else { mode.or(Some(DIRECTORY_MODE)) }
}

fn create(ask: file::Create) -> Result<Request> {
    let file::Create { path: text, overwrite, parents, mode, owner, group, note, .. } = ask;
    let file::Create { above_mode, copied, copies, holder, asked, looked, user, .. } = ask;
    let file::Create { open, group_above, above_alike, replicas_max, .. } = ask;
    let (mode, above_mode) = (mode.unwrap_or(FILE_MODE), above(above_mode, above_alike));
    let new = NewInode { mode, open, owner, group, group_above, note, above_mode, copied, copies, holder };
    let create = Request::Create { path: path(&text)?, overwrite, parents, new, replicas_max: replicas_max as usize };
    Ok(of(user, self::asked(asked, seen(looked, create))))
}

fn append(ask: file::Append) -> Result<Request> {
    let file::Append { path: text, holder, began_length: length, began_generation, .. } = ask;
    let file::Append { inode, generation, asked, looked, replicas_max, .. } = ask;
    let replicas_max = replicas_max as usize;
    let began = (began_generation != 0).then_some(Began { length, generation: began_generation });
    let append = match inode {
        0 => seen(
            looked,
            Request::AppendOpen { file: FileRef::Path(path(&text)?), holder, began, at: None, replicas_max },
        ),
        _ => {
            let (file, at) = (FileRef::Inode(InodeId(inode)), Some(Generation(generation)));
            Request::AppendOpen { file, holder, began, at, replicas_max }
        }
    };
    Ok(self::asked(asked, append))
}

fn sync_length(ask: file::SyncLength) -> Request {
    let file::SyncLength { inode, generation, group, length } = ask;
    let (inode, generation, group) = (InodeId(inode), Generation(generation), GroupId(group));
    Request::SyncLength { inode, generation, group, length }
}

fn pack_group(ask: file::PackGroup) -> Result<Request> {
    let beside = if ask.path.is_empty() { None } else { Some(path(&ask.path)?) };
    let (replicas_max, refused) = (ask.replicas_max as usize, refused(&ask.refused));
    Ok(Request::PackGroup { policy: Policy::default(), beside, replicas_max, refused })
}

/// Devices that took no more of a writer's bytes.
fn refused(named: &[Id]) -> Vec<DeviceId> {
    named.iter().take(REFUSED_MAX).map(|device| DeviceId(device.value())).collect()
}

fn next_group(ask: file::NextGroup) -> Request {
    let replica = |of: &file::Replica| (ChunkId(of.chunk.value()), DeviceId(of.device.value()));
    let short = ask.short.iter().take(REFUSED_MAX).map(replica).collect();
    Request::NextGroup {
        inode: InodeId(ask.inode),
        generation: Generation(ask.generation),
        finished: (GroupId(ask.finished_group), ask.finished_length),
        columns_max: ask.columns_max.max(1) as usize,
        replicas_max: ask.replicas_max as usize,
        refused: Refused { full: refused(&ask.full), gone: refused(&ask.gone), short, last: ask.last },
    }
}

fn close(ask: file::Close) -> Request {
    Request::Close {
        inode: InodeId(ask.inode),
        generation: Generation(ask.generation),
        finished: Some((GroupId(ask.finished_group), ask.finished_length)),
        modified: some_time(ask.modified_ms),
        mode: (ask.mode != 0).then_some(ask.mode),
    }
}

fn put_files(ask: file::PutFiles) -> Result<Request> {
    at_most("files", ask.files.len(), COMPOUND_FILES_MAX)?;
    let files = ask
        .files
        .into_iter()
        .map(|file| {
            Ok(PutFile {
                path: path(&file.path)?,
                group: GroupId(file.group),
                offset: file.offset,
                length: file.length,
                crc: 0,
                modified: some_time(file.modified_ms),
                accessed: some_time(file.accessed_ms),
                mode: mode(file.mode, if file.directory { DIRECTORY_MODE } else { FILE_MODE }),
                overwrite: file.overwrite,
                parents: file.parents,
                directory: file.directory,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Request::PutFiles { files })
}

fn locate(ask: file::Locate) -> Result<Request> {
    let file = if ask.path.is_empty() { FileRef::Inode(InodeId(ask.inode)) } else { FileRef::Path(path(&ask.path)?) };
    Ok(Request::Locate { file, offset: ask.offset, length: ask.length })
}

fn set_attributes(ask: file::SetAttributes) -> Result<Request> {
    let Some(new) = ask.new else {
        let text = "a change of attributes says none; nothing was done: use a client of the server's version";
        return Err(Error::new(ErrorKind::Invalid, text));
    };
    Ok(of(ask.user, seen(ask.looked, Request::SetAttributes { path: path(&ask.path)?, new })))
}

fn policy_from(policy: &file::Policy) -> Result<Policy> {
    let tier = match policy.tier {
        0 => None,
        code => Some(Class::from_code(code - 1).ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                format!("there is no device class {}; use memory, nvm, ssd, hdd or bulk", code - 1),
            )
        })?),
    };
    let compression = match policy.compression {
        0 => None,
        code => Some(Compression::from_code(code - 1).ok_or_else(|| {
            let text =
                format!("there is no compression {} at this node; nothing was set; use none, lz4 or zstd", code - 1);
            Error::new(ErrorKind::Unsupported, text)
        })?),
    };
    let some = |copies: u32| (copies != 0).then_some(copies);
    Ok(Policy { tier, replicas: some(policy.replicas), least: some(policy.least), compression })
}

/// An answer of another form than the question has is a fault in Stormwell itself.
fn other(reply: &Reply) -> ! {
    unreachable!("the metadata store answered something else: {reply:?}")
}

fn answer(respond: Responder, message: impl prost::Message + 'static) {
    respond.answer(message, Payload::empty());
}

fn done(reply: Reply, respond: Responder) {
    match reply {
        Reply::Done | Reply::Attributes(_) => answer(respond, Done {}),
        reply => other(&reply),
    }
}

fn attributes(reply: Reply, respond: Responder) {
    match reply {
        Reply::Attributes(found) => answer(respond, found),
        reply => other(&reply),
    }
}

fn silent(reply: Reply, respond: Responder) {
    let Reply::Silent(silent) = reply else { other(&reply) };
    let silent_ms = silent.into_iter().map(|silent| silent.as_millis() as u64).collect();
    answer(respond, file::HoldersAnswer { silent_ms });
}

fn found(reply: Reply, respond: Responder) {
    let Reply::Found { found, version, without_above } = reply else { other(&reply) };
    answer(respond, file::LookupAnswer { found, version, without_above });
}

fn below(reply: Reply, respond: Responder) {
    let Reply::Below { top, version, empty, resume } = reply else { other(&reply) };
    let empty = empty.into_iter().map(|directory| directory.0).collect();
    answer(respond, file::JudgeBelowAnswer { version, empty, next: resume.unwrap_or_default(), top: top.0 });
}

fn answered(reply: Reply, respond: Responder) {
    let Reply::Answered(answer) = reply else { other(&reply) };
    let inode = match answer.as_deref() {
        Some(Reply::Handle(handle)) => handle.inode.0,
        _ => 0,
    };
    self::answer(respond, file::AnsweredAnswer { known: answer.is_some(), inode });
}

fn path_of(reply: Reply, respond: Responder) {
    let Reply::PathOf(path) = reply else { other(&reply) };
    answer(respond, file::PathOfAnswer { path });
}

fn xattrs(reply: Reply, respond: Responder) {
    let Reply::Xattrs(found) = reply else { other(&reply) };
    let xattrs = found.into_iter().map(|(name, value)| file::Xattr { name, value }).collect();
    answer(respond, file::XattrsAnswer { xattrs });
}

fn entries(reply: Reply, respond: Responder) {
    let Reply::Entries { entries, groups, more, others } = reply else { other(&reply) };
    let wire = |Entry { name, attributes, extents }: Entry| {
        let extents = extents.iter().map(|extent| wire_extent(extent, &groups, None)).collect();
        file::Entry { attributes, name, extents }
    };
    let all = |entries: Vec<Entry>| entries.into_iter().map(wire).collect();
    let others = others.into_iter().map(|entries| file::Whole { entries: all(entries) }).collect();
    answer(respond, file::ListAnswer { entries: all(entries), more, others });
}

fn wire_group(group: &NewGroup) -> file::NewGroup {
    file::NewGroup { group: group.group.0, room: group.room, layout: (&group.layout).into() }
}

fn opened(reply: Reply, respond: Responder) {
    let Reply::Handle(handle) = reply else { other(&reply) };
    let opened = file::OpenedFile {
        inode: handle.inode.0,
        generation: handle.generation.0,
        length: handle.length,
        group: wire_group(&handle.group),
        attributes: Some(handle.attributes),
        limited: handle.limited,
        compression: handle.compression.code(),
        lost: handle.lost,
    };
    answer(respond, opened);
}

fn group(reply: Reply, respond: Responder) {
    let Reply::Group(group) = reply else { other(&reply) };
    answer(respond, wire_group(&group));
}

fn files(reply: Reply, respond: Responder) {
    let Reply::Files(results) = reply else { other(&reply) };
    let results = results.into_iter().map(|result| result.map_or_else(Failure::from, |_| Failure::default())).collect();
    answer(respond, file::PutFilesAnswer { results });
}

/// `groups`: among them that of the extent, in the order of their numbers.
fn wire_extent(extent: &Extent, groups: &[NewGroup], open: Option<&Open>) -> file::Extent {
    let Ok(place) = groups.binary_search_by_key(&extent.group, |group| group.group) else {
        unreachable!("the answer names the group of each extent")
    };
    let open = open.filter(|_| extent.open);
    file::Extent {
        offset: extent.file_offset,
        length: extent.length,
        group_offset: extent.group_offset,
        open: extent.open,
        layout: (&groups[place].layout).into(),
        starts: open.map(|open| open.starts.clone()).unwrap_or_default(),
        generation: open.map_or(0, |open| open.generation.0),
    }
}

fn located(reply: Reply, respond: Responder) {
    let Reply::Located(Located { attributes, extents, groups, open, mut more }) = reply else { other(&reply) };
    let mut extents: Vec<file::Extent> =
        extents.iter().map(|extent| wire_extent(extent, &groups, open.as_ref())).collect();
    if respond.room() < LOCATED {
        let fit = fitting(&extents, respond.room().saturating_sub(attributes.encoded_len()));
        more |= fit < extents.len();
        extents.truncate(fit);
    }
    answer(respond, file::LocateAnswer { attributes, extents, more });
}

/// How many of these there is room for. One at least: who asks for the places of bytes must come further.
fn fitting(extents: &[file::Extent], room: usize) -> usize {
    // With each one come its tag and its length, of three bytes up to 2 MiB.
    let mut left = room;
    let fits = |extent: &&file::Extent| {
        let rest = left.checked_sub(extent.encoded_len() + 4);
        rest.inspect(|rest| left = *rest).is_some()
    };
    extents.iter().take_while(fits).count().max(1).min(extents.len())
}

fn policy(reply: Reply, respond: Responder) {
    let Reply::Policy { effective, own } = reply else { other(&reply) };
    let file::Policy { tier, replicas, compression, least } = wire_policy(effective);
    answer(respond, file::PolicyAnswer { tier, replicas, compression, own: Some(wire_policy(own)), least });
}

fn wire_policy(policy: Policy) -> file::Policy {
    file::Policy {
        tier: policy.tier.map_or(0, |class| class.code() + 1),
        replicas: policy.replicas.unwrap_or(0),
        compression: policy.compression.map_or(0, |compression| compression.code() + 1),
        least: policy.least.unwrap_or(0),
    }
}

fn limit(limit: Option<u64>) -> Limit {
    match limit {
        None => Limit::Keep,
        Some(quota::NO_QUOTA) => Limit::None,
        Some(most) => Limit::Most(most),
    }
}

fn quota_found(reply: Reply, respond: Responder) {
    let Reply::Quota(found) = reply else { other(&reply) };
    let quota = found.map(|quota| {
        let meta::request::Quota { names_max, bytes_max, names, bytes, counting } = quota;
        quota::Quota { names_max, bytes_max, names, bytes, counting }
    });
    answer(respond, quota::QuotaAnswer { quota });
}

fn disk_usage(reply: Reply, respond: Responder) {
    let Reply::DiskUsage { totals, resume } = reply else { other(&reply) };
    let part = file::DiskUsageAnswer {
        files: totals.files,
        directories: totals.directories,
        bytes: totals.bytes,
        next: resume.unwrap_or_default(),
    };
    answer(respond, part);
}

/// A bag as the wire has it, without counts.
pub fn bag_found(reply: Reply) -> bag::Info {
    match reply {
        Reply::Bag(found) => wire_bag(found),
        reply => other(&reply),
    }
}

/// A page of bags as the wire has them, without counts, and whether there are more.
pub fn bags_found(reply: Reply) -> (Vec<bag::Info>, bool) {
    match reply {
        Reply::Bags { bags, more } => (bags.into_iter().map(wire_bag).collect(), more),
        reply => other(&reply),
    }
}

fn wire_bag(found: BagInfo) -> bag::Info {
    bag::Info {
        bag: found.bag.0,
        name: found.name,
        sealed: found.state == BagState::Sealed,
        epoch: found.epoch,
        members: found.members.iter().map(|device| device.0.into()).collect(),
        retain: found.retain,
        pass: found.pass,
        compression: found.compression,
        pushed: found.carried.pushed,
        pushed_bytes: found.carried.pushed_bytes,
        acknowledged: found.carried.acknowledged,
        acknowledged_bytes: found.carried.acknowledged_bytes,
        ..bag::Info::default()
    }
}

/// The namespace's totals, as `df` shows them.
pub fn totals(reply: Reply) -> file::DevicesAnswer {
    let Reply::Usage(totals) = reply else { other(&reply) };
    file::DevicesAnswer {
        devices: Vec::new(),
        files: totals.files,
        directories: totals.directories,
        bytes: totals.bytes,
        lacks: None,
    }
}

/// How many sessions are open.
pub fn sessions(reply: Reply) -> u64 {
    let Reply::Sessions(count) = reply else { other(&reply) };
    count
}

/// What the wire asks of a chunk, as the engine takes it. `cell`: bytes that the payload stands for; 0: for itself.
pub fn append_request(ask: &net::message::chunk::Append, payload: Payload, cell: u64) -> Result<chunk::Request> {
    let level = match ask.level {
        0 => Level::Received,
        1 => Level::Written,
        2 => Level::Synced,
        other => return Err(Error::new(ErrorKind::Protocol, format!("there is no acknowledgement level {other}"))),
    };
    let (payload, sums) = payload.into_verified()?;
    Ok(chunk::Request::Append {
        chunk: ChunkId(ask.chunk.value()),
        owner: Owner::Group(GroupId(ask.group)),
        generation: Generation(ask.generation),
        offset: ask.offset,
        payload,
        sums,
        level,
        seal: ask.seal,
        small_parts: ask.small_parts,
        cell,
    })
}

/// The limit of a page as asked over the wire.
pub fn page_limit(limit: u32) -> usize {
    page(limit)
}

#[cfg(test)]
mod tests {
    use super::{fitting, request};
    use base::id::SessionId;
    use base::limit::{ANSWER_OWN, COMPOUND_FILES_MAX, CONCAT_FILES_MAX, HOLDERS_TOLD_MAX};
    use net::message::{Ask, file, is_change, kind_name, session};
    use net::{Body, Call, Link, Payload, Service};
    use prost::Message;
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    /// Takes one call for a call of every kind, with whatever in it can be read as that.
    struct Every(Mutex<BTreeSet<u16>>);

    impl Service for Every {
        fn handle(&self, mut call: Call) {
            let paths: [&[u8]; 3] = [b"", b"\x0a\x02/a", b"\x0a\x02/a\x12\x02/b"];
            for kind in (0..=u16::MAX).filter(|kind| kind_name(*kind).is_some()) {
                for message in paths {
                    (call.kind, call.body) = (kind, Body::Encoded(message.into()));
                    if request(&mut call).is_ok_and(|(request, _)| request.is_remembered()) {
                        self.0.lock().expect("no panic").insert(kind);
                    }
                }
            }
            call.respond.answer(session::NodeStatusAnswer::default(), Payload::empty());
        }
    }

    /// Every question that becomes a change which the store remembers holds the floor of its session: else its answer would be forgotten
    /// while it may be asked again.
    #[tokio::test]
    async fn what_is_remembered_holds_the_floor() {
        let every = Arc::new(Every(Mutex::default()));
        let link = Link::local(every.clone(), SessionId(1));
        link.call(&session::NodeStatus {}, Payload::empty()).await.expect("answered");
        let found = every.0.lock().expect("no panic");
        let lacking: Vec<_> =
            found.iter().filter(|kind| !is_change(**kind)).filter_map(|kind| kind_name(*kind)).collect();
        assert_eq!(lacking, Vec::<&str>::new());
        assert!(found.len() >= 15, "only {found:?} could be read");
    }

    /// Of the places of a file's bytes there are as many as there is room for, and one where there is room for none.
    #[test]
    fn places_fit() {
        let extent = |columns: usize| {
            let column = net::message::layout::Column { chunk: (u128::MAX - 1).into(), ..Default::default() };
            let layout = net::message::layout::Layout { columns: vec![column; columns], cell: 1 << 20 };
            let offset = u64::MAX >> 1;
            file::Extent { offset, length: offset, group_offset: offset, open: true, layout, ..Default::default() }
        };
        for columns in [1, 4, 16] {
            let mut extents = vec![extent(columns); 2000];
            let fit = fitting(&extents, ANSWER_OWN);
            let answer = |extents| file::LocateAnswer { extents, ..Default::default() }.encoded_len();
            let empty = answer(Vec::new());
            assert!(answer(vec![extent(columns); fit]) - empty <= ANSWER_OWN, "{fit} of {columns} columns");
            assert!(
                answer(vec![extent(columns); fit + 1 + fit / 20]) - empty > ANSWER_OWN,
                "{fit} of {columns} columns"
            );
            assert_eq!(fitting(&extents, 0), 1);
            extents.truncate(fit);
            assert_eq!((fitting(&extents, ANSWER_OWN), fitting(&[], 0)), (fit, 0));
        }
    }

    /// Keeps the one call it gets.
    #[derive(Default)]
    struct One(Mutex<Option<Call>>);

    impl Service for One {
        fn handle(&self, call: Call) {
            *self.0.lock().expect("no panic") = Some(call);
        }
    }

    /// A question that names more of something than it may is refused before it waits for the store: what is in the store's queue is as
    /// large as is counted for it.
    #[tokio::test]
    async fn what_a_question_names_is_counted_before_it_waits() {
        let one = Arc::new(One::default());
        let link = Link::local(one.clone(), SessionId(1));
        let asking = tokio::spawn(async move { link.call(&session::NodeStatus {}, Payload::empty()).await });
        while one.0.lock().expect("no panic").is_none() {
            tokio::task::yield_now().await;
        }
        let mut call = one.0.lock().expect("no panic").take().expect("it came");
        let sources =
            |count| file::Concat { target: "/t".into(), sources: vec!["/".into(); count], ..Default::default() };
        let files =
            |count| file::PutFiles { files: vec![file::PutFile { path: "/a".into(), ..Default::default() }; count] };
        let holders = |count| file::Holders { asked: vec!["h".into(); count], ..Default::default() };
        let cases = [
            (file::Concat::KIND, [CONCAT_FILES_MAX, CONCAT_FILES_MAX + 1].map(|count| sources(count).encode_to_vec())),
            (
                file::PutFiles::KIND,
                [COMPOUND_FILES_MAX, COMPOUND_FILES_MAX + 1].map(|count| files(count).encode_to_vec()),
            ),
            (file::Holders::KIND, [HOLDERS_TOLD_MAX, HOLDERS_TOLD_MAX + 1].map(|count| holders(count).encode_to_vec())),
        ];
        for (kind, [most, more]) in cases {
            (call.kind, call.body) = (kind, Body::Encoded(most.into()));
            assert!(request(&mut call).is_ok(), "{kind}");
            call.body = Body::Encoded(more.into());
            let Err(refused) = request(&mut call) else { panic!("{kind}: one too many") };
            assert!(refused.text().contains("are the most; nothing was done"), "{refused}");
        }
        drop(call);
        assert!(asking.await.expect("no panic").is_err());
    }
}
