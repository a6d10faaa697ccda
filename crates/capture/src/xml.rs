//! XML from outside as a small tree of elements: bounded in every direction, with no entities and no document types of
//! its own (hwloc's files name one and never use it).

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use crate::CaptureError;

/// Bytes of text. hwloc writes about 1 KiB a PU.
pub(crate) const MOST_BYTES: usize = 64 << 20;
/// Nesting. hwloc reaches about 25 where switches hang on switches.
const MOST_DEEP: usize = 128;
/// Attributes of one element. hwloc reaches about 15.
const MOST_ATTRIBUTES: usize = 64;
/// Elements of a document.
const MOST_ELEMENTS: usize = 2_000_000;

/// One element.
#[derive(Debug, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    attributes: Vec<(String, String)>,
    pub(crate) children: Vec<Element>,
    /// Its own text, children's apart.
    pub(crate) text: String,
}

impl Element {
    /// The value of an attribute.
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Children of one name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The first child of a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The first descendant along a way of names.
    pub(crate) fn at(&self, way: &[&str]) -> Option<&Element> {
        way.iter().try_fold(self, |element, name| element.child(name))
    }

    /// The text of the first child of a name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.trim()).filter(|text| !text.is_empty())
    }
}

/// Reads a whole document.
///
/// # Errors
/// Not UTF-8, not well-formed, or beyond a limit; with the byte where it was noticed.
pub(crate) fn parse(name: &str, bytes: &[u8]) -> Result<Element, CaptureError> {
    let wrong = |position: u64, problem: String| CaptureError::Xml { name: name.to_owned(), position, problem };
    let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.valid_up_to() as u64, "not UTF-8".to_owned()))?;
    if text.len() > MOST_BYTES {
        return Err(wrong(MOST_BYTES as u64, format!("longer than {} MiB", MOST_BYTES >> 20)));
    }
    let mut reader = Reader::from_str(text);
    let mut open: Vec<Element> = Vec::new();
    let mut count = 0;
    loop {
        let event = reader.read_event().map_err(|error| wrong(reader.error_position(), error.to_string()))?;
        let position = reader.buffer_position();
        let fail = |problem: String| wrong(position, problem);
        let (start, empty) = match event {
            Event::Start(start) => (start, false),
            Event::Empty(start) => (start, true),
            Event::End(_) => match (open.pop(), open.last_mut()) {
                (Some(element), Some(parent)) => {
                    parent.children.push(element);
                    continue;
                }
                (Some(element), None) => return Ok(element),
                (None, _) => return Err(fail("an end without a beginning".to_owned())),
            },
            Event::Text(text) => {
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&text.decode().map_err(|error| fail(error.to_string()))?);
                }
                continue;
            }
            Event::GeneralRef(reference) => {
                let known =
                    reference.decode().ok().and_then(|name| quick_xml::escape::resolve_predefined_entity(&name));
                let character = reference.resolve_char_ref().ok().flatten();
                match (open.last_mut(), known, character) {
                    (Some(element), Some(known), _) => element.text.push_str(known),
                    (Some(element), None, Some(character)) => element.text.push(character),
                    _ => return Err(fail("an entity that is not XML's own".to_owned())),
                }
                continue;
            }
            Event::DocType(text) if text.contains(&b'[') => {
                return Err(fail("a document type with declarations of its own".to_owned()));
            }
            Event::Eof => return Err(fail("it ends before its first element does".to_owned())),
            _ => continue,
        };
        count += 1;
        if count > MOST_ELEMENTS {
            return Err(fail(format!("more than {MOST_ELEMENTS} elements")));
        }
        if open.len() >= MOST_DEEP {
            return Err(fail(format!("more than {MOST_DEEP} levels of nesting")));
        }
        let element = element(&start).map_err(fail)?;
        match (empty, open.last_mut()) {
            (false, _) => open.push(element),
            (true, Some(parent)) => parent.children.push(element),
            (true, None) => return Ok(element),
        }
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element, String> {
    let mut element =
        Element { name: String::from_utf8_lossy(start.local_name().as_ref()).into_owned(), ..Element::default() };
    // Duplicates are looked for by comparing each with all before it: the limit keeps that short.
    for attribute in start.attributes().with_checks(false).take(MOST_ATTRIBUTES + 1) {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let value = attribute.unescape_value().map_err(|error| error.to_string())?;
        let key = String::from_utf8_lossy(attribute.key.local_name().as_ref()).into_owned();
        element.attributes.push((key, value.into_owned()));
    }
    if element.attributes.len() > MOST_ATTRIBUTES {
        return Err(format!("more than {MOST_ATTRIBUTES} attributes in one element"));
    }
    Ok(element)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn elements_attributes_and_text() {
        let text =
            "<?xml version=\"1.0\"?><!DOCTYPE a SYSTEM \"a.dtd\"><a x='1 &amp; 2'>t&lt;<b/>u<b y=\"2\">v</b></a>";
        let root = parse("test", text.as_bytes()).unwrap();
        assert_eq!((root.name.as_str(), root.attribute("x"), root.text.as_str()), ("a", Some("1 & 2"), "t<u"));
        assert_eq!((root.all("b").count(), root.text_of("b"), root.at(&["b"]).unwrap().text.as_str()), (2, None, ""));
    }

    #[test]
    fn what_could_grow_is_refused() {
        let deep = "<a>".repeat(200);
        let wide = format!("<a {}/>", (0..100).map(|index| format!("x{index}='1' ")).collect::<String>());
        for text in [
            "<!DOCTYPE a [<!ENTITY x \"y\">]><a>&x;</a>",
            "<a>&x;</a>",
            "<a x='&x;'/>",
            "<a>",
            "</a>",
            "<a></b>",
            "",
            "text",
            &deep,
            &wide,
        ] {
            assert!(matches!(parse("test", text.as_bytes()), Err(CaptureError::Xml { .. })), "{text:.60}");
        }
        assert!(parse("test", b"<a>\xff</a>").is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[<>/a&;='\" !\\[\\]?-]{0,60}") {
            let _ = parse("test", text.as_bytes());
        }
    }
}
