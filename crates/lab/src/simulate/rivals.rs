//! Clients that change the same names at the same time, and all orders in which a store may have done what they asked. An
//! answer that fits none of these orders is a broken promise.

use super::format::{chunk_bytes, chunk_number};
use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use client::{Client, PackOptions, PackerOptions};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where the names are.
pub const DIRECTORY: &str = "/rivals";

/// Names that they quarrel about.
const NAMES: u64 = 3;

/// No file has this many bytes beyond its first eight.
const LENGTH_MAX: usize = 6_000;

/// After a call whose outcome is not known nothing of it is under way any more when so much time has passed.
pub const SURELY_OVER: Duration = Duration::from_secs(15);

/// A name, by its number.
type Name = u64;

/// What one of them asks.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Make(Name),
    /// Puts a file there whose bytes say which call it was of; true: in place of another one, too.
    Put(Name, bool),
    Delete(Name),
    Rename(Name, Name),
    Look(Name),
}

/// How it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// It is there and has this number.
    There(u64),
    Missing,
    Exists,
    /// It may have happened, or not.
    Unknown,
}

/// One call: its times in the order of all beginnings and ends.
#[derive(Clone, Debug)]
struct Asked {
    wish: Wish,
    answer: Answer,
    begun: u64,
    ended: u64,
}

/// What may stand at the names: for each that is there the call that made it, and its number if somebody has seen it.
type Stand = BTreeMap<Name, (u64, Option<u64>)>;

/// Several clients, and what may be there.
pub struct Rivals {
    /// They quarrel about files with bytes, not about directories.
    files: bool,
    scene: Arc<Scene>,
    random: SimRandom,
    name: String,
    clients: Vec<Client>,
    clock: AtomicU64,
    possible: BTreeSet<Stand>,
    made: u64,
}

fn path_of(name: Name) -> String {
    format!("{DIRECTORY}/{name}")
}

impl Rivals {
    /// Clients that have the directory for themselves.
    pub fn new(scene: Arc<Scene>, random: SimRandom, name: &str, clients: Vec<Client>) -> Rivals {
        let name = name.to_string();
        let files = random.fork("files").one_in(2);
        Rivals { files, scene, random, name, clients, clock: AtomicU64::new(0), possible: BTreeSet::new(), made: 0 }
    }

    /// So many rounds. In each every client asks a few things; then what may be there is worked out.
    pub async fn work(&mut self, rounds: u64) -> Check<()> {
        let client = self.clients[0].clone();
        let directory = || client.make_directory(DIRECTORY, true);
        let made = self.scene.insist(&self.name, "make_directory", directory).await?;
        made.map_err(|error| Broken(format!("{}: {error}", self.name)))?;
        self.clear(&client).await?;
        for _ in 0..rounds {
            tokio::time::sleep(Duration::from_millis(self.random.below(1_500))).await;
            let mut asked = self.round().await?;
            if asked.iter().any(|asked| asked.answer == Answer::Unknown) {
                tokio::time::sleep(SURELY_OVER.max(self.scene.late)).await;
            }
            asked.extend(self.look_at_all().await?);
            self.possible = self.outcomes(&asked);
            self.made += asked.len() as u64;
            self.scene.count_more("contended calls explained", asked.len() as u64);
            if self.possible.is_empty() {
                return Err(Broken(format!(
                    "{}: no order of these calls explains their answers: {asked:?}",
                    self.name
                )));
            }
        }
        Ok(())
    }

