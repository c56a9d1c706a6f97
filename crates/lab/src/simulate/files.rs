//! A client that works with files in a directory of its own, and knows what must be in it.

use super::directory::Directory;
use super::format::content;
use super::oracle::{Broken, Check, Promise, Stand};
use super::scene::{Scene, check_alone, nothing_done};
use super::whereabouts;
use base::env::Random;
use base::error::ErrorKind;
use base::limit::SMALL_PAYLOAD_MAX;
use base::policy::{Compression, Policy};
use bytes::Bytes;
use client::{
    Attributes, Client, CreateOptions, Entry, FileWriter, Listed, PackOptions, PackerOptions, ReadOptions, Sizes,
};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Names that a directory has; few, so that files are replaced, renamed over and made again.
const NAMES: u64 = 16;

/// So many names of which it is not known what they hold are looked at before anything else is done.
const UNCERTAIN_MAX: usize = 4;

/// Longest pause before the first thing is done with a file that is written slowly, and between two, in milliseconds. A drain looks
/// at a node's devices a second or two after it was asked for.
const SLOW_START_MAX: u64 = 6_000;
const SLOW_PAUSE_MAX: u64 = 1_500;

/// Longest work of one client, whatever others do.
const TURNS_MAX: u64 = 3000;

/// A client of files.
pub struct Files {
    scene: Arc<Scene>,
    client: Client,
    random: SimRandom,
    name: String,
    directory: Directory,
    /// Ends of the node after which everything was looked at.
    looked_after: u64,
    /// Everything was looked at while a device was out of service.
    looked_out_of_service: bool,
    /// Power losses where its bytes were before the file was opened that is written now.
    losses_at_open: u64,
    /// Longest pause between two things, in milliseconds.
    pause_max: u64,
    /// Files are open for so long that what their chunks lie on may be emptied meanwhile.
    is_slow: bool,
    /// Who reads: sees what is written here, whichever node each of the two goes to.
    reader: Client,
}

impl Files {
    /// A client named `name` that has `directory` for itself.
    pub fn new(scene: Arc<Scene>, client: Client, random: SimRandom, name: &str, directory: &str) -> Files {
        let looked_after = scene.oracle().ends;
        let pause_max = if scene.late.is_zero() { 30 } else { 200 };
        let directory = Directory::new(scene.clone(), &random, name, directory, NAMES);
        Files {
            scene,
            reader: client.clone(),
            pause_max,
            client,
            random,
            name: name.to_string(),
            directory,
            looked_after,
            looked_out_of_service: false,
            losses_at_open: 0,
            is_slow: false,
        }
    }

    /// Writes slowly.
    pub fn slowly(self) -> Files {
        Files { is_slow: true, ..self }
    }

    /// With another client that reads.
    pub fn read_by(self, reader: Client) -> Files {
        Files { reader, ..self }
    }

