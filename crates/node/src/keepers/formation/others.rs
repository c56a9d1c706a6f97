//! The way to the other keepers, while there is no store whose links they could use.

use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::net::{Boxed, Net};
use net::message::keeper as wire;
use net::{Ask, Link, LinkSettings, Payload};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time that one question takes. Answers are small, and made of what is in memory and of one synced file.
const ASK_MAX: Duration = Duration::from_secs(5);

/// Asks the keeper at an address, `host:port`, and says which node answered.
pub trait Others: Send + Sync {
    /// What it has.
    fn form<'a>(&'a self, at: &'a str, ask: wire::Form) -> Boxed<'a, Result<(NodeId, wire::FormAnswer)>>;
    /// Tells it that the store began.
    fn begin<'a>(&'a self, at: &'a str, ask: wire::Begin) -> Boxed<'a, Result<NodeId>>;
}

/// Over the network, each question by a link of its own: it says who answers, and they are few.
pub struct Links {
    network: Arc<dyn Net>,
    settings: LinkSettings,
}

impl Links {
    /// With what a node asks others.
    pub fn new(network: Arc<dyn Net>, settings: LinkSettings) -> Links {
        Links { network, settings: LinkSettings { connections: 1, meant: None, once: false, ..settings } }
    }

    async fn ask<A: Ask>(&self, at: &str, ask: A) -> Result<(NodeId, A::Answer)> {
        let asked = async {
            let link = Link::connect(self.network.clone(), at, self.settings.clone()).await?;
            let (answer, _) = link.call(&ask, Payload::empty()).await?;
            Ok((link.node(), answer))
        };
        match timeout(ASK_MAX, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!("it did not answer for {} s", ASK_MAX.as_secs());
                Err(Error::new(ErrorKind::Unreachable, text))
            }
        }
    }
}

impl Others for Links {
    fn form<'a>(&'a self, at: &'a str, ask: wire::Form) -> Boxed<'a, Result<(NodeId, wire::FormAnswer)>> {
        Box::pin(self.ask(at, ask))
    }

    fn begin<'a>(&'a self, at: &'a str, ask: wire::Begin) -> Boxed<'a, Result<NodeId>> {
        Box::pin(async move { Ok(self.ask(at, ask).await?.0) })
    }
}
