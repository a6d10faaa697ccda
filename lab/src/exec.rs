//! Commands in a lab: exit code, both outputs apart and whole, and a limit on time.

use std::io::{self, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::identity::token;
use crate::lab::Lab;
use crate::{ssh, tools};

/// A command and its arguments; no shell reads them, unless the command is one.
#[derive(Debug, Clone)]
pub struct Command {
    words: Vec<String>,
    input: Input,
    timeout: Option<Duration>,
}

/// What a command reads.
#[derive(Debug, Clone, Default)]
pub enum Input {
    /// Nothing.
    #[default]
    Nothing,
    /// These bytes.
    Bytes(Vec<u8>),
    /// The caller's own standard input.
    Inherit,
}

/// How a command ended, with everything it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit code; 128 and the signal's number where a signal ended it.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

impl ExecOutput {
    /// Whether the exit code is 0.
    pub fn success(&self) -> bool {
        self.status == 0
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Command {
    /// A command without input and limit.
    pub fn new(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), input: Input::Nothing, timeout: None }
    }

    /// A script for `sh -c`.
    pub fn shell(script: impl Into<String>) -> Self {
        Self::new(["sh".to_owned(), "-c".to_owned(), script.into()])
    }

    /// With something to read.
    pub fn input(mut self, input: Input) -> Self {
        self.input = input;
        self
    }

    /// Killed after `limit`, with everything it started.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }
}

/// Variable in the environment of every command, by which one that hangs is found with all its children.
const TAG: &str = "NEARMETAL_LAB_EXEC";

/// How long the shared connection may take to be made again.
const CONNECT: Duration = Duration::from_secs(30);

/// How long the outputs of a killed command may take to close.
const RELEASE: Duration = Duration::from_secs(5);

/// Exit code of `ssh` itself when the connection fails, and of commands that choose it.
const SSH_FAILED: i32 = 255;

/// Runs a command and hands on what it writes, as it comes.
pub(crate) fn run(
    lab: &Lab,
    command: &Command,
    stdout: &mut (dyn Write + Send),
    stderr: &mut (dyn Write + Send),
) -> Result<i32, LabError> {
    let tag = token()?;
    if !lab.state().join("ssh").exists() {
        // Without it each command would make a connection of its own, which works and is slow.
        ssh::connect(lab.state(), lab.ssh_port(), CONNECT)?;
    }
    // The trailing `exit` keeps the shell as a parent, which turns death by a signal into an exit code.
    let line = format!("{TAG}={tag} {}; exit $?", ssh::line(&command.words));
    let mut client = ssh::client(lab.state(), lab.ssh_port());
    client.arg("--").arg(line).stdout(Stdio::piped()).stderr(Stdio::piped());
    client.stdin(match command.input {
        Input::Nothing => Stdio::null(),
        Input::Bytes(_) => Stdio::piped(),
        Input::Inherit => Stdio::inherit(),
    });
    let mut child = client.spawn().map_err(|source| LabError::Start { program: "ssh".to_owned(), source })?;
    let (sender, ended) = mpsc::channel();
    let (out, err, input) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
    let mut last = Tail::default();
    let status = thread::scope(|scope| {
        if let (Some(mut input), Input::Bytes(bytes)) = (input, &command.input) {
            // A command that does not read to the end closes the pipe, which is its right.
            scope.spawn(move || drop(input.write_all(bytes)));
        }
        let done = sender.clone();
        scope.spawn(move || {
            let _ = out.map(|mut out| io::copy(&mut out, stdout));
            let _ = done.send(());
        });
        let last = &mut last;
        scope.spawn(move || {
            let _ = err.map(|mut err| copy_and_keep(&mut err, stderr, last));
            let _ = sender.send(());
        });
        wait(lab, command, &mut child, &ended, &tag)
    })?;
    if status == SSH_FAILED && !ssh::is_connected(lab.state(), lab.ssh_port()) {
        let console = tools::last_words(&lab.console_text().unwrap_or_default());
        return Err(LabError::Connection { name: lab.name().to_string(), reason: last.text(), console });
    }
    Ok(status)
}

/// Waits for both outputs to end, and the client after them; at the limit kills what the command started.
fn wait(
    lab: &Lab,
    command: &Command,
    child: &mut Child,
    ended: &mpsc::Receiver<()>,
    tag: &str,
) -> Result<i32, LabError> {
    let deadline = command.timeout.map(|limit| Instant::now() + limit);
    for _ in 0..2 {
        let Some(deadline) = deadline else {
            let _ = ended.recv();
            continue;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if ended.recv_timeout(left).is_err() {
            kill(lab, tag);
            let _ = child.kill();
            let _ = child.wait();
            // The shared connection, not the client, holds the pipes. Where the lab did not let go of them, end it.
            if ended.recv_timeout(RELEASE).is_err() {
                ssh::disconnect(lab.state(), lab.ssh_port());
            }
            let limit = command.timeout.unwrap_or_default();
            return Err(LabError::TimedOut { name: lab.name().to_string(), command: command.words.join(" "), limit });
        }
    }
    let status = child.wait().map_err(|source| LabError::Start { program: "ssh".to_owned(), source })?;
    Ok(status.code().unwrap_or(SSH_FAILED))
}

/// Kills every process of the lab that inherited the tag. A lab that no longer answers has nothing to kill.
fn kill(lab: &Lab, tag: &str) {
    let script = format!(
        "for file in $(grep -lzsx {TAG}={tag} /proc/[0-9]*/environ); do \
         pid=${{file#/proc/}}; kill -KILL ${{pid%/environ}}; done"
    );
    let mut client = ssh::client(lab.state(), lab.ssh_port());
    client.args(["--", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = client.spawn() else { return };
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The end of a stream, for an error message.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    const LENGTH: usize = 1000;

    fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        let excess = self.0.len().saturating_sub(Self::LENGTH);
        self.0.drain(..excess);
    }

    fn text(&self) -> String {
        tools::last_words(&String::from_utf8_lossy(&self.0))
    }
}

fn copy_and_keep(from: &mut impl Read, to: &mut (dyn Write + Send), last: &mut Tail) -> io::Result<()> {
    let mut buffer = [0u8; 8192];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        last.add(&buffer[..count]);
        to.write_all(&buffer[..count])?;
    }
}
