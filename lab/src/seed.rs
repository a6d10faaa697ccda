//! What the first boot finds out, kept for later boots of the same machine from the same image: libvirt's probes of QEMU and
//! AppArmor's compiled profiles.
//!
//! Probing takes libvirt half a minute under emulation, compiling profiles several seconds. Both store the result with what it
//! depends on, and begin again when any of that differs: a seed can be useless, never wrong.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nearmetal_host::files;
use sha2::{Digest, Sha256};

use crate::error::LabError;
use crate::exec::Command;
use crate::image::Image;
use crate::lab::Lab;

/// How long the lab may take to hand it over.
const LIMIT: Duration = Duration::from_secs(60);

/// Packs both caches where the initramfs looks for them. Archives of the initramfs begin on 4 bytes.
const PACK: &str = "cd /var/cache/libvirt/qemu/capabilities 2>/dev/null && ls ./*.xml >/dev/null 2>&1 || exit 1
mkdir -p /run/lab-seed/seed/var/cache/libvirt/qemu && cp -a . /run/lab-seed/seed/var/cache/libvirt/qemu/capabilities
[ ! -d /var/cache/apparmor ] || cp -a /var/cache/apparmor /run/lab-seed/seed/var/cache/
cd /run/lab-seed && find . | cpio --quiet --create --format=newc; rm -r /run/lab-seed";

fn path(image: &Image, machine: &str) -> PathBuf {
    let hash: String = Sha256::digest(machine)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    image.directory().join("seeds").join(hash)
}

/// Puts an initramfs with the seed into the state directory; says whether there is one.
pub(crate) fn plant(image: &Image, machine: &str, state: &Path) -> Result<bool, LabError> {
    let seed = path(image, machine);
    if !seed.exists() {
        return Ok(false);
    }
    let mut archive = files::read(&image.directory().join("initramfs.cpio"))?;
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive.extend(files::read(&seed)?);
    files::write(&state.join("initramfs.cpio"), archive)?;
    Ok(true)
}

/// Keeps what a lab that booted without a seed has found out. A lab that has found out nothing gives none.
pub(crate) fn gather(lab: &Lab, image: &Image) -> Result<(), LabError> {
    let seed = path(image, &lab.record.machine);
    if seed.exists() {
        return Ok(());
    }
    let output = lab.exec(&Command::shell(PACK).timeout(LIMIT))?;
    if output.success() && !output.stdout.is_empty() {
        files::create_dir_all(&image.directory().join("seeds"))?;
        files::write_atomic(&seed, output.stdout)?;
    }
    Ok(())
}
