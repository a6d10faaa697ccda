//! What a kit is: recognised by its files, and known again by their hash.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::LoadError;

/// Which benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum KitEdition {
    /// SPECjbb2005.
    #[default]
    #[serde(rename = "2005")]
    Of2005,
    /// SPECjbb2015.
    #[serde(rename = "2015")]
    Of2015,
}

impl KitEdition {
    /// All that can be run.
    pub const ALL: [Self; 2] = [Self::Of2005, Self::Of2015];

    /// Its word, as the program in the loads image takes it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Of2005 => "2005",
            Self::Of2015 => "2015",
        }
    }

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Of2005 => "SPECjbb2005",
            Self::Of2015 => "SPECjbb2015",
        }
    }

    /// Whether its run takes as long as it is told.
    pub fn is_timed(self) -> bool {
        self == Self::Of2005
    }

    /// Files at the top of the kit by which it is known, and without which it does not run.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Of2005 => &["jbb.jar", "check.jar", "SPECjbb.props"],
            Self::Of2015 => &["specjbb2015.jar"],
        }
    }

    /// That of the kit in a directory.
    ///
    /// # Errors
    /// It has the files of none, or of several.
    pub fn of(directory: &Path) -> Result<Self, LoadError> {
        let has = |edition: &Self| edition.files().iter().all(|file| directory.join(file).is_file());
        let found: Vec<Self> = Self::ALL.into_iter().filter(has).collect();
        match found[..] {
            [only] => Ok(only),
            [] => {
                let looked: Vec<String> =
                    Self::ALL.map(|one| format!("{} of {}", one.files().join(", "), one.title())).to_vec();
                Err(LoadError::Asked(format!(
                    "--kit: `{}` is not a kit that can be run. These files were looked for in it: {}. Name the directory that \
                     the kit's jar files are in",
                    directory.display(),
                    looked.join("; ")
                )))
            }
            _ => Err(LoadError::Asked(format!(
                "--kit: `{}` has the files of several kits: name a directory with one of them",
                directory.display()
            ))),
        }
    }
}

/// The first 8 bytes of a hash over all files of a kit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KitHash(pub [u8; 8]);

impl fmt::Display for KitHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl From<KitHash> for String {
    fn from(hash: KitHash) -> Self {
        hash.to_string()
    }
}

impl FromStr for KitHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not the hash of a kit: it has 16 of 0-9 and a-f");
        // `from_str_radix` would take a sign, too.
        if text.len() != 16 || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(wrong());
        }
        u64::from_str_radix(text, 16).map(|number| Self(number.to_be_bytes())).map_err(|_| wrong())
    }
}

impl TryFrom<String> for KitHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A kit. The default one has no files: a load that is only asked what it is has it, and commands do not run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kit {
    /// Which benchmark.
    pub edition: KitEdition,
    /// Its files.
    pub hash: KitHash,
}

#[cfg(test)]
mod tests {
    use nearmetal_host::files;

    use super::*;

    fn kit(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| files::write(&directory.path().join(name), "x").unwrap());
        directory
    }

    #[test]
    fn a_kit_is_known_by_its_files() {
        let of = |names: &[&str]| KitEdition::of(kit(names).path());
        assert_eq!(of(&["jbb.jar", "check.jar", "SPECjbb.props"]).unwrap(), KitEdition::Of2005);
        assert_eq!(of(&["specjbb2015.jar", "jbb.jar"]).unwrap(), KitEdition::Of2015);
        for names in [&["jbb.jar", "check.jar"][..], &["SPECjbb2015.jar"], &[]] {
            let why = of(names).unwrap_err();
            assert!(
                matches!(why, LoadError::Asked(_))
                    && why.to_string().contains("jbb.jar, check.jar, SPECjbb.props of SPECjbb2005")
            );
            assert!(why.to_string().contains("specjbb2015.jar of SPECjbb2015"), "{why}");
        }
        let why = of(&["jbb.jar", "check.jar", "SPECjbb.props", "specjbb2015.jar"]).unwrap_err().to_string();
        assert!(why.contains("several kits"), "{why}");
        assert!(KitEdition::of(Path::new("/nonexistent/kit")).is_err());
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let hash = KitHash([0, 1, 2, 3, 0xfc, 0xfd, 0xfe, 0xff]);
        assert_eq!(hash.to_string(), "00010203fcfdfeff");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for wrong in ["", "00010203fcfdfef", "+0010203fcfdfeff", "00010203FCFDFEFF", "00010203fcfdfeff0"] {
            assert!(wrong.parse::<KitHash>().is_err(), "{wrong}");
        }
        let kit = Kit { edition: KitEdition::Of2015, hash };
        let text = serde_json::to_string(&kit).unwrap();
        assert_eq!(text, r#"{"edition":"2015","hash":"00010203fcfdfeff"}"#);
        assert_eq!(serde_json::from_str::<Kit>(&text).unwrap(), kit);
        assert!(serde_json::from_str::<Kit>(r#"{"edition":"2005","hash":"x"}"#).is_err());
    }
}
