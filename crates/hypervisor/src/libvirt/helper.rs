//! The helper as a child process: start, hello, one question at a time, end.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::HypervisorError;
use crate::lines::read_line;
use crate::protocol::{Hello, LONGEST_LINE, Outcome, PROTOCOL, ReplyLine, Request, RequestLine};

/// Loading libvirt takes some 30 ms; in an emulated machine under load, seconds.
const HELLO_WAIT: Duration = Duration::from_secs(60);
/// How much of its stderr is kept for messages.
const OUTPUT_KEPT: usize = 2000;
/// The exit status of the dynamic loader.
const LOADER_FAILED: i32 = 127;

/// Why a question has no answer.
pub(super) enum Failure {
    /// It was not asked.
    Refused(String),
    /// Not in time.
    Silence,
    /// The helper ended.
    End,
    /// It said something that is no answer to it.
    Nonsense(String),
}

#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<Result<Vec<u8>, String>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    stderr_reader: Option<thread::JoinHandle<()>>,
    next_id: u64,
}

impl Helper {
    /// `program` is the helper's path, or what reaches it, with its arguments.
    pub(super) fn start(program: &[OsString], uri: &str) -> Result<Self, HypervisorError> {
        let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
        let shown = words.join(" ");
        let missing = |reason: String| HypervisorError::HelperMissing { path: shown.clone(), reason };
        let (path, arguments) = program.split_first().ok_or_else(|| missing("no program is named".into()))?;
        let mut child = Command::new(path)
            .args(arguments)
            .arg(uri)
            // libvirt's messages are data here: always in English.
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for nearmetal to handle; the helper must be there to roll back with.
            .process_group(0)
            .spawn()
            .map_err(|error| missing(error.to_string()))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(missing("it has no pipes".into()));
        };
        let (sender, lines) = sync_channel(1);
        thread::spawn(move || forward_lines(stdout, &sender));
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        let keeper = Arc::clone(&kept);
        let stderr_reader = Some(thread::spawn(move || keep_end(stderr, &keeper)));
        let mut helper = Self { child, stdin, lines, stderr: kept, stderr_reader, next_id: 1 };
        helper.greet(shown)?;
        Ok(helper)
    }

    fn greet(&mut self, path: String) -> Result<(), HypervisorError> {
        // If it is gone already, reading says so better than writing.
        let _ = self.write_line(&Hello { protocol: PROTOCOL });
        let line = match self.read_line(HELLO_WAIT) {
            Ok(line) => line,
            Err(Failure::End) => {
                let code = self.child.wait().ok().and_then(|status| status.code());
                let (status, output) = self.last_words();
                let library = output.split_once("error while loading shared libraries: ");
                return Err(match library.and_then(|(_, rest)| rest.split_once(':')) {
                    Some((library, _)) if code == Some(LOADER_FAILED) => {
                        HypervisorError::LibvirtMissing { library: library.to_owned() }
                    }
                    _ => HypervisorError::HelperFailed { path, status, output },
                });
            }
            Err(Failure::Silence) => {
                return Err(HypervisorError::HelperFailed {
                    path,
                    status: format!("no answer within {} s", HELLO_WAIT.as_secs()),
                    output: self.output(),
                });
            }
            Err(Failure::Nonsense(reason) | Failure::Refused(reason)) => {
                return Err(HypervisorError::Protocol { reason });
            }
        };
        let hello: Hello = serde_json::from_slice(&line)
            .map_err(|error| HypervisorError::Protocol { reason: format!("`{path}` does not greet ({error})") })?;
        if hello.protocol != PROTOCOL {
            return Err(HypervisorError::HelperIncompatible { path, expected: PROTOCOL, found: hello.protocol });
        }
        Ok(())
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// One question, one answer.
    pub(super) fn ask(&mut self, request: Request, patience: Duration) -> Result<Outcome, Failure> {
        let id = self.next_id;
        self.next_id += 1;
        let line =
            serde_json::to_vec(&RequestLine { id, request }).map_err(|error| Failure::Refused(error.to_string()))?;
        if line.len() > LONGEST_LINE {
            return Err(Failure::Refused(format!("it is {} bytes long, and {LONGEST_LINE} is the limit", line.len())));
        }
        self.write_bytes(line).map_err(|_| Failure::End)?;
        let reply = self.read_line(patience)?;
        let reply: ReplyLine = serde_json::from_slice(&reply)
            .map_err(|error| Failure::Nonsense(format!("the helper's line is not a reply ({error})")))?;
        match reply {
            ReplyLine { id: Some(answered), outcome } if answered == id => Ok(outcome),
            ReplyLine { id: None, outcome: Outcome::Error(error) } => Err(Failure::Nonsense(error.to_string())),
            ReplyLine { id: answered, .. } => {
                Err(Failure::Nonsense(format!("the helper answers request {answered:?} instead of {id}")))
            }
        }
    }

    /// The next line that it says by itself.
    pub(super) fn listen(&mut self, patience: Duration) -> Result<Vec<u8>, Failure> {
        self.read_line(patience)
    }

    fn write_line(&mut self, value: &Hello) -> std::io::Result<()> {
        let line = serde_json::to_vec(value)?;
        self.write_bytes(line)
    }

    fn write_bytes(&mut self, mut line: Vec<u8>) -> std::io::Result<()> {
        line.push(b'\n');
        self.stdin.write_all(&line)?;
        self.stdin.flush()
    }

    fn read_line(&mut self, patience: Duration) -> Result<Vec<u8>, Failure> {
        match self.lines.recv_timeout(patience) {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(reason)) => Err(Failure::Nonsense(reason)),
            Err(RecvTimeoutError::Timeout) => Err(Failure::Silence),
            Err(RecvTimeoutError::Disconnected) => Err(Failure::End),
        }
    }

    /// Whether it ended by itself and without an error, now that its stdout is closed.
    pub(super) fn ended_well(&mut self) -> bool {
        let limit = Instant::now() + Duration::from_secs(2);
        while self.is_running() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(10));
        }
        matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
    }

    /// How it ended, and the end of what it wrote to stderr. It has closed its stdout: the rest is a matter of
    /// moments, and is forced.
    pub(super) fn last_words(&mut self) -> (String, String) {
        let limit = Instant::now() + Duration::from_secs(2);
        while self.is_running() && Instant::now() < limit {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        // A grandchild could hold stderr open for ever: never joined without knowing that it ended.
        while self.stderr_reader.as_ref().is_some_and(|reader| !reader.is_finished()) && Instant::now() < limit {
            thread::sleep(Duration::from_millis(10));
        }
        (status, self.output())
    }

    fn output(&self) -> String {
        let kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let (front, back) = kept.as_slices();
        let text = String::from_utf8_lossy(&[front, back].concat()).trim().to_owned();
        if text.is_empty() { "it wrote no message".into() } else { text }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Killed, not asked: a call of libvirt that hangs would keep it from reading that its input ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ends when the helper closes its stdout, or when nobody listens any more.
fn forward_lines(stdout: ChildStdout, sender: &SyncSender<Result<Vec<u8>, String>>) {
    let mut reader = BufReader::with_capacity(64 << 10, stdout);
    loop {
        let line = match read_line(&mut reader, LONGEST_LINE) {
            Ok(Some(line)) => Ok(line),
            Ok(None) => return,
            Err(error) => Err(format!("the helper's output cannot be read: {error}")),
        };
        let broken = line.is_err();
        if sender.send(line).is_err() || broken {
            return;
        }
    }
}

fn keep_end(mut stderr: ChildStderr, kept: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..length]);
        let surplus = kept.len().saturating_sub(OUTPUT_KEPT);
        kept.drain(..surplus);
    }
}
