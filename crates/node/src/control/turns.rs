//! How a node that is told to keep the metadata with others begins to, and how it begins to lead and ends, whenever its turn comes.

use super::begin;
use crate::keepers::formation::{Links, Outcome};
use crate::keepers::{Keeping, Open, Opened, Several};
use crate::log::Level;
use crate::node::{Node, Role};
use base::id::NodeId;
use base::limit::REPORT_EVERY;
use base::net::Net;
use base::watched::Stopped;
use net::LinkSettings;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A disk of the metadata that cannot be opened at all is tried again after a second, then two, four, and so on up to this.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Keeps the metadata together with others until the node stops: makes the store with them, or finds that it was made, opens it, and leads whenever
/// its turn comes.
pub async fn run(node: Arc<Node>, (network, links): (Arc<dyn Net>, LinkSettings), open: Open, stopped: Stopped) {
    let Role::Several(several) = &node.role else { return };
    let Some(formation) = &several.formation else { return };
    let others = Arc::new(Links::new(network, links));
    let formed = formation.run(others.clone(), node.clock.as_ref(), &node.troubles);
    let outcome = tokio::select! {
        biased;
        () = stopped.until() => return,
        outcome = formed => outcome,
    };
    let (seating, own) = match outcome {
        Outcome::Keeps { seating, own, .. } => (seating, own),
        Outcome::Lost { text, .. } => return several.tell(&node.log, text),
        Outcome::Refused(error) => return several.tell(&node.log, error.to_string()),
    };
    let opened = async {
        let mut pause = AGAIN.0;
        loop {
            match open(&seating, own) {
                Ok(opened) => return opened,
                Err(error) => {
                    several.tell(&node.log, format!("the metadata cannot be kept here: {error}; it is tried again"))
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN.1);
        }
    };
    let Opened { keeper, lanes, engines, note } = tokio::select! {
        biased;
        () = stopped.until() => return,
        opened = opened => opened,
    };
    note.iter().for_each(|note| node.log.say(Level::Info, "metadata", note, &[]));
    let keeping = Keeping { keeper, seating, own, lanes, engines: Mutex::new(engines) };
    let addresses = formation.addresses(&keeping.seating, keeping.own);
    addresses.into_iter().for_each(|(at, node)| keeping.lanes.moved(node, &at));
    keeping.lanes.tell_to(node.troubles.clone());
    keeping.keeper.metadata.tell_to(node.troubles.clone());
    // Its thread may have found it before there was anybody to tell.
    keeping.keeper.metadata.standing().iter().for_each(|text| node.troubles.tell("metadata", text, &[]));
    several.keeping.get_or_init(|| keeping);
    let tells = formation.tell(others.as_ref(), &node.troubles);
    let leads = lead(&node, several, stopped.clone());
    tokio::select! {
        biased;
        () = leads => (),
        () = async {
            tells.await;
            std::future::pending::<()>().await;
        } => (),
    }
}

/// Leads whenever the store does, until the node stops.
async fn lead(node: &Arc<Node>, several: &Several, stopped: Stopped) {
    let Some(Keeping { keeper, lanes, .. }) = several.keeping() else { return };
    let (parts, mut term) = (keeper.metadata.parts(), None);
    loop {
        let part = parts.get();
        let leads = part.leads().then(|| part.term());
        if leads != term {
            // Of a leadership that came and went meanwhile nothing began.
            keeper.end().await;
            if let Some(term) = leads {
                begin(node, keeper, term);
            }
            term = leads;
        }
        tokio::select! {
            biased;
            () = stopped.until() => break,
            () = parts.until(move |now| *now != part) => (),
            () = tokio::time::sleep(REPORT_EVERY) => (),
        }
        // Where the others are by now, as they report it.
        for member in several.membership.view().iter().flat_map(|view| &view.members) {
            lanes.moved(NodeId(member.node.node.value()), &member.node.address);
        }
    }
    keeper.end().await;
}
