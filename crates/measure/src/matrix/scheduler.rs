//! The host's scheduler of the drive: read, set, read back. One setting serves the whole drive, so it is set anew before
//! each run of an arm that wants another.

use nearmetal_host::{Host, HostFs};
use nearmetal_results::Scheduler;

use crate::error::MeasureError;
use crate::leftovers::write;

/// A drive's scheduler setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// `/sys/class/block/…/queue/scheduler`.
    pub path: String,
    /// The word in force when it was first read.
    pub found: String,
    /// All words the kernel offers, that one included.
    pub offered: Vec<String>,
}

impl Setting {
    /// The setting of a drive (`nvme0n1`); `None` where it has none, as stacked devices.
    pub(crate) fn of(fs: &HostFs, host: &Host, name: &str) -> Option<Self> {
        let device = host.block_device(name)?;
        let whole = device.partition_of.clone().unwrap_or_else(|| device.name.clone());
        let serving = host.block_device(&whole).and_then(|whole| whole.served_by.clone()).unwrap_or(whole);
        let path = format!("/sys/class/block/{serving}/queue/scheduler");
        let (found, offered) = parse(&fs.read(&path).ok()?)?;
        Some(Self { path, found, offered })
    }

    /// Those offered that nearmetal knows.
    pub(crate) fn known(&self) -> Vec<Scheduler> {
        self.offered.iter().filter_map(|name| Scheduler::named(name)).collect()
    }

    /// Sets the scheduler an arm wants, or the one that was found, and reads it back. Gives the words that show it.
    ///
    /// # Errors
    /// The kernel refuses, or has another one in force afterwards.
    pub(crate) fn set(&self, fs: &HostFs, wanted: Option<Scheduler>) -> Result<String, MeasureError> {
        let name: &str = wanted.map_or(&self.found, |wanted| wanted.name());
        let read = || fs.read(&self.path).ok().as_deref().and_then(parse).map(|(found, _)| found);
        if read().as_deref() != Some(name) {
            write(fs, &self.path, name)?;
        }
        match read() {
            Some(now) if now == name => Ok(format!("{}: [{name}]", self.path)),
            now => Err(MeasureError::Unfit(format!(
                "`{}` was set to `{name}` and says `{}`: does another program set it?",
                self.path,
                now.unwrap_or_else(|| "nothing".to_owned())
            ))),
        }
    }
}

/// `none [mq-deadline] kyber`: the one in force, and all.
fn parse(text: &str) -> Option<(String, Vec<String>)> {
    let bare = |word: &str| word.trim_matches(['[', ']']).to_owned();
    let found = text.split_whitespace().find(|word| word.starts_with('[') && word.ends_with(']')).map(bare)?;
    Some((found, text.split_whitespace().map(bare).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bracketed_word_is_in_force() {
        let (found, offered) = parse("none [mq-deadline] kyber adios\n").unwrap();
        assert_eq!((found.as_str(), offered.len()), ("mq-deadline", 4));
        let setting = Setting { path: "/sys/x".into(), found, offered };
        assert_eq!(setting.known(), [Scheduler::None, Scheduler::MqDeadline, Scheduler::Kyber]);
        for junk in ["", "none mq-deadline", "[none", "\n"] {
            assert_eq!(parse(junk), None, "{junk:?}");
        }
    }
}
