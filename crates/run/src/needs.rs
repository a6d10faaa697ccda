//! What a guest needs of the host beside its slice, looked at before anything is taken: libvirt would find it missing only when
//! the slice is held.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nearmetal_host::{HostFs, files};
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::delta::path_of;
use crate::flavour::{Flavour, Network};
use crate::{RunError, accounts};

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

/// Whether a flavour is one that a user without root can have.
///
/// # Errors
/// [`RunError::NotInASession`].
pub fn in_a_session(flavour: &Flavour) -> Result<(), RunError> {
    let refused =
        |wanted: String, instead| Err(RunError::NotInASession { flavour: flavour.name.clone(), wanted, instead });
    if let Some(size) = flavour.page_size {
        return refused(format!("pages of {size} from a hugepage pool"), "leave `page-size` out");
    }
    match &flavour.network {
        Network::Bridge(bridge) => {
            let bridge: String = bridge.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
            refused(format!("a connection to the bridge `{bridge}`"), "say `network = \"user\"`")
        }
        Network::None | Network::User => Ok(()),
    }
}

/// Whether this user may use KVM. Without it a guest would be emulated, thousands of times slower.
///
/// # Errors
/// The device is missing, or closed to the user: with the group to join.
pub fn kvm(device: &Path) -> Result<(), RunError> {
    let device = device.to_owned();
    match rustix::fs::access(&device, Access::READ_OK | Access::WRITE_OK) {
        Ok(()) => Ok(()),
        Err(Errno::ACCESS | Errno::PERM) => {
            let group = accounts::group(files::metadata(&device)?.gid());
            Err(RunError::KvmClosed { device, group, user: accounts::user(geteuid().as_raw()) })
        }
        Err(_) => Err(RunError::NoKvm { device }),
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
    fn what_only_root_can_have_is_refused_in_a_session_with_the_other_way() {
        let look = |key: &str| {
            let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 1\nmemory = \"1 GiB\"\n{key}\n");
            in_a_session(&Flavours::parse("test", &text).unwrap().all()[0])
        };
        look("network = \"user\"").unwrap();
        look("whole-cores = true").unwrap();
        for (key, says) in
            [("page-size = \"2 MiB\"", "pages of 2 MiB from a hugepage pool"), ("bridge = \"br0\"", "the bridge `br0`")]
        {
            let refused = look(key).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("run this as root"), "{refused}");
        }
        let device = tempfile::tempdir().unwrap();
        kvm(Path::new("/dev/null")).unwrap();
        let missing = kvm(&device.path().join("kvm")).unwrap_err().to_string();
        assert!(missing.contains("kvm_intel"), "{missing}");
    }

    #[test]
    fn a_file_system_without_direct_access_is_refused() {
        let directory = Path::new("/proc/self");
        let file = File::from(rustix::fs::open("/proc/self/status", OFlags::RDONLY, Mode::empty()).unwrap());
        let refused = direct("the image", directory, &file).unwrap_err().to_string();
        assert!(refused.contains("the image in `/proc/self`") && refused.contains("O_DIRECT"), "{refused}");
    }
}
