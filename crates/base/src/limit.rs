//! Every limit of the system: its name, its value, the reason, and the proof that it agrees with the others.

use crate::unit::{GIB, KIB, MIB};
use std::time::Duration;

/// Unit of checksums and of aligned device I/O. 4 KiB is the page size and the largest logical block of today's disks.
pub const BLOCK: usize = 4096;

/// Largest payload of one data record. A sealed chunk then has at most one run per MiB plus one.
pub const RECORD_PAYLOAD_MAX: usize = MIB as usize;

/// Appends of at least this many bytes go straight to a data record; smaller ones are gathered or journaled.
/// A 64 KiB record wastes at most one block of header: 6 %.
pub const RECORD_PAYLOAD_MIN: usize = 64 * KIB as usize;

/// A read of at least this many bytes of a fast device goes past the page cache unless it lies there: what a reader in order
/// asks for first. Filling memory costs four times the processor (1.8 s a GiB instead of 0.4), and reading from it no less.
pub const AROUND_MIN: u64 = 256 * KIB;

/// Largest chunk of any kind. A run keeps its chunk offset in 32 bits.
pub const CHUNK_MAX: u64 = GIB;

/// A file starts a new chunk after this many bytes. At a chunk's end the writer waits for everything under way, for the sync
/// and for the next group, 2.5 ms without a write: of 64 MiB at 2.5 GB/s that is 9 % of the time, of 256 MiB 2 %.
pub const FILE_CHUNK: u64 = 256 * MIB;

/// The bytes of a group with several columns go round them in cells of this size: what a device writes and reads at once.
pub const CELL: u64 = MIB;

/// Bytes of a file that are compressed on their own at least; fewer are stored as they are. A record of 64 KiB that became one of
/// 8 KiB would be worth it, but an index entry and a header for each are not: small files and small appends stay as they are.
pub const COMPRESSED_MIN: u64 = 64 * KIB;

/// What is compressed has to become smaller by this part of it, a sixteenth: else restoring it costs more than it saves.
pub const COMPRESSED_PART: usize = 16;

/// Most columns of a group. With 1 MiB for each under way, and one behind it, a writer has 32 MiB.
pub const COLUMNS_MAX: usize = 16;

/// Devices that a writer remembers to have refused its bytes, and names when it asks for its next group: more than a store has that are full or
/// gone at once, and 10 KiB of a message.
pub const REFUSED_MAX: usize = 256;

/// Most replicas of a column. Nobody asks for so many; a list from elsewhere is refused beyond it.
pub const REPLICAS_MAX: usize = 16;

/// Copies of what is written to a store that is begun by three nodes or more, which keep its metadata together; until somebody says otherwise.
pub const REPLICAS_OF_CLUSTERS: u32 = 3;
/// So many of them have to have places, or nothing is written there.
pub const LEAST_OF_CLUSTERS: u32 = 2;
const _: () = assert!(LEAST_OF_CLUSTERS <= REPLICAS_OF_CLUSTERS && REPLICAS_OF_CLUSTERS as usize <= REPLICAS_MAX);

/// A file goes on wider once each column of its group has so many bytes: a file that is no longer is on one device.
pub const NARROW_COLUMN: u64 = 8 * MIB;
const _: () = assert!(NARROW_COLUMN.is_multiple_of(CELL) && FILE_CHUNK.is_multiple_of(CELL));

/// A bag's chunk when nobody says otherwise (Hurricane, Chaos: 4 MiB).
pub const BAG_CHUNK: u64 = 4 * MIB;

/// Largest chunk that may be pushed: it travels in one frame.
pub const BAG_CHUNK_MAX: u64 = 16 * MIB;

/// Bytes before each chunk of a bag whose chunks are compressed (`client/src/compressed/format.rs`).
pub const BAG_HEADER: usize = 16;

/// Largest payload of one frame: the largest chunk of a bag that did not get smaller by compression, with its header.
pub const FRAME_PAYLOAD_MAX: usize = 16 * MIB as usize + BLOCK;
const _: () = assert!(BAG_CHUNK_MAX as usize + BAG_HEADER <= FRAME_PAYLOAD_MAX);

/// Largest message of one frame: a page of a directory listing with the longest names fits (1,000 names of 255 bytes, an owner
/// and a group of 255 bytes each, and 200 bytes of other attributes; with notes it may have fewer names). So do the attributes
/// of all directories of the deepest path.
pub const FRAME_MESSAGE_MAX: usize = MIB as usize;
const _: () = assert!(LIST_PAGE_MAX * (NAME_MAX + 2 * USER_NAME_MAX + ATTRIBUTES_MAX) < FRAME_MESSAGE_MAX);
const _: () = assert!((PATH_DEPTH_MAX + 1) * (2 * USER_NAME_MAX + ATTRIBUTES_MAX + NOTE_MAX) < FRAME_MESSAGE_MAX);
const _: () = assert!(LIST_PAGE_BYTES + NAME_MAX + 2 * USER_NAME_MAX + ATTRIBUTES_MAX + NOTE_MAX < FRAME_MESSAGE_MAX);
const _: () = assert!(XATTRS_BYTES_MAX + XATTRS_MAX * 16 < FRAME_MESSAGE_MAX);

