//! `meta-data` of cloud-init's NoCloud: the user's lines, and an `instance-id` that no other run has.
//!
//! cloud-init does its work once for each `instance-id`, so a run must have its own. We write it ahead of the user's lines,
//! which therefore have to be such that a line can stand ahead of them: a block of `key: value` (YAML 1.1). Anything that could
//! mean the key without showing it, or end the block, is refused; nobody has to read YAML for that.

use std::fmt::Write;

/// Lines of a message that are shown of a line, at most.
const SHOWN: usize = 40;
/// The key that is the run's.
const OURS: &str = "instance-id";

/// What a guest is told of itself: `instance-id`, then the user's lines, or a host name where there are none.
///
/// # Errors
/// The user's text is something else than lines `key: value`, with the number of the line and what to do.
pub(super) fn with_instance(name: &str, uuid: &str, users: Option<&[u8]>) -> Result<String, String> {
    let mut text = format!("{OURS}: {uuid}\n");
    match users {
        None => {
            // A label of a host name has letters, digits and `-` (RFC 1123, 2.1); a flavour's name may have more.
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let host: String = name.chars().map(plain).collect();
            let _ = writeln!(text, "local-hostname: {host}");
        }
        Some(users) => {
            let users = std::str::from_utf8(users).map_err(|_| "it is not UTF-8".to_owned())?;
            text.push_str(&checked(users)?);
        }
    }
    Ok(text)
}

/// The user's lines, each looked at.
fn checked(users: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut begun = false;
    for (number, line) in users.lines().enumerate() {
        let wrong = |why: &str| {
            let shown: String = line.chars().take(SHOWN).map(|c| if is_break(c) { '?' } else { c }).collect();
            format!("line {} (`{shown}`) {why}", number + 1)
        };
        // YAML ends lines at these too: a key behind one would not be seen here.
        if line.chars().any(is_break) {
            return Err(wrong("has a control character: take it out"));
        }
        let blank = line.trim().is_empty() || line.starts_with('#');
        let continues = begun && (line.starts_with(' ') || line.starts_with("- "));
        match line.split_once(':') {
            _ if blank || continues => {}
            Some((OURS, _)) => {
                return Err(wrong("names an instance: take it out, every run has an `instance-id` of its own"));
            }
            Some((key, value)) if is_key(key) && (value.is_empty() || value.starts_with(' ')) => begun = true,
            _ => {
                return Err(wrong("is not `key: value`: write a key of letters, digits, `-` and `_` at its beginning"));
            }
        }
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

/// Whether it ends a line in YAML 1.1, or has no business in a text.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "11111111-2222-4333-8444-555555555555";

    fn made(users: Option<&str>) -> Result<String, String> {
        with_instance("run-my_job.2-1a2b3c4d", UUID, users.map(str::as_bytes))
    }

    #[test]
    fn without_lines_of_the_user_a_guest_has_its_runs_name() {
        assert_eq!(made(None).unwrap(), format!("instance-id: {UUID}\nlocal-hostname: run-my-job-2-1a2b3c4d\n"));
    }

    #[test]
    fn lines_of_the_user_follow_the_runs_own_as_they_are() {
        let users = "# who\nlocal-hostname: web1\npublic-keys:\n  - ssh-ed25519 AAAA me: you\n\nlist:\n- a\ntext: |\n  instance-id: x\n";
        assert_eq!(made(Some(users)).unwrap(), format!("instance-id: {UUID}\n{users}"));
        assert!(made(Some("a: b\r\nc:\r\n")).unwrap().ends_with("a: b\nc:\n"));
        assert_eq!(made(Some("")).unwrap(), format!("instance-id: {UUID}\n"));
    }

    #[test]
    fn what_could_be_another_instance_is_refused_with_its_line() {
        for (users, says) in [
            ("a: b\ninstance-id: x\n", "line 2 (`instance-id: x`) names an instance"),
            ("{instance-id: x}\n", "line 1"),
            ("\"instance-id\": x\n", "is not `key: value`"),
            ("? instance-id\n: x\n", "is not `key: value`"),
            ("a: b\n---\ninstance-id: x\n", "line 2 (`---`)"),
            ("%YAML 1.1\n", "is not `key: value`"),
            (" instance-id: x\n", "is not `key: value`"),
            ("- a\n", "is not `key: value`"),
            ("a: b\u{2028}instance-id: x\n", "control character"),
            ("a: b\rinstance-id: x\n", "control character"),
            ("a: b\u{85}instance-id: x\n", "control character"),
            ("a:b\n", "is not `key: value`"),
            ("<<: *x\n", "is not `key: value`"),
        ] {
            let refused = made(Some(users)).unwrap_err();
            assert!(refused.contains(says) && !refused.contains('\r'), "{users}: {refused}");
        }
        assert!(with_instance("run-a", UUID, Some(b"a: \xff\n")).unwrap_err().contains("UTF-8"));
    }
}
