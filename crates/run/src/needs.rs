//! What a guest needs of the host beside its slice, looked at before anything is taken: libvirt would find it missing only when
//! the slice is held.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nearmetal_host::{HostFs, files};
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::delta::path_of;
use crate::flavour::{Boot, Flavour, Network};
use crate::{RunError, accounts};

/// Characters of an interface's name at most (IFNAMSIZ without its zero byte).
const LONGEST: usize = 15;
/// Virtual functions that a refusal proposes to make, if the card can have so many.
const VIRTUAL_FUNCTIONS: u32 = 4;
/// File systems in memory: tmpfs and ramfs (linux/magic.h, statfs(2)).
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// Whether the bridge of a flavour is there.
///
/// # Errors
/// No interface of the host has that name, or it is not a bridge.
pub fn bridge(fs: &HostFs, flavour: &Flavour) -> Result<(), RunError> {
    let Network::Bridge(name) = &flavour.network else { return Ok(()) };
    let refused =
        |problem: &'static str| Err(RunError::Bridge { flavour: flavour.name.clone(), bridge: shown(name), problem });
    if !is_interface(name) {
        return refused("which is not the name of an interface");
    }
    // The directory that a bridge has, and nothing else (net/bridge/br_sysfs_br.c).
    match (fs.exists(&format!("/sys/class/net/{name}")), fs.exists(&format!("/sys/class/net/{name}/bridge"))) {
        (false, _) => refused("which this host does not have"),
        (true, false) => refused("which is an interface and not a bridge"),
        (true, true) => Ok(()),
    }
}

/// Whether a text may be the name of an interface, and so a part of a path.
fn is_interface(name: &str) -> bool {
    let is_name = !name.is_empty() && name.len() <= LONGEST && !matches!(name, "." | "..");
    is_name && !name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control())
}

