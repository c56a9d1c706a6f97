//! Naming bags, and opening one to push to or to pull from.

use crate::client::Client;
use crate::consumer::{Consumer, ConsumerOptions};
use crate::locality::Side;
use crate::producer::{Producer, ProducerOptions};
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::policy::Compression;
use net::message::Id;
use net::message::bag::{self, Info};
use std::time::Duration;

/// A bag that was looked up: its number and the devices that hold its chunks.
#[derive(Clone)]
pub struct Bag {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) members: Vec<Id>,
    pub(crate) compression: Compression,
    /// Its acknowledged chunks stay.
    pub(crate) retain: bool,
    /// The pass it was in, and whether it was sealed, when it was opened.
    pub(crate) pass: u32,
    pub(crate) sealed: bool,
}

/// What a bag is from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BagOptions {
    /// Acknowledged chunks stay, to be given once in each pass, until the bag is deleted.
    pub retain: bool,
    /// How its chunks are compressed by those who push, before they are sent. None: not at all, or, of a bag that is there
    /// already, as they are.
    pub compression: Option<Compression>,
}

/// Which devices of a bag a producer pushes to, or a consumer pulls from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All of them. (Hurricane's `global_*`.)
    #[default]
    Cluster,
    /// Those of one node, such as `Client::here`. (Hurricane's `local_*`.) The end of a consumer is then when everything there is
    /// handled, and says nothing of what is elsewhere in the bag.
    Node(NodeId),
}

impl Client {
    /// Makes a bag. `Exists` if there is one of that name, unless `exists_ok`.
    pub async fn bag_create(&self, name: &str, exists_ok: bool) -> Result<Bag> {
        self.bag_create_with(name, exists_ok, BagOptions::default()).await
    }

    /// The same, with options. `Exists` too if there is one of that name with others.
    pub async fn bag_create_with(&self, name: &str, exists_ok: bool, options: BagOptions) -> Result<Bag> {
        let wish = options.compression.unwrap_or_default();
        let create = bag::Create {
            name: name.to_string(),
            exists_ok,
            retain: options.retain,
            uncounted: true,
            compression: wish.code(),
            knows: Compression::CODE_MAX,
        };
        let info = self.ask(&create).await?;
        let (retains, bag) = (info.retain, Bag::of(self, name, info).await?);
        let is = if retains != options.retain {
            if retains { "it retains its chunks".to_string() } else { "it gives its chunks away".to_string() }
        } else if options.compression.is_some_and(|wish| wish != bag.compression) {
            format!("its chunks have compression {} (nodes of older versions know no other)", bag.compression.name())
        } else {
            return Ok(bag);
        };
        let text = format!("there is a bag {name} already, and {is}; it was not changed; choose another name");
        Err(Error::new(ErrorKind::Exists, text))
    }

    /// Begins a new pass of a bag: every chunk that is there is given once more, and acknowledgements of chunks pulled
    /// before are refused.
    pub async fn bag_rewind(&self, name: &str) -> Result<Info> {
        self.ask(&bag::Rewind { name: name.to_string() }).await
    }

    /// A bag to push to or to pull from. `NotFound` if there is none of that name.
    pub async fn bag(&self, name: &str) -> Result<Bag> {
        let info = self.bag_uncounted(name).await?;
        Bag::of(self, name, info).await
    }

    /// A bag's state without counts: no device is asked.
    async fn bag_uncounted(&self, name: &str) -> Result<Info> {
        self.ask(&stat(name, true)).await
    }

    /// A bag's state and counts.
    pub async fn bag_stat(&self, name: &str) -> Result<Info> {
        self.ask(&stat(name, false)).await
    }

