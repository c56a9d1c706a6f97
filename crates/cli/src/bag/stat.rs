//! `stormwell bag stat`: what is in a bag.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use base::policy::Compression;
use base::unit::show_bytes;
use clap::Args;
use client::BagInfo;
use serde_json::{Value, json};

/// Shows how many chunks were pushed, acknowledged, granted, and wait
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag stat work --json")]
pub struct Stat {
    /// The bag
    name: String,
}

/// A bag as an object.
pub fn object(info: &BagInfo) -> Value {
    json!({
        "name": info.name,
        "bag": info.bag,
        "sealed": info.sealed,
        "retain": info.retain,
        "pass": info.pass,
        "compression": compression(info),
        "devices": info.members.len(),
        "devices_unasked": info.unasked,
        "pushed": info.pushed,
        "pushed_bytes": info.pushed_bytes,
        "acknowledged": info.acknowledged,
        "acknowledged_bytes": info.acknowledged_bytes,
        "waiting": info.waiting,
        "granted": info.granted,
    })
}

/// How its chunks are compressed, in a word.
fn compression(info: &BagInfo) -> &'static str {
    Compression::from_code(info.compression).map_or("unknown", Compression::name)
}

impl Stat {
    /// Shows it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag stat").await?;
        let info = client.bag_stat(&self.name).await.map_err(|error| super::missing(error, &self.name))?;
        let mut output = Output::open()?;
        if context.json {
            output.json(&object(&info))?;
        } else {
            output.line(&format!("name          {}", output.name(&info.name)))?;
            output.line(&format!("sealed        {}", if info.sealed { "yes" } else { "no" }))?;
            output.line(&format!("retains       {}", if info.retain { "yes" } else { "no" }))?;
            output.line(&format!("pass          {}", info.pass))?;
            output.line(&format!("compression   {}", compression(&info)))?;
            output.line(&format!("pushed        {} chunks, {}", info.pushed, show_bytes(info.pushed_bytes)))?;
            output.line(&format!(
                "acknowledged  {} chunks, {}",
                info.acknowledged,
                show_bytes(info.acknowledged_bytes)
            ))?;
            output.line(&format!("waiting       {} chunks", info.waiting))?;
            output.line(&format!("granted       {} chunks", info.granted))?;
            output.line(&format!("devices       {}", info.members.len()))?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}
