//! The load of one worker: it makes, changes and reads what is in its own directory and its own bag, one operation after
//! another, until it is told that the server is gone.

use super::bag::Bag;
use super::content;
use super::model::{Change, Entry, File, Model};
use super::report::{Counts, Finding, Found, Kind};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use client::{Client, CreateOptions, FileWriter, PackOptions, PackerOptions};
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{Semaphore, watch};

/// Bytes that one worker's files may have; beyond that it deletes.
const BYTES_MAX: u64 = 6 << 20;

/// Where a trial is.
#[derive(Clone, Debug)]
pub enum Phase {
    /// The server serves.
    Load,
    /// An image of the disk will be taken once every worker has put a permit here.
    Image(Arc<Semaphore>),
    /// The server is being killed: from here on errors say nothing.
    Killed,
    /// Answers that were on their way have come: give up what is not answered.
    Over,
    /// Begin nothing more, and wait for the answer to what was begun. Errors say nothing.
    Enough,
}

/// How an operation ended.
pub enum Ended<T> {
    /// It was acknowledged.
    Done(T),
    /// Its fate is open.
    Open,
}

/// A worker.
pub struct Worker {
    /// Its directory.
    pub root: String,
    /// What must be in it.
    pub model: Model,
    /// Its bag.
    pub bag: Bag,
    /// What it did and compared.
    pub counts: Counts,
    /// Whether what is written but not synced survives the kill.
    pub written_survives: bool,
    random: SimRandom,
    next_content: u64,
    phase: Option<watch::Receiver<Phase>>,
    /// The file that it has open for writing.
    writer: Option<(String, FileWriter)>,
}

impl Worker {
    /// Worker number `number` of a new store. `goes_on`: so does the store while answers stay away, as a cluster does.
    pub fn new(number: u64, random: &SimRandom, written_survives: bool, goes_on: bool) -> Worker {
        let random = SimRandom::new(random.next());
        Worker {
            root: format!("/w{number}"),
            model: Model::default(),
            bag: Bag::new(number, goes_on),
            counts: Counts::default(),
            written_survives,
            random,
            next_content: number << 40,
            phase: None,
            writer: None,
        }
    }

    /// Works until the phase is over. Comes back with itself, and what it found wrong.
    pub async fn run(mut self, client: Client, phase: watch::Receiver<Phase>) -> (Worker, Found<()>) {
        self.phase = Some(phase);
        let result = self.work(&client).await;
        self.writer = None;
        self.bag.leave();
        (self, result)
    }

    async fn work(&mut self, client: &Client) -> Found<()> {
        if self.model.now.is_empty() {
            let root = self.root.clone();
            if let Ended::Open = self.make_directory(client, root).await? {
                return Ok(());
            }
        }
        let mut holding = false;
        loop {
            match self.phase() {
                Phase::Over | Phase::Enough => return Ok(()),
                Phase::Image(told) if !holding => {
                    holding = true;
                    self.model.hold();
                    self.bag.hold();
                    told.add_permits(1);
                }
                Phase::Image(_) | Phase::Load | Phase::Killed => {}
            }
            if let Ended::Open = self.step(client).await? {
                return Ok(());
            }
            self.counts.steps += 1;
        }
    }

    fn phase(&self) -> Phase {
        self.phase.as_ref().map_or(Phase::Over, |phase| phase.borrow().clone())
    }

    /// Whether errors say nothing.
    fn is_struck(&self) -> bool {
        !matches!(self.phase(), Phase::Load | Phase::Image(_))
    }

    /// Does an operation. An error before the kill is a finding.
    async fn attempt<T>(&self, what: &str, operation: impl Future<Output = Result<T>>) -> Found<Ended<T>> {
        let Some(mut phase) = self.phase.clone() else { unreachable!("a worker runs with a phase") };
        let result = tokio::select! {
            biased;
            result = operation => result,
            _ = phase.wait_for(|phase| matches!(phase, Phase::Over)) => return Ok(Ended::Open),
        };
        match result {
            Ok(done) => Ok(Ended::Done(done)),
            Err(_) if self.is_struck() => Ok(Ended::Open),
            Err(error) => Err(trouble(what, &error)),
        }
    }