/// Texts, lists and messages that one question may hold, whatever lies in what: four times as many as the longest list has entries. The
/// largest that is made of two bytes, a file of a compound request, takes 250 in memory: 4 MiB for the worst question.
pub const FRAME_FIELDS_MAX: usize = 4 * CONCAT_FILES_MAX;
const _: () = assert!(FRAME_FIELDS_MAX >= 16 * LIST_PAGE_MAX && FRAME_FIELDS_MAX > 16 * COMPOUND_FILES_MAX);
const _: () = assert!(FRAME_FIELDS_MAX > XATTR_VALUE_MAX / 2 + XATTR_NAME_MAX + PATH_MAX);

/// Messages in messages that are looked into when they are counted; none of ours is deeper.
pub const FRAME_DEPTH_MAX: usize = 8;

/// Ranges of one read; what a range costs beyond its bytes is a record's first blocks, 72 KiB.
pub const READ_RANGES_MAX: usize = 1024;

/// Ranges that a client asks for in one read of small files, which have `RECORD_PAYLOAD_MAX` bytes together: also where each lies in a record
/// of its own this is a fourth of what one read may cost.
pub const SMALL_RANGES_MAX: usize = 100;
const _: () = assert!(SMALL_RANGES_MAX <= READ_RANGES_MAX);
const _: () = assert!((SMALL_RANGES_MAX * 80 * KIB as usize + RECORD_PAYLOAD_MAX) as u64 * 3 < READ_COST_MAX);

/// Bytes that one read may make a device read: the largest answer, and as much beside it.
pub const READ_COST_MAX: u64 = 2 * FRAME_PAYLOAD_MAX as u64;

/// Bytes that one order fetches from one device to another: often enough that progress is seen, and seldom enough that the way to
/// the node that gives the orders does not count.
pub const FETCH_MAX: u64 = 16 * MIB;

/// Bytes that one node has on their way between devices, however many chunks move: about as many as one writer of a file has, so
/// that writers and readers beside it get their turns.
pub const FETCH_BUDGET: u64 = 8 * MIB;

/// Chunks that move at once off devices that are being emptied, without those that wait for a device that does not answer.
pub const MOVES_MAX: usize = 4;

/// Replicas that are made at once, `MOVES_MAX` of them at the most to and from one device: as many as four devices take. `FETCH_BUDGET` bounds what
/// of them is on its way in a node.
pub const REPAIRS_MAX: usize = 4 * MOVES_MAX;

/// Payloads up to here need no credit: a connection may have `SMALL_FRAMES_MAX` of them in flight.
pub const SMALL_PAYLOAD_MAX: usize = 64 * KIB as usize;

/// Requests that one connection may have unanswered. 64 KiB each bounds a connection's small frames to 16 MiB.
pub const SMALL_FRAMES_MAX: usize = 256;

/// Longest name of one file or directory, in bytes (as Linux and HDFS).
pub const NAME_MAX: usize = 255;

/// Longest path, in bytes.
pub const PATH_MAX: usize = 4096;

/// Longest name of an owner or of a group of people, in bytes.
pub const USER_NAME_MAX: usize = 255;

/// Groups of a user that count; further ones are left out.
pub const GROUPS_MAX: usize = 1024;

/// Longest name of a node, a rack or a site, in bytes: as of a host.
pub const PLACE_NAME_MAX: usize = 64;

/// Attributes of a file or directory in a message, beyond its name, its owners and its note: times, bits, numbers.
pub const ATTRIBUTES_MAX: usize = 200;

/// Longest note that a gateway keeps with a file or directory, in bytes: access control lists of 32 entries for itself and
/// 32 for what is made in it, with names of 30 bytes each, fit.
pub const NOTE_MAX: usize = 3 * KIB as usize;

/// Most extended attributes of one file or directory.
pub const XATTRS_MAX: usize = 64;

/// Longest name of an extended attribute, in bytes, with its namespace (as Linux).
pub const XATTR_NAME_MAX: usize = 255;

/// Longest value of an extended attribute, in bytes.
pub const XATTR_VALUE_MAX: usize = 16 * KIB as usize;

/// Names and values of all extended attributes of one file or directory, in bytes: they are one record, which each change
/// writes to the metadata log anew.
pub const XATTRS_BYTES_MAX: usize = 64 * KIB as usize;

/// Deepest path, in names.
pub const PATH_DEPTH_MAX: usize = 256;

/// Most entries in one page of a listing.
pub const LIST_PAGE_MAX: usize = 1000;

/// Bytes of a page of a copy of the metadata tree, about.
pub const COPY_PAGE: usize = MIB as usize;

/// A page of a listing ends after so many bytes of names, owners, notes and attributes.
pub const LIST_PAGE_BYTES: usize = FRAME_MESSAGE_MAX - 8 * KIB as usize;

/// Most files of such a page of which it says where their bytes are: half as many, because each takes twice as long to look up.
pub const LOCATED_PAGE_MAX: usize = LIST_PAGE_MAX / 2;

