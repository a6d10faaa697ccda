//! Who has what: a file for each run that lives, and a lock for whoever chooses.
//!
//! A run holds its file by flock(2) as long as it lives, so that the kernel gives it up however the run ends. A file that
//! nobody holds is what a run left that was killed: [`crate::recover`] gives back what it names, and removes it. Files are
//! appended to, a line of JSON at a time; the last whole line counts, and a run that dies while it writes spoils none.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_host::files::{self, FileError};
use nearmetal_image::ImageId;
use nearmetal_units::{Bytes, CpuSet, PageSize};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::RunError;
use crate::pools::Growth;

/// Where reservations are: gone with a reboot, as what they reserve is.
pub const DIRECTORY: &str = "/run/nearmetal/runs";
/// The schema of a line.
pub const SCHEMA: &str = "nearmetal.reservation/1";
/// Whoever has the lock reads the machine and sizes a pool: seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often is looked whether the lock is free.
const STEP: Duration = Duration::from_millis(20);
/// The longest file that is read.
const LONGEST: u64 = 1 << 20;
const EXTENSION: &str = "run";

/// What a run has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reservation {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of its domain.
    pub name: String,
    /// UUID of its domain.
    pub uuid: String,
    /// Its flavour.
    pub flavour: String,
    /// Process of `nearmetal run`.
    pub pid: u32,
    /// When it began.
    pub since: String,
    /// PUs that are its own, those of helper threads and of whole cores included.
    pub cpus: CpuSet,
    /// Its memory by node.
    pub memory: Vec<NodeShare>,
    /// Files of the memory limits that its guest counts against.
    pub limits: Vec<String>,
    /// Size of its hugepages; `None` for the kernel's own pages.
    pub page_size: Option<PageSize>,
    /// Its base image.
    pub image: Option<ImageId>,
    /// What was added to pools for it.
    pub pools: Vec<Growth>,
}

/// Memory of a guest on a node, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeShare {
    /// Node.
    pub node: u32,
    /// How much.
    pub bytes: Bytes,
}

/// What a reservation's file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Nothing yet: no line is whole. Whoever makes it has nothing but its name.
    Nothing,
    /// Something that this version does not read: what it has is unknown.
    Unknown,
    /// This, by its last whole line.
    Whole(Box<Reservation>),
}

impl Said {
    /// Reads a reservation's file.
    pub fn parse(text: &str) -> Self {
        // What stands behind the last line feed was being written.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let Some(last) = whole.rsplit('\n').find(|line| !line.is_empty()) else { return Self::Nothing };
        match serde_json::from_str::<Reservation>(last) {
            Ok(last) if last.schema == SCHEMA && is_name(&last.name) => Self::Whole(Box::new(last)),
            _ => Self::Unknown,
        }
    }
}

impl Reservation {
    /// For messages: who has which PUs.
    pub fn holder(&self) -> String {
        format!("`{}` (process {}) has PUs {}", self.name, self.pid, self.cpus)
    }
}

/// Whether it may be a part of a file's name.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= 100 && !name.starts_with('.') && name.bytes().all(plain)
}

/// Where reservations lie.
#[derive(Debug, Clone)]
pub struct Desk {
    directory: PathBuf,
}

/// The right to choose: nobody else does meanwhile.
#[derive(Debug)]
pub struct Turn {
    directory: PathBuf,
    _lock: File,
}

/// A reservation that is held.
#[derive(Debug)]
pub struct Claim {
    reservation: Reservation,
    path: PathBuf,
    file: File,
}

/// A reservation that was found.
#[derive(Debug)]
pub struct Seen {
    /// What it says.
    pub said: Said,
    /// Whether its run lives.
    pub held: bool,
    path: PathBuf,
}

impl Seen {
    /// What it has; `None` if it has nothing yet.
    ///
    /// # Errors
    /// [`RunError::UnknownReservation`]: nobody may choose beside it.
    pub fn whole(&self) -> Result<Option<&Reservation>, RunError> {
        match &self.said {
            Said::Nothing => Ok(None),
            Said::Unknown => Err(RunError::UnknownReservation { path: self.path.clone() }),
            Said::Whole(reservation) => Ok(Some(reservation)),
        }
    }
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> RunError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }.into()
}

/// Every reservation of a directory, by name. One that does not exist has none.
fn look(directory: &Path) -> Result<Vec<Seen>, RunError> {
    let paths = match files::list(directory) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = Vec::new();
    for path in paths {
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let file = match files::open(&path) {
            // Its run has just ended.
            Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
            other => other?,
        };
        let held = match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => false,
            Err(Errno::WOULDBLOCK) => true,
            Err(errno) => return Err(failed("lock", &path)(errno.into())),
        };
        let mut text = String::new();
        file.take(LONGEST).read_to_string(&mut text).map_err(failed("read", &path))?;
        all.push(Seen { said: Said::parse(&text), held, path });
    }
    Ok(all)
}

