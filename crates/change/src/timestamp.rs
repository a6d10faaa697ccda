//! The time of day for records: UTC, to the second, in RFC 3339 form.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, such as `2026-11-21T09:12:12Z`.
pub fn now() -> String {
    of(SystemTime::now())
}

/// That moment.
pub fn of(moment: SystemTime) -> String {
    format(moment.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs()))
}

/// Days to a civil date: Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
fn format(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let rest = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest % 3600 / 60, rest % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_become_dates() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_252_332, "2026-11-21T09:12:12Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(super::format(seconds), text);
        }
    }
}
