//! Calls about names, attributes, permissions and policies.

pub(crate) mod acl;
mod change;
mod creation;
mod known;
mod listing;
mod looks;
mod permission;
mod policies;
mod set;
mod status;
mod usage;
mod walk;
mod way;
mod xattrs;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::decode;
use crate::message::names::{
    AclAnswer, AclRequest, BlockSizeAnswer, BoolAnswer, CheckAccessRequest, EmptyAnswer, EnclosingRootAnswer,
    ListingAnswer, PathRequest, StatusAnswer, XattrsAnswer, XattrsRequest,
};
use crate::message::policies::{CodingPolicyAnswer, QuotaAnswer, SetPolicyRequest, StoragePolicyAnswer, SummaryAnswer};
use crate::refusal::Refusal;
use bytes::Bytes;
use prost::Message;
use set::AclChange;
use std::sync::Arc;

pub(crate) use change::is_refused;
pub(crate) use creation::{Creation, for_file, for_known};
pub(crate) use known::Known;
pub(crate) use listing::{file_for, way_to_file};
pub(crate) use looks::Looks;
pub(crate) use permission::{READ, WRITE, superuser_only};
pub(crate) use policies::{LAZY_PERSIST, check_coding_policy, storage_policy_named};
pub(crate) use set::check_replication;
pub use status::file_status;

/// Does a call of ClientProtocol if it is one of this room's: the encoded answer. `None`: it is not.
pub async fn call(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    let gateway = gateway.as_ref();
    let answer = match method {
        "getFileInfo"
        | "getFileLinkInfo"
        | "getLocatedFileInfo"
        | "getListing"
        | "getBatchedListing"
        | "getPreferredBlockSize"
        | "checkAccess"
        | "getLinkTarget"
        | "createSymlink"
        | "getEnclosingRoot" => looking(gateway, caller, method, request).await,
        "mkdirs" | "rename" | "rename2" | "delete" | "concat" | "truncate" => {
            changing(gateway, caller, method, request).await
        }
        "setPermission" | "setOwner" | "setTimes" | "setReplication" | "setXAttr" | "removeXAttr" | "getXAttrs"
        | "listXAttrs" | "modifyAclEntries" | "removeAclEntries" | "removeDefaultAcl" | "removeAcl" | "setAcl"
        | "getAclStatus" => keeping(gateway, caller, method, request).await,
        "getContentSummary"
        | "getQuotaUsage"
        | "setQuota"
        | "getStoragePolicies"
        | "getStoragePolicy"
        | "setStoragePolicy"
        | "unsetStoragePolicy"
        | "satisfyStoragePolicy"
        | "getErasureCodingPolicies"
        | "getErasureCodingCodecs"
        | "getErasureCodingPolicy"
        | "setErasureCodingPolicy"
        | "unsetErasureCodingPolicy" => policing(gateway, caller, method, request).await,
        _ => return None,
    };
    Some(answer)
}

fn path(request: Bytes) -> Result<String, Refusal> {
    decode::<PathRequest>(request).map(|ask| ask.path)
}

fn done(answer: impl Message) -> Result<Vec<u8>, Refusal> {
    Ok(answer.encode_to_vec())
}

async fn looking(gateway: &Gateway, caller: &Caller, method: &str, request: Bytes) -> Result<Vec<u8>, Refusal> {
    match method {
        "getListing" => {
            let listing = listing::listing(gateway, caller, decode(request)?).await?;
            done(ListingAnswer { listing })
        }
        "getBatchedListing" => done(listing::batched(gateway, caller, decode(request)?).await?),
        "getPreferredBlockSize" => {
            let bytes = listing::block_size(gateway, caller, &path(request)?).await?;
            done(BlockSizeAnswer { bytes })
        }
        "checkAccess" => {
            let CheckAccessRequest { path, access } = decode(request)?;
            listing::check_access(gateway, caller, &path, access).await?;
            done(EmptyAnswer {})
        }
        "getEnclosingRoot" => {
            listing::info(gateway, caller, &path(request)?, false).await?;
            done(EnclosingRootAnswer { path: Some("/".to_string()) })
        }
        "createSymlink" => Err(Refusal::unsupported("Symlinks not supported")),
        "getLinkTarget" => {
            let path = path(request)?;
            match listing::info(gateway, caller, &path, false).await? {
                None => Err(Refusal::not_found(format!("File does not exist: {path}"))),
                Some(_) => Err(Refusal::io(format!("Path {path} is not a symbolic link"))),
            }
        }
        _ => {
            let located = method == "getLocatedFileInfo";
            let status = listing::info(gateway, caller, &path(request)?, located).await?;
            done(StatusAnswer { status })
        }
    }
}