    /// Makes the directory, then does so many things and looks at everything after each end of the node.
    pub async fn work(&mut self, turns: u64) -> Check<()> {
        let make = || self.client.make_directory(&self.directory.path, true);
        if let Err(error) = self.scene.insist(&self.name, "make_directory", make).await? {
            return Err(Broken(format!("{}: {error}", self.directory.path)));
        }
        self.wish().await?;
        for turn in 0.. {
            if turn >= turns && (self.scene.has_seen_enough() || turn > TURNS_MAX) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(self.pause_max))).await;
            self.turn().await?;
            if !self.scene.late.is_zero() && self.scene.oracle().uncertain_under(&self.directory.path) >= UNCERTAIN_MAX
            {
                tokio::time::sleep(self.scene.late).await;
                self.look_at_all(true).await?;
            }
            let ends = self.scene.oracle().ends;
            if ends != self.looked_after {
                self.looked_after = ends;
                self.look_at_all(true).await?;
            } else if self.scene.oracle().out_of_service && !self.looked_out_of_service {
                self.looked_out_of_service = true;
                self.read_out_of_service().await?;
            }
        }
        Ok(())
    }

    /// Lets the files of some seeds be compressed.
    async fn wish(&mut self) -> Check<()> {
        let how = match self.random.fork("compression").below(4) {
            0 => Compression::Lz4,
            1 => Compression::Zstd,
            _ => return Ok(()),
        };
        // So much is compressed by who asks for it, and not in a thread of its own, which would have its own time.
        let piece = SMALL_PAYLOAD_MAX;
        let (write_window, read_window) = (4 * piece, 4 * piece);
        let sizes = Sizes { piece, file_chunk: 4 * piece as u64, write_window, read_piece: piece, read_window };
        self.client = self.client.with_sizes(sizes);
        let policy = Policy { compression: Some(how), ..Policy::default() };
        let set = || self.client.set_policy(&self.directory.path, policy);
        if let Err(error) = self.scene.insist(&self.name, "set_policy", set).await? {
            return Err(Broken(format!("{}: {error}", self.directory.path)));
        }
        self.scene.count("directories compressed");
        Ok(())
    }

    async fn turn(&mut self) -> Check<()> {
        match self.random.below(20) {
            0..7 => self.write().await,
            7..9 => self.pack().await,
            9..12 => self.read().await,
            12..14 => self.delete().await,
            14..17 => self.rename().await,
            17 => self.list().await,
            _ => self.stat().await,
        }
    }

    /// Writes a file from its start or from its end.
    async fn write(&mut self) -> Check<()> {
        let Some((path, stand)) = self.directory.certain_path() else { return Ok(()) };
        let losses_before = stand.map_or(0, |tag| self.scene.oracle().losses_of(tag));
        let opened = match stand {
            Some(tag) if self.random.one_in(2) => self.open_to_append(&path, tag).await?,
            _ => self.open_new(&path, stand).await?,
        };
        let Some((tag, mut writer)) = opened else { return Ok(()) };
        self.losses_at_open = if stand == Some(tag) { losses_before } else { self.scene.oracle().losses_of(tag) };
        let steps = if self.is_slow { 1 + self.random.below(4) } else { self.random.below(8) };
        if self.is_slow {
            tokio::time::sleep(Duration::from_millis(self.random.below(SLOW_START_MAX))).await;
        }
        for _ in 0..steps {
            if self.is_slow {
                tokio::time::sleep(Duration::from_millis(self.random.below(SLOW_PAUSE_MAX))).await;
            }
            if !self.write_step(&path, tag, &mut writer).await? {
                // The writer has failed: what is there is between what was acknowledged and what was handed in.
                return self.recover(&path, tag).await;
            }
            let well = match self.random.below(3) {
                _ if !self.is_slow => true,
                0 => true,
                1 => self.sync(tag, &mut writer).await?,
                _ => self.flush(tag, &mut writer).await?,
            };
            if !well {
                return self.recover(&path, tag).await;
            }
        }
        if self.random.one_in(8) {
            self.scene.count("leave_open");
            if self.is_slow {
                self.sync(tag, &mut writer).await?;
            }
            return self.recover(&path, tag).await;
        }
        let position = writer.position();
        match self.of_writer("close", tag, writer.close()).await? {
            Ok(found) if found.length == position => {
                self.directory.closed(tag, position);
                Ok(())
            }
            Ok(found) => Err(Broken(format!("{path}: closed with {} bytes, {position} were written", found.length))),
            Err(_) => Ok(()),
        }
    }

    /// In a cluster, mostly: a file that was left open is closed by somebody else with what is there, or stays as it is.
    async fn recover(&self, path: &str, tag: u64) -> Check<()> {
        // What a slow writer left open would keep a drain waiting for long.
        if self.scene.late.is_zero() || !self.is_slow && self.random.one_in(3) {
            return Ok(());
        }
        // By then the node that has its last chunk may be gone.
        tokio::time::sleep(Duration::from_millis(self.random.below(SLOW_PAUSE_MAX))).await;
        let reader = &self.reader;
        let Ok(found) = self.scene.insist(&self.name, "stat", || reader.stat(path)).await? else { return Ok(()) };
        let recovered = self.scene.insist(&self.name, "recover", || reader.recover(found.inode, false)).await?;
        let Ok(Attributes { length, .. }) = recovered else { return Ok(()) };
        self.directory.recovered(path, tag, length)
    }

    async fn open_new(&self, path: &str, stand: Stand) -> Check<Option<(u64, FileWriter)>> {
        let tag = self.scene.oracle().new_tag();
        self.scene.oracle().may_become(path, Some(tag));
        let overwrite = stand.is_some() || self.random.one_in(2);
        let options = CreateOptions { overwrite, ..CreateOptions::default() };
        match self.scene.call(&self.name, "create", self.client.create(path, options)).await? {
            Ok(writer) => {
                self.scene.oracle().becomes(path, Some(tag));
                Ok(Some((tag, writer)))
            }
            Err(error) => self.directory.not_made(path, stand, &error).map(|()| None),
        }
    }

    async fn open_to_append(&self, path: &str, tag: u64) -> Check<Option<(u64, FileWriter)>> {
        match self.scene.call(&self.name, "append", self.client.append(path)).await? {
            Ok(writer) => {
                self.directory.opened_at(path, tag, writer.position())?;
                Ok(Some((tag, writer)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.directory.gone("append", path, tag, &error)),
            Err(_) => Ok(None),
        }
    }

    /// A call of the writer of a file, which nobody but this client opens: it may fail for a device or for want of room, but is told of somebody
    /// else only if its session is over, or if a power loss took bytes from under it, which others may have that cannot be asked now.
    async fn of_writer<T>(
        &self,
        what: &'static str,
        tag: u64,
        call: impl Future<Output = base::error::Result<T>>,
    ) -> Check<base::error::Result<T>> {
        let done = self.scene.call(&self.name, what, call).await?;
        let is_excused = {
            let oracle = self.scene.oracle();
            oracle.losses_of(tag) != self.losses_at_open || oracle.may_be_short(tag)
        };
        if let Err(error) = &done
            && !is_excused
        {
            check_alone(&format!("{}: {what} of file {tag}", self.name), error)?;
        }
        Ok(done)
    }

    /// One thing with an open file. False: the writer has failed.
    async fn write_step(&self, path: &str, tag: u64, writer: &mut FileWriter) -> Check<bool> {
        let position = writer.position();
        match self.random.below(8) {
            0..4 => {
                let length = match self.random.below(4) {
                    0 => self.random.below(200),
                    1 => self.random.below(5_000),
                    2 => self.random.below(70_000),
                    _ => self.random.below(200_000),
                };
                let bytes = Bytes::from(content(tag, position, length as usize));
                self.scene.oracle().promise_mut(tag).handed = position + length;
                self.scene.oracle().may_be_anywhere(tag);
                Ok(self.of_writer("write", tag, writer.write(bytes)).await?.is_ok())
            }
            4 => self.flush(tag, writer).await,
            5 => self.sync(tag, writer).await,
            _ => {
                let read = self.scene.call(&self.name, "read_while_written", self.client.read_small(path)).await?;
                if let Ok(bytes) = read {
                    self.scene.count_more("bytes compared", bytes.len() as u64);
                    self.scene.oracle().recognise(path, &bytes)?;
                }
                Ok(true)
            }
        }
    }

    /// Hands everything to the devices, and looks where it is. False: the writer has failed.
    async fn flush(&self, tag: u64, writer: &mut FileWriter) -> Check<bool> {
        if self.of_writer("hflush", tag, writer.hflush()).await?.is_err() {
            return Ok(false);
        }
        let promised = self.directory.hflushed(tag, writer.position(), self.losses_at_open);
        // An end right after the answer meets the bytes on their way to the disk; one that comes later knows whose they are.
        let at_once = self.random.one_in(2);
        if at_once {
            self.scene.acknowledged(&self.random);
        }
        if promised {
            whereabouts::look(&self.scene, &self.name, &self.client, tag, writer.inode()).await?;
        }
        if !at_once {
            self.scene.acknowledged(&self.random);
        }
        Ok(true)
    }

    /// Syncs an open file. False: the writer has failed.
    async fn sync(&self, tag: u64, writer: &mut FileWriter) -> Check<bool> {
        let position = writer.position();
        let done = self.of_writer("sync", tag, writer.sync()).await?.is_ok();
        if done {
            self.directory.synced(tag, position);
        }
        Ok(done)
    }

    /// Puts several small files at once.
    async fn pack(&mut self) -> Check<()> {
        let mut wanted: BTreeMap<String, (Stand, u64, u64)> = BTreeMap::new();
        for _ in 0..1 + self.random.below(6) {
            let Some((path, stand)) = self.directory.certain_path() else { continue };
            if wanted.contains_key(&path) {
                continue;
            }
            let length = self.random.below(8_000);
            let mut oracle = self.scene.oracle();
            let tag = oracle.new_tag();
            oracle.promise_mut(tag).handed = length;
            oracle.may_become(&path, Some(tag));
            wanted.insert(path, (stand, tag, length));
        }
        let lanes = 1 + self.random.below(2) as usize;
        let mut packer = self.client.packer(PackerOptions { lanes, ..PackerOptions::default() });
        let options = PackOptions { overwrite: true, ..PackOptions::default() };
        for (path, (_, tag, length)) in &wanted {
            let bytes = Bytes::from(content(*tag, 0, *length as usize));
            if self.scene.call(&self.name, "put", packer.put(path, bytes, options)).await?.is_err() {
                return Ok(());
            }
        }
        let Ok(results) = self.scene.call(&self.name, "put_flush", packer.close()).await? else { return Ok(()) };
        let mut oracle = self.scene.oracle();
        for (path, result) in results {
            let Some((stand, tag, length)) = wanted.get(&path) else {
                return Err(Broken(format!("{}: a result for {path}, which was not put", self.name)));
            };
            match result {
                Ok(()) => {
                    oracle.becomes(&path, Some(*tag));
                    *oracle.promise_mut(*tag) = Promise { handed: *length, written: *length, synced: *length };
                }
                Err(error) if nothing_done(&error) => oracle.becomes(&path, *stand),
                Err(_) => {}
            }
        }
        Ok(())
    }

    async fn read(&mut self) -> Check<()> {
        let Some((path, tag)) = self.directory.certain_file() else { return Ok(()) };
        if self.random.one_in(2) {
            match self.scene.call(&self.name, "read", self.reader.read_small(&path)).await? {
                Ok(bytes) => {
                    self.scene.count_more("bytes compared", bytes.len() as u64);
                    self.scene.oracle().recognise(&path, &bytes)?;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Err(self.directory.gone("read", &path, tag, &error));
                }
                Err(_) => {}
            }
            return Ok(());
        }
        let promise = self.scene.oracle().promise(tag);
        let offset = self.random.below(promise.handed + 1);
        let length = 1 + self.random.below(100_000);
        let read = async {
            let reader = self.reader.open(&path).await?;
            reader.read_at(offset, length).await
        };
        match self.scene.call(&self.name, "read_range", read).await? {
            Ok(parts) => {
                let bytes = parts.concat();
                self.scene.count_more("bytes compared", bytes.len() as u64);
                let (promise, shown) = {
                    let oracle = self.scene.oracle();
                    (oracle.promise(tag), oracle.shown(tag))
                };
                let least = shown.min(offset + length).saturating_sub(offset);
                if (bytes.len() as u64) < least {
                    let text = format!("{path}: {} bytes at {offset} where {least} were promised", bytes.len());
                    return Err(Broken(format!("{text} ({promise:?})")));
                }
                if bytes != content(tag, offset, bytes.len()) {
                    return Err(Broken(format!("{path}: other bytes at {offset} than file {tag} has")));
                }
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.directory.gone("read", &path, tag, &error)),
            Err(_) => Ok(()),
        }
    }

    async fn delete(&mut self) -> Check<()> {
        let Some((path, tag)) = self.directory.deleting() else { return Ok(()) };
        let deleted = self.scene.call(&self.name, "delete", self.client.delete(&path, false)).await?;
        self.directory.deleted(&path, tag, deleted)
    }

    async fn rename(&mut self) -> Check<()> {
        let Some(renaming) = self.directory.renaming() else { return Ok(()) };
        let rename = self.client.rename(&renaming.from, &renaming.to, true);
        let renamed = self.scene.call(&self.name, "rename", rename).await?;
        self.directory.renamed(&renaming, renamed)
    }

    async fn stat(&mut self) -> Check<()> {
        let Some((path, stand)) = self.directory.certain_path() else { return Ok(()) };
        match (self.scene.call(&self.name, "stat", self.client.stat(&path)).await?, stand) {
            (Ok(found), Some(tag)) => {
                let promise = self.scene.oracle().promise(tag);
                let exact = promise.synced == promise.handed;
                if found.length > promise.handed || (exact && !found.open && found.length != promise.handed) {
                    return Err(Broken(format!("{path}: {} bytes long, {promise:?}", found.length)));
                }
            }
            (Ok(_), None) => return Err(Broken(format!("{path}: is there, but was deleted or never made"))),
            (Err(error), Some(tag)) if error.kind() == ErrorKind::NotFound => {
                return Err(self.directory.gone("stat", &path, tag, &error));
            }
            (Err(_), _) => {}
        }
        Ok(())
    }

    /// Reads together what a listing said the places of. What does not come is not broken: then a file is opened.
    async fn read_listed(&self, entries: &BTreeMap<String, Entry>) -> Check<()> {
        let listed = |entry: &Entry| Listed { attributes: &entry.attributes, extents: &entry.extents }.is_located();
        let (paths, located): (Vec<&String>, Vec<&Entry>) = entries.iter().filter(|(_, entry)| listed(entry)).unzip();
        let files: Vec<Listed<'_>> =
            located.iter().map(|Entry { attributes, extents, .. }| Listed { attributes, extents }).collect();
        let read = async { Ok(self.client.read_listed(&files, ReadOptions::default()).await) };
        let Ok(read) = self.scene.call(&self.name, "read listed files", read).await? else { return Ok(()) };
        for ((path, entry), parts) in paths.into_iter().zip(located).zip(read) {
            let Ok(parts) = parts else { continue };
            let bytes = parts.concat();
            if bytes.len() as u64 != entry.attributes.length {
                let text = format!("{path}: {} bytes came of a file listed with {:?}", bytes.len(), entry.attributes);
                return Err(Broken(text));
            }
            self.scene.count("files read as they were listed");
            self.scene.oracle().recognise(path, &bytes)?;
        }
        Ok(())
    }

    async fn list(&mut self) -> Check<()> {
        let list = async {
            let mut listing = self.client.list_all_located(&self.directory.path);
            let mut listed = BTreeMap::new();
            while let Some(entry) = listing.next().await? {
                listed.insert(format!("{}/{}", self.directory.path, entry.name), entry);
            }
            Ok(listed)
        };
        let Ok(names) = self.scene.call(&self.name, "list", list).await? else { return Ok(()) };
        self.read_listed(&names).await?;
        let oracle = self.scene.oracle();
        for number in 0..NAMES {
            let path = format!("{}/f{number}", self.directory.path);
            match (oracle.certain(&path), names.contains_key(&path)) {
                (Some(Some(tag)), false) => {
                    return Err(Broken(format!("{path}: file {tag} is not in the list of its directory")));
                }
                (Some(None), true) => {
                    return Err(Broken(format!("{path}: is listed, but was deleted or never made")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares everything that is or may be in the directory. `settle`: no call of this directory is under way anywhere,
    /// so what is seen is what will be.
    pub async fn look_at_all(&mut self, settle: bool) -> Check<()> {
        self.scene.count("comparisons of everything");
        let paths = self.scene.oracle().paths_under(&self.directory.path);
        for path in paths {
            let seen = self.scene.insist(&self.name, "look", || self.client.read_small(&path)).await?;
            let stand = match seen {
                Ok(bytes) => {
                    self.scene.count_more("bytes compared", bytes.len() as u64);
                    let tag = self.scene.oracle().recognise(&path, &bytes);
                    Some(tag.map_err(|Broken(text)| Broken(format!("{}: {text}", self.name)))?)
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let stands = self.scene.oracle().stands(&path);
                    if let (false, Some(tag)) = (stands.contains(&None), stands.iter().flatten().next()) {
                        return Err(self.directory.gone("look at", &path, *tag, &error));
                    }
                    None
                }
                Err(error) => return Err(Broken(format!("{}: look at {path}: {error}", self.name))),
            };
            if settle {
                self.scene.oracle().settled(&path, stand);
            }
        }
        if settle {
            self.scene.oracle().check_renames(&self.directory.path)?;
        }
        self.list().await
    }

    /// Reads everything that is certain: a device out of service refuses no read.
    async fn read_out_of_service(&mut self) -> Check<()> {
        let paths = self.scene.oracle().paths_under(&self.directory.path);
        for path in paths {
            let is_certain = matches!(self.scene.oracle().certain(&path), Some(Some(_)));
            if !is_certain {
                continue;
            }
            let read = self.scene.call(&self.name, "read_out_of_service", self.client.read_small(&path)).await?;
            let oracle = self.scene.oracle();
            match read {
                Ok(bytes) => {
                    self.scene.count_more("bytes compared", bytes.len() as u64);
                    oracle.recognise(&path, &bytes)?;
                }
                Err(error)
                    if error.kind() == ErrorKind::Io && oracle.out_of_service && oracle.ends == self.looked_after =>
                {
                    return Err(Broken(format!(
                        "{}: {path}: a device out of service does not read: {error}",
                        self.name
                    )));
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Reads everything after bits of it rotted: each file is what it was, or an error that says that it is damaged.
    pub async fn read_rotten(&mut self) -> Check<()> {
        let paths = self.scene.oracle().paths_under(&self.directory.path);
        for path in paths {
            let read = async { Ok(self.client.read_small(&path).await) };
            let read = self.scene.call(&self.name, "read_rotten", read).await?;
            match read.map_err(|error| Broken(error.to_string()))? {
                Ok(bytes) => {
                    self.scene.count_more("bytes compared", bytes.len() as u64);
                    self.scene.oracle().recognise(&path, &bytes)?;
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => self.scene.count("rot reported"),
                Err(_) => (),
            }
        }
        Ok(())
    }

    /// Removes the directory with everything in it.
    pub async fn clear(&mut self) -> Check<()> {
        let deleted =
            self.scene.insist(&self.name, "delete_all", || self.client.delete(&self.directory.path, true)).await?;
        if let Err(error) = deleted {
            return Err(Broken(format!("{}: {error}", self.directory.path)));
        }
        self.scene.oracle().cleared(&self.directory.path);
        Ok(())
    }
}
