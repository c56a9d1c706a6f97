//! The daemon as a library: settings, the threads that serve the engines, and what joins engines and network.

mod console;
mod control;
mod device;
mod device_handle;
mod device_paths;
mod exposition;
mod hdfs;
mod health;
mod here;
mod home;
mod identity;
pub mod inspect;
mod keepers;
mod keeping;
mod leading;
mod loan;
pub mod log;
mod mailbox;
mod membership;
mod metadata;
mod metered;
mod metrics;
mod neighbours;
mod node;
mod peers;
mod serve;
mod service;
mod settings;
mod sync;
#[cfg(test)]
mod told;
mod translate;
mod troubles;
mod world;

pub use device_paths::Missing;
pub use loan::Loans;
pub use serve::{Running, start};
pub use settings::{Cluster, DeviceSetting, Door, MetaPlace, PLACE_UNSAID, Settings};
pub use world::{Ended, Open, OsWorld, Turn, Work, World};
