//! `stormwell`: the one binary. Each subcommand is a file of its own; this one only starts them.

mod bag;
mod bench;
mod cat;
mod child;
mod command;
mod completion;
mod context;
mod demo;
mod device;
mod df;
mod du;
mod exit;
mod get;
mod inspect;
mod ls;
mod mkdir;
mod mv;
mod output;
mod path;
mod progress;
mod put;
mod rm;
mod serve;
mod show;
mod stat;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