    /// Does an operation that changes names.
    async fn change<T>(
        &mut self,
        what: &str,
        change: Change,
        operation: impl Future<Output = Result<T>>,
    ) -> Found<Ended<T>> {
        self.model.begin(change);
        let ended = self.attempt(what, operation).await?;
        if let Ended::Done(_) = ended {
            self.model.done();
        }
        Ok(ended)
    }

    async fn step(&mut self, client: &Client) -> Found<Ended<()>> {
        let bytes: u64 = self.model.now.values().map(size_of).sum();
        if bytes > BYTES_MAX || self.model.now.len() > 150 {
            return self.delete(client).await;
        }
        match self.random.below(100) {
            0..20 => self.put(client, 16 << 10).await,
            20..24 => self.put(client, 2 << 20).await,
            24..32 => self.pack(client).await,
            32..50 => self.write_on(client).await,
            50..58 => self.rename(client).await,
            58..68 => self.delete(client).await,
            68..72 => {
                let path = format!("{}/d{}", self.root, self.random.below(4));
                self.make_directory(client, path).await
            }
            72..74 => self.delete_directory(client).await,
            74..78 => self.list(client).await,
            78..84 => self.read(client).await,
            _ => self.use_bag(client).await,
        }
    }

    /// A path in the root or one of its directories.
    fn draw_path(&self) -> String {
        let directories = self.model.now.iter().filter(|(_, entry)| matches!(entry, Entry::Directory));
        let directories: Vec<&String> = directories.map(|(path, _)| path).collect();
        let directory = directories.get(self.random.below(directories.len().max(1) as u64) as usize);
        format!("{}/f{}", directory.map_or(self.root.as_str(), |path| path.as_str()), self.random.below(40))
    }

    /// A file that nobody has open.
    fn draw_file(&self) -> Option<(String, File)> {
        let open = self.writer.as_ref().map(|(path, _)| path);
        let files: Vec<(&String, &File)> = (self.model.now.iter())
            .filter_map(|(path, entry)| match entry {
                Entry::File(file) if Some(path) != open => Some((path, file)),
                _ => None,
            })
            .collect();
        let place = self.random.below(files.len().max(1) as u64) as usize;
        files.get(place).map(|(path, file)| ((*path).clone(), **file))
    }

    fn draw_content(&mut self) -> u64 {
        self.next_content += 1;
        self.next_content
    }

    async fn make_directory(&mut self, client: &Client, path: String) -> Found<Ended<()>> {
        let change = Change { edits: vec![(path.clone(), Some(Entry::Directory))], whole: true };
        self.change("mkdir", change, client.make_directory(&path, true)).await
    }

    /// A file from its beginning to its close.
    async fn put(&mut self, client: &Client, size_max: u64) -> Found<Ended<()>> {
        let path = self.draw_path();
        let length = self.random.below(size_max + 1);
        let Ended::Done(mut writer) = self.create(client, &path).await? else { return Ok(Ended::Open) };
        self.model.sent(&path, length);
        let Some(Entry::File(file)) = self.model.now.get(&path) else { unreachable!("it was made just now") };
        let bytes = content::bytes(file.content, 0, length as usize);
        let written = self
            .attempt("write and close", async {
                writer.write(bytes).await?;
                writer.close().await
            })
            .await?;
        Ok(match written {
            Ended::Done(_) => {
                self.model.kept(&path, length);
                Ended::Done(())
            }
            Ended::Open => Ended::Open,
        })
    }

    async fn create(&mut self, client: &Client, path: &str) -> Found<Ended<FileWriter>> {
        // Whoever creates over a file that is open takes it away from its writer.
        if self.writer.as_ref().is_some_and(|(open, _)| open == path) {
            self.writer = None;
        }
        let file = File { content: self.draw_content(), at_least: 0, at_most: 0 };
        let change = Change { edits: vec![(path.to_string(), Some(Entry::File(file)))], whole: true };
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        self.change("create", change, client.create(path, options)).await
    }