async fn changing(gateway: &Gateway, caller: &Caller, method: &str, request: Bytes) -> Result<Vec<u8>, Refusal> {
    let result = match method {
        "mkdirs" => change::mkdirs(gateway, caller, decode(request)?).await?,
        "rename" => change::rename(gateway, caller, decode(request)?).await?,
        "delete" => change::delete(gateway, caller, decode(request)?).await?,
        "truncate" => change::truncate(gateway, caller, decode(request)?).await?,
        "concat" => {
            change::concat(gateway, caller, decode(request)?).await?;
            return done(EmptyAnswer {});
        }
        _ => {
            change::rename2(gateway, caller, decode(request)?).await?;
            return done(EmptyAnswer {});
        }
    };
    done(BoolAnswer { result })
}

async fn keeping(gateway: &Gateway, caller: &Caller, method: &str, request: Bytes) -> Result<Vec<u8>, Refusal> {
    let change = match method {
        "setPermission" => return set::permission(gateway, caller, decode(request)?).await.and_then(nothing),
        "setOwner" => return set::owner(gateway, caller, decode(request)?).await.and_then(nothing),
        "setTimes" => return set::times(gateway, caller, decode(request)?).await.and_then(nothing),
        "setReplication" => {
            let result = set::replication(gateway, caller, decode(request)?).await?;
            return done(BoolAnswer { result });
        }
        "setXAttr" => return xattrs::set(gateway, caller, decode(request)?).await.and_then(nothing),
        "removeXAttr" => return xattrs::remove(gateway, caller, decode(request)?).await.and_then(nothing),
        "getXAttrs" | "listXAttrs" => {
            let mut ask: XattrsRequest = decode(request)?;
            if method == "listXAttrs" {
                ask.xattrs.clear();
            }
            let xattrs = xattrs::get(gateway, caller, ask).await?;
            return done(XattrsAnswer { xattrs });
        }
        "getAclStatus" => {
            let status = set::acl_status(gateway, caller, &path(request)?).await?;
            return done(AclAnswer { status });
        }
        "modifyAclEntries" => AclChange::Modify,
        "removeAclEntries" => AclChange::RemoveEntries,
        "removeDefaultAcl" => AclChange::RemoveDefault,
        "removeAcl" => AclChange::Remove,
        _ => AclChange::Set,
    };
    let ask: AclRequest = decode(request)?;
    set::change_acl(gateway, caller, change, ask).await.and_then(nothing)
}

async fn policing(gateway: &Gateway, caller: &Caller, method: &str, request: Bytes) -> Result<Vec<u8>, Refusal> {
    match method {
        "getContentSummary" => {
            let summary = usage::summary(gateway, caller, &path(request)?).await?;
            done(SummaryAnswer { summary })
        }
        "getQuotaUsage" => {
            let usage = usage::quota_usage(gateway, caller, &path(request)?).await?;
            done(QuotaAnswer { usage })
        }
        "setQuota" => usage::set_quota(gateway, caller, decode(request)?).await.and_then(nothing),
        "getStoragePolicies" => done(policies::storage_policies()),
        "getStoragePolicy" => {
            let policy = policies::storage_policy(gateway, caller, &path(request)?).await?;
            done(StoragePolicyAnswer { policy })
        }
        "setStoragePolicy" => {
            let SetPolicyRequest { path, name } = decode(request)?;
            let name = Some(name.as_deref().unwrap_or_default());
            policies::set_storage_policy(gateway, caller, &path, name).await.and_then(nothing)
        }
        "unsetStoragePolicy" => {
            policies::set_storage_policy(gateway, caller, &path(request)?, None).await.and_then(nothing)
        }
        "satisfyStoragePolicy" => Err(policies::satisfy()),
        "getErasureCodingPolicies" => done(policies::coding_policies()),
        "getErasureCodingCodecs" => done(policies::codecs()),
        "getErasureCodingPolicy" => {
            let policy = policies::coding_policy(gateway, caller, &path(request)?).await?;
            done(CodingPolicyAnswer { policy })
        }
        "setErasureCodingPolicy" => {
            policies::set_coding_policy(gateway, caller, decode(request)?).await.and_then(nothing)
        }
        _ => policies::unset_coding_policy(gateway, caller, &path(request)?).await.and_then(nothing),
    }
}

/// The answer of calls that say nothing.
fn nothing((): ()) -> Result<Vec<u8>, Refusal> {
    done(EmptyAnswer {})
}
