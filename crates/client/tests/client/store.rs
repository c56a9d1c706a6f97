//! What the tests' store promises by itself: each replica of a chunk has what came to it, and a group ends by the longest.

use crate::fake::file::Wide;
use crate::fake::{Fake, Held};
use base::error::ErrorKind;
use bytes::Bytes;
use net::Ask;
use net::message::chunk::{Append, Seal};
use net::message::file::{Create, NextGroup, Replica, Stat};
use std::sync::Arc;
use std::time::Duration;

/// Bytes for one replica of the only column of the file's open group.
fn append(fake: &Arc<Fake>, device: u128, offset: u64, length: usize, level: u32) {
    let mut state = fake.state();
    let group = state.files.by_number[&state.files.by_path["/a"]].writer.expect("it is written");
    let chunk = state.files.groups[&group].layout.columns[0].chunk;
    let ask =
        Append { device: device.into(), chunk, group, generation: 1, offset, level, seal: false, small_parts: false };
    state.append(&ask, Bytes::from(vec![1; length])).expect("taken");
}

#[tokio::test(start_paused = true)]
async fn replicas_of_a_chunk() {
    let fake = Fake::new(1);
    fake.state().wide = Wide { replicas: 2, ..Wide::default() };
    let ask = Create { path: "/a".to_string(), ..Create::default() };
    let opened = fake.state().create(1, &ask).expect("the file is new");
    let devices = fake.state().devices_of("/a").remove(0);
    assert_eq!(devices.len(), 2);
    for device in &devices {
        append(&fake, *device, 0, 100, 2);
        append(&fake, *device, 100, 40, 1);
    }
    fake.state().restart(devices[0], false);
    fake.state().restart(devices[1], true);
    {
        let mut state = fake.state();
        assert_eq!(state.chunks.values().map(|stored| stored.length).sum::<u64>(), 140 + 100);
        assert_eq!([1, 2].map(|place: usize| state.start_of(devices[place - 1])), [2, 2]);
        let (device, chunk) = (devices[0].into(), opened.group.layout.columns[0].chunk);
        state.seal(&Seal { device, chunk, generation: 1, length: 140 }).expect("sealed");
        let gone = Replica { device: devices[1].into(), chunk };
        let ask = NextGroup {
            inode: opened.inode,
            generation: 1,
            finished_group: opened.group.group,
            finished_length: 140,
            gone: vec![gone.device],
            short: vec![gone],
            ..NextGroup::default()
        };
        state.next_group(&ask).expect("one of them has all");
        assert_eq!(state.devices_of("/a"), [[devices[0]]]);
        assert_eq!(state.short, [(chunk.value(), devices[1])]);
    }
    let next = {
        let state = fake.state();
        let group = state.files.by_number[&opened.inode].writer.expect("it is written");
        crate::fake::file::layout_of(&state.files.groups[&group]).columns()[0].clone()
    };
    let next: Vec<u128> = next.devices().map(|device| device.0).collect();
    assert!(next.len() == 2 && !next.contains(&devices[1]), "{next:?}");
    append(&fake, next[0], 0, 5, 1);
    append(&fake, next[1], 0, 10, 1);
    fake.state().end_leases();
    assert_eq!(fake.state().devices_of("/a"), [[next[1]]]);
    assert_eq!(fake.state().stat("/a").expect("it is there").length, 150);
}

#[tokio::test(start_paused = true)]
async fn held_and_dead() {
    let fake = Fake::new(2);
    let client = fake.client();
    crate::files::write(&client, "/a", &Bytes::from_static(b"bytes"), 5).await;
    let device = fake.state().devices_of("/a")[0][0];
    for held in [Held::Kind(Stat::KIND), Held::Device(device)] {
        fake.state().held = [held].into();
        let asker = client.clone();
        let asked = tokio::spawn(async move {
            asker.stat("/a").await?;
            asker.read_small("/a").await
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!asked.is_finished(), "{held:?}");
        fake.state().held.clear();
        assert_eq!(asked.await.expect("no panic").expect("read"), "bytes");
    }
    fake.state().dead = [device].into();
    assert_eq!(client.read_small("/a").await.err().map(|error| error.kind()), Some(ErrorKind::Unreachable));
}
