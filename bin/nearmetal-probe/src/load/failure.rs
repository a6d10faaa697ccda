//! Why a request has no answer.

use std::fmt;

use serde::Serialize;

/// Kinds of failures, as the output counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The connection that it needed could not be made.
    Connect,
    /// The server closed the connection before the answer's end.
    Closed,
    /// What came is not of the protocol.
    Malformed,
    /// What came is longer than an answer may be.
    TooLarge,
    /// The server refused in the protocol's own words (HTTP status 400 and above, IMAP NO, BAD or BYE, an SQL error).
    Refused,
    /// The answer is whole, and not what was asked for.
    WrongAnswer,
    /// The answer was not there in time.
    Timeout,
}

/// A failure in words. What a server said is in them as far as it can be shown, and shortened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind.
    pub kind: Kind,
    /// One sentence, without a full stop.
    pub why: String,
}

impl Failure {
    /// Of a kind, with its reason.
    pub fn new(kind: Kind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    /// [`Kind::Malformed`].
    pub fn malformed(why: impl Into<String>) -> Self {
        Self::new(Kind::Malformed, why)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.why)
    }
}

/// Characters of what a server said that are shown.
const SHOWN: usize = 80;

/// What a server said, for a message: printable, on one line, and not long.
pub fn shown(bytes: &[u8]) -> String {
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    let text: String = bytes.iter().take(SHOWN).flat_map(|byte| byte.escape_ascii()).map(char::from).collect();
    format!("{text}{more}")
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_a_server_said_is_shown_on_one_short_line() {
        assert_eq!(shown(b"HTTP/9\x1b[2J\r\n"), "HTTP/9\\x1b[2J\\r\\n");
        let long = shown(&[0xff; 10_000]);
        assert!(long.len() < 400 && long.ends_with('…'), "{long}");
    }
}
