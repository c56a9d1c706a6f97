//! Changing what is kept with a name: permission bits, owners, times, replication, access control lists.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::hdfs::Permission;
use crate::message::names::{
    AclEntryProto, AclRequest, AclStatus, SetOwnerRequest, SetPermissionRequest, SetReplicationRequest, SetTimesRequest,
};
use crate::names::acl;
use crate::names::looks::Looks;
use crate::names::permission;
use crate::names::resolved_path::{Purpose, ResolvedPath, Written};
use crate::refusal::{ACL, Refusal};
use base::acl::{Acl, AclEntry};
use base::error::{ErrorKind, Result as Stored};
use base::permission::{WRITE, Wanted};
use client::NewAttributes;
use prost::Message;

/// Most copies that can be asked for, as in HDFS.
const REPLICATION_MAX: u32 = 512;

/// What to do with an access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AclChange {
    /// Change or add these entries.
    Modify,
    /// Take these entries away.
    RemoveEntries,
    /// Take away what children inherit.
    RemoveDefault,
    /// Take everything away.
    Remove,
    /// These entries in the place of all others.
    Set,
}

/// Does setPermission.
pub(crate) async fn permission(gateway: &Gateway, caller: &Caller, ask: SetPermissionRequest) -> Result<(), Refusal> {
    let new = NewAttributes { mode: Some(ask.permission.bits & 0o1777), ..NewAttributes::default() };
    set(gateway, caller, &ask.path, new).await?.map_err(missing)
}

/// Does setOwner.
pub(crate) async fn owner(gateway: &Gateway, caller: &Caller, ask: SetOwnerRequest) -> Result<(), Refusal> {
    let SetOwnerRequest { owner, group, path } = ask;
    let (owner, group) = (owner.filter(|name| !name.is_empty()), group.filter(|name| !name.is_empty()));
    let new = NewAttributes { owner, group, ..NewAttributes::default() };
    set(gateway, caller, &path, new).await?.map_err(missing)
}

/// Does setTimes.
pub(crate) async fn times(gateway: &Gateway, caller: &Caller, ask: SetTimesRequest) -> Result<(), Refusal> {
    let said = |time: u64| i64::try_from(time).is_ok().then_some(time);
    let (modified_ms, accessed_ms) = (said(ask.modified), said(ask.accessed));
    let new = NewAttributes { modified_ms, accessed_ms, ..NewAttributes::default() };
    let missing = |path| Refusal::not_found(format!("File/Directory {path} does not exist."));
    set(gateway, caller, &ask.path, new).await?.map_err(missing)
}

fn missing(path: String) -> Refusal {
    Refusal::not_found(format!("Directory/File does not exist {path}"))
}

/// Sets attributes as the caller, or gives the path of which there is nothing.
async fn set(
    gateway: &Gateway,
    caller: &Caller,
    text: &str,
    new: NewAttributes,
) -> Result<Result<(), String>, Refusal> {
    let written = Written::read(gateway, caller, text, Purpose::Write).await?;
    if !written.possible {
        return Ok(Err(written.path));
    }
    match caller.judged(&gateway.client).set_attributes(&written.path, new).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Err(written.path)),
        done => Ok(Ok(done?)),
    }
}

/// Does setReplication: false for a directory, and if there is nothing of that name.
pub(crate) async fn replication(
    gateway: &Gateway,
    caller: &Caller,
    ask: SetReplicationRequest,
) -> Result<bool, Refusal> {
    check_replication(ask.replication, &ask.path)?;
    let mut looks = Looks::default();
    loop {
        let resolved = ResolvedPath::look(gateway, caller, &ask.path, Purpose::Write, Wanted::access(WRITE)).await?;
        if resolved.last().is_none_or(|last| last.directory) {
            return Ok(false);
        }
        let changed = change_note(gateway, &resolved, Some(ask.replication), |note| note.replication = ask.replication);
        match changed.await? {
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(true),
        }
    }
}

/// Refuses a number of copies that HDFS refuses.
pub(crate) fn check_replication(replication: u32, path: &str) -> Result<(), Refusal> {
    let why = match replication {
        0 => " is less than the required minimum of 1".to_string(),
        1..=REPLICATION_MAX => return Ok(()),
        _ => format!(" exceeds maximum of {REPLICATION_MAX}"),
    };
    Err(Refusal::io(format!("Requested replication factor of {replication}{why} for {path}")))
}

