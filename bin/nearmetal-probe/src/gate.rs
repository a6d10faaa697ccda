//! A gate: a program that has something to prepare says when it is ready, and goes on once it is told to.
//!
//! Whoever waits for the program is in another process, and often on the other side of a guest's agent, so the gate has two sides. The
//! program has two FIFOs (fifo(7)): it writes to `ready`, and then reads from `begin` what it is told, `open` or `close`. Others have a Unix socket with an abstract
//! name (unix(7)), which is gone with the process that holds the gate, whatever became of it; each connection says one word.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use nearmetal_host::files;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::error::ProbeError;

/// What tells a program that there is a gate, and the directory of its FIFOs.
pub const ENVIRONMENT: &str = "NEARMETAL_GATE";
/// The program's FIFOs.
const READY: &str = "ready";
const BEGIN: &str = "begin";
/// The longest word, with its end of line.
const WORD: u64 = 16;
/// How long the process that holds the gate may take until it listens: a guest that was booted a moment ago takes long to start one.
const TO_LISTEN: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// What is asked of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// To answer once the program is ready.
    Wait,
    /// To let the program begin.
    Open,
    /// To let it end instead, and give back what it works on.
    Close,
}

impl Ask {
    fn word(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Open => "open",
            Self::Close => "close",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Wait, Self::Open, Self::Close].into_iter().find(|ask| ask.word() == word)
    }
}

/// The side of the process that runs the program.
#[derive(Debug)]
pub struct Gate {
    listener: UnixListener,
}

impl Gate {
    /// Listens. Not yet in a network namespace of the program's: others would not find it.
    ///
    /// # Errors
    /// Another process holds a gate of this name.
    pub fn new(name: &str) -> Result<Self, ProbeError> {
        let address = address(name).map_err(failed(name, "cannot have this name"))?;
        let listener = UnixListener::bind_addr(&address).map_err(failed(name, "cannot be made"))?;
        Ok(Self { listener })
    }

    /// Makes the program's FIFOs in a directory that is there, and waits beside it. `patience`: how long a program that is ready waits to
    /// be told; then `gives_up` is called, since whoever was to tell it is gone.
    ///
    /// The thread has the namespaces of its caller, and has to be there before that makes a process namespace: the kernel starts no
    /// thread of a process whose next child is in another one.
    ///
    /// # Errors
    /// A FIFO cannot be made.
    pub fn hold(
        self,
        directory: &Path,
        patience: Duration,
        gives_up: impl FnOnce(String) + Send + 'static,
    ) -> Result<(), ProbeError> {
        for name in [READY, BEGIN] {
            mknodat(CWD, directory.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                .map_err(|error| ProbeError::kernel("make a FIFO of a gate", error))?;
        }
        let directory = directory.to_owned();
        std::thread::spawn(move || {
            if let Err(why) = self.held(&directory, patience) {
                gives_up(why);
            }
        });
        Ok(())
    }

    fn held(&self, directory: &Path, patience: Duration) -> Result<(), String> {
        let broken = |error: std::io::Error| error.to_string();
        // Until the program opens it and closes it again.
        files::read(&directory.join(READY)).map_err(|error| error.to_string())?;
        let ready = Instant::now();
        self.listener.set_nonblocking(true).map_err(broken)?;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => match answered(stream) {
                    // One that asked and went, or is somebody else, keeps nobody from asking again.
                    Ok(Ask::Wait) | Err(_) => {}
                    Ok(ask) => {
                        let said = format!("{}\n", ask.word());
                        return files::write(&directory.join(BEGIN), said).map_err(|error| error.to_string());
                    }
                },
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE / 10),
                Err(error) => return Err(broken(error)),
            }
            if ready.elapsed() > patience {
                return Err(format!(
                    "the program was ready, and nobody told it to begin within {} s",
                    patience.as_secs()
                ));
            }
        }
    }
}

/// What one connection asks, answered.
fn answered(stream: UnixStream) -> std::io::Result<Ask> {
    // Before anything is read: nobody else is to take the time of who waits here.
    if rustix::net::sockopt::socket_peercred(&stream)?.uid != rustix::process::geteuid() {
        return Err(std::io::Error::other("of another user"));
    }
    let mut stream = stream;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut word = String::new();
    BufReader::new((&stream).take(WORD)).read_line(&mut word)?;
    let ask = Ask::of(word.trim_end()).ok_or_else(|| std::io::Error::other("not a word of a gate"))?;
    stream.write_all(format!("{}\n", ask.word()).as_bytes())?;
    Ok(ask)
}

fn address(name: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nearmetal-gate-{name}"))
}

fn failed(name: &str, what: &str) -> impl FnOnce(std::io::Error) -> ProbeError {
    let (name, what) = (name.to_owned(), what.to_owned());
    move |error| ProbeError::Gate { name, why: format!("{what}: {error}") }
}

