//! Who runs this process, by name, and which groups users are in.
#![allow(clippy::disallowed_methods)] // The lists of users are not data that an engine keeps.

use base::env::Clock;
use base::unit::Time;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The names of the process' effective user and group as /etc/passwd and /etc/group have them; their numbers where those
/// do not know them (users of a directory service).
pub fn current() -> (String, String) {
    // SAFETY: both calls only read a number of the process, and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    (name_of("/etc/passwd", user), name_of("/etc/group", group))
}

fn name_of(list: &str, number: u32) -> String {
    let text = std::fs::read(list).unwrap_or_default();
    find(&String::from_utf8_lossy(&text), number).unwrap_or_else(|| number.to_string())
}

/// The name in the line whose third field is the number.
fn find(list: &str, number: u32) -> Option<String> {
    let number = number.to_string();
    let line = list.lines().find(|line| line.split(':').nth(2) == Some(number.as_str()))?;
    line.split(':').next().filter(|name| !name.is_empty()).map(str::to_string)
}

/// How long what the lists said is believed.
const BELIEVED: Duration = Duration::from_secs(60);

/// Users whose groups are remembered at once. Programs may make up names.
const REMEMBERED: usize = 1024;

/// The groups of users, as /etc/passwd and /etc/group have them. Remembered for a minute.
pub struct Groups {
    clock: Arc<dyn Clock>,
    known: Mutex<BTreeMap<String, (Time, Vec<String>)>>,
}

impl Groups {
    /// Nothing is remembered yet.
    pub fn new(clock: Arc<dyn Clock>) -> Groups {
        Groups { clock, known: Mutex::default() }
    }

    /// The names of a user's groups, the primary one first; empty if the lists do not know the user.
    pub fn of(&self, user: &str) -> Vec<String> {
        let now = self.clock.now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, groups)) = known.get(user)
            && now.since(*since) < BELIEVED
        {
            return groups.clone();
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let list = |path: &str| std::fs::read(path).unwrap_or_default();
        let (passwords, groups) = (list("/etc/passwd"), list("/etc/group"));
        let groups = groups_in(&String::from_utf8_lossy(&passwords), &String::from_utf8_lossy(&groups), user);
        known.insert(user.to_string(), (now, groups.clone()));
        groups
    }
}

/// The groups of a user: the primary one, which the list of users names by its number, then those that list them.
fn groups_in(users: &str, groups: &str, user: &str) -> Vec<String> {
    let mut names = Vec::new();
    let primary =
        users.lines().find(|line| line.split(':').next() == Some(user)).and_then(|line| line.split(':').nth(3));
    if let Some(number) = primary.and_then(|number| number.parse().ok()) {
        names.extend(find(groups, number));
    }
    for line in groups.lines() {
        let mut fields = line.split(':');
        let (name, members) = (fields.next().unwrap_or_default(), fields.nth(2).unwrap_or_default());
        let listed = !user.is_empty() && members.split(',').any(|member| member.trim() == user);
        if listed && !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_string());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{Groups, current, find, groups_in};
    use crate::clock::SystemClock;
    use std::sync::Arc;

    /// A user's groups are the primary one, then those that list them, each once; nobody is in none.
    #[test]
    fn groups() {
        let users = "root:x:0:0::/:/bin/sh\nada:x:1000:100::/home/ada:/bin/sh\nbad:x:1\n:x:7:100::/:\n";
        let groups = "root:x:0:\nusers:x:100:bob,ada\nada:x:1000:ada\nwheel:x:10:root,ada\nusers2:x:101:ada, bob\nbroken\n::5:ada\n";
        assert_eq!(groups_in(users, groups, "ada"), ["users", "ada", "wheel", "users2"]);
        assert_eq!(groups_in(users, groups, "root"), ["root", "wheel"]);
        assert_eq!(groups_in(users, groups, "bob"), ["users", "users2"]);
        assert!(groups_in(users, groups, "eve").is_empty() && groups_in(users, groups, "bad").is_empty());
        assert_eq!(groups_in(users, groups, ""), ["users"]);
        let known = Groups::new(Arc::new(SystemClock::new()));
        let (user, group) = current();
        assert_eq!(known.of(&user).first(), Some(&group));
        for made_up in 0..3000 {
            assert!(known.of(&format!("no such user {made_up}")).is_empty());
        }
        assert!(known.known.lock().unwrap().len() <= super::REMEMBERED);
    }

    /// Names are found by their number; broken lines and unknown numbers do no harm.
    #[test]
    fn names() {
        let list = "root:x:0:0:root:/root:/bin/sh\nnonsense\n:x:5:\nada:x:1000:1000::/home/ada:/bin/sh\n";
        assert_eq!(find(list, 1000).as_deref(), Some("ada"));
        assert_eq!(find(list, 0).as_deref(), Some("root"));
        assert_eq!((find(list, 5), find(list, 7)), (None, None));
        let (user, group) = current();
        assert!(!user.is_empty() && !group.is_empty());
    }
}
