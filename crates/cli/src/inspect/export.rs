//! `stormwell inspect --export`: files under their names, the chunks of bags, or, without names, every chunk.

use crate::context::Context;
use crate::exit::Result;
use crate::get::local;
use crate::output::Output;
use crate::progress::Progress;
use base::buffer::Pool;
use base::error::{Error, ErrorKind, Result as Outcome};
use base::id::{BagId, ChunkId, Owner};
use base::limit::FRAME_PAYLOAD_MAX;
use bytes::Bytes;
use node::inspect::{Attributes, BagInfo, ChunkStat, Damage, InspectedDevice, Inspection};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Writes everything that can be had below `directory`, which must be new or empty. True if nothing was damaged.
pub fn export(context: &Context, found: &mut Inspection, directory: &Path, output: &mut Output) -> Result<bool> {
    os::file::create_directories(directory)?;
    if !os::file::read_directory(directory)?.is_empty() {
        let text = format!("{} is not empty; name a new directory, so that nothing is mixed up", directory.display());
        return Err(Error::new(ErrorKind::Exists, text).into());
    }
    let (progress, ticker) = Progress::start(context, "export", "file");
    let mut damaged = Vec::new();
    let mut bags = BTreeMap::new();
    if let Some(names) = &mut found.names {
        let mut all = Vec::new();
        names.walk(&mut |_, path, attributes| {
            all.push((path.to_string(), attributes.clone()));
            Ok(())
        })?;
        bags.extend(names.bags()?.into_iter().map(|info| (info.bag, info)));
        let files = || all.iter().filter(|(_, attributes)| !attributes.directory);
        progress.found(files().count() as u64, files().map(|(_, attributes)| attributes.length).sum());
        let top = directory.join("files");
        os::file::create_directories(&top)?;
        for (path, attributes) in &all {
            let target = top.join(path.trim_start_matches('/'));
            if attributes.directory {
                os::file::create_directories(&target)?;
                continue;
            }
            let damage = export_file(found, path, attributes, &target, &progress)?;
            if !damage.is_empty() {
                damaged.push((path.clone(), damage));
            }
        }
        // What lies in a directory comes before its bits, which may forbid to write there, and its time.
        for (path, attributes) in all.iter().rev().filter(|(_, attributes)| attributes.directory) {
            let target = top.join(path.trim_start_matches('/'));
            dress(&os::file::open(&target)?, &target, attributes)?;
        }
    }
    damaged.extend(export_chunks(found, directory, &bags, &progress)?);
    drop(ticker);
    progress.summary();
    for (what, damage) in &damaged {
        for bad in damage {
            if context.json {
                output.json(&json!({
                    "kind": "damage", "path": what, "start": bad.start, "end": bad.end, "why": bad.why,
                }))?;
            } else {
                let what = output.name(what);
                output.line(&format!("DAMAGED {what}, bytes {}..{}: {}", bad.start, bad.end, bad.why))?;
            }
        }
    }
    if context.json {
        output.json(
            &json!({ "kind": "exported", "directory": directory.display().to_string(), "damaged": damaged.len() }),
        )?;
    }
    Ok(damaged.is_empty())
}

fn export_file(
    found: &mut Inspection,
    path: &str,
    attributes: &Attributes,
    target: &Path,
    progress: &Progress,
) -> Outcome<Vec<Damage>> {
    let writing = Writing::begin(target, progress)?;
    let damage = found.read_file(path, &mut |offset, bytes| writing.put(offset, &bytes))?;
    writing.finish(attributes.length, !damage.is_empty())?.map_or(Ok(()), |file| dress(&file, target, attributes))?;
    progress.copied(1);
    Ok(damage)
}

fn dress(file: &File, target: &Path, attributes: &Attributes) -> Outcome<()> {
    let times = (attributes.modified_ms, attributes.accessed_ms);
    let dressed = local::dress(file, attributes.directory, attributes.mode, times);
    dressed.map_err(|error| Error::from(error).during(format!("cannot set the bits and times of {}", target.display())))
}

