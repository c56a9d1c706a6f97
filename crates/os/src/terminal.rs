//! The terminal that stdout is, if it is one.

/// Lines and columns of the terminal. None if stdout is none, or if it does not say.
pub fn size() -> Option<(usize, usize)> {
    // SAFETY: winsize is plain numbers, for which all zeros is a value.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes into `size`, which is of the type that this request fills.
    let outcome = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    let found = (usize::from(size.ws_row), usize::from(size.ws_col));
    (outcome == 0 && found.0 > 0 && found.1 > 0).then_some(found)
}
