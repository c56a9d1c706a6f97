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
use base::limit::{HDFS_CALL_FIELDS_MAX, HDFS_LONG_CALL_FIELDS_MAX};
use base::protobuf::{self, Bounds};
use bytes::Bytes;
use prost::Message;
use std::sync::Arc;

const CLIENT: &str = "org.apache.hadoop.hdfs.protocol.ClientProtocol";
const CLIENT_DATANODE: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

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
            let opened = matches!(method, "create" | "append");
            let now = if opened { elsewhere(gateway, caller, method, request).await } else { None };
            return now.or(Some(Ok(answer.to_vec())));
        }
        Some(Known::Do(turn)) => Some(turn),
        None => None,
    };
    let done = match elsewhere(gateway, caller, method, request.clone()).await {
        None => client(gateway, caller, method, request).await,
        done => done,
    };
    if let (Some(turn), Some(Ok(answer))) = (turn, &done) {
        turn.done(gateway.clock.as_ref(), answer);
    }
    done
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
