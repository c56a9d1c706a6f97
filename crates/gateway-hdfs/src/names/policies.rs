//! Storage policies and erasure coding labels: accepted, kept, inherited and listed. Where bytes lie is the store's own affair.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::policies::{
    Codec, CodecsAnswer, CodingPoliciesAnswer, CodingPolicy, SetPolicyRequest, StoragePoliciesAnswer, StoragePolicy,
    StorageTypes,
};
use crate::names::listing::policy_above;
use crate::names::looks::Looks;
use crate::names::resolved_path::{Purpose, ResolvedPath};
use crate::names::set::change_note;
use crate::refusal::{ILLEGAL_ARGUMENT, NO_CODING_POLICY, Refusal, UNSUPPORTED_ACTION};
use base::permission::{READ, WRITE, Wanted};

const DISK: i32 = 1;
const SSD: i32 = 2;
const ARCHIVE: i32 = 3;
const RAM_DISK: i32 = 4;
const PROVIDED: i32 = 5;
const NVDIMM: i32 = 6;

/// A storage policy: number, name, where copies go, and where they go if there is no room: new ones, further ones.
type Row = (u32, &'static str, &'static [i32], &'static [i32], &'static [i32]);

const STORAGE_POLICIES: [Row; 8] = [
    (1, "PROVIDED", &[PROVIDED, DISK], &[PROVIDED, DISK], &[PROVIDED, DISK]),
    (2, "COLD", &[ARCHIVE], &[], &[]),
    (5, "WARM", &[DISK, ARCHIVE], &[DISK, ARCHIVE], &[DISK, ARCHIVE]),
    (HOT, "HOT", &[DISK], &[], &[ARCHIVE]),
    (10, "ONE_SSD", &[SSD, DISK], &[SSD, DISK], &[SSD, DISK]),
    (12, "ALL_SSD", &[SSD], &[DISK], &[DISK]),
    (14, "ALL_NVDIMM", &[NVDIMM], &[DISK], &[DISK]),
    (LAZY_PERSIST, "LAZY_PERSIST", &[RAM_DISK, DISK], &[DISK], &[DISK]),
];
const HOT: u32 = 7;
/// Number of the policy of files that may be lost with the memory.
pub(crate) const LAZY_PERSIST: u32 = 15;

/// Erasure coding policies that every client knows, by number; 0 is none.
const CODING_POLICIES: [(u32, &str); 6] = [
    (5, "RS-10-4-1024k"),
    (2, "RS-3-2-1024k"),
    (1, "RS-6-3-1024k"),
    (3, "RS-LEGACY-6-3-1024k"),
    (4, "XOR-2-1-1024k"),
    (0, "REPLICATION"),
];
/// What setErasureCodingPolicy means without a name.
const USUAL_CODING: &str = "RS-6-3-1024k";
/// `CodingPolicy::state` of one that may be set.
const ENABLED: i32 = 2;

/// Does getStoragePolicies.
pub(crate) fn storage_policies() -> StoragePoliciesAnswer {
    StoragePoliciesAnswer { policies: STORAGE_POLICIES.iter().map(wire).collect() }
}

/// Does getStoragePolicy: the one in force.
pub(crate) async fn storage_policy(gateway: &Gateway, caller: &Caller, path: &str) -> Result<StoragePolicy, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::access(READ)).await?;
    let own = HdfsAttributes::read(&resolved.any("File/Directory does not exist: ")?.note).storage_policy;
    let number = if own == 0 { policy_above(&resolved) } else { own };
    let row = STORAGE_POLICIES.iter().find(|row| row.0 == number);
    let hot = STORAGE_POLICIES.iter().find(|row| row.0 == HOT);
    row.or(hot).map(wire).ok_or_else(|| Refusal::io("there is no storage policy in force"))
}

