//! Bags of the fake, with grants that end.

use super::State;
use base::error::{Error, ErrorKind, Result};
use base::limit::GRANT_LEASE;
use base::unit::Time;
use bytes::Bytes;
use net::message::bag::{
    Acknowledge, AcknowledgeAnswer, Create, Info, Pull, PullAnswer, Pulled, Push, PushAnswer, RenewGrants,
};
use net::message::{Done, Failure, Id};
use std::collections::{BTreeMap, VecDeque};

#[derive(Default)]
pub struct Stored {
    pub name: String,
    pub sealed: bool,
    pub compression: u32,
    pub retain: bool,
    pub pass: u32,
    pub members: BTreeMap<u128, Member>,
}

#[derive(Default)]
pub struct Member {
    pub sealed: bool,
    pub waiting: VecDeque<u128>,
    pub chunks: BTreeMap<u128, Bytes>,
    /// Chunk, and end, by grant.
    pub grants: BTreeMap<u64, (u128, Time)>,
    /// Grant by acknowledged chunk.
    pub acknowledged: BTreeMap<u128, u64>,
    pub pushed: u64,
    /// The pass it was told of.
    pub pass: u32,
    /// What was acknowledged in it and stays.
    pub kept: BTreeMap<u128, Bytes>,
}

impl Member {
    fn begin_pass(&mut self, pass: u32) {
        if pass > self.pass {
            self.pass = pass;
            self.chunks.append(&mut self.kept);
            self.waiting = self.chunks.keys().copied().collect();
            (self.grants, self.acknowledged) = Default::default();
        }
    }

    fn expire(&mut self, now: Time) {
        let ended: Vec<u64> = self.grants.iter().filter(|(_, (_, end))| *end <= now).map(|(grant, _)| *grant).collect();
        for grant in ended {
            let (chunk, _) = self.grants.remove(&grant).expect("just seen");
            self.waiting.push_back(chunk);
        }
    }
}

impl State {
    pub fn bag_create(&mut self, ask: &Create) -> Result<Info> {
        if self.bags.values().all(|bag| bag.name != ask.name) {
            let number = self.number();
            let members = (1..=u128::from(self.devices)).map(|device| (device, Member::default())).collect();
            self.bags.insert(
                number,
                Stored {
                    name: ask.name.clone(),
                    compression: ask.compression,
                    retain: ask.retain,
                    members,
                    ..Stored::default()
                },
            );
        } else if !ask.exists_ok {
            return Err(Error::new(ErrorKind::Exists, "the bag exists"));
        }
        self.bag_info(&ask.name, false)
    }

    /// `tells`: every member of the present pass, as a node does that counts.
    pub fn bag_info(&mut self, name: &str, tells: bool) -> Result<Info> {
        let left = self.faults.left;
        let found = self.bags.iter_mut().find(|(_, bag)| bag.name == name);
        let (number, bag) = found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no bag {name}")))?;
        if tells {
            bag.members.values_mut().for_each(|member| member.begin_pass(bag.pass));
        }
        Ok(Info {
            bag: *number,
            name: name.to_string(),
            sealed: bag.sealed,
            compression: bag.compression,
            retain: bag.retain,
            pass: bag.pass,
            members: bag
                .members
                .keys()
                .filter(|device| left != Some(**device))
                .map(|device| Id::from(*device))
                .collect(),
            pushed: bag.members.values().map(|member| member.pushed).sum(),
            acknowledged: bag.members.values().map(|member| member.acknowledged.len() as u64).sum(),
            ..Info::default()
        })
    }

    pub fn bag_seal(&mut self, name: &str) -> Result<Info> {
        for bag in self.bags.values_mut().filter(|bag| bag.name == name) {
            bag.sealed = true;
            bag.members.values_mut().for_each(|member| member.sealed = true);
        }
        self.bag_info(name, false)
    }

    fn member(&mut self, bag: u64, device: Id) -> Result<&mut Member> {
        let bag = self.bags.get_mut(&bag).ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such bag"))?;
        bag.members.get_mut(&device.value()).ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no such device"))
    }

    pub fn push(&mut self, ask: &Push, bytes: Bytes) -> Result<PushAnswer> {
        self.refuse_full()?;
        self.refuse_crowded()?;
        let chunk = ask.chunk.value();
        let left = self.faults.left == Some(ask.device.value());
        let member = self.member(ask.bag, ask.device)?;
        let known = member.chunks.contains_key(&chunk) || member.acknowledged.contains_key(&chunk);
        if (member.sealed || left) && !known {
            // As a device does: it cannot tell one from the other.
            let why = Error::new(ErrorKind::Stale, "the bag takes no more chunks here");
            return Ok(PushAnswer { refused: Some(why.into()), ..PushAnswer::default() });
        }
        if !known {
            member.chunks.insert(chunk, bytes);
            member.waiting.push_back(chunk);
            member.pushed += 1;
        }
        Ok(PushAnswer { waiting: member.waiting.len() as u64, under_way: Some(0), refused: None })
    }

    pub fn pull(&mut self, now: Time, ask: &Pull) -> Result<(PullAnswer, Bytes)> {
        let member = self.member(ask.bag, ask.device)?;
        member.expire(now);
        let granted = member.grants.get(&ask.grant).map(|(chunk, _)| *chunk);
        let chunk = granted.or_else(|| member.waiting.pop_front());
        let mut answer =
            PullAnswer { pass: member.pass, waiting: member.waiting.len() as u64, ..PullAnswer::default() };
        let Some(chunk) = chunk else {
            let ended = member.sealed && member.chunks.is_empty();
            answer.pulled = if ended { Pulled::Ended } else { Pulled::Nothing } as i32;
            return Ok((answer, Bytes::new()));
        };
        member.grants.insert(ask.grant, (chunk, now.after(GRANT_LEASE)));
        answer.pulled = Pulled::Chunk as i32;
        answer.chunk = chunk.into();
        answer.grant_ms = GRANT_LEASE.as_millis() as u32;
        Ok((answer, member.chunks[&chunk].clone()))
    }

    pub fn acknowledge(&mut self, now: Time, ask: &Acknowledge) -> Result<AcknowledgeAnswer> {
        self.refuse_crowded()?;
        let member = self.member(ask.bag, ask.device)?;
        member.expire(now);
        let mut results = Vec::new();
        for grant in &ask.grants {
            let chunk = grant.chunk.value();
            let live = member.grants.get(&grant.grant).is_some_and(|(granted, _)| *granted == chunk);
            let again = member.acknowledged.get(&chunk) == Some(&grant.grant);
            if live {
                member.grants.remove(&grant.grant);
                let bytes = member.chunks.remove(&chunk);
                if let Some(bytes) = bytes.filter(|_| ask.retain) {
                    member.kept.insert(chunk, bytes);
                }
                member.acknowledged.insert(chunk, grant.grant);
            }
            let stale = || Failure::from(Error::new(ErrorKind::Stale, "somebody else has or had the chunk"));
            results.push(if live || again { Failure::default() } else { stale() });
        }
        Ok(AcknowledgeAnswer { results })
    }

    pub fn renew(&mut self, now: Time, ask: &RenewGrants) -> Result<Done> {
        let member = self.member(ask.bag, ask.device)?;
        member.expire(now);
        for grant in &ask.grants {
            if let Some((_, end)) = member.grants.get_mut(&grant.grant) {
                *end = now.after(GRANT_LEASE);
            }
        }
        Ok(Done {})
    }
}
