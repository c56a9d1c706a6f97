//! What a node does with each call: which thread takes it, or which steps it needs when several must take part.

pub mod bags;
pub mod control;
pub mod fetching;
pub mod keepers;
pub mod moved;
pub mod scrub;
pub mod sums;

use crate::control::orphans;
use crate::device::bags::Waiter;
use crate::device::control::Extent;
use crate::device::{Consumer, Device, Item, Pushed, Then};
use crate::health;
use crate::leading::Leading;
use crate::membership::{self, Membership};
use crate::metadata;
use crate::metrics;
use crate::node::{Node, Role};
use crate::translate;
use base::disk::Caching;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, Generation, GroupId, PushName};
use base::limit::ACKNOWLEDGED_AT_ONCE_MAX;
use base::policy::Class;
use chunk::{Asking, Check, Request};
use meta::Caller;
use net::message::{Ask, Done, bag, chunk as wire, cluster, device as whole, file, keeper, kind_name, order, session};
use net::{Asker, Call, Payload, Responder, Service};
use std::sync::Arc;
use std::time::Duration;

/// A consumer waits at most this long in one call; it asks again. Short enough that a lost consumer is noticed.
const PULL_WAIT_MAX: Duration = Duration::from_secs(5);

/// The service that the network calls: shares the node with the control plane.
pub struct NodeService(pub Arc<Node>);

impl Service for NodeService {
    fn handle(&self, call: Call) {
        let node = &self.0;
        match call.kind {
            wire::Append::KIND
            | wire::AppendCell::KIND
            | wire::Seal::KIND
            | bag::Push::KIND
            | bag::Pull::KIND
            | bag::Acknowledge::KIND => {
                if let Some(call) = node.admit(call) {
                    self.handle_admitted(call);
                }
            }
            wire::Read::KIND => node.read(call),
            wire::Stat::KIND => node.stat(call),
            // Of a session that is over there is nothing to renew, and one whose keeper is not heard of for long keeps what it works on.
            bag::RenewGrants::KIND => node.renew_grants(call),
            bag::Create::KIND | bag::Stat::KIND | bag::List::KIND => node.in_steps(call),
            bag::Seal::KIND | bag::Delete::KIND | bag::Rewind::KIND => node.in_steps(call),
            file::Devices::KIND | file::Recover::KIND | session::Look::KIND => node.in_steps(call),
            whole::Scrub::KIND | whole::Scrubbed::KIND => node.in_steps(call),
            whole::Damage::KIND | whole::Drain::KIND | whole::Lost::KIND => node.in_steps(call),
            cluster::View::KIND | cluster::Report::KIND | cluster::FindSession::KIND => node.in_steps(call),
            cluster::DrainNode::KIND | cluster::RemoveNode::KIND => node.in_steps(call),
            order::Fence::KIND..=order::Fetch::KIND | order::Sums::KIND => node.handle_control(call),
            order::Follow::KIND => node.follow(call),
            keeper::Step::KIND..=keeper::Begin::KIND => node.speak_as_keeper(call),
            session::NodeStatus::KIND => node.status(call),
            _ => node.ask_metadata(call),
        }
    }
}

impl NodeService {
    /// Takes a call that changes something, or takes something, for a session that is open.
    pub fn handle_admitted(&self, call: Call) {
        match call.kind {
            wire::Append::KIND => self.0.append(call),
            wire::AppendCell::KIND => self.0.append_cell(call),
            wire::Seal::KIND => self.0.seal(call),
            bag::Pull::KIND => self.0.pull(call),
            bag::Acknowledge::KIND => self.0.acknowledge(call),
            _ => self.0.push(call),
        }
    }
}

/// Takes the question out of a call, or fails the call and leaves the function.
macro_rules! ask {
    ($call:ident as $kind:ty) => {
        match $call.ask::<$kind>() {
            Ok(ask) => ask,
            Err(error) => return $call.respond.fail(error),
        }
    };
}

