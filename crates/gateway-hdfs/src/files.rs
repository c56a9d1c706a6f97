//! Files that are open for writing, their leases, and files as blocks.

/// What is known of open files and their blocks.
#[derive(Default)]
pub struct Files {}
