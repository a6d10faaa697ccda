//! Lengths of time as people write them.

use crate::ParseError;

/// Reads a whole number of seconds, minutes or hours (`90`, `90s`, `30m`, `2h`) as seconds.
///
/// # Errors
/// Anything else, and what does not fit.
pub fn seconds(text: &str) -> Result<u32, ParseError> {
    let (number, factor) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let digits = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
    let count = digits.and_then(|digits| digits.parse::<u32>().ok()).and_then(|count| count.checked_mul(factor));
    count.ok_or_else(|| ParseError::new("a length of time", text, "write a whole number and s, m or h, such as 30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_a_number_with_a_unit() {
        for (text, expected) in [("0", 0), ("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for junk in ["", "m", "-1m", "+1m", "4294967295h", "30 m", "1d", "1.5h", "\u{e9}m"] {
            assert!(seconds(junk).is_err(), "{junk}");
        }
    }
}