/// Asks a gate, and waits for its answer, `limit` at most.
///
/// # Errors
/// Nobody holds it, the program ended, or it was not ready in time.
pub fn ask(name: &str, ask: Ask, limit: Duration) -> Result<(), ProbeError> {
    let wrong = |why: String| ProbeError::Gate { name: name.to_owned(), why };
    let address = address(name).map_err(failed(name, "cannot have this name"))?;
    let began = Instant::now();
    let mut stream = loop {
        match UnixStream::connect_addr(&address) {
            Ok(stream) => break stream,
            // A gate that was ready listens, or is gone.
            Err(error) if ask != Ask::Wait || began.elapsed() >= TO_LISTEN.min(limit) => {
                return Err(failed(name, "is held by nobody")(error));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    // Anybody may take an abstract name.
    let holder = rustix::net::sockopt::socket_peercred(&stream).map_err(|error| wrong(error.to_string()))?.uid;
    if holder != rustix::process::geteuid() {
        return Err(wrong(format!("is held by the user {}", holder.as_raw())));
    }
    let late = || wrong(format!("is not open: the program was not ready within {} s", limit.as_secs()));
    let left = limit.checked_sub(began.elapsed()).filter(|left| !left.is_zero()).ok_or_else(late)?;
    let told = stream.write_all(format!("{}\n", ask.word()).as_bytes()).and_then(|()| {
        stream.shutdown(Shutdown::Write)?;
        stream.set_read_timeout(Some(left))?;
        let mut answer = String::new();
        BufReader::new((&stream).take(WORD)).read_line(&mut answer)?;
        Ok(answer)
    });
    match told {
        Ok(answer) if answer.trim_end() == ask.word() => Ok(()),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
            Err(late())
        }
        _ => Err(wrong("is gone: the program ended before it was ready".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(200);

    fn name(of: &str) -> String {
        format!("test-{of}-{}", std::process::id())
    }

    /// A program with a gate that prepares by a command.
    fn held(name: &str, prepares: &str, patience: Duration) -> (Child, Receiver<String>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let (gives_up, given_up) = channel();
        let gate = Gate::new(name).unwrap();
        gate.hold(directory.path(), patience, move |why| gives_up.send(why).unwrap()).unwrap();
        let script = format!("{prepares}; echo > ready; read -r told < begin; echo told to $told");
        let mut program = Command::new("sh");
        program.args(["-c", &script]).current_dir(directory.path()).stdout(Stdio::piped());
        (program.spawn().unwrap(), given_up, directory)
    }

    #[test]
    fn a_program_that_is_ready_begins_when_it_is_told_and_not_before() {
        let name = name("begins");
        let (mut child, _given_up, _directory) = held(&name, "true", LONG);
        for _ in 0..2 {
            ask(&name, Ask::Wait, LONG).unwrap();
        }
        assert!(child.try_wait().unwrap().is_none(), "it waits");
        ask(&name, Ask::Open, LONG).unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"told to open\n");
    }

    #[test]
    fn a_program_that_is_not_needed_any_more_is_told_to_end() {
        let name = name("closes");
        let (child, _given_up, _directory) = held(&name, "true", LONG);
        ask(&name, Ask::Wait, LONG).unwrap();
        ask(&name, Ask::Close, LONG).unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"told to close\n");
    }

    #[test]
    fn who_waits_for_a_program_that_is_not_ready_in_time_is_told_so() {
        let name = name("late");
        let (mut child, _given_up, _directory) = held(&name, "exec sleep 60", LONG);
        let error = ask(&name, Ask::Wait, SHORT).unwrap_err().to_string();
        assert!(error.contains("was not ready within"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_program_that_nobody_tells_to_begin_does_not_wait_for_ever() {
        let name = name("forgotten");
        let (mut child, given_up, _directory) = held(&name, "true", SHORT);
        assert!(given_up.recv_timeout(LONG).unwrap().contains("nobody told it to begin"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_gate_that_nobody_holds_and_one_that_is_held_already_are_errors() {
        let error = ask(&name("nobody"), Ask::Open, SHORT).unwrap_err().to_string();
        assert!(error.contains("is held by nobody"), "{error}");
        let twice = name("twice");
        let _first = Gate::new(&twice).unwrap();
        assert!(Gate::new(&twice).is_err());
    }

    #[test]
    fn a_gate_whose_holder_ends_says_that_the_program_ended() {
        let name = name("ends");
        let gate = Gate::new(&name).unwrap();
        let asked = std::thread::spawn({
            let name = name.clone();
            move || ask(&name, Ask::Wait, LONG)
        });
        gate.listener.accept().map(drop).unwrap();
        let error = asked.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("the program ended before it was ready"), "{error}");
    }

    #[test]
    fn what_is_no_word_of_a_gate_changes_nothing() {
        let name = name("words");
        let (child, _given_up, _directory) = held(&name, "true", LONG);
        ask(&name, Ask::Wait, LONG).unwrap();
        for words in ["begin\n", "", "openopenopenopenopenopen\n"] {
            let mut stream = UnixStream::connect_addr(&address(&name).unwrap()).unwrap();
            stream.write_all(words.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            assert_eq!(answer, "", "{words:?}");
        }
        ask(&name, Ask::Open, LONG).unwrap();
        assert_eq!(child.wait_with_output().unwrap().stdout, b"told to open\n");
    }
}
