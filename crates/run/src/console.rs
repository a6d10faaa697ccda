//! The guest's serial console, passed on as it comes.
//!
//! Who is slow loses bytes, and is told how many. QEMU's guest would wait for a terminal that is full, and with it its boot.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use nearmetal_domain::DomainXml;
use rustix::fs::{Mode, OFlags};
use rustix::termios::isatty;

use crate::RunError;

/// Where it goes. One that would block ([`ErrorKind::WouldBlock`]) loses what it was given, and no more.
pub type Sink = Box<dyn Write + Send>;

/// Bytes that are passed on at once.
const PIECE: usize = 16 << 10;
/// Pieces that wait for a slow sink.
const WAITING: usize = 64;
/// A serial port says a byte at a time: so long they are collected. The terminal holds 4 KiB and more meanwhile.
const COLLECTING: Duration = Duration::from_millis(15);
/// How long what is left may take once the guest is gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where the kernel has pseudo-terminals.
const TERMINALS: &str = "/dev/pts";

/// Where pieces wait for a sink. What there is no room for is dropped, and counted.
#[derive(Debug, Clone)]
struct Queue {
    pieces: SyncSender<Vec<u8>>,
    dropped: Arc<AtomicU64>,
}

impl Queue {
    fn pass(&self, piece: Vec<u8>) {
        let length = piece.len() as u64;
        if self.pieces.try_send(piece).is_err() {
            self.dropped.fetch_add(length, Ordering::Relaxed);
        }
    }
}

/// A sink with a thread of its own, so that nobody waits for it.
#[derive(Debug)]
pub struct Passer {
    queue: Queue,
    done: Receiver<Option<std::io::Error>>,
}

impl Passer {
    /// Passes on to a sink.
    ///
    /// # Errors
    /// [`RunError::Console`]: there is no thread to be had.
    pub fn to(sink: Sink) -> Result<Self, RunError> {
        let (pieces, waiting) = sync_channel(WAITING);
        let (told, done) = sync_channel(1);
        let queue = Queue { pieces, dropped: Arc::default() };
        let dropped = Arc::clone(&queue.dropped);
        begin(move || drop(told.send(write_all(&waiting, sink, &dropped))))?;
        Ok(Self { queue, done })
    }

    /// Passes on, or drops what the sink has no room for.
    pub fn pass(&self, piece: Vec<u8>) {
        self.queue.pass(piece);
    }

    /// Waits two seconds at most until the sink has the rest: what is missing, in words.
    pub fn end(self) -> Option<String> {
        let Self { queue: Queue { pieces, dropped }, done } = self;
        drop(pieces);
        let error = match done.recv_timeout(PATIENCE) {
            Ok(error) => error.map(|error| error.to_string()),
            Err(_) => Some("who it goes to does not take it".to_owned()),
        };
        let dropped = dropped.load(Ordering::Relaxed);
        let dropped =
            (dropped > 0).then(|| format!("{dropped} bytes were dropped, since it came faster than it was taken"));
        let why: Vec<String> = error.into_iter().chain(dropped).collect();
        (!why.is_empty()).then(|| format!("the guest's console is incomplete: {}", why.join("; ")))
    }
}

fn begin(work: impl FnOnce() + Send + 'static) -> Result<(), RunError> {
    thread::Builder::new()
        .spawn(work)
        .map(drop)
        .map_err(|error| RunError::Console(format!("cannot start a thread: {error}")))
}

/// Writes what comes, until nothing does. After an error all is dropped.
fn write_all(waiting: &Receiver<Vec<u8>>, mut sink: Sink, dropped: &AtomicU64) -> Option<std::io::Error> {
    let mut failed = None;
    for piece in waiting {
        let written = if failed.is_none() { sink.write_all(&piece).and_then(|()| sink.flush()) } else { Ok(()) };
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                dropped.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
            Err(error) => failed = Some(error),
        }
    }
    failed
}

/// A console that is followed.
#[derive(Debug)]
pub struct Console {
    passer: Passer,
    read: Receiver<()>,
}

impl Console {
    /// Follows the console of a guest that has just started. `live` asks for its live definition: again when its terminal is open, since
    /// the number of a terminal that was closed is the next one's, and somebody else's; one that is open keeps its number.
    ///
    /// # Errors
    /// [`RunError::Console`]: the guest has no terminal any more, or it cannot be opened.
    pub fn follow<E>(mut live: impl FnMut() -> Result<String, E>, sink: Sink) -> Result<Self, RunError>
    where
        RunError: From<E>,
    {
        let path = terminal(&live()?)?;
        let file =
            open(&path).map_err(|error| RunError::Console(format!("cannot open {}: {error}", path.display())))?;
        if terminal(&live()?)? != path {
            return Err(RunError::Console(format!("{} is not its terminal any more", path.display())));
        }
        let passer = Passer::to(sink)?;
        let queue = passer.queue.clone();
        let (told, read) = sync_channel(1);
        begin(move || {
            collect(file, COLLECTING, |piece| queue.pass(piece));
            drop(queue);
            let _ = told.send(());
        })?;
        Ok(Self { passer, read })
    }

