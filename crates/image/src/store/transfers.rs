//! Images on their way to this host, as anybody may see them: the file in `.incoming`, whether a push holds it, and the note
//! that the push keeps beside it. No push reads that note: what is in the file proves itself.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nearmetal_host::files::{self, FileError};
use nearmetal_host::{FileLock, HostFs, file_locks, guests};
use serde::{Deserialize, Serialize};

use super::{Store, is_name};
use crate::hash::{ImageId, PIECE};

const SCHEMA: &str = "nearmetal.image-progress/1";
const MOST_NOTE: usize = 16 << 10;
/// Whoever looks sees nothing older while a push runs.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// What a push does on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It waits for its turn: nobody said yet whom to fetch from.
    Waiting,
    /// It looks for what is there already.
    Looking,
    /// It fetches pieces.
    Fetching,
    /// It writes to the disk what is all there.
    Syncing,
}

/// How far a push is on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The image's readable name.
    pub name: String,
    /// What it does.
    pub stage: Stage,
    /// Pieces that the image has.
    pub pieces: u64,
    /// Pieces that are there and proven.
    pub have: u64,
    /// Bytes that were sent to this host.
    pub received: u64,
    /// Bytes that were there already, in other images or from an earlier push.
    pub reused: u64,
    /// When this push began here, in seconds since 1970.
    pub since: u64,
}

/// Whether a push is behind an image that is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Motion {
    /// A push runs.
    Running,
    /// A push ended early: another one of the same image goes on from here.
    Stopped,
    /// The kernel does not tell who holds the file.
    Unknown,
}

/// An image on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its hash.
    pub image: ImageId,
    /// Bytes, holes included.
    pub length: u64,
    /// Whether a push runs.
    pub motion: Motion,
    /// How far it is, or was when it stopped; `None`: the push left no note, or a damaged one.
    pub progress: Option<Progress>,
}

/// The note's form.
#[derive(Serialize, Deserialize)]
struct Note {
    schema: String,
    #[serde(flatten)]
    progress: Progress,
}

impl Progress {
    /// Nothing yet.
    pub(crate) fn begun(name: &str, length: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let pieces = length.div_ceil(PIECE as u64);
        Self { name: name.to_owned(), stage: Stage::Waiting, pieces, have: 0, received: 0, reused: 0, since }
    }

    fn parse(text: &str) -> Option<Self> {
        let Note { schema, progress } = serde_json::from_str(text).ok()?;
        let sound = schema == SCHEMA && is_name(&progress.name) && progress.have <= progress.pieces;
        sound.then_some(progress)
    }
}

/// Where the note of an image on its way is.
fn note_of(incoming: &Path) -> PathBuf {
    incoming.with_extension("progress")
}

/// Keeps the note beside an image on its way. It is for people who look: a disk that is full costs them the note, and the
/// push nothing.
pub(crate) fn note(incoming: &Path, progress: &Progress) {
    let Ok(text) = serde_json::to_string(&Note { schema: SCHEMA.to_owned(), progress: progress.clone() }) else {
        return;
    };
    // Beside it and renamed, so that nobody reads half of it; not synced, since it is worth nothing after a crash.
    let beside = incoming.with_extension("progress.new");
    if files::write(&beside, text).and_then(|()| files::rename(&beside, &note_of(incoming))).is_err() {
        let _ = files::remove(&beside);
    }
}

/// Removes the note.
pub(crate) fn forget(incoming: &Path) {
    let _ = files::remove(&note_of(incoming));
}

impl Store {
    /// Images that are not whole, by hash. Takes no lock and opens no image, so that no push notices; a store that does not
    /// exist has none.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub fn transfers(&self, fs: &HostFs) -> Result<Vec<Transfer>, FileError> {
        let paths = match files::list(&self.directory.join(".incoming")) {
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut transfers = Vec::new();
        let mut locks = None;
        for path in paths {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(image) = name.and_then(|name| name.parse::<ImageId>().ok()) else { continue };
            // It may have got its final name since it was listed.
            let Ok(metadata) = files::metadata(&path) else { continue };
            let holds = |lock: &FileLock| lock.inode == metadata.ino() && guests::may_have_open(fs, lock.pid, &path);
            let motion = match locks.get_or_insert_with(|| file_locks(fs)) {
                Ok(locks) if locks.iter().any(holds) => Motion::Running,
                Ok(_) => Motion::Stopped,
                Err(_) => Motion::Unknown,
            };
            let note = files::read_to_string_up_to(&note_of(&path), MOST_NOTE).ok();
            let progress = note.and_then(|text| Progress::parse(&text));
            transfers.push(Transfer { image, length: metadata.len(), motion, progress });
        }
        Ok(transfers)
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};

