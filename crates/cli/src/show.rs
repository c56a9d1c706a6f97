//! Values for people: permission bits, rates, durations, names.

use base::unit::show_bytes;
use std::time::Duration;

pub use base::unit::show_date as date;

/// Bytes: exact, or `1.5 GiB` if a person asked.
pub fn size(bytes: u64, human: bool) -> String {
    if human { show_bytes(bytes) } else { bytes.to_string() }
}

/// A name, or a dash if nobody said it.
pub fn said(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}

/// `drwxr-xr-x`.
pub fn mode(directory: bool, bits: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(if directory { 'd' } else { '-' });
    for place in (0..9).rev() {
        let letter = ['x', 'w', 'r'][place % 3];
        text.push(if bits >> place & 1 == 1 { letter } else { '-' });
    }
    text
}

/// `0.42 s`, `75 s`, `12 min 30 s`, `3 h 20 min`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.2} s", time.as_secs_f64()),
        10..120 => format!("{seconds} s"),
        120..7200 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// So many per second; zero time counts as a microsecond.
pub fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-6)
}

/// `412 MB/s`: powers of ten, as disks and networks are sold.
pub fn rate(bytes: u64, time: Duration) -> String {
    let megabytes = per_second(bytes, time) / 1e6;
    if megabytes >= 10.0 { format!("{megabytes:.0} MB/s") } else { format!("{megabytes:.2} MB/s") }
}

/// `1 file`, `12,345 files`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// `12,345,678`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A name whose control characters are written out, so that a terminal does not obey them.
pub fn harmless(name: &str) -> String {
    if !name.chars().any(char::is_control) {
        return name.to_string();
    }
    name.chars()
        .flat_map(|letter| if letter.is_control() { letter.escape_default().collect() } else { vec![letter] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{count, duration, harmless, mode, rate, size, thousands};
    use std::time::Duration;

    /// Values look as people know them.
    #[test]
    fn looks() {
        assert_eq!(size(1536, false), "1536");
        assert_eq!(size(1536, true), "1.5 KiB");
        assert_eq!(mode(true, 0o755), "drwxr-xr-x");
        assert_eq!(mode(false, 0o640), "-rw-r-----");
        assert_eq!(duration(Duration::from_millis(420)), "0.42 s");
        assert_eq!(duration(Duration::from_secs(75)), "75 s");
        assert_eq!(duration(Duration::from_secs(750)), "12 min 30 s");
        assert_eq!(duration(Duration::from_secs(12_000)), "3 h 20 min");
        assert_eq!(rate(824_000_000, Duration::from_secs(2)), "412 MB/s");
        assert_eq!(rate(1_500_000, Duration::from_secs(1)), "1.50 MB/s");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(count(1, "file", "files"), "1 file");
        assert_eq!(count(1000, "file", "files"), "1,000 files");
        assert_eq!(harmless("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(harmless("häß"), "häß");
    }
}
