//! What Hadoop's clients can do while somebody waits for a node that does not answer.

use crate::cluster::Cluster;
use crate::hdfs_gateways::{File, ask, is_closed, of_length, stored, superuser, writer};
use crate::hdfs_lost::apart;
use crate::hdfs_user::{Refused, User, client_of};
use crate::hdfs_write::PACKET;
use crate::until;
use client::CreateOptions;
use gateway_hdfs::message::files::{Nothing, RecoverLease, Truth, UpdatePipeline};
use gateway_hdfs::message::hdfs::ExtendedBlock;
use gateway_hdfs::message::transfer::{SETUP_CREATE, SETUP_STREAMING_RECOVERY};
use net::Ask;
use net::frame::{HEADER_LENGTH, Header};
use net::message::{chunk, file, order};
use node::Door;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The way to a node, on which calls may be held back.
struct Way {
    address: String,
    holding: Arc<Holding>,
    serving: JoinHandle<()>,
}

/// What is held back on a way.
struct Holding {
    /// Everything, in its order.
    all: watch::Sender<bool>,
    /// The next call of this kind, alone: what comes after it passes it.
    next: Mutex<Option<u16>>,
    /// Whether that call has come and waits.
    waits: watch::Sender<bool>,
}

impl Way {
    /// Nothing is behind it yet.
    async fn new() -> (Way, watch::Sender<Option<SocketAddr>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let (told, node) = watch::channel(None);
        let (all, waits) = (watch::Sender::new(false), watch::Sender::new(false));
        let holding = Arc::new(Holding { all, next: Mutex::new(None), waits });
        let carried = holding.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, node.clone(), carried.clone()));
            }
        });
        (Way { address, holding, serving }, told)
    }

    /// From now on nothing comes through.
    fn hold(&self) {
        self.holding.all.send_replace(true);
    }

    /// The next call of this kind does not come through.
    fn hold_next<A: Ask>(&self) {
        *self.holding.next.lock().expect("nobody panicked") = Some(A::KIND);
    }

    /// Waits until that call has come.
    async fn has_come(&self) {
        self.holding.waits.subscribe().wait_for(|waits| *waits).await.expect("it is there");
    }

    fn let_go(&self) {
        self.holding.all.send_replace(false);
        self.holding.waits.send_replace(false);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Carries one connection's bytes to the node and back. What goes there while it is held waits.
async fn carry(mut stream: TcpStream, mut node: watch::Receiver<Option<SocketAddr>>, holding: Arc<Holding>) {
    let Ok(Some(address)) = node.wait_for(Option::is_some).await.map(|there| *there) else { return };
    let Ok(mut there) = TcpStream::connect(address).await else { return };
    let ((mut from, mut to), (mut back, mut on)) = (stream.split(), there.split());
    let (sender, mut frames) = mpsc::channel::<Vec<u8>>(1);
    let gathering = async {
        while let Some((kind, frame)) = next_frame(&mut from).await {
            if holding.next.lock().expect("nobody panicked").take_if(|next| *next == kind).is_some() {
                holding.waits.send_replace(true);
                let (mut waits, later) = (holding.waits.subscribe(), sender.clone());
                tokio::spawn(async move {
                    let let_go = waits.wait_for(|waits| !waits).await.is_ok();
                    let _is_carried = let_go && later.send(frame).await.is_ok();
                });
            } else if sender.send(frame).await.is_err() {
                return;
            }
        }
    };
    let mut hold = holding.all.subscribe();
    let going = async {
        while let Some(frame) = frames.recv().await {
            if hold.wait_for(|held| !held).await.is_err() || on.write_all(&frame).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = gathering => (),
        () = going => (),
        _ = tokio::io::copy(&mut back, &mut to) => (),
    }
}

/// The next frame of a connection, and its kind; none: it ended.
async fn next_frame(from: &mut (impl AsyncRead + Unpin)) -> Option<(u16, Vec<u8>)> {
    let mut header = [0; HEADER_LENGTH];
    from.read_exact(&mut header).await.ok()?;
    let said = Header::decode(&header).expect("a frame of ours");
    let mut frame = header.to_vec();
    frame.resize(HEADER_LENGTH + (said.message_length + said.payload_length) as usize, 0);
    from.read_exact(&mut frame[HEADER_LENGTH..]).await.ok()?;
    Some((said.kind, frame))
}

/// Three nodes; all that the others say to the last one goes this way.
async fn behind_a_way(name: &str) -> (Cluster, Way) {
    let (way, told) = Way::new().await;
    let mut cluster = Cluster::new(name);
    cluster.hdfs = Door::Near("127.0.0.1:0".to_string());
    cluster.run(0).await;
    cluster.run(1).await;
    let listens = cluster.run_as(2, &way.address).await;
    told.send_replace(Some(listens.parse().expect("an address")));
    cluster.all_there(3).await;
    (cluster, way)
}

/// Waits until a file is fenced in the metadata: from then on who ends it waits for its device.
async fn fenced(cluster: &Cluster, file: &File, before: u64) {
    let native = client_of(cluster.address(0)).await;
    until("it is taken from its writer", async || {
        native.stat_inode(file.inode).await.expect("it is there").generation > before
    })
    .await;
}

async fn generation(cluster: &Cluster, file: &File) -> u64 {
    client_of(cluster.address(0)).await.stat_inode(file.inode).await.expect("it is there").generation
}

/// While a file is taken from its writer and its device does not answer, others make files through the same gateway and through the one
/// that has that file open: nobody waits for more than that file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_recovery_holds_up_nobody() {
    let (mut cluster, way) = behind_a_way("hdfs-recovery-waits").await;
    let mut writer = superuser(&cluster, 1).await;
    let (file, _, _stream, on, _) = apart(&cluster, &mut writer, 1, "f").await;
    assert_eq!(on, 2);
    let before = generation(&cluster, &file).await;
    way.hold();
    let (mut recoverer, path) = (superuser(&cluster, 0).await, file.path.clone());
    let recovering = tokio::spawn(async move {
        let recover = RecoverLease { path, holder: "another".to_string() };
        ask::<Truth>(&mut recoverer, "recoverLease", &recover).await
    });
    fenced(&cluster, &file, before).await;
    for gateway in [0, 1] {
        let mut third = superuser(&cluster, gateway).await;
        for number in 0..5 {
            File::create(&mut third, &format!("/of{gateway}-{number}"), "third").await;
        }
    }
    assert!(!recovering.is_finished(), "they were made after it ended: {:?}", recovering.await);
    way.let_go();
    assert_eq!(recovering.await.expect("no panic"), Ok(Truth { result: true }));
    let native = client_of(cluster.address(0)).await;
    assert_eq!(native.read_small(&file.path).await.expect("it is closed"), "acknowledged");
    // While the metadata are there: a gateway that ends closes one open file after another, and for each would wait for a node that is gone.
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// What a client hears that goes on with its block at another gateway than before.
type GoingOn = JoinHandle<(User, ExtendedBlock, Result<ExtendedBlock, Refused>)>;

/// Goes on at the gateway of this node, and asks again as long as it is told to.
async fn go_on(cluster: &Cluster, node: usize, file: &File, block: &ExtendedBlock) -> GoingOn {
    let mut user = superuser(cluster, node).await;
    let file = file.clone();
    let block = of_length(block, b"acknowledged".len());
    tokio::spawn(async move {
        loop {
            match file.update(&mut user, &block).await {
                Err(refused) if refused.0.ends_with("RetriableException") => {}
                renewed => return (user, block, renewed),
            }
        }
    })
}

/// The client goes on behind what was acknowledged, and closes its file.
async fn end_well(cluster: &Cluster, file: &File, going_on: GoingOn) {
    let (mut user, old, renewed) = going_on.await.expect("no panic");
    let new = renewed.unwrap_or_else(|refused| panic!("{} does not go on: {refused:?}", file.path));
    let mut stream = writer(cluster, 0, &new, SETUP_STREAMING_RECOVERY).await;
    let pipeline = UpdatePipeline { holder: file.holder.clone(), old, new: new.clone() };
    ask::<Nothing>(&mut user, "updatePipeline", &pipeline).await.expect("it goes on here");
    stream.send_all(12, b", and more", PACKET).await;
    stream.end(22).await;
    assert_eq!(file.complete(&mut user, Some(of_length(&new, 22))).await, Ok(true));
    assert_eq!(stored(cluster, &file.path).await, "acknowledged, and more");
}

/// Somebody else closes a file, and its chunk goes from the last node to another one.
async fn close_and_move(cluster: &Cluster, file: &File) {
    let native = client_of(cluster.address(0)).await;
    native.recover(file.inode, false).await.expect("closed");
    let place = async || {
        let (extents, _) = native.extents(file.inode, 0).await.expect("it has one");
        extents[0].layout.columns[0].device
    };
    let left = place().await;
    native.drain(left).await.expect("it begins");
    until("its chunk is elsewhere", async || place().await != left).await;
    // What is left where it was is another file's: from now on this one's is not found there.
    let chunks = async || {
        let devices = native.devices().await.expect("told").devices;
        devices.iter().find(|device| device.device == left).map(|device| device.chunks)
    };
    until("its chunk is gone from where it was", async || chunks().await == Some(1)).await;
}

/// A file that is renamed while another gateway takes it over goes on there with what is written of it, also if another file has its
/// old name by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_renamed_while_it_is_taken_over() {
    let (mut cluster, way) = behind_a_way("hdfs-renamed-taken").await;
    let native = client_of(cluster.address(0)).await;
    for name_is_taken in [false, true] {
        let mut first = superuser(&cluster, 1).await;
        let (file, block, _stream, on, _) = apart(&cluster, &mut first, 1, &format!("{name_is_taken}")).await;
        assert_eq!(on, 2);
        way.hold_next::<order::Fence>();
        let taking = go_on(&cluster, 0, &file, &block).await;
        way.has_come().await;
        let renamed = format!("/renamed{name_is_taken}");
        native.rename(&file.path, &renamed, false).await.expect("renamed");
        if name_is_taken {
            let other = native.create(&file.path, CreateOptions::default()).await.expect("the name is free");
            other.close().await.expect("closed");
        }
        way.let_go();
        end_well(&cluster, &File { path: renamed, ..file }, taking).await;
    }
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// Of a file that is taken over the chunk is fenced; before it is sealed somebody else does all of that, and the chunk goes to another
/// device, where the gateway does not find it. It does not say that the file is not there: it is, with what is written of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_moved_while_it_is_taken_over() {
    let (mut cluster, way) = behind_a_way("hdfs-moved-taken").await;
    let mut first = superuser(&cluster, 1).await;
    let (file, block, _stream, on, _) = apart(&cluster, &mut first, 1, "f").await;
    // With this one on it the device stays.
    let (_, _, _kept, also_on, _) = apart(&cluster, &mut first, 1, "g").await;
    assert_eq!((on, also_on), (2, 2));
    way.hold_next::<chunk::Seal>();
    let taken = file.clone();
    let block = of_length(&block, b"acknowledged".len());
    let mut user = superuser(&cluster, 0).await;
    let taking = tokio::spawn(async move { taken.update(&mut user, &block).await });
    way.has_come().await;
    close_and_move(&cluster, &file).await;
    way.let_go();
    let refused = taking.await.expect("no panic").expect_err("somebody else has closed it");
    assert!(refused.0.ends_with("RetriableException"), "{refused:?}");
    assert_eq!(stored(&cluster, &file.path).await, "acknowledged");
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// While its device does not answer a file is not taken over: it stays its client's, who asks again and goes on when the device is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_stays_its_clients_while_its_device_is_away() {
    let (mut cluster, way) = behind_a_way("hdfs-away-taken").await;
    let mut first = superuser(&cluster, 1).await;
    let (file, block, _stream, on, _) = apart(&cluster, &mut first, 1, "f").await;
    assert_eq!(on, 2);
    let before = generation(&cluster, &file).await;
    way.hold();
    let mut user = superuser(&cluster, 0).await;
    let refused = file.update(&mut user, &of_length(&block, 12)).await.expect_err("its device is away");
    assert!(refused.0.ends_with("RetriableException"), "{refused:?}");
    assert_eq!(generation(&cluster, &file).await, before, "it was taken from its writer, and can be nobody's by now");
    way.let_go();
    let taking = go_on(&cluster, 0, &file, &block).await;
    end_well(&cluster, &file, taking).await;
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// Three nodes; all that the others say to the first one, which keeps the metadata, goes this way.
async fn keeper_behind_a_way(name: &str) -> (Cluster, Way) {
    let (way, told) = Way::new().await;
    let mut cluster = Cluster::new(name);
    cluster.hdfs = Door::Near("127.0.0.1:0".to_string());
    let listens = cluster.run_as(0, &way.address).await;
    told.send_replace(Some(listens.parse().expect("an address")));
    cluster.keeper_is_at(&way.address);
    cluster.run(1).await;
    cluster.run(2).await;
    cluster.all_there(3).await;
    (cluster, way)
}

/// A gateway that takes a file over has closed it, and does not come to open it: its client goes on at a third one with what was
/// acknowledged, and what the second one asked for is refused when it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_taken_over_halfway_is_its_clients() {
    let (cluster, way) = keeper_behind_a_way("hdfs-taken-halfway").await;
    let (file, block, taking) = taken_halfway(&cluster, &way).await;
    let third = go_on(&cluster, 0, &file, &block).await;
    end_well(&cluster, &file, third).await;
    way.let_go();
    let (_, _, late) = taking.await.expect("no panic");
    assert!(late.is_err(), "it was closed by its client: {late:?}");
    assert_eq!(stored(&cluster, &file.path).await, "acknowledged, and more");
    stop_gateways_first(cluster).await;
}

/// Who asks back such a file's lease has it: its client goes on nowhere, and nor does the gateway that was about to open it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_taken_over_halfway_is_recovered() {
    let (cluster, way) = keeper_behind_a_way("hdfs-halfway-recovered").await;
    let (file, block, taking) = taken_halfway(&cluster, &way).await;
    let mut recoverer = superuser(&cluster, 0).await;
    let recover = RecoverLease { path: file.path.clone(), holder: "another".to_string() };
    assert_eq!(ask::<Truth>(&mut recoverer, "recoverLease", &recover).await, Ok(Truth { result: true }));
    way.let_go();
    for asked in [taking, go_on(&cluster, 0, &file, &block).await, go_on(&cluster, 2, &file, &block).await] {
        let (_, _, gone_on) = asked.await.expect("no panic");
        assert!(gone_on.is_err(), "its lease was asked back: {gone_on:?}");
    }
    let now = client_of(cluster.address(0)).await.stat(&file.path).await.expect("it is there");
    assert_eq!((now.open, now.holder.as_str(), now.length), (false, "", 12));
    assert_eq!(stored(&cluster, &file.path).await, "acknowledged");
    stop_gateways_first(cluster).await;
}

