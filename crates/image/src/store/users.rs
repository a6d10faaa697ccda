//! Who uses an image: guests' deltas that name it, processes that hold it open, definitions that mention it.
//!
//! A file in the store is called by its hash, which is nobody else's name: whatever mentions it means it, whether as a
//! path, relative to some directory, or inside QEMU's `json:` form.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::path::{Path, PathBuf};

use nearmetal_host::{HostFs, files};

use super::qcow2;
use crate::hash::ImageId;

/// Where libvirt keeps what its guests write to.
const GUESTS: &str = "/var/lib/libvirt/images";
/// Where libvirt keeps definitions of guests, and of pools' volumes none.
const DEFINITIONS: &str = "/etc/libvirt/qemu";
/// The longest definition that is read.
const MOST_DEFINITION: usize = 4 << 20;
/// Files of a directory that are looked at.
const MOST_FILES: usize = 100_000;

/// One user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum User {
    /// A delta that names the image as its backing file.
    Delta {
        /// Its path.
        path: PathBuf,
    },
    /// A process that holds it open.
    Process {
        /// Its number.
        pid: u32,
        /// Its name.
        name: String,
    },
    /// A definition of libvirt that mentions it.
    Definition {
        /// The guest's name.
        domain: String,
    },
    /// A loop device.
    Loop {
        /// Its name.
        device: String,
    },
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Delta { path } => write!(f, "the delta `{}` is based on it", path.display()),
            Self::Process { pid, name } => write!(f, "process {pid} (`{name}`) has it open"),
            Self::Definition { domain } => write!(f, "the definition of `{domain}` mentions it"),
            Self::Loop { device } => write!(f, "the loop device `{device}` shows it"),
        }
    }
}

/// Everybody who uses an image. `directories` are searched for deltas beside those that libvirt's definitions name.
pub fn users(fs: &HostFs, id: &ImageId, directories: &[PathBuf]) -> Vec<User> {
    let name = id.to_string();
    let mut users = BTreeSet::new();
    let mut candidates: VecDeque<PathBuf> = VecDeque::new();
    for directory in directories.iter().map(PathBuf::as_path).chain([Path::new(GUESTS)]) {
        candidates.extend(files::list(directory).unwrap_or_default().into_iter().take(MOST_FILES));
    }
    for path in files::list(Path::new(DEFINITIONS)).unwrap_or_default() {
        if path.extension().is_none_or(|extension| extension != "xml") {
            continue;
        }
        let Ok(text) = files::read_to_string_up_to(&path, MOST_DEFINITION) else { continue };
        if text.contains(&name) {
            let domain = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            users.insert(User::Definition { domain });
        }
        // Every quoted path: those that are no image are passed over when their first bytes are read.
        let quoted = text.split(['"', '\'']).filter(|word| word.starts_with('/'));
        candidates.extend(quoted.map(PathBuf::from));
    }
    users.extend(deltas(candidates, &name).into_iter().map(|path| User::Delta { path }));
    users.extend(processes(fs, &name));
    for device in fs.list("/sys/block").unwrap_or_default() {
        let shown = fs.read(&format!("/sys/block/{device}/loop/backing_file"));
        if shown.is_ok_and(|path| path.contains(&name)) {
            users.insert(User::Loop { device });
        }
    }
    users.into_iter().collect()
}

/// Deltas of the image among these files and those below them.
fn deltas(mut candidates: VecDeque<PathBuf>, name: &str) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(path) = candidates.pop_front() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let Some(backing) = backing_of(&path) else { continue };
        if backing.contains(name) {
            found.push(path);
        } else {
            // A delta of a delta: the one between may lie where nobody looked.
            candidates.push_back(path.parent().unwrap_or(Path::new("/")).join(backing));
        }
    }
    found
}

fn backing_of(path: &Path) -> Option<String> {
    if !files::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut file = files::open(path).ok()?;
    let mut magic = [0; 4];
    file.read_exact(&mut magic).ok()?;
    if &magic != b"QFI\xfb" {
        return None;
    }
    let mut head = magic.to_vec();
    file.take(qcow2::HEAD as u64).read_to_end(&mut head).ok()?;
    qcow2::backing(&head).ok()?
}

fn processes(fs: &HostFs, name: &str) -> Vec<User> {
    let mut found = Vec::new();
    for entry in fs.list("/proc").unwrap_or_default() {
        let Ok(pid) = entry.parse::<u32>() else { continue };
        // nearmetal itself reads an image to prove it or to pass it on, and is content with what it has open.
        let line = fs.read_bytes(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if pid == std::process::id() || is_ours(&line) {
            continue;
        }
        let open = fs.list(&format!("/proc/{pid}/fd")).unwrap_or_default();
        let targets = open.iter().filter_map(|fd| fs.link_target(&format!("/proc/{pid}/fd/{fd}")).ok());
        // The temporary file of a push bears the same name.
        if targets.into_iter().any(|target| target.contains(name) && !target.contains("/.incoming/")) {
            let name = fs.read(&format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
            found.push(User::Process { pid, name });
        }
    }
    found
}

/// Whether a command line is that of a program of ours that reads images.
fn is_ours(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == 0);
    let program = words.next().and_then(|path| path.rsplit(|byte| *byte == b'/').next());
    let rest: Vec<&[u8]> = words.take(2).collect();
    program == Some(b"nearmetal") && matches!(rest.as_slice(), [b"image", b"receive" | b"verify"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ImageId {
        ImageId::from_bytes([0xab; 32])
    }

    #[test]
    fn deltas_of_deltas_are_followed_to_the_image() {
        let directory = tempfile::tempdir().unwrap();
        let hidden = directory.path().join("elsewhere");
        files::create_dir_all(&hidden).unwrap();
        let between = hidden.join("between.qcow2");
        files::write(&between, qcow2::sample(&format!("../images/{}", id()))).unwrap();
        let top = directory.path().join("top.qcow2");
        files::write(&top, qcow2::sample("elsewhere/between.qcow2")).unwrap();
        files::write(&directory.path().join("other"), qcow2::sample("/elsewhere/base")).unwrap();
        files::write(&directory.path().join("raw"), b"raw").unwrap();
        let candidates = files::list(directory.path()).unwrap().into();
        let found = deltas(candidates, &id().to_string());
        assert_eq!(found, [directory.path().join("elsewhere/between.qcow2")]);
    }

    #[test]
    fn a_loop_of_deltas_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        files::write(&path, qcow2::sample("a")).unwrap();
        assert_eq!(deltas([path].into(), &id().to_string()), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_nearmetals_own_readers_are_passed_over() {
        assert!(is_ours(b"/usr/bin/nearmetal\0image\0receive\0--port=0\0"));
        for other in [&b""[..], b"nearmetal\0image\0push\0", b"qemu-nbd\0image\0receive\0", b"nearmetal\0"] {
            assert!(!is_ours(other));
        }
    }

    #[test]
    fn a_user_is_named_in_words() {
        let user = User::Process { pid: 7, name: "qemu-system-x86".to_owned() };
        assert_eq!(user.to_string(), "process 7 (`qemu-system-x86`) has it open");
    }
}
