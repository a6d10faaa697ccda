//! libvirt's qemu hook: what it runs after every start of a guest (https://libvirt.org/hooks.html).
//!
//! libvirt waits for a hook, a failing one keeps the guest from starting, and one that calls libvirt waits for ever. So ours
//! only hands the work to systemd and always succeeds.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nearmetal_host::files::{self, FileError};

use crate::ChangeError;
use crate::machine::Machine;
use crate::shared::Seen;

pub(crate) use crate::machine::HOOK_DIRECTORY;

/// The first libvirt that runs every hook of a directory, as (major, minor).
const SINCE: (u32, u32) = (6, 5);

/// Why a libvirt of this version, `11.3.0`, does not run it; `None` for one that does. A version that is no number is newer
/// than this program.
pub(crate) fn too_old(version: &str) -> Option<String> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>());
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else { return None };
    ((major, minor) < SINCE).then(|| {
        format!(
            "a hook in {HOOK_DIRECTORY} sets the pins of vhost workers and interrupts; libvirt runs it since {}.{}, \
             and this is {version}: plan with --leave-interrupts and without --vhost-pus",
            SINCE.0, SINCE.1
        )
    })
}

/// Name of ours.
const NAME: &str = "nearmetal";

/// Its second line: a hook without it is not ours to remove.
const MARK: &str = "# Installed by `nearmetal apply`, removed by `nearmetal rollback`.";

/// The daemons that may run hooks: the modular one, and the one of all drivers.
const DAEMONS: [&str; 2] = ["virtqemud.service", "libvirtd.service"];

/// The text of the hook.
///
/// A service of its own is outside of libvirt's cgroup and of what confines it, and its words are in the system's journal.
/// systemd takes `$` in a command for the beginning of a variable, and `$$` for the sign.
pub(crate) fn text(program: &Path, state: &Path) -> String {
    format!(
        "#!/bin/sh
{MARK}
# libvirt waits for this, and must not be called from here: the work is done by a service of its own.
[ \"$2\" = started ] || exit 0
name=$(printf %s \"$1\" | sed 's/\\$/$$/g')
systemd-run --quiet --collect --no-block --description \"nearmetal: pins of $1\" -- \\
    {program} after-start --state {state} -- \"$name\" </dev/null >/dev/null 2>&1
exit 0
",
        program = quoted(program),
        state = quoted(state),
    )
}

/// A path as one word of the shell, and as systemd wants it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('$', "$$").replace('\'', "'\\''"))
}

/// Whether a text is a hook of ours.
pub(crate) fn is_ours(text: &str) -> bool {
    text.lines().nth(1) == Some(MARK)
}

fn path(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// The installed hook, `None` if there is none.
pub(crate) fn installed(directory: &Path) -> Result<Option<String>, ChangeError> {
    let path = path(directory);
    if path.exists() { Ok(Some(files::read_to_string(&path)?)) } else { Ok(None) }
}

/// What is in the place of our hook.
///
/// # Errors
/// It cannot be read.
pub(crate) fn seen(directory: &Path) -> Result<Seen, ChangeError> {
    let path = path(directory);
    Ok(match installed(directory)? {
        None => Seen::Missing,
        Some(text) if !is_ours(&text) => Seen::Foreign,
        Some(_) => {
            let failed = |source| FileError { action: "look at", path: path.clone(), source };
            let mode = path.metadata().map_err(failed)?.permissions().mode();
            // libvirt passes over one that nobody may execute, without a word.
            if mode & 0o111 == 0 { Seen::Idle } else { Seen::InForce }
        }
    })
}

/// Installs it, and has libvirt see it: its daemon looks for hooks when it starts and when it is told to reload (seen with
/// libvirt 11.3: without it the first hook is not run). Guests and connections do not notice.
pub(crate) fn install(machine: &Machine<'_>, text: &str) -> Result<(), ChangeError> {
    let path = path(&machine.hook_directory);
    files::create_dir_all(&machine.hook_directory)?;
    files::write_atomic(&path, text)?;
    let failed = |source| FileError { action: "make executable", path: path.clone(), source };
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).map_err(failed)?;
    for daemon in DAEMONS {
        // `is-active` fails for one that is off or not there: nothing to tell then.
        if machine.kernel.run("systemctl", &["is-active", daemon]).is_ok() {
            machine.kernel.run("systemctl", &["reload", daemon])?;
        }
    }
    Ok(())
}

/// Removes it. libvirt looks into the directory at each start of a guest, so nothing needs reloading.
pub(crate) fn remove(machine: &Machine<'_>) -> Result<(), ChangeError> {
    files::remove(&path(&machine.hook_directory))?;
    // A directory we may have made; one with other hooks in it stays.
    let _ = std::fs::remove_dir(&machine.hook_directory);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_libvirt_is_told_apart() {
        for old in ["6.4.0", "5.10.0"] {
            assert!(too_old(old).unwrap().contains(old));
        }
        for fine in ["6.5.0", "11.3.0", "unknown", ""] {
            assert_eq!(too_old(fine), None);
        }
    }

    #[test]
    fn a_hook_that_libvirt_passes_over_is_told_from_one_that_it_runs() {
        let directory = tempfile::tempdir().unwrap();
        let (directory, path) = (directory.path(), directory.path().join(NAME));
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(seen(directory).unwrap(), Seen::Missing);
        files::write(&path, text(Path::new("/usr/bin/nearmetal"), Path::new("/var/lib/nearmetal"))).unwrap();
        mode(0o644);
        assert_eq!(seen(directory).unwrap(), Seen::Idle);
        mode(0o755);
        assert_eq!(seen(directory).unwrap(), Seen::InForce);
        files::write(&path, "#!/bin/sh\n").unwrap();
        assert_eq!(seen(directory).unwrap(), Seen::Foreign);
    }

    #[test]
    fn the_hook_hands_over_and_never_fails() {
        let text = text(Path::new("/opt/it's/nearmetal"), Path::new("/var/lib/near$metal"));
        assert!(is_ours(&text) && !is_ours("#!/bin/sh\n"));
        assert!(text.contains("'/opt/it'\\''s/nearmetal' after-start --state '/var/lib/near$$metal'"), "{text}");
        assert!(text.ends_with("exit 0\n") && !text.contains("virsh"), "{text}");
    }
}
