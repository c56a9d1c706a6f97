//! The data transfer protocol: connections that carry the bytes of blocks.
