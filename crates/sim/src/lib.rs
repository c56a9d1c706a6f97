//! The outside world from one seed, for tests: chance, time, a device that tears, rots, fills, forgets and lies, and a file that forgets.
//! The same seed and the same calls give the same history.

pub mod clock;
pub mod disk;
pub mod file;
pub mod fuzz;
pub mod net;
pub mod ports;
pub mod random;
pub mod runtime_clock;
