//! Files that guests of nearmetal's own boot: where libvirt keeps such files, and QEMU's user may enter.

use std::path::{Path, PathBuf};

use nearmetal_host::files::{self, FileError};
use rustix::fs::Mode;
use sha2::{Digest, Sha256};

/// Where libvirt keeps kernels that guests boot, and what its packages and virt-install use; QEMU's user may enter it.
const OF_LIBVIRT: &str = "/var/lib/libvirt/boot";

/// A directory of nearmetal's own in libvirt's; none where there is no libvirt's.
pub(crate) fn directory() -> Option<PathBuf> {
    below(Path::new(OF_LIBVIRT))
}

fn below(of_libvirt: &Path) -> Option<PathBuf> {
    of_libvirt.is_dir().then(|| of_libvirt.join("nearmetal"))
}

/// A copy of a file, called by its content, in that directory or, without it, in `instead`. Several guests may boot the
/// same copy: it is never written again.
///
/// libvirt makes QEMU's user the owner of what a guest boots, which is no business of a file that a package owns; and under
/// AppArmor no guest boots a kernel below /usr (see docs/guides/confined-guests.md).
///
/// # Errors
/// The file cannot be read, or the copy cannot be written.
pub(crate) fn copy(file: &Path, instead: &Path) -> Result<PathBuf, FileError> {
    let content = files::read(file)?;
    let directory = directory().unwrap_or_else(|| instead.to_owned());
    files::create_dir_all(&directory)?;
    let failed = |source: rustix::io::Errno| FileError {
        action: "set the permissions of",
        path: directory.clone(),
        source: source.into(),
    };
    // Whatever the umask: a hardened host's closes new directories to all others.
    rustix::fs::chmod(&directory, Mode::from_raw_mode(0o711)).map_err(failed)?;
    let digest: String = Sha256::digest(&content).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let copy = directory.join(format!("run-{digest}"));
    if files::metadata(&copy).is_ok_and(|there| there.len() == content.len() as u64) {
        return Ok(copy);
    }
    // A name of this process's own, then renamed: two runs may copy at once.
    let temporary = directory.join(format!(".run-{digest}-{}", std::process::id()));
    files::write(&temporary, &content)?;
    files::rename(&temporary, &copy)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_guests_boot_goes_where_libvirt_keeps_such_files() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(below(directory.path()), Some(directory.path().join("nearmetal")));
        assert_eq!(below(&directory.path().join("absent")), None);
    }
}
