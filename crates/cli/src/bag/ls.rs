//! `stormwell bag ls`: the bags there are.

use super::stat;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use clap::Args;

/// Lists all bags with their counts
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag ls")]
pub struct Ls {}

impl Ls {
    /// Lists them.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag ls").await?;
        let bags = client.bag_list().await?;
        let mut output = Output::open()?;
        if !context.json && !bags.is_empty() {
            output.line("      pushed  acknowledged     waiting     granted  state   name")?;
        }
        for info in &bags {
            if context.json {
                output.json(&stat::object(info))?;
                continue;
            }
            let state = if info.sealed { "sealed" } else { "open" };
            let name = output.name(&info.name);
            let (pushed, acknowledged) = (info.pushed, info.acknowledged);
            let (waiting, granted) = (info.waiting, info.granted);
            output
                .line(&format!("{pushed:>12}  {acknowledged:>12}  {waiting:>10}  {granted:>10}  {state:<6}  {name}"))?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}
