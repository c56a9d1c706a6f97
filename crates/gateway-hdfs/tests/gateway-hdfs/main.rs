//! What the gateway says over foreign wires: the bytes of Hadoop's messages.
#![allow(missing_docs, reason = "a test may stop where it finds a surprise")]

mod messages;
