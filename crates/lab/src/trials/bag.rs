//! The bag of one worker: what was pushed and what was acknowledged, and the steps that push, pull, acknowledge, seal and
//! delete. A step may be cut off anywhere: before it asks for anything it notes that the outcome is open.

use super::content;
use super::report::{Counts, Finding, Found, Kind};
use base::env::Random;
use client::{Chunk, Client, Consumer, ConsumerOptions, ProducerOptions};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Whether something is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sure {
    Yes,
    No,
    Maybe,
}

/// Chunks that a bag may have before only pulls go on.
const CHUNKS_MAX: usize = 24;

/// So often chunks of a cluster are looked for: 30 s, three times what a grant lasts that nobody renews.
const LOOKS: u32 = 60;
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// The bag.
pub struct Bag {
    worker: u64,
    /// Of its name; rises with each bag that is deleted.
    number: u64,
    there: Sure,
    sealed: Sure,
    /// Chunks that may be in it; true: must.
    chunks: BTreeMap<u64, bool>,
    /// Chunks whose acknowledgement was accepted.
    gone: BTreeSet<u64>,
    /// An image is being taken: from here on nothing is sure.
    holding: bool,
    /// The store goes on when answers stay away: a grant may end while its chunk is held, and what was asked may come late.
    goes_on: bool,
    next_content: u64,
    /// Pulled and not acknowledged, and who pulled them.
    held: Vec<Chunk>,
    consumer: Option<Consumer>,
}

impl Bag {
    /// The bag of worker number `worker`, not made yet. `goes_on`: so does the store while answers stay away.
    pub fn new(worker: u64, goes_on: bool) -> Bag {
        Bag {
            worker,
            number: 0,
            there: Sure::No,
            sealed: Sure::No,
            chunks: BTreeMap::new(),
            gone: BTreeSet::new(),
            holding: false,
            goes_on,
            next_content: worker << 40,
            held: Vec::new(),
            consumer: None,
        }
    }

    /// From here on acknowledged changes may or may not be in the image.
    pub fn hold(&mut self) {
        self.holding = true;
    }

    /// The server is gone, and with it every grant.
    pub fn leave(&mut self) {
        self.held.clear();
        self.consumer = None;
    }

    fn name(&self, number: u64) -> String {
        format!("b{}-{number}", self.worker)
    }

    /// One step of work.
    pub async fn step(&mut self, client: &Client, random: &SimRandom, counts: &mut Counts) -> Found<()> {
        if self.there != Sure::Yes {
            // Whether it is there is told by the next comparison.
            if self.holding || self.there == Sure::Maybe {
                return Ok(());
            }
            self.there = Sure::Maybe;
            client.bag_create(&self.name(self.number), true).await?;
            self.there = Sure::Yes;
        }
        match random.below(40) {
            0 if self.sealed == Sure::No && !self.holding => {
                self.sealed = Sure::Maybe;
                client.bag_seal(&self.name(self.number)).await?;
                self.sealed = Sure::Yes;
                Ok(())
            }
            1 if !self.holding => self.delete(client).await,
            2..22 if self.sealed == Sure::No && self.chunks.len() < CHUNKS_MAX => self.push(client, random).await,
            22..32 => self.pull(client, counts).await,
            _ => self.acknowledge().await,
        }
    }

    async fn delete(&mut self, client: &Client) -> Found<()> {
        self.leave();
        self.there = Sure::Maybe;
        self.chunks.values_mut().for_each(|must| *must = false);
        client.bag_delete(&self.name(self.number)).await?;
        self.start_over();
        Ok(())
    }

    fn start_over(&mut self) {
        self.number += 1;
        (self.there, self.sealed) = (Sure::No, Sure::No);
        self.chunks.clear();
        self.gone.clear();
    }

    async fn push(&mut self, client: &Client, random: &SimRandom) -> Found<()> {
        let bag = client.bag(&self.name(self.number)).await?;
        let producer = bag.producer(ProducerOptions::default());
        let mut pushed = Vec::new();
        for _ in 0..=random.below(4) {
            let length = if random.below(4) == 0 { 300_000 } else { 9000 };
            let length = 16 + random.below(length) as usize;
            self.next_content += 1;
            self.chunks.insert(self.next_content, false);
            pushed.push(self.next_content);
            producer.push(content::chunk(self.next_content, length)).await?;
        }
        producer.flush().await?;
        if !self.holding {
            for content in pushed {
                self.chunks.insert(content, true);
            }
        }
        Ok(())
    }

    async fn pull(&mut self, client: &Client, counts: &mut Counts) -> Found<()> {
        if self.consumer.is_none() {
            let bag = client.bag(&self.name(self.number)).await?;
            self.consumer =
                Some(bag.consumer(ConsumerOptions { window: Some(2), wait: false, ..ConsumerOptions::default() }));
        }
        let Some(consumer) = &mut self.consumer else { unreachable!("it was made just now") };
        for _ in 0..3 {
            let Some(chunk) = consumer.pull().await? else { break };
            counts.bytes += chunk.bytes.len() as u64;
            let content = read(&chunk)?;
            if self.goes_on {
                // The earlier grant is over, and an acknowledgement under it would be refused.
                self.held.retain(|held| held.id != chunk.id);
            }
            if self.gone.contains(&content) || self.held.iter().any(|held| read(held).is_ok_and(|held| held == content))
            {
                return Err(Finding::new(Kind::Duplicated, format!("chunk {content:#x} was handed out again")));
            }
            if !self.chunks.contains_key(&content) {
                return Err(Finding::new(Kind::Resurrected, format!("chunk {content:#x} is nobody's")));
            }
            self.held.push(chunk);
        }
        Ok(())
    }

