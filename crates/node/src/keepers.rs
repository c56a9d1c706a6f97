//! What a node has that keeps the metadata with others: who they are (`seating`), how they begin a store together (`formation`), and how they speak
//! (`lanes`) and hear (`steps`).

#[cfg_attr(not(test), expect(dead_code, reason = "nodes use it when they keep a store with others"))]
pub mod lanes;
pub mod seating;
#[cfg_attr(not(test), expect(dead_code, reason = "nodes use it when they keep a store with others"))]
pub mod steps;
#[cfg(test)]
mod tests;
