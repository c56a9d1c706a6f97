//! Writing one file: small writes are gathered, large ones go on as they are, and many pieces are on their way at once.

use crate::client::Client;
use crate::flow::{Compressing, Flow, Order, Ordered};
use crate::room::when_there_is_room;
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::fault::contained;
use base::id::DeviceId;
use base::limit::{BLOCK, COMPRESSED_MIN, RECORD_PAYLOAD_MAX, SMALL_PAYLOAD_MAX};
use base::net::Boxed;
use base::policy::Compression;
use base::request::current;
use bytes::{Bytes, BytesMut};
use net::message::file::{self, Attributes, BeginBlock, HoldersAnswer, OpenedFile, SeenHolder};
use net::message::quota::Reserve;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// How far a file that is being written has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Length of the acknowledged prefix of the file, in bytes.
    pub length: u64,
    /// Why it goes no further.
    pub failed: Option<Error>,
    /// The device that had no room for what comes next, if that is why.
    pub full: Option<DeviceId>,
}

/// How a file is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Replace a file that exists. Its bytes stay readable to those who hold it until the new one is made.
    pub overwrite: bool,
    /// Make missing directories.
    pub parents: bool,
    /// Permission bits; none means 0644.
    pub mode: Option<u32>,
    /// Modification time to record at close, in milliseconds since 1970; zero means then. A file with one is taken for a copy:
    /// the directory that it comes into keeps its time, too.
    pub modified_ms: u64,
    /// Who owns it and directories that are made; none: the client's user.
    pub owner: Option<String>,
    /// Which group of people does; none: the client's.
    pub group: Option<String>,
    /// What a gateway keeps with it, at most `base::limit::NOTE_MAX` bytes.
    pub note: Vec<u8>,
    /// Permission bits of directories that are made; none means 0755.
    pub above_mode: Option<u32>,
    /// They have those of the directory that is there, and their owner may go there and write.
    pub above_alike: bool,
    /// The bits before a umask took some of them, which count instead where the directory hands down an access control list; none: `mode`.
    pub open: Option<u32>,
    /// It belongs to the group of its directory, and so do directories that are made.
    pub group_above: bool,
    /// How often its bytes count against quotas; zero: once.
    pub copies: u32,
    /// Who holds it in a gateway's protocol while it is written, at most `base::limit::HOLDER_MAX` bytes; empty: nobody in particular.
    pub holder: String,
}

/// What a holder goes on with that had it open through another gateway.
#[derive(Clone, Copy, Debug, Default)]
pub struct GoesOn {
    /// The file.
    pub inode: u64,
    /// Its generation as it was closed: nobody may have opened it since.
    pub generation: u64,
    /// `Attributes::began_length` of it when it was open there.
    pub began_length: u64,
    /// The same of `Attributes::began_generation`.
    pub began_generation: u64,
}

/// A file that is being written at its end. Errors stay: after one, everything fails with it.
///
/// What `hflush` reported is in the file whatever happens to the writer's process; what `sync` or `close` reported
/// survives a power loss. Dropped without `close`, the file keeps what was handed to `write` in whole pieces, and its
/// last chunk is sealed when the session's lease runs out.
pub struct FileWriter {
    client: Client,
    path: String,
    inode: u64,
    generation: u64,
    /// A quota above limits bytes.
    limited: bool,
    /// How its bytes are made smaller.
    compression: Compression,
    /// It made the file.
    made: bool,
    /// See `is_lost`.
    lost: bool,
    attributes: Attributes,
    /// Bytes that wait to become a piece.
    gathered: BytesMut,
    behind: Behind,
    /// One permit for each byte that is sent and not acknowledged.
    window: Arc<Semaphore>,
    written: watch::Receiver<Written>,
    position: u64,
}

/// What carries out a writer's orders.
enum Behind {
    /// Nothing yet: a file that is closed without a write needs no task.
    Idle(Box<Flow>),
    /// A task that takes them in order.
    Running(mpsc::Sender<Ordered>),
}

/// Orders that wait for the flow, besides the window of bytes: enough that neither side waits for the other's turn.
const ORDERS_MAX: usize = 64;

impl Client {
    /// Makes a file and opens it for writing. `Full` at once if no device has room; `create_beside` waits for some.
    pub async fn create(&self, path: &str, options: CreateOptions) -> Result<FileWriter> {
        let CreateOptions { overwrite, parents, mode, modified_ms, owner, group, note, .. } = options;
        let CreateOptions { above_mode, above_alike, open, group_above, copies, holder, .. } = options;
        let ask = file::Create {
            path: path.to_string(),
            overwrite,
            parents,
            mode,
            owner,
            group,
            note,
            above_mode,
            copied: modified_ms > 0,
            copies,
            holder,
            asked: self.asked,
            looked: self.looked(),
            user: self.user(),
            open,
            group_above,
            above_alike,
            replicas_max: self.replicas_max,
        };
        let opened = self.ask(&ask).await?;
        Ok(FileWriter { made: true, ..FileWriter::start(self.relying_on_nothing(), path, opened, modified_ms)? })
    }

