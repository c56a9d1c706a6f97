//! Messages of every kind with whatever bytes in them, sent to a node that has something to lose.

use crate::{Fixture, pull};
use base::checksum::crc32c;
use base::env::Random;
use base::limit::PATH_MAX;
use bytes::Bytes;
use net::frame::{self, HEADER_LENGTH, HELLO, Header};
use net::message::session::Hello;
use net::message::{Ask, Id, bag, chunk, cluster, device, file, keeper, kind_name, order, quota, session};
use net::{Link, Payload};
use prost::Message;
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

/// A question of each kind as a client asks it, about things that are there.
struct Corpus {
    bag: u64,
    device: Id,
    opened: file::OpenedFile,
}

impl Corpus {
    async fn make(link: &Link, round: u64) -> Corpus {
        // Twice, so that no damaged bit of another round makes this name.
        let name = format!("b{round}-{round}");
        let create = bag::Create { name, retain: round % 2 == 1, ..bag::Create::default() };
        let (info, _) = link.call(&create, Payload::empty()).await.expect("a bag");
        let create =
            file::Create { path: format!("/d{round}/f"), overwrite: true, parents: true, ..file::Create::default() };
        let (opened, _) = link.call(&create, Payload::empty()).await.expect("a file");
        Corpus { bag: info.bag, device: info.members[0], opened }
    }

    /// Questions of gateways, of those who look, and of writers.
    fn questions_of_gateways(&self, round: u64) -> Vec<(u16, Vec<u8>)> {
        let (path, inode, generation) = (format!("/d{round}/f"), self.opened.inode, self.opened.generation);
        vec![
            of(&session::Look {}),
            of(&file::Lookup { path: path.clone(), known: 1, ..Default::default() }),
            of(&file::JudgeBelow { path, ..Default::default() }),
            of(&file::PathOf { inode }),
            of(&file::Recover { inode, only_gone: true, generation, for_holder: false }),
            of(&file::Recover { inode, only_gone: false, generation, for_holder: true }),
            of(&file::Holders { seen: Vec::new(), asked: vec!["a".to_string()] }),
            of(&file::BeginBlock { inode, generation, base: 50, number: 1 }),
            of(&file::SyncLength { inode, generation, group: self.opened.group.group, length: 10 }),
            of(&file::NextGroup {
                inode,
                generation,
                finished_group: self.opened.group.group,
                finished_length: 10,
                columns_max: 16,
                full: vec![self.device],
                gone: vec![self.device],
                replicas_max: 3,
                short: vec![file::Replica { device: self.device, chunk: self.device }],
                last: false,
            }),
        ]
    }

    fn questions(&self, round: u64) -> Vec<(u16, Vec<u8>)> {
        let (path, name) = (format!("/d{round}/f"), format!("b{round}-{round}"));
        let (bag, device, inode, generation) = (self.bag, self.device, self.opened.inode, self.opened.generation);
        let (group, column) = (&self.opened.group, &self.opened.group.layout.columns[0]);
        let (to, other) = (format!("/d{round}/g"), format!("/d{round}"));
        let grant = bag::Grant { chunk: 77_u128.into(), grant: 5 };
        let range = chunk::Range { offset: 0, length: 4096 };
        let append = chunk::Append {
            device: column.device,
            chunk: column.chunk,
            group: group.group,
            generation,
            ..Default::default()
        };
        let put = file::PutFile { path: to.clone(), group: group.group, length: 10, ..Default::default() };
        vec![
            of(&session::Renew { owner: "a".to_string(), ..Default::default() }),
            of(&session::NodeStatus {}),
            of(&file::Stat { path: path.clone() }),
            of(&file::List {
                path: other.clone(),
                after: "a".to_string(),
                limit: 10,
                extents: true,
                also: vec![path.clone(); 17],
                user: None,
            }),
            of(&file::MakeDirectory { path: to.clone(), parents: true, ..file::MakeDirectory::default() }),
            of(&file::Create {
                path: to.clone(),
                overwrite: true,
                parents: true,
                mode: Some(0o600),
                ..file::Create::default()
            }),
            of(&file::Append { path: path.clone(), ..file::Append::default() }),
            of(&file::Close {
                inode,
                generation,
                finished_group: group.group,
                finished_length: 10,
                modified_ms: 5,
                mode: 1,
            }),
            of(&file::PackGroup::default()),
            of(&file::PutFiles { files: vec![put.clone(), put] }),
            of(&file::Locate { path: path.clone(), length: 1 << 20, ..Default::default() }),
            of(&file::Rename { from: path.clone(), to: to.clone(), replace: true, ..file::Rename::default() }),
            of(&file::Delete { path: to.clone(), recursive: false, ..file::Delete::default() }),
            of(&file::SetPolicy { path: other.clone(), ..Default::default() }),
            of(&file::GetPolicy { path: path.clone() }),
            of(&quota::SetQuota { path: to.clone(), names: Some(9), bytes: Some(99) }),
            of(&quota::GetQuota { path: other.clone() }),
            of(&quota::Reserve { inode, generation, length: 4096 }),
            of(&file::Answered { asked: file::Asked { client: device, call: 5 } }),
            of(&file::DiskUsage { path: other.clone(), ..Default::default() }),
            of(&file::Devices {}),
            of(&file::SetAttributes { path: path.clone(), new: Some(Default::default()), ..Default::default() }),
            of(&file::GetXattrs { path: path.clone(), name: String::new() }),
            of(&file::SetXattr {
                path: path.clone(),
                name: "user.a".to_string(),
                value: Some(vec![1; 20]),
                asked: None,
                looked: None,
            }),
            of(&file::Truncate { path: path.clone(), length: 3, looked: None }),
            of(&file::Concat { target: path, sources: vec![to], asked: None, looked: None }),
            of(&chunk::AppendCell { append: append.clone(), length: 8192 }),
            of(&append),
            of(&chunk::Read {
                device,
                chunk: column.chunk,
                ranges: vec![range.clone()],
                cells: true,
                ..Default::default()
            }),
            of(&chunk::Read { device, chunk: column.chunk, ranges: vec![range], ..Default::default() }),
            of(&chunk::Seal { device, chunk: column.chunk, generation, length: 0 }),
            of(&chunk::Stat { device, chunk: column.chunk, start: true }),
            of(&bag::Create { name: name.clone(), exists_ok: true, retain: false, ..bag::Create::default() }),
            of(&bag::Stat { name: name.clone(), ..bag::Stat::default() }),
            of(&bag::List { after: String::new(), limit: 3 }),
            of(&bag::Seal { name: name.clone() }),
            of(&bag::Push { bag, device, chunk: 77_u128.into(), floor: 0 }),
            of(&pull(bag, device, 5)),
            of(&bag::Acknowledge {
                bag,
                device,
                pass: 0,
                grants: vec![grant.clone(), grant.clone()],
                retain: true,
                number: 0,
                floor: 0,
            }),
            of(&bag::RenewGrants { bag, device, grants: vec![grant] }),
            of(&bag::Rewind { name: name.clone() }),
            of(&bag::Delete { name }),
        ]
    }
}

