//! Messages of the data transfer protocol (datatransfer.proto).
