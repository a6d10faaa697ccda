//! What loads have in common that are a server of the loads image, with its data in a file system on the scratch device and a program
//! beside it that asks: MariaDB, PostgreSQL, nginx.
//!
//! Every sample makes its file system and fills it anew. When the script in the image has done that it waits at a gate
//! (`lab/loads/server.sh`), so the load takes no longer than it needs to begin, and those of several tenants begin together.

use std::time::Duration;

use nearmetal_units::Bytes;

use super::{At, FileSystem, Window};
use crate::cost::Middle;
use crate::error::LoadError;

/// On what the data are.
const FILE_SYSTEM: FileSystem = FileSystem::Ext4;

/// Seconds that preparing may take at most: what is beside it leaves a gate within the day that it may be held.
pub(super) const MOST_TO_PREPARE: u32 = 12 * 60 * 60;

/// One sample of such a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// Room that its data need on a device.
    pub room: Bytes,
    /// Seconds that preparing may take: making the file system, starting the server and filling it.
    pub prepare: u32,
    /// Parts of the load, each with its ramp.
    pub parts: u32,
    /// Seconds of load before a part is measured.
    pub ramp: u32,
    /// Measured seconds of each part.
    pub seconds: u32,
}

impl Server {
    /// The words that run it: the program by its path in the image, behind its numbers.
    pub(super) fn command(&self, at: &At<'_>, program: Vec<String>) -> Vec<String> {
        // Whatever the device's size, making the file system takes as long.
        let size = self.room.get().to_string();
        let mut options = vec!["--device", at.device, "--kind", FILE_SYSTEM.name(), "--size", &size];
        let patience = at.gate.map(|gate| gate.patience.as_secs().to_string());
        if let (Some(gate), Some(patience)) = (at.gate, &patience) {
            options.extend(["--gate", gate.name, "--gate-seconds", patience]);
        }
        at.in_the_image(&options, program)
    }

    /// From the probe's start until it waits at the gate, at most.
    pub(super) fn prepares(&self) -> Duration {
        seconds(self.prepare.min(MOST_TO_PREPARE))
    }

    /// From the beginning of the load to its end.
    pub(super) fn length(&self) -> Duration {
        seconds(self.parts * (self.ramp + self.seconds))
    }

    /// The part in which costs are counted; `None` where there are several.
    pub(super) fn middle(&self) -> Option<Middle> {
        (self.parts == 1).then(|| Middle::after(seconds(self.ramp), seconds(self.seconds)))
    }

    /// The file system it needs, and how much room on it.
    pub(super) fn files(&self) -> (FileSystem, Bytes) {
        (FILE_SYSTEM, self.room)
    }
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(number.into())
}

/// A program of the image and its numbers, as words.
pub(super) fn program(path: &str, numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    std::iter::once(path.to_owned()).chain(numbers.into_iter().map(|number| number.to_string())).collect()
}

/// `name value` lines that such a program prints, and whose they are for errors.
#[derive(Clone, Copy)]
pub(super) struct Said<'o> {
    /// What is said where it cannot be read: `what pgbench's load printed`.
    pub what: &'static str,
    /// The text.
    pub text: &'o str,
}

impl<'o> Said<'o> {
    pub(super) fn unreadable(self, why: &str) -> LoadError {
        super::unreadable(self.what, why, self.text)
    }

