//! WRITE_BLOCK: one task takes the packets of a block, hands their bytes over, and acknowledges each when it is written.

use super::connection::{Connection, SILENCE_MAX};
use super::gathering::{Gathering, Piece};
use super::{fail, note};
use crate::files::blocks::place;
use crate::files::open::{Syncing, Turn};
use crate::gateway::Gateway;
use crate::message::transfer::{
    CLOSE_RECOVERY, ERROR, ERROR_CHECKSUM, HEARTBEAT, NO_PACKET, OOB_RESTART, OperationAnswer, PacketHeader,
    SETUP_APPEND, SETUP_APPEND_RECOVERY, SETUP_CREATE, SETUP_STREAMING_RECOVERY, SUCCESS, WriteBlock,
    encode_acknowledgement,
};
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, RequestId};
use base::limit::SLOW_REQUEST;
use base::planted::Planted;
use base::request::{Notable, current, is_failure, within};
use bytes::Bytes;
use client::Written;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Pieces of at most 1 MiB that one connection has on their way to the store: with more the device is no faster.
const PIECES_MAX: usize = 8;

/// Syncs that one connection has under way: the store syncs what several of them want at once, so more would gain nothing.
const SYNCS_MAX: usize = 8;

/// Packets that wait for their acknowledgement. Clients send at most 80 ahead; one that sends more waits here.
const PACKETS_MAX: usize = 4096;

/// Takes the bytes of a block.
pub(crate) async fn write_block(
    gateway: &Arc<Gateway>,
    connection: &mut Connection,
    request: WriteBlock,
) -> Result<()> {
    // Before the turn is taken from the stream that has it.
    let gathering = match Gathering::new(gateway.client.pool(), gateway.files.memory.clone(), request.checksum) {
        Ok(gathering) => gathering,
        Err(error) => return connection.answer(ERROR, error.text()).await,
    };
    let turn = match begin(gateway, &request).await {
        Ok(turn) => turn,
        Err(error) => return fail(gateway, connection, "block write", error).await,
    };
    // All that the client wants is that the block ends as it is. The last packet, whose acknowledgement it missed, may have asked for a sync.
    let ends = request.stage == CLOSE_RECOVERY;
    if ends && let Err(error) = end_as_it_is(gateway, &turn, request.acknowledged).await {
        return fail(gateway, connection, "block write", error).await;
    }
    let first_bad_link = Some(String::new());
    connection
        .write_message(&OperationAnswer { status: SUCCESS, first_bad_link, ..OperationAnswer::default() })
        .await?;
    if ends {
        return Ok(());
    }
    let file = turn.file.clone();
    let was_full = no_room(&file.written.borrow()).is_some();
    let written = Writing::new(turn, gathering).run(gateway, connection).await;
    let full = no_room(&file.written.borrow());
    if let Some(by) = full.filter(|_| !was_full) {
        gateway.files.room.was_refused(&gateway.client, &file, by).await;
    }
    written
}

/// Waits until everything of the block is synced, which has at least the bytes that were acknowledged.
async fn end_as_it_is(gateway: &Gateway, turn: &Turn, acknowledged: u64) -> Result<()> {
    let there = turn.position.saturating_sub(turn.base);
    if there < acknowledged {
        let text = format!(
            "the block has {there} bytes, not the {acknowledged} that were acknowledged: a power loss took what was not synced; close the file and look at it"
        );
        return Err(Error::new(ErrorKind::Stale, text));
    }
    if gateway.planted == Some(Planted::BlockEndedUnsynced) {
        return Ok(());
    }
    let syncing = async { turn.sync(Bytes::new(), BlockSums::default()).await?.await };
    tokio::time::timeout(SILENCE_MAX, syncing).await.unwrap_or_else(|_| {
        let text = format!("the store did not sync the block within {} s; ask again", SILENCE_MAX.as_secs());
        Err(Error::new(ErrorKind::Unreachable, text))
    })
}

/// Whether a file goes no further because there is no room, and on which device if that is known.
fn no_room(written: &Written) -> Option<Option<DeviceId>> {
    let failed = written.failed.as_ref()?;
    (failed.kind() == ErrorKind::Full).then_some(written.full)
}