/// A name from the flavours file, for messages.
fn shown(name: &str) -> String {
    name.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether the port of a flavour has virtual functions, and a link for them. Who has them is looked at by
/// [`choose`](crate::function::choose).
///
/// # Errors
/// No interface of the host has that name, it is not a port with virtual functions (SR-IOV), none are made, or it has no link.
pub fn port(fs: &HostFs, flavour: &Flavour) -> Result<(), RunError> {
    let Network::Function(name) = &flavour.network else { return Ok(()) };
    let refused = |problem: String| Err(RunError::Port { flavour: flavour.name.clone(), port: shown(name), problem });
    if !is_interface(name) {
        return refused("which is not the name of an interface: name another in the flavours file".to_owned());
    }
    let root = format!("/sys/class/net/{name}");
    let value = |file: &str| fs.read(&format!("{root}/{file}")).map(|text| text.trim().to_owned());
    if !fs.exists(&root) {
        return refused("which this host does not have: `nearmetal device list` shows the ports there are".to_owned());
    }
    if fs.exists(&format!("{root}/device/physfn")) {
        return refused("which is a virtual function itself: name the interface of its physical function".to_owned());
    }
    let number = |file: &str| value(file).ok().and_then(|text| text.parse::<u32>().ok());
    let Some(total) = number("device/sriov_totalvfs").filter(|total| *total > 0) else {
        let missing = "which can have none: enable SR-IOV in the firmware of host and card, or name another port";
        return refused(missing.to_owned());
    };
    if number("device/sriov_numvfs").unwrap_or(0) == 0 {
        let count = total.min(VIRTUAL_FUNCTIONS);
        return refused(format!("which has none yet: as root, run `nearmetal device vfs {name} {count}`"));
    }
    // IFF_UP of include/uapi/linux/if.h. `carrier` cannot be read while an interface is down.
    let flags = value("flags").ok().and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    if flags.is_some_and(|flags| flags & 1 == 0) {
        return refused(format!("which is down, and they with it: as root, run `ip link set {name} up`"));
    }
    if value("carrier").is_ok_and(|carrier| carrier == "0") {
        return refused("which has no link: look for the cable, and the switch at its other end".to_owned());
    }
    Ok(())
}

/// Files of the host that a guest boots instead of its disk's boot loader. `appliance`: the directory of nearmetal's own.
pub fn boot_files(flavour: &Flavour, appliance: &Path) -> Vec<PathBuf> {
    match &flavour.boot {
        Boot::Disk(_) => Vec::new(),
        Boot::Kernel { kernel, initrd, .. } => [kernel.clone()].into_iter().chain(initrd.clone()).collect(),
        Boot::Appliance => vec![appliance.join("vmlinuz"), appliance.join("initramfs.cpio.gz")],
    }
}

/// What this host does not have and every guest of a flavour needs: KVM, a bridge or port, files to boot. What is there and closed to this
/// user may be open to another, and is no lack. `device`: KVM's.
///
/// # Errors
/// The first that is missing.
pub fn on_this_host(fs: &HostFs, flavour: &Flavour, device: &Path, appliance: &Path) -> Result<(), RunError> {
    match kvm(device) {
        Err(RunError::Closed { .. }) => {}
        other => other?,
    }
    bridge(fs, flavour)?;
    port(fs, flavour)?;
    for path in boot_files(flavour, appliance) {
        match files::metadata(&path) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
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
            refused(format!("a connection to the bridge `{}`", shown(bridge)), "say `network = \"user\"`")
        }
        Network::Function(port) => {
            refused(format!("a virtual function of the port `{}`", shown(port)), "say `network = \"user\"`")
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
            Err(RunError::Closed { path: device, group, user: accounts::user(geteuid().as_raw()) })
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

/// Whether what is written to a file goes to a disk. In a session it would else be charged to the job's memory, which has room for the
/// guest and [`crate::session::BESIDE`]: the kernel would kill QEMU.
///
/// # Errors
/// Its file system is in memory (tmpfs, which has O_DIRECT since Linux 6.6, or ramfs).
pub fn on_a_disk(what: &'static str, directory: &Path, file: &File) -> Result<(), RunError> {
    let refused = |reason: String| Err(RunError::Disk { what, directory: directory.to_owned(), reason });
    match rustix::fs::fstatfs(file) {
        Ok(about) if IN_MEMORY.iter().any(|magic| i128::from(about.f_type) == i128::from(*magic)) => refused(
            "its file system is in memory (tmpfs), which counts against the job's memory limit: name a directory on a disk \
             with --delta-directory"
                .to_owned(),
        ),
        Ok(_) => Ok(()),
        Err(errno) => refused(errno.to_string()),
    }
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
    fn a_port_without_virtual_functions_or_a_link_is_refused_with_what_to_do() {
        let look = |files: &[(&str, &str)], name: &str| {
            let mut tree = MemoryTree::new();
            for (path, text) in files {
                tree.put(&format!("/sys/class/net/eth0/{path}"), Entry::File(format!("{text}\n").into_bytes()))
                    .unwrap();
            }
            let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 1\nmemory = \"1 GiB\"\nfunction = \"{name}\"\n");
            let flavours = Flavours::parse("test", &text).unwrap();
            port(&HostFs::of_tree(tree, "test"), &flavours.all()[0]).map_err(|error| error.to_string())
        };
        let sound =
            [("device/sriov_totalvfs", "7"), ("device/sriov_numvfs", "2"), ("flags", "0x1003"), ("carrier", "1")];
        let but = |path: &'static str, text: &'static str| {
            let others = sound.into_iter().filter(|(other, _)| *other != path);
            others.chain([(path, text)]).collect::<Vec<_>>()
        };
        assert_eq!(look(&sound, "eth0"), Ok(()));
        for (files, name, says) in [
            (sound.to_vec(), "eth1", "`eth1`, which this host does not have: `nearmetal device list`"),
            (sound.to_vec(), "../net/eth0", "not the name of an interface"),
            (vec![("flags", "0x1003"), ("device/vendor", "0x8086")], "eth0", "SR-IOV"),
            (but("device/sriov_totalvfs", "0"), "eth0", "SR-IOV"),
            (but("device/physfn/vendor", "0x8086"), "eth0", "is a virtual function itself"),
            (but("device/sriov_numvfs", "0"), "eth0", "none yet: as root, run `nearmetal device vfs eth0 4`"),
            (but("flags", "0x1002"), "eth0", "`ip link set eth0 up`"),
            (but("carrier", "0"), "eth0", "no link"),
        ] {
            let refused = look(&files, name).unwrap_err();
            assert!(refused.contains(says) && refused.contains("the flavour `job` wants"), "{refused}");
        }
        let few = [("device/sriov_totalvfs", "2"), ("device/sriov_numvfs", "0")];
        assert!(look(&few, "eth0").unwrap_err().contains("vfs eth0 2`"));
    }

    #[test]
    fn what_only_root_can_have_is_refused_in_a_session_with_the_other_way() {
        let look = |key: &str| {
            let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 1\nmemory = \"1 GiB\"\n{key}\n");
            in_a_session(&Flavours::parse("test", &text).unwrap().all()[0])
        };
        look("network = \"user\"").unwrap();
        look("whole-cores = true").unwrap();
        for (key, says) in [
            ("page-size = \"2 MiB\"", "pages of 2 MiB from a hugepage pool"),
            ("bridge = \"br0\"", "the bridge `br0`"),
            ("function = \"eth0\"", "a virtual function of the port `eth0`"),
        ] {
            let refused = look(key).unwrap_err().to_string();
            assert!(refused.contains(says) && refused.contains("run this as root"), "{refused}");
        }
        let device = tempfile::tempdir().unwrap();
        kvm(Path::new("/dev/null")).unwrap();
        let missing = kvm(&device.path().join("kvm")).unwrap_err().to_string();
        assert!(missing.contains("kvm_intel"), "{missing}");
    }

    #[test]
    fn what_a_host_lacks_is_told_and_what_is_closed_to_this_user_is_not() {
        let fs = HostFs::of_tree(MemoryTree::new(), "test");
        let directory = tempfile::tempdir().unwrap();
        let look = |keys: &str, device: &str| {
            let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 1\nmemory = \"1 GiB\"\n{keys}\n");
            let flavours = Flavours::parse("test", &text).unwrap();
            on_this_host(&fs, &flavours.all()[0], Path::new(device), directory.path())
                .map_err(|error| error.to_string())
        };
        assert_eq!(look("", "/dev/null"), Ok(()));
        assert!(look("", "/nowhere/kvm").unwrap_err().contains("`/nowhere/kvm` is missing"));
        assert!(look("bridge = \"br0\"", "/dev/null").unwrap_err().contains("`br0`, which this host does not have"));
        assert!(look("boot = \"appliance\"", "/dev/null").unwrap_err().contains("vmlinuz"));
        let kernel = "boot = \"kernel\"\nkernel = \"/dev/null\"";
        assert_eq!(look(kernel, "/dev/null"), Ok(()));
        assert!(look(&format!("{kernel}\ninitrd = \"/nowhere/i\""), "/dev/null").unwrap_err().contains("/nowhere/i"));
    }

    #[test]
    fn a_file_system_in_memory_is_refused() {
        let shared = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let refused = on_a_disk("the disk", Path::new("/tmp"), &File::from(shared)).unwrap_err().to_string();
        assert!(refused.contains("the disk in `/tmp`") && refused.contains("--delta-directory"), "{refused}");
        let proc = File::from(rustix::fs::open("/proc/self/status", OFlags::RDONLY, Mode::empty()).unwrap());
        on_a_disk("the disk", Path::new("/proc/self"), &proc).unwrap();
    }

    #[test]
    fn a_file_system_without_direct_access_is_refused() {
        let directory = Path::new("/proc/self");
        let file = File::from(rustix::fs::open("/proc/self/status", OFlags::RDONLY, Mode::empty()).unwrap());
        let refused = direct("the image", directory, &file).unwrap_err().to_string();
        assert!(refused.contains("the image in `/proc/self`") && refused.contains("O_DIRECT"), "{refused}");
    }
}
