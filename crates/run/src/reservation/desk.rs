//! The directory in which reservations lie, and who may do what there.
//!
//! With the package installed it is root's, sticky, and open to the group that may use KVM: runs of all users lie in it, and
//! nobody removes another's. Without, the first run of root makes one for root alone. Whoever looks opens what lies there
//! without following links and without waiting, and changes nothing that is not his own.

use std::fs::{DirBuilder, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_host::files::{self, FileError};
use rustix::fs::{Access, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::room::{self, LONGEST};
use super::{Reservation, Said, hold};
use crate::RunError;
use crate::accounts;

/// Whoever has the lock reads the machine and sizes a pool: seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often is looked whether a lock is free.
const STEP: Duration = Duration::from_millis(20);
const EXTENSION: &str = "run";
/// Of a reservation, once it is held and says something. The directory keeps out who may not use KVM; a file that root made before
/// the directory was the package's has root's group.
const SHOWN: u32 = 0o644;
/// Of the lock: who can open it can hold it.
const LOCKABLE: u32 = 0o640;
/// The group that the package opens the directory to: who may use KVM.
const GROUP: &str = "kvm";

/// Where reservations lie.
#[derive(Debug, Clone)]
pub struct Desk {
    directory: PathBuf,
    /// Who looks.
    uid: u32,
    /// Whether only root may make it: what a user made would be that user's own.
    is_shared: bool,
}

/// The right to choose: nobody else does meanwhile.
#[derive(Debug)]
pub struct Turn {
    directory: PathBuf,
    uid: u32,
    _lock: File,
}

/// The right to change pools: no other run does meanwhile.
#[derive(Debug)]
pub struct Pools {
    _lock: File,
}

/// A reservation that is held.
#[derive(Debug)]
pub struct Claim {
    reservation: Reservation,
    pub(super) path: PathBuf,
    pub(super) file: File,
}

/// A reservation that was found.
#[derive(Debug)]
pub struct Seen {
    /// What it says.
    pub said: Said,
    /// Whether its run lives.
    pub held: bool,
    /// Whether it is of the user who looks: only then may it be given back, or removed.
    pub is_own: bool,
    /// Owner of its file.
    pub uid: u32,
    /// Its file.
    pub path: PathBuf,
}

impl Seen {
    /// What it has; `None` if it has nothing yet.
    ///
    /// # Errors
    /// [`RunError::UnknownReservation`]: nobody may choose beside it.
    pub fn whole(&self) -> Result<Option<&Reservation>, RunError> {
        match &self.said {
            Said::Nothing => Ok(None),
            // Its guest, if there is one still, is seen by its threads.
            Said::Unknown if !self.is_own && !self.held => Ok(None),
            Said::Unknown => {
                Err(RunError::UnknownReservation { path: self.path.clone(), user: accounts::user(self.uid) })
            }
            Said::Whole(reservation) => Ok(Some(reservation)),
        }
    }

    /// A dead run's reservation, held again: to give back what it names. It is the user's own, and the caller has the turn, or the
    /// [pools](Pools) if it has any.
    ///
    /// # Errors
    /// The file cannot be opened, or written anew where somebody is in the way.
    pub(crate) fn adopt(&self, reservation: Reservation) -> Result<Claim, RunError> {
        let path = self.path.clone();
        let file = open(&path, OFlags::WRONLY | OFlags::APPEND, Mode::empty());
        let file = file.map_err(|errno| failed("open", &path)(errno.into()))?;
        if hold::try_hold(&file).map_err(failed("hold", &path))? {
            return Ok(Claim { reservation, path, file });
        }
        // A reader's lock is in the way, which anybody in the group can have for as long as he likes: not on a new file. Its name
        // cannot be guessed, or he would be there first.
        let number = RandomState::new().hash_one(&path);
        let beside = path.with_extension(format!("{number:016x}"));
        let mut claim = Claim { reservation, file: held(&beside)?, path: beside.clone() };
        let moved = claim.write().and_then(|()| show(&claim.file, &beside));
        match moved.and_then(|()| Ok(files::rename(&beside, &path)?)) {
            Ok(()) => Ok(Claim { path, ..claim }),
            Err(error) => {
                let _ = claim.release();
                Err(error)
            }
        }
    }
}

fn failed<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> RunError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }.into()
}

