//! `cargo x attacks`: the real server with little memory, a healthy client beside it, and strangers who want all of it.
//!
//! Each attack is a function of its own in `attacks/`, and a line in `ATTACKS`. For each one a server is started afresh; what is judged is
//! the server and the healthy client, never what the attack was told.

mod connections;
mod credit;
mod data;
mod frames;
mod hdfs;
mod healthy;
mod ranges;
mod store;
mod target;
mod verdict;

use crate::trials::server::{self, program, scratch};
use base::error::{Error, ErrorKind, Result};
use base::unit::{GIB, MIB};
use harness::sampler::Sampler;
use harness::scratch::Scratch;
use healthy::Healthy;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use target::Target;
use tokio::runtime::Runtime;
use verdict::Verdict;

/// Which attacks, and how they are judged.
#[derive(clap::Args)]
pub struct Args {
    /// Only these; without names all of them
    names: Vec<String>,
    /// Connections that an attack by their number opens
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// How long each attack goes on, in seconds
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Address space of the server, in MiB; 0: no limit
    #[arg(long, default_value_t = 2048)]
    space: u64,
    /// Judge by the bars for a machine with nothing else to do: p99 of `stat` 100 ms, half of the throughput
    #[arg(long)]
    strict: bool,
    /// One JSON object an attack on stdout
    #[arg(long)]
    json: bool,
    /// Say which attacks there are, and do nothing
    #[arg(long)]
    list: bool,
}

/// What an attack does until it is dropped. One that ends earlier has done all it wanted; an error means that it could not be made.
type Attacking<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// One attack.
struct Attack {
    name: &'static str,
    /// What is done, in a line.
    about: &'static str,
    run: for<'a> fn(&'a Target) -> Attacking<'a>,
}

