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
        let mut places = Losses::new();
        let sentence = if attributes.directory {
            "a directory has no bytes: it is a record of the node's metadata store, and lost if the disk of that is lost".to_string()
        } else {
            self.pieces(context, &client, &path, &attributes, &devices, (&mut output, &mut places)).await?;
            loss(&attributes, &places, client.view().await?.keepers.len())
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
        (output, losses): (&mut Output, &mut Losses),
    ) -> Result<()> {
        let mut at = 0;
        loop {
            let (extents, more) = client.extents(attributes.inode, at).await?;
            for extent in &extents {
                at = extent.offset.saturating_add(extent.length).max(at.saturating_add(1));
                let parts = parts(extent)?;
                let of = |column: usize| parts.iter().filter(move |part| part.column == column);
                for part in &parts {
                    let copies = of(part.column).count();
                    let device = devices.iter().find(|device| device.device == part.device);
                    let place = &place_of(devices, part);
                    // Each column once, with its first copy.
                    if of(part.column).next().is_some_and(|first| first.device == part.device) {
                        let is_lost =
                            |part: &&Part| devices.iter().any(|device| device.device == part.device && device.lost);
                        let counts = of(part.column).filter(|part| !is_lost(part));
                        let counts: BTreeSet<String> = counts.map(|part| place_of(devices, part)).collect();
                        let none = || of(part.column).map(|part| place_of(devices, part)).collect();
                        losses.insert(if counts.is_empty() { none() } else { counts });
                    }
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
                            "copies": copies,
                        }))?;
                    } else {
                        output.line(&text(extent, part, class, (place, copies)))?;
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

fn text(extent: &Extent, part: &Part, class: &str, (place, copies): (&str, usize)) -> String {
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
    let copies = if copies == 1 { "one copy".to_string() } else { format!("one of {copies} copies") };
    format!(
        "{bytes}: {which}{level}, {copies}, in chunk {chunk:032x} from byte {} on device {device:032x} ({class}) in {place}",
        part.start
    )
}

/// The directory of the device that has a part, for people.
fn place_of(devices: &[Device], part: &Part) -> String {
    let device = devices.iter().find(|device| device.device == part.device);
    match device {
        None => "a device that is not served".to_string(),
        Some(device) if device.lost => format!("{}, which was given up", device.place),
        Some(device) => device.place.clone(),
    }
}

/// Sets of disks of which each loses bytes if all in it fail.
type Losses = BTreeSet<BTreeSet<String>>;

/// Most of these sets that are named.
const NAMED_MAX: usize = 6;

/// What would have to fail, in a store with so many keepers of the metadata; 0: one node alone keeps them.
fn loss(attributes: &Attributes, losses: &Losses, keepers: usize) -> String {
    let open = if attributes.open { "; of what is being written, a power cut loses what no sync reported" } else { "" };
    let Some(fewest) = losses.iter().map(BTreeSet::len).min() else {
        return format!("it has no bytes that could be lost{open}");
    };
    let worst: Vec<String> = losses
        .iter()
        .filter(|places| places.len() == fewest)
        .map(|places| places.iter().map(String::as_str).collect::<Vec<_>>().join(" and "))
        .collect();
    let more = worst.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 { format!(", or {more} other such sets") } else { String::new() };
    let list = worst[..worst.len().min(NAMED_MAX)].join(" or ");
    let bytes = match fewest {
        1 => format!("bytes are lost if one disk fails: the one under {list}{more}, of which there is one copy"),
        _ => format!("bytes are lost only if {fewest} disks fail before new copies are made: those under {list}{more}"),
    };
    let names = match keepers {
        0 | 1 => "the names are lost with the disk of the one node that keeps the metadata, which alone knows where the bytes are".to_string(),
        several => format!("the names only if {} of the {several} nodes that keep the metadata lose their disks", several / 2 + 1),
    };
    format!("{bytes}; {names}; a kill or a power cut loses nothing that is synced{open}")
}

#[cfg(test)]
mod tests {
    use super::{Losses, level, loss};
    use client::{Attributes, Extent};
    use std::collections::BTreeSet;

    /// Levels and sentences promise no more than there is: the piece with the fewest copies decides.
    #[test]
    fn honest() {
        let open = Extent { open: true, ..Extent::default() };
        assert_eq!((level(&open, "ssd"), level(&Extent::default(), "ssd")), ("written", "synced"));
        assert_eq!(level(&Extent::default(), "memory"), "received");
        let of = |places: &[&str]| places.iter().map(|place| place.to_string()).collect::<BTreeSet<_>>();
        let one = Losses::from([of(&["/a"]), of(&["/b"]), of(&["/a", "/b"])]);
        let told = loss(&Attributes::default(), &one, 0);
        assert!(
            told.contains("if one disk fails: the one under /a or /b, of") && told.contains("the one node"),
            "{told}"
        );
        let told = loss(&Attributes::default(), &Losses::from([of(&["/a", "/b"]), of(&["/b", "/c"])]), 3);
        assert!(
            told.contains("only if 2 disks fail before new copies are made: those under /a and /b or /b and /c;"),
            "{told}"
        );
        assert!(told.contains("2 of the 3 nodes"), "{told}");
        assert!(loss(&Attributes { open: true, ..Attributes::default() }, &one, 0).contains("no sync reported"));
        assert!(loss(&Attributes::default(), &Losses::new(), 0).contains("no bytes"));
    }
}
