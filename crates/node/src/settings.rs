//! What a person may choose when starting a node, and where on disk everything lies.

use crate::log::Form;
use base::id::ClusterId;
use base::limit::{HDFS_MIN_BLOCK_SIZE, REPAIR_AFTER};
use base::policy::Class;
use net::{Credentials, Secret, Tls};
use os::disk::Backend;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen, `host:port`; port 0 picks a free one.
    pub listen: String,
    /// The devices, at least one.
    pub devices: Vec<DeviceSetting>,
    /// How disks are driven.
    pub backend: Backend,
    /// Bytes of payload that may be on their way in, over all connections.
    pub incoming_bytes: u64,
    /// Bytes of payload that may be on their way out, over all connections.
    pub outgoing_bytes: u64,
    /// Where the metadata are kept, which need not be a device; none: in the first device's directory.
    pub metadata_dir: Option<PathBuf>,
    /// Directories whose device is gone for good: new devices are made there.
    pub as_new: Vec<PathBuf>,
    /// Where metrics and health are.
    pub console: Door,
    /// Where Hadoop's clients reach the store as an HDFS.
    pub hdfs: Door,
    /// Least bytes in a block of a file that Hadoop's clients make.
    pub hdfs_min_block_size: u64,
    /// How long a device has to be away before it is given up by itself.
    pub repair_after: Duration,
    /// How the log on stderr looks.
    pub log: Form,
    /// What those who connect prove; none: nothing, and the node should listen on loopback only.
    pub secret: Option<Secret>,
    /// What is shown and wanted on every connection of the store; none: they are plain.
    pub tls: Option<Tls>,
    /// The cluster that the node belongs to; none: it is a store of its own.
    pub cluster: Option<Cluster>,
}

/// What a node is told of its cluster and of its own place there.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Which cluster.
    pub id: ClusterId,
    /// The node's name, for people, one of its kind in the cluster; empty: the beginning of its id.
    pub name: String,
    /// Where it stands: leaving a site means crossing a slow link.
    pub site: String,
    /// Where in the site: what is lost together with it.
    pub rack: String,
    /// Where others reach it, `host:port`; none: where it listens.
    pub advertise: Option<String>,
    /// Who keeps the metadata.
    pub meta: MetaPlace,
}

/// Who keeps a node's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaPlace {
    /// The node itself.
    Local,
    /// The node at this `host:port`.
    Node(String),
    /// Several nodes together.
    Several {
        /// Where they are, `host:port` each: three or five, all different.
        keepers: Vec<String>,
        /// Which of them this node is, counted from zero; none: it is no keeper.
        own: Option<usize>,
    },
}

impl MetaPlace {
    /// Where the metadata is kept if the node itself does not do it alone, `host:port` each.
    pub fn elsewhere(&self) -> Vec<String> {
        match self {
            MetaPlace::Local => Vec::new(),
            MetaPlace::Node(address) => vec![address.clone()],
            MetaPlace::Several { keepers, .. } => keepers.clone(),
        }
    }
}

/// The site and the rack of a node that is not told where it stands.
pub const PLACE_UNSAID: &str = "default";

impl Cluster {
    /// A node of cluster `id` that keeps the metadata and is told nothing else.
    pub fn new(id: ClusterId) -> Cluster {
        Cluster {
            id,
            name: String::new(),
            site: PLACE_UNSAID.to_string(),
            rack: PLACE_UNSAID.to_string(),
            advertise: None,
            meta: MetaPlace::Local,
        }
    }
}

/// Where a server beside the store's own listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
    /// Nowhere.
    Off,
    /// At this `host:port`, or the node does not start.
    At(String),
    /// At this `host:port` if it is free, else at a free port of the host.
    Near(String),
}

impl Settings {
    /// The defaults: loopback, one device in `stormwell-data`.
    pub fn new(listen: &str, devices: Vec<DeviceSetting>) -> Settings {
        // 96 MiB each way hold 24 bag chunks of 4 MiB, far more than a disk needs in flight to run at its full rate,
        // and keep a busy node below half a GiB.
        Settings {
            listen: listen.to_string(),
            devices,
            backend: Backend::Auto,
            incoming_bytes: 96 << 20,
            outgoing_bytes: 96 << 20,
            as_new: Vec::new(),
            metadata_dir: None,
            console: Door::Off,
            hdfs: Door::Off,
            hdfs_min_block_size: HDFS_MIN_BLOCK_SIZE,
            repair_after: REPAIR_AFTER,
            log: Form::Text,
            secret: None,
            tls: None,
            cluster: None,
        }
    }

    /// Who keeps the metadata: this node, if it is a store of its own.
    pub fn meta(&self) -> &MetaPlace {
        self.cluster.as_ref().map_or(&MetaPlace::Local, |cluster| &cluster.meta)
    }

    /// What the node shows to others, and wants of them.
    pub fn credentials(&self) -> Credentials {
        Credentials { cluster: self.cluster.as_ref().map(|cluster| cluster.id), secret: self.secret.clone() }
    }
}

/// One device as a person names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSetting {
    /// Its directory.
    pub directory: PathBuf,
    /// Its class.
    pub class: Class,
    /// Bytes it may use; none means nine tenths of what the file system has free when the device is made, in memory a quarter of what
    /// is free there.
    pub capacity: Option<u64>,
}

impl DeviceSetting {
    /// Where its chunks are.
    pub fn chunks(&self) -> PathBuf {
        self.directory.join("chunks")
    }

    /// Where it says which device it is: there as soon as the directory is a device.
    pub fn identity(&self) -> PathBuf {
        identity_in(&self.directory)
    }
}

/// The same of a device in any directory.
pub fn identity_in(directory: &Path) -> PathBuf {
    directory.join("chunks").join("identity-00000000")
}

/// A path for people.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}
