//! `stormwell`: the one binary. Each subcommand is a file of its own; this one only starts them.

mod bag;
mod below;
mod bench;
mod cat;
mod child;
mod chmod;
mod chown;
mod cluster;
mod command;
mod completion;
mod concat;
mod config;
mod context;
mod demo;
mod device;
mod df;
mod doctor;
mod du;
mod emptied;
mod exit;
mod explain;
mod get;
mod init;
mod inspect;
mod ls;
mod mkdir;
mod mv;
mod node;
mod output;
mod path;
mod policy;
mod progress;
mod put;
mod quota;
mod rm;
mod serve;
mod settings;
mod show;
mod stat;
mod tail;
mod top;
mod touch;
mod truncate;
mod xattr;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
