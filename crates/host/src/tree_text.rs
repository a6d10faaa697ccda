//! A tree of /sys and /proc as one text file, for fixtures: a machine of 256 PUs is thousands of tiny files otherwise.
//!
//! ```text
//! # A comment, up to the first directory.
//! [/sys/devices/system/node/node0]     a directory; the entries below it are in it
//! cpulist = 0-3                        a file of one line
//! meminfo =                            a file of several lines
//! | Node 0 MemTotal: 1024 kB
//! | Node 0 MemFree: 512 kB
//! raw : 0x10\x00                       a file that does not end in a newline; \n, \\ and \xNN spell bytes
//! driver -> ../../../bus/pci/nvme      a symbolic link
//! ```

use std::path::Path;

use rustix::fs::CWD;

use crate::files::FileError;
use crate::{HostFs, ReadError, files};

/// Why a text is not a tree, or could not become one.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A line that has no meaning here.
    #[error("line {line} of the tree: {reason}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What was expected.
        reason: &'static str,
    },
    /// The directory cannot be written.
    #[error("line {line} of the tree cannot be written")]
    Write {
        /// Number of the line, from 1.
        line: usize,
        /// The cause.
        #[source]
        source: FileError,
    },
}

/// Writes the tree below a directory. Names stay below it; links are written as they are, and `HostFs` refuses those
/// that lead out.
///
/// # Errors
/// A line that is no entry, a name that leads out of the directory, or the file system.
pub fn unpack(text: &str, root: &Path) -> Result<(), TreeError> {
    let mut directory = None;
    // Made last, so that no file is written through one.
    let mut links = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, content)) = lines.next() {
        let line = at + 1;
        let wrong = |reason| TreeError::Line { line, reason };
        let write = |source| TreeError::Write { line, source };
        if content.is_empty() || (content.starts_with('#') && directory.is_none()) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let name = inside(name.strip_prefix('/').ok_or(wrong("a directory begins with /"))?);
            let path = root.join(name.ok_or(wrong("the directory leads out of the tree"))?);
            files::create_dir_all(&path).map_err(write)?;
            directory = Some(path);
            continue;
        }
        let directory = directory.as_ref().ok_or(wrong("an entry stands before the first directory"))?;
        let (name, kind, value) =
            split(content).ok_or(wrong("expected NAME = TEXT, NAME : BYTES or NAME -> TARGET"))?;
        let path = directory.join(inside(name).ok_or(wrong("the name leads out of the tree"))?);
        match kind {
            "->" => links.push((line, value, path)),
            ":" => {
                let bytes = unescape(value).ok_or(wrong("expected \\n, \\\\ or \\xNN after a backslash"))?;
                files::write(&path, &bytes).map_err(write)?;
            }
            _ => {
                let mut bytes = if value.is_empty() { String::new() } else { format!("{value}\n") };
                while let Some((_, next)) = lines.next_if(|(_, next)| value.is_empty() && next.starts_with('|')) {
                    bytes.push_str(next[1..].strip_prefix(' ').unwrap_or(&next[1..]));
                    bytes.push('\n');
                }
                // `name =` alone is an empty line, as the kernel writes an empty list.
                let bytes = if bytes.is_empty() { "\n".to_owned() } else { bytes };
                files::write(&path, bytes.as_bytes()).map_err(write)?;
            }
        }
    }
    for (line, target, path) in links {
        rustix::fs::symlinkat(target, CWD, &path).map_err(|errno| TreeError::Write {
            line,
            source: FileError { action: "link", path, source: errno.into() },
        })?;
    }
    Ok(())
}

/// The tree of those files and links of a host that are wanted, by path. Bytes of NUL at the end of a file are left out.
///
/// # Errors
/// A directory that cannot be listed. Files that cannot be read are left out, as in any capture.
pub fn pack(fs: &HostFs, wanted: &dyn Fn(&str) -> bool) -> Result<String, ReadError> {
    let mut text = String::new();
    for top in ["/proc", "/sys"] {
        if fs.exists(top) {
            pack_directory(fs, top, wanted, &mut text)?;
        }
    }
    Ok(text)
}

