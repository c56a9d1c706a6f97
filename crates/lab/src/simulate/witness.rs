//! One client makes names, another one looks for them meanwhile: what somebody has seen stays, whatever happens next.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::Random;
use base::error::ErrorKind;
use client::Client;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// Where the names are.
pub const DIRECTORY: &str = "/witness";

/// Looks for one name.
const LOOKS: u64 = 12;

/// Names that are made; more where another node may lead at any time, of which the one client may hear before the other does.
const NAMES: [u64; 2] = [40, 150];

/// Makes so many names with one client and looks for each with the other.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, maker: &Client, other: &Client) -> Check<()> {
    let made = scene.insist(name, "make_directory", || maker.make_directory(DIRECTORY, true)).await?;
    made.map_err(|error| Broken(format!("{name}: {error}")))?;
    for _ in 0..NAMES[usize::from(scene.keepers > 1)] {
        tokio::time::sleep(Duration::from_millis(random.below(600))).await;
        let path = format!("{DIRECTORY}/{:x}", random.next());
        let make = scene.call(name, "make_directory", maker.make_directory(&path, false));
        let look = look_for(scene, random, name, other, &path);
        let (made, looked) = tokio::join!(make, look);
        looked?;
        if made?.is_ok() {
            // Nobody deletes it, and it was acknowledged before the other one asks.
            let found = scene.call(name, "look_for_anothers", other.stat(&path)).await?;
            if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                return Err(Broken(format!(
                    "{name}: {path} was acknowledged to one client, and another one is told that it is not there"
                )));
            }
            scene.count("acknowledged names looked for by others");
        }
        if random.one_in(NAMES[usize::from(scene.keepers > 1)] / 5) {
            compare(scene, name, other).await?;
        }
    }
    compare(scene, name, other).await
}

async fn look_for(scene: &Scene, random: &SimRandom, name: &str, other: &Client, path: &str) -> Check<()> {
    for _ in 0..LOOKS {
        match scene.call(name, "look_for_anothers", other.stat(path)).await? {
            Ok(_) => {
                scene.oracle().seen.insert(path.to_string());
                if random.one_in(4) {
                    scene.end_now.notify_one();
                }
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            Err(_) => return Ok(()),
        }
        tokio::time::sleep(Duration::from_millis(random.below(2))).await;
    }
    Ok(())
}

/// Everything that was seen is there.
pub async fn compare(scene: &Scene, name: &str, client: &Client) -> Check<()> {
    let seen: Vec<String> = scene.oracle().seen.iter().cloned().collect();
    for path in seen {
        scene.count("names seen again");
        if let Err(error) = scene.insist(name, "stat", || client.stat(&path)).await? {
            return Err(Broken(format!("{name}: {path} was seen by another client and is not there: {error}")));
        }
    }
    Ok(())
}
