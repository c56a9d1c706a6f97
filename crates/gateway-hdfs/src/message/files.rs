//! Messages of the calls about open files and their blocks (ClientNamenodeProtocol.proto).
