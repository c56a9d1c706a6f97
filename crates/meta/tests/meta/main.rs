//! The promises of the metadata store, on a simulated disk and a simulated file.

mod crashes;
mod formats;
mod model;
mod rules;
mod steps;
mod world;
