//! Who asks stores of several keepers, and what he has to be answered.

use super::{Broken, Cluster, MS, Machine};
use crate::world::{path, stat};
use base::env::Random;
use base::error::{Error, ErrorKind};
use base::id::SessionId;
use meta::request::{NewInode, User};
use meta::{Caller, Reply, Request};
use std::collections::BTreeSet;

/// Who asked, and which of his tries it is.
pub type Tag = (usize, u64);

/// The first byte of the key of a name, behind which are the directory's number, in eight bytes, and the name (`Key::Name`).
const NAME: u8 = 0x10;

/// The try of one that was sent twice: nobody waits for its answer.
const REPEATED: u64 = u64::MAX;

/// What a machine is asked.
pub struct Question {
    /// It comes then.
    pub comes: u64,
    pub caller: Caller,
    pub request: Request,
    pub tag: Tag,
}

/// What somebody asks.
#[derive(Clone, Debug)]
pub enum Asked {
    Opens,
    Makes(String),
    Removes(String),
    /// And what was known of it when this was asked, and which change of it was the last then.
    Looks(String, Option<(Known, u64)>),
}

/// What is known of a name: it was acknowledged, or seen, and stays so until somebody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    Makes,
    There,
    Removes,
    Gone,
}

/// A name that was asked for.
pub struct Name {
    pub known: Known,
    /// Counts what became known of it.
    turn: u64,
}

impl Name {
    fn is(&mut self, known: Known) {
        (self.known, self.turn) = (known, self.turn + 1);
    }
}

/// Somebody who asks one thing after the other, each until it is answered, at whichever keeper.
pub struct Client {
    pub call: u64,
    pub asked: Option<Asked>,
    pub tries: u64,
    /// When he asks again, somewhere else.
    pub again_at: u64,
    pub made: u64,
}

impl Cluster {
    /// Asks what is to be asked, or again.
    pub fn ask(&mut self, who: usize) {
        if self.clients[who].asked.is_none() {
            if !self.random.one_in(5) {
                return;
            }
            let asked = self.draw(who);
            let client = &mut self.clients[who];
            (client.asked, client.again_at) = (Some(asked), 0);
            client.call += 1;
        }
        if self.clients[who].again_at > self.now {
            return;
        }
        let leads = |machine: &Machine| machine.runs.as_ref().is_some_and(|(_, store)| store.part().leads());
        let leading: Vec<usize> = (0..self.machines.len()).filter(|at| leads(&self.machines[*at])).collect();
        let at = match leading.len() as u64 {
            0 => self.random.below(self.machines.len() as u64) as usize,
            many => leading[self.random.below(many) as usize],
        };
        let again_at = self.now + 50 * MS + self.random.below(1_500 * MS);
        let client = &mut self.clients[who];
        client.tries += 1;
        client.again_at = again_at;
        let request = match &mut client.asked {
            Some(Asked::Opens) => Request::OpenSession { user: User::default() },
            Some(Asked::Makes(name)) => {
                // Made twice it would be refused.
                Request::Mkdir { path: path(name), parents: false, new: NewInode::with_mode(0o755) }
            }
            Some(Asked::Removes(name)) => Request::Delete { path: path(name), recursive: false },
            Some(Asked::Looks(name, known)) => {
                *known = self.names.get(name).map(|name| (name.known, name.turn));
                stat(name)
            }
            None => return,
        };
        let caller = Caller { session: SessionId(10 + who as u128), call: client.call, floor: client.call };
        let (tag, comes) = ((who, client.tries), self.now);
        if self.random.one_in(20) {
            // It went to another one first, and is still on its way there.
            let comes = self.now + self.random.below(3_000 * MS);
            let request = request.clone();
            let other = self.random.below(self.machines.len() as u64) as usize;
            self.machines[other].mail.push(Question { comes, caller, request, tag: (who, REPEATED) });
        }
        self.machines[at].mail.push(Question { comes, caller, request, tag });
    }