fn whole(seen: impl Iterator<Item = Seen>) -> Result<Vec<Reservation>, RunError> {
    seen.filter_map(|seen| seen.whole().map(|whole| whole.cloned()).transpose()).collect()
}

impl Desk {
    /// Reservations in a directory, which need not exist yet.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// What runs that live have, by name.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read, or what a run has is unknown.
    pub fn living(&self) -> Result<Vec<Reservation>, RunError> {
        whole(look(&self.directory)?.into_iter().filter(|seen| seen.held))
    }

    /// What dead runs left, by name: the next run gives it back.
    ///
    /// # Errors
    /// As [`living`](Self::living).
    pub fn dead(&self) -> Result<Vec<Reservation>, RunError> {
        whole(look(&self.directory)?.into_iter().filter(|seen| !seen.held))
    }

    /// Both at one look: what runs that live have, and what dead ones left.
    ///
    /// # Errors
    /// As [`living`](Self::living).
    pub fn living_and_dead(&self) -> Result<(Vec<Reservation>, Vec<Reservation>), RunError> {
        let (living, dead): (Vec<Seen>, Vec<Seen>) = look(&self.directory)?.into_iter().partition(|seen| seen.held);
        Ok((whole(living.into_iter())?, whole(dead.into_iter())?))
    }

    /// Waits for the turn, whatever comes. The lock is given back when the value is dropped, or by the kernel.
    ///
    /// # Errors
    /// The directory cannot be made, or another run has had the lock for two minutes.
    pub fn turn(&self) -> Result<Turn, RunError> {
        self.turn_unless(&mut || None)
    }

    /// As [`turn`](Self::turn), unless the run is told to end by a signal with this number meanwhile.
    ///
    /// # Errors
    /// As [`turn`](Self::turn), and [`RunError::Interrupted`].
    pub fn turn_unless(&self, interrupted: &mut dyn FnMut() -> Option<i32>) -> Result<Turn, RunError> {
        let directory = &self.directory;
        // Closed to others: who could write here could take PUs from everybody.
        match DirBuilder::new().recursive(true).mode(0o700).create(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(failed("create directory", directory)(error));
            }
            _ => {}
        }
        let path = directory.join("lock");
        let lock =
            OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(failed("open", &path))?;
        let began = Instant::now();
        loop {
            if let Some(signal) = interrupted() {
                return Err(RunError::Interrupted(signal));
            }
            if files::try_lock(&lock, &path)? {
                return Ok(Turn { directory: directory.clone(), _lock: lock });
            }
            if began.elapsed() >= PATIENCE {
                return Err(RunError::Locked { path, seconds: PATIENCE.as_secs() });
            }
            sleep(STEP);
        }
    }
}

impl Turn {
    /// Every reservation, by name.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read.
    pub fn look(&self) -> Result<Vec<Seen>, RunError> {
        look(&self.directory)
    }

    /// What anybody has: runs that live, and dead ones that could not give all of it back.
    ///
    /// # Errors
    /// As [`Desk::living`].
    pub fn others(&self) -> Result<Vec<Reservation>, RunError> {
        whole(self.look()?.into_iter())
    }

    /// A dead run's reservation, held again: to give back what it names.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn adopt(&self, seen: &Seen, reservation: Reservation) -> Result<Claim, RunError> {
        let path = seen.path.clone();
        let file = OpenOptions::new().append(true).open(&path).map_err(failed("open", &path))?;
        // Nobody who lives holds it; whoever only looks lets go at once.
        files::lock(&file, &path)?;
        Ok(Claim { reservation, path, file })
    }

    /// Takes what a reservation says. The caller has looked that nobody else has it.
    ///
    /// # Errors
    /// The file cannot be made, or there is one of that name.
    pub fn reserve(&self, reservation: Reservation) -> Result<Claim, RunError> {
        let path = self.directory.join(format!("{}.{EXTENSION}", reservation.name));
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("create", &path))?;
        // Nobody else holds it for long: whoever only looks lets go at once.
        files::lock(&file, &path)?;
        let mut claim = Claim { reservation, path, file };
        claim.write()?;
        Ok(claim)
    }

    /// Removes a reservation whose run is dead and has nothing any more.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn forget(&self, seen: &Seen) -> Result<(), RunError> {
        Ok(files::remove(&seen.path)?)
    }
}

impl Claim {
    /// What it says.
    pub fn reservation(&self) -> &Reservation {
        &self.reservation
    }

    /// Says something else from now on.
    ///
    /// # Errors
    /// The file cannot be written; then what it said before still counts.
    pub fn amend(&mut self, amend: impl FnOnce(&mut Reservation)) -> Result<(), RunError> {
        amend(&mut self.reservation);
        self.write()
    }

