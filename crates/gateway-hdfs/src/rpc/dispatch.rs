//! Which room does a call, by its protocol and its method.

use crate::caller::Caller;
use crate::files::located;
use crate::gateway::Gateway;
use crate::message::names::BoolAnswer;
use crate::message::rpc::CallHeader;
use crate::refusal::{NO_SUCH_METHOD, NO_SUCH_PROTOCOL, Refusal, VERSION_MISMATCH};
use crate::rpc::budget;
use crate::rpc::retries::{self, Known};
use crate::{cluster, files, names};
use base::limit::{HDFS_CALL_FIELDS_MAX, HDFS_LONG_CALL_FIELDS_MAX, HDFS_SERVERS_FIELDS_MAX};
use base::protobuf::{self, Bounds};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;

const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const CLIENT_DATANODE: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// Calls that change nothing, and may wait for the store: nobody needs their answers when the client is gone.
const READING: [&str; 22] = [
    "checkAccess",
    "getAclStatus",
    "getBatchedListing",
    "getBlockLocations",
    "getContentSummary",
    "getDatanodeReport",
    "getDatanodeStorageReport",
    "getErasureCodingPolicy",
    "getFileInfo",
    "getFileLinkInfo",
    "getFsStats",
    "getLinkTarget",
    "getListing",
    "getLocatedFileInfo",
    "getPreferredBlockSize",
    "getQuotaUsage",
    "getReplicaVisibleLength",
    "getStoragePolicy",
    "getXAttrs",
    "isFileClosed",
    "listOpenFiles",
    "listXAttrs",
];

/// Version of every protocol.
const PROTOCOL_VERSION: u64 = 1;

/// Does a call: the encoded answer, without its length.
pub async fn answer(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    header: &CallHeader,
    request: Bytes,
) -> Result<Vec<u8>, Refusal> {
    let (protocol, method) = (String::from_utf8_lossy(&header.protocol), String::from_utf8_lossy(&header.method));
    let (protocol, method) = (protocol.as_ref(), method.as_ref());
    caller.share.answer(budget::estimate(method, request.len())).await;
    check_fields(method, &request)?;
    // Of those that are kept, the wait for others who ask the same comes first.
    caller.share.set_changes(READING.binary_search(&method).is_err() && !retries::is_kept(method));
    let done = match protocol {
        _ if header.version != PROTOCOL_VERSION => return Err(wrong_version(protocol, header.version)),
        CLIENT if let Some(refusal) = cluster::refused_in_safe_mode(gateway, method) => Some(Err(refusal)),
        CLIENT if retries::is_kept(method) => once(gateway, caller, method, request).await,
        CLIENT => client(gateway, caller, method, request).await,
        CLIENT_DATANODE => match located::call(gateway, caller, method, request.clone()).await {
            None => cluster::datanode(gateway, method),
            done => done,
        },
        _ if cluster::serves(protocol) => cluster::other(gateway, caller, protocol, method, request),
        _ => return Err(Refusal::new(NO_SUCH_PROTOCOL, format!("Unknown protocol: {protocol}"))),
    };
    done.unwrap_or_else(|| {
        let text = format!("Unknown method {method} called on {protocol} protocol.");
        Err(Refusal::new(NO_SUCH_METHOD, text))
    })
}

/// Refuses a request of more fields than its method can need, before it is decoded. None of the lists that are decoded holds others.
fn check_fields(method: &str, request: &[u8]) -> Result<(), Refusal> {
    let fields = match method {
        "concat" => HDFS_LONG_CALL_FIELDS_MAX,
        // Its answer repeats the servers that it names.
        "getAdditionalDatanode" => HDFS_SERVERS_FIELDS_MAX,
        _ => HDFS_CALL_FIELDS_MAX,
    };
    protobuf::check(request, Bounds { fields, depth: 0 }).map_err(|error| Refusal::io(error.text()))
}

/// A call of ClientProtocol, by whichever room knows it.
async fn client(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    if let done @ Some(_) = names::call(gateway, caller, method, request.clone()).await {
        return done;
    }
    if let done @ Some(_) = files::call(gateway, caller, method, request.clone()).await {
        return done;
    }
    if let done @ Some(_) = located::call(gateway, caller, method, request.clone()).await {
        return done;
    }
    cluster::call(gateway, caller, method, request).await
}

/// A change that a client may ask for again because its answer was lost: done once, answered as often as it is asked.
async fn once(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    let turn = match gateway.rpc.retries.begin(caller).await {
        Some(Known::Done(answer)) => {
            // Another gateway may have taken the file that was opened here, when it was asked the same: then it is taken back.
            let (opened, done) = (matches!(method, "create" | "append"), Some(Ok(answer.to_vec())));
            caller.share.set_changes(opened);
            let asks = opened || is_undone(method, &done);
            let now = if asks { elsewhere(gateway, caller, method, request).await } else { None };
            return now.or(done);
        }
        // The first try was refused here, which does not ask elsewhere: it may have waited for the store while a later one was done there.
        Some(Known::Refused(refusal)) => {
            return elsewhere(gateway, caller, method, request).await.or(Some(Err(refusal)));
        }
        Some(Known::Do(turn)) => Some(turn),
        None => None,
    };
    caller.share.set_changes(true);
    let done = match elsewhere(gateway, caller, method, request.clone()).await {
        None => match client(gateway, caller, method, request.clone()).await {
            // It may have been done at another gateway just now, which is why it cannot be done here.
            undone if is_undone(method, &undone) => elsewhere(gateway, caller, method, request).await.or(undone),
            done => done,
        },
        done => done,
    };
    match (turn, &done) {
        (Some(turn), Some(Ok(answer))) => turn.done(gateway.clock.as_ref(), answer),
        (Some(turn), Some(Err(refusal))) => turn.refused(refusal),
        _ => (),
    }
    done
}

/// Whether a change was refused, or there was nothing to change.
fn is_undone(method: &str, done: &Option<Result<Vec<u8>, Refusal>>) -> bool {
    match done {
        Some(Err(_)) => true,
        Some(Ok(answer)) => {
            matches!(method, "delete" | "rename") && *answer == BoolAnswer { result: false }.encode_to_vec()
        }
        None => false,
    }
}

/// The answer to a change that was made before through another gateway, if the client asks it again. `None`: it was not.
async fn elsewhere(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    if !caller.again || caller.client_id == [0; 16] {
        return None;
    }
    match caller.store(&gateway.client).answered().await {
        Ok(None) => None,
        Ok(Some(inode)) => Some(match method {
            "create" | "append" => files::opened_elsewhere(gateway, caller, method, request, inode).await,
            "delete" | "rename" => Ok(BoolAnswer { result: true }.encode_to_vec()),
            // These say nothing.
            _ => Ok(Vec::new()),
        }),
        Err(error) => Some(Err(error.into())),
    }
}

fn wrong_version(protocol: &str, version: u64) -> Refusal {
    let text = format!("Protocol {protocol} version mismatch. (client = {version}, server = {PROTOCOL_VERSION})");
    Refusal::new(VERSION_MISMATCH, text)
}

#[cfg(test)]
mod tests {
    use super::READING;
    use crate::rpc::retries;

    /// The list is searched by halves, and none of it is done only once.
    #[test]
    fn reading() {
        assert!(READING.is_sorted() && !READING.iter().any(|method| retries::is_kept(method)));
    }
}
