//! Small parsers shared by the readers: pure functions over a file's text.

use nearmetal_units::{CpuSet, NodeSet, PageSize};

/// A text the kernel would not have written: says what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl From<nearmetal_units::ParseError> for Malformed {
    fn from(error: nearmetal_units::ParseError) -> Self {
        Self(error.to_string())
    }
}

/// What a parser of this crate returns.
pub(crate) type Parsed<T> = Result<T, Malformed>;

pub(crate) fn malformed<T>(reason: impl Into<String>) -> Parsed<T> {
    Err(Malformed(reason.into()))
}

/// The inside of a one-line attribute. sysfs ends every attribute in a newline, empty lists included, so that a text
/// without one was cut: `0-3` may be what is left of `0-31`.
pub(crate) fn line(text: &str) -> Parsed<&str> {
    // Some POWER kernels end their CPU masks in two.
    let line = text.trim_end_matches('\n');
    match line.len() {
        _ if text.is_empty() => malformed("the file is empty"),
        length if length == text.len() => malformed("cut off: the last line has no newline"),
        _ if line.contains('\n') => malformed("several lines where one was expected"),
        _ => Ok(line.trim()),
    }
}

/// A decimal number.
pub(crate) fn number(text: &str) -> Parsed<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(value) if plain => Ok(value),
        _ => malformed("expected a decimal number"),
    }
}

/// A decimal number that may be negative.
pub(crate) fn signed(text: &str) -> Parsed<i64> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |digits| (digits, -1));
    match i64::try_from(number(digits)?) {
        Ok(value) => Ok(sign * value),
        Err(_) => malformed("expected a number of 63 bits"),
    }
}

/// A decimal number of 32 bits.
pub(crate) fn number_u32(text: &str) -> Parsed<u32> {
    u32::try_from(number(text)?).map_err(|_| Malformed("expected a number below 2^32".to_owned()))
}

/// An index, or -1 where the firmware gave none.
pub(crate) fn index_or_none(text: &str) -> Parsed<Option<u32>> {
    if text == "-1" { Ok(None) } else { number_u32(text).map(Some) }
}

/// A hexadecimal number with `0x`.
pub(crate) fn hex(text: &str) -> Parsed<u64> {
    let digits = text.strip_prefix("0x").unwrap_or("");
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(digits, 16) {
        Ok(value) if plain => Ok(value),
        _ => malformed("expected a hexadecimal number with 0x"),
    }
}

/// `0` or `1`.
pub(crate) fn flag(text: &str) -> Parsed<bool> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => malformed("expected 0 or 1"),
    }
}

/// Any text that is not empty.
pub(crate) fn word(text: &str) -> Parsed<String> {
    if text.is_empty() { malformed("the line is empty") } else { Ok(text.to_owned()) }
}

/// A name in a table of /proc, where spaces and other marks stand as `\\040`.
pub(crate) fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal =
            tail.get(..3).filter(|digits| *first == b'\\' && digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
        let value = octal.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The choice in force in a list such as `always [madvise] never`.
pub(crate) fn bracketed(text: &str) -> Parsed<String> {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match inside {
        Some((choice, _)) if !choice.is_empty() => Ok(choice.to_owned()),
        // With one choice only, some block drivers print it bare: `none`.
        None if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') => {
            Ok(text.to_owned())
        }
        _ => malformed("expected a list of words with one in [brackets]"),
    }
}

/// A CPU list, `0-3,8`.
pub(crate) fn cpu_list(text: &str) -> Parsed<CpuSet> {
    Ok(text.parse()?)
}

/// A list of nodes, `0-3,8`.
pub(crate) fn node_list(text: &str) -> Parsed<NodeSet> {
    Ok(text.parse()?)
}

/// A CPU mask, `00000000,0000ffff`. The kernel writes all words but the first in full: a shorter one was damaged, and
/// would shift the others.
pub(crate) fn cpu_mask(text: &str) -> Parsed<CpuSet> {
    if text.split(',').skip(1).any(|word| word.len() != 8) {
        return malformed("every group of a CPU mask but the first has 8 hex digits");
    }
    Ok(CpuSet::parse_mask(text)?)
}

/// A page size in kB, as the kernel prints it.
pub(crate) fn page_size_kib(text: &str) -> Parsed<PageSize> {
    Ok(PageSize::try_from(nearmetal_units::Bytes::from_kib(number(text)?))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_cut_line_is_not_a_shorter_value() {
        assert_eq!(line("0-31\n"), Ok("0-31"));
        assert_eq!(line("\n"), Ok(""));
        assert_eq!(line("0000,000000ff\n\n"), Ok("0000,000000ff"));
        for junk in ["", "0-3", "0\n1\n", "0\n1"] {
            assert!(line(junk).is_err(), "{junk:?}");
        }
    }

    #[test]
    fn numbers_are_plain_or_refused() {
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(index_or_none("-1"), Ok(None));
        assert_eq!(index_or_none("3"), Ok(Some(3)));
        assert_eq!(hex("0x010802"), Ok(0x01_0802));
        assert_eq!((signed("-1"), signed("950000")), (Ok(-1), Ok(950_000)));
        assert!(signed("--1").is_err() && signed("-").is_err() && signed("9223372036854775808").is_err());
        assert_eq!(unescaped("/a\\040b\\134c\\09\\777"), "/a b\\c\\09\\777");
        for junk in ["", "+1", "-1", "1 ", "0x1", "18446744073709551616", "one"] {
            assert!(number(junk).is_err(), "{junk:?}");
        }
        for junk in ["", "0x", "8086", "0x+1", "0xg"] {
            assert!(hex(junk).is_err(), "{junk:?}");
        }
        assert!(index_or_none("-2").is_err() && number_u32("4294967296").is_err() && flag("2").is_err());
    }

    #[test]
    fn the_choice_in_force_is_the_one_in_brackets() {
        assert_eq!(bracketed("always [madvise] never").as_deref(), Ok("madvise"));
        assert_eq!(bracketed("[none] mq-deadline").as_deref(), Ok("none"));
        assert_eq!(bracketed("none").as_deref(), Ok("none"));
        for junk in ["", "[]", "always madvise", "[always"] {
            assert!(bracketed(junk).is_err(), "{junk:?}");
        }
    }

    #[test]
    fn masks_have_whole_words() {
        assert_eq!(cpu_mask("0000,00000000,000000ff").map(|set| set.to_string()).as_deref(), Ok("0-7"));
        for junk in ["", "f,f", "00000001,0000000", "g"] {
            assert!(cpu_mask(junk).is_err(), "{junk:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,40}\n?") {
            let _ = (line(&text), number(&text), hex(&text), flag(&text), bracketed(&text), cpu_list(&text));
            let _ = (cpu_mask(&text), page_size_kib(&text), index_or_none(&text), signed(&text), unescaped(&text));
        }
    }
}