/// The device of this id, or fails the call and leaves the function.
macro_rules! device {
    ($node:ident, $call:ident, $id:expr) => {
        match $node.device($id) {
            Ok(device) => device,
            Err(error) => return $call.respond.fail(error),
        }
    };
}

/// Gives a call of the node that keeps the metadata back, which needs no session, if its term is not over. It waits for nothing of an earlier one: what is appended
/// or sealed late is what is there already, or is refused for its place or its generation.
fn admit_ordered(membership: &Membership, call: Call) -> Option<Call> {
    match membership.term_of(call.asker) {
        Ok(_) => Some(call),
        Err(error) => {
            call.respond.fail(error);
            None
        }
    }
}

/// What a device knows of a chunk, and the start of its node: also where the chunk is not there, as an error could not say it, and a node that
/// lost its first bytes would be taken for one that never had any.
fn stat_at(start: u64, known: Option<Extent>) -> wire::StatAnswer {
    let Some(Extent { length, sealed, generation, crc }) = known else {
        return wire::StatAnswer { start, ..wire::StatAnswer::default() };
    };
    wire::StatAnswer { length, sealed, generation: generation.0, crc, start }
}

impl Node {
    /// Gives a call back that changes something for its session, if that is open; else fails it, or keeps it until that is known.
    /// What a session sends after its end is dropped, however long it was on its way: others may have been told that
    /// nothing more of it comes, and have taken over what it did.
    fn admit(self: &Arc<Self>, call: Call) -> Option<Call> {
        match &self.role {
            Role::Keeper(keeper) if keeper.metadata.is_open(call.session) => Some(call),
            Role::Keeper(_) => {
                let error = membership::over(call.session);
                call.respond.fail(error);
                None
            }
            Role::Member(membership) => self.admit_as_member(membership, call),
            Role::Several(several) => self.admit_as_member(&several.membership, call),
        }
    }

    fn admit_as_member(self: &Arc<Self>, membership: &Arc<Membership>, call: Call) -> Option<Call> {
        // Only who leads says a term; one that this node does not follow, or not yet, is told so, and is no client whose session is asked for.
        if membership.is_keeper(call.asker) || matches!(call.asker, Asker::Node { term: 1.., .. }) {
            return admit_ordered(membership, call);
        }
        membership.admit(call, |session, request| {
            let (membership, service) = (membership.clone(), NodeService(self.clone()));
            self.apart(request, async move { membership.find(session, |call| service.handle_admitted(call)).await });
        })
    }

    /// Whether calls to a device may have to go to another one, because it is being emptied. Not where this node does not keep the
    /// metadata alone: from there only chunks leave that nobody writes any more.
    fn sends_on(&self, device: &Device) -> bool {
        device.is_draining() && self.is_alone()
    }

    fn append(self: &Arc<Self>, mut call: Call) {
        let ask = ask!(call as wire::Append);
        self.append_as(call, ask, 0);
    }

    fn append_cell(self: &Arc<Self>, mut call: Call) {
        let wire::AppendCell { append, length } = ask!(call as wire::AppendCell);
        if length == 0 {
            let text =
                "an append was to stand for no bytes; nothing was stored; this is a fault in the program that asked";
            return call.respond.fail(Error::new(ErrorKind::Invalid, text));
        }
        self.append_as(call, append, length);
    }

    /// `cell`: bytes that the payload stands for; 0: for itself.
    fn append_as(self: &Arc<Self>, call: Call, ask: wire::Append, cell: u64) {
        let device = device!(self, call, ask.device);
        match translate::append_request(&ask, call.payload, cell) {
            Ok(request) if self.sends_on(device) => {
                let (node, device, respond) = (self.clone(), device.clone(), call.respond);
                self.apart(call.request, async move {
                    match node.place_now(&device, GroupId(ask.group), ChunkId(ask.chunk.value())).await {
                        Ok(device) => device.send(Item::Chunk { request, then: Then::Answer(respond) }),
                        Err(error) => respond.fail(error),
                    }
                });
            }
            Ok(request) => device.send(Item::Chunk { request, then: Then::Answer(call.respond) }),
            Err(error) => call.respond.fail(error),
        }
    }