    fn write(&mut self) -> Result<(), RunError> {
        let mut line = serde_json::to_vec(&self.reservation).unwrap_or_default();
        line.push(b'\n');
        // A line that was begun and not ended must not swallow this one.
        let work = |file: &mut File| {
            file.write_all(b"\n").and_then(|()| file.write_all(&line)).and_then(|()| file.sync_data())
        };
        work(&mut self.file).map_err(failed("write", &self.path))
    }

    /// Gives it back: all that it names is given back already.
    ///
    /// # Errors
    /// The file cannot be removed; the next run does.
    pub fn release(self) -> Result<(), RunError> {
        Ok(files::remove(&self.path)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn reservation(name: &str, cpus: &str) -> Reservation {
        Reservation {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            uuid: format!("uuid-of-{name}"),
            flavour: "small".to_owned(),
            pid: 7,
            since: "2026-11-25T09:00:00Z".to_owned(),
            cpus: cpus.parse().unwrap(),
            memory: vec![NodeShare { node: 0, bytes: Bytes::from_mib(256) }],
            limits: Vec::new(),
            page_size: None,
            image: None,
            pools: Vec::new(),
        }
    }

    fn desk() -> (tempfile::TempDir, Desk) {
        let directory = tempfile::tempdir().unwrap();
        let desk = Desk::at(directory.path().join("runs"));
        (directory, desk)
    }

    #[test]
    fn a_reservation_is_held_until_its_run_ends_and_says_then_what_it_had() {
        let (_directory, desk) = desk();
        let claim = desk.turn().unwrap().reserve(reservation("run-a", "1-2")).unwrap();
        let seen = desk.turn().unwrap().look().unwrap();
        assert!(seen.len() == 1 && seen[0].held);
        assert_eq!(seen[0].whole().unwrap(), Some(claim.reservation()));
        // As the kernel does when a process is killed.
        drop(claim);
        let turn = desk.turn().unwrap();
        // A program that another test starts has all descriptors of this process until it is there.
        let began = Instant::now();
        while turn.look().unwrap()[0].held {
            assert!(began.elapsed() < Duration::from_secs(10), "it is held by nobody");
        }
        let seen = turn.look().unwrap();
        assert!(seen[0].whole().unwrap().is_some());
        turn.forget(&seen[0]).unwrap();
        assert!(turn.look().unwrap().is_empty());
    }

    #[test]
    fn a_run_that_waits_for_its_turn_hears_a_signal() {
        let (_directory, desk) = desk();
        let _held = desk.turn().unwrap();
        let mut looks = 0;
        let mut signal = || {
            looks += 1;
            (looks > 3).then_some(15)
        };
        assert!(matches!(desk.turn_unless(&mut signal), Err(RunError::Interrupted(15))));
    }

    #[test]
    fn what_was_amended_counts_and_a_line_that_is_cut_off_does_not() {
        let (_directory, desk) = desk();
        let turn = desk.turn().unwrap();
        let mut claim = turn.reserve(reservation("run-a", "1")).unwrap();
        claim.amend(|reservation| reservation.pid = 8).unwrap();
        let path = claim.path.clone();
        assert_eq!(turn.others().unwrap()[0].pid, 8);
        claim.file.write_all(b"{\"schema\":\"nearm").unwrap();
        assert_eq!(turn.others().unwrap()[0].pid, 8);
        claim.amend(|reservation| reservation.pid = 9).unwrap();
        assert_eq!(turn.others().unwrap()[0].pid, 9);
        claim.release().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_name_is_reserved_once_and_hostile_lines_say_nothing() {
        let (_directory, desk) = desk();
        let turn = desk.turn().unwrap();
        let _claim = turn.reserve(reservation("run-a", "1")).unwrap();
        assert!(matches!(turn.reserve(reservation("run-a", "2")), Err(RunError::File(_))));
        let line = |name: &str| serde_json::to_string(&reservation(name, "1")).unwrap() + "\n";
        assert!(matches!(Said::parse(&line("run-b")), Said::Whole(_)));
        for begun in ["", "\n", line("run-b").trim_end()] {
            assert_eq!(Said::parse(begun), Said::Nothing, "{begun}");
        }
        let newer = line("run-b").replace("\"pid\"", "\"colour\":1,\"pid\"");
        for other in ["{}\n", &line("../x"), &line("run-b").replace("/1", "/9"), &newer] {
            assert_eq!(Said::parse(other), Said::Unknown, "{other}");
        }
    }

    #[test]
    fn nobody_chooses_beside_a_reservation_that_cannot_be_read() {
        let (_directory, desk) = desk();
        let turn = desk.turn().unwrap();
        let claim = turn.reserve(reservation("run-a", "1")).unwrap();
        files::write(&claim.path, "{\"schema\":\"nearmetal.reservation/2\"}\n").unwrap();
        for refused in [desk.living().unwrap_err(), turn.others().unwrap_err()] {
            assert!(refused.to_string().contains("run-a.run"), "{refused}");
        }
    }
}