/// Does the five calls that change an access control list.
pub(crate) async fn change_acl(
    gateway: &Gateway,
    caller: &Caller,
    change: AclChange,
    ask: AclRequest,
) -> Result<(), Refusal> {
    let spec: Vec<AclEntry> = ask.entries.into_iter().map(stored_entry).collect();
    let mut looks = Looks::default();
    loop {
        let resolved = owned(gateway, caller, &ask.path).await?;
        let new = with_acl(&resolved, change, spec.clone())?;
        match set_seen(gateway, &resolved, new).await {
            Err(error) if error.kind() == ErrorKind::Invalid => return Err(Refusal::new(ACL, error.text())),
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// What is to be set at the end of a way to change its access control list.
fn with_acl(resolved: &ResolvedPath, change: AclChange, spec: Vec<AclEntry>) -> Result<NewAttributes, Refusal> {
    let before = resolved.any("Directory/File does not exist ")?;
    let empty = spec.is_empty();
    let with_path = |refusal: Refusal| match refusal.class {
        ACL => Refusal::new(ACL, format!("{} Path: {}", refusal.text, resolved.path)),
        _ => refusal,
    };
    let list = acl::whole(before.mode, &before.acl);
    let list = match change {
        AclChange::Modify => acl::merged(&list, spec),
        AclChange::RemoveEntries => acl::without(&list, spec),
        AclChange::RemoveDefault => Ok(acl::without_default(&list)),
        AclChange::Set if !empty => acl::replaced(&list, spec),
        // Of a list with a mask the group's own entry comes back.
        AclChange::Remove | AclChange::Set => Ok(list
            .into_iter()
            .filter(|entry| entry.scope == acl::ACCESS && entry.kind != acl::MASK && entry.name.is_empty())
            .collect()),
    }
    .map_err(with_path)?;
    if !before.directory && list.iter().any(|entry| entry.scope == acl::DEFAULT) {
        let path = &resolved.path;
        let text = format!("Invalid ACL: only directories may have a default ACL. Path: {path} Path: {path}");
        return Err(Refusal::new(ACL, text));
    }
    let (mode, entries) = acl::stored(&list, before.mode);
    Ok(NewAttributes { mode: Some(mode), acl: Some(Acl { entries }), ..NewAttributes::default() })
}

/// Does getAclStatus.
pub(crate) async fn acl_status(gateway: &Gateway, caller: &Caller, path: &str) -> Result<AclStatus, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::default()).await?;
    let attributes = resolved.any("cannot find ")?;
    Ok(AclStatus {
        owner: permission::owner_of(&gateway.superuser, attributes).to_string(),
        group: permission::group_of(attributes).to_string(),
        sticky: attributes.mode & 0o1000 != 0,
        entries: attributes.acl.iter().cloned().map(wire_entry).collect(),
        permission: Some(Permission { bits: attributes.mode & 0o1777 }),
    })
}

/// Changes the note of what was found at the end of a way, and how often it counts against quotas if that is given. `Stale` if it has
/// another one by now, whichever gateway set that: then look again (`Looks::again`).
pub(crate) async fn change_note(
    gateway: &Gateway,
    resolved: &ResolvedPath,
    copies: Option<u32>,
    change: impl FnOnce(&mut HdfsAttributes),
) -> Result<Stored<()>, Refusal> {
    let mut note = HdfsAttributes::read(&resolved.any("cannot find ")?.note);
    change(&mut note);
    let new = NewAttributes { note: Some(note.encode_to_vec()), copies, ..NewAttributes::default() };
    Ok(set_seen(gateway, resolved, new).await)
}

/// Sets attributes of what was found at the end of a way. `Stale` if that is otherwise by now.
async fn set_seen(gateway: &Gateway, resolved: &ResolvedPath, new: NewAttributes) -> Stored<()> {
    gateway.client.relying_on(resolved.looked()).set_attributes(&resolved.path, new).await
}

/// The way to something that the caller owns.
async fn owned(gateway: &Gateway, caller: &Caller, path: &str) -> Result<ResolvedPath, Refusal> {
    let wanted = Wanted { owner: true, ..Wanted::default() };
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Write, wanted).await?;
    resolved.any("Directory/File does not exist ")?;
    Ok(resolved)
}

fn stored_entry(entry: AclEntryProto) -> AclEntry {
    let AclEntryProto { kind, scope, permissions, name } = entry;
    AclEntry { scope, kind, permissions, name: name.unwrap_or_default() }
}

fn wire_entry(entry: AclEntry) -> AclEntryProto {
    let AclEntry { scope, kind, permissions, name } = entry;
    AclEntryProto { kind, scope, permissions, name: (!name.is_empty()).then_some(name) }
}
