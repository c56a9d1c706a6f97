//! Calls about names, attributes, permissions and policies whose messages say less or more than what is done needs.

use super::set::{self, AclChange};
use super::{listing, policies, usage, xattrs};
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::names::{
    AclAnswer, AclRequest, BlockSizeAnswer, CheckAccessRequest, EnclosingRootAnswer, ListingAnswer, ListingRequest,
    PathRequest, StatusAnswer, XattrsAnswer, XattrsRequest,
};
use crate::message::policies::{
    CodecsAnswer, CodingPoliciesAnswer, CodingPolicyAnswer, QuotaAnswer, SetPolicyRequest, StoragePoliciesAnswer,
    StoragePolicyAnswer, SummaryAnswer,
};
use crate::refusal::Refusal;

type Done<T> = Result<T, Refusal>;

/// What has this name.
pub async fn info(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<StatusAnswer> {
    Ok(StatusAnswer { status: listing::info(gateway, caller, &ask.path, false).await? })
}

/// The same, with its blocks.
pub async fn located_info(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<StatusAnswer> {
    Ok(StatusAnswer { status: listing::info(gateway, caller, &ask.path, true).await? })
}

/// A page of a directory.
pub async fn listing(gateway: &Gateway, caller: &Caller, ask: ListingRequest) -> Done<ListingAnswer> {
    Ok(ListingAnswer { listing: listing::listing(gateway, caller, ask).await? })
}

/// Bytes in a block of a file.
pub async fn block_size(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<BlockSizeAnswer> {
    Ok(BlockSizeAnswer { bytes: listing::block_size(gateway, caller, &ask.path).await? })
}

/// Whether the caller may do what is asked.
pub async fn check_access(gateway: &Gateway, caller: &Caller, ask: CheckAccessRequest) -> Done<()> {
    listing::check_access(gateway, caller, &ask.path, ask.access).await
}

/// The whole store is one.
pub async fn enclosing_root(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<EnclosingRootAnswer> {
    listing::info(gateway, caller, &ask.path, false).await?;
    Ok(EnclosingRootAnswer { path: Some("/".to_string()) })
}

/// There are no symbolic links.
pub async fn create_symlink(_: &Gateway, _: &Caller, (): ()) -> Done<()> {
    Err(Refusal::unsupported("Symlinks not supported"))
}

/// So nothing is one.
pub async fn link_target(gateway: &Gateway, caller: &Caller, PathRequest { path }: PathRequest) -> Done<()> {
    match listing::info(gateway, caller, &path, false).await? {
        None => Err(Refusal::not_found(format!("File does not exist: {path}"))),
        Some(_) => Err(Refusal::io(format!("Path {path} is not a symbolic link"))),
    }
}

/// Extended attributes with their values.
pub async fn xattrs(gateway: &Gateway, caller: &Caller, ask: XattrsRequest) -> Done<XattrsAnswer> {
    Ok(XattrsAnswer { xattrs: xattrs::get(gateway, caller, ask).await? })
}

/// All of them, whatever is asked for.
pub async fn list_xattrs(gateway: &Gateway, caller: &Caller, ask: XattrsRequest) -> Done<XattrsAnswer> {
    xattrs(gateway, caller, XattrsRequest { xattrs: Vec::new(), ..ask }).await
}

/// An access control list.
pub async fn acl(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<AclAnswer> {
    Ok(AclAnswer { status: set::acl_status(gateway, caller, &ask.path).await? })
}

/// Adds entries to it, or replaces those about the same.
pub async fn modify_acl(gateway: &Gateway, caller: &Caller, ask: AclRequest) -> Done<()> {
    set::change_acl(gateway, caller, AclChange::Modify, ask).await
}

/// Takes entries out of it.
pub async fn remove_acl_entries(gateway: &Gateway, caller: &Caller, ask: AclRequest) -> Done<()> {
    set::change_acl(gateway, caller, AclChange::RemoveEntries, ask).await
}

/// Takes out what new names below would get.
pub async fn remove_default_acl(gateway: &Gateway, caller: &Caller, ask: AclRequest) -> Done<()> {
    set::change_acl(gateway, caller, AclChange::RemoveDefault, ask).await
}

/// Takes all of it away.
pub async fn remove_acl(gateway: &Gateway, caller: &Caller, ask: AclRequest) -> Done<()> {
    set::change_acl(gateway, caller, AclChange::Remove, ask).await
}

/// Replaces it.
pub async fn set_acl(gateway: &Gateway, caller: &Caller, ask: AclRequest) -> Done<()> {
    set::change_acl(gateway, caller, AclChange::Set, ask).await
}

/// What is below a directory.
pub async fn summary(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<SummaryAnswer> {
    Ok(SummaryAnswer { summary: usage::summary(gateway, caller, &ask.path).await? })
}

/// What counts against its quotas.
pub async fn quota_usage(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<QuotaAnswer> {
    Ok(QuotaAnswer { usage: usage::quota_usage(gateway, caller, &ask.path).await? })
}

/// All storage policies.
pub async fn storage_policies(_: &Gateway, _: &Caller, (): ()) -> Done<StoragePoliciesAnswer> {
    Ok(policies::storage_policies())
}

/// The one in force.
pub async fn storage_policy(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<StoragePolicyAnswer> {
    Ok(StoragePolicyAnswer { policy: policies::storage_policy(gateway, caller, &ask.path).await? })
}

/// Sets it.
pub async fn set_storage_policy(gateway: &Gateway, caller: &Caller, ask: SetPolicyRequest) -> Done<()> {
    policies::set_storage_policy(gateway, caller, &ask.path, Some(ask.name.as_deref().unwrap_or_default())).await
}

/// As the directory above has it.
pub async fn unset_storage_policy(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<()> {
    policies::set_storage_policy(gateway, caller, &ask.path, None).await
}

/// Nothing is moved for a policy.
pub async fn satisfy_storage_policy(_: &Gateway, _: &Caller, (): ()) -> Done<()> {
    Err(policies::satisfy())
}

/// All erasure coding policies.
pub async fn coding_policies(_: &Gateway, _: &Caller, (): ()) -> Done<CodingPoliciesAnswer> {
    Ok(policies::coding_policies())
}

/// Those who would compute them.
pub async fn codecs(_: &Gateway, _: &Caller, (): ()) -> Done<CodecsAnswer> {
    Ok(policies::codecs())
}

/// The one in force.
pub async fn coding_policy(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<CodingPolicyAnswer> {
    Ok(CodingPolicyAnswer { policy: policies::coding_policy(gateway, caller, &ask.path).await? })
}

/// As the directory above has it.
pub async fn unset_coding_policy(gateway: &Gateway, caller: &Caller, ask: PathRequest) -> Done<()> {
    policies::unset_coding_policy(gateway, caller, &ask.path).await
}
