//! Who runs this process, by name, and which groups users are in: as the system says, whether it has that from its own lists or from a
//! directory service (NSS, record 0436).

use base::env::Clock;
use base::unit::Time;
use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist, getgroups};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};

/// The names of the process' effective user and group; their numbers where the system does not know them.
pub fn current() -> (String, String) {
    (user_name(geteuid()), group_name(getegid()))
}

/// The name of the process' effective user, and those of the groups that it is in, the effective one first.
pub fn with_groups() -> (String, Vec<String>) {
    let (user, group) = current();
    let others = getgroups().unwrap_or_default().into_iter().map(group_name);
    (user, once_each(std::iter::once(group).chain(others)))
}

fn user_name(id: Uid) -> String {
    User::from_uid(id).ok().flatten().map_or_else(|| id.to_string(), |user| user.name)
}

fn group_name(id: Gid) -> String {
    Group::from_gid(id).ok().flatten().map_or_else(|| id.to_string(), |group| group.name)
}

fn once_each(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut each = Vec::new();
    for name in names {
        if !each.contains(&name) {
            each.push(name);
        }
    }
    each
}

/// The groups of a user, the primary one first; none if the system knows no such user. An error: it cannot say now. Blocks, perhaps for
/// seconds, where a directory service has to be asked.
fn look(user: &str) -> Result<Vec<String>, Errno> {
    let Ok(name) = CString::new(user) else { return Ok(Vec::new()) };
    let found = match User::from_name(user) {
        // So says getpwnam(3): some systems have an error for a user that they do not know.
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => None,
        found => found?,
    };
    let Some(found) = found else { return Ok(Vec::new()) };
    let all = getgrouplist(&name, found.gid)?;
    Ok(once_each(std::iter::once(found.gid).chain(all).map(group_name)))
}

/// How long what the system said of a user is believed.
const BELIEVED: Duration = Duration::from_secs(60);

/// Users whose groups are remembered at once. Programs may make up names.
const REMEMBERED: usize = 1024;

/// The groups of users. The system is asked for each user once a minute, and for one user at a time.
pub struct Groups {
    clock: Arc<dyn Clock>,
    look: Look,
    known: Mutex<BTreeMap<String, Answer>>,
    /// Held while the system is asked.
    asking: Mutex<()>,
}

/// How the system is asked.
type Look = Box<dyn Fn(&str) -> Result<Vec<String>, Errno> + Send + Sync>;

/// What the system said.
#[derive(Clone)]
struct Answer {
    groups: Vec<String>,
    at: Time,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Groups {
    /// Nothing is remembered yet.
    pub fn new(clock: Arc<dyn Clock>) -> Groups {
        Groups { clock, look: Box::new(look), known: Mutex::default(), asking: Mutex::default() }
    }

    /// The names of a user's groups, the primary one first; empty if the system does not know the user.
    pub fn of(&self, user: &str) -> Vec<String> {
        let younger = |than: Duration| {
            let known = lock(&self.known).get(user).cloned();
            known.filter(|answer| self.clock.now().since(answer.at) < than).map(|answer| answer.groups)
        };
        if let Some(groups) = younger(BELIEVED) {
            return groups;
        }
        // While one asks, which may take a directory service that is ill its time, others go on with what they have.
        let asking = match self.asking.try_lock() {
            Ok(asking) => asking,
            Err(_) if let Some(groups) = younger(10 * BELIEVED) => return groups,
            Err(_) => aside(|| lock(&self.asking)),
        };
        if let Some(groups) = younger(BELIEVED) {
            return groups;
        }
        let answer = aside(|| (self.look)(user));
        let groups = self.note(user, answer.ok());
        drop(asking);
        groups
    }

    /// Remembers an answer; none: what was known of the user holds on.
    fn note(&self, user: &str, answer: Option<Vec<String>>) -> Vec<String> {
        let (mut known, at) = (lock(&self.known), self.clock.now());
        if let Some(groups) = answer {
            if known.len() >= REMEMBERED {
                known.retain(|_, answer| at.since(answer.at) < BELIEVED && !answer.groups.is_empty());
            }
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(user.to_string(), Answer { groups, at });
        }
        known.get(user).map(|answer| answer.groups.clone()).unwrap_or_default()
    }
}

/// Does something that may take a while. On a thread that has other tasks they are given to another one before.
fn aside<T>(does: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::MultiThread => tokio::task::block_in_place(does),
        _ => does(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BELIEVED, Errno, Groups, REMEMBERED, current, group_name, look, user_name, with_groups};
    use crate::clock::SystemClock;
    use base::env::Clock;
    use base::unit::{Time, WallTime};
    use nix::unistd::{Gid, Uid};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The system knows who runs this; numbers and names that nobody has are told as they are, or are in no group.
    #[test]
    fn who_this_is() {
        let (user, group) = current();
        assert_eq!(with_groups().1.first(), Some(&group));
        assert_eq!(look(&user).expect("asked").first(), Some(&group));
        assert_eq!((user_name(Uid::from_raw(0)), group_name(Gid::from_raw(0))), ("root".into(), "root".into()));
        assert_eq!(user_name(Uid::from_raw(3_999_999_999)), "3999999999");
        for nobody in ["", "no such user", "a\0b", "root:x", "../passwd"] {
            assert_eq!(look(nobody), Ok(Vec::new()), "{nobody:?}");
        }
        let known = Groups::new(Arc::new(SystemClock::new()));
        for made_up in 0..3000 {
            assert!(known.of(&format!("no such user {made_up}")).is_empty());
        }
        assert_eq!(known.of(&user).first(), Some(&group));
        assert!(known.known.lock().unwrap().len() <= REMEMBERED);
    }

    /// The system is asked once a minute for each user; when it cannot say, what it said last holds. On threads of a runtime as well.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn asked_once_a_minute() {
        struct Still(AtomicU64);
        impl Clock for Still {
            fn now(&self) -> Time {
                Time::from_nanos(self.0.load(Ordering::Relaxed))
            }
            fn wall(&self) -> WallTime {
                WallTime(0)
            }
        }
        let (clock, asked) = (Arc::new(Still(AtomicU64::new(1))), Arc::new(AtomicU64::new(0)));
        let counting = asked.clone();
        // The first two answers are told, then the service is away, then it is back.
        let look = move |user: &str| match counting.fetch_add(1, Ordering::Relaxed) {
            2 => Err(Errno::EIO),
            number => Ok(vec![format!("{user}{number}")]),
        };
        let groups = Groups { look: Box::new(look), ..Groups::new(clock.clone()) };
        for _ in 0..3 {
            assert_eq!((groups.of("ada"), groups.of("bob")), (vec!["ada0".into()], vec!["bob1".into()]));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        clock.0.store(BELIEVED.as_nanos() as u64 + 1, Ordering::Relaxed);
        assert_eq!(groups.of("ada"), ["ada0"]);
        assert_eq!(groups.of("ada"), ["ada3"]);
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }
}
