//! What other keepers of the metadata say to this node.

use super::respond;
use crate::keepers::{Keeping, formation, steps::take_step};
use crate::node::{Node, Role};
use base::error::{Error, ErrorKind};
use net::message::{Ask, keeper as wire};
use net::{Asker, Call};

impl Node {
    /// Takes what another keeper says. To begin a store a small file is written, so that is done apart.
    pub fn speak_as_keeper(&self, mut call: Call) {
        let Role::Several(several) = &self.role else { return call.respond.fail(formation::none_here()) };
        if call.kind == wire::Step::KIND {
            return match several.keeping() {
                Some(Keeping { keeper, seating, own, .. }) => take_step(call, seating, *own, &keeper.metadata),
                None => call.respond.fail(not_yet()),
            };
        }
        let (Asker::Node { node: asker, .. }, Some(formation)) = (call.asker, several.formation.clone()) else {
            return call.respond.fail(formation::none_here());
        };
        self.apart(call.request, async move {
            if call.kind == wire::Form::KIND {
                let asked = call.ask::<wire::Form>();
                respond(call.respond, asked.and_then(|ask| formation.form(asker, &ask)));
            } else {
                let asked = call.ask::<wire::Begin>();
                respond(call.respond, asked.and_then(|ask| formation.begin(asker, &ask)));
            }
        });
    }
}

fn not_yet() -> Error {
    let text = "this node does not keep the metadata yet, or not any more; nothing was done; ask again";
    Error::new(ErrorKind::Busy, text)
}
