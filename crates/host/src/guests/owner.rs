//! Whose process a QEMU is: any user can start one whose command line names any guest.

use rustix::process::geteuid;

use crate::HostFs;

/// Users that packages of libvirt run QEMU as: Debian's `libvirt-qemu` and Fedora's `qemu`, whose numbers are fixed there.
const USERS: [u32; 2] = [64_055, 107];
/// Where the system's libvirt, as root, writes the process of each guest.
const PIDS: &str = "/run/libvirt/qemu";

/// The user that a process runs as, `None` where that cannot be read.
pub(super) fn uid(fs: &HostFs, pid: u32) -> Option<u32> {
    // A process names itself, and not always in UTF-8.
    let status = fs.read_bytes(&format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    // Real, effective, saved and file system's (proc.rst). The real one: a set-user-ID program is root by the effective one, with
    // arguments of whoever started it.
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Whether a process may be QEMU of a guest that this user can have to do with: it is root's, this user's own, one of libvirt's users
/// of QEMU, or the process that the system's libvirt has written down for that guest (whatever user qemu.conf names). One whose owner
/// cannot be read is not ruled out in a capture, which may leave it out.
pub(super) fn is_trusted(fs: &HostFs, pid: u32, name: Option<&str>) -> bool {
    let Some(uid) = uid(fs, pid) else { return !fs.is_live() };
    if uid == 0 || uid == geteuid().as_raw() || USERS.contains(&uid) {
        return true;
    }
    let plain = name.filter(|name| !name.contains('/'));
    let written = plain.and_then(|name| fs.read(&format!("{PIDS}/{name}.pid")).ok());
    written.and_then(|text| text.trim().parse::<u32>().ok()) == Some(pid)
}

#[cfg(test)]
mod tests {
    use super::super::processes::pid_of_user;
    use super::super::{pid_of, running};
    use crate::{Entry, HostFs, MemoryTree};

    const UUID: &str = "11111111-2222-4333-8444-555555555555";
    const STRANGER: u32 = 4_000_000_000;

    fn machine(processes: &[(u32, u32)], written: Option<u32>) -> HostFs {
        let mut tree = MemoryTree::new();
        let mut put = |path: String, text: String| tree.put(&path, Entry::File(text.into_bytes())).unwrap();
        for (pid, uid) in processes {
            put(format!("/proc/{pid}/cmdline"), format!("qemu-system-x86_64\0-name\0guest=web\0-uuid\0{UUID}\0"));
            put(format!("/proc/{pid}/status"), format!("Name:\tqemu\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
        }
        if let Some(pid) = written {
            put("/run/libvirt/qemu/web.pid".to_owned(), format!("{pid}\n"));
        }
        HostFs::of_tree(tree, "test")
    }

    #[test]
    fn a_strangers_process_with_the_guests_command_line_is_not_the_guest() {
        for own in [0, 64_055, 107, rustix::process::geteuid().as_raw()] {
            assert_eq!(pid_of(&machine(&[(70, STRANGER), (80, own)], None), UUID).unwrap(), Some(80), "{own}");
        }
        let alone = machine(&[(70, STRANGER)], None);
        assert_eq!(pid_of(&alone, UUID).unwrap(), None);
        // What another user's reservation says is looked for among that user's.
        assert_eq!(pid_of_user(&alone, UUID, STRANGER).unwrap(), Some(70));
        assert_eq!(pid_of_user(&alone, UUID, 0).unwrap(), None);
        let runs = running(&alone).unwrap();
        assert!(runs(UUID, STRANGER) && !runs(UUID, 0) && !runs("another", STRANGER));
    }

    #[test]
    fn a_name_that_is_no_text_and_a_set_user_id_program_deceive_nobody() {
        let with = |status: &[u8]| {
            let mut tree = MemoryTree::new();
            let mut put = |path: &str, bytes: &[u8]| tree.put(path, Entry::File(bytes.to_vec())).unwrap();
            put("/proc/70/cmdline", format!("qemu-system-x86_64\0-uuid\0{UUID}\0").as_bytes());
            put("/proc/70/status", status);
            HostFs::of_tree(tree, "test")
        };
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(pid_of(&with(b"Name:\tx\xff\nUid:\t4000000000\t0\t0\t0\n"), UUID).unwrap(), None);
        let is_own = format!("Name:\tx\nUid:\t{own}\t0\t0\t0\n");
        assert_eq!(pid_of(&with(is_own.as_bytes()), UUID).unwrap(), Some(70));
    }

    #[test]
    fn the_process_that_libvirt_has_written_down_is_the_guest_whatever_its_user() {
        let processes = [(70, STRANGER), (80, 1234)];
        assert_eq!(pid_of(&machine(&processes, Some(80)), UUID).unwrap(), Some(80));
        assert_eq!(pid_of(&machine(&processes, Some(90)), UUID).unwrap(), None);
    }
}