    /// Nothing is there, whoever was here before.
    async fn clear(&mut self, client: &Client) -> Check<()> {
        for name in 0..NAMES {
            let path = path_of(name);
            match self.scene.insist(&self.name, "delete", || client.delete(&path, true)).await? {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Broken(format!("{}: {error}", self.name)));
                }
                _ => (),
            }
        }
        self.possible = BTreeSet::from([Stand::new()]);
        Ok(())
    }

    async fn round(&self) -> Check<Vec<Asked>> {
        let [first, second, third] = self.clients.as_slice() else { unreachable!("there are three of them") };
        let (first, second, third) =
            tokio::join!(self.ask_some(first, 0), self.ask_some(second, 1), self.ask_some(third, 2));
        Ok([first?, second?, third?].concat())
    }

    async fn ask_some(&self, client: &Client, place: u64) -> Check<Vec<Asked>> {
        let random = self.random.fork(&format!("{} {place}", self.clock.load(Ordering::Relaxed)));
        let mut asked = Vec::new();
        for _ in 0..1 + random.below(3) {
            let name = random.below(NAMES);
            let wish = match random.below(8) {
                0..3 if self.files => Wish::Put(name, random.one_in(2)),
                0..3 => Wish::Make(name),
                3..5 => Wish::Delete(name),
                5..7 => Wish::Rename(name, (name + 1 + random.below(NAMES - 1)) % NAMES),
                _ => Wish::Look(name),
            };
            asked.push(self.ask(client, wish).await?);
        }
        Ok(asked)
    }

    async fn ask(&self, client: &Client, wish: Wish) -> Check<Asked> {
        let begun = self.clock.fetch_add(1, Ordering::Relaxed);
        self.scene.say(|| format!("{}: {wish:?} {begun}", self.name));
        let call = async {
            let done = |(): ()| None;
            match wish {
                Wish::Make(name) => client.make_directory(&path_of(name), false).await.map(done),
                Wish::Put(name, replace) => put(client, &path_of(name), begun, replace).await.map(done),
                Wish::Delete(name) => client.delete(&path_of(name), false).await.map(done),
                Wish::Rename(from, to) => client.rename(&path_of(from), &path_of(to), false).await.map(done),
                Wish::Look(name) if self.files => read(client, &path_of(name)).await.map(Some),
                Wish::Look(name) => client.stat(&path_of(name)).await.map(|found| Some(found.inode)),
            }
        };
        let result: Result<Option<u64>> = self.scene.call(&self.name, "contended", call).await?;
        let answer = match &result {
            Ok(None) => Answer::Done,
            Ok(Some(number)) => Answer::There(*number),
            Err(error) if error.kind() == ErrorKind::NotFound => Answer::Missing,
            Err(error) if error.kind() == ErrorKind::Exists => Answer::Exists,
            Err(_) => Answer::Unknown,
        };
        let ended = self.clock.fetch_add(1, Ordering::Relaxed);
        self.scene.say(|| format!("{}: {wish:?} {begun}..{ended}: {answer:?}", self.name));
        Ok(Asked { wish, answer, begun, ended })
    }

    /// Looks at every name while nobody changes one.
    async fn look_at_all(&self) -> Check<Vec<Asked>> {
        let mut asked = Vec::new();
        for name in 0..NAMES {
            let look = self.ask(&self.clients[0], Wish::Look(name)).await?;
            if look.answer != Answer::Unknown {
                asked.push(look);
            }
        }
        Ok(asked)
    }

    /// Everything that may stand after these calls, in any order that their times allow.
    fn outcomes(&self, asked: &[Asked]) -> BTreeSet<Stand> {
        let mut known = BTreeSet::new();
        let mut ends = BTreeSet::new();
        let mut open: Vec<(u32, Stand)> = self.possible.iter().map(|stand| (0, stand.clone())).collect();
        while let Some((done, stand)) = open.pop() {
            if !known.insert((done, stand.clone())) {
                continue;
            }
            let left = || asked.iter().enumerate().filter(move |(place, _)| done & 1 << place == 0);
            if left().next().is_none() {
                ends.insert(stand);
                continue;
            }
            // None may come after one that began when it had ended. One whose end nobody heard may come last of all, too.
            let ends_first =
                left().filter(|(_, call)| call.answer != Answer::Unknown).map(|(_, call)| call.ended).min();
            for (place, call) in left().filter(|(_, call)| ends_first.is_none_or(|end| call.begun < end)) {
                let next = done | 1 << place;
                open.extend(effects(&stand, call, self.made + place as u64).into_iter().map(|stand| (next, stand)));
            }
        }
        ends
    }
}

/// Puts a small file with bytes that follow from the number of a call.
async fn put(client: &Client, path: &str, number: u64, overwrite: bool) -> Result<()> {
    let mut packer = client.packer(PackerOptions::default());
    let length = 8 + (number * 997) as usize % LENGTH_MAX;
    let options = PackOptions { overwrite, ..PackOptions::default() };
    packer.put(path, Bytes::from(chunk_bytes(number, length)), options).await?;
    packer.close().await?.into_iter().try_for_each(|(_, put)| put)
}