    fn read(&self, mut call: Call) {
        let ask = ask!(call as wire::Read);
        let device = device!(self, call, ask.device);
        if ask.ranges.len() > base::limit::READ_RANGES_MAX {
            return call.respond.fail(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{} ranges were asked for at once; {} is the most",
                    ask.ranges.len(),
                    base::limit::READ_RANGES_MAX
                ),
            ));
        }
        let mut sum = 0u64;
        for range in &ask.ranges {
            sum = sum.saturating_add(range.length);
        }
        if sum > base::limit::FRAME_PAYLOAD_MAX as u64 {
            return call.respond.fail(Error::new(
                ErrorKind::Invalid,
                format!("{sum} bytes were asked for at once; {} is the most", base::limit::FRAME_PAYLOAD_MAX),
            ));
        }
        let caching = caching(device.class, ask.once, sum);
        let ranges = ask.ranges.iter().map(|range| (range.offset, range.length)).collect();
        let request = Request::Read {
            chunk: ChunkId(ask.chunk.value()),
            ranges,
            caching,
            check: check(ask.unchecked, ask.blocks),
            cells: ask.cells,
        };
        device.send(Item::Chunk { request, then: Then::Answer(call.respond) });
    }

    fn seal(self: &Arc<Self>, mut call: Call) {
        let ask = ask!(call as wire::Seal);
        let device = device!(self, call, ask.device);
        let request = Request::Seal {
            chunk: ChunkId(ask.chunk.value()),
            generation: Generation(ask.generation),
            length: ask.length,
        };
        if self.sends_on(device) {
            let (node, device, respond) = (self.clone(), device.clone(), call.respond);
            self.apart(call.request, async move {
                match node.holder(&device, ChunkId(ask.chunk.value())).await {
                    Ok(device) => device.send(Item::Chunk { request, then: Then::Answer(respond) }),
                    Err(error) => respond.fail(error),
                }
            });
            return;
        }
        device.send(Item::Chunk { request, then: Then::Answer(call.respond) });
    }

    fn stat(self: &Arc<Self>, mut call: Call) {
        let ask = ask!(call as wire::Stat);
        let device = device!(self, call, ask.device);
        if ask.start {
            let (node, device, respond) = (self.clone(), device.clone(), call.respond);
            self.apart(call.request, async move {
                match device.stat(ChunkId(ask.chunk.value())).await {
                    Ok(known) => respond.answer(stat_at(node.start, known), Payload::empty()),
                    Err(error) => respond.fail(error),
                }
            });
            return;
        }
        let request = Request::Stat { chunk: ChunkId(ask.chunk.value()) };
        device.send(Item::Chunk { request, then: Then::Answer(call.respond) });
    }

    fn push(self: &Arc<Self>, mut call: Call) {
        let ask = ask!(call as bag::Push);
        let device = device!(self, call, ask.device);
        if call.payload.is_empty() {
            return call.respond.fail(Error::new(ErrorKind::Invalid, "an empty chunk cannot be pushed; leave it out"));
        }
        let push = Pushed { bag: BagId(ask.bag), chunk: ChunkId(ask.chunk.value()), floor: ask.floor };
        if PushName::of(push.chunk).session != call.session.mark() {
            let text = format!(
                "chunk {} has not the name of a push of this session; it was not stored; use one version of client and node",
                push.chunk
            );
            return call.respond.fail(Error::new(ErrorKind::Invalid, text));
        }
        match call.payload.into_verified() {
            Ok((bytes, sums)) => {
                if self.sends_on(device) {
                    let (node, device, respond) = (self.clone(), device.clone(), call.respond);
                    let session = call.session;
                    self.apart(call.request, async move {
                        node.push_elsewhere(&device, (session, push), (bytes, sums), respond).await;
                    });
                    return;
                }
                device.send(Item::Push { push, bytes, sums, respond: call.respond });
            }
            Err(error) => call.respond.fail(error),
        }
    }

    fn pull(&self, mut call: Call) {
        let ask = ask!(call as bag::Pull);
        let device = device!(self, call, ask.device);
        let wait = Duration::from_millis(u64::from(ask.wait_ms)).min(PULL_WAIT_MAX);
        let waiter = Waiter {
            consumer: call.session,
            grant: ask.grant,
            deadline: self.clock.now().after(wait),
            check: check(ask.unchecked, false),
            respond: call.respond,
        };
        device.send(Item::Pull { bag: BagId(ask.bag), waiter });
    }

    fn acknowledge(&self, mut call: Call) {
        let ask = ask!(call as bag::Acknowledge);
        let device = device!(self, call, ask.device);
        if ask.grants.len() > ACKNOWLEDGED_AT_ONCE_MAX {
            let text = format!(
                "{} chunks were acknowledged at once, {ACKNOWLEDGED_AT_ONCE_MAX} are the most; none was counted; say it in parts",
                ask.grants.len()
            );
            return call.respond.fail(Error::new(ErrorKind::Invalid, text));
        }
        let grants = grants(&ask.grants);
        let (bag, pass) = (BagId(ask.bag), (ask.pass, ask.retain));
        let asking = Asking { session: call.session.mark(), number: ask.number, floor: ask.floor };
        let by = Consumer { session: call.session, asking: (ask.number > 0).then_some(asking) };
        device.send(Item::Acknowledge { bag, pass, grants, by, respond: call.respond });
    }

    fn renew_grants(&self, mut call: Call) {
        let ask = ask!(call as bag::RenewGrants);
        let device = device!(self, call, ask.device);
        let grants = grants(&ask.grants);
        device.send(Item::Renew { bag: BagId(ask.bag), grants, consumer: call.session, respond: call.respond });
    }

    fn status(&self, call: Call) {
        let answer = session::NodeStatusAnswer {
            node: self.id.0.into(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            process: u64::from(std::process::id()),
            uptime_ms: self.clock.now().since(self.started).as_millis() as u64,
        };
        call.respond.answer(answer, Payload::empty());
    }

    /// Who leads the keepers says so.
    fn follow(self: &Arc<Self>, mut call: Call) {
        let ask = ask!(call as order::Follow);
        let Some(membership) = self.membership().cloned() else {
            return call.respond.fail(control::nobody_else_orders());
        };
        self.apart(call.request, async move {
            let followed = membership.follow(call.asker, ask.address).await;
            respond(call.respond, followed.map(|()| Done {}));
        });
    }

    fn ask_metadata(self: &Arc<Self>, call: Call) {
        if self.is_alone() || !needs_place(call.kind) {
            return self.ask_metadata_now(call);
        }
        match self.leading() {
            Ok(leading) if leading.has_gathered() => self.ask_metadata_now(call),
            Ok(leading) => {
                let node = self.clone();
                self.apart(call.request, async move {
                    leading.until_gathered().await;
                    node.ask_metadata_now(call);
                });
            }
            Err(error) => call.respond.fail(error),
        }
    }

    fn ask_metadata_now(&self, mut call: Call) {
        let metadata = match self.metadata() {
            Ok(metadata) => metadata,
            Err(error) => return call.respond.fail(error),
        };
        let caller = caller(&call);
        match translate::request(&mut call) {
            Ok((request, answer)) => {
                metadata.send(metadata::Item::Ask {
                    caller,
                    request,
                    then: metadata::Then::Answer(call.respond, answer),
                });
            }
            Err(error) => call.respond.fail(error),
        }
    }

    /// Calls that need the metadata store and devices one after another run as a task.
    fn in_steps(self: &Arc<Self>, call: Call) {
        let node = self.clone();
        self.apart(call.request, async move { node.step_through(call).await });
    }

    async fn step_through(&self, mut call: Call) {
        match call.kind {
            cluster::View::KIND => {
                let ask = ask!(call as cluster::View);
                respond(call.respond, self.view(ask.led).await);
            }
            session::Look::KIND => {
                let (answer, page) = self.look().await;
                call.respond.answer(answer, Payload::new(page.into()));
            }
            whole::Scrub::KIND => {
                let ask = ask!(call as whole::Scrub);
                respond(call.respond, self.scrub(ask).await);
            }
            whole::Scrubbed::KIND => {
                let ask = ask!(call as whole::Scrubbed);
                respond(call.respond, self.scrubbed(ask).await);
            }
            _ => match self.leading() {
                Ok(leading) => self.step_through_leading(&leading, call).await,
                Err(error) => call.respond.fail(error),
            },
        }
    }

    /// Those for which its keeper has to lead: all their steps are of one leadership.
    async fn step_through_leading(&self, leading: &Leading, mut call: Call) {
        let (caller, asker) = (caller(&call), call.asker);
        // Reports are what is waited for, and these need no device.
        if !matches!(call.kind, cluster::Report::KIND | cluster::FindSession::KIND | cluster::RemoveNode::KIND) {
            leading.until_gathered().await;
        }
        match call.kind {
            bag::Create::KIND => {
                let ask = ask!(call as bag::Create);
                respond(call.respond, self.create_bag(leading, caller, ask).await);
            }
            bag::Stat::KIND => {
                let ask = ask!(call as bag::Stat);
                respond(call.respond, self.bag_for(leading, &ask.name, ask.uncounted, ask.knows).await);
            }
            bag::List::KIND => {
                let ask = ask!(call as bag::List);
                respond(call.respond, self.list_bags(leading, ask).await);
            }
            bag::Seal::KIND => {
                let ask = ask!(call as bag::Seal);
                respond(call.respond, self.seal_bag(leading, caller, &ask.name).await);
            }
            bag::Rewind::KIND => {
                let ask = ask!(call as bag::Rewind);
                respond(call.respond, self.rewind_bag(leading, caller, ask.name).await);
            }
            bag::Delete::KIND => {
                let ask = ask!(call as bag::Delete);
                respond(call.respond, self.delete_bag(leading, caller, &ask.name).await);
            }
            file::Devices::KIND => respond(call.respond, self.list_devices(leading).await),
            cluster::Report::KIND => {
                let ask = ask!(call as cluster::Report);
                respond(call.respond, self.take_report(leading, asker, ask).await);
            }
            cluster::FindSession::KIND => {
                let ask = ask!(call as cluster::FindSession);
                respond(call.respond, leading.find_session(ask).await);
            }
            cluster::RemoveNode::KIND => {
                let ask = ask!(call as cluster::RemoveNode);
                respond(call.respond, self.remove_node(leading, caller, ask).await);
            }
            cluster::DrainNode::KIND => {
                let ask = ask!(call as cluster::DrainNode);
                respond(call.respond, self.drain_node(leading, caller, ask).await);
            }
            file::Recover::KIND => {
                let ask = ask!(call as file::Recover);
                respond(call.respond, orphans::recover(self, leading, caller, ask).await);
            }
            whole::Drain::KIND => {
                let ask = ask!(call as whole::Drain);
                respond(call.respond, self.drain(leading, caller, ask).await);
            }
            whole::Lost::KIND => {
                let ask = ask!(call as whole::Lost);
                respond(call.respond, self.give_up(leading, caller, ask).await);
            }
            whole::Damage::KIND => {
                let ask = ask!(call as whole::Damage);
                respond(call.respond, self.damage(leading, ask.device).await);
            }
            other => unreachable!("{} takes no steps", kind_name(other).unwrap_or("an unknown kind")),
        }
    }

    /// Health and metrics. Whatever does not answer in time is left out, and health says so.
    async fn look(&self) -> (session::LookAnswer, String) {
        let health = health::look(self).await;
        let page = match tokio::time::timeout(health::PATIENCE, metrics::page::page(self)).await {
            Ok(Ok(page)) => page,
            Ok(Err(_)) | Err(_) => String::new(),
        };
        let answer = session::LookAnswer {
            ready: health.ready,
            troubles: health.troubles,
            console: self.console.clone().unwrap_or_default(),
            hdfs: self.hdfs.clone().unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            process: u64::from(std::process::id()),
        };
        (answer, page)
    }

    /// All devices of the store, those of other nodes as they were reported.
    async fn list_devices(&self, leading: &Leading) -> Result<file::DevicesAnswer> {
        let totals = translate::totals(leading.metadata.ask(meta::Request::Usage).await?);
        let mut devices = Vec::new();
        if leading.alone {
            devices.extend(leading.near_devices(self.id, self.own_devices()).await?);
        }
        devices.extend(leading.far_devices(self).await?);
        leading.tell_away(self.clock.now(), &mut devices);
        let lacks = Some(leading.lacks().await?);
        Ok(file::DevicesAnswer { devices, lacks, ..totals })
    }
}

