//! A change whose answer does not come: one connection of its session stands still while another one goes on, and another client, which
//! has seen what the change did, changes the same. Asked again, the change must not undo what that client was acknowledged.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use base::unit::Time;
use client::Client;
use net::message::{Ask, file, quota, session};
use net::{Link, LinkSettings, Payload};
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// Where it happens.
pub const DIRECTORY: &str = "/again";

/// Changes that are tried in this way.
const ROUNDS: u64 = 8;

/// Looks for what a change has done, before it is given up for not done.
const LOOKS: u64 = 100;

/// Something that a client asks.
#[derive(Clone, Debug)]
enum Wish {
    /// Makes a directory; true: and those above, if they are missing.
    Make(&'static str, bool),
    Put(&'static str),
    Delete(&'static str),
    Rename(&'static str, &'static str),
    Join(&'static str, &'static str),
    Mode(u32),
    Note(u8),
    Attribute(u8),
    Tier(u32),
    Quota(u64),
}

/// What is there before, the change, and what another client does after it.
type Course = (Vec<Wish>, Wish, Vec<Wish>);

fn courses() -> Vec<Course> {
    use Wish::{Attribute, Delete, Join, Make, Mode, Note, Put, Quota, Rename, Tier};
    vec![
        (vec![], Make("x", false), vec![Delete("x")]),
        (vec![], Make("x/y", true), vec![Delete("x")]),
        (vec![], Put("x"), vec![Delete("x")]),
        (vec![Put("x")], Delete("x"), vec![Put("x")]),
        (vec![Put("x")], Rename("x", "y"), vec![Rename("y", "x")]),
        (vec![Put("x"), Put("y")], Rename("x", "y"), vec![Put("x")]),
        (vec![Put("x"), Put("y")], Join("x", "y"), vec![Put("y")]),
        (vec![Mode(0o711)], Mode(0o700), vec![Mode(0o755)]),
        (vec![Note(1)], Note(2), vec![Note(3)]),
        (vec![Attribute(1)], Attribute(2), vec![Attribute(3)]),
        (vec![Tier(2)], Tier(3), vec![Tier(4)]),
        (vec![Quota(90)], Quota(91), vec![Quota(92)]),
    ]
}

async fn ask<A: Ask>(link: &Link, question: &A) -> Result<A::Answer> {
    link.call(question, Payload::empty()).await.map(|(answer, _)| answer)
}

impl Wish {
    /// Asks it once, below a directory.
    async fn ask(&self, link: &Link, at: &str) -> Result<()> {
        let path = |name: &str| format!("{at}/{name}");
        let set = file::SetAttributes { path: at.to_string(), ..file::SetAttributes::default() };
        match self {
            Wish::Make(name, parents) => {
                let make =
                    file::MakeDirectory { path: path(name), parents: *parents, ..file::MakeDirectory::default() };
                ask(link, &make).await.map(drop)
            }
            Wish::Put(name) => {
                let put = file::PutFile { path: path(name), overwrite: true, ..file::PutFile::default() };
                let answer = ask(link, &file::PutFiles { files: vec![put] }).await?;
                match answer.results.into_iter().find(|result| result.code != 0) {
                    Some(failure) => Err(failure.into()),
                    None => Ok(()),
                }
            }
            Wish::Delete(name) => {
                let delete = file::Delete { path: path(name), recursive: true, ..file::Delete::default() };
                ask(link, &delete).await.map(drop)
            }
            Wish::Rename(from, to) => {
                let rename = file::Rename { from: path(from), to: path(to), replace: true, ..file::Rename::default() };
                ask(link, &rename).await.map(drop)
            }
            Wish::Join(target, source) => {
                let sources = vec![path(source)];
                let join = file::Concat { target: path(target), sources, ..file::Concat::default() };
                ask(link, &join).await.map(drop)
            }
            Wish::Mode(mode) => {
                let new = file::NewAttributes { mode: Some(*mode), ..file::NewAttributes::default() };
                ask(link, &file::SetAttributes { new: Some(new), ..set }).await.map(drop)
            }
            Wish::Note(note) => {
                let new = file::NewAttributes { note: Some(vec![*note]), ..file::NewAttributes::default() };
                ask(link, &file::SetAttributes { new: Some(new), ..set }).await.map(drop)
            }
            Wish::Attribute(value) => {
                let (name, value) = ("user.a".to_string(), Some(vec![*value]));
                ask(link, &file::SetXattr { path: at.to_string(), name, value, asked: None, looked: None })
                    .await
                    .map(drop)
            }
            Wish::Tier(tier) => {
                let policy = file::Policy { tier: *tier, ..file::Policy::default() };
                ask(link, &file::SetPolicy { path: at.to_string(), policy }).await.map(drop)
            }
            Wish::Quota(names) => {
                let set = quota::SetQuota { path: at.to_string(), names: Some(*names), bytes: None };
                ask(link, &set).await.map(drop)
            }
        }
    }
}

/// Everything that the wishes change, as anybody sees it; no times.
async fn look(link: &Link, at: &str) -> Result<String> {
    let path = || at.to_string();
    let own = ask(link, &file::Stat { path: path() }).await?;
    let mut seen = format!("mode {:o}, note {:?}", own.mode, own.note);
    for directory in [path(), format!("{at}/x")] {
        match ask(link, &file::List { path: directory, ..file::List::default() }).await {
            Ok(list) => {
                for file::Entry { name, attributes, .. } in list.entries {
                    seen += &format!(", {name} {} {}", attributes.inode, attributes.directory);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => seen += ", none",
            Err(error) => return Err(error),
        }
    }
    let attributes = ask(link, &file::GetXattrs { path: path(), name: String::new() }).await?;
    let policy = ask(link, &file::GetPolicy { path: path() }).await?;
    let limits = ask(link, &quota::GetQuota { path: path() }).await?;
    let names = limits.quota.map(|quota| quota.names_max);
    Ok(format!("{seen}, attributes {:?}, policy {:?}, names {names:?}", attributes.xattrs, policy.own))
}

/// The clients of a history in which answers do not come.
struct Again<'a> {
    scene: &'a Arc<Scene>,
    random: &'a SimRandom,
    name: &'a str,
    /// Where the metadata is kept: the address, and the machine.
    keeper: String,
    machine: String,
}

/// Loses answers to so many changes.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let keeper = match scene.only_address() {
        Some(address) => address,
        None => {
            let view = scene.insist(name, "view", || client.view()).await?;
            let view = view.map_err(|error| Broken(format!("{name}: {error}")))?;
            let keeper = view.members.iter().find(|member| member.node.node == view.keeper);
            keeper.map(|member| member.node.address.clone()).unwrap_or_default()
        }
    };
    let machine = keeper.split_once(':').map_or(keeper.as_str(), |(machine, _)| machine).to_string();
    let again = Again { scene, random, name, keeper, machine };
    let courses = courses();
    for round in 0..ROUNDS {
        let course = &courses[random.below(courses.len() as u64) as usize];
        again.round(round, course).await?;
        tokio::time::sleep(Duration::from_millis(random.below(2_000))).await;
    }
    Ok(())
}

impl Again<'_> {
    /// Does what has to be done, again and again if it must be. What was done by an attempt that nobody answered is done.
    async fn surely(&self, link: &Link, wish: &Wish, at: &str) -> Check<()> {
        let mut tried = false;
        let begun = self.scene.clock.now();
        loop {
            let result = self.scene.call(self.name, "asked_in_between", wish.ask(link, at)).await?;
            match result {
                Ok(()) => return Ok(()),
                Err(error) if tried && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists) => return Ok(()),
                Err(error) if super::scene::may_pass(&error) => tried = true,
                Err(error) => return Err(Broken(format!("{}: {wish:?}: {error}", self.name))),
            }
            self.bounded(begun, wish)?;
            // Nobody else renews it.
            let _any = self.scene.call(self.name, "renew", ask(link, &session::Renew::default())).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn bounded(&self, begun: Time, wish: &Wish) -> Check<()> {
        if self.scene.clock.now().since(begun) > super::scene::CALL_BOUND {
            return Err(Broken(format!("{}: {wish:?} was refused for too long", self.name)));
        }
        Ok(())
    }

    /// What is there, when everybody who changes it was answered.
    async fn stands(&self, link: &Link, at: &str) -> Check<String> {
        let seen = self.scene.insist(self.name, "look", || look(link, at)).await?;
        seen.map_err(|error| Broken(format!("{}: {error}", self.name)))
    }

    async fn round(&self, round: u64, (before, change, after): &Course) -> Check<()> {
        let at = format!("{DIRECTORY}/{:x}", self.random.next());
        // New ones: a session that nobody renews does not live for long.
        let other = self.session(&format!("other {round} {}", self.name)).await?;
        let settings = self.scene.bare_session(self.name, &self.random.fork(&at));
        let settings = LinkSettings { session: SessionId(self.random.wide()), ..settings };
        // Machines of this life alone: one that is cut short does not mend its link.
        let machine = self.name.replace('.', "-");
        let (still, going) = (format!("still {machine}"), format!("going {machine}"));
        let first = self.scene.keepers_link(&still, &self.keeper, &settings).await?;
        let second = self.scene.keepers_link(&going, &self.keeper, &settings).await?;
        let begin = session::Renew::default();
        for link in [&other, &first] {
            let begun = self.scene.insist(self.name, "renew", || ask(link, &begin)).await?;
            begun.map_err(|error| Broken(format!("{}: {error}", self.name)))?;
        }
        let make = file::MakeDirectory { path: at.clone(), parents: true, ..file::MakeDirectory::default() };
        let made = self.scene.insist(self.name, "make_directory", || ask(&other, &make)).await?;
        made.map_err(|error| Broken(format!("{}: {error}", self.name)))?;
        for wish in before {
            self.surely(&other, wish, &at).await?;
        }
        let untouched = self.stands(&other, &at).await?;

        let host = self.scene.net.host(&still);
        let machine = still.split_once('.').map_or(still.as_str(), |(machine, _)| machine);
        self.scene.net.cut_link(&self.machine, machine, false);
        let lost = {
            let (scene, change, at, name) = (self.scene.clone(), change.clone(), at.clone(), self.name.to_string());
            tokio::spawn(async move { scene.call(&name, "asked_again", change.ask(&first, &at)).await })
        };
        let outcome = self.in_between(&other, &second, &at, (&untouched, after)).await;
        let keeps = self.random.one_in(4);
        if !keeps {
            host.cut_all();
        }
        self.scene.net.mend_link(&self.machine, machine);
        let answer = match lost.await {
            Ok(answer) => answer?,
            Err(_) => Err(Error::new(ErrorKind::Unreachable, "it was not asked to its end")),
        };
        let Some(stands) = outcome? else { return Ok(()) };
        let now = self.stands(&other, &at).await?;
        self.scene.count("changes asked again");
        if now != stands {
            return Err(Broken(format!(
                "{}: {change:?} was done, {after:?} of another client came after it, and the first, asked again ({answer:?}), undid it: \
                 there was {stands}, and now there is {now}",
                self.name
            )));
        }
        Ok(())
    }

    /// While the answer does not come. What stands when the other client was acknowledged; none if the change was not seen to be done.
    async fn in_between(
        &self,
        other: &Link,
        going: &Link,
        at: &str,
        (untouched, after): (&str, &[Wish]),
    ) -> Check<Option<String>> {
        let mut seen = false;
        for _ in 0..LOOKS {
            if let Ok(found) = self.scene.call(self.name, "look", look(other, at)).await?
                && found != untouched
            {
                seen = true;
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if !seen {
            return Ok(None);
        }
        // Fewer than the store remembers: more would wait for the answer that does not come.
        let most = (self.scene.remembered_calls as u64 - 1).min(20);
        for number in 0..1 + self.random.below(most) {
            let wish = file::MakeDirectory { path: format!("{at}-{number}"), ..file::MakeDirectory::default() };
            let _any = self.scene.call(self.name, "asked_in_between", ask(going, &wish)).await?;
        }
        for wish in after {
            self.surely(other, wish, at).await?;
        }
        if self.random.one_in(2) {
            tokio::time::sleep(Duration::from_millis(self.random.below(14_000))).await;
        }
        self.stands(other, at).await.map(Some)
    }

    /// A link in a session of its own.
    async fn session(&self, name: &str) -> Check<Link> {
        let settings = self.scene.bare_session(name, &self.random.fork(name));
        let settings = LinkSettings { session: SessionId(self.random.wide()), ..settings };
        self.scene.keepers_link(name, &self.keeper, &settings).await
    }
}