/// Most names in a page that the metadata makes where it is asked for, without a turn of its thread: a fifth of a millisecond. Most directories
/// have fewer, so they are asked for this many first.
pub const SHORT_PAGE: usize = 100;

/// The same of a page that says where bytes are.
pub const SHORT_LOCATED_PAGE: usize = SHORT_PAGE / 2;

/// Most directories that are listed with one question: the first one, and others that come whole in what is left of its page.
pub const LISTED_TOGETHER_MAX: usize = 16;

/// Most extents of a file that a listing says; a small file has one, or a few after a `concat`. Who wants more asks for the file.
pub const LISTED_EXTENTS_MAX: usize = 4;

/// Most chunks on devices that these may lie in, all replicas counted: one extent over all columns that there are.
pub const LISTED_REPLICAS_MAX: usize = 16;
const _: () = assert!(LISTED_REPLICAS_MAX >= COLUMNS_MAX);

/// Bytes of an extent in a listing at the most, and of each chunk on a device that it lies in.
pub const LISTED_EXTENT_BYTES: (usize, usize) = (64, 48);

/// Bytes that the extents of one file take of a listing at the most.
pub const LISTED_EXTENTS_BYTES: usize =
    LISTED_EXTENTS_MAX * LISTED_EXTENT_BYTES.0 + LISTED_REPLICAS_MAX * LISTED_EXTENT_BYTES.1;
const _: () = assert!(LIST_PAGE_BYTES + ENTRY_MAX + LISTED_EXTENTS_BYTES + LISTED_TOGETHER_MAX * 8 < FRAME_MESSAGE_MAX);
const _: () = assert!(ANSWER_OWN / (ENTRY_MAX + LISTED_EXTENTS_BYTES) >= 4);

/// Most small files named in one compound request.
pub const COMPOUND_FILES_MAX: usize = 256;

/// Most files that are joined to another at once: the question fits in a message if their paths are as long as a name at the most, and
/// what each changes is some hundred bytes of the metadata log. Longer paths, and a log of small segments, allow fewer and say so.
pub const CONCAT_FILES_MAX: usize = 4096;
const _: () = assert!(CONCAT_FILES_MAX * NAME_MAX < FRAME_MESSAGE_MAX);

/// Files up to this size are packed: their bytes share a chunk with others.
pub const SMALL_FILE_MAX: u64 = MIB;

/// A local file of at least so many bytes is written past the page cache. Nobody keeps that much in memory until it is used; writing it
/// there costs a copy and, on a virtual machine that has to get its memory first, up to 2 s for a GiB.
pub const DIRECT_MIN: u64 = 64 * MIB;

/// Answers to changes remembered for a session, from the oldest on that it may still ask again: so many changes are begun before that
/// one is answered, and the next ones wait. While a connection stands still for its 10 s the session's other ones go on with 400
/// changes a second. A session without trouble has as many remembered as it has on their way; 150 bytes each, and 64 KiB at the most:
/// what a session holds is below 256 MiB of disk however it is used.
pub const REMEMBERED_CALLS: usize = 4096;
const _: () = assert!(REMEMBERED_CALLS >= 4 * SMALL_FRAMES_MAX && REMEMBERED_CALLS <= 1 << 16);

/// Answers to changes that clients of gateways made, remembered by a cluster's metadata store so that one which is asked again at
/// another gateway is not repeated: 150 bytes each on disk, 10 MiB, and 4 MiB of memory. Six seconds at 10,000 changes a second, all
/// ten minutes of HDFS's own window at 100.
pub const REMEMBERED_ANSWERS: usize = 65_536;
const _: () = assert!(REMEMBERED_ANSWERS <= u32::MAX as usize);

/// Clients of gateways to whom answers were forgotten, of whom it is kept up to which call that is so: 50 bytes each on disk, 3 MiB, and
/// 10 MiB of memory. A hundred new clients a second, each of which changes something, for the ten minutes of HDFS's own window.
pub const FORGOTTEN_CLIENTS_MAX: usize = 65_536;

/// It is kept no longer than this after the last such answer was forgotten. A client that numbers 12,000 calls a second and changes nothing
/// all that time has by then come to numbers that look older; and a connection that is silent is ended after minutes.
pub const FORGOTTEN_CLIENTS_AGE: Duration = Duration::from_secs(24 * 3600);
const _: () = assert!(FORGOTTEN_CLIENTS_AGE.as_secs() > 10 * HDFS_RETRY_WINDOW.as_secs());

/// Directories of which a change says that they have to be empty still: each is a question to the store's tree, a millisecond for all.
pub const EMPTY_DIRECTORIES_MAX: usize = 256;

/// Longest name of a holder of files in a gateway's protocol, in bytes. A longer one is not kept.
pub const HOLDER_MAX: usize = 255;

/// Holders of files in a gateway's protocol of which it is known when they were heard of: 350 bytes each with the longest names, 45 MiB.
/// Twice what one gateway may have open, each file for a holder of its own.
pub const HOLDERS_HEARD_MAX: usize = 131_072;
const _: () = assert!(HOLDERS_HEARD_MAX >= 2 * HDFS_OPEN_FILES_MAX);

