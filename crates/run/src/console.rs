//! The guest's serial console, passed on as it comes.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nearmetal_domain::DomainXml;
use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};

use crate::RunError;

/// Where it goes.
pub type Sink = Box<dyn Write + Send>;

/// Bytes that are passed on at once.
const PIECE: usize = 16 << 10;
/// How long what is left may take once the guest is gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// Where the kernel has pseudo-terminals.
const TERMINALS: &str = "/dev/pts";

/// A console that is followed, by a thread of its own.
#[derive(Debug)]
pub struct Console {
    done: Receiver<()>,
}

impl Console {
    /// Follows the console of a guest that has just started. QEMU drops what its guest says while nobody has the terminal open, which
    /// here is until libvirt has told where it is.
    ///
    /// # Errors
    /// [`RunError::Console`]: the guest's live definition has no terminal, or it cannot be opened.
    pub fn follow(live: &str, sink: Sink) -> Result<Self, RunError> {
        let path = terminal(live)?;
        let file =
            open(&path).map_err(|error| RunError::Console(format!("cannot open {}: {error}", path.display())))?;
        let (told, done) = channel();
        thread::spawn(move || {
            pass_on(file, sink);
            let _ = told.send(());
        });
        Ok(Self { done })
    }

    /// Waits until all is passed on, when the guest is gone. A terminal that somebody else keeps open, and a sink that takes nothing,
    /// are left to themselves after two seconds.
    pub fn end(self) {
        let _ = self.done.recv_timeout(PATIENCE);
    }
}

/// libvirt's word for it, if it is a terminal's name.
fn terminal(live: &str) -> Result<PathBuf, RunError> {
    let found = DomainXml::parse(live).and_then(|live| live.serial_terminal());
    let path = found?.ok_or_else(|| RunError::Console("libvirt names no terminal of it".to_owned()))?;
    let number = path.strip_prefix(TERMINALS).and_then(|rest| rest.strip_prefix('/')).unwrap_or_default();
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RunError::Console(format!(
            "libvirt names `{}`, and a terminal is in {TERMINALS}",
            path.escape_debug()
        )));
    }
    Ok(PathBuf::from(path))
}

fn open(path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !isatty(&file) {
        return Err(ErrorKind::InvalidInput.into());
    }
    // As QEMU has it: a terminal that echoes would type the guest's own words.
    let mut settings = tcgetattr(&file)?;
    settings.make_raw();
    tcsetattr(&file, OptionalActions::Now, &settings)?;
    Ok(file)
}

/// Until the other end is closed. A sink that is gone keeps the guest from nothing: the rest is read and dropped.
fn pass_on(mut terminal: impl Read, sink: Sink) {
    let mut sink = Some(sink);
    let mut piece = vec![0; PIECE];
    loop {
        match terminal.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                if let Some(to) = &mut sink
                    && to.write_all(&piece[..count]).and_then(|()| to.flush()).is_err()
                {
                    sink = None;
                }
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
    use std::sync::{Arc, Mutex};

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

    /// Takes so many bytes, and is gone then.
    struct Takes(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Takes {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut all = self.0.lock().unwrap();
            if all.len() >= self.1 {
                return Err(ErrorKind::BrokenPipe.into());
            }
            all.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_comes_is_passed_on_and_a_sink_that_is_gone_keeps_nobody() {
        for (most, expected) in [(usize::MAX, PIECE * 3), (1, PIECE)] {
            let all = Arc::default();
            let mut said: &[u8] = &vec![b'x'; PIECE * 3];
            pass_on(&mut said, Box::new(Takes(Arc::clone(&all), most)));
            assert_eq!((said.len(), all.lock().unwrap().len()), (0, expected));
        }
    }
}
