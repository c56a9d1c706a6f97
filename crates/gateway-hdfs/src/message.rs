//! Hadoop's messages, as far as they are used: written from the tables of field numbers of release 3.4.3. Fields that
//! are left out are skipped when they come. Required fields are always written, also when they are zero.

pub mod files;
pub mod hdfs;
pub mod located;
pub mod names;
pub mod policies;
pub mod rpc;
pub mod status;
pub mod transfer;