    /// Acknowledges half of what is held.
    async fn acknowledge(&mut self) -> Found<()> {
        let Some(consumer) = &mut self.consumer else { return Ok(()) };
        let mut contents = BTreeMap::new();
        for chunk in self.held.drain(self.held.len() / 2..) {
            let content = read(&chunk)?;
            self.chunks.insert(content, false);
            contents.insert(chunk.id, content);
            chunk.acknowledge();
        }
        let results = consumer.flush().await;
        if !self.holding {
            for chunk in &results.accepted {
                if let Some(content) = contents.get(chunk) {
                    self.chunks.remove(content);
                    self.gone.insert(*content);
                }
            }
        }
        match results.refused.into_iter().next() {
            None => Ok(()),
            Some(refusal) => Err(refusal.error.into()),
        }
    }

    /// Compares with what is there after a restart. What was pulled for that stays in our hands.
    pub async fn check(&mut self, client: &Client, counts: &mut Counts) -> Found<()> {
        let name = self.name(self.number);
        for number in self.number.saturating_sub(4)..self.number {
            if client.bag_exists(&self.name(number)).await? {
                return Err(Finding::new(Kind::Resurrected, format!("bag {} was deleted", self.name(number))));
            }
        }
        counts.compared += 1;
        self.holding = false;
        match (client.bag_exists(&name).await?, self.there) {
            (true, Sure::No) => Err(Finding::new(Kind::Resurrected, format!("bag {name} is there"))),
            (false, Sure::Yes) => Err(Finding::new(Kind::Lost, format!("bag {name} is gone"))),
            (false, _) => {
                self.start_over();
                Ok(())
            }
            (true, _) => {
                self.there = Sure::Yes;
                self.check_chunks(client, &name, counts).await
            }
        }
    }

    async fn check_chunks(&mut self, client: &Client, name: &str, counts: &mut Counts) -> Found<()> {
        let sealed = client.bag_stat(name).await?.sealed;
        if self.sealed == Sure::Yes && !sealed {
            return Err(Finding::new(Kind::Lost, format!("the seal of bag {name} is gone")));
        }
        if sealed && self.sealed == Sure::No {
            return Err(Finding::new(Kind::Resurrected, format!("bag {name} is sealed and nobody did that")));
        }
        if self.sealed == Sure::Maybe && !sealed {
            // A seal that is under way is ended by asking again.
            client.bag_seal(name).await?;
            self.sealed = Sure::Yes;
        } else {
            self.sealed = if sealed { Sure::Yes } else { Sure::No };
        }
        let mut consumer = client.bag(name).await?.consumer(ConsumerOptions {
            window: Some(2),
            wait: false,
            ..ConsumerOptions::default()
        });
        let mut seen = BTreeSet::new();
        let mut looks = if self.goes_on { LOOKS } else { 1 };
        while looks > 0 {
            let Some(chunk) = consumer.pull().await? else {
                // A chunk that was in the hands of a consumer that is gone comes when its grant is over.
                let complete = self.chunks.iter().all(|(content, must)| !must || seen.contains(content));
                looks = if complete { 0 } else { looks - 1 };
                if looks > 0 {
                    tokio::time::sleep(LOOK_PAUSE).await;
                }
                continue;
            };
            counts.compared += 1;
            counts.bytes += chunk.bytes.len() as u64;
            let content = read(&chunk)?;
            if self.gone.contains(&content) {
                let text = format!("chunk {content:#x} of bag {name} came again after its acknowledgement");
                return Err(Finding::new(Kind::Duplicated, text));
            }
            if !self.chunks.contains_key(&content) {
                return Err(Finding::new(Kind::Resurrected, format!("chunk {content:#x} of bag {name} is nobody's")));
            }
            if !seen.insert(content) {
                return Err(Finding::new(Kind::Duplicated, format!("chunk {content:#x} of bag {name} is there twice")));
            }
            self.held.push(chunk);
        }
        if let Some((content, _)) = self.chunks.iter().find(|(content, must)| **must && !seen.contains(*content)) {
            return Err(Finding::new(Kind::Lost, format!("chunk {content:#x} of bag {name} is gone")));
        }
        if self.goes_on {
            // What was open and is not there may be on its way.
            self.chunks.extend(seen.into_iter().map(|content| (content, true)));
        } else {
            // What was open and is not there was acknowledged or never came; it must not come later.
            let absent = self.chunks.keys().filter(|content| !seen.contains(*content)).copied();
            self.gone.extend(absent);
            self.chunks = seen.into_iter().map(|content| (content, true)).collect();
        }
        self.consumer = Some(consumer);
        Ok(())
    }

    /// Deletes the bag, if there is one.
    pub async fn clear(&mut self, client: &Client) -> Found<()> {
        if self.there == Sure::Yes { self.delete(client).await } else { Ok(()) }
    }
}

fn read(chunk: &Chunk) -> Found<u64> {
    content::read_chunk(&chunk.bytes).ok_or_else(|| {
        Finding::new(
            Kind::Corrupt,
            format!("chunk {} has {} bytes that were never pushed", chunk.id, chunk.bytes.len()),
        )
    })
}
