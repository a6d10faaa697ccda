//! What can be wrong with a domain XML, and where.

use std::fmt;

/// A place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl Position {
    /// The place of a byte offset; an offset past the end is the end.
    pub(crate) fn at(text: &str, offset: usize) -> Self {
        let before = &text.as_bytes()[..offset.min(text.len())];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        // Continuation bytes of UTF-8 are not characters of their own.
        let column = 1 + before[line_start..].iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        Self { line: line as u32, column: column as u32 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// Why a domain XML could not be read or edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DomainError {
    /// Longer than any text libvirt takes.
    #[error("the domain XML has {bytes} bytes, more than the {limit} libvirt accepts")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// More of something than a real domain has: refused before it costs memory.
    #[error("{position}: more than {limit} {what}")]
    TooMuch {
        /// Where the limit was passed.
        position: Position,
        /// What there is too much of, in the plural.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A document type: entities defined in it could expand without bound or name files.
    #[error("{position}: a document type (<!DOCTYPE) is not accepted")]
    DocumentType {
        /// Where.
        position: Position,
    },
    /// Not well-formed XML.
    #[error("{position}: not well-formed XML: {problem}")]
    Malformed {
        /// Where.
        position: Position,
        /// The parser's words.
        problem: String,
    },
    /// Well-formed, but something else.
    #[error("{position}: the root element is <{found}>, not <domain>")]
    NotADomain {
        /// Where.
        position: Position,
        /// The root's name.
        found: String,
    },
    /// An element or attribute without which there is no domain.
    #[error("{position}: {what} is missing")]
    Missing {
        /// Where it should be.
        position: Position,
        /// Its path, such as `<vcpu>`.
        what: String,
    },
    /// A value that does not mean anything.
    #[error("{position}: {what} is `{value}`: {rule}")]
    BadValue {
        /// Where.
        position: Position,
        /// Which element or attribute.
        what: String,
        /// Its text, cut to 80 characters.
        value: String,
        /// What it must look like.
        rule: String,
    },
    /// No disk of that target name.
    #[error("no disk has the target `{target}`; there are: {known}")]
    NoSuchDisk {
        /// The name asked for.
        target: String,
        /// The names there are.
        known: String,
    },
    /// No interface of that address.
    #[error("no interface has the address `{mac}`; there are: {known}")]
    NoSuchInterface {
        /// The address asked for.
        mac: String,
        /// The addresses there are, cut to 80 characters.
        known: String,
    },
    /// An edit names an element that is not there and cannot be made from its name alone.
    #[error("there is no `{place}` in the definition, and what is missing cannot be made: {why}")]
    NoSuchPlace {
        /// The place, cut to 80 characters.
        place: String,
        /// What keeps it from being made.
        why: &'static str,
    },
    /// A setter was given something that cannot stand in a domain XML.
    #[error("{what} cannot be `{value}`: {rule}")]
    BadArgument {
        /// What was to be set.
        what: &'static str,
        /// The value given, cut to 80 characters.
        value: String,
        /// What it must look like.
        rule: &'static str,
    },
}

impl DomainError {
    /// A value given by the caller that libvirt would refuse.
    pub(crate) fn argument(what: &'static str, value: &str, rule: &'static str) -> Self {
        Self::BadArgument { what, value: short(value), rule }
    }
}

/// A foreign text for a message: at most 80 characters, control characters replaced.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
