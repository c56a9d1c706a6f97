//! Checks the limiter: a bare loop over one limited device, in real time, without anything of Stormwell's between.

use super::ground::Tools;
use super::limiter::{LimitedDisk, Speed};
use super::load::Watch;
use super::pattern_disk::PatternDisk;
use super::row::Row;
use base::buffer::Pool;
use base::disk::{Caching, Disk, Done, FileKind, FileName, Fill, Op};
use base::error::Result;
use base::unit::GIB;
use std::sync::Arc;

/// Requests under way, as many as the engine has.
const DEPTH: u64 = 4;

/// The file of the loop goes round after so many requests.
const ROUND: u64 = 64;

/// Writes `bytes` in requests of `length` to a device of this speed and reads them; a row for each. The bar is 2 % below the rate.
pub fn check(tools: &Tools, speed: Speed, length: usize, bytes: u64) -> Result<[Row; 2]> {
    let file = FileName::new(FileKind::Data, 0);
    let kept = Box::new(PatternDisk::new(tools.pattern.clone(), Pool::new(16 << 20)));
    let mut disk = LimitedDisk::new(kept, speed, Arc::default(), tools.clock.clone());
    run(&mut disk, 1, |_| Op::Create { file, size: ROUND * length as u64, fill: Fill::Reserved });
    let count = bytes / length as u64;
    let place = |number: u64| number % ROUND * length as u64;
    let mut measure = |what: &'static str, op: &dyn Fn(u64) -> Op| -> Result<Row> {
        let watch = Watch::start()?;
        run(&mut disk, count, op);
        let cost = watch.end()?;
        let bytes = (count * length as u64) as f64;
        Ok(Row {
            experiment: "limiter",
            what,
            devices: 1,
            rate: speed.rate,
            clients: 0,
            chunk: length,
            window: DEPTH as usize,
            each: count,
            seconds: cost.seconds,
            throughput: bytes / cost.seconds,
            of: speed.rate as f64,
            bar: Some(0.98),
            processor: cost.processor / (bytes / GIB as f64),
            memory: os::process::usage(std::process::id())?.anonymous_bytes,
            note: "a bare loop".to_string(),
        })
    };
    let write = measure("write", &|number| Op::Write {
        file,
        offset: place(number),
        parts: vec![tools.pattern.first(length)],
    })?;
    let read = measure("read", &|number| Op::Read { file, offset: place(number), length, caching: Caching::Around })?;
    Ok([write, read])
}

/// Does so many operations, `DEPTH` at a time.
fn run(disk: &mut dyn Disk, count: u64, op: impl Fn(u64) -> Op) {
    let (mut submitted, mut ended) = (0, 0);
    let mut done: Vec<Done> = Vec::new();
    while ended < count {
        while submitted < count.min(ended + DEPTH) {
            disk.submit(submitted, op(submitted));
            submitted += 1;
        }
        disk.poll(None, &mut done);
        for one in done.drain(..) {
            assert!(one.result.is_ok(), "memory does not fail: {one:?}");
            ended += 1;
        }
    }
}
