//! Bags: named, on all devices that fit, sealed in two steps.

pub mod format;

use crate::convert;
use crate::format::{BagNameRecord, BagRecord};
use crate::key::{Key, after_prefix};
use crate::path::check_bag_name;
use crate::placement;
use crate::reply::Reply;
use crate::request::{BagInfo, BagState, Carried};
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, DeviceId};
use base::limit::{BAG_CHUNK, BAG_CHUNK_MAX, BLOCK};
use base::policy::{Compression, Policy};
use prost::Message;

const SEALING: u32 = 1;
const SEALED: u32 = 2;

impl State {
    /// Does `BagCreate`.
    pub fn create_bag(
        &mut self,
        name: &str,
        policy: Policy,
        chunk_size: u64,
        retain: bool,
        compression: Compression,
    ) -> Result<Reply> {
        check_bag_name(name)?;
        if self.layers.has(&Key::BagName(name))? {
            return Err(Error::new(ErrorKind::Exists, format!("the bag '{name}' exists already; it was not changed")));
        }
        let chunk_size = if chunk_size == 0 { BAG_CHUNK } else { chunk_size };
        if !(BLOCK as u64..=BAG_CHUNK_MAX).contains(&chunk_size) {
            let text =
                format!("a bag's chunks have {BLOCK} to {BAG_CHUNK_MAX} bytes, not {chunk_size}; the bag was not made");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let members = placement::place_bag(&self.candidates()?, policy)?;
        let bag = self.next_bag();
        let record = BagRecord {
            name: name.to_string(),
            policy: Some(convert::policy_record(policy)),
            chunk_size,
            members: members.iter().map(|member| member.to_bytes().to_vec()).collect(),
            state: 0,
            epoch: 1,
            created: self.wall.0,
            retain,
            pass: 0,
            carried: None,
            compression: compression.code(),
        };
        self.put(&Key::BagName(name), &BagNameRecord { bag: bag.0 });
        self.put(&Key::Bag(bag), &record);
        Ok(Reply::Bag(convert::bag(bag, record)))
    }

    fn bag_record(&self, bag: BagId) -> Result<BagRecord> {
        let gone = || Error::new(ErrorKind::NotFound, format!("there is no bag number {bag}; it was deleted"));
        self.layers.record(&Key::Bag(bag))?.ok_or_else(gone)
    }

    /// What is known of a bag now.
    pub fn bag_info(&self, bag: BagId) -> Result<BagInfo> {
        Ok(convert::bag(bag, self.bag_record(bag)?))
    }

    fn find_bag(&self, name: &str) -> Result<(BagId, BagRecord)> {
        check_bag_name(name)?;
        let none = || Error::new(ErrorKind::NotFound, format!("there is no bag '{name}'; check the name"));
        let bag = BagId(self.layers.record::<BagNameRecord>(&Key::BagName(name))?.ok_or_else(none)?.bag);
        Ok((bag, self.bag_record(bag)?))
    }

    /// Answers `BagStat`.
    pub fn stat_bag(&self, name: &str) -> Result<Reply> {
        let (bag, record) = self.find_bag(name)?;
        Ok(Reply::Bag(convert::bag(bag, record)))
    }

    /// Answers `BagList`.
    pub fn list_bags(&self, after: Option<&str>, limit: usize) -> Result<Reply> {
        let limit = self.page(limit);
        let mut from = Key::BagName(after.unwrap_or_default()).encode();
        if after.is_some() {
            from.push(0);
        }
        let mut found = Vec::new();
        self.layers.scan(&from, &after_prefix(&[Key::BagName("").ordinal()]), |_, value| {
            let record = BagNameRecord::decode(value).map_err(|_| missing("a readable bag name"))?;
            found.push(BagId(record.bag));
            Ok(found.len() <= limit)
        })?;
        let more = found.len() > limit;
        found.truncate(limit);
        let bags = found.into_iter().map(|bag| self.bag_info(bag)).collect::<Result<_>>()?;
        Ok(Reply::Bags { bags, more })
    }

    /// Does `BagSeal`.
    pub fn seal_bag(&mut self, name: &str) -> Result<Reply> {
        let (bag, mut record) = self.find_bag(name)?;
        if record.state < SEALING {
            record.state = SEALING;
            self.put(&Key::Bag(bag), &record);
        }
        Ok(Reply::Bag(convert::bag(bag, record)))
    }

    /// Does `BagRewind`.
    pub fn rewind_bag(&mut self, name: &str) -> Result<Reply> {
        let (bag, mut record) = self.find_bag(name)?;
        let Some(pass) = record.pass.checked_add(1) else {
            let text = format!(
                "the bag '{name}' was rewound {} times and cannot be once more; it was not changed",
                record.pass
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        };
        record.pass = pass;
        self.put(&Key::Bag(bag), &record);
        Ok(Reply::Bag(convert::bag(bag, record)))
    }

    /// Does `BagSealed`.
    pub fn bag_sealed(&mut self, bag: BagId, epoch: u64) -> Result<Reply> {
        let mut record = self.bag_record(bag)?;
        if record.epoch != epoch || record.state < SEALING {
            let text = format!(
                "bag number {bag} is in epoch {}, not {epoch}, or is not being sealed; ask for it again",
                record.epoch
            );
            return Err(Error::new(ErrorKind::Stale, text));
        }
        if record.state != SEALED {
            record.state = SEALED;
            self.put(&Key::Bag(bag), &record);
        }
        Ok(Reply::Bag(convert::bag(bag, record)))
    }

    /// Does `BagMembers`. A member that left already counted already. A device that does not know that the bag is sealed must not
    /// join one that is: it would take chunks that nobody looks for. One that was removed meanwhile does not join.
    pub fn change_members(
        &mut self,
        bag: BagId,
        (state, joining): (BagState, &[DeviceId]),
        leaving: Option<(DeviceId, Carried)>,
    ) -> Result<Reply> {
        let mut record = self.bag_record(bag)?;
        let before = record.members.clone();
        let joining = if convert::bag_state(record.state) == state { joining } else { &[] };
        for device in joining.iter().filter(|device| self.devices.class(**device).is_some()) {
            if !record.members.iter().any(|member| *member == device.to_bytes()) {
                record.members.push(device.to_bytes().to_vec());
            }
        }
        if let Some((device, counts)) = leaving
            && let Some(place) = record.members.iter().position(|member| *member == device.to_bytes())
        {
            record.members.remove(place);
            let carried = record.carried.get_or_insert_default();
            carried.pushed = carried.pushed.saturating_add(counts.pushed);
            carried.pushed_bytes = carried.pushed_bytes.saturating_add(counts.pushed_bytes);
            carried.acknowledged = carried.acknowledged.saturating_add(counts.acknowledged);
            carried.acknowledged_bytes = carried.acknowledged_bytes.saturating_add(counts.acknowledged_bytes);
        }
        if record.members != before {
            record.epoch = record.epoch.saturating_add(1);
            self.put(&Key::Bag(bag), &record);
        }
        Ok(Reply::Bag(convert::bag(bag, record)))
    }

    /// Does `BagDelete`.
    pub fn delete_bag(&mut self, name: &str) -> Result<Reply> {
        let (bag, record) = self.find_bag(name)?;
        self.remove(&Key::BagName(name));
        self.remove(&Key::Bag(bag));
        self.put(&Key::GarbageBag(bag), &record);
        Ok(Reply::Done)
    }
}
