//! Extended attributes: HDFS's namespaces and limits over those of the store, where a name has its namespace in front.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::names::{XattrProto, XattrRequest, XattrsRequest};
use crate::names::looks::Looks;
use crate::names::resolved_path::{Purpose, ResolvedPath, is_raw};
use crate::names::set::change_note;
use crate::refusal::{ACCESS_CONTROL, ILLEGAL_ARGUMENT, Refusal, XATTR_NOT_FOUND};
use base::error::ErrorKind;
use base::permission::{READ, WRITE, Wanted};

/// Namespaces by their numbers in the protocol.
const NAMESPACES: [&str; 5] = ["user", "trusted", "security", "system", "raw"];
const USER: u32 = 0;
const TRUSTED: u32 = 1;
const SECURITY: u32 = 2;
const RAW: u32 = 4;

/// Most attributes that users see on one file or directory, as in HDFS.
const VISIBLE_MAX: usize = 32;
/// Most bytes in name and value together, as in HDFS.
const BYTES_MAX: usize = 16_384;
/// The one attribute of the namespace `security`: superusers may not read the file. It cannot be taken back.
const UNREADABLE: &str = "hdfs.unreadable.by.superuser";
/// Flags of setXAttr.
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// Does setXAttr.
pub(crate) async fn set(gateway: &Gateway, caller: &Caller, ask: XattrRequest) -> Result<(), Refusal> {
    let flag = ask.flag.unwrap_or(0);
    let xattr = ask.xattr.unwrap_or_default();
    let value = xattr.value.clone().unwrap_or_default();
    let bytes = xattr.name.len().saturating_add(value.len());
    if bytes > BYTES_MAX {
        let text = format!(
            "The XAttr is too big. The maximum combined size of the name and value is {BYTES_MAX}, but the total size is {bytes}"
        );
        return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    }
    let mut looks = Looks::default();
    loop {
        let (resolved, name) = to_change(gateway, caller, &ask.path, &xattr).await?;
        let there = gateway.client.xattrs(&resolved.path).await?;
        let exists = there.iter().any(|(other, _)| *other == name);
        if flag & (CREATE | REPLACE) == 0 {
            return Err(Refusal::new(ILLEGAL_ARGUMENT, "A flag must be specified."));
        }
        if exists && flag & REPLACE == 0 {
            let text = format!("XAttr: {} already exists. The REPLACE flag must be specified.", xattr.name);
            return Err(Refusal::io(text));
        }
        if !exists && flag & CREATE == 0 {
            let text = format!("XAttr: {} does not exist. The CREATE flag must be specified.", xattr.name);
            return Err(Refusal::io(text));
        }
        let visible = |name: &str| name.starts_with("user.") || name.starts_with("trusted.");
        let count = there.iter().filter(|(name, _)| visible(name)).count();
        if !exists && visible(&name) && count >= VISIBLE_MAX {
            let text = format!("Cannot add additional XAttr to inode, would exceed limit of {VISIBLE_MAX}");
            return Err(Refusal::io(text));
        }
        if is_unreadable(&xattr) {
            if resolved.last().is_some_and(|last| last.directory) {
                return Err(Refusal::io(format!("Can only set 'security.{UNREADABLE}' on a file.")));
            }
            // First what counts, then what is shown: that has to be looked up again then.
            if !resolved.last().is_some_and(|last| HdfsAttributes::read(&last.note).unreadable_by_superuser) {
                if let Err(error) =
                    change_note(gateway, &resolved, None, |note| note.unreadable_by_superuser = true).await?
                {
                    looks.again(error)?;
                }
                continue;
            }
        }
        let store = caller.store(&gateway.client).relying_on(resolved.looked());
        match store.set_xattr(&resolved.path, &name, Some(value.clone())).await {
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// Does removeXAttr.
pub(crate) async fn remove(gateway: &Gateway, caller: &Caller, ask: XattrRequest) -> Result<(), Refusal> {
    let xattr = ask.xattr.unwrap_or_default();
    let mut looks = Looks::default();
    loop {
        let (resolved, name) = to_change(gateway, caller, &ask.path, &xattr).await?;
        if is_unreadable(&xattr) {
            let text = format!("The xattr 'security.{UNREADABLE}' can not be deleted.");
            return Err(Refusal::new(ACCESS_CONTROL, text));
        }
        match caller.store(&gateway.client).relying_on(resolved.looked()).set_xattr(&resolved.path, &name, None).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Refusal::io("No matching attributes found for remove operation"));
            }
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// Does getXAttrs, and without names listXAttrs: those that the caller may see.
pub(crate) async fn get(gateway: &Gateway, caller: &Caller, ask: XattrsRequest) -> Result<Vec<XattrProto>, Refusal> {
    if ask.xattrs.len() > VISIBLE_MAX {
        let text =
            format!("{} attributes were asked for at once; no file has more than {VISIBLE_MAX}", ask.xattrs.len());
        return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    }
    for xattr in &ask.xattrs {
        check_namespace(caller, xattr, is_raw(&ask.path))?;
    }
    let resolved = ResolvedPath::look(gateway, caller, &ask.path, Purpose::Read, Wanted::access(READ)).await?;
    resolved.any("cannot find ")?;
    let there = gateway.client.xattrs(&resolved.path).await?;
    let seen: Vec<XattrProto> = there
        .into_iter()
        .filter_map(|(name, value)| {
            let (namespace, name) = name.split_once('.')?;
            let namespace = NAMESPACES.iter().position(|known| *known == namespace)? as u32;
            let value = Some(value).filter(|value| !value.is_empty());
            let xattr = XattrProto { namespace, name: name.to_string(), value };
            check_namespace(caller, &xattr, resolved.raw).is_ok().then_some(xattr)
        })
        .collect();
    if ask.xattrs.is_empty() {
        return Ok(seen);
    }
    let mut found: Vec<XattrProto> = Vec::new();
    for wanted in &ask.xattrs {
        let same = |xattr: &&XattrProto| xattr.namespace == wanted.namespace && xattr.name == wanted.name;
        let missing = || Refusal::new(XATTR_NOT_FOUND, "At least one of the attributes provided was not found.");
        let xattr = seen.iter().find(same).ok_or_else(missing)?;
        // Each is answered once, however often it is asked for.
        if !found.contains(xattr) {
            found.push(xattr.clone());
        }
    }
    Ok(found)
}

/// The way to what gets or loses an attribute, and the attribute's name in the store.
async fn to_change(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
    xattr: &XattrProto,
) -> Result<(ResolvedPath, String), Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Write, Wanted::default()).await?;
    check_namespace(caller, xattr, resolved.raw)?;
    if xattr.namespace == USER {
        // In a directory like /shared everybody may write, but only its owner says things about it.
        let sticky = resolved.last().is_some_and(|last| last.directory && last.mode & 0o1000 != 0);
        let wanted = match sticky {
            true => Wanted { owner: true, ..Wanted::default() },
            false => Wanted::access(WRITE),
        };
        resolved.judge(gateway, caller, wanted).await?;
    }
    resolved.any("cannot find ")?;
    let namespace = NAMESPACES.get(xattr.namespace as usize).unwrap_or(&"user");
    Ok((resolved, format!("{namespace}.{}", xattr.name)))
}

/// `user` is everybody's, `trusted` superusers', `raw` for those who asked for the raw path; the others are the system's.
fn check_namespace(caller: &Caller, xattr: &XattrProto, raw: bool) -> Result<(), Refusal> {
    match xattr.namespace {
        USER => Ok(()),
        TRUSTED if caller.superuser => Ok(()),
        RAW if raw => Ok(()),
        SECURITY if is_unreadable(xattr) && xattr.value.is_none() => Ok(()),
        SECURITY if is_unreadable(xattr) => {
            let text =
                format!("Attempt to set a value for 'security.{UNREADABLE}'. Values are not allowed for this xattr.");
            Err(Refusal::new(ACCESS_CONTROL, text))
        }
        other => {
            let namespace = NAMESPACES.get(other as usize).unwrap_or(&"unknown");
            let text = format!("User doesn't have permission for xattr: {namespace}.{}", xattr.name);
            Err(Refusal::new(ACCESS_CONTROL, text))
        }
    }
}

fn is_unreadable(xattr: &XattrProto) -> bool {
    xattr.namespace == SECURITY && xattr.name == UNREADABLE
}
