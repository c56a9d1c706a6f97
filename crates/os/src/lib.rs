//! The outside world for real: time, chance, threads, sockets, signals, processes, files, and devices under `base::disk::Disk`.
//! What is banned elsewhere is done here, once.

pub mod clock;
pub mod disk;
pub mod file;
pub mod machine;
pub mod net;
pub mod new_file;
pub mod process;
pub mod random;
pub mod signal;
pub mod terminal;
pub mod thread;
pub mod user;