fn pack_directory(fs: &HostFs, path: &str, wanted: &dyn Fn(&str) -> bool, text: &mut String) -> Result<(), ReadError> {
    let mut entries = String::new();
    let mut below = Vec::new();
    for name in fs.list(path)? {
        let own = format!("{path}/{name}");
        if let Ok(target) = fs.link_target(&own) {
            if wanted(&own) {
                entries.push_str(&format!("{name} -> {target}\n"));
            }
        } else if fs.exists(&format!("{own}/.")) {
            below.push(own);
        } else if wanted(&own) {
            if let Ok(bytes) = fs.read_bytes(&own) {
                entries.push_str(&entry(&name, &bytes));
            }
        }
    }
    if !entries.is_empty() {
        text.push_str(&format!("[{path}]\n{entries}"));
    }
    below.iter().try_for_each(|directory| pack_directory(fs, directory, wanted, text))
}

fn entry(name: &str, bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = &bytes[..end];
    let plain = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_suffix('\n'));
    match plain.filter(|text| !text.chars().any(|c| c.is_control() && c != '\t' && c != '\n')) {
        Some(line) if !line.contains('\n') => format!("{name} = {line}").trim_end_matches(' ').to_owned() + "\n",
        Some(lines) => {
            let lines: Vec<String> = lines.split('\n').map(|line| format!("| {line}\n")).collect();
            format!("{name} =\n{}", lines.concat())
        }
        None => format!("{name} : {}\n", escape(bytes)),
    }
}

fn split(content: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = content.split_once(' ')?;
    let (kind, value) = rest.split_once(' ').unwrap_or((rest, ""));
    matches!(kind, "=" | ":" | "->").then_some((name, kind, value))
}

/// A relative path without `..`, empty parts or a leading `/`.
fn inside(name: &str) -> Option<&str> {
    name.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0')).then_some(name)
}

fn escape(bytes: &[u8]) -> String {
    let one = |byte: &u8| match byte {
        b'\n' => "\\n".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(*byte).to_string(),
        other => format!("\\x{other:02x}"),
    };
    bytes.iter().map(one).collect()
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (kind, tail) = rest.split_first()?;
        rest = tail;
        match kind {
            b'n' => bytes.push(b'\n'),
            b'\\' => bytes.push(b'\\'),
            b'x' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
[/proc]
version = Linux version 2.6.27
[/sys/a]
empty =
lines =
| one
|  two
link -> ../b
raw : 0x10\\x01
[/sys/b]
x = 1
";

    #[test]
    fn a_tree_reads_back_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        unpack(&format!("# why\n\n{TREE}"), directory.path()).unwrap();
        let fs = HostFs::at(directory.path()).unwrap();
        assert_eq!(fs.read("/sys/a/lines").unwrap(), "one\n two\n");
        assert_eq!((fs.read("/sys/a/empty").unwrap(), fs.read("/sys/a/link/x").unwrap()), ("\n".into(), "1\n".into()));
        assert_eq!(fs.read_bytes("/sys/a/raw").unwrap(), b"0x10\x01");
        assert_eq!(pack(&fs, &|_| true).unwrap(), TREE);
        assert_eq!(pack(&fs, &|path| path.ends_with("/x")).unwrap(), "[/sys/b]\nx = 1\n");
    }

    #[test]
    fn nothing_is_written_outside() {
        let directory = tempfile::tempdir().unwrap();
        for junk in
            ["[/../x]", "[x]", "[/]", "x = 1", "[/sys]\n../x = 1", "[/sys]\n/x = 1", "[/sys]\nx", "[/sys]\nx : \\q"]
        {
            assert!(matches!(unpack(junk, directory.path()), Err(TreeError::Line { .. })), "{junk}");
        }
    }
}