/// Opens what lies in the directory. No link is followed, a pipe is not waited for, and no terminal becomes this process's own.
fn open(path: &Path, access: OFlags, mode: Mode) -> Result<File, Errno> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, mode).map(File::from)
}

/// Makes a file that nobody else can open yet, and holds it.
fn held(path: &Path) -> Result<File, RunError> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
    let file = open(path, flags, Mode::from_raw_mode(0o600));
    let file = file.map_err(|errno| failed("create", path)(errno.into()))?;
    match hold::try_hold(&file) {
        Ok(true) => Ok(file),
        other => {
            let _ = files::remove(path);
            let busy = || std::io::Error::from(ErrorKind::WouldBlock);
            Err(failed("hold", path)(other.err().unwrap_or_else(busy)))
        }
    }
}

/// Lets others read a reservation once it is held and says something: nobody takes it for a dead run's before.
fn show(file: &File, path: &Path) -> Result<(), RunError> {
    file.set_permissions(Permissions::from_mode(SHOWN)).map_err(failed("open to others", path))
}

/// Whether this open file is the one that has the name.
fn is_at(file: &File, path: &Path) -> bool {
    let found = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let named = files::metadata(path).ok().map(found);
    named.is_some() && named == file.metadata().ok().map(found)
}

/// Every reservation of a directory, by name. One that does not exist has none.
fn look(directory: &Path, uid: u32) -> Result<Vec<Seen>, RunError> {
    let paths = match files::list(directory) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut all = Vec::new();
    for path in paths {
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        let file = match open(&path, OFlags::RDONLY, Mode::empty()) {
            Ok(file) => file,
            // Its run has just ended; it is being made; or it is a link, a socket or a device, which no run makes.
            // Or its owner has a lease on it (fcntl(2), F_SETLEASE), which no run has: he hides what is his own, and no more.
            Err(Errno::NOENT | Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::AGAIN) => continue,
            Err(errno) => return Err(failed("open", &path)(errno.into())),
        };
        let stat = rustix::fs::fstat(&file).map_err(|errno| failed("look at", &path)(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            continue;
        }
        let held = hold::is_held(&file).map_err(failed("ask for the lock of", &path))?;
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).map_err(failed("read", &path))?;
        let mut said = String::from_utf8(text).map_or(Said::Unknown, |text| Said::parse(&text));
        if let Said::Whole(reservation) = &mut said {
            reservation.uid = stat.st_uid;
            // Functions are root's to give: those in a user's file would only keep others from having them.
            if stat.st_uid != 0 && stat.st_uid != uid {
                reservation.functions.clear();
            }
        }
        all.push(Seen { said, held, is_own: stat.st_uid == uid, uid: stat.st_uid, path });
    }
    Ok(all)
}

fn whole(seen: impl Iterator<Item = Seen>) -> Result<Vec<Reservation>, RunError> {
    seen.filter_map(|seen| seen.whole().map(|whole| whole.cloned()).transpose()).collect()
}