/// All of them, in the order in which they are made.
const ATTACKS: [Attack; 34] = [
    Attack {
        name: "ranges",
        about: "reads that name one byte 65,536 times",
        run: |target| Box::pin(ranges::many_equal(target)),
    },
    Attack {
        name: "ranges-apart",
        about: "reads of single bytes that lie far apart",
        run: |target| Box::pin(ranges::far_apart(target)),
    },
    Attack {
        name: "silent-store",
        about: "connections to the store's port that say nothing",
        run: |target| Box::pin(connections::silent(target, &target.store)),
    },
    Attack {
        name: "drip-store",
        about: "connections to the store's port that say a byte a second of a greeting",
        run: |target| Box::pin(connections::dripping(target, &target.store, frames::greeting())),
    },
    Attack {
        name: "slow-store",
        about: "connections to the store's port that say a byte every 9 s of a greeting",
        run: |target| Box::pin(connections::slowly(target, &target.store, frames::greeting())),
    },
    Attack {
        name: "idle-store",
        about: "connections to the store's port that greet, and say nothing more",
        run: |target| Box::pin(connections::idle(target, &target.store, frames::greeting())),
    },
    Attack {
        name: "unread-store",
        about: "pages of a long directory that are asked for at the store's port and never read",
        run: |target| Box::pin(store::unread(target)),
    },
    Attack {
        name: "pulls",
        about: "pulls of an empty bag, as many as may wait",
        run: |target| Box::pin(store::pulls(target)),
    },
    Attack {
        name: "bags",
        about: "pulls, renewals and acknowledgements of bags that nobody made",
        run: |target| Box::pin(store::bags(target)),
    },
    Attack {
        name: "silent-console",
        about: "connections to the console that say nothing",
        run: |target| Box::pin(connections::silent(target, &target.console)),
    },
    Attack {
        name: "drip-console",
        about: "connections to the console that say a byte a second of a request",
        run: |target| Box::pin(connections::dripping(target, &target.console, connections::endless_request())),
    },
    Attack {
        name: "slow-console",
        about: "connections to the console that say a byte every 9 s of a request",
        run: |target| Box::pin(connections::slowly(target, &target.console, connections::endless_request())),
    },
    Attack {
        name: "credit",
        about: "greeted connections that wish for all credit, and ping instead of using it",
        run: |target| Box::pin(credit::hoarded(target)),
    },
    Attack {
        name: "half-frames",
        about: "greeted connections that send messages of 1 MiB but for the last byte",
        run: |target| Box::pin(frames::half(target)),
    },
    Attack {
        name: "nested",
        about: "messages of 1 MiB that hold as many things as fit in them",
        run: |target| Box::pin(frames::nested(target)),
    },
    Attack {
        name: "concat",
        about: "questions that join 4,096 files, 256 of them unanswered on each of 16 connections",
        run: |target| Box::pin(frames::concats(target)),
    },
    Attack {
        name: "paths-hdfs",
        about: "calls of Hadoop's with paths of 60 MiB",
        run: |target| Box::pin(hdfs::long_paths(target)),
    },
    Attack {
        name: "xattrs-hdfs",
        about: "calls of Hadoop's that name one attribute 8,000 times",
        run: |target| Box::pin(hdfs::attributes(target)),
    },
    Attack {
        name: "empty-hdfs",
        about: "calls of Hadoop's that hold as many empty messages as fit in them",
        run: |target| Box::pin(hdfs::empty_messages(target)),
    },
    Attack {
        name: "unread-hdfs",
        about: "listings that are asked for without an end, and never read",
        run: |target| Box::pin(hdfs::unread_answers(target)),
    },
    Attack {
        name: "half-hdfs",
        about: "long calls of Hadoop's that stop in the middle",
        run: |target| Box::pin(hdfs::half_calls(target)),
    },
    Attack {
        name: "idle-hdfs",
        about: "connections to Hadoop's port that say who they are, and nothing more",
        run: |target| Box::pin(connections::idle(target, &target.hdfs, hdfs::greeting())),
    },
    Attack {
        name: "silent-hdfs",
        about: "connections to Hadoop's port that say nothing",
        run: |target| Box::pin(connections::silent(target, &target.hdfs)),
    },
    Attack {
        name: "drip-hdfs",
        about: "connections to Hadoop's port that say a byte a second of who they are",
        run: |target| Box::pin(connections::dripping(target, &target.hdfs, hdfs::greeting())),
    },
    Attack {
        name: "drip-data-hdfs",
        about: "connections to Hadoop's port that say a byte a second of a write",
        run: |target| Box::pin(connections::dripping(target, &target.hdfs, data::greeting())),
    },
    Attack {
        name: "slow-hdfs",
        about: "connections to Hadoop's port that say a byte every 9 s of who they are",
        run: |target| Box::pin(connections::slowly(target, &target.hdfs, hdfs::greeting())),
    },
    Attack {
        name: "slow-data-hdfs",
        about: "connections to Hadoop's port that say a byte every 9 s of a write",
        run: |target| Box::pin(connections::slowly(target, &target.hdfs, data::greeting())),
    },
    Attack {
        name: "pings-hdfs",
        about: "connections to Hadoop's port that send a ping of 16 KiB, and nothing more",
        run: |target| Box::pin(hdfs::padded_pings(target)),
    },
    Attack {
        name: "walks-hdfs",
        about: "sums over a tree, many at once on many connections",
        run: |target| Box::pin(hdfs::walks(target)),
    },
    Attack {
        name: "holders-hdfs",
        about: "files that are made for holders with names of 60 KiB",
        run: |target| Box::pin(hdfs::long_holders(target)),
    },
    Attack {
        name: "blocks-hdfs",
        about: "the places of 15,360 blocks, asked for without an end and never read",
        run: |target| Box::pin(data::blocks(target)),
    },
    Attack {
        name: "packets-hdfs",
        about: "packets of 15 MiB that stop behind their header",
        run: |target| Box::pin(data::half_packets(target)),
    },
    Attack {
        name: "sums-hdfs",
        about: "checksums of a large block, asked for by clients that do not wait for them",
        run: |target| Box::pin(data::sums(target)),
    },
    Attack {
        name: "reads-hdfs",
        about: "a large block, read by clients that take none of it",
        run: |target| Box::pin(data::unread(target)),
    },
];

/// The server's memory is looked at so often.
const LOOK: Duration = Duration::from_millis(10);

/// The healthy client is alone for so long at first: what it reaches then is what it is compared with.
const ALONE: Duration = Duration::from_secs(3);

