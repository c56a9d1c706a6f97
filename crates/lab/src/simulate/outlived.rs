//! A copy of a push that was handled waits for room on a full device while its session ends, and with it all that was remembered of the
//! push: when there is room again the chunk does not come once more.

use super::format::{chunk_bytes, chunk_number};
use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind};
use base::id::{ChunkId, PushName, SessionId};
use base::limit::SESSION_LEASE;
use base::unit::Time;
use bytes::Bytes;
use client::{Client, Consumer, ConsumerOptions};
use net::message::{Ask, Id, bag, session};
use net::{Link, Payload};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Numbers of its chunks, apart from those of other bags.
const FIRST: u64 = 1 << 50;

/// Bags that it is tried with.
const ROUNDS: u64 = 2;

/// So long before its session ends it fills the device: a push does not wait for room for much longer.
const BEFORE_THE_END: Duration = Duration::from_secs(7);

/// So long after the end every device has heard of it.
const AFTER_THE_END: Duration = Duration::from_secs(2);

/// A push that is not answered within this time waits for room.
const ANSWERED: Duration = Duration::from_millis(300);

/// Bytes of the chunks that fill the device, and as many of them as no device has room for.
const LARGE: usize = 1 << 20;
const FILLING_MAX: u64 = 60;

/// Longest wait for one chunk.
const PATIENCE: Duration = Duration::from_secs(2);

struct Outlived<'a> {
    scene: &'a Arc<Scene>,
    name: &'a str,
    /// Of the session that ends.
    link: Link,
    session: SessionId,
    bag: u64,
    device: Id,
    consumer: Consumer,
    numbers: BTreeMap<ChunkId, u64>,
    handled: BTreeSet<u64>,
}

/// Lets sessions end while pushes of theirs wait.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    for round in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(random.below(2_000))).await;
        let called = format!("outlived{:x}", random.next());
        let broken = |error: Error| Broken(format!("{name}: {error}"));
        let made = scene.insist(name, "bag_create", || client.bag_create(&called, true)).await?.map_err(broken)?;
        let settings = scene.bare_session(name, &random.fork(&format!("session {round}")));
        let session = settings.session;
        let Some(address) = scene.only_address() else { return Ok(()) };
        let link = scene.link(name, &address, &settings).await?;
        let begin = session::Renew::default();
        scene.insist(name, "renew", || ask(&link, &begin)).await?.map_err(broken)?;
        let begun = scene.clock.now();
        let find = bag::Create { name: called.clone(), exists_ok: true, ..bag::Create::default() };
        let info = scene.insist(name, "bag_create", || ask(&link, &find)).await?.map_err(broken)?;
        let device = info.members[random.below(info.members.len() as u64) as usize];
        let consumer = made.consumer(ConsumerOptions::default());
        let (numbers, handled) = (BTreeMap::new(), BTreeSet::new());
        let mut play = Outlived { scene, name, link, session, bag: info.bag, device, consumer, numbers, handled };
        play.round(begun).await?;
        drop(play);
        match scene.insist(name, "bag_delete", || client.bag_delete(&called)).await? {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(broken(error)),
            _ => (),
        }
    }
    Ok(())
}

async fn ask<A: Ask>(link: &Link, question: &A) -> base::error::Result<A::Answer> {
    link.call(question, Payload::empty()).await.map(|(answer, _)| answer)
}

impl Outlived<'_> {
    async fn round(&mut self, begun: Time) -> Check<()> {
        // The others let the acknowledgement of the first one be past asking again.
        for number in 1..=3 {
            if !self.scene.call(self.name, "push", self.push(number, 2_000)).await?.unwrap_or(false) {
                return Ok(());
            }
            self.consume(1).await?;
        }
        if !self.handled.contains(&(FIRST + 1)) {
            return Ok(());
        }
        self.sleep_until(begun.after(SESSION_LEASE.saturating_sub(BEFORE_THE_END))).await;
        let mut waiting = JoinSet::new();
        for number in 4..4 + FILLING_MAX {
            let mut pushing = Box::pin(self.push(number, LARGE));
            if tokio::time::timeout(ANSWERED, &mut pushing).await.is_err() {
                waiting.spawn(pushing);
                break;
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
        waiting.spawn(self.push(1, 2_000));
        self.sleep_until(begun.after(SESSION_LEASE + AFTER_THE_END)).await;
        self.scene.count("pushes that outlived their session");
        // There is room, and whatever waits still would be stored.
        self.consume(2 * FILLING_MAX).await
    }

    async fn sleep_until(&self, then: Time) {
        tokio::time::sleep(then.since(self.scene.clock.now())).await;
    }

    /// Pushes the chunk of this number. Whether it was taken.
    fn push(&self, number: u64, length: usize) -> impl Future<Output = base::error::Result<bool>> + Send + 'static {
        let name = PushName { session: self.session.mark(), stream: 1, number };
        let push = bag::Push { bag: self.bag, device: self.device, chunk: name.chunk().0.into(), floor: 1 };
        let (link, payload) = (self.link.clone(), Payload::new(Bytes::from(chunk_bytes(FIRST + number, length))));
        async move {
            let (answer, _) = link.call(&push, payload).await?;
            Ok(answer.refused.is_none())
        }
    }

    /// Handles what comes, at most so many, until nothing does.
    async fn consume(&mut self, most: u64) -> Check<()> {
        for _ in 0..most {
            self.scene.count("pull");
            let chunk = match tokio::time::timeout(PATIENCE, self.consumer.pull()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Err(error)) if error.kind() == ErrorKind::Corrupt => {
                    return Err(Broken(format!("{}: pull: {error}", self.name)));
                }
                Ok(_) | Err(_) => break,
            };
            let number = chunk_number(&chunk.bytes).unwrap_or_default();
            if self.handled.contains(&number) {
                let text = format!("chunk {number} came again as {} after its acknowledgement", chunk.id);
                return Err(Broken(format!("{}: {text}", self.name)));
            }
            self.numbers.insert(chunk.id, number);
            self.scene.count("acknowledge");
            chunk.acknowledge();
        }
        let results =
            self.scene.call(self.name, "acknowledge_flush", async { Ok(self.consumer.flush().await) }).await?;
        let results = results.map_err(|error| Broken(error.to_string()))?;
        self.handled.extend(results.accepted.iter().filter_map(|id| self.numbers.get(id)));
        Ok(())
    }
}
