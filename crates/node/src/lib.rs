//! The daemon as a library: settings, the threads that serve the engines, and what joins engines and network.

mod bags;
mod device;
mod housekeeping;
mod identity;
pub mod inspect;
mod mailbox;
mod metadata;
mod serve;
mod service;
mod settings;
mod translate;

pub use serve::{Running, start};
pub use settings::{DeviceSetting, Settings};
