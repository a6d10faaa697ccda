//! The measuring appliance: a kernel and an initramfs with fio, the guest agent, and the same probe as the host's.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nearmetal_domain::DiskSource;
use nearmetal_host::files::{self, FileError};
use rustix::fs::{FileType, Mode};

use crate::conditions::Conditions;
use crate::error::MeasureError;

/// Kernel and initramfs of the appliance, and the image of real programs beside them.
#[derive(Debug, Clone)]
pub(crate) struct Appliance {
    /// Kernel image.
    pub kernel: PathBuf,
    /// Initramfs with the probe in it.
    pub initramfs: PathBuf,
    /// What guests have as one more disk, with its type.
    pub loads: Option<DiskSource>,
    /// The image of the user's kit, likewise.
    pub kit: Option<DiskSource>,
}

/// Path of the probe inside the appliance.
pub(crate) const PROBE_IN_GUEST: &str = "/usr/bin/nearmetal-probe";

impl Appliance {
    /// The appliance of these conditions (`vmlinuz`, `initramfs.cpio.gz`) with the probe put into a copy.
    pub(crate) fn with_probe(conditions: &Conditions) -> Result<Self, MeasureError> {
        let mut archive = initramfs(&conditions.appliance)?;
        archive.extend(archive_of_one(PROBE_IN_GUEST, &files::read(&conditions.probe)?));
        let work = conditions.place_for_guest_files()?;
        let initramfs = work.join("appliance-with-probe.cpio");
        files::write(&initramfs, &archive)?;
        let kernel = files::read(&conditions.appliance.join("vmlinuz"))?;
        let loads = conditions.loads.as_deref().map(loads_source).transpose()?;
        let kit = conditions.kit.as_deref().map(kit_source).transpose()?;
        Ok(Self { kernel: staged(&kernel, work.join("appliance-kernel"))?, initramfs, loads, kit })
    }
}

/// The archive of an appliance's initramfs, to which others can be added: the kernel unpacks every archive one after the other
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
///
/// It is decompressed here, once, and not by each clone that boots it: that was a fifth of an emulated clone's start.
pub(crate) fn initramfs(appliance: &Path) -> Result<Vec<u8>, MeasureError> {
    let path = appliance.join("initramfs.cpio.gz");
    let packed = files::read(&path)?;
    let mut archive = decompressed(packed).map_err(|source| FileError { action: "decompress", path, source })?;
    archive.resize(archive.len().next_multiple_of(4), 0);
    Ok(archive)
}

/// Bytes that an initramfs may have: ours has 21 MiB, and guests keep it in memory.
const MOST: u64 = 1 << 30;

/// What gzip made of it undone; as it is where gzip did not make it.
fn decompressed(data: Vec<u8>) -> io::Result<Vec<u8>> {
    if !data.starts_with(&[0x1f, 0x8b]) {
        return Ok(data);
    }
    let mut archive = Vec::new();
    flate2::read::MultiGzDecoder::new(data.as_slice()).take(MOST + 1).read_to_end(&mut archive)?;
    if archive.len() as u64 > MOST {
        return Err(io::Error::other(format!("more than {} MiB come out of it", MOST >> 20)));
    }
    Ok(archive)
}

/// What the disk with the loads image is made of.
pub(crate) fn loads_source(image: &Path) -> Result<DiskSource, MeasureError> {
    source(image, "the loads image", "make it with `nearmetal bench loads-image`")
}

/// What the disk with the user's kit is made of.
pub(crate) fn kit_source(image: &Path) -> Result<DiskSource, MeasureError> {
    source(image, "the image of your kit", "begin the measurement anew with --kit")
}

fn source(image: &Path, what: &str, remedy: &str) -> Result<DiskSource, MeasureError> {
    let path = image.display().to_string();
    let found = rustix::fs::stat(image)
        .map_err(|error| MeasureError::Unfit(format!("cannot find {what} `{path}` ({error}): {remedy}")))?;
    if FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice {
        return Ok(DiskSource::Block(path));
    }
    // It keeps its owner, so QEMU's user reads it as anybody does.
    match Mode::from_raw_mode(found.st_mode).contains(Mode::ROTH) {
        true => Ok(DiskSource::File(path)),
        false => Err(MeasureError::Unfit(format!(
            "QEMU's user cannot read {what} `{path}`: make it readable for all with `chmod o+r {path}`"
        ))),
    }
}

/// A copy of a kernel for QEMU to read.
///
/// libvirt makes QEMU's user the owner of a guest's kernel while it runs, which is no business of a file that a package
/// owns or that the host boots. And where AppArmor confines guests, libvirt lets none of them read a kernel below /usr
/// (`valid_path` in its src/security/virt-aa-helper.c).
pub(crate) fn staged(kernel: &[u8], copy: PathBuf) -> Result<PathBuf, MeasureError> {
    files::write(&copy, kernel)?;
    Ok(copy)
}

