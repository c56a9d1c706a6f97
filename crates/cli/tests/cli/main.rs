//! The built binary, used as people use it: a server of its own for each test, and every command with its exit codes.
#![allow(clippy::disallowed_methods)] // These tests are the outside world: files, processes and pipes of their own.
#![allow(missing_docs)]

mod attributes;
mod bags;
mod bench;
mod cluster;
mod console;
mod copies;
mod devices;
mod drain;
mod far_devices;
mod inspect;
mod keepers;
mod kills;
mod looking;
mod mistakes;
mod names;
mod older;
mod room;
mod scrub;
mod secrets;
mod shapes;
mod small;
mod store;
mod tails;
mod unfinished;
mod wishes;
