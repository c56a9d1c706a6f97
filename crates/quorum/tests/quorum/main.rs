//! The promises of the log that keepers share, in simulated time, on simulated disks and a simulated network.

mod alone;
mod disk;
mod histories;
mod named;
mod whole;
mod world;