    /// Waits until what was read is passed on, when the guest is gone: what is missing, in words. A sink that takes nothing is left to
    /// itself after two seconds.
    pub fn end(self) -> Option<String> {
        let _ = self.read.recv_timeout(PATIENCE);
        self.passer.end()
    }
}

/// libvirt's word for it, if it is a terminal's name.
fn terminal(live: &str) -> Result<PathBuf, RunError> {
    let found = DomainXml::parse(live).and_then(|live| live.serial_terminal());
    let path = found?.ok_or_else(|| RunError::Console("libvirt names no terminal of it".to_owned()))?;
    let number = path.strip_prefix(TERMINALS).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        let path = path.escape_debug();
        return Err(RunError::Console(format!("libvirt names `{path}`, and a terminal is in {TERMINALS}")));
    }
    Ok(PathBuf::from(path))
}

/// To read alone. QEMU has set it raw (`qemu_openpty_raw`), so that it does not echo the guest's own words.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if isatty(&file) { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

/// Reads until the other end is closed: the kernel drops then what was not read.
fn collect(mut terminal: impl Read, pause: Duration, mut pass: impl FnMut(Vec<u8>)) {
    let mut piece = vec![0; PIECE];
    loop {
        match terminal.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                pass(piece[..count].to_vec());
                thread::sleep(pause);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // EIO: QEMU has ended.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn only_a_terminal_of_the_kernels_is_opened() {
        let of = |path: &str| {
            let live =
                format!("<domain><devices><serial type='pty'><source path='{path}'/></serial></devices></domain>");
            terminal(&live).map_err(|error| error.to_string())
        };
        assert_eq!(of("/dev/pts/12").unwrap(), Path::new("/dev/pts/12"));
        for path in ["/dev/pts/", "/dev/pts/../mem", "/dev/pts/1/2", "/etc/shadow", "/dev/pts/ptmx"] {
            assert!(of(path).unwrap_err().contains("a terminal is in /dev/pts"), "{path}");
        }
        assert!(terminal("<domain/>").unwrap_err().to_string().contains("libvirt names no terminal"));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("12");
        nearmetal_host::files::write(&file, "").unwrap();
        assert_eq!(open(&file).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    /// Keeps what it takes; what it says to the first pieces is given.
    struct Takes {
        all: Arc<Mutex<Vec<u8>>>,
        answers: Vec<ErrorKind>,
    }

    impl Write for Takes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if let Some(kind) = self.answers.pop() {
                return Err(kind.into());
            }
            self.all.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn passed(answers: &[ErrorKind]) -> (Vec<u8>, Option<String>) {
        let all = Arc::default();
        let passer = Passer::to(Box::new(Takes { all: Arc::clone(&all), answers: answers.to_vec() })).unwrap();
        collect([vec![b'x'; PIECE], vec![b'y'; PIECE]].concat().as_slice(), Duration::ZERO, |piece| passer.pass(piece));
        let why = passer.end();
        let all = all.lock().unwrap().clone();
        (all, why)
    }

    #[test]
    fn what_comes_is_passed_on_and_what_is_lost_is_told() {
        let (all, why) = passed(&[]);
        assert_eq!((all.len(), why), (2 * PIECE, None));
        // A reader that is busy loses a piece, and one that is gone the rest.
        let (all, why) = passed(&[ErrorKind::WouldBlock]);
        assert!(all == vec![b'y'; PIECE] && why.unwrap().contains("16384 bytes were dropped"));
        let (all, why) = passed(&[ErrorKind::StorageFull]);
        assert!(all.is_empty() && why.unwrap().contains("no storage space"));
    }

    /// Takes nothing, until it is told to.
    struct Blocks(Receiver<()>);

    impl Write for Blocks {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_takes_nothing_keeps_nobody_waiting() {
        let (release, held) = sync_channel(1);
        let passer = Passer::to(Box::new(Blocks(held))).unwrap();
        // More than waits for it, and one that it has.
        (0..WAITING + 3).for_each(|_| passer.pass(vec![0; 10]));
        assert!(passer.queue.dropped.load(Ordering::Relaxed) >= 20);
        drop(release);
        assert!(passer.end().unwrap().contains("bytes were dropped"));
    }
}