/// Such a file is not said to be closed as long as its client may go on with it; when that was silent for as long as leases last, it is, and
/// the client does not go on any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_taken_over_halfway_is_not_closed() {
    let (cluster, way) = keeper_behind_a_way("hdfs-halfway-closed").await;
    let (file, block, taking) = taken_halfway(&cluster, &way).await;
    let native = client_of(cluster.address(0)).await;
    let now = native.stat(&file.path).await.expect("it is there");
    assert!(!now.open && now.holder == file.holder, "{now:?}");
    let mut another = superuser(&cluster, 0).await;
    assert!(!is_closed(&mut another, &file.path).await);
    taking.abort();
    cluster.ahead(Duration::from_secs(21 * 60));
    let mut another = superuser(&cluster, 0).await;
    assert!(is_closed(&mut another, &file.path).await, "its holder was silent for too long");
    way.let_go();
    let (_, _, late) = go_on(&cluster, 0, &file, &block).await.await.expect("no panic");
    assert!(late.is_err(), "it was said to be closed: {late:?}");
    assert_eq!(stored(&cluster, &file.path).await, "acknowledged");
    stop_gateways_first(cluster).await;
}

/// While a file is taken over another client is refused to make one of that name: that takes the file from nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_made_again_while_it_is_taken_over() {
    let (mut cluster, way) = behind_a_way("hdfs-made-taken").await;
    let mut first = superuser(&cluster, 1).await;
    let (file, block, _stream, on, _) = apart(&cluster, &mut first, 1, "f").await;
    assert_eq!(on, 2);
    way.hold_next::<order::Fence>();
    let taking = go_on(&cluster, 0, &file, &block).await;
    way.has_come().await;
    let mut another = superuser(&cluster, 2).await;
    let refused = File::try_create(&mut another, &file.path, "another").await.err().expect("it is there");
    assert!(refused.0.ends_with("FileAlreadyExistsException"), "{refused:?}");
    way.let_go();
    end_well(&cluster, &file, taking).await;
    cluster.stop(1).await;
    cluster.stop_all().await;
}

