//! What is refused before a tree is built: sizes no domain has, and document types.
//!
//! The tree builder is linear in the text except for the attributes of one element (compared pairwise) and the
//! namespaces in scope (copied to every element that adds one). Both are bounded here, so a hostile text costs what
//! a good one of its length does.

use crate::error::{DomainError, Position};

/// Bytes. libvirt's remote protocol carries strings up to this length (REMOTE_STRING_MAX in remote_protocol.x).
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Nesting. Domains reach about 10.
const MAX_DEPTH: usize = 64;
/// Attributes of one element. Domains reach about 20.
const MAX_ATTRIBUTES: usize = 128;
/// Namespace declarations of a document. Domains reach about 5.
const MAX_NAMESPACES: usize = 64;
/// Nodes of the tree. A domain with 200 disks has about 10 000.
pub(crate) const MAX_NODES: u32 = 200_000;

/// Walks the markup once. Texts that are not well-formed may pass: the parser names their fault.
pub(crate) fn check(text: &str) -> Result<(), DomainError> {
    if text.len() > MAX_BYTES {
        return Err(DomainError::TooLarge { bytes: text.len(), limit: MAX_BYTES });
    }
    let too_much = |offset, what, limit| DomainError::TooMuch { position: Position::at(text, offset), what, limit };
    let (mut depth, mut namespaces, mut offset) = (0usize, 0usize, 0usize);
    while let Some(found) = text[offset..].find('<') {
        let start = offset + found;
        let rest = &text[start..];
        if rest.starts_with("<!DOCTYPE") {
            return Err(DomainError::DocumentType { position: Position::at(text, start) });
        }
        offset = if let Some(length) = skip_opaque(rest) {
            start + length
        } else if rest.starts_with("</") {
            depth = depth.saturating_sub(1);
            start + 2
        } else {
            let tag = measure(rest);
            namespaces += tag.namespaces;
            if tag.attributes > MAX_ATTRIBUTES {
                return Err(too_much(start, "attributes in one element", MAX_ATTRIBUTES));
            }
            if namespaces > MAX_NAMESPACES {
                return Err(too_much(start, "namespace declarations", MAX_NAMESPACES));
            }
            if !tag.empty {
                depth += 1;
            }
            if depth > MAX_DEPTH {
                return Err(too_much(start, "levels of nesting", MAX_DEPTH));
            }
            start + tag.length
        };
    }
    Ok(())
}

/// The length of a comment, CDATA section or processing instruction at the start of the text.
fn skip_opaque(rest: &str) -> Option<usize> {
    let (open, close) =
        [("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>")].into_iter().find(|(open, _)| rest.starts_with(open))?;
    Some(rest[open.len()..].find(close).map_or(rest.len(), |end| open.len() + end + close.len()))
}

struct TagMeasure {
    length: usize,
    attributes: usize,
    namespaces: usize,
    empty: bool,
}

/// Measures the start tag at the start of the text; `>` inside quotes does not end it.
fn measure(rest: &str) -> TagMeasure {
    let bytes = rest.as_bytes();
    let mut tag = TagMeasure { length: bytes.len(), attributes: 0, namespaces: 0, empty: false };
    let mut quote = None;
    for (index, byte) in bytes.iter().enumerate().skip(1) {
        match (quote, byte) {
            (Some(open), _) if *byte == open => quote = None,
            (None, b'"' | b'\'') => quote = Some(*byte),
            (None, b'=') => tag.attributes += 1,
            (None, b'x') if bytes[index - 1].is_ascii_whitespace() && rest[index..].starts_with("xmlns") => {
                tag.namespaces += 1;
            }
            (None, b'>') => {
                tag.empty = bytes[index - 1] == b'/';
                tag.length = index + 1;
                return tag;
            }
            _ => {}
        }
    }
    tag
}
