//! The program `lab`: experiments that try to make Stormwell lose a byte, and those that measure how it scales. `cargo x sim`,
//! `cargo x trials`, `cargo x attacks` and `cargo x lab scale` run it.

mod attacks;
mod in_order;
mod record;
mod scale;
mod sim_command;
mod simulate;
mod trials;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Experiments that try to make Stormwell lose a byte, and those that measure how it scales.
#[derive(Parser)]
#[command(name = "lab", version)]
struct Lab {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Whole nodes and their clients in one thread, with simulated time, disks and network; each seed is one history
    Sim(sim_command::Args),
    /// The real program, killed again and again under load; every acknowledged byte is compared afterwards
    Trials(trials::Args),
    /// The real program with little memory, a healthy client beside it, and strangers who want all of it
    Attacks(attacks::Args),
    /// Three processes that keep the metadata together: for how long none acknowledges when whoever leads goes away
    Turns(trials::turns::Args),
    /// Files of three copies under writers that flush: for how long nothing is acknowledged when a node goes away
    Stalls(trials::stalls::Args),
    /// Many devices on one machine, each as slow as it is told: how bags scale
    Scale(scale::Args),
}

fn main() -> ExitCode {
    let outcome = match Lab::parse().experiment {
        Experiment::Sim(args) => sim_command::run(&args),
        Experiment::Trials(args) => trials::run(&args),
        Experiment::Attacks(args) => attacks::run(&args),
        Experiment::Turns(args) => trials::turns::run(&args),
        Experiment::Stalls(args) => trials::stalls::run(&args),
        Experiment::Scale(args) => scale::run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::from(2)
        }
    }
}