/// The right to write into the block, if the file is open and the generation stamp a present one.
async fn begin(gateway: &Gateway, request: &WriteBlock) -> Result<Turn> {
    let block = &request.header.base.block;
    let Some(file) = place(block.id).and_then(|place| gateway.files.open.get(place.inode)) else {
        let text = format!("block {} is not of a file that is open for writing", block.id);
        return Err(Error::new(ErrorKind::NotFound, text));
    };
    match request.stage {
        SETUP_CREATE | SETUP_APPEND | SETUP_APPEND_RECOVERY | SETUP_STREAMING_RECOVERY | CLOSE_RECOVERY => {
            let turn = file.begin(block.id, block.generation_stamp.max(request.new_generation_stamp)).await?;
            // What was lost with another gateway may have been the bytes before the block; none are written in their place.
            if turn.position < turn.base {
                let text = format!(
                    "block {} begins at byte {} of {}, which ends at {}; what was acknowledged is safe; close the file and append",
                    block.id, turn.base, file.path, turn.position
                );
                return Err(Error::new(ErrorKind::Stale, text));
            }
            Ok(turn)
        }
        stage => Err(Error::new(ErrorKind::Unsupported, format!("a write of stage {stage} is not served"))),
    }
}

/// A packet that is not acknowledged.
struct Unacknowledged {
    number: i64,
    /// It is acknowledged when the file is written, or synced, up to here.
    end: u64,
    sync: bool,
    /// Nothing comes after it.
    last: bool,
    status: i32,
}

/// What happens next.
enum Event {
    Packet(Result<PacketHeader>),
    /// The store has been silent for long about what was handed over.
    Slow,
    /// Nothing more came, and nothing is under way: what was gathered goes out.
    Quiet,
    Written,
    /// The file's writer has ended.
    Gone,
    Synced(Result<()>),
    Silence,
}

/// The bytes of a block on their way.
struct Writing {
    turn: Turn,
    gathering: Gathering,
    /// Where in the file the next byte of the next packet goes.
    received: u64,
    /// Pieces on their way: where each ends in the file, its memory, and which request it is.
    on_their_way: VecDeque<(u64, Option<OwnedSemaphorePermit>, RequestId)>,
    /// The last of those requests.
    request: RequestId,
    /// The store did nothing for long, and that was told.
    slow: bool,
    /// What was handed over ends here.
    handed_over: u64,
    written: watch::Receiver<Written>,
    /// Of that, the length for which packets were acknowledged last: what came since is waited for, too.
    seen: u64,
    /// The syncs under way, and up to where each: they end in their order.
    syncing: VecDeque<(Syncing, u64)>,
    /// A packet that must be synced ends here.
    sync_wanted: u64,
    synced: u64,
    unacknowledged: VecDeque<Unacknowledged>,
    last_came: bool,
    /// What was wrong with the last packet.
    damage: Option<Error>,
}

impl Writing {
    fn new(turn: Turn, gathering: Gathering) -> Writing {
        let (position, written) = (turn.position, turn.file.written.clone());
        Writing {
            turn,
            gathering,
            received: position,
            on_their_way: VecDeque::new(),
            request: current(),
            slow: false,
            handed_over: position,
            written,
            seen: 0,
            syncing: VecDeque::new(),
            sync_wanted: 0,
            synced: 0,
            unacknowledged: VecDeque::new(),
            last_came: false,
            damage: None,
        }
    }

    async fn run(mut self, gateway: &Gateway, connection: &mut Connection) -> Result<()> {
        loop {
            if self.acknowledge(gateway, connection).await? {
                return self.damage.map_or(Ok(()), Err);
            }
            let mut handed_over = self.hand_over_full(gateway).await;
            let event = self.event(connection).await;
            match event {
                Event::Slow => {
                    self.slow = true;
                    let (request, from) = (self.oldest(), &connection.peer());
                    let (what, took) = ("block write", Some(SLOW_REQUEST));
                    (gateway.on_request)(&Notable { request, what, from, took, error: None });
                }
                Event::Packet(Ok(header)) => {
                    self.turn.file.hear(gateway.clock.now());
                    self.came(header);
                }
                Event::Packet(Err(error)) if error.kind() == ErrorKind::Corrupt => self.damaged(error),
                Event::Packet(Err(error)) if error.kind() == ErrorKind::Busy => {
                    // Before anything is said, which may take its time: others wait for the memory.
                    drop(self);
                    return send_away(gateway, connection).await;
                }
                Event::Packet(Err(error)) => return Err(error),
                Event::Quiet => handed_over = self.hand_over_rest(gateway).await,
                Event::Written => self.slow = false,
                // It may have left its error.
                Event::Gone => {
                    handed_over = handed_over.and(Err(Error::new(ErrorKind::Stale, "it is not open any more")))
                }
                Event::Synced(synced) => {
                    let end = self.syncing.pop_front().map_or(0, |(_, end)| end);
                    match synced {
                        Ok(()) => (self.synced, self.slow) = (self.synced.max(end), false),
                        Err(error) => return self.give_up(gateway, connection, error).await,
                    }
                }
                Event::Silence => {
                    let text = format!("nothing came from the client or the store for {} s", SILENCE_MAX.as_secs());
                    return Err(Error::new(ErrorKind::Unreachable, text));
                }
            }
            let failed = self.written.borrow().failed.clone();
            if let Some(error) = failed.or(handed_over.err()) {
                return self.give_up(gateway, connection, error).await;
            }
        }
    }

