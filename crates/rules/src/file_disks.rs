//! Disks of a domain that are files, with the file systems they are on.

use nearmetal_domain::DiskFacts;
use nearmetal_host::{Host, ImageFile, Mount};

use crate::finding::Outcome;
use crate::subject::Subject;

/// A disk that is a file.
pub(crate) struct FileDisk<'a> {
    pub(crate) disk: &'a DiskFacts,
    /// Its path as the definition has it.
    pub(crate) path: &'a str,
    /// The file system it is on.
    pub(crate) mount: &'a Mount,
    /// What was found out about the file itself, on the machine.
    pub(crate) image: Option<&'a ImageFile>,
}

/// Hard disks that are files; an answer where there are none, or where nobody knows what is mounted.
pub(crate) fn file_disks<'a>(subject: &Subject<'a>, host: &'a Host) -> Result<Vec<FileDisk<'a>>, Outcome> {
    let files = subject.disks().filter(|disk| disk.kind == "file");
    let files: Vec<(&DiskFacts, &str)> = files.filter_map(|disk| Some((disk, disk.source.as_deref()?))).collect();
    if files.is_empty() {
        return Err(Outcome::NotApplicable);
    }
    let mut disks = Vec::new();
    for (disk, path) in files {
        let image = host.image(path);
        // Links on the way are known where somebody followed them.
        let place = image.and_then(|image| image.place.as_deref()).unwrap_or(path);
        let Some(mount) = host.mount_of(place) else { return Err(Outcome::unknown("/proc/1/mountinfo")) };
        disks.push(FileDisk { disk, path, mount, image });
    }
    Ok(disks)
}
