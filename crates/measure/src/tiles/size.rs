//! How much a tile holds and is asked, all of it from one factor.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Role;

/// By which factor a tile's rates and contents are smaller or larger than the standard one's: thousandths, from 0.001 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Scale(u32);

impl Scale {
    /// The standard tile.
    pub const ONE: Self = Self(1_000);

    /// As a number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

impl TryFrom<f64> for Scale {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        match (0.001..=100.0).contains(&value) {
            true => Ok(Self((value * 1e3).round() as u32)),
            false => Err(format!("a tile cannot be {value} times as large: it must be 0.001 to 100 times")),
        }
    }
}

impl From<Scale> for f64 {
    fn from(scale: Scale) -> Self {
        scale.get()
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Requests a second on average, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(u32);

impl Rate {
    /// As a number.
    pub fn get(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

impl TryFrom<f64> for Rate {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        match (0.01..=1e6).contains(&value) {
            true => Ok(Self((value * 1e3).round() as u32)),
            false => Err(format!("{value} is not a rate: it must be 0.01 to 1000000 requests a second")),
        }
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.get()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// One tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TileSize {
    /// Its number, from 1: no two tiles serve the same bytes, so that neither a shared page cache nor KSM makes one of two, and
    /// no two are asked at the same moments.
    pub tile: u32,
    /// How much it holds and is asked.
    pub scale: Scale,
    /// Measured seconds.
    pub seconds: u32,
    /// Seconds of load before them.
    pub ramp: u32,
    /// Whether the machine is emulated, where everything takes longer to begin.
    pub emulated: bool,
}

impl TileSize {
    /// What a guest is asked.
    pub fn rate(&self, role: Role) -> Rate {
        let standard: u32 = match role {
            Role::Web => 500_000,
            Role::Mail | Role::App => 50_000,
            Role::Infra | Role::Db => 20_000,
            // One request a second, whatever the others do.
            Role::Idle => return Rate(1_000),
        };
        Rate((f64::from(standard) * self.scale.get()).round().max(10.0) as u32)
    }
}
