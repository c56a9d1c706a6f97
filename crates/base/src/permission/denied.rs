//! What is said of a right that is missing: a sentence for people, from which a gateway reads who lacked what again, to say it in the words of
//! its own clients.

use super::{ALL, EXECUTE, READ, Rights, STICKY, WRITE};
use crate::error::{Error, ErrorKind};

/// A right that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// What would have to be gone through is a file.
    NotDirectory {
        /// Its path.
        path: String,
    },
    /// Rights on one file or directory.
    Access {
        /// Who lacks them.
        user: String,
        /// Which, as bits.
        access: u32,
        /// Of what.
        path: String,
        /// Its owner and bits.
        what: Described,
    },
    /// Only the owner may.
    Owner {
        /// Who is not.
        user: String,
        /// Of what.
        path: String,
    },
    /// A sticky directory keeps what is in it.
    Sticky {
        /// From whom.
        user: String,
        /// What is kept.
        path: String,
        /// Its owner and bits.
        what: Described,
        /// The directory.
        parent_path: String,
        /// Its owner and bits.
        parent: Described,
    },
    /// What is below a directory has to be judged before that is removed: look at it, then ask again.
    Below {
        /// Which.
        path: String,
    },
    /// Only a superuser may.
    Superuser {
        /// Who is none.
        user: String,
    },
    /// Only a superuser may give something to another owner.
    Giver {
        /// Who is none.
        user: String,
    },
    /// Only a member of the group may give it something.
    Group {
        /// Who is none.
        user: String,
        /// Which group.
        group: String,
    },
}

/// Owner and bits of something, as they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// A directory, not a file.
    pub directory: bool,
    /// Permission bits.
    pub mode: u32,
    /// Owner and group with a colon in between.
    pub owners: Box<str>,
}

impl Described {
    /// Of something with these rights.
    pub fn of(rights: &Rights<'_>) -> Described {
        let owners = format!("{}:{}", rights.owner, rights.group).into();
        Described { directory: rights.directory, mode: rights.mode & 0o1777, owners }
    }

    /// As in `ada:staff:drwxr-xr-x`.
    pub fn in_short(&self) -> String {
        format!("{}:{}", self.owners, self.symbols())
    }

    fn in_brackets(&self) -> String {
        format!("{OWNER}{}, {})", in_one_word(&self.owners), self.symbols())
    }

    /// The bits as `ls` writes them.
    fn symbols(&self) -> String {
        let right = |place: u32| if self.mode >> (8 - place) & 1 == 1 { RIGHTS[place as usize % 3] } else { '-' };
        let last = match (self.mode & STICKY != 0, self.mode & 1 == 1) {
            (false, _) => right(8),
            (true, true) => 't',
            (true, false) => 'T',
        };
        let kind = if self.directory { 'd' } else { '-' };
        [kind].into_iter().chain((0..8).map(right)).chain([last]).collect()
    }

    /// What stands before the brackets at the end of the text, and what is in them.
    fn read(text: &str) -> Option<(&str, Described)> {
        let (before, inside) = text.strip_suffix(')')?.rsplit_once(OWNER)?;
        let (owners, symbols) = inside.rsplit_once(", ")?;
        let mut mode = symbols.chars().skip(1).fold(0, |mode, letter| mode << 1 | u32::from(!"-T".contains(letter)));
        if symbols.ends_with(['t', 'T']) {
            mode |= STICKY;
        }
        Some((before, Described { directory: symbols.starts_with('d'), mode, owners: from_one_word(owners).into() }))
    }
}

/// The letters of the three rights.
const RIGHTS: [char; 3] = ['r', 'w', 'x'];

/// What the user may not do, in words; the longest ones first for who reads them.
const DOINGS: [u32; 7] = [ALL, READ | WRITE, READ | EXECUTE, WRITE | EXECUTE, READ, WRITE, EXECUTE];

fn doing(access: u32, directory: bool) -> String {
    let words = match directory {
        true => [(READ, "list"), (WRITE, "write in"), (EXECUTE, "go through")],
        false => [(READ, "read"), (WRITE, "write to"), (EXECUTE, "execute")],
    };
    let words: Vec<&str> = words.into_iter().filter(|(right, _)| access & right != 0).map(|(_, word)| word).collect();
    words.join(" and ")
}

