//! Files of which there shall be more than one copy: made when they are closed, and made anew when a device is given up.

use super::{Client, Cluster, ask};
use crate::until;
use base::error::ErrorKind;
use base::limit::NODE_SILENCE_MAX;
use base::policy::Level;
use bytes::Bytes;
use net::Payload;
use net::message::{Id, chunk, device, file};
use std::collections::BTreeSet;
use std::time::Duration;

pub async fn want(client: &Client, replicas: u32) {
    want_at(client, "/", replicas).await;
}

/// A file that has a wish of its own keeps it, whatever its directory wants.
async fn want_at(client: &Client, path: &str, replicas: u32) {
    let policy = file::Policy { replicas, ..file::Policy::default() };
    ask(&client.keeper, &file::SetPolicy { path: path.to_string(), policy }).await.expect("set");
}

async fn lacks(client: &Client) -> file::Lacks {
    ask(&client.keeper, &file::Devices {}).await.expect("listed").lacks.expect("it knows")
}

pub async fn all_made(client: &Client) {
    until("all copies are made", async || {
        let lacks = lacks(client).await;
        lacks.one_left + lacks.fewer + lacks.none_left == 0 && !lacks.recounting
    })
    .await;
}

fn bytes_of(number: usize) -> Vec<u8> {
    (0..3_000 + 70_000 * number).map(|at| (at * 7 + number) as u8).collect()
}

async fn write(client: &Client, number: usize) -> String {
    let mut open = client.create(&format!("/f{number}")).await.expect("a file");
    for piece in bytes_of(number).chunks(50_000) {
        client.append(&mut open, piece).await.expect("appended");
    }
    client.close(&open).await.expect("closed");
    open.path
}

/// The devices of each copy of a file, all of which have these bytes.
pub async fn copies(client: &Client, path: &str, bytes: &[u8]) -> Vec<Id> {
    let locate = file::Locate { path: path.to_string(), length: u64::MAX >> 1, ..file::Locate::default() };
    let located = ask(&client.keeper, &locate).await.expect("located");
    let [extent] = &located.extents[..] else { panic!("{path} has {} extents", located.extents.len()) };
    let column = &extent.layout.columns[0];
    let devices: Vec<Id> = std::iter::once(column.device).chain(column.others.iter().copied()).collect();
    for device in &devices {
        let ranges = vec![chunk::Range { offset: extent.group_offset, length: extent.length }];
        let read = chunk::Read { device: *device, chunk: column.chunk, ranges, ..chunk::Read::default() };
        let (answer, payload) = client.at(*device).call(&read, Payload::empty()).await.expect("it is there");
        assert!(answer.sealed, "{path} on {device:?}");
        assert!(payload.into_bytes() == bytes, "{path} has other bytes on {device:?}");
    }
    devices
}