    /// Opens a closed file to write at its end. `Busy` while somebody writes it; after a writer that went away, until its
    /// session has ended and the node has sealed its last chunk. If no device has room it waits for some.
    pub async fn append(&self, path: &str) -> Result<FileWriter> {
        when_there_is_room(&*self.session.clock, || self.append_as(path, "", None)).await
    }

    /// The same, without that wait, for somebody who holds the file in a gateway's protocol. `goes_on`: with a file that was taken from another gateway,
    /// whatever its name is by now; none: it begins.
    pub async fn append_as(&self, path: &str, holder: &str, goes_on: Option<GoesOn>) -> Result<FileWriter> {
        let (path_text, holder) = (path.to_string(), holder.to_string());
        let GoesOn { inode, generation, began_length, began_generation } = goes_on.unwrap_or_default();
        let (asked, looked) = (self.asked, self.looked());
        let ask = file::Append {
            path: path_text,
            holder,
            began_length,
            began_generation,
            inode,
            generation,
            asked,
            looked,
            replicas_max: self.replicas_max,
        };
        let opened = self.ask(&ask).await?;
        FileWriter::start(self.relying_on_nothing(), path, opened, 0)
    }
}

impl Client {
    /// Takes a file away from whoever writes it, and closes it with what is written: synced, and nobody who was writing it can
    /// add to it. `only_gone`: `Busy` instead if its writer may live; what this session itself has open counts as left.
    pub async fn recover(&self, inode: u64, only_gone: bool) -> Result<Attributes> {
        self.recover_at(inode, only_gone, 0).await
    }

    /// The same, only if the file has this generation still, else `Stale`: then somebody else has opened or recovered it. 0: whatever
    /// it has.
    pub async fn recover_at(&self, inode: u64, only_gone: bool, generation: u64) -> Result<Attributes> {
        self.ask(&file::Recover { inode, only_gone, generation, for_holder: false }).await
    }

    /// The same, whoever writes it, so that its holder in a gateway's protocol may go on with it: until somebody else opens it, or takes it
    /// from him, `append_as` opens it for him.
    pub async fn recover_for_holder(&self, inode: u64, generation: u64) -> Result<Attributes> {
        self.ask(&file::Recover { inode, only_gone: false, generation, for_holder: true }).await
    }

    /// Tells the node that keeps the metadata which holders of files were heard of, and how long ago; answers for each of `asked` how
    /// long it has been silent at the least, whichever gateway it speaks to.
    pub async fn holders_heard(&self, seen: Vec<(String, Duration)>, asked: Vec<String>) -> Result<Vec<Duration>> {
        let seen = seen.into_iter().map(|(name, ago)| SeenHolder { name, ago_ms: ago.as_millis() as u64 }).collect();
        let wanted = asked.len();
        let HoldersAnswer { silent_ms } = self.ask(&file::Holders { seen, asked }).await?;
        if silent_ms.len() != wanted {
            let text = "the node answered for another number of holders than were asked for; nothing was changed; check that \
                        client and node have one version";
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        Ok(silent_ms.into_iter().map(Duration::from_millis).collect())
    }
}

impl FileWriter {
    fn start(client: Client, path: &str, mut opened: OpenedFile, modified_ms: u64) -> Result<FileWriter> {
        let attributes = opened.attributes.take().unwrap_or_default();
        let window_bytes = window_of(&client);
        let window = Arc::new(Semaphore::new(window_bytes));
        let (inode, position) = (opened.inode, opened.length);
        let (generation, limited, lost) = (opened.generation, opened.limited, opened.lost);
        let compression = Compression::from_code(opened.compression).unwrap_or_default();
        let (progress, written) = watch::channel(Written { length: position, ..Written::default() });
        let of_flow = (window.clone(), window_bytes);
        let flow = Flow::new(client.clone(), path.to_string(), opened, modified_ms, of_flow, progress)?;
        Ok(FileWriter {
            client,
            path: path.to_string(),
            inode,
            generation,
            limited,
            compression,
            made: false,
            lost,
            attributes,
            gathered: BytesMut::new(),
            behind: Behind::Idle(Box::new(flow)),
            window,
            written,
            position,
        })
    }

    /// The file's number; survives renames.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// What was known about the file when it was opened here.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Whether the file was opened by an answer that was given before, and another session has it open by now, or nobody: nothing can be
    /// written by this writer.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether a quota limits the bytes of what is above the file.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Sets bytes aside: until it is closed the file counts against quotas as if it had this length. `OverQuota` if that is too much.
    pub async fn reserve(&self, length: u64) -> Result<()> {
        let ask = Reserve { inode: self.inode, generation: self.generation, length };
        self.client.ask(&ask).await.map(|_| ())
    }

