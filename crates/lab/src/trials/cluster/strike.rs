//! What happens to a cluster in a trial: a blow, and how it is mended.

use super::network::Network;
use super::nodes::Node;
use crate::trials::report::{Counts, Found};
use base::env::Random;
use sim::random::SimRandom;
use std::fmt;
use std::time::Duration;

/// One of the things that happen. Hosts are counted as the network does: nodes first, clients behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// A node that does not keep the metadata is killed; of several keepers any node.
    KillMember(usize),
    /// The node that keeps the metadata is killed, of several the one that leads.
    KillKeeper,
    /// All nodes are killed at once, and started in any order.
    KillAll,
    /// A node stands still for longer than the others wait for it.
    Pause(usize),
    /// Two hosts do not reach each other.
    Cut(usize, usize),
    /// The first does not reach the second; the other way round nothing is lost.
    HalfCut(usize, usize),
    /// Nobody reaches a host, and it reaches nobody.
    Isolate(usize),
    /// The disk of the last node is full.
    FillDisk,
}

/// Kinds of strikes; a trial's seed modulo this is its first.
pub const KINDS: u64 = 8;

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Strike {
    /// A strike of this kind against `nodes` nodes and `clients` clients.
    pub fn draw(kind: u64, nodes: usize, clients: usize, random: &SimRandom) -> Strike {
        let below = |bound: usize| random.below(bound as u64) as usize;
        // A link has a node at one end at least: clients do not speak to each other. Half of them are those of the node that keeps
        // the metadata, which everybody speaks to.
        let pair = || {
            let node = if random.below(2) == 0 { 0 } else { below(nodes) };
            let other = below(nodes + clients - 1);
            let other = if other >= node { other + 1 } else { other };
            if random.below(2) == 0 { (node, other) } else { (other, node) }
        };
        match kind % KINDS {
            0 => Strike::KillMember(1 + below(nodes - 1)),
            1 => {
                let (from, to) = pair();
                Strike::HalfCut(from, to)
            }
            2 => Strike::KillKeeper,
            3 => Strike::Pause(below(nodes)),
            4 => Strike::KillAll,
            5 => {
                let (one, other) = pair();
                Strike::Cut(one, other)
            }
            6 => Strike::Isolate(below(nodes)),
            _ => Strike::FillDisk,
        }
    }

    /// How long it lasts: a killed node is away for a moment or longer than the others wait for it, everything else is mostly
    /// longer than nodes (5 s) and sometimes than clients (10 s) wait.
    pub fn lasts(self, random: &SimRandom) -> Duration {
        let millis = match self {
            Strike::KillMember(_) | Strike::KillKeeper | Strike::KillAll => match random.below(3) {
                0 => 5000 + random.below(4000),
                _ => random.below(1500),
            },
            Strike::FillDisk => 2000 + random.below(4000),
            _ => match random.below(3) {
                0 => 500 + random.below(4000),
                1 => 5500 + random.below(2000),
                _ => 10_500 + random.below(2000),
            },
        };
        Duration::from_millis(millis)
    }

    /// Does it. `leads`: the node that keeps the metadata, or leads those that do.
    pub fn strike(
        self,
        (nodes, leads): (&mut [Node], usize),
        network: &Network,
        hosts: usize,
        counts: &mut Counts,
    ) -> Found<()> {
        match self {
            Strike::KillMember(node) => nodes[node].kill(),
            Strike::KillKeeper => nodes[leads].kill(),
            Strike::KillAll => nodes.iter_mut().for_each(Node::kill),
            Strike::Pause(node) => nodes[node].pause(),
            Strike::FillDisk => nodes[nodes.len() - 1].fill_disk()?,
            Strike::Cut(..) | Strike::HalfCut(..) | Strike::Isolate(_) => {
                self.ways(hosts).into_iter().try_for_each(|(from, to)| network.cut(from, to))?;
            }
        }
        match self {
            Strike::KillMember(_) | Strike::KillKeeper => counts.stops += 1,
            Strike::KillAll => counts.stops += nodes.len() as u64,
            Strike::Pause(_) => counts.pauses += 1,
            Strike::Cut(..) | Strike::Isolate(_) => counts.cuts += 1,
            Strike::HalfCut(..) => counts.half_cuts += 1,
            Strike::FillDisk => counts.filled += 1,
        }
        Ok(())
    }

    /// Mends it.
    pub async fn mend(
        self,
        nodes: &mut [Node],
        network: &Network,
        hosts: usize,
        random: &SimRandom,
        counts: &mut Counts,
    ) -> Found<()> {
        match self {
            Strike::KillMember(_) | Strike::KillKeeper | Strike::KillAll => {
                let mut left: Vec<usize> = (0..nodes.len()).collect();
                while !left.is_empty() {
                    let node = left.swap_remove(random.below(left.len() as u64) as usize);
                    nodes[node].start(random, counts).await?;
                }
            }
            Strike::Pause(node) => nodes[node].go_on(),
            Strike::FillDisk => nodes[nodes.len() - 1].empty_disk()?,
            Strike::Cut(..) | Strike::HalfCut(..) | Strike::Isolate(_) => {
                self.ways(hosts).into_iter().try_for_each(|(from, to)| network.mend(from, to))?;
            }
        }
        Ok(())
    }

    /// The ways that are cut, as (from, to).
    fn ways(self, hosts: usize) -> Vec<(usize, usize)> {
        match self {
            Strike::Cut(one, other) => vec![(one, other), (other, one)],
            Strike::HalfCut(from, to) => vec![(from, to)],
            Strike::Isolate(host) => {
                let others = (0..hosts).filter(|other| *other != host);
                others.flat_map(|other| [(host, other), (other, host)]).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KINDS, Strike};
    use sim::random::SimRandom;
    use std::collections::BTreeSet;

    /// Every strike is against hosts that are there, a link has two ends and a node at one of them, and members are not the keeper.
    #[test]
    fn strikes_hit() {
        let (nodes, clients) = (3, 2);
        let random = SimRandom::new(1);
        let mut ways = BTreeSet::new();
        for kind in 0..KINDS * 200 {
            let strike = Strike::draw(kind, nodes, clients, &random);
            match strike {
                Strike::KillMember(member) => assert!((1..nodes).contains(&member)),
                Strike::Pause(node) | Strike::Isolate(node) => assert!(node < nodes),
                _ => (),
            }
            for (from, to) in strike.ways(nodes + clients) {
                assert!(from != to && from.max(to) < nodes + clients && from.min(to) < nodes, "{strike}");
            }
            if let Strike::HalfCut(from, to) = strike {
                ways.insert((from, to));
            }
        }
        assert_eq!(
            ways.len(),
            18,
            "each way that is used is cut some day: 6 between nodes, 12 between nodes and clients"
        );
    }
}