    /// Many small files in one compound.
    async fn pack(&mut self, client: &Client) -> Found<Ended<()>> {
        let mut edits = Vec::new();
        let mut files = Vec::new();
        let mut paths = BTreeSet::new();
        for _ in 0..=self.random.below(12) {
            let path = self.draw_path();
            if !paths.insert(path.clone()) || self.writer.as_ref().is_some_and(|(open, _)| *open == path) {
                continue;
            }
            let length = self.random.below(5000);
            let file = File { content: self.draw_content(), at_least: length, at_most: length };
            files.push((path.clone(), content::bytes(file.content, 0, length as usize)));
            edits.push((path, Some(Entry::File(file))));
        }
        let options = PackOptions { overwrite: true, ..PackOptions::default() };
        let mut packer = client.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
        let put = async {
            for (path, bytes) in files {
                packer.put(&path, bytes, options).await?;
            }
            let results = packer.close().await?;
            results.into_iter().try_for_each(|(_, result)| result)
        };
        self.change("put small files", Change { edits, whole: false }, put).await
    }

    /// Opens a file for writing, or goes on with the one that is open: more bytes, then no promise, hflush, sync or close.
    async fn write_on(&mut self, client: &Client) -> Found<Ended<()>> {
        let Some((path, mut writer)) = self.writer.take() else { return self.open_writer(client).await };
        let Some(Entry::File(file)) = self.model.now.get(&path).copied() else { unreachable!("its writer is ours") };
        let most = if self.random.below(4) == 0 { 400_000 } else { 9000 };
        let length = self.random.below(most);
        let from = writer.position();
        let end = from + length;
        self.model.sent(&path, end);
        let bytes: Bytes = content::bytes(file.content, from, length as usize);
        let how = self.random.below(8);
        let ended = self
            .attempt("append", async {
                writer.write(bytes).await?;
                match how {
                    0..2 => Ok(Some(writer)),
                    2..5 => writer.hflush().await.map(|()| Some(writer)),
                    5..7 => writer.sync().await.map(|()| Some(writer)),
                    _ => writer.close().await.map(|_| None),
                }
            })
            .await?;
        let Ended::Done(writer) = ended else { return Ok(Ended::Open) };
        if how >= 5 || (how >= 2 && self.written_survives) {
            self.model.kept(&path, end);
        }
        self.writer = writer.map(|writer| (path, writer));
        Ok(Ended::Done(()))
    }

    async fn open_writer(&mut self, client: &Client) -> Found<Ended<()>> {
        let drawn = if self.random.below(3) > 0 { self.draw_file() } else { None };
        let Some((path, file)) = drawn else {
            let path = self.draw_path();
            let Ended::Done(writer) = self.create(client, &path).await? else { return Ok(Ended::Open) };
            self.writer = Some((path, writer));
            return Ok(Ended::Done(()));
        };
        let opened = async {
            match client.append(&path).await {
                Ok(writer) => Ok(Some(writer)),
                // Its writer was killed with an earlier server, and its session has not ended yet.
                Err(error) if error.kind() == ErrorKind::Busy => Ok(None),
                Err(error) => Err(error),
            }
        };
        let Ended::Done(writer) = self.attempt("append", opened).await? else { return Ok(Ended::Open) };
        let Some(writer) = writer else { return Ok(Ended::Done(())) };
        let position = writer.position();
        if position < file.at_least || position > file.at_most {
            return Err(Finding::new(
                Kind::Lost,
                format!("{path} was opened for append at {position}; it is {file:?}"),
            ));
        }
        // What the new writer found was fenced for it, durably.
        self.model.kept(&path, position);
        self.writer = Some((path, writer));
        Ok(Ended::Done(()))
    }

