//! What QEMU said of its own end.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use nearmetal_host::files;

use crate::RunError;

/// Bytes at the end of a log that are read.
const MOST: u64 = 64 << 10;
/// Lines that are shown.
const LINES: usize = 3;
/// Characters of them that are shown.
const CHARACTERS: usize = 600;

/// The log that libvirt keeps of a guest's QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QemuLog {
    /// It stays where it is, until the run [removes](Self::remove) it.
    Stays(PathBuf),
    /// It goes with the run: its end is told.
    Goes(PathBuf),
}

impl QemuLog {
    /// Removes one that would stay, of a guest that is gone and of which no message names it.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self) -> Result<(), RunError> {
        match self {
            Self::Stays(path) => Ok(files::remove(path)?),
            Self::Goes(_) => Ok(()),
        }
    }

    /// What to add to a message about a guest that has ended.
    pub fn words(&self) -> String {
        let path = match self {
            Self::Stays(path) => return format!("; what QEMU said is in {}", path.display()),
            Self::Goes(path) => path,
        };
        let Some(text) = end_of(path) else {
            return "; what QEMU said is not known".to_owned();
        };
        // The command line comes first, a line for each argument, and a backslash behind all but the last.
        let is_argument = |line: &str| line.ends_with('\\') || line.starts_with('-');
        let said: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && !is_argument(line)).collect();
        if said.is_empty() {
            return "; QEMU said nothing".to_owned();
        }
        let last = said[said.len().saturating_sub(LINES)..].join(" | ");
        let last: String = last.chars().map(|c| if c.is_control() { '?' } else { c }).take(CHARACTERS).collect();
        format!("; QEMU said last: {last}")
    }
}

/// The end of a file, however long it is and whatever is in it.
fn end_of(path: &Path) -> Option<String> {
    let mut file = files::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST))).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_that_goes_is_told_without_the_command_line_and_one_that_stays_can_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run-a.log");
        let log = QemuLog::Goes(path.clone());
        assert_eq!(log.words(), "; what QEMU said is not known");
        files::write(
            &path,
            "starting up\nLC_ALL=C \\\n-sandbox on \\\n-msg timestamp=on\n2\u{1b}[2J\n\nshutting down\n",
        )
        .unwrap();
        assert_eq!(log.words(), "; QEMU said last: starting up | 2?[2J | shutting down");
        // It said much, and not all of it is text.
        let much = [b"noise\n".repeat(1 << 18).as_slice(), b"fatal: \xff\n"].concat();
        files::write(&path, &much).unwrap();
        assert_eq!(log.words(), "; QEMU said last: noise | noise | fatal: \u{fffd}");
        files::write(&path, "LC_ALL=C \\\n-sandbox on \\\n").unwrap();
        assert_eq!(log.words(), "; QEMU said nothing");
        let stays = QemuLog::Stays(path.clone());
        assert!(stays.words().ends_with("run-a.log"));
        log.remove().unwrap();
        assert!(path.exists(), "its directory goes, and it with that");
        // One that libvirt has not written is fine.
        for _ in 0..2 {
            stays.remove().unwrap();
            assert!(!path.exists());
        }
    }
}
