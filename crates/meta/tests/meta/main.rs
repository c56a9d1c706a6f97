//! The promises of the metadata store, on a simulated disk and a simulated file.

mod access;
mod answers;
mod attributes;
mod calls;
mod columns;
mod crashes;
mod damaged;
mod extents;
mod formats;
mod keepers;
mod known;
mod lacking;
mod listed;
mod lists;
mod model;
mod moves;
mod newer;
mod nodes;
mod pages;
mod quotas;
mod replicas;
mod room;
mod rules;
mod steps;
mod stored;
mod world;