    async fn rename(&mut self, client: &Client) -> Found<Ended<()>> {
        let Some((from, file)) = self.draw_file() else { return Ok(Ended::Done(())) };
        let to = self.draw_path();
        let open = self.writer.as_ref().is_some_and(|(path, _)| *path == to);
        if to == from || open {
            return Ok(Ended::Done(()));
        }
        let edits = vec![(from.clone(), None), (to.clone(), Some(Entry::File(file)))];
        self.change("rename", Change { edits, whole: true }, client.rename(&from, &to, true)).await
    }

    async fn delete(&mut self, client: &Client) -> Found<Ended<()>> {
        // The file that is open goes when there is no other.
        let drawn = self.draw_file().map(|(path, _)| path);
        let Some(path) = drawn.or_else(|| self.writer.take().map(|(path, _)| path)) else {
            return Ok(Ended::Done(()));
        };
        let change = Change { edits: vec![(path.clone(), None)], whole: true };
        self.change("delete", change, client.delete(&path, false)).await
    }

    async fn delete_directory(&mut self, client: &Client) -> Found<Ended<()>> {
        let path = format!("{}/d{}", self.root, self.random.below(4));
        if !self.model.now.contains_key(&path) {
            return Ok(Ended::Done(()));
        }
        let inside = format!("{path}/");
        if self.writer.as_ref().is_some_and(|(open, _)| open.starts_with(&inside)) {
            self.writer = None;
        }
        let below = self.model.now.keys().filter(|name| **name == path || name.starts_with(&inside));
        let edits = below.map(|name| (name.clone(), None)).collect();
        self.change("delete directory", Change { edits, whole: true }, client.delete(&path, true)).await
    }

    async fn list(&mut self, client: &Client) -> Found<Ended<()>> {
        let mut listing = client.list_all(&self.root);
        let listed = async {
            let mut names = BTreeSet::new();
            while let Some(entry) = listing.next().await? {
                names.insert(entry.name);
            }
            Ok(names)
        };
        let Ended::Done(listed) = self.attempt("list", listed).await? else { return Ok(Ended::Open) };
        let inside = format!("{}/", self.root);
        let names = self.model.now.keys().filter_map(|path| path.strip_prefix(&inside));
        let expected: BTreeSet<String> = names.filter(|name| !name.contains('/')).map(str::to_string).collect();
        if listed != expected {
            let text = format!("{} lists {listed:?}; it holds {expected:?}", self.root);
            return Err(Finding::new(Kind::Lost, text));
        }
        Ok(Ended::Done(()))
    }

    async fn read(&mut self, client: &Client) -> Found<Ended<()>> {
        let Some((path, file)) = self.draw_file() else { return Ok(Ended::Done(())) };
        let Ended::Done(bytes) = self.attempt("read", client.read_small(&path)).await? else { return Ok(Ended::Open) };
        self.counts.bytes += bytes.len() as u64;
        let length = bytes.len() as u64;
        if length < file.at_least || length > file.at_most || content::bytes(file.content, 0, bytes.len()) != bytes {
            return Err(Finding::new(Kind::Corrupt, format!("{path} was read with {length} bytes; it is {file:?}")));
        }
        Ok(Ended::Done(()))
    }

    async fn use_bag(&mut self, client: &Client) -> Found<Ended<()>> {
        let Some(mut phase) = self.phase.clone() else { unreachable!("a worker runs with a phase") };
        let result = tokio::select! {
            biased;
            result = self.bag.step(client, &self.random, &mut self.counts) => result,
            _ = phase.wait_for(|phase| matches!(phase, Phase::Over)) => return Ok(Ended::Open),
        };
        match result {
            Ok(()) => Ok(Ended::Done(())),
            Err(finding) if finding.kind != Kind::Trouble => Err(finding),
            Err(_) if self.is_struck() => Ok(Ended::Open),
            Err(finding) => Err(finding),
        }
    }
}

fn size_of(entry: &Entry) -> u64 {
    match entry {
        Entry::Directory => 0,
        Entry::File(file) => file.at_most,
    }
}

fn trouble(what: &str, error: &Error) -> Finding {
    Finding::new(Kind::Trouble, format!("{what} was refused: {}", error.text()))
}
