//! The one library that everything above uses: names, files, small files packed together, and bags.

mod attributes;
mod bag;
mod client;
mod consumer;
mod devices;
mod flow;
mod held;
mod lane;
mod names;
mod onlooker;
mod packer;
mod producer;
mod range;
mod reader;
mod routes;
mod stream;
mod writer;

pub use attributes::NewAttributes;
pub use bag::Bag;
pub use client::{Client, Near, Settings, Sizes};
pub use consumer::{Consumer, ConsumerOptions};
pub use held::{Acknowledged, Chunk, Refusal};
pub use names::{DirectoryOptions, Found, Listing, Usage};
pub use net::message::bag::Info as BagInfo;
pub use net::message::cluster::{Member as ClusterMember, Node as ClusterNode, ViewAnswer};
pub use net::message::device::{DamageAnswer, DamagedRange, DrainState, ScrubState};
pub use net::message::file::{Attributes, Device, DevicesAnswer, Entry, Extent, ListAnswer};
pub use net::message::session::{LookAnswer, NodeStatusAnswer};
pub use onlooker::Onlooker;
pub use packer::{PackOptions, Packed, Packer, PackerOptions};
pub use producer::{Producer, ProducerOptions};
pub use range::{RangePiece, RangeStream};
pub use reader::{FileReader, ReadOptions};
pub use stream::FileStream;
pub use writer::{CreateOptions, FileWriter, Written};
