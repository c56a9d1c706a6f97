//! The clients of a history: what each does from its first call to its last, and the hosts that they are.

use super::again;
use super::bags::{self, Puller, Pusher};
use super::files::Files;
use super::filled;
use super::hdfs::{self, Hdfs};
use super::onlooker;
use super::operator;
use super::oracle::Check;
use super::outlived;
use super::passes;
use super::passing;
use super::returned;
use super::rivals::{self, Rivals};
use super::scene::Scene;
use super::sealing;
use super::unanswered;
use super::witness;
use base::env::Random;
use base::limit::SESSION_LEASE;
use client::Client;
use sim::net::{Gone, SimNet};
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// Works with files in the directory of this number.
    Files(usize),
    /// The same, and writes slowly.
    SlowFiles(usize),
    /// Works with files in the directory of this number as a program of Hadoop does.
    Hdfs(usize),
    /// Takes files from another program of Hadoop.
    Taken,
    /// Sets things of a directory while other programs of Hadoop do.
    Settings,
    /// Pushes into the bag of this number.
    Push(usize),
    /// Pulls from it.
    Pull(usize),
    /// Is taken for dead and comes back.
    Returned,
    /// Looks for the names that another one makes.
    Witness,
    /// Changes the same names as others.
    Rivals,
    /// Loses answers to changes, and asks them again.
    Again,
    /// Makes bags and deletes them.
    Passing,
    /// Goes through a bag several times.
    Passes,
    /// Seals bags while pushes are under way.
    Sealing,
    /// Pushes and hears no answer.
    Unanswered,
    /// Pushes to a full device, and its session ends.
    Outlived,
    /// Writes to a full device that is emptied.
    Filled,
    /// Looks at who is in the cluster.
    Onlooker,
    /// Takes the node of this number out of the cluster.
    Operator(usize),
}

/// All clients of a history.
pub struct Players {
    scene: Arc<Scene>,
    players: Vec<Player>,
    outcomes: (mpsc::Sender<Outcome>, mpsc::Receiver<Outcome>),
}

struct Player {
    role: Role,
    name: String,
    life: u64,
    host: SimNet,
    task: AbortHandle,
    done: bool,
}

/// How a client ended: its place, which life of it, and what it found. Nothing: it was cut off until its session was over.
type Outcome = (usize, u64, Check<Option<()>>);

impl Players {
    /// Nobody yet.
    pub fn new(scene: Arc<Scene>) -> Players {
        Players { scene, players: Vec::new(), outcomes: mpsc::channel(64) }
    }

    /// Another client begins.
    pub fn begin(&mut self, role: Role) {
        let player = self.player(self.players.len(), role, 1, Duration::ZERO);
        self.players.push(player);
    }

    /// Whether one of them is not done.
    pub fn are_playing(&self) -> bool {
        self.players.iter().any(|player| !player.done)
    }

    /// Waits until one of them ends. What it found, if that breaks a promise.
    pub async fn ended(&mut self) -> Check<()> {
        let Some((place, life, result)) = self.outcomes.1.recv().await else {
            unreachable!("the players' own end of the channel stays")
        };
        let finished = result?.is_some();
        if self.players[place].life == life {
            match finished {
                true => self.players[place].done = true,
                false => self.replace(place, Duration::ZERO),
            }
        }
        Ok(())
    }

    /// The machine of one of them is gone; another one takes its place. False: that one was done.
    pub fn replace_one(&mut self, random: &SimRandom) -> bool {
        let place = random.below(self.players.len() as u64) as usize;
        if self.players[place].done {
            return false;
        }
        let silent = random.one_in(2);
        let player = &self.players[place];
        player.host.leave(if silent { Gone::Silent } else { Gone::Reset });
        player.task.abort();
        // Half of the time its session has ended before another one begins, and what it left open was closed by the node.
        let pause = if random.one_in(2) { SESSION_LEASE + Duration::from_secs(5) } else { Duration::ZERO };
        self.replace(place, pause);
        true
    }

