//! Copies of the tree that are slow, late, in vain, or of no use.

use super::named::{ask, cut_off, in_service, leader, steps, three};
use super::{Cluster, MS};
use crate::world::small_file;
use base::disk::{Disk, FileKind, Op, wait};
use meta::Request;
use meta::request::User;

fn stand(cluster: &Cluster, at: usize) -> Option<u64> {
    cluster.machines[at].runs.as_ref().map(|(_, store)| store.sequence())
}

/// So many files, with names of 200 bytes, in one question.
fn load(cluster: &mut Cluster, round: u64, files: u64) {
    let at = leader(cluster);
    let name = |place| format!("/{}{round}-{place}", "n".repeat(200));
    let files = (0..files).map(|place| small_file(&name(place))).collect();
    ask(cluster, at, 0, Request::Renew);
    ask(cluster, at, 0, Request::PutFiles { files });
}

/// Three keepers whose pages of copies have so many bytes.
fn with_pages(bytes: usize) -> Cluster {
    let mut cluster = Cluster::new(7, 3, None);
    cluster.pace.page_bytes = Some(bytes);
    cluster.trouble = false;
    cluster.clients.clear();
    steps(&mut cluster, 5_000);
    cluster
}

/// Changes until the logs have let go of what the one that is cut off lacks, and that one.
fn one_falls_behind(cluster: &mut Cluster) -> usize {
    let at = leader(cluster);
    ask(cluster, at, 1, Request::OpenSession { user: User::default() });
    steps(cluster, 1_000);
    let away = (at + 1) % 3;
    cut_off(cluster, away);
    for round in 0..400 {
        load(cluster, round, 20);
        steps(cluster, 30);
    }
    away
}

/// Copies until there is the first one.
fn until_copied(cluster: &mut Cluster) {
    for second in 0.. {
        steps(cluster, 1_000);
        if cluster.copies > 0 {
            return;
        }
        assert!(second < 200, "there is no copy, of {} pages", cluster.written);
    }
}

/// A leader that always merges something gives copies, too.
#[test]
fn while_merges_follow_each_other() {
    let mut cluster = with_pages(64 << 10);
    one_falls_behind(&mut cluster);
    cluster.cut.clear();
    cluster.pace.merge = Some(60 * MS);
    for round in 1_000.. {
        load(&mut cluster, round, 20);
        steps(&mut cluster, 15);
        if cluster.copies > 0 {
            return;
        }
        assert!(round < 3_000, "there is no copy, of {} pages", cluster.written);
    }
}

/// Pages that take longer than their questions are repeated do not heap up.
#[test]
fn slow_pages() {
    let mut cluster = three(7);
    let away = one_falls_behind(&mut cluster);
    steps(&mut cluster, 8_000);
    cluster.cut.clear();
    cluster.pace.page = Some(1_700 * MS);
    let mut most = 0;
    for _ in 0..120 {
        steps(&mut cluster, 1_000);
        let queued = cluster.machines.iter().map(|machine| machine.pages.len()).max();
        most = most.max(queued.unwrap_or(0));
    }
    assert!(most < 4 && cluster.written > 30, "{most} pages at once, {} written", cluster.written);
    assert!(stand(&cluster, away).is_some());
}

/// Whoever gets a copy takes long to have the end of it durable, and others make changes meanwhile: he goes on behind it.
#[test]
fn a_slow_end() {
    let mut cluster = with_pages(1 << 30);
    let away = one_falls_behind(&mut cluster);
    cluster.cut.clear();
    cluster.pace.copy = Some(11_000 * MS);
    for round in 1_000..1_400 {
        load(&mut cluster, round, 20);
        steps(&mut cluster, 200);
    }
    assert_eq!(cluster.copies, 1);
    cluster.pace.copy = None;
    steps(&mut cluster, 5_000);
    let leads = leader(&mut cluster);
    assert_eq!(stand(&cluster, away), stand(&cluster, leads));
    in_service(&cluster, leads).expect("its log has room");
}

/// A follower has all, and what it said of that is lost: no copy is made for it, again and again.
#[test]
fn one_that_has_all_was_not_heard() {
    let mut cluster = with_pages(64 << 10);
    let away = one_falls_behind(&mut cluster);
    cluster.cut.clear();
    until_copied(&mut cluster);
    steps(&mut cluster, 3_000);
    // Its leader's log is long, and not merged.
    cluster.pace.merge = Some(1_000_000 * MS);
    for round in 5_000..5_090 {
        load(&mut cluster, round, 20);
        steps(&mut cluster, 30);
    }
    cut_off(&mut cluster, away);
    for round in 6_000..6_003 {
        load(&mut cluster, round, 1);
        steps(&mut cluster, 30);
    }
    cluster.unheard = Some(away);
    cluster.cut.clear();
    steps(&mut cluster, 3_000);
    cluster.pace.merge = None;
    for machine in &mut cluster.machines {
        machine.merging = machine.merging.take().map(|(job, _)| (job, 0));
    }
    steps(&mut cluster, 6_000);
    cluster.unheard = None;
    let written = cluster.written;
    for _ in 0..30 {
        steps(&mut cluster, 1_000);
        let leads = leader(&mut cluster);
        ask(&mut cluster, leads, 0, Request::Renew);
    }
    let leads = leader(&mut cluster);
    assert_eq!(stand(&cluster, away), stand(&cluster, leads));
    assert_eq!(cluster.written, written, "pages were written for nothing");
}

/// No copy helps one whose log is not there: what it had is in no vote.
#[test]
fn a_log_that_is_gone() {
    let mut cluster = three(13);
    let leads = leader(&mut cluster);
    let gone = (leads + 1) % 3;
    steps(&mut cluster, 20_000);
    cluster.dies(gone);
    let mut disk = cluster.machines[gone].device.attach();
    for (file, _) in cluster.machines[gone].device.files() {
        if file.kind == FileKind::Log {
            wait(&mut disk as &mut dyn Disk, Op::Remove { file }).expect("removed");
        }
    }
    drop(disk);
    cluster.rotten = Some(gone);
    let broken = cluster.steps(2_000).expect_err("it says so").to_string();
    assert!(broken.contains("not there"), "{broken}");
}
