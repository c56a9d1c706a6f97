//! Sums over trees: content summary, quotas and their usage.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::policies::{QuotaUsage, SetQuotaRequest, Summary};
use crate::names::permission;
use crate::names::policies::coding_label;
use crate::names::resolved_path::{Purpose, ResolvedPath};
use crate::names::walk::Walk;
use crate::refusal::{JAVA_ARGUMENT, NOT_DIRECTORY, Refusal};
use base::permission::{EXECUTE, READ, Wanted};
use client::{Attributes, NewQuota};

/// A quota that is none, and in setQuota one that is to be cleared.
const NONE: u64 = u64::MAX;
/// A quota that setQuota leaves as it is.
const UNCHANGED: u64 = i64::MAX as u64;

/// Does getContentSummary.
pub(crate) async fn summary(gateway: &Gateway, caller: &Caller, path: &str) -> Result<Summary, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::default()).await?;
    let top = resolved.any("File does not exist: ")?;
    let coding = if top.directory { coding_label(&resolved) } else { "Replicated".to_string() };
    let mut summary = Summary {
        quota: NONE,
        space_quota: NONE,
        snapshot_length: Some(0),
        snapshot_files: Some(0),
        snapshot_directories: Some(0),
        snapshot_consumed: Some(0),
        coding: Some(coding),
        ..Summary::default()
    };
    add(&mut summary, top);
    if top.directory {
        // Also of an empty one: where the caller may not list nothing can be counted.
        resolved.judge(gateway, caller, Wanted::access(READ | EXECUTE)).await?;
        if let Some(quota) = gateway.client.quota(&resolved.path).await? {
            (summary.quota, summary.space_quota) = (quota.names_max.unwrap_or(NONE), quota.bytes_max.unwrap_or(NONE));
        }
        let _turn = caller.share.stand(gateway.walks.turn(&caller.user)).await?;
        let mut walk = Walk::new(caller.judged(&gateway.client), &resolved.path);
        while let Some(entry) = walk.next().await? {
            add(&mut summary, &entry.attributes);
        }
    }
    Ok(summary)
}

/// Does getQuotaUsage.
pub(crate) async fn quota_usage(gateway: &Gateway, caller: &Caller, path: &str) -> Result<QuotaUsage, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::default()).await?;
    let top = resolved.any("File does not exist: ")?;
    if top.directory
        && let Some(quota) = gateway.client.quota(&resolved.path).await?
    {
        resolved.judge(gateway, caller, Wanted::access(READ | EXECUTE)).await?;
        let (quota_names, space_quota) = (quota.names_max.unwrap_or(NONE), quota.bytes_max.unwrap_or(NONE));
        return Ok(QuotaUsage { names: quota.names, quota: quota_names, consumed: quota.bytes, space_quota });
    }
    let summary = summary(gateway, caller, path).await?;
    let names = summary.files.saturating_add(summary.directories);
    Ok(QuotaUsage { names, quota: summary.quota, consumed: summary.consumed, space_quota: summary.space_quota })
}

/// Does setQuota.
pub(crate) async fn set_quota(gateway: &Gateway, caller: &Caller, ask: SetQuotaRequest) -> Result<(), Refusal> {
    let SetQuotaRequest { path, names, bytes, storage } = ask;
    if !caller.superuser {
        let operation = match (names, bytes) {
            (NONE, UNCHANGED) => "clearQuota",
            (UNCHANGED, NONE) => "clearSpaceQuota",
            (_, UNCHANGED) => "setQuota",
            _ => "setSpaceQuota",
        };
        return Err(permission::superuser_only(caller, operation));
    }
    let resolved = ResolvedPath::look(gateway, caller, &path, Purpose::Write, Wanted::default()).await?;
    if [names, bytes].into_iter().any(|quota| quota != NONE && quota > UNCHANGED) {
        let text = format!("Illegal value for nsQuota or ssQuota : {} and {}", names as i64, bytes as i64);
        return Err(Refusal::new(JAVA_ARGUMENT, text));
    }
    let last = resolved.any("Directory does not exist: ")?;
    if !last.directory {
        return Err(Refusal::new(NOT_DIRECTORY, format!("`{}': Is not a directory", resolved.path)));
    }
    if storage.is_some() {
        return match bytes {
            NONE => Ok(()),
            _ => Err(Refusal::unsupported(
                "This store keeps no quotas of storage types: nothing was limited. A quota of all bytes (-setSpaceQuota without \
                 -storageType) is kept.",
            )),
        };
    }
    if resolved.is_root() && names == NONE {
        return Err(Refusal::new(JAVA_ARGUMENT, "Cannot clear namespace quota on root."));
    }
    let limit = |quota| match quota {
        UNCHANGED => None,
        NONE => Some(None),
        most => Some(Some(most)),
    };
    gateway.client.set_quota(&resolved.path, NewQuota { names: limit(names), bytes: limit(bytes) }).await?;
    Ok(())
}

/// Counts one file or directory.
fn add(summary: &mut Summary, attributes: &Attributes) {
    if attributes.directory {
        summary.directories += 1;
        return;
    }
    let copies = HdfsAttributes::read(&attributes.note).replication();
    summary.files += 1;
    summary.length = summary.length.saturating_add(attributes.length);
    summary.consumed = summary.consumed.saturating_add(attributes.length.saturating_mul(copies.into()));
}
