//! An edit of a definition as data: what a plan or a journal holds, to be made by [`DomainXml`](crate::DomainXml).

use std::fmt;

use serde::{Deserialize, Serialize};

/// One edit. `at` is the place of an element below `<domain>`: names of elements, parted by slashes, each with at most
/// one condition on an attribute of itself or of a child: `devices/disk[target/@dev='vda']/driver`,
/// `cputune/vcpupin[@vcpu='3']`, `memoryBacking`. This is a part of XPath 1.0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "edit", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DefinitionEdit {
    /// Sets an attribute. Elements of the path that are not there are made, with the attributes their conditions name;
    /// one whose condition names a child is never made.
    SetAttribute {
        /// The element.
        at: String,
        /// Name of the attribute.
        name: String,
        /// Its value.
        value: String,
    },
    /// Removes an attribute, if it is there.
    RemoveAttribute {
        /// The element.
        at: String,
        /// Name of the attribute.
        name: String,
    },
    /// Sets the text of an element; it is made as for [`SetAttribute`](Self::SetAttribute).
    SetText {
        /// The element.
        at: String,
        /// Its text.
        text: String,
    },
    /// Makes sure an element is there, made as for [`SetAttribute`](Self::SetAttribute).
    Ensure {
        /// The element.
        at: String,
    },
    /// Removes an element, if it is there.
    Remove {
        /// The element.
        at: String,
    },
}

/// One line, as a person would write it down.
impl fmt::Display for DefinitionEdit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAttribute { at, name, value } => write!(formatter, "{at}/@{name} = {value}"),
            Self::RemoveAttribute { at, name } => write!(formatter, "{at}/@{name} removed"),
            Self::SetText { at, text } => write!(formatter, "{at} = {text}"),
            Self::Ensure { at } => write!(formatter, "{at} added"),
            Self::Remove { at } => write!(formatter, "{at} removed"),
        }
    }
}