    /// Says where the block of a gateway's protocol begins that is written from now on, and its number: until the file is closed or opened
    /// again its attributes say so to any gateway.
    pub async fn begin_block(&self, base: u64, number: u32) -> Result<()> {
        let ask = BeginBlock { inode: self.inode, generation: self.generation, base, number };
        self.client.ask(&ask).await.map(|_| ())
    }

    /// The file's length with everything that `write` has taken, in bytes. Of a write whose future was dropped it counts what was taken.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// How far it is written, from now on and without waiting.
    pub fn written(&self) -> watch::Receiver<Written> {
        self.written.clone()
    }

    /// Adds bytes to the end of the file. Waits while too much is on its way.
    ///
    /// Bytes are copied only if they are fewer than a piece (1 MiB) or complete one that was begun.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<()> {
        self.check()?;
        let piece = self.client.sizes.piece;
        while !bytes.is_empty() {
            if self.gathered.is_empty() && bytes.len() >= piece {
                let whole = bytes.split_to(piece);
                self.send(whole, None).await?;
                continue;
            }
            // The first write of a piece may stay the only one before a sync; with the second a whole piece is to be expected.
            let have = self.gathered.len();
            if have > 0 {
                self.gathered.reserve(piece - have);
            }
            let part = bytes.split_to(bytes.len().min(piece - have));
            self.gathered.extend_from_slice(&part);
            self.counted(part.len());
            if self.gathered.len() == piece {
                self.send_gathered().await?;
            }
        }
        Ok(())
    }

    /// Adds bytes to the end of the file that go out at once, as they are: at most a piece (1 MiB) of them. `sums` were compared
    /// with the bytes. Waits while too much is on its way.
    pub async fn write_now(&mut self, bytes: Bytes, sums: BlockSums) -> Result<()> {
        assert!(bytes.len() <= self.client.sizes.piece, "{} bytes are more than a piece", bytes.len());
        self.send_gathered().await?;
        self.send(bytes, Some(sums)).await
    }

    /// The same with bytes that have to be on stable media, with everything before them: the answer's future, which does not need
    /// the writer, ends when they are. What is added meanwhile goes out, too: any number of syncs are on their way at once.
    pub async fn sync_now(
        &mut self,
        bytes: Bytes,
        sums: BlockSums,
    ) -> Result<impl Future<Output = Result<()>> + Send + use<>> {
        assert!(bytes.len() <= self.client.sizes.piece, "{} bytes are more than a piece", bytes.len());
        self.send_gathered().await?;
        let length = bytes.len();
        let permits = self.permits(length).await?;
        let (reply, answer) = oneshot::channel();
        self.slot().await?.send((current(), Order::Sync { last: bytes, sums: Some(sums), permits, reply }));
        self.counted(length);
        let written = self.written.clone();
        let cut_off = broken(&self.path);
        Ok(async move { answer.await.unwrap_or_else(|_| Err(written.borrow().failed.clone().unwrap_or(cut_off))) })
    }

    /// Waits until everything so far is written on its device and visible to readers.
    pub async fn hflush(&mut self) -> Result<()> {
        self.send_gathered().await?;
        let (reply, answer) = oneshot::channel();
        self.slot().await?.send((current(), Order::Flush(reply)));
        self.answered(answer).await
    }

    /// Waits until everything so far is on stable media and visible to readers.
    pub async fn sync(&mut self) -> Result<()> {
        self.check()?;
        let permits = self.permits(self.gathered.len()).await?;
        let slot = self.slot().await?;
        let last = std::mem::take(&mut self.gathered).freeze();
        let (reply, answer) = oneshot::channel();
        slot.send((current(), Order::Sync { last, sums: None, permits, reply }));
        self.answered(answer).await
    }

    /// What was gathered, with its permits: taken when there are some, so that whoever stops waiting has lost no byte.
    async fn last(&mut self) -> Result<(Bytes, OwnedSemaphorePermit)> {
        let permits = self.permits(self.gathered.len()).await?;
        Ok((std::mem::take(&mut self.gathered).freeze(), permits))
    }

