//! A capture as one file: a gzipped tar of plain text, which any `tar` unpacks.

use std::io::{self, Write};

use flate2::{Compression, GzBuilder};
use nearmetal_host::{Entry, MemoryTree};
use tar::{Builder, EntryType, Header};

use crate::CaptureError;

/// The folder everything is in.
const TOP: &str = "capture";
/// What there is and could not be read: a path, a tab, and [`DENIED`] or the reason, a line each.
pub(crate) const UNREAD_FILE: &str = "/unread.txt";
/// Its second word for what another user might have read.
pub(crate) const DENIED: &str = "denied";

/// Writes a capture to `out`, which may be a pipe. The same tree gives the same bytes: no clock, no user is in it.
///
/// # Errors
/// Only those of `out`.
pub fn write(tree: &MemoryTree, unmasked: bool, out: impl Write) -> Result<(), CaptureError> {
    pack(tree, unmasked, out).map_err(CaptureError::Write)
}

fn pack(tree: &MemoryTree, unmasked: bool, out: impl Write) -> io::Result<()> {
    let gzip = GzBuilder::new().mtime(0).write(out, Compression::default());
    let mut archive = Builder::new(gzip);
    let entries = tree.entries();
    let mut unread = String::new();
    add(&mut archive, "", &Entry::Directory)?;
    add(&mut archive, "/about.txt", &Entry::File(about(unmasked).into_bytes()))?;
    for (path, entry) in entries {
        match entry {
            Entry::Denied => unread.push_str(&format!("{path}\t{DENIED}\n")),
            Entry::Failed(reason) => unread.push_str(&format!("{path}\t{}\n", reason.replace(['\n', '\t'], " "))),
            entry => add(&mut archive, &path, entry)?,
        }
    }
    add(&mut archive, UNREAD_FILE, &Entry::File(unread.into_bytes()))?;
    archive.into_inner()?.finish()?.flush()
}

fn add<W: Write>(archive: &mut Builder<W>, path: &str, entry: &Entry) -> io::Result<()> {
    let path = format!("{TOP}{path}");
    let mut header = Header::new_gnu();
    header.set_mtime(0);
    header.set_size(0);
    header.set_mode(0o644);
    match entry {
        Entry::Directory => {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o755);
            archive.append_data(&mut header, format!("{path}/"), io::empty())
        }
        Entry::File(bytes) => {
            header.set_size(bytes.len() as u64);
            archive.append_data(&mut header, path, &bytes[..])
        }
        Entry::Link(target) => {
            header.set_entry_type(EntryType::Symlink);
            header.set_mode(0o777);
            archive.append_link(&mut header, path, target)
        }
        Entry::Denied | Entry::Failed(_) => Ok(()),
    }
}

fn about(unmasked: bool) -> String {
    let masked = match unmasked {
        false => "Serial numbers, hardware addresses and secrets of command lines are masked.",
        true => "NOT MASKED: serial numbers and hardware addresses are as the machine gave them.",
    };
    format!(
        "nearmetal capture, format 1, by nearmetal {}\n{masked}\n\n\
         What nearmetal's readers read of /sys and /proc of one machine, as plain text.\n\
         To see it: nearmetal inspect --capture THIS_FILE\n\
         unread.txt lists what was there and could not be read, with the reason.\n",
        env!("CARGO_PKG_VERSION")
    )
}
