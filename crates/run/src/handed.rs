//! Read-back of files that a guest was handed open: its QEMU has these very files, as it was to have them.
//!
//! They have no names that could be looked for, so what the kernel shows of our own descriptor is compared with what it shows
//! of QEMU's (/proc/PID/fd, proc_pid_fd(5)): both lead to the same file or do not.

use std::fs::File;

use nearmetal_host::{HostFs, guests};

use crate::delta::path_of;

/// Access mode of open(2): the flags' lowest bits, 0 if it only reads.
const ACCESS_MODE: u32 = 3;

/// A file that was handed over.
#[derive(Debug, Clone, Copy)]
pub struct Handed<'a> {
    /// What it is, for messages.
    pub what: &'a str,
    /// It, open in this process.
    pub file: &'a File,
    /// Whether QEMU may write to it.
    pub writable: bool,
}

/// Compares the open files of a guest's QEMU with what it was handed: each is there, past the page cache, and writable only if it
/// was to be.
///
/// # Errors
/// Each file that differs, or why nothing can be seen.
pub fn read_back(fs: &HostFs, uuid: &str, handed: &[Handed<'_>]) -> Result<(), Vec<String>> {
    if handed.is_empty() {
        return Ok(());
    }
    let unseen = |why: String| vec![format!("the guest's open files: cannot be seen: {why}")];
    let pid = guests::own_pid_of(fs, uuid).map_err(|error| unseen(error.to_string()))?;
    let pid = pid.ok_or_else(|| unseen("it has no QEMU process".to_owned()))?;
    let open = guests::open_files(fs, pid).map_err(|error| unseen(error.to_string()))?;
    let look = |handed: &Handed<'_>| {
        let access = if handed.writable { "to write" } else { "only to read" };
        let planned = format!("{}: planned open {access}, past the page cache", handed.what);
        let own = fs.link_target(&path_of(handed.file)).map_err(|error| format!("{planned}, found {error}"))?;
        let handles: Vec<_> = open.iter().filter(|file| file.target == own).collect();
        let writable = handles.iter().find(|file| file.flags & ACCESS_MODE != 0);
        let found = match (handed.writable, writable) {
            _ if handles.is_empty() => format!("that process {pid} has not opened it"),
            _ if handles.iter().all(|file| !file.direct) => {
                format!("that process {pid} has it open through the page cache")
            }
            (true, None) => format!("that process {pid} cannot write to it"),
            (false, Some(file)) => format!("that process {pid} can write to it (descriptor {})", file.fd),
            _ => return Ok(()),
        };
        Err(format!("{planned}, found {found}"))
    };
    let wrong: Vec<String> = handed.iter().filter_map(|handed| look(handed).err()).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::{Entry, MemoryTree};

    const UUID: &str = "11111111-2222-4333-8444-555555555555";

    /// A machine with one QEMU, whose descriptors lead to the file and have these flags.
    fn machine(own: &File, open: &[(&str, &str)]) -> HostFs {
        const FILE: &str = "/deltas/#7 (deleted)";
        let mut tree = MemoryTree::new();
        let mut put = |path: &str, entry| tree.put(path, entry).unwrap();
        put(&path_of(own), Entry::Link(FILE.to_owned()));
        let line = format!("qemu-system-x86_64\0-name\0guest=run-job-1\0-uuid\0{UUID}\0");
        put("/proc/70/cmdline", Entry::File(line.into_bytes()));
        put("/proc/70/fd/0", Entry::Link("/deltas/#8 (deleted)".to_owned()));
        put("/proc/70/fdinfo/0", Entry::File(b"pos:\t0\nflags:\t0140002\n".to_vec()));
        for (fd, flags) in open {
            put(&format!("/proc/70/fd/{fd}"), Entry::Link(FILE.to_owned()));
            put(&format!("/proc/70/fdinfo/{fd}"), Entry::File(format!("pos:\t0\nflags:\t{flags}\n").into_bytes()));
        }
        HostFs::of_tree(tree, "test")
    }

    #[test]
    fn a_guest_that_has_another_file_or_has_it_otherwise_is_found() {
        let own = tempfile::tempfile().unwrap();
        let look = |writable: bool, open: &[(&str, &str)]| {
            let handed = Handed { what: "the delta", file: &own, writable };
            read_back(&machine(&own, open), UUID, &[handed])
        };
        look(false, &[("9", "0140000"), ("12", "02140000")]).unwrap();
        look(true, &[("9", "0140002"), ("12", "02140002")]).unwrap();
        for (writable, open, says) in [
            (false, &[][..], "planned open only to read, past the page cache, found that process 70 has not opened it"),
            (true, &[][..], "planned open to write"),
            (false, &[("9", "0140000"), ("12", "0140002")][..], "can write to it (descriptor 12)"),
            (true, &[("9", "0140000")][..], "cannot write to it"),
            (true, &[("9", "0100002")][..], "through the page cache"),
        ] {
            let found = look(writable, open).unwrap_err();
            assert!(found.len() == 1 && found[0].starts_with("the delta: ") && found[0].contains(says), "{found:?}");
        }
        let handed = [Handed { what: "the delta", file: &own, writable: true }];
        let unseen = read_back(&machine(&own, &[]), "another", &handed).unwrap_err();
        assert!(unseen[0].contains("no QEMU process"), "{unseen:?}");
    }
}
