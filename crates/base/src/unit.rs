//! Quantities with their unit in the type: bytes, moments, and how they are shown to people.

use std::fmt;
use std::time::Duration;

/// Bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes in a GiB.
pub const GIB: u64 = 1 << 30;

/// A moment on a monotonic clock: nanoseconds since the clock was made. Not comparable between processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The moment the clock was made.
    pub const ZERO: Time = Time(0);

    /// A moment so many nanoseconds after the clock was made.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the clock was made.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long before `self` the moment `earlier` was; zero if it was not before.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `delay` later; stays at the largest moment instead of overflowing.
    pub fn after(self, delay: Duration) -> Time {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

/// Milliseconds since 1970-01-01 UTC, as file times are kept and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

/// `2026-11-21T01:55:06.123Z`, as logs have it.
pub fn show_time(time: WallTime) -> String {
    format!("{}.{:03}Z", show_date(time).replacen(' ', "T", 1), time.0 % 1000)
}

/// `2026-11-21 01:55:06`, in UTC.
pub fn show_date(time: WallTime) -> String {
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

/// Bytes for people: `1.5 GiB`, `640 KiB`, `12 B`.
pub fn show_bytes(bytes: u64) -> String {
    const STEPS: [(u64, &str); 4] = [(1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")];
    for (size, name) in STEPS {
        if bytes >= size {
            let value = bytes as f64 / size as f64;
            return if value >= 100.0 { format!("{value:.0} {name}") } else { format!("{value:.1} {name}") };
        }
    }
    format!("{bytes} B")
}

/// What was wrong with a size that a person wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSize(pub String);

impl fmt::Display for BadSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' is not a size: write a number and K, M, G or T (powers of 1024), for instance 4MiB or 500G",
            self.0
        )
    }
}

impl std::error::Error for BadSize {}

/// Reads `4096`, `4K`, `4KiB`, `1.5G`, `2TB`: all powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, BadSize> {
    let bad = || BadSize(text.to_string());
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let scale = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => GIB << 10,
        _ => return Err(bad()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(bad);
    }
    let value = number.parse::<f64>().map_err(|_| bad())? * scale as f64;
    if value.is_finite() && value < u64::MAX as f64 { Ok(value as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::{BadSize, Time, WallTime, parse_bytes, show_bytes, show_date, show_time};
    use std::time::Duration;

    /// Sizes that people write mean powers of 1024, and nonsense is refused by name.
    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("4MiB"), Ok(4 << 20));
        assert_eq!(parse_bytes(" 1.5g "), Ok(3 << 29));
        assert_eq!(parse_bytes("2TB"), Ok(2 << 40));
        for bad in ["", "K", "4X", "-1", "99999999999T", "1..2"] {
            assert_eq!(parse_bytes(bad), Err(BadSize(bad.to_string())), "{bad:?}");
        }
        assert_eq!(show_bytes(12), "12 B");
        assert_eq!(show_bytes(3 << 29), "1.5 GiB");
    }

    /// Moments saturate: a deadline far in the future never wraps into the past.
    #[test]
    fn moments_saturate() {
        let late = Time::from_nanos(u64::MAX - 1).after(Duration::from_secs(9));
        assert_eq!(late.as_nanos(), u64::MAX);
        assert_eq!(Time::ZERO.since(late), Duration::ZERO);
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
            assert_eq!(show_date(WallTime(seconds * 1000)), text);
        }
        assert_eq!(show_time(WallTime(1_795_226_106_042)), "2026-11-21T01:55:06.042Z");
        show_date(WallTime(u64::MAX));
    }
}
