//! Amounts of memory and storage: binary units only, since the kernel and libvirt count in powers of two.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

const UNITS: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// A number of bytes. Serialised as an integer.
///
/// Shown in the largest unit it has one of: whole where that unit divides it (`2 GiB`); below ten of them, whole in the
/// next smaller one where that divides it (`1536 MiB`), since what people chose is shown as they chose it; otherwise to
/// one decimal (`9.8 GiB`), as free memory and image sizes are. Never in anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// From a count of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// From KiB; saturates.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }

    /// From MiB; saturates.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// The count of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole KiB, rounded down.
    pub const fn kib(self) -> u64 {
        self.0 >> 10
    }

    /// How many pages hold this amount, rounded up.
    pub const fn pages(self, size: PageSize) -> u64 {
        self.0.div_ceil(size.bytes().0)
    }

    /// The sum, saturating.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, zero where it would be negative.
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `count` times this amount, saturating.
    pub const fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = UNITS.iter().position(|(_, size)| self.0 >= *size).unwrap_or(UNITS.len() - 1);
        let (name, size) = UNITS[at];
        if self.0 % size == 0 {
            return formatter.pad(&format!("{} {name}", self.0 / size));
        }
        match UNITS.get(at + 1) {
            Some((smaller, part)) if self.0 % part == 0 && self.0 < size.saturating_mul(10) => {
                formatter.pad(&format!("{} {smaller}", self.0 / part))
            }
            _ => formatter.pad(&format!("{:.1} {name}", self.0 as f64 / size as f64)),
        }
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    /// Accepts `512`, `512B`, `64K`, `64 KiB`, `2M`, `1GiB`, … (case-insensitive; binary in every case).
    fn from_str(text: &str) -> Result<Self, ParseError> {
        const RULE: &str = "write a whole number and B, KiB, MiB, GiB or TiB, such as 512MiB";
        let error = || ParseError::new("an amount of memory", text, RULE);
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let count: u64 = trimmed[..digits].parse().map_err(|_| error())?;
        let scale = match trimmed[digits..].trim().to_ascii_lowercase().as_str() {
            "" | "b" | "bytes" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1u64 << 40,
            _ => return Err(error()),
        };
        count.checked_mul(scale).map(Self).ok_or_else(error)
    }
}

/// A page size: a power of two from 4 KiB to 16 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Bytes", into = "Bytes")]
pub struct PageSize(Bytes);

impl PageSize {
    /// The base page of x86.
    pub const SMALL: Self = Self(Bytes::from_kib(4));
    /// The PMD-sized huge page of x86.
    pub const HUGE_2M: Self = Self(Bytes::from_mib(2));
    /// The PUD-sized huge page of x86.
    pub const HUGE_1G: Self = Self(Bytes::from_mib(1024));

    /// The size of one page.
    pub const fn bytes(self) -> Bytes {
        self.0
    }
}

impl TryFrom<Bytes> for PageSize {
    type Error = ParseError;

    fn try_from(bytes: Bytes) -> Result<Self, ParseError> {
        let count = bytes.get();
        if count.is_power_of_two() && (4096..=(16 << 30)).contains(&count) {
            Ok(Self(bytes))
        } else {
            Err(ParseError::new("a page size", &bytes.to_string(), "a power of two from 4 KiB to 16 GiB"))
        }
    }
}

impl From<PageSize> for Bytes {
    fn from(size: PageSize) -> Self {
        size.0
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_people_write_them() {
        let table = [
            ("0", 0),
            ("512", 512),
            ("64K", 65536),
            ("2 MiB", 2 << 20),
            ("1g", 1 << 30),
            ("3TiB", 3 << 40),
            ("7 b", 7),
        ];
        for (text, bytes) in table {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes::new(bytes), "{text}");
        }
        for junk in ["", "M", "-1", "1.5G", "2 MB", "99999999999999999999", "16777216TiB", "1 GiB x"] {
            assert!(junk.parse::<Bytes>().is_err(), "{junk}");
        }
    }

    #[test]
    fn amounts_show_the_unit_that_divides_them() {
        assert_eq!(Bytes::from_mib(1536).to_string(), "1536 MiB");
        assert_eq!(Bytes::from_mib(2048).to_string(), "2 GiB");
        assert_eq!(Bytes::new(0).to_string(), "0 B");
        assert_eq!(Bytes::new((24 << 30) + 123_456_789).to_string(), "24.1 GiB");
        assert_eq!(Bytes::from_kib(10_000 << 10 | 717).to_string(), "9.8 GiB", "not 10000.7 MiB");
        assert_eq!(Bytes::from_mib(9_000).to_string(), "9000 MiB");
        assert_eq!(Bytes::from_mib(20_992).to_string(), "20.5 GiB");
        assert_eq!(Bytes::new(5_000).to_string(), "5000 B");
        assert_eq!(Bytes::new(20_000).to_string(), "19.5 KiB");
        assert_eq!(Bytes::new(7).to_string(), "7 B");
        assert_eq!(Bytes::new(u64::MAX).to_string(), "16777216.0 TiB");
    }

    #[test]
    fn page_sizes_are_powers_of_two() {
        assert!(PageSize::try_from(Bytes::from_kib(4)).is_ok());
        assert!(PageSize::try_from(Bytes::from_kib(5)).is_err());
        assert!(PageSize::try_from(Bytes::new(0)).is_err());
        assert_eq!(Bytes::from_mib(3).pages(PageSize::HUGE_2M), 2);
    }
}
