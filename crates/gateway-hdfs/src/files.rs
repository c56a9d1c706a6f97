//! Files that are open for writing, their leases, and files as blocks.

pub mod blocks;
pub mod located;
pub mod readers;

/// What is known of open files and their blocks.
#[derive(Default)]
pub struct Files {
    /// Numbers of blocks.
    pub blocks: blocks::Blocks,
    /// Files that were read lately.
    pub readers: readers::Readers,
}