/// Each closed file gets its copies on different nodes, those that were cut short, too, with the same bytes, and none that is open. A device that
/// serves is not given up. One that is gone for good is: its files get other copies from those that are left, and it is forgotten; when its node
/// comes back with it, it has no part in anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_and_made_anew() {
    let mut cluster = Cluster::start("copies", 4).await;
    let client = cluster.client(1).await;
    want(&client, 2).await;
    let mut open = client.create("/open").await.expect("a file");
    client.append(&mut open, b"not closed yet").await.expect("appended");
    for number in 0..12 {
        let path = write(&client, number).await;
        if number % 3 == 2 {
            let length = bytes_of(number).len() as u64 / 2;
            ask(&client.keeper, &file::Truncate { path, length, ..file::Truncate::default() }).await.expect("cut");
        }
    }
    all_made(&client).await;
    let expected = |number: usize| {
        let bytes = bytes_of(number);
        let length = if number % 3 == 2 { bytes.len() / 2 } else { bytes.len() };
        bytes[..length].to_vec()
    };
    let mut used = BTreeSet::new();
    for number in 0..12 {
        let devices = copies(&client, &format!("/f{number}"), &expected(number)).await;
        let nodes: BTreeSet<_> = devices.iter().map(|device| client.at(*device).node()).collect();
        assert_eq!((devices.len(), nodes.len()), (2, 2), "/f{number}: {devices:?}");
        used.extend(devices.iter().map(|device| device.value()));
    }
    assert!(used.len() > 2, "all copies are on two devices");
    let gone = client.far();
    let refused = ask(&client.keeper, &device::Lost { device: gone }).await.expect_err("it serves");
    assert_eq!(refused.kind(), ErrorKind::Busy);
    client.close(&open).await.expect("closed");
    all_made(&client).await;
    copies(&client, "/open", b"not closed yet").await;
    let place = client.listed().await.into_iter().find(|device| device.device == gone).expect("listed").place;
    let number = (1..4).find(|number| place.starts_with(&format!("n{number}:"))).expect("a node has it");
    cluster.stop(number).await;
    cluster.ahead(NODE_SILENCE_MAX);
    ask(&client.keeper, &device::Lost { device: gone }).await.expect("given up");
    until("it is forgotten", async || !client.listed().await.iter().any(|device| device.device == gone)).await;
    all_made(&client).await;
    // Who asks where all are hears of those alone that are not silent, as all were when the clock went ahead.
    until("the others are heard of", async || !client.listed().await.iter().any(|device| device.missing)).await;
    let client = cluster.again(client).await;
    for number in 0..12 {
        let devices = copies(&client, &format!("/f{number}"), &expected(number)).await;
        assert!(devices.len() == 2 && !devices.contains(&gone), "/f{number}: {devices:?}");
    }
    cluster.run(number).await;
    let client = cluster.again(client).await;
    write(&client, 12).await;
    all_made(&client).await;
    for number in 0..13 {
        let bytes = if number < 12 { expected(number) } else { bytes_of(number) };
        assert!(!copies(&client, &format!("/f{number}"), &bytes).await.contains(&gone));
    }
    cluster.stop_all().await;
}

/// Small files get their copies as soon as their group takes no more of them, while the session that put them goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_files() {
    let cluster = Cluster::start("small-copies", 3).await;
    let client = cluster.client(1).await;
    want(&client, 2).await;
    let pack = ask(&client.keeper, &file::PackGroup::default()).await.expect("a group");
    let column = &pack.layout.columns[0];
    let (bytes, mut files) = (bytes_of(1), Vec::new());
    for (number, piece) in bytes.chunks(1_000).enumerate() {
        let append = chunk::Append {
            device: column.device,
            chunk: column.chunk,
            group: pack.group,
            generation: 1,
            offset: number as u64 * 1_000,
            level: Level::Synced as u32,
            small_parts: true,
            ..chunk::Append::default()
        };
        let payload = Payload::new(Bytes::copy_from_slice(piece));
        client.at(column.device).call(&append, payload).await.expect("appended");
        let (offset, length) = (append.offset, piece.len() as u64);
        let path = format!("/small/f{number}");
        files.push(file::PutFile {
            path,
            group: pack.group,
            offset,
            length,
            parents: true,
            ..file::PutFile::default()
        });
    }
    let named = ask(&client.keeper, &file::PutFiles { files: files.clone() }).await.expect("named");
    assert!(named.results.iter().all(|result| result.code == 0), "{:?}", named.results);
    assert_eq!(lacks(&client).await.one_left, 0, "more may come into it");
    for _ in 0..2 {
        ask(&client.keeper, &file::FinishPack { group: pack.group }).await.expect("finished");
    }
    all_made(&client).await;
    for (file, piece) in files.iter().zip(bytes.chunks(1_000)) {
        assert_eq!(copies(&client, &file.path, piece).await.len(), 2, "{}", file.path);
    }
    let late = file::PutFile { path: "/small/late".to_string(), ..files[0].clone() };
    let refused = ask(&client.keeper, &file::PutFiles { files: vec![late] }).await.expect("judged");
    assert_ne!(refused.results[0].code, 0, "it takes no more");
    cluster.stop_all().await;
}