/// Questions that name nothing of this node, whatever is damaged in them: what they ask for would end what the test is about, or only the
/// node that keeps the metadata of another one may ask them.
fn questions_about_others() -> Vec<(u16, Vec<u8>)> {
    let (device, chunk): (Id, Id) = (77_u128.into(), 78_u128.into());
    let node = cluster::Node { node: 79_u128.into(), name: "other".to_string(), ..cluster::Node::default() };
    let range = chunk::Range { offset: 0, length: 4096 };
    let seat = keeper::Seat { number: 1, node: device, draw: chunk, address: "nowhere".to_string() };
    vec![
        of(&file::FinishPack { group: 3 }),
        of(&device::Scrub { device, rate: 1 << 20 }),
        of(&device::Damage { device }),
        of(&device::Drain { device }),
        of(&device::Lost { device }),
        of(&device::Scrubbed { device, ranges: true }),
        of(&cluster::DrainNode { node: node.node }),
        of(&cluster::RemoveNode { node: node.node }),
        of(&cluster::Report { node, devices: Vec::new(), epoch: 1, remembered: vec![5], keeping: "none".to_string() }),
        of(&cluster::FindSession { session: 100_u128.into() }),
        of(&cluster::View::default()),
        of(&order::Fence { device, chunk, generation: 2 }),
        of(&order::Delete { device, chunks: vec![chunk], number: 1, floor: 1 }),
        of(&order::Release { device, chunk, ranges: vec![range.clone()] }),
        of(&order::Inventory { device, after: Some(chunk), limit: 10 }),
        of(&order::BagCounts { device, bag: 1 }),
        of(&order::BeginPass { device, bag: 1, pass: 1, retain: true }),
        of(&order::SealBag { device, bag: 1, epoch: 1 }),
        of(&order::DropBag { device, bag: 1, only_left: false }),
        of(&order::Kept { device, chunk, start: 0 }),
        of(&order::Fetch {
            device,
            chunk,
            from: device,
            node: device,
            address: "nowhere".to_string(),
            ..Default::default()
        }),
        of(&order::Sums { device, chunk, ranges: vec![range] }),
        of(&order::Follow { address: "nowhere".to_string() }),
        of(&keeper::Step { store: device, from: 1, to: 2, draw: chunk, parts: vec![10, 20] }),
        of(&keeper::Form { keepers: vec!["nowhere".to_string(); 3], place: 1, draw: chunk }),
        of(&keeper::Begin { store: device, made: 1, seats: vec![seat; 3] }),
    ]
}

fn of<A: Ask>(question: &A) -> (u16, Vec<u8>) {
    (A::KIND, question.encode_to_vec())
}

