//! `cargo x sim`: runs seeds of the whole-node simulation and reports.

use base::error::Result;

/// Which seeds to run.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the seeds. `Ok(false)`: one of them found a fault.
pub fn run(_args: &Args) -> Result<bool> {
    Ok(false)
}