    use super::*;
    use crate::manifest::Manifest;
    use crate::store::incoming::Incoming;

    fn progress() -> Progress {
        let mut progress = Progress::begun("debian", 3 * PIECE as u64 + 1);
        (progress.stage, progress.have, progress.received) = (Stage::Fetching, 2, 7);
        progress
    }

    #[test]
    fn a_push_is_seen_while_it_runs_after_it_stopped_and_no_more_when_the_image_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        let fs = HostFs::live();
        assert_eq!(store.transfers(&fs).unwrap(), []);
        let bytes = vec![7; 3 * PIECE + 1];
        let manifest = Manifest::of(bytes.as_slice(), bytes.len() as u64, |_| ()).unwrap();
        let open = || Incoming::open(&store, &manifest.id(), manifest.length(), manifest.data_bytes()).unwrap();
        let incoming = open();
        let seen = store.transfers(&fs).unwrap();
        let expected =
            Transfer { image: manifest.id(), length: bytes.len() as u64, motion: Motion::Running, progress: None };
        assert_eq!(seen, std::slice::from_ref(&expected));
        incoming.note(&progress());
        assert_eq!((progress().pieces, store.transfers(&fs).unwrap()[0].progress.clone()), (4, Some(progress())));
        drop(incoming);
        let stopped = Transfer { motion: Motion::Stopped, progress: Some(progress()), ..expected };
        assert_eq!(store.transfers(&fs).unwrap(), [stopped]);
        let again = open();
        again.write(0, &bytes[..PIECE], u64::MAX, u64::MAX).unwrap();
        again.finish(&manifest, "debian").unwrap();
        assert_eq!(store.transfers(&fs).unwrap(), []);
        assert_eq!(files::list(&directory.path().join(".incoming")).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_lock_of_a_file_of_another_name_is_no_push() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        let incoming = directory.path().join(".incoming").join(ImageId::from_bytes([1; 32]).to_string());
        files::create_dir_all(&directory.path().join(".incoming")).unwrap();
        files::write(&incoming, "ab").unwrap();
        let inode = files::metadata(&incoming).unwrap().ino();
        let motion = |target: &str| {
            let mut tree = MemoryTree::new();
            let locks = format!("1: FLOCK  ADVISORY  WRITE 7 00:01:{inode} 0 EOF\n");
            tree.put("/proc/locks", Entry::File(locks.into())).unwrap();
            tree.put("/proc/7/fd/3", Entry::Link(target.to_owned())).unwrap();
            tree.put("/proc/7/fdinfo/3", Entry::File("pos:\t0\nflags:\t02\n".into())).unwrap();
            store.transfers(&HostFs::of_tree(tree, "other")).unwrap()[0].motion
        };
        assert_eq!(motion("/run/nearmetal/runs/a.json"), Motion::Stopped);
        assert_eq!(motion(incoming.to_str().unwrap()), Motion::Running);
    }

    #[test]
    fn a_note_that_makes_no_sense_is_none_and_a_kernel_that_is_silent_leaves_it_open() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::at(directory.path());
        let id = ImageId::from_bytes([1; 32]);
        let incoming = directory.path().join(".incoming").join(id.to_string());
        files::create_dir_all(&directory.path().join(".incoming")).unwrap();
        files::write(&incoming, "ab").unwrap();
        note(&incoming, &progress());
        let sound = files::read_to_string(&note_of(&incoming)).unwrap();
        // A tree without /proc/locks.
        let fs = HostFs::of_tree(MemoryTree::new(), "nothing");
        let seen = store.transfers(&fs).unwrap();
        assert_eq!((seen[0].motion, seen[0].progress.clone()), (Motion::Unknown, Some(progress())));
        for (from, to) in
            [("debian", "a\\u001bb"), ("/1", "/2"), ("\"have\":2", "\"have\":5"), ("fetching", "x"), ("}", "")]
        {
            files::write(&note_of(&incoming), sound.replace(from, to)).unwrap();
            assert_eq!(store.transfers(&fs).unwrap()[0].progress, None, "{from} to {to}");
        }
    }
}
