//! Status queries to a node without a session; they work while the node is not well.

use crate::client::Settings;
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use net::message::session::{Look, LookAnswer};
use net::{Asker, CallNumbers, Link, LinkSettings, Payload};

/// A link to a node that changes nothing there.
pub struct StatusQuery {
    link: Link,
}

impl StatusQuery {
    /// Connects to the first node that is named: each answers for itself. `Unreachable` if that does not; later calls connect again by themselves.
    pub async fn connect(settings: Settings) -> Result<StatusQuery> {
        let Settings { net, addresses, program, credentials, clock, random, pool, silence_max, .. } = settings;
        let settings = LinkSettings {
            session: SessionId(random.wide()),
            program,
            connections: 1,
            silence_max,
            pool,
            clock,
            random,
            credentials,
            asker: Asker::Client,
            numbers: CallNumbers::default(),
            meant: None,
            once: false,
        };
        let address = addresses.first().map(String::as_str).unwrap_or_default();
        Ok(StatusQuery { link: Link::connect(net, address, settings).await? })
    }

    /// How the node is, and its page of metrics (see `LookAnswer`).
    pub async fn look(&self) -> Result<(LookAnswer, String)> {
        let (answer, payload) = self.link.call(&Look {}, Payload::empty()).await?;
        let page = payload.parts().concat();
        let page = String::from_utf8(page)
            .map_err(|_| Error::new(ErrorKind::Protocol, "the node's page of metrics is no text; use one version"))?;
        Ok((answer, page))
    }
}