/// A `newc` cpio archive with one executable file.
fn archive_of_one(path: &str, contents: &[u8]) -> Vec<u8> {
    let mut archive = Vec::with_capacity(contents.len() + 512);
    entry(&mut archive, path.trim_start_matches('/'), 0o100_755, contents);
    ended(archive)
}

/// A `newc` cpio archive of executable files, by their paths, with the directories above them: a link of that name in an
/// archive before it would be replaced, so the appliance has none.
pub(crate) fn archive_of(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut made = std::collections::BTreeSet::new();
    for (path, contents) in files {
        let path = path.trim_start_matches('/');
        for (end, _) in path.match_indices('/') {
            if made.insert(&path[..end]) {
                entry(&mut archive, &path[..end], 0o040_755, &[]);
            }
        }
        entry(&mut archive, path, 0o100_755, contents);
    }
    ended(archive)
}

fn ended(mut archive: Vec<u8>) -> Vec<u8> {
    entry(&mut archive, "TRAILER!!!", 0, &[]);
    archive.resize(archive.len().next_multiple_of(512), 0);
    archive
}

fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, contents: &[u8]) {
    // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
    let fields = [1, mode, 0, 0, 1, 0, contents.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    archive.extend_from_slice(b"070701");
    for field in fields {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(contents);
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_archive_is_one_cpio_reads() {
        let archive = archive_of_one("/usr/bin/x", b"hello");
        assert!(archive.starts_with(b"070701"));
        assert_eq!(archive.len() % 512, 0);
        let text = String::from_utf8_lossy(&archive);
        assert!(text.contains("usr/bin/x\0") && text.contains("hello") && text.contains("TRAILER!!!"));
        // The file's size is the seventh field.
        assert_eq!(&archive[6 + 6 * 8..6 + 7 * 8], b"00000005");
    }

    #[test]
    fn a_compressed_initramfs_is_decompressed_and_ends_where_the_next_archive_may_begin() {
        let directory = tempfile::tempdir().unwrap();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"070701, and an odd end").unwrap();
        let packed = packed.finish().unwrap();
        for contents in [packed.as_slice(), b"070701, and an odd end"] {
            files::write(&directory.path().join("initramfs.cpio.gz"), contents).unwrap();
            assert_eq!(initramfs(directory.path()).unwrap(), b"070701, and an odd end\0\0");
        }
        files::write(&directory.path().join("initramfs.cpio.gz"), &packed[..packed.len() - 9]).unwrap();
        let error = initramfs(directory.path()).unwrap_err().to_string();
        assert!(error.contains("cannot decompress") && error.contains("initramfs.cpio.gz"), "{error}");
    }

    #[test]
    fn an_image_that_only_its_owner_reads_is_refused_with_the_command_that_helps() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("loads.erofs");
        files::write(&image, "x").unwrap();
        let source = DiskSource::File(image.display().to_string());
        for (mode, is_read) in [(0o644, true), (0o640, false), (0o600, false)] {
            rustix::fs::chmod(&image, Mode::from_raw_mode(mode)).unwrap();
            let found = loads_source(&image);
            assert_eq!(found.as_ref().ok(), Some(&source).filter(|_| is_read), "{mode:o}");
            assert!(is_read || found.unwrap_err().to_string().contains("chmod o+r /"), "{mode:o}");
        }
        let missing = loads_source(&directory.path().join("none")).unwrap_err().to_string();
        assert!(missing.contains("nearmetal bench loads-image"), "{missing}");
    }

    #[test]
    fn a_guest_gets_a_copy_of_the_kernel_and_never_the_packages_own() {
        let directory = tempfile::tempdir().unwrap();
        for contents in ["first", "second"] {
            let copy = staged(contents.as_bytes(), directory.path().join("kernel")).unwrap();
            assert_eq!(files::read_to_string(&copy).unwrap(), contents);
        }
    }

    #[test]
    fn directories_come_once_and_before_what_is_in_them() {
        let file = |path: &str| (path.to_owned(), b"x".to_vec());
        let archive = archive_of(&[file("/lib/a/one"), file("lib/a/two"), file("usr/bin/three")]);
        let text = String::from_utf8_lossy(&archive);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("lib") < at("lib/a") && at("lib/a") < at("lib/a/one") && at("usr/bin") < at("usr/bin/three"));
        // Mode, the second field: four directories, three files, the trailer.
        let modes = |mode: u32| text.matches(&format!("07070100000001{mode:08x}")).count();
        assert_eq!((modes(0o040_755), modes(0o100_755), modes(0)), (4, 3, 1));
    }
}
