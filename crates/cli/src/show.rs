//! Values for people: permission bits, dates, rates, durations, names.

use base::unit::{WallTime, show_bytes};
use std::time::Duration;

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

/// `2026-11-21 01:55:06`, in UTC.
pub fn date(time: WallTime) -> String {
    let seconds = time.0 / 1000;
    let (year, month, day) = civil(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of so many days after 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the leap day is a year's last; 400 years have 146,097 days, and from
    // 0000-03-01 to 1970-01-01 there are 719,468.
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March have 153 days in every five: 31, 30, 31, 30, 31.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
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
    use super::{count, date, duration, harmless, mode, rate, size, thousands};
    use base::unit::WallTime;
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

    /// Dates are right at the edges of the calendar.
    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_251_199, "2024-02-29 23:59:59"),
            (1_795_226_106, "2026-11-21 01:55:06"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(date(WallTime(seconds * 1000)), text);
        }
        date(WallTime(u64::MAX));
    }
}
