//! Messages of the calls about names, attributes and permissions (ClientNamenodeProtocol.proto, acl.proto, xattr.proto).

include!(concat!(env!("OUT_DIR"), "/names.rs"));
