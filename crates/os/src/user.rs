//! Who runs this process, by name.
#![allow(clippy::disallowed_methods)] // The lists of users are not data that an engine keeps.

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

#[cfg(test)]
mod tests {
    use super::{current, find};

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