/// Changes a message: bits, its length, or, still well formed, numbers that nobody would send and texts that are too long.
pub fn damage(random: &SimRandom, message: &mut Vec<u8>) {
    match random.below(6) {
        0 => (),
        1 if !message.is_empty() => {
            let at = random.below(message.len() as u64) as usize;
            message[at] ^= 1 << random.below(8);
        }
        2 => message.truncate(random.below(message.len() as u64 + 1) as usize),
        3 => {
            message.push((1 + random.below(9)) as u8 * 8 + 2);
            let length = random.below(2 * PATH_MAX as u64) as usize;
            prost::encoding::encode_varint(length as u64, message);
            message.extend((0..length).map(|at| b"/a\0.\xFF/x"[(at + length) % 7]));
        }
        _ => {
            for _ in 0..=random.below(2) {
                // The last one counts.
                message.push((1 + random.below(9)) as u8 * 8);
                prost::encoding::encode_varint(random.next() >> random.below(64), message);
            }
        }
    }
}

/// Sends the questions, each with a little payload or none, and waits for as many answers.
fn ask_all(address: &str, session: u128, questions: &[(u16, Vec<u8>)], random: &SimRandom) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let hello =
        Hello { version_min: 2, version_max: 2, session: session.into(), program: "fuzz".into(), ..Hello::default() };
    let mut bytes = Vec::new();
    frame::append(&mut bytes, Header { kind: HELLO, ..Header::default() }, |bytes| hello.encode(bytes).expect("room"));
    for (number, (kind, message)) in questions.iter().enumerate() {
        let payload = vec![7; if random.one_in(2) { random.below(9000) as usize } else { 0 }];
        let header = Header {
            kind: *kind,
            number: number as u64 + 1,
            payload_length: payload.len() as u32,
            payload_crc: crc32c(&payload),
            ..Header::default()
        };
        frame::append(&mut bytes, header, |bytes| bytes.extend_from_slice(message));
        bytes.extend_from_slice(&payload);
    }
    stream.write_all(&bytes).expect("it takes them");
    let mut answers = 0;
    while answers < questions.len() {
        let mut head = [0; HEADER_LENGTH];
        stream.read_exact(&mut head).expect("an answer");
        let header = Header::decode(&head).expect("a header");
        let length = header.message_length as usize + header.payload_length as usize;
        stream.read_exact(&mut vec![0; length]).expect("the rest of it");
        answers += usize::from(frame::is_known(header.kind) && header.kind < frame::OWN_KINDS);
    }
}

/// Questions of every kind, damaged or with absurd numbers, are answered each; no thread of the node ends by them, and it goes
/// on serving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_questions() {
    let mut fixture = Fixture::start("fuzz").await;
    let link = fixture.link(1).await;
    for round in sim::fuzz::seeds(30) {
        let random = SimRandom::new(round);
        // A session of its own: a call of an earlier round would be answered again, with a bag that is gone.
        let session = 100 + u128::from(round);
        let asking = fixture.link(session).await;
        let corpus = Corpus::make(&asking, round).await;
        let mut questions = corpus.questions(round);
        questions.extend(corpus.questions_of_gateways(round));
        questions.extend(questions_about_others());
        let named: BTreeSet<u16> = questions.iter().map(|(kind, _)| *kind).collect();
        let left_out = (0..=u16::MAX).filter(|kind| !named.contains(kind)).find_map(kind_name);
        assert_eq!(left_out, None, "a kind of question that is not asked here");
        for (kind, message) in &mut questions {
            damage(&random, message);
            if *kind == bag::Pull::KIND {
                // Nobody waits here.
                message.extend([4 * 8, 0]);
            }
        }
        // A long run outlives a session that nobody renews.
        link.call(&session::Renew::default(), Payload::empty()).await.expect("renewed");
        let (address, seeded) = (fixture.address().to_string(), random.fork("payload"));
        let asked = tokio::task::spawn_blocking(move || ask_all(&address, session, &questions, &seeded));
        asked.await.unwrap_or_else(|_| panic!("round {round} was not answered: cargo test --release -p node fuzz"));
        let create = bag::Create { name: format!("after{round}"), ..bag::Create::default() };
        let (info, _) = link.call(&create, Payload::empty()).await.expect("the metadata store goes on");
        let (bag, device) = (info.bag, info.members[0]);
        // Of a stream (`base::id::PushName`) that no question is of: theirs have any number. The earlier ones were answered.
        let push = bag::Push { bag, device, chunk: (9 << 48 | u128::from(round)).into(), floor: round };
        link.call(&push, Payload::new(Bytes::from(vec![1; 5000]))).await.expect("the device goes on");
        let (answer, bytes) = link.call(&pull(bag, device, 1 << 40), Payload::empty()).await.expect("answered");
        assert_eq!((answer.pulled, bytes.length()), (bag::Pulled::Chunk as i32, 5000), "round {round}");
    }
    fixture.stop().await;
}