/// Does setStoragePolicy, and without a name unsetStoragePolicy.
pub(crate) async fn set_storage_policy(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
    name: Option<&str>,
) -> Result<(), Refusal> {
    let number = match name {
        None => 0,
        Some(name) => storage_policy_named(name)?,
    };
    let mut looks = Looks::default();
    loop {
        let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Write, Wanted::access(WRITE)).await?;
        let last = resolved.any("File/Directory does not exist: ")?;
        if !last.directory && number == LAZY_PERSIST {
            let text = "Policy LAZY_PERSIST cannot be set after file creation.";
            return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
        }
        if !last.directory && HdfsAttributes::read(&last.note).storage_policy == LAZY_PERSIST {
            let text = "Existing policy LAZY_PERSIST cannot be changed after file creation.";
            return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
        }
        match change_note(gateway, &resolved, None, |note| note.storage_policy = number).await? {
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// The number of a storage policy by its name, in any case.
pub(crate) fn storage_policy_named(name: &str) -> Result<u32, Refusal> {
    let row = STORAGE_POLICIES.iter().find(|row| row.1.eq_ignore_ascii_case(name));
    let unknown = || Refusal::new(ILLEGAL_ARGUMENT, format!("Cannot find a block policy with the name {name}"));
    row.map(|row| row.0).ok_or_else(unknown)
}

/// Answers satisfyStoragePolicy as an HDFS does that has it switched off.
pub(crate) fn satisfy() -> Refusal {
    let text = "Cannot request to satisfy storage policy when storage policy satisfier feature has been disabled by \
                admin. Seek for an admin help to enable it or use Mover tool.";
    Refusal::new(UNSUPPORTED_ACTION, text)
}

/// Does getErasureCodingPolicies.
pub(crate) fn coding_policies() -> CodingPoliciesAnswer {
    let known = CODING_POLICIES.iter().filter(|(id, _)| *id != 0);
    CodingPoliciesAnswer { policies: known.map(|(id, _)| CodingPolicy { id: *id, state: Some(ENABLED) }).collect() }
}

/// Does getErasureCodingCodecs: those that clients have.
pub(crate) fn codecs() -> CodecsAnswer {
    let known = [("rs", "rs_java"), ("rs-legacy", "rs-legacy_java"), ("xor", "xor_java")];
    let codec = |(codec, coders): (&str, &str)| Codec { codec: codec.to_string(), coders: coders.to_string() };
    CodecsAnswer { codecs: known.into_iter().map(codec).collect() }
}

/// Does getErasureCodingPolicy: the label in force on a directory. Files have none: all are shown as replicated.
pub(crate) async fn coding_policy(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
) -> Result<Option<CodingPolicy>, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::access(READ)).await?;
    if !resolved.any("Path not found: ")?.directory {
        return Ok(None);
    }
    let label = coding_label(&resolved);
    let known = CODING_POLICIES.iter().find(|(id, name)| *id != 0 && *name == label);
    Ok(known.map(|(id, _)| CodingPolicy { id: *id, state: None }))
}

/// The label in force on a directory; empty: none was set.
pub(crate) fn coding_label(resolved: &ResolvedPath) -> String {
    let labels = resolved.all().rev().filter(|found| !found.note.is_empty());
    labels
        .map(|found| HdfsAttributes::read(&found.note).erasure_coding)
        .find(|label| !label.is_empty())
        .unwrap_or_default()
}

/// Does setErasureCodingPolicy.
pub(crate) async fn set_coding_policy(
    gateway: &Gateway,
    caller: &Caller,
    ask: SetPolicyRequest,
) -> Result<(), Refusal> {
    let name = ask.name.filter(|name| !name.is_empty()).unwrap_or_else(|| USUAL_CODING.to_string());
    check_coding_policy(&name)?;
    let mut looks = Looks::default();
    loop {
        let refusal = "Attempt to set an erasure coding policy for a file";
        let resolved = coded_directory(gateway, caller, &ask.path, refusal).await?;
        match change_note(gateway, &resolved, None, |note| note.erasure_coding.clone_from(&name)).await? {
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// Does unsetErasureCodingPolicy.
pub(crate) async fn unset_coding_policy(gateway: &Gateway, caller: &Caller, path: &str) -> Result<(), Refusal> {
    let mut looks = Looks::default();
    loop {
        let resolved =
            coded_directory(gateway, caller, path, "Cannot unset an erasure coding policy on a file").await?;
        if resolved.last().is_none_or(|last| HdfsAttributes::read(&last.note).erasure_coding.is_empty()) {
            let text = format!("No erasure coding policy explicitly set on {}", resolved.path);
            return Err(Refusal::new(NO_CODING_POLICY, text));
        }
        match change_note(gateway, &resolved, None, |note| note.erasure_coding.clear()).await? {
            Err(error) => looks.again(error)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// Refuses the name of an erasure coding policy that there is not.
pub(crate) fn check_coding_policy(name: &str) -> Result<(), Refusal> {
    if CODING_POLICIES.iter().any(|(_, known)| *known == name) {
        return Ok(());
    }
    let known: Vec<&str> = CODING_POLICIES.iter().filter(|(id, _)| *id != 0).map(|(_, name)| *name).collect();
    let text = format!(
        "Policy '{name}' does not match any enabled erasure coding policies: [{}]. An erasure coding policy can be enabled \
         by enableErasureCodingPolicy API.",
        known.join(", ")
    );
    Err(Refusal::new(ILLEGAL_ARGUMENT, text))
}

async fn coded_directory(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
    refusal: &str,
) -> Result<ResolvedPath, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Write, Wanted::access(WRITE)).await?;
    if !resolved.any("Path not found: ")?.directory {
        return Err(Refusal::io(format!("{refusal} {}", resolved.path)));
    }
    Ok(resolved)
}

fn wire(row: &Row) -> StoragePolicy {
    let (id, name, creation, creation_fallback, replication_fallback) = *row;
    let types = |types: &[i32]| StorageTypes { types: types.to_vec() };
    StoragePolicy {
        id,
        name: name.to_string(),
        creation: types(creation),
        creation_fallback: Some(types(creation_fallback)),
        replication_fallback: Some(types(replication_fallback)),
    }
}