/// A node that is away for longer than is waited for: what it has gets copies elsewhere by itself, and what has one copy waits for it. When it comes
/// back that is there, and its device counts again, with nothing of before on it but what was only there, and takes copies. Two of four nodes that are
/// away are too many: nothing is given up, and it is said why. In a store whose files want one copy nothing ever is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn given_up_by_itself_and_back() {
    let mut cluster = Cluster::new("back");
    cluster.repair_after = Duration::from_secs(2);
    for number in 0..4 {
        cluster.run(number).await;
    }
    cluster.all_there(4).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let mut once = client.create_on(far, "once").await;
    client.append(&mut once, b"one copy").await.expect("appended");
    client.close(&once).await.expect("closed");
    let place = client.listed().await.into_iter().find(|device| device.device == far).expect("listed").place;
    let number = (1..4).find(|number| place.starts_with(&format!("n{number}:"))).expect("a node has it");
    let find = async |client: &Client| {
        client.listed().await.into_iter().find(|device| device.device == far).expect("it stays listed")
    };
    cluster.stop(number).await;
    cluster.ahead(NODE_SILENCE_MAX);
    until("it has been away for twice as long", async || find(&client).await.away_ms > 4_000).await;
    assert!(!find(&client).await.lost, "nothing is won by that");
    cluster.run(number).await;
    cluster.all_there(4).await;
    let client = cluster.again(client).await;
    until("it is not away", async || find(&client).await.away_ms == 0).await;
    want_at(&client, &once.path, 1).await;
    want(&client, 2).await;
    for number in 0..12 {
        write(&client, number).await;
    }
    all_made(&client).await;
    cluster.stop(number).await;
    let other = (1..4).find(|other| *other != number).expect("another one");
    cluster.stop(other).await;
    cluster.ahead(NODE_SILENCE_MAX);
    until("it is said", async || lacks(&client).await.withheld.starts_with("2 of 4 devices are away")).await;
    assert!(!client.listed().await.iter().any(|device| device.lost));
    cluster.run(other).await;
    until("it is given up", async || find(&client).await.lost).await;
    until("all copies are made", async || {
        let lacks = lacks(&client).await;
        (lacks.one_left + lacks.fewer, lacks.none_left, lacks.recounting) == (0, 1, false) && lacks.withheld.is_empty()
    })
    .await;
    let client = cluster.again(client).await;
    for number in 0..12 {
        let devices = copies(&client, &format!("/f{number}"), &bytes_of(number)).await;
        assert!(devices.len() == 2 && !devices.contains(&far), "/f{number}: {devices:?}");
    }
    cluster.run(number).await;
    until("it counts again", async || !find(&client).await.lost).await;
    all_made(&client).await;
    let client = cluster.again(client).await;
    assert_eq!(client.read(&once.path).await.expect("it is there"), b"one copy");
    until("it has nothing else, as its node reports", async || find(&client).await.chunks == 1).await;
    for number in 12..24 {
        write(&client, number).await;
    }
    all_made(&client).await;
    let mut used = BTreeSet::new();
    for number in 12..24 {
        let devices = copies(&client, &format!("/f{number}"), &bytes_of(number)).await;
        used.extend(devices.iter().map(|device| device.value()));
    }
    assert!(used.contains(&far.value()), "it takes copies");
    cluster.stop_all().await;
}

