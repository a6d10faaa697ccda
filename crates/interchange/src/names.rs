//! Names in other engines' words. Names of VMs and hosts are whatever somebody chose.

use std::collections::BTreeSet;

/// A text on one line of a comment or a list, without what XML has no place for.
pub(crate) fn one_line(text: &str) -> String {
    let keep = |character: char| !character.is_control() && !matches!(character, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|character| if keep(character) { character } else { '\u{fffd}' }).collect()
}

/// Names that are given once.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeSet<String>);

impl Taken {
    /// A free name like this one: with a number behind it if it is taken. Never longer than `most` bytes; the name given is
    /// ASCII.
    pub(crate) fn free(&mut self, name: String, most: usize) -> String {
        let mut free: String = name.chars().take(most).collect();
        let mut number = 2;
        while !self.0.insert(free.clone()) {
            let ending = format!("-{number}");
            free = name.chars().take(most.saturating_sub(ending.len())).collect::<String>() + &ending;
            number += 1;
        }
        free
    }
}

/// A DNS label (RFC 1123) as near to a name as one can be: lower-case letters, digits and dashes, 63 bytes at most, a letter
/// or digit at both ends. `other` where nothing of the name is left.
pub(crate) fn dns_label(name: &str, other: &str) -> String {
    let plain = |character: char| match character.to_ascii_lowercase() {
        character if character.is_ascii_alphanumeric() => character,
        _ => '-',
    };
    let label: String = name.chars().map(plain).collect();
    let label: String = label.trim_matches('-').chars().take(63).collect();
    let label = label.trim_end_matches('-');
    if label.is_empty() { other.to_owned() } else { label.to_owned() }
}

/// Whether a text is a value of a Kubernetes label: 63 bytes at most of letters, digits, `-_.`, a letter or digit at both
/// ends.
pub(crate) fn is_label_value(text: &str) -> bool {
    let ends = |character: char| character.is_ascii_alphanumeric();
    let inside = |character: char| ends(character) || "-_.".contains(character);
    !text.is_empty() && text.len() <= 63 && text.chars().all(inside) && text.starts_with(ends) && text.ends_with(ends)
}

/// The name of a file or directory: letters, digits and `._-`, no dot or dash in front, 100 bytes at most.
pub(crate) fn file_name(name: &str, other: &str) -> String {
    let keep = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let name: String = name.chars().map(|character| if keep(character) { character } else { '_' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    let name: String = name.chars().take(100).collect();
    if name.trim_matches('_').is_empty() { other.to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_becomes_a_dns_label_or_the_other_one() {
        let long = "a".repeat(255);
        let table = [
            ("web1", "web1"),
            ("Web_1.example", "web-1-example"),
            ("<b>&'\"", "b"),
            ("-rf", "rf"),
            ("a\nb", "a-b"),
            ("🦀", "other"),
            ("", "other"),
            (long.as_str(), &long[..63]),
        ];
        for (name, label) in table {
            assert_eq!(dns_label(name, "other"), label, "{name:?}");
        }
    }

    #[test]
    fn a_name_is_given_once() {
        let mut taken = Taken::default();
        let names = ["a", "a", "a", "abcdef", "abcdeg"].map(|name| taken.free(name.to_owned(), 5));
        assert_eq!(names, ["a", "a-2", "a-3", "abcde", "abc-2"]);
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for (name, file) in [("web1", "web1"), ("../../etc/x", "_.._etc_x"), ("..", "vm"), ("🦀", "vm"), ("-rf", "rf")]
        {
            assert_eq!(file_name(name, "vm"), file);
        }
        assert_eq!(file_name(&"x".repeat(300), "vm").len(), 100);
    }

    #[test]
    fn label_values_are_kubernetes_own() {
        assert!(is_label_value("kvm7.example") && is_label_value("A_1"));
        let long = "a".repeat(64);
        for text in ["", "-a", "a-", "a b", "ä", "a/b", &long] {
            assert!(!is_label_value(text), "{text}");
        }
    }
}
