//! What is asked of a bag as a whole: its record is in the metadata, its chunks and their counts are with its members.

use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::node::Node;
use crate::translate;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, DeviceId};
use base::planted::Planted;
use base::policy::Compression;
use meta::Caller;
use net::message::{Done, bag};

impl Node {
    pub async fn create_bag(&self, leading: &Leading, caller: Caller, ask: bag::Create) -> Result<bag::Info> {
        let compression = Compression::from_code(ask.compression).ok_or_else(|| {
            let text = format!("bag {} is to be compressed in a way that this node does not know; it was not made; use the same Stormwell version on both sides", ask.name);
            Error::new(ErrorKind::Unsupported, text)
        })?;
        let request = meta::Request::BagCreate {
            name: ask.name.clone(),
            policy: base::policy::Policy::default(),
            chunk_size: base::limit::BAG_CHUNK,
            retain: ask.retain,
            compression,
        };
        let record = match leading.metadata.ask_for(caller, request).await {
            Ok(reply) => translate::bag_found(reply),
            Err(error) if error.kind() == ErrorKind::Exists && ask.exists_ok => {
                // Whoever made it may have failed to tell the members.
                return self.bag_for(leading, &ask.name, ask.uncounted && !ask.retain, ask.knows).await;
            }
            Err(error) => return Err(error),
        };
        // That it retains must be known to each member before the first chunk comes.
        if ask.uncounted && !ask.retain { Ok(record) } else { self.counted(leading, record).await }
    }

    /// The same for somebody who knows compressions up to this code.
    pub async fn bag_for(&self, leading: &Leading, name: &str, uncounted: bool, knows: u32) -> Result<bag::Info> {
        let info = self.bag_info(leading, name, uncounted).await?;
        if info.compression <= knows {
            return Ok(info);
        }
        let text = format!(
            "bag {name} holds chunks that are compressed in a way that this program does not know; none was given out; use a newer version of the program"
        );
        Err(Error::new(ErrorKind::Unsupported, text))
    }

    async fn bag_info(&self, leading: &Leading, name: &str, uncounted: bool) -> Result<bag::Info> {
        let name = name.to_string();
        let mut record = translate::bag_found(leading.metadata.ask(meta::Request::BagStat { name }).await?);
        if self.planted == Some(Planted::SilentMemberLeftOut) {
            record
                .members
                .retain(|id| leading.device_handle(self, DeviceId(id.value())).is_ok_and(|handle| handle.is_able()));
        }
        if uncounted { Ok(record) } else { self.counted(leading, record).await }
    }

    /// A page of bags with their counts, as far as their members can be asked: who looks for what is wrong needs the others.
    pub async fn list_bags(&self, leading: &Leading, ask: bag::List) -> Result<bag::ListAnswer> {
        let reply = leading
            .metadata
            .ask(meta::Request::BagList {
                after: (!ask.after.is_empty()).then_some(ask.after),
                limit: translate::page_limit(ask.limit),
            })
            .await?;
        let (records, more) = translate::bags_found(reply);
        let mut bags = Vec::with_capacity(records.len());
        for record in records {
            bags.push(self.counted_so_far(leading, record).await);
        }
        Ok(bag::ListAnswer { bags, more })
    }

    /// *Sealing* is recorded, each member durably refuses pushes, then *sealed* is recorded. Every step may be repeated, and is
    /// if the members changed meanwhile.
    pub async fn seal_bag(&self, leading: &Leading, caller: Caller, name: &str) -> Result<bag::Info> {
        let request = meta::Request::BagSeal { name: name.to_string() };
        let mut reply = leading.metadata.ask_for(caller, request.clone()).await?;
        loop {
            let record = translate::bag_found(reply);
            let bag = BagId(record.bag);
            for member in self.members(leading, &record)? {
                member.seal_bag(bag, record.epoch).await?;
            }
            match leading.metadata.ask(meta::Request::BagSealed { bag, epoch: record.epoch }).await {
                Ok(_) => return self.bag_info(leading, name, false).await,
                Err(error) if error.kind() == ErrorKind::Stale => {
                    // Another question than the client's, to which something else was answered.
                    let unnumbered = Caller { call: 0, ..caller };
                    reply = leading.metadata.ask_for(unnumbered, request.clone()).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The new pass is recorded, then each member is told. If that is cut short, whoever looks at the bag next ends it.
    pub async fn rewind_bag(&self, leading: &Leading, caller: Caller, name: String) -> Result<bag::Info> {
        let reply = leading.metadata.ask_for(caller, meta::Request::BagRewind { name }).await?;
        self.counted(leading, translate::bag_found(reply)).await
    }

    pub async fn delete_bag(&self, leading: &Leading, caller: Caller, name: &str) -> Result<Done> {
        leading.metadata.ask_for(caller, meta::Request::BagDelete { name: name.to_string() }).await?;
        Ok(Done {})
    }

    fn members(&self, leading: &Leading, record: &bag::Info) -> Result<Vec<DeviceHandle>> {
        record.members.iter().map(|id| leading.device_handle(self, DeviceId(id.value()))).collect()
    }

    /// The record with the counts of every member added up. A member that does not know of the present pass is told.
    async fn counted(&self, leading: &Leading, mut record: bag::Info) -> Result<bag::Info> {
        for member in self.members(leading, &record)? {
            self.add_counts(&mut record, &member).await?;
        }
        Ok(record)
    }

    /// The same without the members that cannot be asked.
    async fn counted_so_far(&self, leading: &Leading, mut record: bag::Info) -> bag::Info {
        for id in record.members.clone() {
            let added = match leading.device_handle(self, DeviceId(id.value())) {
                Ok(member) if member.can_be_asked() => self.add_counts(&mut record, &member).await.is_ok(),
                Ok(_) | Err(_) => false,
            };
            record.unasked += u32::from(!added);
        }
        record
    }

    async fn add_counts(&self, record: &mut bag::Info, member: &DeviceHandle) -> Result<()> {
        let bag = BagId(record.bag);
        let mut counts = member.bag_counts(bag).await?;
        if counts.stat.pass < record.pass || record.retain && !counts.stat.retain {
            member.begin_pass(bag, record.pass, record.retain).await?;
            counts = member.bag_counts(bag).await?;
        }
        record.pushed += counts.stat.pushed;
        record.pushed_bytes += counts.stat.pushed_bytes;
        record.acknowledged += counts.stat.acknowledged;
        record.acknowledged_bytes += counts.stat.acknowledged_bytes;
        record.waiting += counts.waiting;
        record.granted += counts.granted;
        Ok(())
    }
}
