//! What labs leave behind: files of the dead are removed, kept disks only when asked.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nearmetal_host::files;

use crate::error::LabError;
use crate::identity::LabName;
use crate::launch::Process;
use crate::lock::Lock;
use crate::places::Places;
use crate::progress::{Progress, Silent};
use crate::record::{DiskRecord, LabState, LabStatus, Record};
use crate::{ssh, trash};

/// Every lab there is, running or not, by name.
///
/// # Errors
/// A directory cannot be listed.
pub fn status(places: &Places) -> Result<Vec<LabStatus>, LabError> {
    Ok(places.names()?.iter().filter_map(|name| one(places, name)).collect())
}

fn one(places: &Places, name: &LabName) -> Option<LabStatus> {
    let (state, disks) = (places.state(name), places.disks(name));
    let running = Process::recorded(&state).filter(|process| process.is_alive());
    let record = Record::read(&state);
    let kept = DiskRecord::read(&disks);
    let lab_state = match (&record, running) {
        (Some(record), Some(_)) if record.boot.is_some() => LabState::Up,
        (_, Some(_)) => LabState::Booting,
        (_, None) if state.exists() => LabState::Dead,
        _ if kept.is_some() => LabState::Kept,
        _ => return None,
    };
    Some(LabStatus {
        name: name.clone(),
        state: lab_state,
        machine: record
            .as_ref()
            .map(|record| record.machine.clone())
            .or(kept.as_ref().map(|kept| kept.machine.clone())),
        image: record.as_ref().map(|record| record.image.clone()).or(kept.as_ref().map(|kept| kept.image.clone())),
        pid: running.map(|process| process.pid),
        ssh_port: record.as_ref().filter(|_| running.is_some()).map(|record| record.ssh_port),
        keep: kept.is_some(),
        count: record.as_ref().filter(|_| running.is_some()).and_then(|record| record.machine().ok()?.count),
        append: record.as_ref().map(|record| record.append.clone()).unwrap_or_default(),
        boot: record.and_then(|record| record.boot),
        disk_bytes: bytes(&disks),
    })
}

/// Bytes that the files of a directory take on the host, holes excluded.
fn bytes(directory: &Path) -> u64 {
    let Ok(paths) = files::list(directory) else { return 0 };
    paths.iter().filter_map(|path| path.metadata().ok()).map(|metadata| metadata.blocks() * 512).sum()
}

/// Removes what labs that were killed left behind. Gives their names.
///
/// # Errors
/// Files cannot be removed.
pub fn sweep(places: &Places) -> Result<Vec<LabName>, LabError> {
    let _lock = Lock::wait(&places.run().join(".lock"))?;
    dead(places, &mut Silent)
}

/// As [`sweep`], with the lock held.
pub(crate) fn dead(places: &Places, progress: &mut dyn Progress) -> Result<Vec<LabName>, LabError> {
    trash::empty(places)?;
    let mut swept = Vec::new();
    for name in places.names()? {
        if Process::recorded(&places.state(&name)).is_some_and(Process::is_alive) {
            continue;
        }
        let leftovers = places.state(&name).exists()
            || (places.disks(&name).exists() && DiskRecord::read(&places.disks(&name)).is_none());
        if leftovers {
            progress.note(&format!("swept what lab {name} left when it was killed"));
            discard(places, &name)?;
            swept.push(name);
        }
    }
    Ok(swept)
}

/// Keeps the console and QEMU's words of a boot that failed: `logs/NAME.console.log`, `logs/NAME.qemu.log` in the cache.
pub(crate) fn keep_logs(places: &Places, name: &LabName) -> Result<(), LabError> {
    let logs = places.cache().join("logs");
    files::create_dir_all(&logs)?;
    for file in ["console.log", "qemu.log"] {
        if let Ok(text) = files::read(&places.state(name).join(file)) {
            files::write(&logs.join(format!("{name}.{file}")), text)?;
        }
    }
    Ok(())
}

/// Removes the state of a lab that does not run, and its disks unless they are kept.
pub(crate) fn discard(places: &Places, name: &LabName) -> Result<(), LabError> {
    let state = places.state(name);
    if let Some(record) = Record::read(&state) {
        ssh::disconnect(&state, record.ssh_port);
    }
    files::remove_dir_all(&state)?;
    if DiskRecord::read(&places.disks(name)).is_none() {
        trash::discard(places, &places.disks(name))?;
    }
    let others = files::list(places.run()).unwrap_or_default();
    if !others.iter().any(|path| path.join("pid").exists()) {
        // Sockets of cables stay when their QEMU is killed, and another lab may hold the other end.
        files::remove_dir_all(&places.cables())?;
    }
    Ok(())
}

/// Removes the kept disks of a lab that does not run. Gives whether there were any.
///
/// # Errors
/// The lab runs, or its files cannot be removed.
pub fn purge(places: &Places, name: &LabName) -> Result<bool, LabError> {
    let _lock = Lock::wait(&places.run().join(".lock"))?;
    if Process::recorded(&places.state(name)).is_some_and(Process::is_alive) {
        return Err(LabError::AlreadyUp { name: name.to_string() });
    }
    let there = places.disks(name).exists();
    trash::discard(places, &places.disks(name))?;
    discard(places, name)?;
    Ok(there)
}
