//! Who uses an image: guests' deltas that name it, processes that hold it open, definitions that mention it.
//!
//! A file in the store is called by its hash, which is nobody else's name: whatever mentions it means it, whether as a
//! path, relative to some directory, or inside QEMU's `json:` form.

use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use nearmetal_host::HostFs;
use nearmetal_host::files::{self, FileError};

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

/// What prevents us from telling who uses an image: then it counts as used.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell whether the image is used: {why}; {advice}")]
pub struct CannotTell {
    why: String,
    advice: &'static str,
}

const AS_ROOT: &str = "run this as root";
const NAME_ANOTHER: &str = "name the directory as it is, with its rights";
const MEND: &str = "mend or remove that file";

impl CannotTell {
    fn new(why: impl ToString, advice: &'static str) -> Self {
        Self { why: why.to_string(), advice }
    }
}

/// Everybody who uses an image. `directories` are searched for deltas beside those that libvirt's definitions name.
///
/// # Errors
/// Something that may name a user cannot be read.
pub fn users(fs: &HostFs, id: &ImageId, directories: &[PathBuf]) -> Result<Vec<User>, CannotTell> {
    let name = id.to_string();
    let mut users = BTreeSet::new();
    let mut candidates: VecDeque<PathBuf> = VecDeque::new();
    for directory in directories {
        candidates.extend(listed(directory)?.ok_or_else(|| {
            CannotTell::new(format!("there is no directory `{}`", directory.display()), NAME_ANOTHER)
        })?);
    }
    // A host without libvirt has neither.
    candidates.extend(listed(Path::new(GUESTS))?.unwrap_or_default());
    for path in listed(Path::new(DEFINITIONS))?.unwrap_or_default() {
        if path.extension().is_none_or(|extension| extension != "xml") {
            continue;
        }
        let text = match files::read_to_string_up_to(&path, MOST_DEFINITION) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
            other => other.map_err(unreadable)?,
        };
        if text.contains(&name) {
            let domain = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            users.insert(User::Definition { domain });
        }
        // Every quoted path: those that are no image are passed over when their first bytes are read.
        let quoted = text.split(['"', '\'']).filter(|word| word.starts_with('/'));
        candidates.extend(quoted.map(PathBuf::from));
    }
    users.extend(deltas(candidates, &name)?.into_iter().map(|path| User::Delta { path }));
    users.extend(processes(fs, &name)?);
    for device in fs.list("/sys/block").unwrap_or_default() {
        // A device that is no loop has no such file.
        let shown = fs.read(&format!("/sys/block/{device}/loop/backing_file"));
        if shown.is_ok_and(|path| path.contains(&name)) {
            users.insert(User::Loop { device });
        }
    }
    Ok(users.into_iter().collect())
}

fn unreadable(error: FileError) -> CannotTell {
    CannotTell::new(format!("{error}: {}", error.source), AS_ROOT)
}

/// The files of a directory; `None` if it is not there.
fn listed(directory: &Path) -> Result<Option<Vec<PathBuf>>, CannotTell> {
    let paths = match files::list(directory) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(unreadable)?,
    };
    if paths.len() > MOST_FILES {
        let why = format!("`{}` has {} files, and {MOST_FILES} are looked at", directory.display(), paths.len());
        return Err(CannotTell::new(why, "name directories with fewer files"));
    }
    Ok(Some(paths))
}

/// Deltas of the image among these files and those below them.
fn deltas(mut candidates: VecDeque<PathBuf>, name: &str) -> Result<Vec<PathBuf>, CannotTell> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some(path) = candidates.pop_front() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let Some(backing) = backing_of(&path)? else { continue };
        if backing.contains(name) {
            found.push(path);
        } else {
            // A delta of a delta: the one between may lie where nobody looked.
            candidates.push_back(path.parent().unwrap_or(Path::new("/")).join(backing));
        }
    }
    Ok(found)
}