/// Runs the attacks. `Ok(false)`: one of them did what it wanted.
pub fn run(args: &Args) -> Result<bool> {
    if args.list {
        ATTACKS.iter().for_each(|attack| println!("{:<16} {}", attack.name, attack.about));
        return Ok(true);
    }
    if let Some(name) = args.names.iter().find(|name| !ATTACKS.iter().any(|attack| attack.name == **name)) {
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        let text = format!("there is no attack '{name}'; there are {}", names.join(", "));
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    // Both ends of thousands of connections are files, here and, by inheritance of the hard limit, there.
    os::machine::raise_open_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut good = true;
    for attack in ATTACKS.iter().filter(|attack| args.names.is_empty() || args.names.iter().any(|n| n == attack.name)) {
        let verdict = make(&runtime, args, attack)?;
        let faults = verdict.faults(args.strict);
        if args.json {
            let mut object = verdict.json();
            object["attack"] = json!(attack.name);
            object["faults"] = json!(faults);
            println!("{object}");
        } else {
            println!("{}: {verdict}: {}", attack.name, if faults.is_empty() { "good" } else { "FAILED" });
        }
        for fault in &faults {
            eprintln!("lab: {}: {fault}", attack.name);
        }
        if !faults.is_empty() {
            eprintln!("repeat: cargo x attacks {}", attack.name);
        }
        good &= faults.is_empty();
    }
    Ok(good)
}

/// Starts a server, lets the healthy client run alone for a while, then makes the attack beside it.
fn make(runtime: &Runtime, args: &Args, attack: &Attack) -> Result<Verdict> {
    let scratch = scratch(&format!("attack-{}", attack.name))?;
    let command = command(&scratch, args.space)?;
    let mut server = runtime.block_on(server::start(command))?;
    let target = Arc::new(Target::of(&server, args.connections)?);
    let healthy = Healthy::start(&target)?;
    let memory = Sampler::start(server.child.id(), LOOK)?;
    let pause = |length: Duration| runtime.block_on(async { tokio::time::sleep(length).await });
    pause(ALONE);
    let alone = healthy.mark();
    let attacker = attacker(target.clone(), attack.run, Duration::from_secs(args.seconds))?;
    let attacked = attacker.join().map_err(|_| Error::new(ErrorKind::Io, "the attack panicked"))?;
    let beside = healthy.mark().since(&alone);
    let most_memory = memory.peak();
    let ended = server.child.ended()?;
    healthy.stop();
    let words =
        server.child.said().into_iter().filter(|line| line.split_whitespace().nth(1) == Some("error")).collect();
    Ok(Verdict {
        lives: ended.is_none(),
        most_memory,
        alone,
        beside,
        told: target.told(),
        words,
        attacked: attacked.err(),
    })
}

/// The server, with so many MiB of address space.
fn command(scratch: &Scratch, space: u64) -> Result<Command> {
    let mut command = Command::new(program()?);
    command.args(["serve", "--at", "127.0.0.1:0", "--hdfs", "127.0.0.1:0", "--console", "127.0.0.1:0", "--data"]);
    // Of a size of its own, so that no attack is kept from a full disk.
    command.arg(format!("{}:ssd:{}", scratch.path().join("data").display(), 4 * GIB));
    command.env_remove("STORMWELL_SKIP_SYNC");
    if space > 0 {
        let limit = libc::rlimit { rlim_cur: space * MIB, rlim_max: space * MIB };
        // SAFETY: setrlimit is a plain system call, safe between fork and exec; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
    }
    Ok(command)
}

/// A thread that makes the attack for so long.
fn attacker(
    target: Arc<Target>,
    run: for<'a> fn(&'a Target) -> Attacking<'a>,
    length: Duration,
) -> Result<JoinHandle<Result<()>>> {
    os::thread::spawn("attacker", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let end = tokio::time::sleep(length);
            let ended = tokio::time::timeout(length, run(&target)).await;
            // What it left in the server is a part of the attack: the healthy client has the whole time with it.
            end.await;
            ended.unwrap_or(Ok(()))
        })
    })
}
