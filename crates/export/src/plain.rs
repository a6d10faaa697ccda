//! Texts that may go into files which programs read: names in /sys and in captures are whatever somebody chose.

/// Whether a text means itself in all the files written here: no white space, quotes, comments or wildcards.
pub(crate) fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.:,+@=-".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed) && !text.split('/').any(|part| part == "..")
}

/// A text on one line of README.txt or a comment.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// The name of a file for a domain; several domains may share it.
pub(crate) fn file_name(domain: &str) -> String {
    let keep = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let name: String = domain.chars().map(|character| if keep(character) { character } else { '_' }).collect();
    let name = name.trim_start_matches(['.', '-']);
    // Room for an ending: most file systems end names at 255 bytes.
    if name.is_empty() { "domain".to_owned() } else { name.chars().take(200).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_end_a_line_or_start_a_comment_is_not_plain() {
        for text in ["/sys/class/block/nvme0n1/queue/scheduler", "managed_irq,domain,4-5,20-21", "mq-deadline"] {
            assert!(is_plain(text), "{text}");
        }
        for text in ["", "a b", "a\nb", "#", "a\"b", "${f}", "/sys/*/a", "/sys/../etc/passwd", "ä"] {
            assert!(!is_plain(text), "{text}");
        }
    }

    #[test]
    fn no_name_of_a_domain_leads_out_of_the_directory() {
        for (domain, name) in [("web1", "web1"), ("../../etc/x", "_.._etc_x"), ("a b/c", "a_b_c"), ("..", "domain")] {
            assert_eq!(file_name(domain), name);
        }
        assert_eq!(file_name(&"x".repeat(300)).len(), 200);
    }
}