/// The backing file that a file names, if it is there and a qcow2 image with one.
fn backing_of(path: &Path) -> Result<Option<String>, CannotTell> {
    let gone = |error: &FileError| matches!(error.source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    let metadata = match files::metadata(path) {
        Err(error) if gone(&error) => return Ok(None),
        other => other.map_err(unreadable)?,
    };
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut file = match files::open(path) {
        Err(error) if gone(&error) => return Ok(None),
        other => other.map_err(unreadable)?,
    };
    let read = |source| CannotTell::new(format!("cannot read `{}`: {source}", path.display()), MEND);
    let mut head = Vec::new();
    file.by_ref().take(4).read_to_end(&mut head).map_err(read)?;
    if head != b"QFI\xfb" {
        return Ok(None);
    }
    file.take(qcow2::HEAD as u64).read_to_end(&mut head).map_err(read)?;
    qcow2::backing(&head).map_err(|error| CannotTell::new(format!("`{}`: {error}", path.display()), MEND))
}

fn processes(fs: &HostFs, name: &str) -> Result<Vec<User>, CannotTell> {
    let mut found = Vec::new();
    let all = fs.list("/proc").map_err(|error| CannotTell::new(error, AS_ROOT))?;
    for entry in all {
        let Ok(pid) = entry.parse::<u32>() else { continue };
        // nearmetal itself reads an image to prove it or to pass it on, and is content with what it has open.
        let line = fs.read_bytes(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if pid == std::process::id() || is_ours(&line) {
            continue;
        }
        let open = match fs.list(&format!("/proc/{pid}/fd")) {
            Ok(open) => open,
            // It has ended.
            Err(_) if fs.read(&format!("/proc/{pid}/comm")).is_err() => continue,
            Err(error) => return Err(CannotTell::new(error, AS_ROOT)),
        };
        let targets = open.iter().filter_map(|fd| fs.link_target(&format!("/proc/{pid}/fd/{fd}")).ok());
        // The temporary file of a push bears the same name.
        if targets.into_iter().any(|target| target.contains(name) && !target.contains("/.incoming/")) {
            let name = fs.read(&format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
            found.push(User::Process { pid, name });
        }
    }
    Ok(found)
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
        let found = deltas(candidates, &id().to_string()).unwrap();
        assert_eq!(found, [directory.path().join("elsewhere/between.qcow2")]);
    }

    #[test]
    fn a_loop_of_deltas_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        files::write(&path, qcow2::sample("a")).unwrap();
        assert_eq!(deltas([path].into(), &id().to_string()).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn only_nearmetals_own_readers_are_passed_over() {
        assert!(is_ours(b"/usr/bin/nearmetal\0image\0receive\0--port=0\0"));
        for other in [&b""[..], b"nearmetal\0image\0push\0", b"qemu-nbd\0image\0receive\0", b"nearmetal\0"] {
            assert!(!is_ours(other));
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_said_and_counts_as_used() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("typo");
        let refused = users(&HostFs::live(), &id(), std::slice::from_ref(&missing)).unwrap_err().to_string();
        assert!(refused.contains("typo") && refused.contains("cannot tell"), "{refused}");
        let cut = directory.path().join("cut.qcow2");
        files::write(&cut, &qcow2::sample("/base")[..12]).unwrap();
        let refused = deltas([cut].into(), &id().to_string()).unwrap_err().to_string();
        assert!(refused.contains("cut.qcow2") && refused.contains("mend or remove"), "{refused}");
        // A path of a definition that is not there, and a directory, are no deltas.
        let none = deltas([missing, directory.path().to_owned()].into(), &id().to_string()).unwrap();
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn a_user_is_named_in_words() {
        let user = User::Process { pid: 7, name: "qemu-system-x86".to_owned() };
        assert_eq!(user.to_string(), "process 7 (`qemu-system-x86`) has it open");
    }
}
