//! `stormwell explain`: where each byte of a file is, how safe it is, and what would have to fail for it to be lost.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::path;
use base::policy::Class;
use base::unit::show_bytes;
use clap::Args;
use client::{Attributes, Client, Device, Extent, Part, parts};
use serde_json::json;
use std::collections::BTreeSet;

/// Says where each byte of a file is, and what would have to fail for data to be lost
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stormwell explain /data/table\n\nreceived: in memory; written: survives a kill; synced: survives a power cut."
)]
pub struct Explain {
    /// The file or directory
    path: String,
}

impl Explain {
    /// Says it: one line a piece, then sentences.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let path = path::parse(&self.path)?;
        let client = context.connect("explain").await?;
        let attributes = client.stat(&path).await?;
        let devices = client.devices().await?.devices;
        let mut output = Output::open()?;
        let mut places = BTreeSet::new();
        let sentence = if attributes.directory {
            "a directory has no bytes: it is a record of the node's metadata store, and lost if the disk of that is lost".to_string()
        } else {
            self.pieces(context, &client, &path, &attributes, &devices, (&mut output, &mut places)).await?;
            loss(&attributes, &places)
        };
        if context.json {
            output.json(&json!({ "path": path, "loss": sentence }))?;
        } else {
            output.line(&sentence)?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }

    /// Shows every piece, page by page, and notes the places that the bytes depend on.
    async fn pieces(
        &self,
        context: &Context,
        client: &Client,
        path: &str,
        attributes: &Attributes,
        devices: &[Device],
        (output, places): (&mut Output, &mut BTreeSet<String>),
    ) -> Result<()> {
        let mut at = 0;
        loop {
            let (extents, more) = client.extents(attributes.inode, at).await?;
            for extent in &extents {
                at = extent.offset.saturating_add(extent.length).max(at.saturating_add(1));
                for part in parts(extent)? {
                    let device = devices.iter().find(|device| device.device == part.device);
                    let place = device.map_or("a device that is not served", |device| device.place.as_str());
                    places.insert(place.to_string());
                    let class = device.and_then(|device| Class::from_code(device.class)).map_or("unknown", Class::name);
                    if context.json {
                        output.json(&json!({
                            "path": path,
                            "offset": extent.offset,
                            "bytes": extent.length,
                            "column": part.column,
                            "columns": part.columns,
                            "cell": part.cell,
                            "device": format!("{:032x}", part.device.value()),
                            "class": class,
                            "place": place,
                            "chunk": format!("{:032x}", part.chunk.value()),
                            "chunk_offset": part.start,
                            "chunk_bytes": part.bytes,
                            "level": level(extent, class),
                            "copies": 1,
                        }))?;
                    } else {
                        output.line(&text(extent, &part, class, place))?;
                    }
                }
            }
            if !more || extents.is_empty() {
                return Ok(());
            }
        }
    }
}

fn level(extent: &Extent, class: &str) -> &'static str {
    match (class, extent.open) {
        ("memory", _) => "received",
        (_, true) => "written",
        (_, false) => "synced",
    }
}

fn text(extent: &Extent, part: &Part, class: &str, place: &str) -> String {
    let (offset, chunk) = (extent.offset, part.chunk.value());
    let bytes = if extent.open {
        format!("bytes {offset} and on, being written")
    } else {
        format!("bytes {offset} to {}", offset.saturating_add(extent.length))
    };
    let level = level(extent, class);
    let device = part.device.value();
    let which = match part.columns {
        1 => String::new(),
        columns => format!("cell {} of every {columns}, of {}, ", part.column + 1, show_bytes(part.cell)),
    };
    format!(
        "{bytes}: {which}{level}, one copy, in chunk {chunk:032x} from byte {} on device {device:032x} ({class}) in {place}",
        part.start
    )
}

/// What would have to fail.
fn loss(attributes: &Attributes, places: &BTreeSet<String>) -> String {
    let open = if attributes.open { "; of what is being written, a power cut loses what no sync reported" } else { "" };
    if places.is_empty() {
        return format!("it has no bytes that could be lost{open}");
    }
    let list = places.iter().map(String::as_str).collect::<Vec<_>>().join(" or ");
    format!(
        "bytes are lost if one thing fails: the disk under {list}, or the disk with this node's metadata, which alone knows where they are; there is one copy on one node; a kill or a power cut loses nothing that is synced{open}"
    )
}

#[cfg(test)]
mod tests {
    use super::{level, loss};
    use client::{Attributes, Extent};
    use std::collections::BTreeSet;

    /// Levels and sentences promise no more than there is.
    #[test]
    fn honest() {
        let open = Extent { open: true, ..Extent::default() };
        assert_eq!((level(&open, "ssd"), level(&Extent::default(), "ssd")), ("written", "synced"));
        assert_eq!(level(&Extent::default(), "memory"), "received");
        let places = BTreeSet::from(["/a".to_string(), "/b".to_string()]);
        assert!(loss(&Attributes::default(), &places).contains("the disk under /a or /b"));
        assert!(loss(&Attributes { open: true, ..Attributes::default() }, &places).contains("no sync reported"));
        assert!(loss(&Attributes::default(), &BTreeSet::new()).contains("no bytes"));
    }
}
