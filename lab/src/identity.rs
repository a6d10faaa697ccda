//! Names of labs, and random identities.

use std::fmt;
use std::io::Read;
use std::str::FromStr;

use nearmetal_host::files;
use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// A checked name: it becomes a directory, part of a socket's path (which has 108 bytes in all), and QEMU's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

const LONGEST: usize = 24;

impl LabName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LabName {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let valid = text.len() <= LONGEST
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        if valid { Ok(Self(text.to_owned())) } else { Err(LabError::Name { name: text.to_owned() }) }
    }
}

impl TryFrom<String> for LabName {
    type Error = LabError;

    fn try_from(text: String) -> Result<Self, LabError> {
        text.parse()
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> Self {
        name.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// A random UUID (version 4).
pub(crate) fn token() -> Result<String, LabError> {
    let path = std::path::Path::new("/dev/urandom");
    let mut bytes = [0u8; 16];
    files::open(path)?.read_exact(&mut bytes).map_err(|source| files::FileError {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["quad", "a", "a-1", "abcdefghijklmnopqrstuvwx"] {
            assert_eq!(good.parse::<LabName>().unwrap().as_str(), good);
        }
        for bad in ["", "Quad", "1a", "-a", "a/b", "a b", "..", "a\n", "ä", "abcdefghijklmnopqrstuvwxy"] {
            assert!(bad.parse::<LabName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn tokens_differ() {
        let (first, second) = (token().unwrap(), token().unwrap());
        assert_ne!(first, second);
        assert_eq!(first.len(), 36);
        assert_eq!(first.as_bytes()[14], b'4');
    }
}
