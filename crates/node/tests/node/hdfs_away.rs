//! What Hadoop's clients can do while somebody waits for a node that does not answer.

use crate::cluster::Cluster;
use crate::hdfs_gateways::{File, ask, superuser};
use crate::hdfs_lost::apart;
use crate::hdfs_user::client_of;
use crate::until;
use gateway_hdfs::message::files::{RecoverLease, Truth};
use node::Door;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The way to a node, on which bytes may be held back.
struct Way {
    address: String,
    held: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Way {
    /// Nothing is behind it yet.
    async fn new() -> (Way, watch::Sender<Option<SocketAddr>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let ((held, hold), (told, node)) = (watch::channel(false), watch::channel(None));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(carry(stream, node.clone(), hold.clone()));
            }
        });
        (Way { address, held, serving }, told)
    }

    /// From now on nothing comes through.
    fn hold(&self) {
        self.held.send_replace(true);
    }

    fn let_go(&self) {
        self.held.send_replace(false);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Carries one connection's bytes to the node and back. What goes there while the way is held waits.
async fn carry(mut stream: TcpStream, mut node: watch::Receiver<Option<SocketAddr>>, mut hold: watch::Receiver<bool>) {
    let Ok(Some(address)) = node.wait_for(Option::is_some).await.map(|there| *there) else { return };
    let Ok(mut there) = TcpStream::connect(address).await else { return };
    let ((mut from, mut to), (mut back, mut on)) = (stream.split(), there.split());
    let mut buffer = vec![0; 64 << 10];
    let going = async {
        loop {
            match from.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(read) => {
                    if hold.wait_for(|held| !held).await.is_err() || on.write_all(&buffer[..read]).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = going => (),
        _ = tokio::io::copy(&mut back, &mut to) => (),
    }
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
