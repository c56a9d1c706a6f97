//! The one library that everything above uses: names, files, small files packed together, and bags.

mod attributes;
mod bag;
mod client;
mod columns;
mod compressed;
mod consumer;
mod devices;
mod flow;
mod hosts;
mod lane;
mod leased_chunks;
mod listed;
mod locality;
mod names;
mod pace;
mod packer;
mod producer;
mod quota;
mod range;
mod reader;
mod replicas;
mod room;
mod routes;
mod status_query;
mod stream;
mod streams;
mod synced;
mod unfinished;
mod writer;

pub use bag::{Bag, BagOptions, Scope};
pub use client::{Client, LocalNode, Settings, Sizes, User};
pub use columns::{Part, parts};
pub use compressed::{restore as restore_chunk, restore_cell};
pub use consumer::{Consumer, ConsumerOptions};
pub use hosts::{Host, Hosts};
pub use leased_chunks::{Acknowledged, Chunk, Refusal};
pub use listed::Listed;
pub use names::{DirectoryOptions, Found, Listing, Usage};
pub use net::message::bag::Info as BagInfo;
pub use net::message::cluster::{Member as ClusterMember, Node as ClusterNode, ViewAnswer};
pub use net::message::device::{DamageAnswer, DamagedRange, DrainState, ScrubState};
pub use net::message::file::{
    Attributes, Device, DevicesAnswer, Entry, Extent, Lacks, ListAnswer, Looked, NewAttributes, Seen,
};
pub use net::message::quota::Quota;
pub use net::message::session::{LookAnswer, NodeStatusAnswer};
pub use packer::{PackOptions, Packed, Packer, PackerOptions};
pub use producer::{Producer, ProducerOptions};
pub use quota::NewQuota;
pub use range::{RangePiece, RangeStream, Sums};
pub use reader::{FileReader, ReadOptions};
pub use room::Tries;
pub use status_query::StatusQuery;
pub use stream::FileStream;
pub use unfinished::Unfinished;
pub use writer::{CreateOptions, FileWriter, GoesOn, Written};
