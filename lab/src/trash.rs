//! Disks that nobody needs any more.
//!
//! Where the file system gives freed blocks back to its device at once (ext4 mounted with `discard`), removing a disk that
//! was written at random takes half a minute. So it is renamed away, and a process of its own removes it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nearmetal_host::files;

use crate::error::LabError;
use crate::places::Places;

/// Gets a directory out of the way, and has it removed.
pub(crate) fn discard(places: &Places, directory: &Path) -> Result<(), LabError> {
    if directory.exists() {
        files::create_dir_all(&places.trash())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // Who discards holds the lock of all labs, and a moment has one of them.
        files::rename(directory, &places.trash().join(now.to_string()))?;
    }
    empty(places)
}

/// Has removed what is there, also what an earlier process was killed over.
pub(crate) fn empty(places: &Places) -> Result<(), LabError> {
    let trash = places.trash();
    let left = if trash.is_dir() { files::list(&trash)? } else { Vec::new() };
    if left.is_empty() {
        return Ok(());
    }
    let failed = |source| LabError::Start { program: "setsid".to_owned(), source };
    let mut command = Command::new("setsid");
    command.args(["--fork", "rm", "-rf", "--"]).args(left);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    // `setsid --fork` ends at once; what it started outlives this process.
    command.status().map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_is_discarded_is_gone_at_once_and_removed_soon() {
        let directory = tempfile::tempdir().unwrap();
        let places = Places::new(directory.path(), directory.path().join("run"));
        let disks = directory.path().join("labs/one");
        files::create_dir_all(&disks).unwrap();
        files::write(&disks.join("root.qcow2"), "a disk").unwrap();
        // A process that was killed over it left this.
        files::create_dir_all(&places.trash().join("1/deep")).unwrap();
        discard(&places, &disks).unwrap();
        assert!(!disks.exists());
        let began = Instant::now();
        while !files::list(&places.trash()).unwrap().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(60), "nobody removes it");
            sleep(Duration::from_millis(5));
        }
        discard(&places, &disks).unwrap();
    }
}