    /// Ends the file: all of it is on stable media and the name stands for it. Answers with its attributes. A file that it made and
    /// that a quota does not allow is removed.
    pub fn close(self) -> Boxed<'static, Result<Attributes>> {
        Box::pin(self.closed())
    }

    async fn closed(self) -> Result<Attributes> {
        let made = self.made.then(|| (self.client.clone(), self.path.clone(), self.inode));
        let closed = self.end().await;
        if let Err(error) = &closed
            && error.kind() == ErrorKind::OverQuota
            && let Some((client, path, inode)) = made
            && client.stat(&path).await.is_ok_and(|there| there.inode == inode)
        {
            // Should that fail, too, it stays as it is, and what is wrong is the quota all the same.
            let _ = client.delete(&path, false).await;
        }
        closed
    }

    async fn end(mut self) -> Result<Attributes> {
        self.check()?;
        let (last, permits) = self.last().await?;
        if let Behind::Idle(flow) = &mut self.behind {
            return flow.close(last, permits).await;
        }
        let (reply, answer) = oneshot::channel();
        self.slot().await?.send((current(), Order::Close { last, permits, reply }));
        self.answered(answer).await
    }

    /// What was gathered goes out. Dropped before it has ended, all of it has, or nothing.
    async fn send_gathered(&mut self) -> Result<()> {
        self.check()?;
        if self.gathered.is_empty() {
            return Ok(());
        }
        let permits = self.permits(self.gathered.len()).await?;
        let slot = self.slot().await?;
        let bytes = std::mem::take(&mut self.gathered).freeze();
        let ahead = self.compress_ahead(&bytes);
        slot.send((current(), Order::Piece { bytes, sums: None, permits, ahead }));
        self.check()
    }

    async fn send(&mut self, bytes: Bytes, sums: Option<BlockSums>) -> Result<()> {
        let permits = self.permits(bytes.len()).await?;
        let slot = self.slot().await?;
        let (length, ahead) = (bytes.len(), self.compress_ahead(&bytes));
        slot.send((current(), Order::Piece { bytes, sums, permits, ahead }));
        self.counted(length);
        self.check()
    }

    /// So many bytes more are taken. They count from then on, not from when they came: whoever stops waiting for a write, and goes on
    /// from `position`, leaves no gap.
    fn counted(&mut self, bytes: usize) {
        self.position = self.position.saturating_add(bytes as u64);
    }

    /// Begins to compress bytes that will go out together, beside those before them.
    fn compress_ahead(&self, bytes: &Bytes) -> Option<Compressing> {
        let (how, length) = (self.compression, bytes.len());
        let fits = length as u64 >= COMPRESSED_MIN && length <= RECORD_PAYLOAD_MAX && length.is_multiple_of(BLOCK);
        if how == Compression::None || !fits || length <= SMALL_PAYLOAD_MAX {
            return None;
        }
        let (client, bytes) = (self.client.clone(), bytes.clone());
        Some(tokio::spawn(contained(async move { client.session.compressor.compress_cell(how, bytes).await })))
    }

    async fn permits(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let count = bytes.min(window_of(&self.client)) as u32;
        match self.window.clone().acquire_many_owned(count).await {
            Ok(permits) => Ok(permits),
            Err(_) => unreachable!("nobody closes a writer's window"),
        }
    }

    /// Room for an order of which nothing has been taken yet: whoever stops waiting for it has lost no byte.
    async fn slot(&mut self) -> Result<mpsc::OwnedPermit<Ordered>> {
        match self.orders().clone().reserve_owned().await {
            Ok(slot) => Ok(slot),
            Err(_) => Err(self.broken()),
        }
    }

    /// Waits for the answer to an order.
    async fn answered<T>(&self, answer: oneshot::Receiver<Result<T>>) -> Result<T> {
        answer.await.unwrap_or_else(|_| Err(self.broken()))
    }

    /// Where orders go; the task that carries them out is started with the first.
    fn orders(&mut self) -> &mpsc::Sender<Ordered> {
        if let Behind::Idle(_) = self.behind {
            let (orders, inbox) = mpsc::channel(ORDERS_MAX);
            if let Behind::Idle(flow) = std::mem::replace(&mut self.behind, Behind::Running(orders)) {
                tokio::spawn(contained(flow.run(inbox)));
            }
        }
        match &self.behind {
            Behind::Running(orders) => orders,
            Behind::Idle(_) => unreachable!("it was started above"),
        }
    }

    fn check(&self) -> Result<()> {
        self.written.borrow().failed.clone().map_or(Ok(()), Err)
    }

    /// The flow has ended: with its error, or because the runtime is shutting down.
    fn broken(&self) -> Error {
        self.check().err().unwrap_or_else(|| broken(&self.path))
    }
}

/// Nobody carries out what is ordered.
pub(crate) fn broken(path: &str) -> Error {
    let text = format!(
        "writing {path} was cut off because the program is ending, or by a fault of its own; what hflush or sync reported before is safe; append to go on"
    );
    Error::new(ErrorKind::Io, text)
}

/// The window in permits: at least a piece, and no more than permits can count.
fn window_of(client: &Client) -> usize {
    client.sizes.write_window.max(client.sizes.piece).min(u32::MAX as usize / 2)
}
