//! Mounted file systems, and the files on them that are disks of guests.

use serde::{Deserialize, Serialize};

/// A mounted file system that can hold files of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is.
    pub point: String,
    /// `xfs`, `ext4`, `btrfs`, `nfs4`, `overlay`, ….
    pub kind: String,
    /// What is mounted, by the kernel's word: a device, `server:/path`, a name.
    pub source: String,
    /// `major:minor` of the device, as of a block device; file systems that span several have one of their own. `None`
    /// where the source does not say.
    #[serde(default)]
    pub number: Option<String>,
    /// Options of the mount and of the file system, each once: `rw`, `relatime`, `vers=4.2`.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether it has an option, by its whole text.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|own| own == option)
    }

    /// The value of an option `name=value`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|own| own.strip_prefix(name)?.strip_prefix('='))
    }
}

/// A file that is a disk of a guest, asked for on the machine itself: no file of /sys or /proc tells these things.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImageFile {
    /// Its path in the definition.
    pub path: String,
    /// Its path with all links followed.
    pub place: Option<String>,
    /// Whether it has the flag `C` (no copy on write) of btrfs.
    pub no_copy_on_write: Option<bool>,
    /// Whether it can be opened past the page cache (O_DIRECT).
    pub direct: Option<bool>,
    /// Whether the QEMU that has it open does so past the page cache.
    pub opened_direct: Option<bool>,
}

/// The file system a path is on: the longest mount point above it, the last one where several are mounted there.
pub(super) fn mount_of<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    let holds = |mount: &&Mount| {
        let rest = path.strip_prefix(mount.point.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    mounts.iter().filter(holds).max_by_key(|mount| mount.point.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_on_the_longest_mount_point_above_it_and_the_last_mounted_there() {
        let mount = |point: &str, kind: &str| Mount {
            point: point.to_owned(),
            kind: kind.to_owned(),
            source: String::new(),
            number: None,
            options: vec!["rw".to_owned(), "vers=4.2".to_owned()],
        };
        let mounts = [mount("/", "ext4"), mount("/pool", "xfs"), mount("/pool/fast", "btrfs"), mount("/pool", "nfs4")];
        for (path, kind) in
            [("/pool/a.raw", "nfs4"), ("/pool", "nfs4"), ("/pool/fast/a", "btrfs"), ("/poolside/a", "ext4")]
        {
            assert_eq!(mount_of(&mounts, path).map(|mount| mount.kind.as_str()), Some(kind), "{path}");
        }
        assert_eq!(mount_of(&mounts[1..], "/srv/a"), None);
        assert_eq!((mounts[0].option("vers"), mounts[0].has("rw"), mounts[0].has("vers")), (Some("4.2"), true, false));
    }
}
