//! What a node has that keeps the metadata with others: who they are (`seating`), how they begin a store together (`formation`), and how they speak
//! (`lanes`).

pub mod seating;