const BEFORE_USER: &str = "permission denied: user ";
const UNJUDGED: &str = "permission denied: nobody looked yet whether all may go that is below ";
const MAY_NOT: &str = " may not ";
const OWNER: &str = " (owner ";
const REMOVE: &str = "remove or rename ";
const IN_STICKY: &str = " in the sticky directory ";
const OWNER_ONLY: &str = "do that, which only its owner may, to ";
const SUPERUSER_ONLY: &str = "do that, which only a superuser may";
const GIVE_AWAY: &str = "give that to another owner, which only a superuser may";
const GIVE_GROUP: &str = "give something to the group ";
const NOT_MEMBER: &str = ", in which it is not";
const NO_DIRECTORY: &str = "' is a file, not a directory";
const ADVICE: &str = "; nothing was done";

/// A name without spaces: users choose their own, and must not bring words of these sentences into them.
fn in_one_word(name: &str) -> String {
    name.replace('%', "%25").replace(' ', "%20")
}

fn from_one_word(word: &str) -> String {
    word.replace("%20", " ").replace("%25", "%")
}

impl From<Denied> for Error {
    fn from(denied: Denied) -> Error {
        let sentence = |user: &str, rest: String| format!("{BEFORE_USER}{}{MAY_NOT}{rest}{ADVICE}", in_one_word(user));
        let text = match &denied {
            // As wherever a file is met on the way.
            Denied::NotDirectory { path } => {
                return Error::new(ErrorKind::Invalid, format!("'{path}{NO_DIRECTORY}{ADVICE}"));
            }
            Denied::Access { user, access, path, what } => {
                sentence(user, format!("{} {path}{}", doing(*access, what.directory), what.in_brackets()))
            }
            Denied::Below { path } => format!("{UNJUDGED}{path}{ADVICE}"),
            Denied::Owner { user, path } => sentence(user, format!("{OWNER_ONLY}{path}")),
            Denied::Sticky { user, path, what, parent_path, parent } => sentence(
                user,
                format!("{REMOVE}{path}{}{IN_STICKY}{parent_path}{}", what.in_brackets(), parent.in_brackets()),
            ),
            Denied::Superuser { user } => sentence(user, SUPERUSER_ONLY.to_string()),
            Denied::Giver { user } => sentence(user, GIVE_AWAY.to_string()),
            Denied::Group { user, group } => sentence(user, format!("{GIVE_GROUP}{group}{NOT_MEMBER}")),
        };
        Error::new(ErrorKind::Denied, text)
    }
}

impl Denied {
    /// What the error says; `None` if it is about something else, or if somebody put other words around it: these may be anybody's.
    pub fn read(error: &Error) -> Option<Denied> {
        let sentence = error.text().strip_suffix(ADVICE)?;
        if error.kind() == ErrorKind::Invalid {
            let path = sentence.strip_suffix(NO_DIRECTORY)?.strip_prefix('\'')?.to_string();
            return Some(Denied::NotDirectory { path });
        }
        if error.kind() != ErrorKind::Denied {
            return None;
        }
        if let Some(path) = sentence.strip_prefix(UNJUDGED) {
            return Some(Denied::Below { path: path.to_string() });
        }
        let (user, rest) = sentence.strip_prefix(BEFORE_USER)?.split_once(MAY_NOT)?;
        let user = from_one_word(user);
        match rest {
            SUPERUSER_ONLY => return Some(Denied::Superuser { user }),
            GIVE_AWAY => return Some(Denied::Giver { user }),
            _ => {}
        }
        if let Some(path) = rest.strip_prefix(OWNER_ONLY) {
            return Some(Denied::Owner { user, path: path.to_string() });
        }
        if let Some(group) = rest.strip_prefix(GIVE_GROUP) {
            return Some(Denied::Group { user, group: group.strip_suffix(NOT_MEMBER)?.to_string() });
        }
        if let Some(rest) = rest.strip_prefix(REMOVE) {
            let (rest, parent) = Described::read(rest)?;
            let (rest, parent_path) = rest.rsplit_once(IN_STICKY)?;
            let (path, what) = Described::read(rest)?;
            let (path, parent_path) = (path.to_string(), parent_path.to_string());
            return Some(Denied::Sticky { user, path, what, parent_path, parent });
        }
        let (rest, what) = Described::read(rest)?;
        let (access, path) = DOINGS.into_iter().find_map(|access| {
            let path = rest.strip_prefix(&doing(access, what.directory))?.strip_prefix(' ')?;
            path.starts_with('/').then_some((access, path.to_string()))
        })?;
        Some(Denied::Access { user, access, path, what })
    }
}