    /// Another client takes the place, after a pause.
    fn replace(&mut self, place: usize, pause: Duration) {
        let Player { role, life, .. } = self.players[place];
        // What the one before has under way must be over for those who know what is there.
        let pause = match role {
            // Those who come next clear the names and then know of each what stands there: a change of the ones before that is still on the
            // wire would come after that. One node ends what is under way only when it ends itself, and it need not.
            Role::Rivals => pause.max(self.scene.late).max(rivals::SURELY_OVER),
            Role::Files(_) | Role::SlowFiles(_) | Role::Hdfs(_) | Role::Returned => pause.max(self.scene.late),
            _ => pause,
        };
        self.players[place] = self.player(place, role, life + 1, pause);
    }

    /// The machine of one of them; none: nobody is there.
    pub fn machine_of_one(&self, random: &SimRandom) -> Option<String> {
        let place = random.below(self.players.len().max(1) as u64) as usize;
        self.players.get(place).map(|player| player.name.split_once('.').map_or("", |(machine, _)| machine).to_string())
    }

    /// The directories of those that work with files.
    pub fn directories(&self) -> Vec<String> {
        let place = |player: &Player| match player.role {
            Role::Files(place) | Role::SlowFiles(place) => Some(directory_of(place)),
            Role::Hdfs(place) => Some(hdfs::directory_of(place)),
            _ => None,
        };
        self.players.iter().filter_map(place).collect()
    }

    /// The names of the nodes that somebody takes out, or tried to.
    pub fn taken_out(&self) -> BTreeSet<String> {
        let node = |player: &Player| match player.role {
            Role::Operator(node) => Some(format!("node{node}")),
            _ => None,
        };
        self.players.iter().filter_map(node).collect()
    }

    /// How many of them there are.
    pub fn leaving(&self) -> usize {
        self.taken_out().len()
    }

    /// A client on a host of its own, which begins after a while.
    fn player(&self, place: usize, role: Role, life: u64, pause: Duration) -> Player {
        let name = match role {
            Role::Files(_) => format!("files {place}.{life}"),
            Role::SlowFiles(_) => format!("slow files {place}.{life}"),
            Role::Hdfs(_) => format!("hdfs {place}.{life}"),
            Role::Taken => format!("taken {place}.{life}"),
            Role::Settings => format!("settings {place}.{life}"),
            Role::Push(bag) => format!("push {place}.{life} to bag {bag}"),
            Role::Pull(bag) => format!("pull {place}.{life} from bag {bag}"),
            Role::Returned => format!("returned {place}.{life}"),
            Role::Witness => format!("witness {place}.{life}"),
            Role::Passing => format!("passing {place}.{life}"),
            Role::Rivals => format!("rivals {place}.{life}"),
            Role::Again => format!("again {place}.{life}"),
            Role::Passes => format!("passes {place}.{life}"),
            Role::Sealing => format!("sealing {place}.{life}"),
            Role::Unanswered => format!("unanswered {place}.{life}"),
            Role::Outlived => format!("outlived {place}.{life}"),
            Role::Filled => format!("filled {place}.{life}"),
            Role::Onlooker => format!("onlooker {place}.{life}"),
            Role::Operator(node) => format!("operator {place}.{life} of node{node}"),
        };
        let host = self.scene.net.host(&name);
        let (scene, random, tell) = (self.scene.clone(), self.scene.random.fork(&name), self.outcomes.0.clone());
        let who = name.clone();
        let task = tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            let outcome = act(scene, role, who, random).await;
            // The director may have seen enough.
            let _ = tell.send((place, life, outcome)).await;
        });
        Player { role, name, life, host, task: task.abort_handle(), done: false }
    }
}

fn directory_of(place: usize) -> String {
    format!("/d{place}")
}