/// Whether devices are looked for where something new can be: a keeper that has just begun to lead knows none.
fn needs_place(kind: u16) -> bool {
    matches!(
        kind,
        file::Create::KIND | file::Append::KIND | file::NextGroup::KIND | file::PackGroup::KIND | file::PutFiles::KIND
    )
}

/// Who asks.
fn caller(call: &Call) -> Caller {
    Caller { session: call.session, call: call.number, floor: call.floor }
}

fn grants(grants: &[bag::Grant]) -> Vec<(ChunkId, u64)> {
    grants.iter().map(|grant| (ChunkId(grant.chunk.value()), grant.grant)).collect()
}

/// How so many bytes are read of a device of this class; `once`: nobody will read them again. What is read around is not kept,
/// so that scans neither pay for filling memory nor drive out what is read in small parts.
fn caching(class: Class, once: bool, bytes: u64) -> Caching {
    let memory_is_far_faster = matches!(class, Class::Hdd | Class::Bulk);
    if once || bytes >= base::limit::AROUND_MIN && !memory_is_far_faster {
        Caching::MemoryOrAround
    } else {
        Caching::Through
    }
}

fn check(unchecked: bool, blocks: bool) -> Check {
    match (unchecked, blocks) {
        (true, true) => Check::ByBlocks,
        (true, false) => Check::ByReader,
        (false, _) => Check::Here,
    }
}

/// Answers with what came out.
pub fn respond<M: prost::Message + 'static>(responder: Responder, result: Result<M>) {
    match result {
        Ok(answer) => responder.answer(answer, Payload::empty()),
        Err(error) => responder.fail(error),
    }
}

#[cfg(test)]
mod tests {
    use super::caching;
    use base::disk::Caching::{MemoryOrAround, Through};
    use base::limit::AROUND_MIN;
    use base::policy::Class::{Hdd, Nvm, Ssd};

    /// Large reads of fast devices are not kept in memory; small ones are, and those of slow devices unless nobody comes back.
    #[test]
    fn what_is_kept_in_memory() {
        for class in [Ssd, Nvm] {
            assert_eq!([0, AROUND_MIN - 1].map(|bytes| caching(class, false, bytes)), [Through; 2]);
            assert_eq!(caching(class, false, AROUND_MIN), MemoryOrAround);
        }
        assert_eq!([1, 16 * AROUND_MIN].map(|bytes| caching(Hdd, false, bytes)), [Through; 2]);
        assert_eq!([Ssd, Hdd].map(|class| caching(class, true, 1)), [MemoryOrAround; 2]);
    }
}
