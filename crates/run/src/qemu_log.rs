//! What QEMU said of its own end.

use std::path::PathBuf;

use nearmetal_host::files;

/// Bytes of a log that are read.
const MOST: usize = 1 << 20;
/// Lines that are shown.
const LINES: usize = 3;
/// Characters of them that are shown.
const CHARACTERS: usize = 600;

/// The log that libvirt keeps of a guest's QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QemuLog {
    /// It stays where it is.
    Stays(PathBuf),
    /// It goes with the run: its end is told.
    Goes(PathBuf),
}

impl QemuLog {
    /// What to add to a message about a guest that has ended.
    pub fn words(&self) -> String {
        let path = match self {
            Self::Stays(path) => return format!("; what QEMU said is in {}", path.display()),
            Self::Goes(path) => path,
        };
        let Ok(text) = files::read_to_string_up_to(path, MOST) else {
            return "; what QEMU said is not known".to_owned();
        };
        // The command line comes first, a line for each argument, and a backslash behind all but the last.
        let is_argument = |line: &str| line.ends_with('\\') || line.starts_with('-');
        let said: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && !is_argument(line)).collect();
        let last = said[said.len().saturating_sub(LINES)..].join(" | ");
        let last: String = last.chars().map(|c| if c.is_control() { '?' } else { c }).take(CHARACTERS).collect();
        format!("; QEMU said last: {last}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_that_goes_is_told_without_the_command_line() {
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
        assert!(QemuLog::Stays(path.clone()).words().ends_with("run-a.log"));
    }
}