/// A node that was given up by itself comes back while what it has found no other place: of three nodes, where most files want three copies. What is
/// the same as the others is good again, and nothing of it is copied; what is not, because bytes are missing or others, or all of it is, is made anew; what
/// had its one copy there is good with its device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn back_with_what_has_no_other_place() {
    let mut cluster = Cluster::new("returned");
    cluster.repair_after = Duration::from_secs(2);
    for number in 0..3 {
        cluster.run(number).await;
    }
    cluster.all_there(3).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let mut once = client.create_on(far, "once").await;
    client.append(&mut once, b"one copy").await.expect("appended");
    client.close(&once).await.expect("closed");
    want_at(&client, &once.path, 1).await;
    want(&client, 2).await;
    for number in 10..20 {
        write(&client, number).await;
        want_at(&client, &format!("/f{number}"), 2).await;
    }
    all_made(&client).await;
    want(&client, 3).await;
    for number in 0..6 {
        write(&client, number).await;
    }
    let bytes = b"what the writer wrote".as_slice();
    let odd = [("/cut", &bytes[..7]), ("/other", b"what somebody changed".as_slice()), ("/none", b"".as_slice())];
    for (path, on_far) in odd {
        write_otherwise(&client, path, bytes, (far, on_far)).await;
    }
    all_made(&client).await;
    let place = client.listed().await.into_iter().find(|device| device.device == far).expect("listed").place;
    let number = (1..3).find(|number| place.starts_with(&format!("n{number}:"))).expect("a node has it");
    let is_lost =
        async |client: &Client| client.listed().await.iter().any(|device| device.device == far && device.lost);
    cluster.stop(number).await;
    cluster.ahead(NODE_SILENCE_MAX);
    until("it is given up", async || is_lost(&client).await).await;
    until("what has another place is there", async || {
        let lacks = lacks(&client).await;
        (lacks.one_left, lacks.fewer, lacks.none_left, lacks.recounting) == (0, 9, 1, false)
    })
    .await;
    let before = lacks(&client).await.copied_bytes;
    cluster.run(number).await;
    until("it counts again", async || !is_lost(&client).await).await;
    all_made(&client).await;
    let copied = lacks(&client).await.copied_bytes - before;
    assert_eq!(copied, 3 * bytes.len() as u64, "what was not the same");
    let client = cluster.again(client).await;
    for number in 0..6 {
        let devices = copies(&client, &format!("/f{number}"), &bytes_of(number)).await;
        assert!(devices.len() == 3 && devices.contains(&far), "/f{number}: {devices:?}");
    }
    for (path, _) in odd {
        let devices = copies(&client, path, bytes).await;
        assert!(devices.len() == 3 && devices.contains(&far), "{path}: {devices:?}");
    }
    for number in 10..20 {
        assert_eq!(copies(&client, &format!("/f{number}"), &bytes_of(number)).await.len(), 2);
    }
    let column = &once.opened.group.layout.columns[0];
    let ranges = vec![chunk::Range { offset: 0, length: 8 }];
    let read = chunk::Read { device: far, chunk: column.chunk, ranges, ..chunk::Read::default() };
    let (_, payload) = client.at(far).call(&read, Payload::empty()).await.expect("it is where it was");
    assert_eq!(payload.into_bytes(), b"one copy".as_slice());
    assert_eq!(client.read(&once.path).await.expect("it is there"), b"one copy");
    cluster.stop_all().await;
}

/// A file with a copy on each of three nodes, which are sealed: these bytes, and on one device others. It is closed as if all had them.
async fn write_otherwise(client: &Client, path: &str, bytes: &[u8], (device, others): (Id, &[u8])) {
    let create = file::Create { path: path.to_string(), replicas_max: 3, ..file::Create::default() };
    let opened = ask(&client.keeper, &create).await.expect("a file");
    let (group, generation) = (opened.group.clone(), opened.generation);
    let column = &group.layout.columns[0];
    for on in std::iter::once(column.device).chain(column.others.iter().copied()) {
        let bytes = if on == device { others } else { bytes };
        if bytes.is_empty() {
            continue;
        }
        let (chunk, group) = (column.chunk, group.group);
        let append = chunk::Append { device: on, chunk, group, generation, level: 2, ..chunk::Append::default() };
        client.at(on).call(&append, Payload::new(Bytes::copy_from_slice(bytes))).await.expect("appended");
        let seal = chunk::Seal { device: on, chunk, generation, length: bytes.len() as u64 };
        ask(client.at(on), &seal).await.expect("sealed");
    }
    let open = super::Open { path: path.to_string(), opened, written: bytes.len() as u64 };
    client.close(&open).await.expect("closed");
}
