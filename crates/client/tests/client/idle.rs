//! Writers of several replicas that write nothing for a while: they notice that a node went or started anew, and nothing that they do not need ends them.

use crate::fake::Fake;
use crate::fake::file::Wide;
use crate::fake::nodes::Nodes;
use crate::files::content;
use base::env::Clock;
use client::{Client, CreateOptions, FileWriter};
use net::Ask;
use net::message::cluster::View;
use net::message::file::NextGroup;
use net::message::session::Renew;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Files that idle, each with some bytes that are not synced, of so many replicas.
async fn idle_files(fake: &Arc<Fake>, client: &Client, (count, replicas): (usize, u64)) -> Vec<FileWriter> {
    fake.state().wide = Wide { replicas, ..Wide::default() };
    let mut files = Vec::new();
    for number in 0..count {
        let mut writer = client.create(&format!("/{number}"), CreateOptions::default()).await.expect("new");
        writer.write(content(1000, 1)).await.expect("taken");
        writer.hflush().await.expect("visible");
        files.push(writer);
    }
    files
}

/// While nothing happens idle writers cost one question for all of them each 5 s, and those of one replica nothing.
#[tokio::test(start_paused = true)]
async fn idle_ones_cost_nothing() {
    let mut views_of_one = None;
    for replicas in [1, 3] {
        let fake = Fake::new(1);
        let nodes = Nodes::new(&fake, 4).await;
        let client = nodes.client("node1").await;
        let files = idle_files(&fake, &client, (20, replicas)).await;
        let before = fake.state().calls.clone();
        tokio::time::sleep(Duration::from_secs(101)).await;
        let mut calls = fake.state().calls.clone();
        let of = |calls: &BTreeMap<u16, u64>, kind: u16| calls.get(&kind).copied().unwrap_or_default();
        let views = of(&calls, View::KIND) - of(&before, View::KIND);
        // A session asks now and then anyway.
        let others = *views_of_one.get_or_insert(views);
        assert!(views <= 21 && (views > others) == (replicas > 1), "{views} views of {replicas}, {others} of one");
        calls.retain(|kind, _| ![View::KIND, Renew::KIND].contains(kind));
        assert!(calls.iter().all(|(kind, count)| of(&before, *kind) == *count), "{calls:?}");
        drop(files);
    }
}

/// A node of an idle writer goes, and is said to be silent; or starts anew, with all it had or without power. The file goes on in another group by
/// itself, readers see all of it, and what is short is struck out.
#[tokio::test(start_paused = true)]
async fn idle_ones_notice() {
    for how in ["silent", "anew", "without power"] {
        let fake = Fake::new(1);
        let nodes = Nodes::new(&fake, 5).await;
        let client = nodes.client("node1").await;
        let files = idle_files(&fake, &client, (6, 3)).await;
        let reading = nodes.client("node1").await;
        {
            let mut state = fake.state();
            let member = &mut state.view.members[1];
            match how {
                "silent" => {
                    member.silent = true;
                    state.dead.insert(2);
                }
                _ => {
                    member.node.incarnation += 1;
                    state.restart(2, how == "without power");
                }
            }
        }
        let touched: Vec<usize> =
            (0..6).filter(|number| fake.state().devices_of(&format!("/{number}"))[0].contains(&2)).collect();
        assert!(!touched.is_empty() && touched.len() < 6);
        // Not all of them at once where nothing hurries.
        let seconds = if how == "silent" { 12 } else { 300 };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let ended = fake.state().calls.get(&NextGroup::KIND).copied();
        assert_eq!(ended, Some(touched.len() as u64), "{how}");
        let short = fake.state().short.clone();
        assert_eq!(short.len(), if how == "anew" { 0 } else { touched.len() }, "{how}");
        let began = fake.clock.now();
        for (number, mut writer) in files.into_iter().enumerate() {
            let reader = reading.open(&format!("/{number}")).await.expect("there");
            assert_eq!(reader.length().await.expect("told"), 1000, "{how}");
            writer.write(content(1000, 2)).await.expect("taken");
            writer.hflush().await.expect("visible");
            assert_eq!(reader.length().await.expect("told"), 2000, "{how}");
            assert_eq!(writer.close().await.expect("closed").length, 2000, "{how}");
        }
        assert!(fake.clock.now().since(began) < Duration::from_secs(1), "{how}: nobody waited");
    }
}

/// All replicas are away for a while, and nothing is written: the writer has lost nothing, and goes on when they are back. The same if the store has no
/// place for another group just then.
#[tokio::test(start_paused = true)]
async fn idle_ones_survive() {
    for all_away in [true, false] {
        let fake = Fake::new(1);
        let nodes = Nodes::new(&fake, 4).await;
        let client = nodes.client("node1").await;
        let files = idle_files(&fake, &client, (8, 2)).await;
        {
            let mut state = fake.state();
            let away: &[usize] = if all_away { &[1, 2, 3] } else { &[1] };
            for at in away {
                state.view.members[*at].silent = true;
                state.dead.insert(*at as u128 + 1);
            }
            state.without_groups = !all_away;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        {
            let mut state = fake.state();
            state.view.members.iter_mut().for_each(|member| member.silent = false);
            state.dead.clear();
            state.without_groups = false;
        }
        for (number, mut writer) in files.into_iter().enumerate() {
            writer.write(content(1000, 2)).await.expect("taken");
            writer.hflush().await.unwrap_or_else(|error| panic!("{number} of {all_away}: {error}"));
            assert_eq!(writer.close().await.expect("closed").length, 2000);
            let reader = client.open(&format!("/{number}")).await.expect("there");
            assert_eq!(reader.length().await.expect("told"), 2000);
        }
    }
}

/// A node that is only said to be silent answers: its files stay as they are.
#[tokio::test(start_paused = true)]
async fn silent_by_hearsay() {
    let fake = Fake::new(1);
    let nodes = Nodes::new(&fake, 4).await;
    let client = nodes.client("node1").await;
    let files = idle_files(&fake, &client, (4, 3)).await;
    fake.state().view.members[1].silent = true;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(fake.state().ended_early, 0);
    drop(files);
}
