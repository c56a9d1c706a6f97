//! Calls about names, attributes, permissions and policies.

pub(crate) mod acl;
pub(crate) mod calls;
pub(crate) mod change;
mod creation;
pub(crate) mod directory_cache;
pub(crate) mod listing;
mod looks;
mod permission;
pub(crate) mod policies;
mod resolved_path;
pub(crate) mod set;
mod status;
pub(crate) mod usage;
mod walk;
pub(crate) mod walks;
pub(crate) mod xattrs;

pub(crate) use change::is_refused;
pub(crate) use creation::{check_parent, file_options};
pub(crate) use listing::{file_for, way_to_file};
pub(crate) use looks::Looks;
pub(crate) use permission::superuser_only;
pub(crate) use policies::{LAZY_PERSIST, check_coding_policy, storage_policy_named};
pub(crate) use resolved_path::{Purpose, ResolvedPath, Written};
pub(crate) use set::check_replication;
pub use status::file_status;
