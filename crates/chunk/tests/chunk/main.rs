//! The engine on a simulated device: crashes, faults, full devices, formats.

mod again;
mod cells;
mod crash;
mod early;
mod ends;
mod faults;
mod first_format;
mod folds;
mod golden;
mod model;
mod newer;
mod passes;
mod recovery;
mod room;
mod scrub;
mod second_format;
mod space;
mod turns;
mod world;
