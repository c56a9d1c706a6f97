//! Strangers at the store's own port who have greeted: answers that are not read, pulls that wait, bags that nobody made.

use super::frames::{begin, greeted, greeting, next};
use super::hdfs::say_and_hold_at;
use super::target::Target;
use base::error::Result;
use base::limit::SMALL_FRAMES_MAX;
use base::net::Stream;
use net::frame::Header;
use net::message::{Ask, Id, bag, file, session};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

/// Connections that ask for pages and read none.
const UNREAD: usize = 64;

/// Connections whose pulls wait.
const PULLING: usize = 1000;

/// Connections that name bags.
const NAMING: usize = 16;

/// How long a pull asks to wait: as long as it may.
const WAIT_MS: u32 = 5000;

/// A question with this number.
fn question<A: Ask>(number: u64, ask: &A) -> Vec<u8> {
    begin(Header { kind: A::KIND, number, ..Header::default() }, &ask.encode_to_vec())
}

/// Pages of a directory with a thousand long names, asked for as often as a connection may and never read.
pub async fn unread(target: &Target) -> Result<()> {
    let client = target.client().await?;
    let mut making = JoinSet::new();
    for at in 0..1000 {
        let client = client.clone();
        making.spawn(async move { client.make_directory(&format!("/unread/{at:0250}"), true).await });
    }
    while let Some(made) = making.join_next().await {
        made.map_err(std::io::Error::other)??;
    }
    let list = file::List { path: "/unread".to_string(), ..file::List::default() };
    let lists: Vec<u8> = (1..=SMALL_FRAMES_MAX as u64).flat_map(|number| question(number, &list)).collect();
    say_and_hold_at(target, &target.store, UNREAD, [greeting(), lists].concat()).await
}

/// A bag of the store, and one of the devices that have it.
async fn some_bag(target: &Target) -> Result<(u64, Id)> {
    let client = target.client().await?;
    client.bag_create("attacked", true).await?;
    let info = client.bag_stat("attacked").await?;
    Ok((info.bag, info.members.first().copied().unwrap_or_default()))
}

/// As many pulls of an empty bag as may wait, on many connections; one that is answered is made again.
pub async fn pulls(target: &Target) -> Result<()> {
    let (bag, device) = some_bag(target).await?;
    let pull = bag::Pull { bag, device, grant: 7, wait_ms: WAIT_MS, ..bag::Pull::default() };
    forever(target, PULLING, move |first| {
        let numbers = first..first + SMALL_FRAMES_MAX as u64;
        (numbers.flat_map(|number| question(number, &pull)).collect(), SMALL_FRAMES_MAX)
    })
    .await
}

/// Pulls, renewals and acknowledgements of bags that nobody made, each of another one.
pub async fn bags(target: &Target) -> Result<()> {
    let (_, device) = some_bag(target).await?;
    let named = AtomicU64::new(1 << 40);
    forever(target, NAMING, move |first| {
        let of_one = |number| {
            let bag = named.fetch_add(3, Ordering::Relaxed);
            let grants = vec![bag::Grant { chunk: 9.into(), grant: 7 }];
            let pull = bag::Pull { bag, device, grant: 7, ..bag::Pull::default() };
            let renew = bag::RenewGrants { bag: bag + 1, device, grants: grants.clone() };
            let acknowledge = bag::Acknowledge { bag: bag + 2, device, grants, ..bag::Acknowledge::default() };
            [question(number, &pull), question(number + 1, &renew), question(number + 2, &acknowledge)].concat()
        };
        ((0..64).flat_map(|at| of_one(first + 3 * at)).collect(), 3 * 64)
    })
    .await
}

/// Connections that each ask and, when all is answered, ask again. `questions`: from this number on, and how many they are.
async fn forever(
    target: &Target,
    connections: usize,
    questions: impl Fn(u64) -> (Vec<u8>, usize) + Send + Sync + 'static,
) -> Result<()> {
    let (questions, mut open, mut session) = (Arc::new(questions), JoinSet::new(), 5000);
    loop {
        while open.len() < connections.min(target.connections) {
            session += 1;
            let Ok(stream) = greeted(target, session).await else {
                target.count("not taken");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            };
            target.count("connections");
            open.spawn(ask_forever(stream, questions.clone()));
        }
        open.join_next().await;
        target.count("ended");
    }
}

async fn ask_forever(
    mut stream: Box<dyn Stream>,
    questions: Arc<impl Fn(u64) -> (Vec<u8>, usize)>,
) -> std::io::Result<()> {
    // The welcome, and a session that is open.
    next(&mut stream).await?;
    stream.write_all(&question(1, &session::Renew::default())).await?;
    next(&mut stream).await?;
    let mut number = 2;
    loop {
        let (bytes, count) = questions(number);
        number += count as u64;
        let (mut reading, mut writing) = tokio::io::split(&mut stream);
        let read = async {
            let mut answers = 0;
            while answers < count {
                // Beside answers come signs that the node lives.
                answers += usize::from(next(&mut reading).await?.number != 0);
            }
            std::io::Result::Ok(())
        };
        tokio::try_join!(writing.write_all(&bytes), read)?;
    }
}
