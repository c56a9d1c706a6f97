//! `cargo x trials`: kills the real program under load, again and again, and compares.

use base::error::Result;

/// How many trials, and of which kind.
#[derive(clap::Args)]
pub struct Args {}

/// Runs the trials. `Ok(false)`: one of them found a fault.
pub fn run(_args: &Args) -> Result<bool> {
    Ok(false)
}
