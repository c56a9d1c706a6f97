//! Makes Rust of `proto/`: one file of messages for each module of `src/message`, which takes it in beside what is written by hand.

use std::error::Error;

/// The files of `proto/`, each a package and a module of that name.
const FILES: [&str; 8] = [
    "files.proto",
    "hdfs.proto",
    "located.proto",
    "names.proto",
    "policies.proto",
    "rpc.proto",
    "status.proto",
    "transfer.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    // What heads a call is cut out of its frame, not copied; nor is a server for each block that it serves.
    prost_build::Config::new()
        .bytes([".rpc", ".hdfs.LocatedBlock.locations"])
        .compile_fds(protox::compile(FILES, ["proto"])?)?;
    Ok(())
}