/// Holders that told an HDFS gateway that they live, have nothing open there, and are noted until the store is told: 350 bytes each
/// with the longest names, 5.5 MiB.
pub const HOLDERS_UNTOLD_MAX: usize = 16_384;

/// Most holders that are told or asked for in one message: with the longest names 0.26 MiB.
pub const HOLDERS_TOLD_MAX: usize = 1024;
const _: () = assert!(HOLDERS_TOLD_MAX * (HOLDER_MAX + 16) < FRAME_MESSAGE_MAX);

/// A session that is not renewed for this long has ended; its leases are free.
pub const SESSION_LEASE: Duration = Duration::from_secs(30);

/// Clocks of two machines gain at most so many parts in a million on each other: good ones 100, while they are set by NTP 500 each.
/// Whoever counts on a lease that another machine measures lets it end so much earlier.
pub const CLOCK_DRIFT_MAX: u32 = 1000;

/// A node reports to the one that keeps the metadata this often: what changes there is known everywhere a second later.
pub const REPORT_EVERY: Duration = Duration::from_secs(1);

/// A node that has not reported for so long gets nothing new until it does: five reports that were lost or late.
pub const NODE_SILENCE_MAX: Duration = Duration::from_secs(5);

/// How long a device is away before it is given up by itself, unless something else is said: for ever. The others may be filled to the brim with what
/// it had, and stay so when it is back (record 0479).
pub const REPAIR_AFTER: Duration = Duration::MAX;

/// The same of one whose node says that it failed: it comes back when somebody starts its node again, and each minute may be its last.
pub const FAILED_GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

/// Most nodes of a cluster (DESIGN: a rack, or several sites), so that a view fits in a message.
pub const NODES_MAX: usize = 512;

/// Bytes of a node's name, addresses, site and rack together.
pub const NODE_TEXTS_MAX: usize = 512;

/// Most devices of a node beside the one that keeps the metadata: its report fits in a message (nearly all of a device there is
/// the path of its directory), and so does the view of all nodes.
pub const NODE_DEVICES_MAX: usize = 64;
const _: () = assert!(NODE_DEVICES_MAX * (PATH_MAX + KIB as usize) < FRAME_MESSAGE_MAX);
const _: () = assert!(
    NODES_MAX * (NODE_TEXTS_MAX + NODE_DEVICES_MAX * 20 + 100) + KEEPING_TOLD_MAX * (KEEPING_MAX + 10)
        < FRAME_MESSAGE_MAX
);

/// Longest text of what is wrong with the metadata that a node keeps; what is behind it is left out.
pub const KEEPING_MAX: usize = 1_000;

/// Of so many nodes a view tells that text, so that it fits in a message whatever nodes say: a store has no more keepers.
pub const KEEPING_TOLD_MAX: usize = 16;

/// A grant of a bag's chunk ends after this long without acknowledgement or renewal. Consumers renew every third of it, so a
/// killed consumer's chunks go to others within ten seconds.
pub const GRANT_LEASE: Duration = Duration::from_secs(10);

/// A request that takes so long is worth a line in the log. The most that is asked of a device at once (16 MiB) is a ninth of it on a disk of
/// 150 MB/s, and `CALL_SILENCE_MAX` ten of it: whoever waits has noticed, and nothing has failed yet.
pub const SLOW_REQUEST: Duration = Duration::from_secs(1);

/// A call fails after this much silence from the other side (not after this much work).
pub const CALL_SILENCE_MAX: Duration = Duration::from_secs(10);

/// A push that a device did not answer is asked there again for so long, and a device that does not answer pulls is tried again:
/// long enough for a machine's service to be started again.
pub const UNANSWERED_MAX: Duration = Duration::from_secs(60);

/// Pulls of one session that wait on a device for chunks to come. A program has one waiting for each of its consumers, 200 bytes each; one
/// more is answered at once that there is nothing, and asks again.
pub const DEVICE_PULLS_WAITING_EACH: usize = 256;

/// The same of all sessions: 16 MiB with the maps around them. Connections alone would let a million wait.
pub const DEVICE_PULLS_WAITING_MAX: usize = 65_536;
const _: () = assert!(
    DEVICE_PULLS_WAITING_MAX >= 16 * DEVICE_PULLS_WAITING_EACH
        && DEVICE_PULLS_WAITING_MAX < CONNECTIONS_MAX * SMALL_FRAMES_MAX
);

/// A session's pushes to one device go so far ahead of the oldest that has no answer: a device remembers no more of them after they
/// were handled. Links of eight connections have half as many under way. With 100 bytes each 400 KiB; over all streams that a session
/// may have at a device (`PUSH_STREAMS_MAX`) 26 MiB, of a session that is out for it.
pub const PUSHES_AHEAD_MAX: u64 = 4096;
const _: () = assert!(PUSHES_AHEAD_MAX as usize >= 2 * 8 * SMALL_FRAMES_MAX);

