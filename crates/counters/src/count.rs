//! What is counted.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a lab's emulated processors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Count {
    /// Instructions, those of guests apart, and entries into guests.
    Work,
    /// These, and accesses to memory by the node they went to: twice as slow.
    Locality,
}

impl Count {
    const ALL: [Self; 2] = [Self::Work, Self::Locality];

    /// Its name in machine files and on command lines.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Locality => "locality",
        }
    }

    /// Its number in the page.
    pub const fn word(self) -> u64 {
        match self {
            Self::Work => 1,
            Self::Locality => 2,
        }
    }

    /// What a number in the page means.
    pub fn of_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|count| count.word() == word)
    }
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|count| count.id() == text);
        found.ok_or_else(|| {
            format!("`{}` cannot be counted: write work or locality", text.chars().take(80).collect::<String>())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for count in Count::ALL {
            assert_eq!((count.id().parse(), Count::of_word(count.word())), (Ok(count), Some(count)));
        }
        assert_eq!(Count::of_word(0), None);
        assert!("time".parse::<Count>().unwrap_err().contains("work or locality"));
    }
}
