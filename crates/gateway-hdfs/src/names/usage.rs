//! Sums over trees: content summary, quota usage.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::policies::{QuotaUsage, SetQuotaRequest, Summary};
use crate::names::permission::{self, EXECUTE, READ};
use crate::names::policies::coding_label;
use crate::names::walk::Walk;
use crate::names::way::{Purpose, Way};
use crate::note::Note;
use crate::refusal::{NOT_DIRECTORY, Refusal};
use client::Attributes;

/// A quota that is none, and in setQuota one that is to be cleared.
const NONE: u64 = u64::MAX;
/// A quota that setQuota leaves as it is.
const UNCHANGED: u64 = i64::MAX as u64;

/// Does getContentSummary.
pub(crate) async fn summary(gateway: &Gateway, caller: &Caller, path: &str) -> Result<Summary, Refusal> {
    let way = Way::look(gateway, caller, path, Purpose::Read).await?;
    let top = way.any("File does not exist: ")?;
    let coding = if top.directory { coding_label(&way) } else { "Replicated".to_string() };
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
    add(gateway, caller, &mut summary, top, &way.path)?;
    if top.directory {
        let mut walk = Walk::new(gateway, &way.path, top.clone());
        while let Some((_, above, entry)) = walk.next().await? {
            let path = format!("{}/{}", above.trim_end_matches('/'), entry.name);
            add(gateway, caller, &mut summary, &entry.attributes, &path)?;
        }
    }
    Ok(summary)
}

/// Does getQuotaUsage.
pub(crate) async fn quota_usage(gateway: &Gateway, caller: &Caller, path: &str) -> Result<QuotaUsage, Refusal> {
    let summary = summary(gateway, caller, path).await?;
    let names = summary.files.saturating_add(summary.directories);
    Ok(QuotaUsage { names, quota: summary.quota, consumed: summary.consumed, space_quota: summary.space_quota })
}

/// Does setQuota as far as it can: there are no quotas, so clearing them is all that is granted.
pub(crate) async fn set_quota(gateway: &Gateway, caller: &Caller, ask: SetQuotaRequest) -> Result<(), Refusal> {
    if !caller.superuser {
        let operation = match (ask.names, ask.bytes) {
            (NONE, UNCHANGED) => "clearQuota",
            (UNCHANGED, NONE) => "clearSpaceQuota",
            (_, UNCHANGED) => "setQuota",
            _ => "setSpaceQuota",
        };
        return Err(permission::superuser_only(caller, operation));
    }
    let way = Way::look(gateway, caller, &ask.path, Purpose::Write).await?;
    let last = way.any("Directory does not exist: ")?;
    if !last.directory {
        return Err(Refusal::new(NOT_DIRECTORY, format!("`{}': Is not a directory", way.path)));
    }
    match [ask.names, ask.bytes].into_iter().all(|quota| quota == NONE || quota == UNCHANGED) {
        true => Ok(()),
        false => Err(Refusal::unsupported(
            "This store does not keep quotas yet: nothing was limited. `hdfs dfs -count` shows what is used.",
        )),
    }
}

/// Counts one file or directory; in a directory that the caller may not list nothing can be counted.
fn add(
    gateway: &Gateway,
    caller: &Caller,
    summary: &mut Summary,
    attributes: &Attributes,
    path: &str,
) -> Result<(), Refusal> {
    if attributes.directory {
        permission::check_one(&gateway.superuser, caller, attributes, path, READ | EXECUTE)?;
        summary.directories += 1;
        return Ok(());
    }
    let copies = Note::read(&attributes.note).replication();
    summary.files += 1;
    summary.length = summary.length.saturating_add(attributes.length);
    summary.consumed = summary.consumed.saturating_add(attributes.length.saturating_mul(copies.into()));
    Ok(())
}
