//! Programs of Hadoop that set different things of one directory at the same time, each through any gateway: what a program was told to
//! be set is there until it sets it again, and of several that may make an attribute only if it is new one does.

use super::RECOVERY_MAX;
use super::calls::{Calls, wait_out};
use crate::simulate::oracle::{Broken, Check};
use crate::simulate::scene::Scene;
use base::env::{Clock, Random};
use base::error::{ErrorKind, Result};
use gateway_hdfs::message::hdfs::Permission;
use gateway_hdfs::message::names::{
    AclAnswer, AclEntryProto, AclRequest, BoolAnswer, EmptyAnswer, MkdirsRequest, PathRequest, SetPermissionRequest,
    XattrProto, XattrRequest, XattrsAnswer, XattrsRequest,
};
use prost::Message;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// What they quarrel about.
pub const DIRECTORY: &str = "/settings";

/// Times that all of them set something, and somebody looks.
const ROUNDS: u64 = 12;

/// A user of an access control list.
const USER: u32 = 0;

/// `XattrRequest::flag`: only if it is new; whether it is or not.
const NEW: u32 = 1;
const NEW_OR_NOT: u32 = 3;

/// One program, and what it set.
struct Program {
    scene: Arc<Scene>,
    random: SimRandom,
    who: String,
    directory: String,
    calls: Calls,
    /// The bits of its entry in the list, the value of its attribute, and the bits of others.
    entry: Option<u32>,
    value: Option<u32>,
    others: Option<u32>,
}

/// Lets programs set what belongs to each of them, all of the same directory.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str) -> Check<()> {
    let directory = format!("{DIRECTORY}/{:x}", random.next());
    let program = |label: &str| {
        let who = format!("{name} {label}");
        let random = random.fork(label);
        let calls = Calls::new(scene.clone(), scene.net.host(&who), random.fork("calls"), &who);
        let (entry, value, others) = (None, None, None);
        Program { scene: scene.clone(), random, who, directory: directory.clone(), calls, entry, value, others }
    };
    let mut programs = ["one", "two", "three"].map(program);
    let made: BoolAnswer = {
        let (path, masked) = (directory.clone(), Permission { bits: 0o755 });
        programs[0].surely("mkdirs", &MkdirsRequest { path, masked, parents: true, open: None }).await?
    };
    if !made.result {
        return Err(Broken(format!("{name}: {directory} was not made")));
    }
    for round in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(random.below(1_000))).await;
        let [one, two, three] = &mut programs;
        let made = match random.below(3) {
            // Only one of them may have it.
            0 => {
                let (one, two, three) = tokio::join!(one.make(round), two.make(round), three.make(round));
                [one?, two?, three?]
            }
            _ => {
                let (one, two, three) = tokio::join!(one.set(), two.set(), three.mode());
                one?;
                two?;
                three?;
                [Some(false); 3]
            }
        };
        if made.iter().filter(|made| **made == Some(true)).count() > 1 {
            return Err(Broken(format!("{name}: several made the attribute n{round} of {directory} anew: {made:?}")));
        }
        for program in &mut programs {
            program.look().await?;
        }
        scene.count("hdfs settings compared");
    }
    Ok(())
}

impl Program {
    async fn call<A: Message + Default>(&mut self, method: &'static str, request: &impl Message) -> Check<Result<A>> {
        if self.random.one_in(3) {
            self.calls.go_elsewhere();
        }
        self.scene.call(&self.who, "hdfs settings", self.calls.ask(method, request)).await
    }

    /// Asks until it is done by a call that was answered at once: no other copy of it is on its way.
    async fn surely<A: Message + Default>(&mut self, method: &'static str, request: &impl Message) -> Check<A> {
        let begun = self.scene.clock.now();
        loop {
            let doubts = self.calls.doubts;
            let error = match self.call::<A>(method, request).await? {
                Ok(answer) if self.calls.doubts == doubts => return Ok(answer),
                Ok(_) => None,
                Err(error) => Some(error),
            };
            if self.scene.clock.now().since(begun) > 4 * RECOVERY_MAX {
                return Err(Broken(format!("{}: {method} is refused for ever: {error:?}", self.who)));
            }
            tokio::time::sleep(self.scene.late).await;
        }
    }

