//! What everything needs that starts servers as children, measures them and kills them: the children, their directories, their
//! memory, and time. `stormwell bench` and `demo` stand on it as the trials do, so nothing is here that a product must not have.

pub mod child;
mod owned;
pub mod sampler;
pub mod scratch;
pub mod stopwatch;

pub use owned::end_all;
