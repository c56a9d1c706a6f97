//! Promises of the client, kept against a small node in memory that delays, reorders, refuses and loses answers.

mod bags;
mod columns;
mod fake;
mod files;
mod idle;
mod listed;
mod names;
mod open;
mod packer;
mod ranges;
mod replicas;
mod routes;
mod store;
mod written;
