//! Numbers and outside text as a report shows them: one place, so that every renderer says the same.

use nearmetal_stats::{ShownRatio, interval_text};

use crate::view::{Bounds, MODELLED, NodesQuantity};

/// What stands where a figure could not be had.
pub(crate) const UNKNOWN: &str = "unknown";

/// The words that stand wherever figures of the lab do.
pub(crate) const LAB_WORDS: &str = "lab: emulated time";

/// The words that stand instead where a lab's figures do not rest on its clock.
pub(crate) const COUNTED_WORDS: &str = "lab: counted, not timed";

/// The words that stand where a figure is a model's.
pub(crate) const MODELLED_WORDS: &str = "lab: a model's, no clock's";

/// Which of these stand beside a quantity by nodes; none on silicon.
pub(crate) fn lab_words(quantity: &NodesQuantity, lab: bool) -> Option<&'static str> {
    match (quantity.emulated, lab) {
        (true, _) => Some(LAB_WORDS),
        (false, true) if quantity.unit == MODELLED => Some(MODELLED_WORDS),
        (false, true) => Some(COUNTED_WORDS),
        (false, false) => None,
    }
}

/// The same for a quantity of a job or a measurement: by the part of its id behind the workload's.
pub(crate) fn metric_words(metric: &str, lab: bool) -> Option<&'static str> {
    let counted = ["-instructions", "-local-share", "-mean-distance"];
    match lab {
        false => None,
        true if metric.ends_with("-modelled") => Some(MODELLED_WORDS),
        true if counted.iter().any(|part| metric.ends_with(part)) => Some(COUNTED_WORDS),
        true => Some(LAB_WORDS),
    }
}

/// Outside text without the characters that could act on a terminal, a page or a reader's eye: control characters but
/// tab and newline, and the marks that turn the direction of writing.
pub(crate) fn clean(text: &str) -> String {
    let harmful = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if harmful(c) { '\u{fffd}' } else { c }).collect()
}

/// [`clean`], on one line.
pub(crate) fn one_line(text: &str) -> String {
    clean(text).replace(['\n', '\t'], " ")
}

/// Cleaned text for XML and HTML, in elements and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// At most `length` characters, an ellipsis for what is cut.
pub(crate) fn shorten(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length.saturating_sub(1)).chain(['…']).collect()
}

/// A measured value: three significant digits below 100, whole and grouped above (`2.37`, `41.5`, `6,606`).
pub fn value(number: Option<f64>) -> String {
    let Some(number) = finite(number) else { return UNKNOWN.to_owned() };
    let size = number.abs();
    if size >= 1e15 {
        format!("{number:.3e}")
    } else if size >= 99.95 {
        grouped(number)
    } else if size >= 9.995 {
        format!("{number:.1}")
    } else if size >= 0.01 || size == 0.0 {
        format!("{number:.2}")
    } else {
        format!("{number:.1e}")
    }
}

/// A whole number with commas between thousands.
pub(crate) fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// A ratio and its interval, with the same digits: `0.62×` and `0.58–0.66`.
pub(crate) fn shown(ratio: Option<f64>, ends: Option<Bounds>) -> ShownRatio {
    ShownRatio::new(ratio.unwrap_or(f64::NAN), ends.map(|Bounds { low, high }| (low, high)))
}

/// A ratio without an interval: `0.62×`.
pub(crate) fn ratio(number: Option<f64>) -> String {
    shown(number, None).ratio
}

/// An interval without its ratio: `0.58–0.66`.
pub(crate) fn interval(Bounds { low, high }: Bounds) -> String {
    interval_text(low, high)
}

/// A confidence level: `95 %`.
pub(crate) fn percent(confidence: f64) -> String {
    if !confidence.is_finite() {
        return UNKNOWN.to_owned();
    }
    let text = format!("{:.1}", confidence * 100.0);
    format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
}

/// A duration by size: `0.4 s`, `48 s`, `7 min 12 s`.
pub(crate) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        UNKNOWN.to_owned()
    } else if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else if seconds < 119.5 {
        format!("{seconds:.0} s")
    } else {
        let whole = seconds.round() as u64;
        if whole < 3600 {
            format!("{} min {} s", whole / 60, whole % 60)
        } else {
            format!("{} h {} min", whole / 3600, whole % 3600 / 60)
        }
    }
}

/// The first letter large: a sentence of its own.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The noun in the number of its count: `1 pair`, `6 pairs`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(number as f64)) }
}

/// The number, unless it is none.
pub(crate) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_three_digits_or_group_thousands() {
        let table = [
            (0.0, "0.00"),
            (0.0012, "1.2e-3"),
            (2.371, "2.37"),
            (41.53, "41.5"),
            (99.97, "100"),
            (6605.7, "6,606"),
            (-1234567.0, "-1,234,567"),
        ];
        for (number, text) in table {
            assert_eq!(value(Some(number)), text);
        }
        assert_eq!(value(None), "unknown");
        assert_eq!(value(Some(f64::NAN)), "unknown");
    }

    #[test]
    fn ratios_that_a_file_lacks_are_unknown() {
        let ends = Some(Bounds { low: 0.0418, high: 0.08 });
        assert_eq!(shown(Some(0.0581), ends).to_string(), "0.058× (0.042–0.080)");
        assert_eq!(shown(None, ends).to_string(), "unknown (0.042–0.080)");
        assert_eq!((ratio(Some(0.618)), ratio(None)), ("0.62×".to_owned(), "unknown".to_owned()));
        assert_eq!((percent(0.95), percent(0.999)), ("95 %".into(), "99.9 %".into()));
    }

    #[test]
    fn durations_are_shown_by_size() {
        let table = [(0.42, "0.4 s"), (48.2, "48 s"), (432.0, "7 min 12 s"), (7300.0, "2 h 1 min"), (-1.0, "unknown")];
        for (seconds, text) in table {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn outside_text_cannot_act() {
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\nd"), "a\u{fffd}[31mb\u{fffd}c\nd");
        assert_eq!(escape("<a href=\"x\" id='y'>&"), "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;");
        assert_eq!(shorten("abcdef", 4), "abc…");
    }
}
