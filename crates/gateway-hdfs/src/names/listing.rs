//! Looking: statuses, listings, and what is said of one file.

use crate::caller::Caller;
use crate::files::located::{self, PlacesFor, Servers};
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::hdfs::FileStatus;
use crate::message::names::{
    BatchedKey, BatchedListing, BatchedListingAnswer, BatchedListingRequest, Listing, ListingRequest, RemoteFailure,
};
use crate::names::resolved_path::{Purpose, ResolvedPath};
use crate::names::status::file_status;
use crate::refusal::{ACCESS_CONTROL, FILE_NOT_FOUND, JAVA_ARGUMENT, Refusal};
use base::checksum::crc32c;
use base::error::ErrorKind;
use base::limit::{HDFS_ENTRIES_AT_ONCE, HDFS_LOCATED_PAGE, HDFS_PAGE, HDFS_PAGE_BYTES, LIST_PAGE_MAX};
use base::permission::{ALL, READ, WRITE, Wanted};
use client::{Attributes, Listed};
use prost::Message;

/// Most directories in one batched listing, as in HDFS.
const BATCH_MAX: usize = 100;

/// Does getFileInfo, getFileLinkInfo and, with `located`, getLocatedFileInfo. None: there is nothing of that name.
pub(crate) async fn info(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
    located: bool,
) -> Result<Option<FileStatus>, Refusal> {
    let resolved = match ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::default()).await {
        // To a superuser there is just nothing below a file.
        Err(refusal) if caller.superuser && refusal.class == ACCESS_CONTROL => return Ok(None),
        resolved => resolved?,
    };
    match resolved.last() {
        None => Ok(None),
        Some(attributes) => {
            let mut servers = servers(gateway, located && !attributes.directory, PlacesFor::Reading).await?;
            let policy = policy_above(&resolved);
            status(gateway, caller, ("", unlisted(attributes)), policy, servers.as_mut()).await.map(Some)
        }
    }
}

/// Does getListing. None: there is nothing of that name.
pub(crate) async fn listing(
    gateway: &Gateway,
    caller: &Caller,
    ask: ListingRequest,
) -> Result<Option<Listing>, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, &ask.path, Purpose::Read, Wanted::default()).await?;
    let Some(last) = resolved.last() else { return Ok(None) };
    if !last.directory {
        let mut servers = servers(gateway, ask.located, PlacesFor::Planning).await?;
        let entry = status(gateway, caller, ("", unlisted(last)), policy_above(&resolved), servers.as_mut()).await?;
        return Ok(Some(Listing { entries: vec![entry], remaining: 0 }));
    }
    let after = after_name(gateway, caller, ask.after).await?;
    caller.share.answer(page_memory(ask.located)).await;
    let client = caller.judged(&gateway.client);
    let page = match ask.located {
        true => client.list_located(&resolved.path, &after, LIST_PAGE_MAX as u32).await,
        false => client.list(&resolved.path, &after, LIST_PAGE_MAX as u32).await,
    };
    let page = match page {
        Ok(page) => page,
        // It went between the two questions.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let own = HdfsAttributes::read(&last.note).storage_policy;
    let policy = if own == 0 { policy_above(&resolved) } else { own };
    // After the page: who came since is in it.
    let wanted = ask.located && page.entries.iter().any(|entry| !entry.attributes.directory);
    let mut servers = servers(gateway, wanted, PlacesFor::Planning).await?;
    let mut entries = Vec::with_capacity(page.entries.len());
    let (mut blocks, mut bytes, mut more) = (0, 0, page.more);
    let count = page.entries.len();
    for entry in page.entries {
        let listed = Listed { attributes: &entry.attributes, extents: &entry.extents };
        let status = status(gateway, caller, (&entry.name, listed), policy, servers.as_mut()).await?;
        bytes += status.encoded_len();
        blocks += status.locations.as_ref().map_or(0, |locations| locations.blocks.len());
        entries.push(status);
        if entries.len().is_multiple_of(HDFS_ENTRIES_AT_ONCE) {
            tokio::task::yield_now().await;
        }
        if blocks >= LIST_PAGE_MAX || bytes >= if ask.located { HDFS_LOCATED_PAGE } else { HDFS_PAGE_BYTES } {
            more |= entries.len() < count;
            break;
        }
    }
    Ok(Some(Listing { entries, remaining: u32::from(more) }))
}

/// Memory for a page and what it is made from.
fn page_memory(located: bool) -> usize {
    if located { HDFS_LOCATED_PAGE } else { HDFS_PAGE }
}

