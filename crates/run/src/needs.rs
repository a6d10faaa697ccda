//! What a guest needs of the host beside its slice, looked at before anything is taken: libvirt would find it missing only when
//! the slice is held.

use std::fs::File;
use std::path::Path;

use nearmetal_host::HostFs;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::RunError;
use crate::delta::path_of;
use crate::flavour::{Flavour, Network};

/// Characters of an interface's name at most (IFNAMSIZ without its zero byte).
const LONGEST: usize = 15;

/// Whether the bridge of a flavour is there.
///
/// # Errors
/// No interface of the host has that name, or it is not a bridge.
pub fn bridge(fs: &HostFs, flavour: &Flavour) -> Result<(), RunError> {
    let Network::Bridge(name) = &flavour.network else { return Ok(()) };
    let refused = |problem: &'static str| {
        let bridge = name.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
        Err(RunError::Bridge { flavour: flavour.name.clone(), bridge, problem })
    };
    let is_name = !name.is_empty() && name.len() <= LONGEST && !matches!(name.as_str(), "." | "..");
    if !is_name || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        return refused("which is not the name of an interface");
    }
    // The directory that a bridge has, and nothing else (net/bridge/br_sysfs_br.c).
    match (fs.exists(&format!("/sys/class/net/{name}")), fs.exists(&format!("/sys/class/net/{name}/bridge"))) {
        (false, _) => refused("which this host does not have"),
        (true, false) => refused("which is an interface and not a bridge"),
        (true, true) => Ok(()),
    }
}

/// Whether a file can be opened past the host's page cache, as a guest's disk is. `what`: what it is, for messages.
///
/// # Errors
/// Its file system has no O_DIRECT.
pub fn direct(what: &'static str, directory: &Path, file: &File) -> Result<(), RunError> {
    let reason = match rustix::fs::open(path_of(file), OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
    {
        Ok(_) => return Ok(()),
        Err(Errno::INVAL) => {
            "its file system cannot pass the host's page cache (O_DIRECT): take another directory".to_owned()
        }
        Err(errno) => errno.to_string(),
    };
    Err(RunError::Disk { what, directory: directory.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Flavours;
    use nearmetal_host::{Entry, MemoryTree};

    #[test]
    fn a_bridge_that_is_missing_or_none_is_refused_by_name() {
        let mut tree = MemoryTree::new();
        for path in ["/sys/class/net/br0/bridge/bridge_id", "/sys/class/net/eth0/address"] {
            tree.put(path, Entry::File(b"x\n".to_vec())).unwrap();
        }
        let fs = HostFs::of_tree(tree, "test");
        let look = |key: &str| {
            let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 1\nmemory = \"1 GiB\"\n{key}\n");
            bridge(&fs, &Flavours::parse("test", &text).unwrap().all()[0])
        };
        look("bridge = \"br0\"").unwrap();
        look("network = \"user\"").unwrap();
        for (name, says) in [
            ("br1", "`br1`, which this host does not have"),
            ("eth0", "not a bridge"),
            ("../net/br0", "not the name"),
            ("br0/../br0", "not the name"),
            ("..", "not the name"),
        ] {
            let refused = look(&format!("bridge = \"{name}\"")).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("`job`"), "{refused}");
        }
    }

    #[test]
    fn a_file_system_without_direct_access_is_refused() {
        let directory = Path::new("/proc/self");
        let file = File::from(rustix::fs::open("/proc/self/status", OFlags::RDONLY, Mode::empty()).unwrap());
        let refused = direct("the image", directory, &file).unwrap_err().to_string();
        assert!(refused.contains("the image in `/proc/self`") && refused.contains("O_DIRECT"), "{refused}");
    }
}