/// A gateway that is stopped leaves its files to their clients, who go on at another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_goes_on_when_its_gateway_is_stopped() {
    let (mut cluster, _way) = behind_a_way("hdfs-gateway-stopped").await;
    let mut first = superuser(&cluster, 1).await;
    let (file, block, stream, on, _) = apart(&cluster, &mut first, 1, "f").await;
    assert_eq!(on, 2);
    cluster.stop(1).await;
    drop(stream);
    let (mut user, _, renewed) = go_on(&cluster, 0, &file, &block).await.await.expect("no panic");
    let last = of_length(&renewed.expect("it goes on here"), 12);
    // The store need not know yet that the device of the first one is gone, where the next bytes could go.
    assert_eq!(file.complete(&mut user, Some(last)).await, Ok(true));
    assert_eq!(stored(&cluster, &file.path).await, "acknowledged");
    cluster.stop_all().await;
}

/// A file that was open at the second gateway and is closed by the third, which does not come to open it: its call is held back.
async fn taken_halfway(cluster: &Cluster, way: &Way) -> (File, ExtendedBlock, GoingOn) {
    let mut first = superuser(cluster, 1).await;
    let file = File::create(&mut first, "/f", "one").await;
    let block = file.add(&mut first, None).await.expect("a block");
    let mut stream = writer(cluster, 1, &block, SETUP_CREATE).await;
    stream.send_all(0, b"acknowledged", PACKET).await;
    way.hold_next::<file::Append>();
    let taking = go_on(cluster, 2, &file, &block).await;
    way.has_come().await;
    (file, block, taking)
}

/// While the metadata are there: a gateway that ends closes what it has open.
async fn stop_gateways_first(mut cluster: Cluster) {
    cluster.stop(2).await;
    cluster.stop(1).await;
    cluster.stop_all().await;
}