impl Desk {
    /// Reservations in a directory, which need not exist yet: it is made when a run takes its turn.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), uid: geteuid().as_raw(), is_shared: false }
    }

    /// Reservations in a directory that root has made for all users.
    pub fn shared(directory: impl Into<PathBuf>) -> Self {
        Self { is_shared: true, ..Self::at(directory) }
    }

    /// As another user sees it. For tests, which cannot become one.
    #[doc(hidden)]
    pub fn seen_by(self, uid: u32) -> Self {
        Self { uid, ..self }
    }

    /// Looks whether a run may reserve here, before anything is made.
    ///
    /// # Errors
    /// A shared directory is missing or closed to this user.
    pub fn check(&self) -> Result<(), RunError> {
        let path = &self.directory;
        let access = || rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
        match if self.is_shared { access() } else { Ok(()) } {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(RunError::NoDesk { path: path.clone(), group: GROUP }),
            Err(Errno::ACCESS) => {
                let owner = files::metadata(path).map(|metadata| (metadata.gid(), metadata.mode()));
                // Closed to its group as well: root's own, of a run before the package was there.
                match owner {
                    Ok((gid, mode)) if mode & 0o030 == 0o030 => Err(RunError::Closed {
                        path: path.clone(),
                        group: accounts::group(gid),
                        user: accounts::user(self.uid),
                    }),
                    _ => Err(RunError::NoDesk { path: path.clone(), group: GROUP }),
                }
            }
            Err(errno) => Err(failed("use", path)(errno.into())),
        }
    }

    /// What runs that live have, by name.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read, or what a run has is unknown.
    pub fn living(&self) -> Result<Vec<Reservation>, RunError> {
        whole(self.look()?.into_iter().filter(|seen| seen.held))
    }

    /// What dead runs left, by name: the next run of the same user gives it back.
    ///
    /// # Errors
    /// As [`living`](Self::living).
    pub fn dead(&self) -> Result<Vec<Reservation>, RunError> {
        whole(self.look()?.into_iter().filter(|seen| !seen.held))
    }

    /// Both at one look: what runs that live have, and what dead ones left.
    ///
    /// # Errors
    /// As [`living`](Self::living).
    pub fn living_and_dead(&self) -> Result<(Vec<Reservation>, Vec<Reservation>), RunError> {
        let (living, dead): (Vec<Seen>, Vec<Seen>) = self.look()?.into_iter().partition(|seen| seen.held);
        Ok((whole(living.into_iter())?, whole(dead.into_iter())?))
    }

    /// Every reservation at one look, by name, whatever it says.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read.
    pub fn look(&self) -> Result<Vec<Seen>, RunError> {
        look(&self.directory, self.uid)
    }

    /// Waits until no other run changes pools. Whoever needs the turn too takes that first.
    ///
    /// # Errors
    /// The lock cannot be made, or another run has had it for two minutes.
    pub fn pools(&self) -> Result<Pools, RunError> {
        pools(&self.directory)
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
        let directory = self.directory.clone();
        let path = directory.join("lock");
        let mut lock = self.lock_file(&path)?;
        let began = Instant::now();
        loop {
            if let Some(signal) = interrupted() {
                return Err(RunError::Interrupted(signal));
            }
            // Somebody may have put another in its place meanwhile: whoever comes next waits for that one.
            if !is_at(&lock, &path) {
                lock = self.lock_file(&path)?;
            } else if files::try_lock(&lock, &path)? && is_at(&lock, &path) {
                return Ok(Turn { directory, uid: self.uid, _lock: lock });
            }
            if began.elapsed() >= PATIENCE {
                return Err(RunError::Locked { path, seconds: PATIENCE.as_secs() });
            }
            sleep(STEP);
        }
    }

    /// The lock, open. It is the directory's owner's, or whoever made it could put another in its place.
    fn lock_file(&self, path: &Path) -> Result<File, RunError> {
        if !self.is_shared {
            // Closed to others: who could write here could take PUs from everybody.
            match DirBuilder::new().recursive(true).mode(0o700).create(&self.directory) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(failed("create directory", &self.directory)(error));
                }
                _ => {}
            }
            match open(path, OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(LOCKABLE)) {
                Ok(_) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("create", path)(errno.into())),
            }
        }
        // To read is enough for flock(2), so that nobody else need be able to write it: for the group that may read it.
        let lock = match open(path, OFlags::RDONLY, Mode::empty()) {
            Ok(lock) => lock,
            Err(Errno::NOENT | Errno::ACCESS) if self.is_shared => {
                return Err(RunError::NoDesk { path: self.directory.clone(), group: GROUP });
            }
            Err(errno) => return Err(failed("open", path)(errno.into())),
        };
        let owner = lock.metadata().map_err(failed("look at", path))?.uid();
        if owner != files::metadata(&self.directory)?.uid() {
            return Err(RunError::ForeignLock { path: path.to_owned(), user: accounts::user(owner) });
        }
        Ok(lock)
    }
}

