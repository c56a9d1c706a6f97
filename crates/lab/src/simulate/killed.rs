//! Consumers of one bag that are killed at every one of their steps: each chunk is handled, and acknowledged once.

#[cfg(test)]
mod tests {
    use crate::simulate::director::Director;
    use crate::simulate::format::{chunk_bytes, chunk_number};
    use crate::simulate::hardware::Hardware;
    use crate::simulate::scene::Scene;
    use base::env::Random;
    use base::id::ChunkId;
    use bytes::Bytes;
    use client::{Bag, ConsumerOptions, ProducerOptions};
    use sim::net::{Gone, SimNet};
    use sim::random::SimRandom;
    use sim::runtime_clock::RuntimeClock;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    /// Chunks in the bag.
    const CHUNKS: u64 = 60;

    /// What a consumer does with a chunk, one after the other; it is killed at one of these.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        /// It has asked: the chunk may be granted, its bytes may be on their way.
        Asks,
        /// It has the bytes. More are granted to it that it has not looked at.
        Has,
        /// Its command runs, for longer than a grant lasts.
        Runs,
        /// The command has ended.
        Ran,
        /// The acknowledgement is said, perhaps sent.
        Acknowledges,
        /// The acknowledgement was answered.
        Acknowledged,
    }

    const STEPS: [Step; 6] = [Step::Asks, Step::Has, Step::Runs, Step::Ran, Step::Acknowledges, Step::Acknowledged];

    /// What one consumer knows when it ends.
    #[derive(Default)]
    struct Known {
        handled: Vec<u64>,
        accepted: Vec<u64>,
        /// Acknowledgements whose answer it did not hear.
        unsure: Vec<u64>,
    }

    /// Consumes until the bag ends, or until it is killed: in its `life`-th chunk, at this step.
    async fn consume(bag: Bag, random: SimRandom, death: Option<(Step, u64, SimNet, Gone)>) -> Known {
        let mut known = Known::default();
        let mut consumer = bag.consumer(ConsumerOptions::default());
        let dies = |step: Step, count: u64| match &death {
            Some((at, life, host, how)) if *at == step && *life == count => {
                host.leave(*how);
                true
            }
            _ => false,
        };
        for count in 0.. {
            if dies(Step::Asks, count) {
                let _cut_short = tokio::time::timeout(Duration::from_millis(random.below(20)), consumer.pull()).await;
                return known;
            }
            let Ok(Some(chunk)) = consumer.pull().await else { return known };
            let number = chunk_number(&chunk.bytes).expect("a chunk has a number");
            if dies(Step::Has, count) {
                return known;
            }
            let time = if random.one_in(10) { 25_000 } else { random.below(200) };
            if dies(Step::Runs, count) {
                tokio::time::sleep(Duration::from_millis(time)).await;
                return known;
            }
            tokio::time::sleep(Duration::from_millis(time)).await;
            known.handled.push(number);
            if dies(Step::Ran, count) {
                return known;
            }
            let id: ChunkId = chunk.id;
            chunk.acknowledge();
            if death.as_ref().is_some_and(|(step, life, ..)| *step == Step::Acknowledges && *life == count) {
                // As if it was sent and its answer is on the way, or not even sent.
                tokio::time::sleep(Duration::from_millis(random.below(200))).await;
                dies(Step::Acknowledges, count);
                known.unsure.push(number);
                return known;
            }
            let results = consumer.flush().await;
            if results.accepted.contains(&id) {
                known.accepted.push(number);
            }
            if dies(Step::Acknowledged, count) {
                return known;
            }
        }
        known
    }

    async fn history(seed: u64) {
        let repeat = format!("seed {seed}: cargo test --release -p lab killed");
        let random = SimRandom::new(seed);
        let clock = Arc::new(RuntimeClock::starting_now());
        let hardware = Hardware::new(1 + random.below(2) as usize, &random, clock.clone(), Arc::default());
        let net = SimNet::new(random.next(), clock.clone(), "nobody");
        let scene = Arc::new(Scene::new(random.fork("scene"), clock, net, Duration::ZERO, false));
        let mut director = Director::new(scene.clone(), hardware, None);
        director.start().await.expect("the node starts");
        let (producer, _) = scene.connect("producer", &random).await.expect("connected");
        let bag = producer.bag_create("work", false).await.expect("made");
        let pushing = bag.producer(ProducerOptions::default());
        for number in 0..CHUNKS {
            pushing.push(Bytes::from(chunk_bytes(number, 3000))).await.expect("taken");
        }
        pushing.flush().await.expect("pushed");
        bag.seal().await.expect("sealed");
        let mut consumers = Vec::new();
        for (number, step) in STEPS.into_iter().cycle().take(2 * STEPS.len()).enumerate() {
            let (client, host) = scene.connect(&format!("consumer {number}"), &random).await.expect("connected");
            let how = if random.one_in(2) { Gone::Silent } else { Gone::Reset };
            let (bag, random) = (client.bag("work").await.expect("there"), random.fork(&number.to_string()));
            let death = Some((step, random.below(3), host, how));
            consumers.push(tokio::spawn(consume(bag, random, death)));
        }
        let survivor = consume(producer.bag("work").await.expect("there"), random.fork("survivor"), None).await;
        let mut all = vec![survivor];
        for consumer in consumers {
            all.push(consumer.await.expect("no panic"));
        }
        let count = |of: fn(&Known) -> &Vec<u64>| {
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            all.iter().flat_map(of).for_each(|number| *counts.entry(*number).or_default() += 1);
            counts
        };
        let (handled, accepted) = (count(|known| &known.handled), count(|known| &known.accepted));
        let unsure = count(|known| &known.unsure);
        for number in 0..CHUNKS {
            assert!(handled.contains_key(&number), "chunk {number} was never handled; {repeat}");
            match accepted.get(&number) {
                Some(1) => (),
                None if unsure.contains_key(&number) => (),
                other => panic!("chunk {number} was acknowledged {other:?} times; {repeat}"),
            }
        }
        let stat = bag.stat().await.expect("counted");
        assert_eq!((stat.pushed, stat.acknowledged, stat.waiting, stat.granted), (CHUNKS, CHUNKS, 0, 0), "{repeat}");
    }

    /// Consumers killed at every step, from asking for a chunk to the answer to its acknowledgement: every chunk is handled,
    /// exactly one acknowledgement of each is accepted, and the bag comes to its end.
    #[test]
    fn killed_at_every_step() {
        for seed in 0..20 {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.expect("a runtime").block_on(history(seed));
        }
    }
}
