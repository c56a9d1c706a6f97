//! `stormwell bag ls`: the bags there are.

use super::stat;
use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use clap::Args;

/// Lists all bags with their counts
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag ls

Counts of a bag with a + before its name lack those of devices that cannot be asked.")]
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
            let name = format!("{}{}", if info.unasked > 0 { "+ " } else { "" }, output.name(&info.name));
            let (pushed, acknowledged) = (info.pushed, info.acknowledged);
            let (waiting, granted) = (info.waiting, info.granted);
            output
                .line(&format!("{pushed:>12}  {acknowledged:>12}  {waiting:>10}  {granted:>10}  {state:<6}  {name}"))?;
        }
        output.flush()?;
        let unasked = bags.iter().filter(|info| info.unasked > 0).count();
        if unasked > 0 && !context.quiet {
            say(&format!(
                "bag ls: {unasked} of {} bags have devices that cannot be asked, whose counts are left out; `stormwell device ls` says which and why",
                bags.len()
            ));
        }
        Ok(Exit::Done)
    }
}