/// The number of the call whose bytes are there.
async fn read(client: &Client, path: &str) -> Result<u64> {
    let file = client.open(path).await?;
    // Another one may be there meanwhile, and the bytes of this one gone: that says nothing about the name.
    let gone = |error: Error| Error::new(ErrorKind::Io, error.text());
    let bytes = file.read_at(0, 8 + LENGTH_MAX as u64).await.map_err(gone)?.concat();
    let whole = |number: &u64| bytes == chunk_bytes(*number, 8 + (number * 997) as usize % LENGTH_MAX);
    let mixed = || Error::new(ErrorKind::Corrupt, format!("{path} has bytes that no call has put there"));
    chunk_number(&bytes).filter(whole).ok_or_else(mixed)
}

/// What may stand after a call that comes next, if its answer fits.
fn effects(stand: &Stand, call: &Asked, number: u64) -> Vec<Stand> {
    let mut after = stand.clone();
    let answer = match call.wish {
        Wish::Make(name) if stand.contains_key(&name) => Answer::Exists,
        Wish::Make(name) => {
            after.insert(name, (number, None));
            Answer::Done
        }
        Wish::Put(name, false) if stand.contains_key(&name) => Answer::Exists,
        Wish::Put(name, _) => {
            after.insert(name, (number, Some(call.begun)));
            Answer::Done
        }
        Wish::Delete(name) => after.remove(&name).map_or(Answer::Missing, |_| Answer::Done),
        Wish::Rename(from, to) => match (stand.get(&from), stand.get(&to)) {
            (None, Some(_)) if call.answer == Answer::Exists => Answer::Exists,
            (None, _) => Answer::Missing,
            (Some(_), Some(_)) => Answer::Exists,
            (Some(what), None) => {
                after.insert(to, *what);
                after.remove(&from);
                Answer::Done
            }
        },
        Wish::Look(name) => match (after.get_mut(&name), call.answer) {
            (None, _) => Answer::Missing,
            (Some((_, seen)), Answer::There(here)) if seen.is_none_or(|seen| seen == here) => {
                *seen = Some(here);
                Answer::There(here)
            }
            (Some(_), _) => Answer::Unknown,
        },
    };
    let numbers: Vec<u64> = after.values().filter_map(|(_, seen)| *seen).collect();
    let distinct = numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
    match call.answer {
        Answer::Unknown => vec![stand.clone(), after],
        given if given == answer && distinct => vec![after],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Asked, Stand, Wish, effects};

    fn asked(wish: Wish, answer: Answer) -> Asked {
        Asked { wish, answer, begun: 0, ended: 1 }
    }

    /// A call explains its answer only where the answer can come from what stands there.
    #[test]
    fn answers_that_fit() {
        let empty = Stand::new();
        let one = effects(&empty, &asked(Wish::Make(0), Answer::Done), 7).remove(0);
        assert_eq!(one.get(&0), Some(&(7, None)));
        assert!(effects(&one, &asked(Wish::Make(0), Answer::Done), 8).is_empty(), "made twice");
        assert!(effects(&empty, &asked(Wish::Delete(0), Answer::Done), 8).is_empty(), "deleted what is not there");
        assert_eq!(effects(&one, &asked(Wish::Delete(0), Answer::Unknown), 8), [one.clone(), empty.clone()]);
        let seen = effects(&one, &asked(Wish::Look(0), Answer::There(50)), 8).remove(0);
        assert!(effects(&seen, &asked(Wish::Look(0), Answer::There(51)), 9).is_empty(), "another one stands there");
        let put = effects(&seen, &Asked { begun: 60, ..asked(Wish::Put(0, true), Answer::Done) }, 9).remove(0);
        assert!(effects(&put, &asked(Wish::Look(0), Answer::There(50)), 9).is_empty(), "what was replaced is back");
        assert!(effects(&put, &asked(Wish::Put(0, false), Answer::Done), 9).is_empty(), "replaced what it may not");
        let moved = effects(&seen, &asked(Wish::Rename(0, 1), Answer::Done), 9).remove(0);
        assert_eq!(moved.get(&1), Some(&(7, Some(50))));
        assert!(effects(&moved, &asked(Wish::Look(0), Answer::There(50)), 9).is_empty(), "it is in one place");
    }
}
