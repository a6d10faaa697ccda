//! Where the parts of an element are in the text: its start tag, attributes and content.
//!
//! Only for elements a parser has found well-formed. (The tree's own attribute ranges are not used: it keeps the
//! space around `=` in one byte.)

use std::ops::Range;

use roxmltree::Node;

/// One attribute as written.
pub(crate) struct WrittenAttribute<'text> {
    /// Qualified name.
    pub(crate) name: &'text str,
    /// From the white space before the name to the closing quote.
    pub(crate) with_space: Range<usize>,
    /// Between the quotes.
    pub(crate) value: Range<usize>,
    /// `'` or `"`.
    pub(crate) quote: char,
}

/// The parts of one element.
pub(crate) struct WrittenElement<'text> {
    /// Qualified name.
    pub(crate) name: &'text str,
    /// Attributes in their order, namespace declarations included.
    pub(crate) attributes: Vec<WrittenAttribute<'text>>,
    /// Just behind the last attribute, or behind the name.
    pub(crate) attributes_end: usize,
    /// The whole start tag.
    pub(crate) start_tag: Range<usize>,
    /// Between start and end tag; `None` for `<x/>`.
    pub(crate) content: Option<Range<usize>>,
}

impl<'text> WrittenElement<'text> {
    /// Finds the parts of an element of `text`.
    pub(crate) fn of(text: &'text str, node: Node<'_, '_>) -> Self {
        let range = node.range();
        let bytes = text.as_bytes();
        let until = |from: usize, stop: &dyn Fn(u8) -> bool| {
            (from..range.end).find(|index| stop(bytes[*index])).unwrap_or(range.end)
        };
        let name_end = until(range.start + 1, &|b| b.is_ascii_whitespace() || b == b'/' || b == b'>');
        let mut attributes = Vec::new();
        let mut cursor = name_end;
        loop {
            let start = until(cursor, &|b| !b.is_ascii_whitespace());
            if start >= range.end || matches!(bytes[start], b'/' | b'>') {
                let empty = bytes.get(start) == Some(&b'/');
                let tag_end = (start + if empty { 2 } else { 1 }).min(range.end);
                let content_end = text[range.clone()].rfind("</").map_or(range.end, |index| range.start + index);
                return Self {
                    name: &text[range.start + 1..name_end],
                    attributes,
                    attributes_end: cursor,
                    start_tag: range.start..tag_end,
                    content: (!empty).then(|| tag_end..content_end.max(tag_end)),
                };
            }
            let key_end = until(start, &|b| b.is_ascii_whitespace() || b == b'=');
            let open = until(key_end, &|b| b == b'"' || b == b'\'');
            let quote = bytes.get(open).copied().unwrap_or(b'\'');
            let close = until(open + 1, &|b| b == quote);
            attributes.push(WrittenAttribute {
                name: &text[start..key_end],
                with_space: cursor..(close + 1).min(range.end),
                value: (open + 1).min(range.end)..close,
                quote: char::from(quote),
            });
            cursor = (close + 1).min(range.end);
        }
    }

    /// The attribute of that qualified name.
    pub(crate) fn attribute(&self, name: &str) -> Option<&WrittenAttribute<'text>> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }
}
