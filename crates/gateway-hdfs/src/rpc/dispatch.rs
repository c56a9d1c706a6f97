//! Which room does a call, by its protocol and its method.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::message::decode;
use crate::message::names::BoolAnswer;
use crate::message::rpc::CallHeader;
use crate::refusal::{NO_SUCH_METHOD, NO_SUCH_PROTOCOL, Refusal, VERSION_MISMATCH};
use crate::rpc::budget;
use crate::rpc::methods::{Effect, Elsewhere, Method};
use crate::rpc::retry_cache::Known;
use crate::{cluster, files};
use base::limit::{HDFS_CALL_FIELDS_MAX, HDFS_LONG_CALL_FIELDS_MAX, HDFS_SERVERS_FIELDS_MAX};
use base::protobuf::{self, Bounds};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;

const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const CLIENT_DATANODE: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// The method of ClientDatanodeProtocol that waits for the store.
const VISIBLE_LENGTH: &str = "getReplicaVisibleLength";

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
    let known = if protocol == CLIENT { Method::find(method) } else { None };
    let reads = match known {
        // Of those that are kept, the wait for others who ask the same comes first.
        Some(known) => matches!(known.effect, Effect::Reads | Effect::Once(_)),
        None => (protocol, method) == (CLIENT_DATANODE, VISIBLE_LENGTH),
    };
    caller.share.set_changes(!reads);
    let done = match protocol {
        _ if header.version != PROTOCOL_VERSION => return Err(wrong_version(protocol, header.version)),
        CLIENT => match known {
            Some(known) => Some(client(gateway, caller, known, request).await),
            None => None,
        },
        CLIENT_DATANODE if method == VISIBLE_LENGTH => Some(visible_length(gateway, caller, request).await),
        CLIENT_DATANODE => cluster::datanode(gateway, method),
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

/// The one call of ClientDatanodeProtocol about a block.
async fn visible_length(gateway: &Gateway, caller: &Caller, request: Bytes) -> Result<Vec<u8>, Refusal> {
    Ok(files::located::get_replica_visible_length(gateway, caller, decode(request)?).await?.encode_to_vec())
}

/// A call of ClientProtocol.
async fn client(gateway: &Arc<Gateway>, caller: &Caller, method: &Method, request: Bytes) -> Result<Vec<u8>, Refusal> {
    if method.changes()
        && let Some(refusal) = cluster::refused_in_safe_mode(gateway, method.name)
    {
        return Err(refusal);
    }
    match method.effect {
        Effect::Once(elsewhere) => once(gateway, caller, (method, elsewhere), request).await,
        _ => (method.call)(gateway, caller, request).await,
    }
}

/// A change that a client may ask for again because its answer was lost: done once, answered as often as it is asked.
async fn once(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    (method, kind): (&Method, Elsewhere),
    request: Bytes,
) -> Result<Vec<u8>, Refusal> {
    let turn = match gateway.rpc.retries.begin(caller).await {
        Some(Known::Done(answer)) => {
            // Another gateway may have taken the file that was opened here, when it was asked the same: then it is taken back.
            let (opened, done) = (matches!(kind, Elsewhere::Created | Elsewhere::Appended), Ok(answer.to_vec()));
            caller.share.set_changes(opened);
            let asks = opened || is_undone(kind, &done);
            let now = if asks { elsewhere(gateway, caller, kind, request).await } else { None };
            return now.unwrap_or(done);
        }
        // The first try was refused here, which does not ask elsewhere: it may have waited for the store while a later one was done there.
        Some(Known::Refused(refusal)) => {
            return elsewhere(gateway, caller, kind, request).await.unwrap_or(Err(refusal));
        }
        Some(Known::Do(turn)) => Some(turn),
        None => None,
    };
    caller.share.set_changes(true);
    let done = match elsewhere(gateway, caller, kind, request.clone()).await {
        None => match (method.call)(gateway, caller, request.clone()).await {
            // It may have been done at another gateway just now, which is why it cannot be done here.
            undone if is_undone(kind, &undone) => elsewhere(gateway, caller, kind, request).await.unwrap_or(undone),
            done => done,
        },
        Some(done) => done,
    };
    match (turn, &done) {
        (Some(turn), Ok(answer)) => turn.done(gateway.clock.as_ref(), answer),
        (Some(turn), Err(refusal)) => turn.refused(refusal),
        _ => (),
    }
    done
}

/// Whether a change was refused, or there was nothing to change.
fn is_undone(kind: Elsewhere, done: &Result<Vec<u8>, Refusal>) -> bool {
    match done {
        Err(_) => true,
        Ok(answer) => kind == Elsewhere::Yes && *answer == BoolAnswer { result: false }.encode_to_vec(),
    }
}

/// The answer to a change that was made before through another gateway, if the client asks it again. `None`: it was not.
async fn elsewhere(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    kind: Elsewhere,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    if !caller.again || caller.client_id == [0; 16] {
        return None;
    }
    match caller.store(&gateway.client).answered().await {
        Ok(None) => None,
        Ok(Some(inode)) => Some(answer_of(gateway, caller, (kind, inode), request).await),
        Err(error) => Some(Err(error.into())),
    }
}

async fn answer_of(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    (kind, inode): (Elsewhere, u64),
    request: Bytes,
) -> Result<Vec<u8>, Refusal> {
    Ok(match kind {
        Elsewhere::Created => {
            files::created_elsewhere(gateway, caller, &decode(request)?, inode).await?.encode_to_vec()
        }
        Elsewhere::Appended => {
            files::appended_elsewhere(gateway, caller, &decode(request)?, inode).await?.encode_to_vec()
        }
        Elsewhere::Yes => BoolAnswer { result: true }.encode_to_vec(),
        Elsewhere::Nothing => Vec::new(),
    })
}

fn wrong_version(protocol: &str, version: u64) -> Refusal {
    let text = format!("Protocol {protocol} version mismatch. (client = {version}, server = {PROTOCOL_VERSION})");
    Refusal::new(VERSION_MISMATCH, text)
}
