//! How much a tile holds and is asked, all of it from one factor.

use std::fmt;

use nearmetal_units::Bytes;
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

/// The standard tile's contents.
const DIRECTORIES: u32 = 20;
const USERS: u32 = 50;
const MESSAGES: u32 = 50;
const ROWS: u32 = 50_000;
const ITEMS: u32 = 10_000;
/// Tables of the database: enough that two transactions seldom meet.
const TABLES: u32 = 4;
/// The least of them, with which all that is asked can still be asked.
const FEWEST_USERS: u32 = 4;
const FEWEST_MESSAGES: u32 = 10;
const FEWEST_ROWS: u32 = 500;
const FEWEST_ITEMS: u32 = 100;
/// What the probe takes at most of each.
pub(crate) const MOST_DIRECTORIES: u32 = 99_999;
const MOST_USERS: u32 = 9_999;
/// Bytes of a directory of files (36 files), of a message on average, and of a row with its place in the second index.
pub(crate) const DIRECTORY: Bytes = Bytes::new(5_119_470);
const MESSAGE: Bytes = Bytes::from_kib(19);
const ROW: Bytes = Bytes::new(400);
/// The part of the requests for mail that append a message (`CLASSES` in the probe's load/mail.rs).
const APPENDED: f64 = 0.15;
/// The least memory for pages of tables with which MariaDB holds what transactions have open.
const SMALLEST_POOL: Bytes = Bytes::from_mib(32);

impl TileSize {
    /// What a guest is asked. Rates of the standard tile are ours: the published ones are sessions of drivers that are not free.
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

    fn scaled(&self, standard: u32, fewest: u32) -> u32 {
        ((f64::from(standard) * self.scale.get()).round() as u32).max(fewest)
    }

    /// Directories of the web server's site.
    pub fn directories(&self) -> u32 {
        self.scaled(DIRECTORIES, 1).min(MOST_DIRECTORIES)
    }

    /// Bytes of the whole site.
    pub fn site(&self) -> Bytes {
        DIRECTORY.times(self.directories().into())
    }

    /// Users of the mail server.
    pub fn users(&self) -> u32 {
        self.scaled(USERS, FEWEST_USERS).min(MOST_USERS)
    }

    /// Messages in the inbox of each at the beginning.
    pub fn messages(&self) -> u32 {
        // A larger tile has more users, and not more mail for each.
        self.scaled(MESSAGES, FEWEST_MESSAGES).min(MESSAGES)
    }

    /// Bytes of all messages.
    pub fn mail(&self) -> Bytes {
        MESSAGE.times(u64::from(self.users()) * u64::from(self.messages()))
    }

    /// Bytes of the messages that are appended in so many samples.
    pub fn appended(&self, samples: u32) -> Bytes {
        let seconds = f64::from(self.ramp + self.seconds) * f64::from(samples);
        MESSAGE.times((self.rate(Role::Mail).get() * APPENDED * seconds).ceil() as u64)
    }

    /// Tables of the database.
    pub fn tables(&self) -> u32 {
        TABLES
    }

    /// Rows of each table.
    pub fn rows(&self) -> u32 {
        self.scaled(ROWS, FEWEST_ROWS)
    }

    /// Bytes of all rows.
    pub fn data(&self) -> Bytes {
        ROW.times(u64::from(self.tables()) * u64::from(self.rows()))
    }

    /// Memory of the database for pages of its tables: all of them fit, with room for what is written.
    pub fn pool(&self) -> Bytes {
        Bytes::from_mib((self.data().times(2).kib() / 1024).next_multiple_of(32)).max(SMALLEST_POOL)
    }

    /// Things that the application sells.
    pub fn items(&self) -> u32 {
        self.scaled(ITEMS, FEWEST_ITEMS)
    }

    /// Threads of the application, each with a connection to the database.
    pub fn desks(&self) -> u32 {
        if self.emulated { 4 } else { 16 }
    }

    /// Heap of the application, MiB.
    pub fn heap_mib(&self) -> u64 {
        if self.emulated { 64 } else { 256 }
    }

    /// Seconds that a server may take until it is there.
    pub fn patience(&self) -> u32 {
        if self.emulated { 600 } else { 120 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(scale: f64) -> TileSize {
        TileSize { tile: 1, scale: Scale::try_from(scale).unwrap(), seconds: 30, ramp: 5, emulated: false }
    }

    #[test]
    fn rates_and_contents_follow_the_factor() {
        let rates = |scale| Role::ALL.map(|role| size(scale).rate(role).get());
        assert_eq!(rates(1.0), [20.0, 20.0, 500.0, 50.0, 50.0, 1.0]);
        assert_eq!(rates(0.01), [0.2, 0.2, 5.0, 0.5, 0.5, 1.0]);
        // Not below what a generator can do at all.
        assert_eq!(rates(0.001), [0.02, 0.02, 0.5, 0.05, 0.05, 1.0]);
        let contents = |scale: f64| {
            let size = size(scale);
            (size.directories(), size.users(), size.messages(), size.rows(), size.items(), size.pool())
        };
        assert_eq!(contents(1.0), (20, 50, 50, 50_000, 10_000, Bytes::from_mib(160)));
        assert_eq!(contents(0.001), (1, 4, 10, 500, 100, Bytes::from_mib(32)));
        assert_eq!(contents(100.0).2, 50, "more users, each with as much mail");
    }

    #[test]
    fn factors_and_rates_are_numbers_in_documents_and_have_bounds() {
        let size = size(0.01);
        let text = serde_json::to_string(&size).unwrap();
        assert!(text.contains("\"scale\":0.01"), "{text}");
        assert_eq!(serde_json::from_str::<TileSize>(&text).unwrap(), size);
        for wrong in [0.0, -1.0, 0.0001, 101.0, f64::NAN, f64::INFINITY] {
            assert!(Scale::try_from(wrong).is_err(), "{wrong}");
            assert!(Rate::try_from(wrong * 1e7 - 1e7).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<TileSize>(&text.replace("0.01", "1e9")).is_err());
    }

    #[test]
    fn mail_grows_by_what_the_probe_appends() {
        let probe = include_str!("../../../../bin/nearmetal-probe/src/load/mail.rs");
        assert!(probe.contains(r#"[("fetch", 70), ("search", 10), ("append", 15), ("login", 5)]"#));
        // 50 requests a second for 35 s, of which 15 in 100 append.
        assert_eq!(size(1.0).appended(2), MESSAGE.times(525));
    }

    #[test]
    fn a_directory_is_what_the_probe_writes() {
        // bin/nearmetal-probe/src/load/site.rs: four classes of nine sizes.
        let of_a_directory: u64 = [102u64, 1_024, 10_240, 102_400].iter().map(|step| step * 45).sum();
        assert_eq!(DIRECTORY.get(), of_a_directory);
    }
}