    async fn event(&mut self, connection: &mut Connection) -> Event {
        let reads = !self.last_came
            && self.on_their_way.len() + self.gathering.full_pieces() < PIECES_MAX
            && self.unacknowledged.len() < PACKETS_MAX;
        let may_go = self.on_their_way.is_empty() || self.last_came;
        let quiet = self.wants_sync() || self.gathering.has_piece() && may_go;
        // Of this connection or of one before it, whose client sends again what it was not told of.
        let under_way = self.handed_over > self.seen;
        let next = self.received - self.turn.base;
        // Looked at with the timer that is there anyway: a packet costs no look at a clock.
        let (patience, silence) = match (self.slow, under_way || !self.syncing.is_empty()) {
            (false, true) => (SLOW_REQUEST, Event::Slow),
            (false, false) => (SILENCE_MAX, Event::Silence),
            (true, _) => (SILENCE_MAX - SLOW_REQUEST, Event::Silence),
        };
        tokio::select! {
            biased;
            packet = self.gathering.packet(connection, next), if reads => Event::Packet(packet),
            () = std::future::ready(()), if quiet => Event::Quiet,
            changed = self.written.changed(), if under_way => if changed.is_ok() { Event::Written } else { Event::Gone },
            synced = synced(&mut self.syncing), if !self.syncing.is_empty() => Event::Synced(synced),
            () = tokio::time::sleep(patience) => silence,
        }
    }

    /// Whether a sync should begin now.
    fn wants_sync(&self) -> bool {
        let ready = self.handed_over >= self.sync_wanted || !self.gathering.is_coming();
        let asked = self.syncing.back().map_or(self.synced, |(_, end)| *end);
        self.sync_wanted > asked && self.syncing.len() < SYNCS_MAX && ready
    }

    /// A packet came whose bytes are not what was sent: it is the last one, and is answered so in its turn.
    fn damaged(&mut self, error: Error) {
        let (number, status) = (self.gathering.number(), ERROR_CHECKSUM);
        self.unacknowledged.push_back(Unacknowledged { number, end: 0, sync: false, last: true, status });
        self.last_came = true;
        self.damage = Some(error.during(format!("write {}", self.turn.file.path)));
    }

    /// A packet came; its bytes are gathered.
    fn came(&mut self, header: PacketHeader) {
        let PacketHeader { offset, number, last, length, sync } = header;
        if number == HEARTBEAT {
            // It says nothing about bytes, and has its turn like all others.
            let beat = Unacknowledged { number, end: 0, sync: false, last: false, status: SUCCESS };
            return self.unacknowledged.push_back(beat);
        }
        let end = self.turn.base.saturating_add(offset).saturating_add(u64::from(length));
        self.received = self.received.max(end);
        if sync {
            self.sync_wanted = self.sync_wanted.max(self.received);
        }
        // One that comes again may end before what is there.
        self.unacknowledged.push_back(Unacknowledged { number, end, sync, last, status: SUCCESS });
        self.last_came = last;
    }

    /// Hands over what fills a piece.
    async fn hand_over_full(&mut self, gateway: &Gateway) -> Result<()> {
        while self.on_their_way.len() < PIECES_MAX
            && let Some(piece) = self.gathering.full_piece()
        {
            self.hand_over(gateway, piece).await?;
        }
        Ok(())
    }