/// Streams of pushes that one session may have at a device: one of its own, and those of the other devices of its node, whose pushes
/// it takes while they are emptied.
pub const PUSH_STREAMS_MAX: usize = NODE_DEVICES_MAX;

/// What a device remembers of pushes and acknowledgements without an answer, of all sessions together: with 100 bytes each 50 MiB. A
/// session has at most as much as is free, so alone half of it: what its streams may be ahead in all; or one part of 2,048, 25 KiB.
pub const REMEMBERED_MAX: u64 = 1 << 19;
const _: () = assert!(REMEMBERED_MAX >= 2 * PUSHES_AHEAD_MAX * PUSH_STREAMS_MAX as u64);

/// Acknowledgements that one message carries: 40 bytes each make 40 KiB.
pub const ACKNOWLEDGED_AT_ONCE_MAX: usize = 1000;

/// A session's messages of acknowledgements to one device go so far ahead of the oldest that has no answer. A device remembers
/// 64,000 acknowledged chunks for it then, with 100 bytes each 6 MiB.
pub const ACKNOWLEDGEMENTS_AHEAD_MAX: u64 = 64;

/// Sessions of which a node asks at once whether they are over, for what its devices remember of them.
pub const SESSIONS_ASKED_MAX: usize = 1000;

/// A writer on a full device waits this long without any space coming back before it is told so.
pub const FULL_WAIT: Duration = Duration::from_secs(10);

/// A scrub reads so many bytes a second when nobody says otherwise: a TiB in four and a half hours, an eighth of what a slow
/// solid-state disk reads.
pub const SCRUB_RATE: u64 = 64 * MIB;

/// Damaged ranges that a scrub lists; further ones are only counted. A disk with more is lost anyway.
pub const SCRUB_DAMAGE_MAX: usize = 1000;

/// A new connection that has not said who it is after this long is closed.
pub const HELLO_WAIT_MAX: Duration = Duration::from_secs(10);

/// Largest message of a greeting that a node reads: ids, versions, a nonce and a program's name. Strangers may send it.
pub const GREETING_MAX: usize = 4096;

/// Largest answer to a greeting that a client reads: a welcome, a challenge, or a refusal in words.
pub const GREETING_ANSWER_MAX: usize = 20 * KIB as usize;

/// A connection without any call for this long is closed by the server. Clients connect again when they have something to ask.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(300);

/// Connections that one server keeps open, if the system gives it as many files (`connections`). Each may have 64 KiB of staging and
/// its small frames.
pub const CONNECTIONS_MAX: usize = 4096;

/// Connections that each of a node's two large doors keeps open, where the process may have so many files open (none: no limit). A
/// quarter of the files, and a thousand if that leaves half, are for disks and for connections to other nodes.
pub const fn connections(open_files: Option<u64>) -> usize {
    let Some(files) = open_files else { return CONNECTIONS_MAX };
    let kept = if files / 2 < 1024 {
        files / 2
    } else if files / 4 > 1024 {
        files / 4
    } else {
        1024
    };
    let each = (files - kept) / 2;
    if each < CONNECTIONS_MAX as u64 { each as usize } else { CONNECTIONS_MAX }
}
/// Connections that the console keeps open: a few scrapers and browsers, and room for newcomers. A quarter of them are for those without
/// a whole request, the oldest of which goes when another comes: while 6,000 connect in a second, one has 40 ms to ask.
pub const fn console_connections(open_files: Option<u64>) -> usize {
    connections(open_files) / 4
}

const _: () = assert!(
    connections(Some(4096)) == 1536 && connections(Some(256)) == 64 && connections(Some(20_000)) == CONNECTIONS_MAX
);

/// A frame that has begun ends after `CALL_SILENCE_MAX` and a second for each so many bytes of it, or its connection does. So a byte
/// now and then keeps nothing; who sends the largest frame has four minutes.
pub const FRAME_RATE_MIN: u64 = 64 * KIB;

/// Messages of more than `LARGE_MESSAGE` bytes that are on their way or worked on, over all connections of a node, in bytes.
pub const LARGE_MESSAGES_MAX: u64 = 32 * MIB;
/// See `LARGE_MESSAGES_MAX`.
pub const LARGE_MESSAGE: usize = 32 * KIB as usize;

/// Questions of more bytes are decoded one after another, over all connections of a server: decoding takes time by the texts that a question
/// holds, and a thousand of two letters fit into so many bytes. Most questions are far shorter.
pub const LONG_QUESTION: usize = 4 * KIB as usize;
const _: () = assert!(LONG_QUESTION < LARGE_MESSAGE);

/// Memory for which nothing came for so long, although it was granted as credit, is given to others if they wait; the credit stays. Our own
/// clients give back what they do not use after a second.
pub const CREDIT_IDLE_MAX: Duration = Duration::from_secs(1);

/// A large frame of which nothing comes for so long ends with its connection while others wait for the memory that it holds; and so does one
/// that is slower than `FRAME_RATE_MIN` from then on.
pub const FRAME_STALL_MAX_PRESSED: Duration = Duration::from_secs(2);

/// Bytes that the questions about names which a node works on may take, over all connections: some 6,000 usual ones.
pub const CALLS_MEMORY_MAX: u64 = 24 * MIB;