/// Does getBatchedListing: one page after another of several directories.
pub(crate) async fn batched(
    gateway: &Gateway,
    caller: &Caller,
    ask: BatchedListingRequest,
) -> Result<BatchedListingAnswer, Refusal> {
    let BatchedListingRequest { paths, after, located } = ask;
    if paths.len() > BATCH_MAX {
        let text = format!("Too many source paths ({} > {BATCH_MAX})", paths.len());
        return Err(Refusal::new(JAVA_ARGUMENT, text));
    }
    // The last page begins when the others are not full.
    caller.share.answer(2 * page_memory(located)).await;
    let checksum = crc32c(paths.join("\0").as_bytes()).to_string().into_bytes();
    let (mut place, mut after_name) = (0, Vec::new());
    if !after.is_empty() {
        let key = BatchedKey::decode(after.as_slice()).unwrap_or_default();
        if key.checksum != checksum {
            return Err(Refusal::new(JAVA_ARGUMENT, "this is not where a listing of these paths ended"));
        }
        place = (key.path as usize).saturating_add(usize::from(key.after.is_empty()));
        after_name = key.after;
    }
    let (mut listings, mut count, mut bytes) = (Vec::new(), 0, 0);
    while let Some(path) = paths.get(place) {
        let page = ListingRequest { path: path.clone(), after: std::mem::take(&mut after_name), located };
        let missing = || Refusal::new(FILE_NOT_FOUND, format!("Path {path} does not exist"));
        let mut rest = Vec::new();
        let (entries, failure) = match listing(gateway, caller, page).await.and_then(|page| page.ok_or_else(missing)) {
            Ok(page) => {
                if page.remaining > 0 {
                    rest = page.entries.last().map(|entry| entry.path.clone()).unwrap_or_default();
                }
                (page.entries, None)
            }
            Err(Refusal { class, text, .. }) => {
                (Vec::new(), Some(RemoteFailure { class: class.to_string(), text: Some(text) }))
            }
        };
        count += entries.len();
        let listed = BatchedListing { entries, path: place as u32, failure };
        bytes += listed.encoded_len();
        listings.push(listed);
        let last = place + 1 == paths.len() && rest.is_empty();
        if (count >= LIST_PAGE_MAX || bytes >= HDFS_PAGE_BYTES || !rest.is_empty()) && !last {
            let after = BatchedKey { checksum, path: place as u32, after: rest }.encode_to_vec();
            return Ok(BatchedListingAnswer { listings, more: true, after });
        }
        place += 1;
    }
    Ok(BatchedListingAnswer { listings, more: false, after: Vec::new() })
}

/// Does getPreferredBlockSize.
pub(crate) async fn block_size(gateway: &Gateway, caller: &Caller, path: &str) -> Result<u64, Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::default()).await?;
    Ok(HdfsAttributes::read(&resolved.file()?.note).block_size())
}

/// Does checkAccess.
pub(crate) async fn check_access(gateway: &Gateway, caller: &Caller, path: &str, access: u32) -> Result<(), Refusal> {
    let resolved = ResolvedPath::look(gateway, caller, path, Purpose::Read, Wanted::access(access & ALL)).await?;
    resolved.any("Path not found: ").map(drop)
}

/// The file at a path, if the caller may do this with it: rights as bits of `base::permission`. Its path as the store has it comes too.
pub(crate) async fn file_for(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
    access: u32,
) -> Result<(String, Attributes), Refusal> {
    let resolved = way_to_file(gateway, caller, path, access).await?;
    let file = resolved.file()?.clone();
    Ok((resolved.path, file))
}

/// The same with everything on the way.
pub(crate) async fn way_to_file(
    gateway: &Gateway,
    caller: &Caller,
    path: &str,
    access: u32,
) -> Result<ResolvedPath, Refusal> {
    let purpose = if access & WRITE == 0 { Purpose::Read } else { Purpose::Write };
    let resolved = match ResolvedPath::look(gateway, caller, path, purpose, Wanted::access(access)).await {
        // That it is no file is said before.
        Err(refusal) if refusal.class == ACCESS_CONTROL => {
            ResolvedPath::look(gateway, caller, path, purpose, Wanted::default()).await?.file()?;
            return Err(refusal);
        }
        resolved => resolved?,
    };
    let file = resolved.file()?;
    if caller.superuser && access & READ != 0 && HdfsAttributes::read(&file.note).unreadable_by_superuser {
        let text = format!(
            "Access is denied for {} since the superuser is not allowed to perform this operation.",
            caller.user
        );
        return Err(Refusal::new(ACCESS_CONTROL, text));
    }
    Ok(resolved)
}

/// The storage policy that what is named inherits; zero: none.
pub(crate) fn policy_above(resolved: &ResolvedPath) -> u32 {
    let policies = resolved.above.iter().rev().filter(|above| !above.note.is_empty());
    policies.map(|above| HdfsAttributes::read(&above.note).storage_policy).find(|policy| *policy != 0).unwrap_or(0)
}

/// What was looked up by itself: nobody said where its bytes are.
fn unlisted(attributes: &Attributes) -> Listed<'_> {
    Listed { attributes, extents: &[] }
}

/// Who serves blocks, if that is wanted. With directories alone it is not: whoever was not told yet asks for it.
async fn servers(gateway: &Gateway, wanted: bool, places: PlacesFor) -> Result<Option<Servers>, Refusal> {
    Ok(if wanted { Some(Servers::of(gateway, places).await?) } else { None })
}

async fn status(
    gateway: &Gateway,
    caller: &Caller,
    (name, listed): (&str, Listed<'_>),
    policy_above: u32,
    servers: Option<&mut Servers>,
) -> Result<FileStatus, Refusal> {
    let attributes = listed.attributes;
    let note =
        if attributes.note.is_empty() { HdfsAttributes::default() } else { HdfsAttributes::read(&attributes.note) };
    let mut status = file_status(name, attributes, &note, &gateway.superuser);
    if note.storage_policy == 0 {
        status.storage_policy = Some(policy_above);
    }
    if let Some(servers) = servers.filter(|_| !attributes.directory) {
        status.locations = Some(located::located(gateway, caller, servers, (listed, &note)).await?);
    }
    Ok(status)
}

/// The name after which a listing goes on: clients may say a whole path of a file by its number.
async fn after_name(gateway: &Gateway, caller: &Caller, after: Vec<u8>) -> Result<String, Refusal> {
    let after = String::from_utf8(after).map_err(|_| Refusal::io("the name to go on after is not UTF-8"))?;
    if !after.starts_with('/') {
        return Ok(after);
    }
    let resolved = ResolvedPath::look(gateway, caller, &after, Purpose::Read, Wanted::default()).await?;
    Ok(resolved.name().to_string())
}
