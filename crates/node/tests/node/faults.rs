//! Faults of ours in what a node does for one call.

use crate::{Fixture, until};
use base::error::ErrorKind;
use base::policy::Class;
use net::Payload;
use net::message::{device, file};
use std::sync::atomic::Ordering;

/// A fault of ours in a call that needs several steps, which are a task of their own, ends that call: it is answered, the fault is counted,
/// and whoever asks next is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_ends_one_call() {
    let mut fixture = Fixture::start_with("fault", vec![Class::Ssd; 2], 256 << 20).await;
    let link = fixture.link(1).await;
    let devices = async || link.call(&file::Devices {}, Payload::empty()).await.expect("listed").0.devices;
    let first = devices().await[0].device;
    let before = base::fault::contained_faults();
    // A drain notes when it begins.
    fixture.clock.is_faulty.store(true, Ordering::Relaxed);
    let error = link.call(&device::Drain { device: first }, Payload::empty()).await.expect_err("it met a fault");
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    until("it is counted", async || base::fault::contained_faults() > before).await;
    assert!(!devices().await.is_empty(), "others are served");
    fixture.stop().await;
}
