//! A conversation with a program that was started: its input is written and its outputs are read as they go, and nobody is
//! waited for longer than one has patience.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// More output than this is none of ours.
const LONGEST_OUTPUT: u64 = 256 << 20;
/// A longer line of prose is handed on in parts.
const LONGEST_LINE: usize = 4096;
/// A pipe that can be written to takes so much at once (`PIPE_BUF` of pipe(7)).
const CHUNK: usize = 4096;
/// How often is looked whether the program has ended, or an answer is still waited for.
const STEP: Duration = Duration::from_millis(25);

/// How long an answer is waited for. Nobody sits before it: ssh asks for no password then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// At most so long; then whatever runs for it here is killed.
    pub(crate) limit: Duration,
    /// Set once nobody wants the answer any more.
    pub(crate) stop: &'a AtomicBool,
    /// Bytes that are read of it.
    pub(crate) most: u64,
}

/// What came of a conversation.
pub(super) struct Heard {
    /// The program's data.
    pub output: Vec<u8>,
    /// Whether patience ended before the program did: it runs on, and was not waited for.
    pub gave_up: bool,
}

/// The pipes to a program.
pub(super) struct Pipes {
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

/// Talks until the program has closed both outputs, or has ended: whom it left behind may hold them for hours, as the master of
/// ssh's shared connections does. Lines of its prose are handed on as they come.
///
/// # Errors
/// A pipe cannot be read, or the program not be waited for.
pub(super) fn converse(
    child: &mut Child,
    mut pipes: Pipes,
    mut input: &[u8],
    patience: Option<&Patience<'_>>,
    said: &mut dyn FnMut(&str),
) -> io::Result<Heard> {
    let most = patience.map_or(LONGEST_OUTPUT, |patience| patience.most);
    let until = patience.map(|patience| Instant::now() + patience.limit);
    let is_over = || {
        patience.is_some_and(|patience| patience.stop.load(Ordering::Relaxed))
            || until.is_some_and(|until| Instant::now() >= until)
    };
    let (mut output, mut left, mut prose) = (Vec::new(), most, Prose { line: Vec::new(), left: most, said });
    let mut has_ended = false;
    while pipes.stdout.is_some() || pipes.stderr.is_some() {
        if input.is_empty() {
            // It may wait for the end of its input.
            pipes.stdin = None;
        }
        if is_over() {
            return Ok(Heard { output, gave_up: !has_ended });
        }
        let ready = pipes.ready(if has_ended { Duration::ZERO } else { STEP })?;
        if ready == Ready::default() && has_ended {
            break;
        }
        if ready.stdin {
            input = write_some(&mut pipes.stdin, input);
        }
        if ready.stdout {
            read_some(&mut pipes.stdout, &mut left, |bytes| output.extend_from_slice(bytes))?;
        }
        if ready.stderr {
            let mut most = prose.left;
            read_some(&mut pipes.stderr, &mut most, |bytes| prose.hear(bytes))?;
            prose.left = most;
        }
        has_ended = has_ended || child.try_wait()?.is_some();
    }
    prose.end();
    // It is told by its closed pipes, if it has more to say than is read.
    drop(pipes);
    while patience.is_some() && child.try_wait()?.is_none() {
        if is_over() {
            return Ok(Heard { output, gave_up: true });
        }
        thread::sleep(STEP);
    }
    Ok(Heard { output, gave_up: false })
}

/// The pipes on which something can be done, or which were closed at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ready {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Pipes {
    fn ready(&self, most: Duration) -> io::Result<Ready> {
        let ends: [(Option<BorrowedFd<'_>>, PollFlags); 3] = [
            (self.stdin.as_ref().map(AsFd::as_fd), PollFlags::OUT),
            (self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN),
            (self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN),
        ];
        let mut open: Vec<PollFd<'_>> =
            ends.iter().filter_map(|(end, flags)| Some(PollFd::from_borrowed_fd((*end)?, *flags))).collect();
        let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut open, Some(&most)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let mut seen = open.iter().map(|end| !end.revents().is_empty());
        let [stdin, stdout, stderr] = ends.map(|(end, _)| end.is_some() && seen.next().unwrap_or(false));
        Ok(Ready { stdin, stdout, stderr })
    }
}

/// Writes what a pipe takes at once; gives what is left to write. One that does not read its input, because it refused, closes
/// it: that is no failure of ours.
fn write_some<'i>(pipe: &mut Option<ChildStdin>, input: &'i [u8]) -> &'i [u8] {
    let written = pipe.as_mut().map_or(Ok(0), |pipe| pipe.write(&input[..input.len().min(CHUNK)]));
    match written {
        Ok(written) => &input[written..],
        Err(error) if error.kind() == ErrorKind::Interrupted => input,
        Err(_) => &[],
    }
}

/// Reads what is there; the pipe is closed at its end, and once it gave more than was left to be read.
fn read_some(pipe: &mut Option<impl Read>, left: &mut u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut bytes = [0; 16 << 10];
    let Some(open) = pipe.as_mut() else { return Ok(()) };
    let read = match open.read(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
        other => other?,
    };
    let wanted = read.min(usize::try_from(*left).unwrap_or(usize::MAX));
    take(&bytes[..wanted]);
    *left -= wanted as u64;
    if read == 0 || *left == 0 {
        *pipe = None;
    }
    Ok(())
}

/// What a program says to people, line by line.
struct Prose<'s> {
    line: Vec<u8>,
    left: u64,
    said: &'s mut dyn FnMut(&str),
}

impl Prose<'_> {
    fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if *byte == b'\n' || self.line.len() == LONGEST_LINE {
                self.end();
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
    }

    fn end(&mut self) {
        if !self.line.is_empty() {
            (self.said)(String::from_utf8_lossy(&self.line).trim_end());
            self.line.clear();
        }
    }
}
