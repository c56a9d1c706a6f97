//! The daemon as a library: settings, the threads that serve the engines, and what joins engines and network.

mod bags;
mod device;
mod housekeeping;
mod identity;
mod mailbox;
mod metadata;
mod serve;
mod service;
mod settings;
mod translate;
mod world;

pub use serve::{Running, start};
pub use settings::{DeviceSetting, Settings};
pub use world::{Ended, Open, OsWorld, Turn, Work, World};
