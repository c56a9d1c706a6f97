//! Askers that do something in their own thread, or leave it to the device's.

use crate::device::{Device, Item};
use crate::sleeper::{Sleeper, check};
use crate::world::Turn;
use base::checksum::BlockSums;
use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use base::id::{ChunkId, Generation, GroupId, Owner};
use base::policy::Level;
use bytes::Bytes;
use chunk::Request;
use std::sync::Arc;
use std::time::Duration;

/// What was handed to the disk, in its order.
#[derive(Default)]
pub(crate) struct Handed(Vec<u64>);

impl Disk for Handed {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        unreachable!("only opened devices are checked")
    }
    fn submit(&mut self, token: u64, _: Op) {
        self.0.push(token);
    }
    fn poll(&mut self, _: Option<Duration>, _: &mut Vec<Done>) {
        unreachable!("the model sleeps itself")
    }
    fn waker(&self) -> Arc<dyn Wake> {
        unreachable!("the mailbox has the sleeper's")
    }
    fn backend(&self) -> &'static str {
        "model"
    }
}

fn early(number: usize) -> Item {
    let request = Request::Append {
        chunk: ChunkId(1),
        owner: Owner::Group(GroupId(1)),
        generation: Generation(1),
        offset: 0,
        payload: Bytes::new(),
        sums: BlockSums::of(&[]),
        level: Level::Written,
        seal: false,
        small_parts: false,
        cell: 0,
    };
    Item::Chunk { request, number }
}

/// So many askers, each with something for the device's thread and then a small write. All of it is handed to the disk, once, what one
/// asker sent in its order. If the device's thread is left asleep, nobody can go on, and loom says so.
pub fn nothing_is_left(askers: usize) {
    check(3, move || {
        let sleeper = Arc::new(Sleeper::default());
        let (device, mut turn) = Device::new(sleeper.clone());
        let threads: Vec<_> = (0..askers)
            .map(|asker| {
                let device = device.clone();
                loom::thread::spawn(move || {
                    device.send(Item::Other { number: 2 * asker });
                    device.send(early(2 * asker + 1));
                })
            })
            .collect();
        let mut disk = Handed::default();
        loop {
            let Turn::Wait(wait) = turn(&mut disk) else { unreachable!("nobody ends it") };
            if disk.0.len() >= 2 * askers {
                break;
            }
            if wait.is_none() {
                sleeper.wait();
            }
        }
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "an asker ends"));
        turn(&mut disk);
        for asker in 0..askers as u64 {
            let of_one: Vec<u64> = disk.0.iter().copied().filter(|number| number / 2 == asker).collect();
            assert_eq!(of_one, [2 * asker, 2 * asker + 1], "lost, doubled or out of order");
        }
    });
}
