//! The systemd unit that makes again at boot what a reboot loses.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nearmetal_host::files::{self, FileError};

use crate::ChangeError;
use crate::machine::Machine;
use crate::shared::Seen;

/// Its name.
pub const UNIT_NAME: &str = "nearmetal-boot.service";

/// What a boot starts, below the directory of units.
const WANTS: &str = "multi-user.target.wants";

/// The first line: a unit without it is not ours to remove.
const MARK: &str = "# Installed by `nearmetal apply`, removed by `nearmetal rollback`.";

/// The text of the unit.
///
/// Ordered by itself rather than by default dependencies: pools are taken as soon as the state directory can be read,
/// while memory is still whole, and before anything that may start a guest. The socket-activated daemons are held back
/// too, since an ordering applies to every start that is requested while this unit waits.
pub(crate) fn unit_text(program: &Path, state: &Path) -> String {
    format!(
        "{MARK}
[Unit]
Description=nearmetal: hugepage pools, settings and devices of what was applied
Documentation=man:nearmetal(1)
DefaultDependencies=no
RequiresMountsFor={state}
After=local-fs.target systemd-sysctl.service systemd-remount-fs.service
Before=libvirtd.service virtqemud.service virtqemud.socket libvirtd.socket libvirt-guests.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program} boot-apply --state {state}

[Install]
WantedBy=multi-user.target
",
        state = escaped(state),
        program = escaped(program),
    )
}

/// A path as unit files want it: `%` starts a specifier, spaces end a word.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace('\\', "\\\\").replace('%', "%%").replace(' ', "\\x20")
}

fn unit_path(machine: &Machine<'_>) -> PathBuf {
    machine.unit_directory.join(UNIT_NAME)
}

fn link_path(machine: &Machine<'_>) -> PathBuf {
    machine.unit_directory.join(WANTS).join(UNIT_NAME)
}

/// The installed unit, `None` if there is none.
pub(crate) fn installed(machine: &Machine<'_>) -> Result<Option<String>, ChangeError> {
    let path = unit_path(machine);
    if path.exists() { Ok(Some(files::read_to_string(&path)?)) } else { Ok(None) }
}

/// What is in the place of our unit in a directory of units.
///
/// # Errors
/// It cannot be read.
pub(crate) fn seen(directory: &Path) -> Result<Seen, ChangeError> {
    let path = directory.join(UNIT_NAME);
    if path.symlink_metadata().is_err() {
        return Ok(Seen::Missing);
    }
    Ok(match is_ours(&files::read_to_string(&path)?) {
        false => Seen::Foreign,
        true if directory.join(WANTS).join(UNIT_NAME).symlink_metadata().is_ok() => Seen::InForce,
        true => Seen::Idle,
    })
}

/// Refuses where the administrator has said that no boot shall start it: a link to `/dev/null`, or an empty file (systemd.unit(5)).
///
/// # Errors
/// It is masked, or what is in its place cannot be read.
pub(crate) fn refuse_masked(directory: &Path) -> Result<(), ChangeError> {
    let path = directory.join(UNIT_NAME);
    if path.symlink_metadata().is_err() || !files::read_to_string(&path)?.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "`{UNIT_NAME}` is masked ({}), so a reboot would undo what this changes: `systemctl unmask {UNIT_NAME}`, then try again",
        path.display()
    );
    Err(ChangeError::Preconditions { problems: vec![problem] })
}

/// Whether a text is a unit of ours.
pub(crate) fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// Installs and enables it. systemd reads it at the next boot; nothing needs reloading now.
pub(crate) fn install(machine: &Machine<'_>, text: &str) -> Result<(), ChangeError> {
    let link = link_path(machine);
    if let Some(directory) = link.parent() {
        files::create_dir_all(directory)?;
    }
    files::write_atomic(&unit_path(machine), text)?;
    match symlink(format!("../{UNIT_NAME}"), &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(FileError { action: "link", path: link, source: error }.into())
        }
        _ => Ok(()),
    }
}

/// Disables and removes it.
pub(crate) fn remove(machine: &Machine<'_>) -> Result<(), ChangeError> {
    files::remove(&link_path(machine))?;
    files::remove(&unit_path(machine))?;
    // A directory we may have made; one with other units in it stays.
    if let Some(directory) = link_path(machine).parent() {
        let _ = std::fs::remove_dir(directory);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_no_boot_starts_is_told_from_one_that_it_starts() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, path) = (directory.path(), directory.path().join(UNIT_NAME));
        assert_eq!(seen(directory).unwrap(), Seen::Missing);
        files::write(&path, unit_text("/usr/bin/nearmetal".as_ref(), "/var/lib/nearmetal".as_ref())).unwrap();
        assert_eq!(seen(directory).unwrap(), Seen::Idle);
        files::create_dir_all(&directory.join(WANTS)).unwrap();
        symlink(format!("../{UNIT_NAME}"), directory.join(WANTS).join(UNIT_NAME)).unwrap();
        assert_eq!(seen(directory).unwrap(), Seen::InForce);
        files::remove(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        assert_eq!(seen(directory).unwrap(), Seen::Foreign, "masked");
    }

    #[test]
    fn a_masked_unit_stays_masked() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, path) = (directory.path(), directory.path().join(UNIT_NAME));
        refuse_masked(directory).unwrap();
        files::write(&path, "[Unit]\n").unwrap();
        refuse_masked(directory).unwrap();
        files::write(&path, "").unwrap();
        refuse_masked(directory).unwrap_err();
        files::remove(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        let said = refuse_masked(directory).unwrap_err().to_string();
        assert!(said.contains("systemctl unmask nearmetal-boot.service"), "{said}");
        assert_eq!(path.read_link().unwrap(), Path::new("/dev/null"), "nothing was changed");
    }

    #[test]
    fn the_packaged_unit_is_the_one_that_apply_writes() {
        let packaged = include_str!("../../../packaging/systemd/nearmetal-boot.service");
        let written = unit_text("/usr/bin/nearmetal".as_ref(), "/var/lib/nearmetal".as_ref());
        assert_eq!(written, format!("{MARK}\n{packaged}"), "the packaged one is no unit of ours to remove");
        assert!(!is_ours(packaged));
    }
}