    /// Asks until it is answered.
    async fn insist<A: Message + Default>(&mut self, method: &'static str, question: &impl Message) -> Check<A> {
        let begun = self.scene.clock.now();
        loop {
            match self.call::<A>(method, question).await? {
                Ok(answer) => return Ok(answer),
                Err(refusal) => wait_out(&self.scene, begun, &self.who, method, refusal).await?,
            }
        }
    }

    /// The name by which its own things are known.
    fn label(&self) -> String {
        self.who.rsplit(' ').next().unwrap_or_default().to_string()
    }

    /// Sets its entry of the list, or its attribute.
    async fn set(&mut self) -> Check<()> {
        if self.random.one_in(2) {
            let (bits, name) = (self.random.below(8) as u32, Some(self.label()));
            let entry = AclEntryProto { kind: USER, scope: 0, permissions: bits, name };
            let ask = AclRequest { path: self.directory.clone(), entries: vec![entry] };
            self.surely::<EmptyAnswer>("modifyAclEntries", &ask).await?;
            self.entry = Some(bits);
        } else {
            let value = 1 + self.random.below(250) as u32;
            let ask = self.attribute(self.label(), value, NEW_OR_NOT);
            self.surely::<EmptyAnswer>("setXAttr", &ask).await?;
            self.value = Some(value);
        }
        Ok(())
    }

    fn attribute(&self, name: String, value: u32, flag: u32) -> XattrRequest {
        let xattr = Some(XattrProto { namespace: 0, name, value: Some(value.to_string().into_bytes()) });
        XattrRequest { path: self.directory.clone(), xattr, flag: Some(flag) }
    }

    /// Makes an attribute that others make at the same time. None: nobody knows whether it did.
    async fn make(&mut self, round: u64) -> Check<Option<bool>> {
        let ask = self.attribute(format!("n{round}"), 7, NEW);
        Ok(match self.call::<EmptyAnswer>("setXAttr", &ask).await? {
            Ok(_) => Some(true),
            Err(error) if error.kind() == ErrorKind::Unreachable => None,
            Err(_) => Some(false),
        })
    }

    /// Sets the bits of others, which no entry of the list changes.
    async fn mode(&mut self) -> Check<()> {
        let bits = self.random.below(8) as u32;
        let ask = SetPermissionRequest { path: self.directory.clone(), permission: Permission { bits: 0o750 | bits } };
        self.surely::<EmptyAnswer>("setPermission", &ask).await?;
        self.others = Some(bits);
        Ok(())
    }

    /// What it set is there.
    async fn look(&mut self) -> Check<()> {
        let (path, label) = (self.directory.clone(), self.label());
        let AclAnswer { status } = self.insist("getAclStatus", &PathRequest { path: path.clone() }).await?;
        let others = status.permission.map(|permission| permission.bits & 7);
        let entry = status.entries.iter().find(|entry| entry.scope == 0 && entry.name.as_deref() == Some(&label));
        let entry = entry.map(|entry| entry.permissions);
        let ask = XattrsRequest { path: path.clone(), xattrs: Vec::new() };
        let XattrsAnswer { xattrs } = self.insist("getXAttrs", &ask).await?;
        let value = xattrs.iter().find(|xattr| xattr.name == label).and_then(|xattr| xattr.value.clone());
        let wanted = self.value.map(|value| value.to_string().into_bytes());
        if entry != self.entry || value != wanted || self.others.is_some() && others != self.others {
            return Err(Broken(format!(
                "{}: {path} was set to {:?}, {wanted:?}, {:?} by {label}, and has {entry:?}, {value:?}, {others:?}",
                self.who, self.entry, self.others
            )));
        }
        Ok(())
    }
}
