//! Messages of the calls about sums, quotas, storage policies and erasure coding labels (hdfs.proto, erasurecoding.proto).

include!(concat!(env!("OUT_DIR"), "/policies.rs"));
