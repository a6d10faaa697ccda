//! Disks of domains that are files: where they really lie, whether btrfs copies them at every write, and whether they open
//! past the page cache. Nothing of them is read, and no lock of QEMU's is touched.

use nearmetal_domain::DiskFacts;
use nearmetal_host::{Host, HostFs, ImageFile, guests};
use nearmetal_rules::Domain;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FileType, IFlags, Mode, OFlags, RawMode};
use rustix::io::Errno;

/// Asks each file once.
pub(super) fn fill_in(host: &mut Host, domains: &[Domain]) {
    let fs = HostFs::live();
    let mut images: Vec<ImageFile> = Vec::new();
    for domain in domains {
        let Some(facts) = domain.in_force() else { continue };
        let running = domain.running.is_some();
        let process = host.guests.iter().find(|guest| running && guest.name.as_deref() == Some(&facts.name));
        let disks = facts.disks.iter().filter(|disk| disk.kind == "file" && disk.device == "disk" && !disk.readonly);
        let mut open = None;
        for disk in disks {
            let Some(path) = disk.source.as_deref().filter(|path| path.starts_with('/')) else { continue };
            if images.iter().any(|image| image.path == path) {
                continue;
            }
            let mut image = look_at(path);
            if let Some(process) = process.filter(|_| is_direct(disk)) {
                let files = open.get_or_insert_with(|| guests::open_files(&fs, process.pid).unwrap_or_default());
                let place = image.place.as_deref().unwrap_or(path);
                let mut own = files.iter().filter(|file| file.target == place).peekable();
                // QEMU may have it open twice, once for its lock.
                image.opened_direct = own.peek().is_some().then(|| own.any(|file| file.direct));
            }
            images.push(image);
        }
    }
    host.images = images;
}

fn is_direct(disk: &DiskFacts) -> bool {
    matches!(disk.driver.cache.as_deref(), Some("none" | "directsync"))
}

/// What can be known of a file; what this user may not know is `None`.
fn look_at(path: &str) -> ImageFile {
    let mut image = ImageFile { path: path.to_owned(), ..ImageFile::default() };
    // Not opened yet: a device or a pipe in its place must not notice.
    let Ok(handle) = open(path, OFlags::PATH) else { return image };
    image.place = HostFs::live().link_target(&format!("/proc/self/fd/{}", handle.as_raw_fd())).ok();
    let is_file = rustix::fs::fstat(&handle)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode as RawMode) == FileType::RegularFile);
    if !is_file {
        return image;
    }
    if let Ok(file) = open(path, OFlags::RDONLY | OFlags::NONBLOCK) {
        // File systems without such flags refuse the question.
        let flags = rustix::fs::ioctl_getflags(&file).ok();
        image.no_copy_on_write = flags.map(|flags| flags.contains(IFlags::NOCOW));
        image.direct = match open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::DIRECT) {
            Ok(_) => Some(true),
            Err(Errno::INVAL) => Some(false),
            Err(_) => None,
        };
    }
    image
}

fn open(path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::files;

    #[test]
    fn links_are_followed_and_what_is_no_file_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("a.raw"), directory.path().join("link.raw"));
        files::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let image = look_at(link.to_str().unwrap());
        assert_eq!(image.place.as_deref(), file.canonicalize().unwrap().to_str());
        assert_eq!(image.path, link.to_str().unwrap());
        let folder = look_at(directory.path().to_str().unwrap());
        assert_eq!((folder.place.is_some(), folder.direct), (true, None));
        let nothing = look_at("/no/such/image.raw");
        assert_eq!((nothing.place, nothing.direct), (None, None));
    }
}