/// The same for questions that devices answer, apart from the former: a device that stands still holds all that it is asked.
pub const DEVICE_CALLS_MEMORY_MAX: u64 = 24 * MIB;

/// The same for questions of nodes, and for those that keep clients' claims alive.
pub const URGENT_CALLS_MEMORY_MAX: u64 = 16 * MIB;

/// Payload of keepers' messages (`keeper::Step`) that has come or is on its way, over all connections of a node: both others' entries, four
/// `Step`s of some MiB each, their pages, and the largest frame that waits.
pub const KEEPERS_MEMORY_MAX: u64 = 32 * MIB;

/// What a question of so many bytes takes at the most until it is answered. The worst that is taken are many short paths, 24 bytes for each
/// of theirs, of which there are `CONCAT_FILES_MAX` at the most; long texts are there three times for a moment.
pub const fn call_memory(message: usize) -> u64 {
    let short = if message < 3 * CONCAT_FILES_MAX { message } else { 3 * CONCAT_FILES_MAX };
    (KIB as usize + 3 * message + 24 * short) as u64
}
const _: () = assert!(3 * call_memory(FRAME_MESSAGE_MAX) < URGENT_CALLS_MEMORY_MAX && call_memory(100) < 4 * KIB);

/// Bytes that large answers about names may take, over all connections of a node, from when their questions are handed over until they are
/// written: 48 of the largest are made or wait at once. Once an answer is there it holds only what it takes.
pub const ANSWERS_MEMORY_MAX: u64 = 48 * MIB;

/// The same for large answers that devices or other nodes have a part in: one that stands still keeps nobody from names.
pub const DEVICE_ANSWERS_MEMORY_MAX: u64 = 32 * MIB;

/// The same for answers to nodes, which wait for nobody else's: reports of 32 nodes with the largest views at once.
pub const URGENT_ANSWERS_MEMORY_MAX: u64 = 32 * MIB;

/// Bytes of answers that are made for one connection, or wait to be written to it, before it is made another large one: sixteen of the
/// largest.
pub const ANSWERS_EACH: usize = 16 * FRAME_MESSAGE_MAX;

/// The same while others hold more than half of the memory.
pub const ANSWERS_EACH_PRESSED: usize = 4 * FRAME_MESSAGE_MAX;

/// Bytes that the places of a file's bytes are taken for before they are looked up: 512 pieces on one device each. What is cut over many
/// devices has more; it is counted when it is there. A connection that has only `ANSWER_OWN` for it is told of as many as fit.
pub const LOCATED: usize = 64 * KIB as usize;

/// Bytes of a large answer that a connection to which nothing is owed may have made whatever others hold; a page is made as short as that.
/// Connections in all the places there are have 112 MiB.
pub const ANSWER_OWN: usize = 32 * KIB as usize;
const _: () = assert!(CONNECTIONS_MAX * ANSWER_OWN <= 128 * MIB as usize && ANSWER_OWN >= 7 * ENTRY_MAX);

/// Bytes of one name of a listing at the most, with what it has.
pub const ENTRY_MAX: usize = NAME_MAX + 2 * USER_NAME_MAX + ATTRIBUTES_MAX + NOTE_MAX + HOLDER_MAX;

/// Bytes that a bag is taken for when it is told of: 1,600 members. A store with more devices than that has larger ones; they are counted
/// when they are there.
pub const BAG_INFO: usize = ANSWER_OWN;

/// Bytes that a view of the cluster is taken for when a client asks who is there: 150 nodes. That of a larger cluster, 1 MiB at the most, is
/// counted when it is there.
pub const VIEWED: usize = ANSWER_OWN;

/// Questions with large answers that wait for memory beside a connection that goes on, so that what is short or urgent passes them; and as
/// many pulls. With one more the connection is not read. 4,096 connections hold 30 MiB of usual ones.
pub const PARKED_MAX: usize = 16;

/// A peer that has not taken so many bytes of answers is not asked for more.
pub const UNWRITTEN_MAX: usize = 2 * MIB as usize;

/// Bytes of answers that wait to be written, over all connections of a node, before a peer is not asked for more once it has not taken
/// `UNWRITTEN_MAX_PRESSED` bytes: 4,096 connections hold 64 MiB of them then, and this.
pub const UNWRITTEN_ALL_MAX: usize = 64 * MIB as usize;
/// See `UNWRITTEN_ALL_MAX`.
pub const UNWRITTEN_MAX_PRESSED: usize = 16 * KIB as usize;

/// Pulls that wait for a chunk, over all connections of a node, some 300 bytes each at their device, which looks at them in its turns. 64
/// connections of the kind that our consumers make, with as many as they may have; each other one has `PULLS_OWN`.
pub const PULLS_WAITING_MAX: usize = 64 * SMALL_FRAMES_MAX;
/// See `PULLS_WAITING_MAX`.
pub const PULLS_OWN: usize = 4;

/// Largest frame of Hadoop RPC that is sent, in bytes, its length not counted (`ipc.maximum.data.length` of Hadoop).
pub const HDFS_FRAME_MAX: usize = 128 * MIB as usize;

