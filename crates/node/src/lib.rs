//! The daemon as a library: settings, the threads that serve the engines, and what joins engines and network.

mod bags;
mod cluster;
mod console;
mod departures;
mod device;
mod drain;
mod exposition;
mod fetching;
mod hdfs;
mod health;
mod home;
mod housekeeping;
mod identity;
pub mod inspect;
pub mod log;
mod mailbox;
mod membership;
mod metadata;
mod metered;
mod metrics;
mod moving;
mod orders;
mod peers;
mod place;
mod places;
mod scrub;
mod serve;
mod service;
mod settings;
mod translate;
mod troubles;
mod world;

pub use places::Missing;
pub use serve::{Running, start};
pub use settings::{Cluster, DeviceSetting, Door, MetaPlace, PLACE_UNSAID, Settings};
pub use world::{Ended, Open, OsWorld, Turn, Work, World};
