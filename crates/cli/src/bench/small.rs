//! Rows about many small files: the demo's tree put and got by the commands that people use, beside `cp -r` and syncfs.

use super::ground::Ground;
use super::row::{Bar, Row};
use crate::child;
use crate::demo::compare::compare;
use crate::demo::tree::{Tree, sync_file_system};
use base::error::{Error, ErrorKind, Result};
use base::unit::show_bytes;
use harness::stopwatch::Stopwatch;

/// `small_put` and `small_get`: files a second.
pub async fn rows(ground: &mut Ground) -> Result<[Row; 2]> {
    let tree = Tree::choose(ground.tree.as_deref(), ground.scratch.path())?;
    let what = format!("{} files, {} of {}", tree.files.len(), show_bytes(tree.bytes), tree.about);
    let (mut put, mut get) = (row("small_put"), row("small_get"));
    put.note = format!("stormwell put of {what}; goal 20000 files/s");
    get.note = "stormwell get of the same, then syncfs; goal 20000 files/s".to_string();
    let files = tree.files.len() as f64;
    let root = tree.root.display().to_string();
    tree.warm()?;
    for round in 0..ground.rounds {
        // They are removed at the end: ext4 looks past each inode that was given back in the last minutes when it takes a new one, which made
        // every round but the first ten times slower, ours and that of `cp`.
        let [copy, back, bare] = ["cp", "get", "bare"].map(|what| ground.scratch.join(&format!("{what}-{round}")));
        let stored = format!("/bench-tree-{round}");
        ground.settle().await?;
        let seconds = tree.copy_with_cp(copy.as_ref())?;
        put.raw.push(files / seconds);
        get.raw.push(files / seconds);
        ground.settle().await?;
        let at = ground.address().to_string();
        let since = ground.since()?;
        child::run(&["put", &root, &stored, "--at", &at, "--quiet"])?;
        let spent = ground.spent(&since)?;
        put.values.push(files / spent.seconds);
        put.moved.push(spent.wrote(tree.bytes));
        ground.settle().await?;
        let watch = Stopwatch::start();
        child::run(&["get", &stored, &back, "--at", &at, "--quiet"])?;
        sync_file_system(ground.scratch.path())?;
        get.values.push(files / watch.seconds());
        let found = compare(&tree, back.as_ref())?;
        if found.wrong > 0 {
            let text = format!("{} files came back wrong: {}", found.wrong, found.named.join(", "));
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        ground.settle().await?;
        get.floor.push(files / ground.raw.bare_tree(&tree, bare.as_ref())?);
        ground.connect().await?.delete(&stored, true).await?;
    }
    for round in 0..ground.rounds {
        for what in ["cp", "get", "bare"] {
            std::fs::remove_dir_all(ground.scratch.join(&format!("{what}-{round}")))?;
        }
    }
    Ok([put, get])
}

fn row(name: &'static str) -> Row {
    let mut row = Row::new(name, "files/s");
    row.bar = Bar::AtLeast(if name == "small_get" { 25_000.0 } else { 3000.0 });
    row.raw_is = "cp -r of the same tree on the same disk, then syncfs".to_string();
    row.raw_tool = "cp";
    row
}