/// Largest call to the HDFS gateway: the paths of a `concat` go to the store in a message of 1 MiB, and no other method takes more
/// than the 400 KiB of 100 longest paths.
pub const HDFS_CALL_MAX: usize = 2 * MIB as usize;
const _: () = assert!(HDFS_CALL_MAX >= FRAME_MESSAGE_MAX + (CONCAT_FILES_MAX + 2) * 8 + 2 * PATH_MAX);

/// Largest frame of a connection that has not said yet who calls: a context has two names of 255 bytes.
pub const HDFS_CONTEXT_MAX: usize = 4 * KIB as usize;

/// Fields of one call, counted before it is decoded: each takes up to 300 bytes of memory, whatever it takes on the wire.
pub const HDFS_CALL_FIELDS_MAX: usize = 1024;

/// The same for methods that name many things: `concat` names up to 4,096.
pub const HDFS_LONG_CALL_FIELDS_MAX: usize = 8192;

/// The same for one that names servers: 64 of them, their stores, and as many that are to be left out.
pub const HDFS_SERVERS_FIELDS_MAX: usize = 200;

/// Calls of one connection that the HDFS gateway works on at once. Further ones wait in the socket.
pub const HDFS_CALLS_MAX: usize = 256;

/// Bytes that calls of one connection to the HDFS gateway hold, under way or with answers that wait to be written; beyond, it reads
/// no further calls. 256 calls of 4 KiB, and as much again for what they ask.
pub const HDFS_BACKLOG_MAX: usize = 2 * MIB as usize;

/// The same while others wait for memory for small answers.
pub const HDFS_BACKLOG_MAX_PRESSED: usize = 64 * KIB as usize;
const _: () = assert!(HDFS_BACKLOG_MAX_PRESSED > HDFS_OWN_ANSWER);

/// Calls to the HDFS gateway of more bytes than this are read a few at a time: 4,096 connections that send up to it hold 64 MiB.
pub const HDFS_LARGE_CALL: usize = 16 * KIB as usize;

/// Bytes of such large calls that are read or worked on at once, over all connections: 15 of the largest. Each is there three times
/// for a moment, as a frame, as its content and decoded.
pub const HDFS_LARGE_CALLS_MAX: usize = 32 * MIB as usize;
const _: () = assert!(HDFS_CALL_MAX + 4 <= HDFS_LARGE_CALLS_MAX);

/// Bytes that a small answer of the HDFS gateway is taken for before it is built: a status has two names of 255 bytes.
pub const HDFS_SMALL_ANSWER: usize = 4 * KIB as usize;

/// Memory for one small call that each connection to the HDFS gateway has whatever others hold: a question of 1,365 bytes and its answer.
/// 4,096 connections have 32 MiB.
pub const HDFS_OWN_ANSWER: usize = 8 * KIB as usize;

/// Bytes of small answers that are being made or wait to be written, over all connections: 16,384 of them.
pub const HDFS_SMALL_ANSWERS_MAX: usize = 64 * MIB as usize;

/// Bytes of entries after which a listing's page ends: 1,000 entries with names of 100 bytes take 200 KiB.
pub const HDFS_PAGE_BYTES: usize = 256 * KIB as usize;

/// Bytes of a plain page of a listing with what it is made from, and of one that names blocks, too.
pub const HDFS_PAGE: usize = 3 * HDFS_PAGE_BYTES;
/// See `HDFS_PAGE`.
pub const HDFS_LOCATED_PAGE: usize = HDFS_PAGE + HDFS_BLOCKS_SHOWN as usize * HDFS_LOCATED_BLOCK;

/// Bytes of larger answers, over all connections: 128 plain pages of listings that are being made.
pub const HDFS_LARGE_ANSWERS_MAX: usize = 96 * MIB as usize;

/// What a large answer takes at least of its connection's part, until it was written.
pub const HDFS_LARGE_ANSWER: usize = HDFS_LOCATED_PAGE;

/// Bytes of larger answers for one connection: four of them. One that does not read has no more made for it, so that a hundred such
/// connections leave room for others.
pub const HDFS_LARGE_ANSWERS_EACH: usize = 4 * HDFS_LARGE_ANSWER;

/// Large answers that are made at once, over all connections: a page takes the store some milliseconds, and what is small waits for no
/// more of them than these.
pub const HDFS_LARGE_ANSWERS_MADE: usize = 8;

/// Bytes of answers that name more than `HDFS_BLOCKS_SHOWN` blocks, over all connections: two of the longest. A connection has one.
pub const HDFS_LOCATED_MAX: usize = 2 * HDFS_LOCATED_BLOCKS_MAX as usize * HDFS_LOCATED_BLOCK;

/// Bytes that a block with its places takes until it is sent: 850 as it is built, 250 encoded, as much again in the frame; with
/// a few places more.
pub const HDFS_LOCATED_BLOCK: usize = 2 * KIB as usize;

/// Blocks that an answer may name without asking for memory of its own: a page of a listing has as many.
pub const HDFS_BLOCKS_SHOWN: u64 = LIST_PAGE_MAX as u64;