async fn act(scene: Arc<Scene>, role: Role, name: String, random: SimRandom) -> Check<Option<()>> {
    let (client, host) = scene.connect(&name, &random).await?;
    let mut others = Vec::new();
    let labels: &[&str] = match role {
        Role::Files(_) if !scene.late.is_zero() => &["reader"],
        Role::SlowFiles(_) => &["reader"],
        Role::Witness => &["other"],
        Role::Rivals => &["second", "third"],
        Role::Passes | Role::Sealing => &["second"],
        _ => &[],
    };
    for label in labels {
        others.push(scene.connect(&name, &random.fork(label)).await?.0);
    }
    let may_end = !scene.late.is_zero();
    let sessions = [Some(&client), others.first(), others.get(1)].map(Option::<&Client>::cloned);
    tokio::select! {
        biased;
        () = one_over(sessions), if may_end => Ok(None),
        outcome = play(scene, role, name, random, (client, host), others) => outcome.map(Some),
    }
}

/// Waits until one of these sessions is over because it could not be renewed.
async fn one_over(sessions: [Option<Client>; 3]) {
    let over = async |client: &Option<Client>| match client {
        Some(client) => client.session_over().await,
        None => std::future::pending().await,
    };
    tokio::select! {
        biased;
        () = over(&sessions[0]) => (),
        () = over(&sessions[1]) => (),
        () = over(&sessions[2]) => (),
    }
}

async fn play(
    scene: Arc<Scene>,
    role: Role,
    name: String,
    random: SimRandom,
    (client, host): (Client, SimNet),
    mut others: Vec<Client>,
) -> Check<()> {
    let several = !scene.late.is_zero();
    match role {
        Role::Files(place) => {
            let mut files = Files::new(scene, client, random, &name, &directory_of(place));
            match others.pop() {
                Some(reader) => files.read_by(reader).work(150).await,
                None => files.work(60).await,
            }
        }
        Role::SlowFiles(place) => {
            let files = Files::new(scene, client, random, &name, &directory_of(place));
            files.read_by(others.swap_remove(0)).slowly().work(20).await
        }
        Role::Hdfs(place) => Hdfs::new(scene, client, host, random, &name, place).work(40).await,
        Role::Taken => hdfs::taken::play(&scene, &random, &name, &client).await,
        Role::Settings => hdfs::settings::play(&scene, &random, &name).await,
        Role::Push(number) => {
            let bag = bags::open(&scene, &name, &client, number).await?;
            let (pause_max, turns) = if several { (800, 60) } else { (100, 25) };
            Pusher { scene, random, name, number, client, bag, pause_max }.work(turns).await
        }
        Role::Pull(number) => {
            let bag = bags::open(&scene, &name, &client, number).await?;
            Puller::new(scene, random, &name, number, bag).work(if several { 150 } else { 80 }).await
        }
        Role::Returned => returned::play(scene, random, name, client).await,
        Role::Witness => witness::play(&scene, &random, &name, &client, &others[0]).await,
        Role::Passing => passing::play(&scene, &random, &name, &client).await,
        Role::Rivals => {
            others.insert(0, client);
            Rivals::new(scene, random, &name, others).work(12).await
        }
        Role::Again => again::play(&scene, &random, &name, &client).await,
        Role::Passes => passes::play(&scene, &random, &name, &client, &others[0]).await,
        Role::Sealing => sealing::play(&scene, &random, &name, &client, &others[0]).await,
        Role::Unanswered => unanswered::play(&scene, &random, &name, &client).await,
        Role::Outlived => outlived::play(&scene, &random, &name, &client).await,
        Role::Filled => filled::play(&scene, &random, &name, &client).await,
        Role::Onlooker => onlooker::play(&scene, &random, &name, &client).await,
        Role::Operator(node) => operator::play(&scene, &random, &name, &client, &format!("node{node}")).await,
    }
}