/// The chunks of bags; of files too if nothing says which file they belong to.
fn export_chunks(
    found: &mut Inspection,
    directory: &Path,
    bags: &BTreeMap<BagId, BagInfo>,
    progress: &Progress,
) -> Outcome<Vec<(String, Vec<Damage>)>> {
    let named = found.names.is_some();
    let mut damaged = Vec::new();
    for device in &mut found.devices {
        for (chunk, stat) in device.chunks()? {
            let place = match stat.owner {
                Owner::Group(_) if named => continue,
                Owner::Group(group) => format!("chunks/group-{group}"),
                Owner::Bag(bag) => match bags.get(&bag) {
                    Some(info) => format!("bags/{}", info.name.replace('/', "_")),
                    None => format!("bags/bag-{bag}"),
                },
                Owner::Newer(owner) => format!("chunks/newer-{}-{}", owner.kind(), owner.number()),
            };
            let place = directory.join(place);
            os::file::create_directories(&place)?;
            progress.found(1, stat.length);
            let target = place.join(chunk.to_string());
            let writing = Writing::begin(&target, progress)?;
            let compressed =
                matches!(stat.owner, Owner::Bag(bag) if bags.get(&bag).is_some_and(|info| info.compression != 0));
            let (length, damage) = match compressed {
                true => export_compressed(device, chunk, &stat, &writing)?,
                false => {
                    let each = &mut |offset, bytes: Bytes| writing.put(offset, &bytes);
                    (stat.length, device.read_chunk(chunk, &stat, each)?.0)
                }
            };
            writing.finish(length, !damage.is_empty())?;
            progress.copied(1);
            if !damage.is_empty() {
                damaged.push((format!("chunk {chunk} of {}", stat.owner), damage));
            }
        }
    }
    Ok(damaged)
}

/// Writes a chunk of a bag whose chunks are compressed as it was pushed, or as it is stored if that cannot be had. Its length, and
/// what is damaged.
fn export_compressed(
    device: &mut InspectedDevice,
    chunk: ChunkId,
    stat: &ChunkStat,
    writing: &Writing,
) -> Outcome<(u64, Vec<Damage>)> {
    let mut stored = vec![0; usize::try_from(stat.length).map_or(0, |length| length.min(FRAME_PAYLOAD_MAX))];
    let (mut damage, _) = device.read_chunk(chunk, stat, &mut |offset, bytes| {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        // A longer one came through no frame.
        if let Some(place) = stored.get_mut(at..at.saturating_add(bytes.len())) {
            place.copy_from_slice(&bytes);
        }
        Ok(())
    })?;
    let mut bytes = Bytes::from(stored);
    if damage.is_empty() {
        match client::restore_chunk(&bytes, &Pool::new(0)) {
            Ok(chunk) => bytes = chunk,
            Err(error) => damage.push(Damage { start: 0, end: stat.length, why: error.text().to_string() }),
        }
    }
    writing.put(0, &bytes)?;
    Ok((bytes.len() as u64, damage))
}

/// A local file that is being written. What is damaged stays a hole of zeros.
struct Writing<'a> {
    file: File,
    target: PathBuf,
    progress: &'a Progress,
}

impl Writing<'_> {
    fn begin<'a>(target: &Path, progress: &'a Progress) -> Outcome<Writing<'a>> {
        Ok(Writing { file: os::file::create_new(target)?, target: target.to_path_buf(), progress })
    }

    fn put(&self, offset: u64, bytes: &Bytes) -> Outcome<()> {
        self.progress.copied_bytes(bytes.len() as u64);
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|error| Error::from(error).during(format!("cannot write {}", self.target.display())))
    }

    /// Gives the file its length. A damaged one is renamed to `NAME.damaged`, so that nobody takes it for whole; a whole one
    /// is returned.
    fn finish(self, length: u64, damaged: bool) -> Outcome<Option<File>> {
        let there = self.file.metadata().map(|metadata| metadata.len());
        let sized = there.and_then(|there| self.file.set_len(there.max(length)));
        sized.map_err(|error| Error::from(error).during(format!("cannot write {}", self.target.display())))?;
        if !damaged {
            return Ok(Some(self.file));
        }
        let mut name = self.target.clone().into_os_string();
        name.push(".damaged");
        os::file::rename(&self.target, Path::new(&name))?;
        Ok(None)
    }
}
