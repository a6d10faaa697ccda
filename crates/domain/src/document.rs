//! The domain XML as a text that is read through a tree and edited by byte ranges.

use std::fmt;
use std::str::FromStr;

use roxmltree::{Document, ParsingOptions};

use crate::edit::{Edits, is_plain};
use crate::error::{DomainError, Position};
use crate::limits;
use crate::tree;

/// A libvirt domain XML. Always well-formed; every byte no setter touched is as it was given.
///
/// Setters return whether they changed anything; setting what is already there changes no byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainXml {
    text: String,
}

impl DomainXml {
    /// Takes a text after checking that it is a domain.
    ///
    /// # Errors
    /// Not well-formed, not a domain, a document type, or larger than any domain is: see [`DomainError`].
    pub fn parse(text: &str) -> Result<Self, DomainError> {
        let document = read(text)?;
        let root = document.root_element();
        if !is_plain(root) || root.tag_name().name() != "domain" {
            return Err(DomainError::NotADomain {
                position: tree::position(root),
                found: crate::error::short(root.tag_name().name()),
            });
        }
        Ok(Self { text: text.to_owned() })
    }

    /// The text as it is now.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Runs a reader over the tree.
    pub(crate) fn with_tree<T>(
        &self,
        reader: impl FnOnce(&Document<'_>) -> Result<T, DomainError>,
    ) -> Result<T, DomainError> {
        reader(&read(&self.text)?)
    }

    /// Collects the edits of one setter and does them all, or none. True if the text changed.
    pub(crate) fn rewrite(
        &mut self,
        collect: impl FnOnce(&Document<'_>, &mut Edits<'_>) -> Result<(), DomainError>,
    ) -> Result<bool, DomainError> {
        let document = read(&self.text)?;
        let mut edits = Edits::new(&self.text);
        collect(&document, &mut edits)?;
        let Some(text) = edits.finish().filter(|text| *text != self.text) else { return Ok(false) };
        // A setter that broke the text must not pass it on: characters XML forbids end up here.
        *self = Self::parse(&text)?;
        Ok(true)
    }
}

impl fmt::Display for DomainXml {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl FromStr for DomainXml {
    type Err = DomainError;
    fn from_str(text: &str) -> Result<Self, DomainError> {
        Self::parse(text)
    }
}

/// Parses within the limits.
pub(crate) fn read(text: &str) -> Result<Document<'_>, DomainError> {
    limits::check(text)?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: limits::MAX_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| {
        let at = error.pos();
        let position = Position { line: at.row, column: at.col };
        match error {
            roxmltree::Error::DtdDetected => DomainError::DocumentType { position },
            roxmltree::Error::NodesLimitReached => {
                DomainError::TooMuch { position, what: "nodes", limit: limits::MAX_NODES as usize }
            }
            // The parser gives these no place; a text that was cut off is wrong at its end.
            roxmltree::Error::UnclosedRootNode | roxmltree::Error::UnexpectedEndOfStream => DomainError::Malformed {
                position: Position::at(text, text.len()),
                problem: "the text ends inside an element".to_owned(),
            },
            other => DomainError::Malformed { position, problem: crate::error::short(&other.to_string()) },
        }
    })
}