/// Pools are root's to change, and so is their lock: it lies beside the directory, where no user can hold it. The end of a run waits
/// for this one and not for its turn, for which whoever may use KVM can make it wait.
fn pools(directory: &Path) -> Result<Pools, RunError> {
    let path = directory.with_file_name("pools.lock");
    let lock = open(&path, OFlags::RDONLY | OFlags::CREATE, Mode::from_raw_mode(0o600));
    let lock = lock.map_err(|errno| failed("open", &path)(errno.into()))?;
    let began = Instant::now();
    while !files::try_lock(&lock, &path)? {
        if began.elapsed() >= PATIENCE {
            return Err(RunError::Locked { path, seconds: PATIENCE.as_secs() });
        }
        sleep(STEP);
    }
    Ok(Pools { _lock: lock })
}

impl Turn {
    /// As [`Desk::pools`].
    ///
    /// # Errors
    /// As there.
    pub fn pools(&self) -> Result<Pools, RunError> {
        pools(&self.directory)
    }

    /// Every reservation, by name.
    ///
    /// # Errors
    /// The directory or a file in it cannot be read.
    pub fn look(&self) -> Result<Vec<Seen>, RunError> {
        look(&self.directory, self.uid)
    }

    /// What anybody has: runs that live, one's own dead ones that could not give all of it back, and dead ones of other users
    /// whose guest `lives` still. Only that user's next run can end it.
    ///
    /// # Errors
    /// As [`Desk::living`].
    pub fn others(&self, lives: &dyn Fn(&Reservation) -> bool) -> Result<Vec<Reservation>, RunError> {
        let counts = |seen: &Seen| match &seen.said {
            Said::Whole(dead) if !seen.held && !seen.is_own => lives(dead),
            _ => true,
        };
        whole(self.look()?.into_iter().filter(counts))
    }

    /// Takes what a reservation says. The caller has looked that nobody else has it.
    ///
    /// # Errors
    /// The file cannot be made, or there is one of that name.
    pub fn reserve(&self, reservation: Reservation) -> Result<Claim, RunError> {
        let path = self.directory.join(format!("{}.{EXTENSION}", reservation.name));
        let mut claim = Claim { reservation, file: held(&path)?, path };
        match claim.fits().and_then(|()| claim.write()).and_then(|()| show(&claim.file, &claim.path)) {
            Ok(()) => Ok(claim),
            Err(error) => {
                let _ = claim.release();
                Err(error)
            }
        }
    }

    /// Whether it is root who has it.
    pub(crate) fn is_roots(&self) -> bool {
        self.uid == 0
    }

    /// Removes a reservation whose run is dead and has nothing any more: the user's own, or anybody's where root has the turn.
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
        let before = self.reservation.clone();
        amend(&mut self.reservation);
        // What is tried again and again says the same each time.
        if self.reservation == before { Ok(()) } else { self.write() }
    }

    /// Refuses one that could not say later what it gives back.
    fn fits(&self) -> Result<(), RunError> {
        let line = serde_json::to_vec(&self.reservation).unwrap_or_default();
        if room::has(line.len()) {
            return Ok(());
        }
        let why = "it could become longer than others read: its memory limits have long paths, start it in another control group";
        Err(failed("write", &self.path)(std::io::Error::new(ErrorKind::InvalidData, why)))
    }

    fn write(&mut self) -> Result<(), RunError> {
        let failed = |error| failed("write", &self.path)(error);
        let refused = |why: &str| failed(std::io::Error::new(ErrorKind::InvalidData, why.to_owned()));
        // What others cannot read keeps all of them from choosing.
        if !self.reservation.is_readable() {
            return Err(refused("it would have texts that no other run reads"));
        }
        let mut line = serde_json::to_vec(&self.reservation).unwrap_or_default();
        line.push(b'\n');
        let written = self.file.metadata().map_err(failed)?.len();
        if written + line.len() as u64 >= LONGEST {
            return Err(refused("it would be longer than others read"));
        }
        if written == 0 {
            room::keep(&self.file, line.len()).map_err(failed)?;
        }
        // A line that was begun and not ended must not swallow this one.
        let work = |file: &mut File| {
            file.write_all(b"\n").and_then(|()| file.write_all(&line)).and_then(|()| file.sync_data())
        };
        work(&mut self.file).map_err(|error| self::failed("write", &self.path)(error))
    }

    /// Gives it back: all that it names is given back already.
    ///
    /// # Errors
    /// The file cannot be removed; the next run does.
    pub fn release(self) -> Result<(), RunError> {
        Ok(files::remove(&self.path)?)
    }
}