    /// Whether there is a bag of that name.
    pub async fn bag_exists(&self, name: &str) -> Result<bool> {
        match self.bag_uncounted(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All bags, in the order of their names.
    pub async fn bag_list(&self) -> Result<Vec<Info>> {
        let mut bags: Vec<Info> = Vec::new();
        loop {
            let after = bags.last().map(|info| info.name.clone()).unwrap_or_default();
            let answer = self.ask(&bag::List { after: after.clone(), limit: 0 }).await?;
            let more = answer.more && !answer.bags.is_empty();
            if answer.bags.last().is_some_and(|last| last.name <= after) {
                let text = "the node listed its bags out of order; nothing was changed; check that client and node have one version";
                return Err(Error::new(ErrorKind::Protocol, text));
            }
            bags.extend(answer.bags);
            if !more {
                return Ok(bags);
            }
        }
    }

    /// Refuses further pushes to a bag, for good. What is in it can be pulled.
    pub async fn bag_seal(&self, name: &str) -> Result<Info> {
        self.ask(&bag::Seal { name: name.to_string() }).await
    }

    /// Removes a bag with what is in it.
    pub async fn bag_delete(&self, name: &str) -> Result<()> {
        self.ask(&bag::Delete { name: name.to_string() }).await.map(|_| ())
    }
}

fn stat(name: &str, uncounted: bool) -> bag::Stat {
    bag::Stat { name: name.to_string(), uncounted, knows: Compression::CODE_MAX }
}

/// While somebody pushes or pulls, the bag's devices are asked for this often: one that has joined takes part a second later.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Makes a list of a bag's devices the one of those that are `present`: those that have joined are added as `new` makes them, those
/// that have left are dropped. `device` says which device an entry is about.
pub(crate) fn follow<M>(members: &mut Vec<M>, present: &[Id], device: impl Fn(&M) -> Id, new: impl Fn(Id) -> M) {
    members.retain(|member| present.contains(&device(member)));
    for joined in present {
        if members.iter().all(|member| device(member) != *joined) {
            members.push(new(*joined));
        }
    }
}

/// Asks where these devices are, if that is not known of one: the node that was asked who is there may not have heard of it yet.
async fn find(client: &Client, devices: &[Id]) {
    let routes = &client.session.routes;
    if devices.iter().any(|device| !routes.has(*device)) {
        // If it fails, so does what is asked there, and says why.
        let _later = routes.refresh(&routes.table()).await;
    }
}

impl Bag {
    async fn of(client: &Client, name: &str, info: Info) -> Result<Bag> {
        if info.members.is_empty() {
            let text =
                format!("bag {name} has no devices, so nothing can be pushed or pulled; add a device to the node");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let compression = Compression::from_code(info.compression).ok_or_else(|| {
            let text = format!("bag {name} holds chunks that are compressed in a way that this program does not know; none was taken; use a newer version of the program");
            Error::new(ErrorKind::Unsupported, text)
        })?;
        find(client, &info.members).await;
        Ok(Bag {
            client: client.clone(),
            name: name.to_string(),
            number: info.bag,
            members: info.members,
            compression,
            retain: info.retain,
            pass: info.pass,
            sealed: info.sealed,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its devices, its pass and whether it is sealed, now. `NotFound` if it was deleted, whatever has its name by now. `tells`: every
    /// device that does not know of that pass is told.
    pub(crate) async fn look(&self, tells: bool) -> Result<Info> {
        let info = self.client.ask(&stat(&self.name, !tells)).await?;
        if info.bag == self.number {
            find(&self.client, &info.members).await;
            return Ok(info);
        }
        let text = format!("bag {} was deleted, and made anew; open it again", self.name);
        Err(Error::new(ErrorKind::NotFound, text))
    }

    /// Those of its devices that are in this scope.
    pub(crate) fn within(&self, scope: Scope, devices: &[Id]) -> Vec<Id> {
        let Scope::Node(node) = scope else { return devices.to_vec() };
        let routes = &self.client.session.routes;
        let is_there = |device: &Id| routes.place_of(*device).is_some_and(|(has, _)| has == node);
        devices.iter().copied().filter(is_there).collect()
    }

    /// On which side of the client a device is. One that nobody told of yet is taken for far.
    pub(crate) fn side_of(&self, device: Id) -> Side {
        self.client.session.routes.place_of(device).map_or(Side::Far, |(_, side)| side)
    }

    /// Its state and counts now.
    pub async fn stat(&self) -> Result<Info> {
        self.client.bag_stat(&self.name).await
    }

    /// Refuses further pushes, for good.
    pub async fn seal(&self) -> Result<Info> {
        self.client.bag_seal(&self.name).await
    }

    /// Somebody who pushes.
    pub fn producer(&self, options: ProducerOptions) -> Producer {
        Producer::new(self.clone(), options)
    }

    /// Somebody who pulls and acknowledges. Must be called within a tokio runtime.
    pub fn consumer(&self, options: ConsumerOptions) -> Consumer {
        Consumer::new(self.clone(), options)
    }
}
