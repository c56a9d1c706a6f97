//! Messages of the calls about names, attributes, permissions and policies (ClientNamenodeProtocol.proto, acl.proto, xattr.proto).
