//! Who runs this process, by name, and which groups users are in.
#![allow(clippy::disallowed_methods)] // The lists of users are not data that an engine keeps.

use base::env::Clock;
use base::unit::Time;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The names of the process' effective user and group as /etc/passwd and /etc/group have them; their numbers where those
/// do not know them (users of a directory service).
pub fn current() -> (String, String) {
    // SAFETY: both calls only read a number of the process, and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    (name_of("/etc/passwd", user), name_of("/etc/group", group))
}

/// The name of the process' effective user, and those of the groups that it is in, the effective one first.
pub fn with_groups() -> (String, Vec<String>) {
    let (user, group) = current();
    // SAFETY: without room it only says how many there are.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) }.max(0);
    let mut numbers = vec![0; count as usize];
    // SAFETY: there is room for as many as are said.
    let count = unsafe { libc::getgroups(count, numbers.as_mut_ptr()) }.max(0);
    numbers.truncate(count as usize);
    let text = std::fs::read("/etc/group").unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut groups = vec![group];
    for number in numbers {
        let name = find(&text, number).unwrap_or_else(|| number.to_string());
        if !groups.contains(&name) {
            groups.push(name);
        }
    }
    (user, groups)
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

/// The groups of users, as /etc/passwd and /etc/group have them. Those are read once a minute, whoever is asked for.
pub struct Groups {
    clock: Arc<dyn Clock>,
    directory: PathBuf,
    lists: Mutex<Option<Arc<Lists>>>,
    /// Held while the lists are read.
    reading: Mutex<()>,
}

/// What the lists said.
struct Lists {
    read: Time,
    users: String,
    groups: String,
    known: Mutex<BTreeMap<String, Vec<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Groups {
    /// Nothing is remembered yet.
    pub fn new(clock: Arc<dyn Clock>) -> Groups {
        Groups { clock, directory: "/etc".into(), lists: Mutex::default(), reading: Mutex::default() }
    }

    /// The names of a user's groups, the primary one first; empty if the lists do not know the user.
    pub fn of(&self, user: &str) -> Vec<String> {
        let lists = self.lists();
        let mut known = lock(&lists.known);
        if let Some(groups) = known.get(user) {
            return groups.clone();
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let groups = groups_in(&lists.users, &lists.groups, user);
        known.insert(user.to_string(), groups.clone());
        groups
    }

    fn lists(&self) -> Arc<Lists> {
        let now = self.clock.now();
        let younger = |than: Duration| lock(&self.lists).clone().filter(|lists| now.since(lists.read) < than);
        if let Some(lists) = younger(BELIEVED) {
            return lists;
        }
        // While one reads, others go on with what they have, for as long again.
        let reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(_) if let Some(lists) = younger(2 * BELIEVED) => return lists,
            Err(_) => lock(&self.reading),
        };
        if let Some(lists) = younger(BELIEVED) {
            return lists;
        }
        let list = |name: &str| {
            let bytes = std::fs::read(self.directory.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (users, groups) = aside(|| (list("passwd"), list("group")));
        let lists = Arc::new(Lists { read: now, users, groups, known: Mutex::default() });
        *lock(&self.lists) = Some(lists.clone());
        drop(reading);
        lists
    }
}

/// Does something that may take a disk's time. On a thread that has other tasks they are given to another one before.
fn aside<T>(does: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(does),
        _ => does(),
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
    use super::{BELIEVED, Groups, current, find, groups_in};
    use crate::clock::SystemClock;
    use base::env::Clock;
    use base::unit::{Time, WallTime};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

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
        assert!(known.lists().known.lock().unwrap().len() <= super::REMEMBERED);
    }

    /// The lists are read once a minute, whoever is asked for: names that somebody makes up cost no reading. On threads of a runtime as well.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn lists_are_read_once_a_minute() {
        struct Still(AtomicU64);
        impl Clock for Still {
            fn now(&self) -> Time {
                Time::from_nanos(self.0.load(Ordering::Relaxed))
            }
            fn wall(&self) -> WallTime {
                WallTime(0)
            }
        }
        let clock = Arc::new(Still(AtomicU64::new(1)));
        let directory = std::env::temp_dir().join(format!("stormwell-os-{}-lists", std::process::id()));
        std::fs::create_dir_all(&directory).expect("made");
        std::fs::write(directory.join("passwd"), "ada:x:1000:100::/:\nbob:x:1001:100::/:\n").expect("written");
        std::fs::write(directory.join("group"), "users:x:100:\nwheel:x:10:ada,bob\n").expect("written");
        let groups = Groups { directory: directory.clone(), ..Groups::new(clock.clone()) };
        assert_eq!(groups.of("ada"), ["users", "wheel"]);
        std::fs::write(directory.join("group"), "users:x:100:\n").expect("written");
        assert_eq!((groups.of("ada").len(), groups.of("bob").len(), groups.of("eve").len()), (2, 2, 0));
        clock.0.store(BELIEVED.as_nanos() as u64 + 1, Ordering::Relaxed);
        assert_eq!((groups.of("ada").len(), groups.of("bob").len()), (1, 1));
        std::fs::remove_dir_all(&directory).expect("removed");
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