/// What a client of the HDFS gateway sends or takes comes at this many bytes a second at least, after a while of grace: whoever is
/// slower holds memory that others wait for.
pub const HDFS_RATE_MIN: u64 = 64 * KIB;

/// How long a client may stand still in the middle of a packet, or with answers that it does not take.
pub const HDFS_STALL_MAX: Duration = Duration::from_secs(30);

/// The same while others wait for the memory that it holds.
pub const HDFS_STALL_MAX_PRESSED: Duration = Duration::from_secs(2);

/// The HDFS gateway remembers answers to changes for this long (`dfs.namenode.retrycache.expirytime.millis` of Hadoop).
pub const HDFS_RETRY_WINDOW: Duration = Duration::from_secs(600);

/// Most answers that it remembers, and most bytes of them. The oldest go first. 16 MiB with what surrounds them: six seconds
/// at 10,000 changes a second, all ten minutes at 100.
pub const HDFS_RETRIES_MAX: usize = 65_536;
/// See `HDFS_RETRIES_MAX`.
pub const HDFS_RETRIES_BYTES_MAX: usize = 8 * MIB as usize;

/// Credit that one connection holds for payloads still to come, while it keeps sending: two largest frames.
pub const CREDIT_WINDOW_MAX: u64 = 2 * FRAME_PAYLOAD_MAX as u64;

/// First and longest wait between attempts to connect again.
pub const RECONNECT_WAIT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Largest message of the HDFS gateway's data connections: an operation names at most some hundred servers.
pub const HDFS_MESSAGE_MAX: usize = 64 * KIB as usize;

/// Largest packet that a client of the HDFS gateway may send, as in HDFS. HBase sends up to 12 MiB at once.
pub const HDFS_PACKET_MAX: usize = 16 * MIB as usize;

/// Bytes that all ranges which one client reads may have asked for beyond their first pieces: at 2 MiB each, 128 of them go at
/// full speed, and the others ask for less ahead.
pub const RANGES_AHEAD_MAX: u64 = 256 * MIB;

/// Files that are open for writing through one HDFS gateway: some kilobytes each.
pub const HDFS_OPEN_FILES_MAX: usize = 65_536;

/// How many of them one user may have open who is no superuser: half, so that there is room for others.
pub const HDFS_OPEN_FILES_EACH: usize = HDFS_OPEN_FILES_MAX / 2;

/// Least bytes in a block of a file that is made through the HDFS gateway, unless a setting says otherwise.
pub const HDFS_MIN_BLOCK_SIZE: u64 = KIB;

/// Blocks whose bytes the HDFS gateway reads for a checksum at once: each keeps half a processor busy.
pub const HDFS_SUMS_MAX: usize = 4;

/// Walks through trees for content summaries and removals at once: of one user, and of all.
pub const HDFS_WALKS_EACH: usize = 4;
/// See `HDFS_WALKS_EACH`.
pub const HDFS_WALKS_MAX: usize = 16;

/// Bytes that one HDFS gateway has received and not written yet, over all connections. A writer at full speed has 8 MiB.
pub const HDFS_WRITE_MEMORY_MAX: u64 = 128 * MIB;

/// The same for packets of more than 1 MiB, which have their own, so that they keep no other writer waiting: four of the largest.
pub const HDFS_LARGE_PACKETS_MAX: u64 = 4 * (HDFS_PACKET_MAX as u64 + 2 * MIB);

/// What one read through the HDFS gateway may have in memory: a piece of 1 MiB that is sent, and as much again twice that was asked for
/// ahead.
pub const HDFS_READ_MEMORY: usize = 3 * MIB as usize;

/// The same for all reads: 40 of them go at full speed, and the others with `HDFS_READ_MEMORY_MIN` each.
pub const HDFS_READ_MEMORY_MAX: usize = 40 * HDFS_READ_MEMORY;

/// What a read has that finds no room there: on all of 4,096 connections 256 MiB.
pub const HDFS_READ_MEMORY_MIN: usize = 64 * KIB as usize;

/// Pieces that those reads with little memory ask the store for at once: as many as keep a device busy.
pub const HDFS_READS_WITH_LITTLE: usize = 16;

/// Entries of a listing, or blocks, that the HDFS gateway makes before other tasks have their turns: a fraction of a millisecond's work.
pub const HDFS_ENTRIES_AT_ONCE: usize = 128;

/// Files that the HDFS gateway keeps open to read: a kilobyte each and 100 bytes for each extent.
pub const HDFS_READERS_MAX: usize = 1024;

/// Files of which clients of an HDFS gateway said that bytes did not match their checksums, and which it remembers: each read
/// looks through all of them.
pub const HDFS_SUSPECTS_MAX: usize = 256;

/// Blocks that the HDFS gateway names in one answer: 64 MiB while it is built, and at 128 MiB a block a file of 4 TiB. HDFS itself
/// lets a file have 10,000 (`dfs.namenode.fs-limits.max-blocks-per-file`).
pub const HDFS_LOCATED_BLOCKS_MAX: u64 = 32_768;