    /// The value of the first line with this name, if there is one.
    pub(super) fn find(self, name: &str) -> Option<&'o str> {
        self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::trim)
    }

    /// The same where it must be there.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn value(self, name: &str) -> Result<&'o str, LoadError> {
        self.find(name).ok_or_else(|| self.unreadable(&format!("no `{name}` in it")))
    }

    /// The same as a whole number.
    ///
    /// # Errors
    /// There is none, or it is something else.
    pub(super) fn whole(self, name: &str) -> Result<u64, LoadError> {
        let found = self.value(name)?;
        found.parse().map_err(|_| self.unreadable(&format!("its `{name}` is not a whole number")))
    }

    /// That the server runs with these settings: with others an arm could win by not writing, or by memory that the other side has
    /// not. `memory` is the name of what it has for pages, in bytes, and how much was asked for.
    ///
    /// # Errors
    /// It runs with others, or does not say.
    pub(super) fn settings(self, asked: &[(&str, &str)], memory: (&str, Bytes)) -> Result<(), LoadError> {
        let setting = |name: &str| {
            let found = self.find(&format!("setting.{name}"));
            found.ok_or_else(|| self.unreadable(&format!("the server does not say its `{name}`")))
        };
        for (name, asked) in asked {
            let found = setting(name)?;
            if found != *asked {
                return Err(database(format!(
                    "the server runs with {name} = {found}, and {asked} is what all sides run with"
                )));
            }
        }
        let (name, least) = memory;
        let found = setting(name)?;
        match found.parse::<u64>() {
            Ok(bytes) if bytes >= least.get() => Ok(()),
            _ => Err(database(format!("its {name} has {found} bytes, and {} were asked for", least.get()))),
        }
    }

    /// The last `seconds` between its two moments, on the clock of the host, before which the program's is by `ahead` ms.
    ///
    /// # Errors
    /// It does not say when, or was not there for so long.
    pub(super) fn last(self, seconds: u32, ahead: f64) -> Result<Window, LoadError> {
        let moment = |name: &str| {
            let found = self.value(name)?.parse::<f64>().ok();
            let found = found.filter(|moment| *moment > 0.0 && moment.is_finite());
            found.ok_or_else(|| self.unreadable(&format!("its `{name}` is no moment")))
        };
        let (first, ended) = (moment("began_ms")?, moment("ended_ms")?);
        let began = ended - f64::from(seconds) * 1e3;
        match began >= first {
            true => Ok(Window { began: began - ahead, ended: ended - ahead }),
            false => Err(self.unreadable("it ended before the measured seconds were over")),
        }
    }
}

/// A database that is not what was asked for, or did not do it.
pub(super) fn database(why: String) -> LoadError {
    LoadError::WorkloadFailed { what: "the database".to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gate;

    const ONE: Server = Server { room: Bytes::from_mib(224), prepare: 20, parts: 1, ramp: 3, seconds: 10 };

    #[test]
    fn what_is_counted_lies_within_the_one_measured_part() {
        let middle = ONE.middle().unwrap();
        assert_eq!((middle.begins, middle.ends), (seconds(6), seconds(11)));
        assert_eq!((ONE.prepares(), ONE.length()), (seconds(20), seconds(13)));
        assert_eq!(Server { prepare: u32::MAX, ..ONE }.prepares(), seconds(MOST_TO_PREPARE));
        let three = Server { parts: 3, ..ONE };
        assert_eq!((three.middle(), three.length()), (None, seconds(39)));
    }

    #[test]
    fn the_command_is_the_same_on_both_sides_but_for_where_they_have_the_image_and_the_device() {
        let at = At { device: "serial:nearmetal-region", loads: "serial:nearmetal-loads", ..At::probe("/p") };
        assert_eq!(
            ONE.command(&at, program("/x", [1, 2])).join(" "),
            format!(
                "/p programs --image serial:nearmetal-loads --device serial:nearmetal-region --kind ext4 --size {} -- /x 1 2",
                224 << 20
            )
        );
        let held = At { gate: Some(Gate { name: "one", patience: seconds(90) }), ..at };
        assert!(ONE.command(&held, program("/x", [1])).join(" ").ends_with(" --gate one --gate-seconds 90 -- /x 1"));
    }

    #[test]
    fn a_name_is_a_whole_word_and_the_first_line_counts() {
        let said = Said { what: "it", text: "rows_all 9\nrows 1\nrows 2\nempty \nbegan_ms 5\n" };
        assert_eq!((said.find("rows"), said.find("row"), said.find("empty")), (Some("1"), None, Some("")));
        assert_eq!(said.whole("rows").unwrap(), 1);
        for (name, why) in [("row", "no `row` in it"), ("empty", "not a whole number")] {
            assert!(said.whole(name).unwrap_err().to_string().contains(why), "{name}");
        }
        assert!(said.last(1, 0.0).unwrap_err().to_string().contains("no `ended_ms`"));
    }
}