    fn draw(&mut self, who: usize) -> Asked {
        if self.random.one_in(2) || self.names.is_empty() {
            let client = &mut self.clients[who];
            let last = format!("/{who}-{}", client.made);
            if self.random.one_in(4)
                && let Some(name) = self.names.get_mut(&last).filter(|name| name.known == Known::There)
            {
                name.is(Known::Removes);
                return Asked::Removes(last);
            }
            client.made += 1;
            let name = format!("/{who}-{}", client.made);
            self.names.insert(name.clone(), Name { known: Known::Makes, turn: 0 });
            return Asked::Makes(name);
        }
        // The newest ones are where a stale answer shows.
        let back = self.random.below(6).min(self.names.len() as u64 - 1) as usize;
        let other = self.random.below(self.clients.len() as u64) as usize;
        let name = format!("/{other}-{}", self.clients[other].made.saturating_sub(back as u64 / 2));
        Asked::Looks(name, None)
    }

    pub fn answered(&mut self, (who, tries): Tag, result: Result<Reply, Error>) -> Result<(), Broken> {
        let now = self.now;
        let Some(client) = self.clients.get_mut(who).filter(|client| client.tries == tries) else { return Ok(()) };
        let Some(asked) = client.asked.clone() else { return Ok(()) };
        match (asked, result) {
            (_, Err(error)) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Full) => {
                client.again_at = now + self.random.below(500 * MS);
                return Ok(());
            }
            (Asked::Looks(name, known), Ok(_)) => self.seen(&name, known, true)?,
            (Asked::Looks(name, known), Err(error)) if error.kind() == ErrorKind::NotFound => {
                self.seen(&name, known, false)?;
            }
            (asked, Err(error)) => return Err(Broken(format!("{asked:?} was answered: {error}"))),
            (Asked::Opens, Ok(_)) => {}
            (Asked::Makes(name), Ok(_)) => self.knows(&name, Known::There),
            (Asked::Removes(name), Ok(_)) => self.knows(&name, Known::Gone),
        }
        self.clients[who].asked = None;
        self.answered += 1;
        Ok(())
    }

    fn knows(&mut self, name: &str, known: Known) {
        if let Some(name) = self.names.get_mut(name) {
            name.is(known);
        }
    }

    /// Somebody looked: what was known when he asked, and is what is known last, has to be so; what he saw of a change that nobody answered yet stays so.
    fn seen(&mut self, path: &str, asked: Option<(Known, u64)>, is_there: bool) -> Result<(), Broken> {
        let Some(name) = self.names.get_mut(path) else {
            let nobody = || Broken(format!("{path} is there, and nobody asked for it"));
            return if is_there { Err(nobody()) } else { Ok(()) };
        };
        if asked != Some((name.known, name.turn)) {
            return Ok(());
        }
        match (name.known, is_there) {
            (Known::There, false) => Err(Broken(format!("{path} was there, and is gone"))),
            (Known::Gone, true) => Err(Broken(format!("{path} was gone, and is there"))),
            (Known::Makes, true) => {
                name.is(Known::There);
                Ok(())
            }
            (Known::Removes, false) => {
                name.is(Known::Gone);
                Ok(())
            }
            _ => Ok(()),
        }
    }
    /// All names are in the tree, or are not, as they are known.
    pub fn compare_names(&self, tree: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Broken> {
        let names = tree.iter().filter(|(key, _)| key[0] == NAME).filter_map(|(key, _)| key.get(9..));
        let there: BTreeSet<&[u8]> = names.collect();
        for (path, Name { known, .. }) in &self.names {
            match (known, there.contains(&path.as_bytes()[1..])) {
                (Known::There, false) => return Err(Broken(format!("{path} was there, and is gone in the end"))),
                (Known::Gone, true) => return Err(Broken(format!("{path} was gone, and is there in the end"))),
                _ => {}
            }
        }
        Ok(())
    }
}