    /// Hands over everything that is there, and has it synced if that is wanted.
    async fn hand_over_rest(&mut self, gateway: &Gateway) -> Result<()> {
        let sync = self.wants_sync();
        let mut last: Option<Piece> = None;
        while let Some(piece) = self.gathering.piece() {
            if let Some(before) = last.replace(piece) {
                self.hand_over(gateway, before).await?;
            }
        }
        if !sync {
            return match last {
                Some(piece) => self.hand_over(gateway, piece).await,
                None => Ok(()),
            };
        }
        let (bytes, sums, memory) = match last {
            Some(Piece { bytes, sums, memory }) => (bytes, sums, memory),
            None => (Bytes::new(), BlockSums::default(), None),
        };
        let end = self.handed_over.saturating_add(bytes.len() as u64);
        let empty = bytes.is_empty();
        self.request = gateway.client.new_request();
        let syncing = within(self.request, self.turn.sync(bytes, sums)).await?;
        if !empty {
            self.on_their_way.push_back((end, memory, self.request));
        }
        self.handed_over = end;
        self.syncing.push_back((syncing, end));
        Ok(())
    }

    /// Hands over a piece, which is a request by itself.
    async fn hand_over(&mut self, gateway: &Gateway, piece: Piece) -> Result<()> {
        let Piece { bytes, sums, memory } = piece;
        self.handed_over = self.handed_over.saturating_add(bytes.len() as u64);
        self.request = gateway.client.new_request();
        self.on_their_way.push_back((self.handed_over, memory, self.request));
        within(self.request, self.turn.write(bytes, sums)).await
    }

    /// The request that has waited longest.
    fn oldest(&self) -> RequestId {
        self.on_their_way.front().map_or(self.request, |(_, _, request)| *request)
    }

    /// Acknowledges every packet whose turn has come. True: that was the last one.
    async fn acknowledge(&mut self, gateway: &Gateway, connection: &mut Connection) -> Result<bool> {
        let written = self.written.borrow_and_update().length;
        self.seen = written;
        while self.on_their_way.front().is_some_and(|(end, ..)| *end <= written) {
            self.on_their_way.pop_front();
        }
        let (mut acknowledgements, mut last) = (Vec::new(), false);
        while let Some(packet) = self.unacknowledged.front() {
            if packet.end > written || packet.sync && packet.end > self.synced {
                break;
            }
            encode_acknowledgement(packet.number, packet.status, &mut acknowledgements);
            last = packet.last;
            self.unacknowledged.pop_front();
        }
        if !acknowledgements.is_empty() {
            // While it is not taken, what came behind it holds its memory.
            let wanted = || gateway.files.memory.is_wanted();
            connection.write_all(&mut [IoSlice::new(&acknowledgements)], wanted).await?;
        }
        Ok(last)
    }

    /// The store does not take the bytes. Of a status the client would only make that all servers are bad; told that the
    /// server restarts, it comes back and asks for the block, and `updatePipeline` tells it in words.
    async fn give_up(&mut self, gateway: &Gateway, connection: &mut Connection, error: Error) -> Result<()> {
        self.acknowledge(gateway, connection).await?;
        // Whoever lost its turn has nobody to tell: another connection speaks for the block.
        if error.kind() != ErrorKind::Stale {
            say_restart(gateway, connection).await?;
        }
        let error = error.during(format!("write {}", self.turn.file.path));
        if !is_failure(error.kind()) {
            return Err(error);
        }
        // The connection has ended, and this is the word about it.
        note(gateway, connection, (self.oldest(), "block write"), &error);
        Ok(())
    }
}

/// A client whose packet stands still halfway may only be paused. Java's takes a connection that ends for a server that is bad, and there is
/// no other; told that it restarts, it comes back when it goes on, with everything that was not acknowledged.
async fn send_away(gateway: &Gateway, connection: &mut Connection) -> Result<()> {
    say_restart(gateway, connection).await?;
    connection.end().await;
    Ok(())
}

/// Says that this server restarts, of no packet.
async fn say_restart(gateway: &Gateway, connection: &mut Connection) -> Result<()> {
    let mut acknowledgement = Vec::new();
    encode_acknowledgement(NO_PACKET, OOB_RESTART, &mut acknowledgement);
    connection.write_all(&mut [IoSlice::new(&acknowledgement)], || gateway.files.memory.is_wanted()).await
}

async fn synced(syncing: &mut VecDeque<(Syncing, u64)>) -> Result<()> {
    match syncing.front_mut() {
        Some((syncing, _)) => syncing.await,
        None => std::future::pending().await,
    }
}
