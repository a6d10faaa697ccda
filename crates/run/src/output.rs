//! The command and its output, which goes into files of the guest.
//!
//! The agent could keep the output itself, and has two limits then: libvirt passes on 4 MiB of an answer and the agent forgets
//! what it has sent, exit code and all; and the command has not ended for it before everybody has closed its output, a program
//! that it left behind as well. So a shell of the guest gives the command two FIFOs, has a reader in the background copy each
//! into a file, and becomes the command (`exec`). A FIFO behaves as the pipes of the agent do: who opens /dev/stdout anew writes
//! behind what is there, and output beyond the limit is read and dropped, not stored. The agent opens the files before that, so
//! it is known that it may, and reads them piece by piece afterwards. The words of the command pass through the shell as they
//! are. In a guest without a shell, or whose agent opens no files, the agent keeps the output.

use std::time::{Duration, Instant};

use nearmetal_hypervisor::agent::{self, ExecOutput, ExecStatus, OpenFile, Part, PartEnd, Running};
use nearmetal_hypervisor::{Hypervisor, HypervisorError};
use serde_json::json;

use crate::RunError;

/// The shell that POSIX systems have.
const SHELL: &str = "/bin/sh";
/// Where there may be room, the guest's disk first: what lies in memory is missing to the command.
const PLACES: [&str; 3] = ["/var/tmp", "/tmp", "/run"];
/// Written for dash, bash and busybox. `$0`: the path of the files but for their endings, which exist. Its first line on stdout is
/// for us ([`FILES`], [`KEPT`] or [`NO_PROGRAM`]), and so are the lines of `$0.done`: `o` and `e`, all of stdout and of stderr is
/// stored; `O` and `E`, not all of it; `x`, the command was not started.
///
/// A reader is no child of the command, which may wait for all it has; it has none of the agent's pipes; and it outlives signals
/// that the command sends to its group. `cat` writes what it has read at once, as `head` does not. `ulimit` counts 512 bytes, 1024 in
/// bash outside its POSIX mode; a reader that may not write more drops the rest, and what it has stored is beyond [`MOST`] then.
/// The FIFOs lose their names, for a command that reads all of a directory.
const SCRIPT: &str = "\
refuse() { echo '?'; echo \"\\`$2\\`: $3\" >&2; exit \"$1\"; }
case $1 in
*/*)
    [ -d \"$1\" ] && refuse 126 \"$1\" 'it is a directory in the guest'
    [ -f \"$1\" ] && [ ! -x \"$1\" ] && refuse 126 \"$1\" 'the guest may not execute it: give it the mode 755'
    ;;
esac
command -v \"$1\" >/dev/null 2>&1 || refuse 127 \"$1\" 'no such program in the guest'
keep() {
    trap '' HUP INT QUIT TERM XFSZ
    ulimit -f 131080
    cat >>\"$0.$1\" && mark=$2 || mark=$3
    cat >/dev/null
    echo \"$mark\" >&3
}
if { mkfifo -m 622 \"$0.o\" \"$0.e\" && echo + >>\"$0.done\" && command -v cat; } >/dev/null 2>&1; then
    ( ( keep out o O ) <\"$0.o\" >/dev/null 2>&1 3>>\"$0.done\" & )
    ( ( keep err e E ) <\"$0.e\" >/dev/null 2>&1 3>>\"$0.done\" & )
    trap 'echo x >>\"$0.done\"' EXIT
    echo +
    exec >\"$0.o\" 2>\"$0.e\"
    rm -f \"$0.o\" \"$0.e\"
    exec \"$@\"
fi
echo -
exec \"$@\"";
const FILES: &str = "+";
const KEPT: &str = "-";
const NO_PROGRAM: &str = "?";
/// Of each stream at most: it is held in memory, and the agent sends some MB a second.
const MOST: usize = 64 << 20;
/// Lines of the readers are no longer.
const MOST_MARKS: usize = 64;
/// How long the readers may take to store what a command has written that ended: they are a pipe's 64 KiB behind at most. A program
/// that it left behind keeps them for ever.
const READERS: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);
/// How long reading the output back may take in all.
const READING: Duration = Duration::from_secs(120);
/// Bytes of the agent's command at most. libvirt never sends the rest of one that does not fit into the send buffer of the agent's
/// socket, 208 KiB by default, of which the kernel takes a part for itself.
const LONGEST: usize = 160 << 10;

/// What a command left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub status: ExecStatus,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
    /// What is missing of it, and why.
    pub missing: Option<String>,
}

/// How a command came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It ran.
    Ran(Output),
    /// It was never started.
    NotStarted(NotStarted),
}

/// A command that the guest could not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotStarted {
    /// In the guest's words.
    pub why: String,
    /// As shells have it: 126 if it is there and cannot be executed, else 127.
    pub code: u8,
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Job {
    running: Running,
    /// `None` if the agent keeps its output.
    files: Option<Files>,
}

/// What its readers write to, open.
#[derive(Debug)]
struct Files {
    out: OpenFile,
    err: OpenFile,
    done: OpenFile,
}

/// Refuses a command that does not reach the agent.
///
/// # Errors
/// [`RunError::CommandTooLong`].
pub fn fits(command: &[String]) -> Result<(), RunError> {
    // The agent's command is JSON, in which some characters take six bytes. The longest name of a run is 64 bytes long, and
    // some words lie around it.
    let bytes = json!(command).to_string().len() + json!(SCRIPT).to_string().len() + 512;
    if bytes <= LONGEST { Ok(()) } else { Err(RunError::CommandTooLong { bytes, limit: LONGEST }) }
}

/// Starts a command in a guest. `Err` of the second kind: it cannot be started, in the agent's words.
///
/// # Errors
/// The agent does not answer.
pub(crate) fn start(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &[String],
) -> Result<Result<Job, NotStarted>, HypervisorError> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    // `exec` and `command` would take it for an option.
    if command.first().is_some_and(|program| !program.starts_with('-')) {
        if let Some((base, files)) = open(hypervisor, name)? {
            let inside = [&[SHELL, "-c", SCRIPT, base.as_str()], command.as_slice()].concat();
            match agent::start(hypervisor, name, &inside, None) {
                Ok(running) => return Ok(Ok(Job { running, files: Some(files) })),
                // There is no shell, or nothing may be run: the next attempt tells.
                Err(HypervisorError::AgentCommandFailed { .. }) => files.close(hypervisor),
                Err(error) => return Err(error),
            }
        }
    }
    match agent::start(hypervisor, name, &command, None) {
        Ok(running) => Ok(Ok(Job { running, files: None })),
        // The agent's own words say whether it is missing or may not be run.
        Err(HypervisorError::AgentCommandFailed { message, .. }) => Ok(Err(NotStarted { why: message, code: 127 })),
        Err(error) => Err(error),
    }
}

/// Makes the files where there is a place, and the path that they share; `None` if the agent may not, or cannot read them.
fn open(hypervisor: &mut dyn Hypervisor, name: &str) -> Result<Option<(String, Files)>, HypervisorError> {
    for place in PLACES {
        let base = format!("{place}/nearmetal-{name}");
        let mut made = Vec::new();
        for ending in ["out", "err", "done"] {
            match OpenFile::create(hypervisor, name, &format!("{base}.{ending}")) {
                Ok(file) => made.push(file),
                // It may not, there is no such place, or no room.
                Err(HypervisorError::AgentCommandFailed { .. } | HypervisorError::AgentReply { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        let files = match <[OpenFile; 3]>::try_from(made) {
            Ok([out, err, done]) => Files { out, err, done },
            Err(made) => {
                made.into_iter().for_each(|file| file.close(hypervisor));
                continue;
            }
        };
        match files.done.read(hypervisor, MOST_MARKS, &mut |_| None).end {
            PartEnd::Whole => return Ok(Some((base, files))),
            PartEnd::Failed(error)
                if !matches!(
                    error,
                    HypervisorError::AgentCommandFailed { .. } | HypervisorError::AgentReply { .. }
                ) =>
            {
                return Err(error);
            }
            // Opened, and not to be read: no other place is better.
            _ => {
                files.close(hypervisor);
                return Ok(None);
            }
        }
    }
    Ok(None)
}

impl Files {
    fn close(self, hypervisor: &mut dyn Hypervisor) {
        [self.out, self.err, self.done].into_iter().for_each(|file| file.close(hypervisor));
    }
}

impl Job {
    /// What it left, if it has ended. `interrupted` says which signal has come since it was asked last.
    ///
    /// # Errors
    /// The agent does not answer, or does not know it any more.
    pub(crate) fn ended(
        &self,
        hypervisor: &mut dyn Hypervisor,
        interrupted: &mut dyn FnMut() -> Option<i32>,
    ) -> Result<Option<Ended>, HypervisorError> {
        let Some(told) = self.running.ended(hypervisor)? else { return Ok(None) };
        Ok(Some(match &self.files {
            None => Ended::Ran(kept(told)),
            Some(files) => from_files(hypervisor, files, told, interrupted),
        }))
    }
}

/// Of a command whose output the agent has kept.
fn kept(told: ExecOutput) -> Output {
    let ExecOutput { status, stdout, stderr, truncated } = told;
    let missing = truncated.then(|| "the guest's agent cut the output: have the command write less".to_owned());
    Output { status, stdout, stderr, missing }
}

/// Reads what a command has written. Its code is known already, and stays so whatever comes of this. The files stay open: their
/// guest ends now.
fn from_files(
    hypervisor: &mut dyn Hypervisor,
    files: &Files,
    mut told: ExecOutput,
    interrupted: &mut dyn FnMut() -> Option<i32>,
) -> Ended {
    let end = told.stdout.iter().position(|byte| *byte == b'\n').unwrap_or(told.stdout.len());
    let first = String::from_utf8_lossy(&told.stdout[..end]).into_owned();
    if first == KEPT {
        told.stdout.drain(..=end.min(told.stdout.len().saturating_sub(1)));
        return Ended::Ran(kept(told));
    }
    if first != FILES {
        let said = if first == NO_PROGRAM { sentence(&told.stderr) } else { None };
        return Ended::NotStarted(not_started(told.status, said));
    }
    let (began, mut signal) = (hypervisor.now(), None);
    let mut stop = |now: Instant| {
        signal = signal.or_else(&mut *interrupted);
        match signal {
            Some(signal) => Some(format!("signal {signal} came while it was read")),
            None if now.duration_since(began) >= READING => {
                Some(format!("reading it took longer than {} s", READING.as_secs()))
            }
            None => None,
        }
    };
    let marks = marks(hypervisor, &files.done, &mut stop);
    let mut missing = Vec::new();
    let mut read = |stream: &str, file: &OpenFile, cut: u8| {
        let Part { bytes, end } = file.read(hypervisor, MOST, &mut stop);
        match end {
            PartEnd::Limit => {
                missing.push(format!("{stream} has more than {} MiB, and only these are passed on", MOST >> 20));
            }
            PartEnd::Whole if marks.contains(&cut) => {
                missing.push(format!("the guest could not store all of {stream}: is its disk full?"));
            }
            PartEnd::Whole => {}
            PartEnd::Stopped(why) => missing.push(format!("{stream} after {} bytes: {why}", bytes.len())),
            PartEnd::Failed(error) => {
                missing.push(format!("{stream} after {} bytes cannot be read: {error}", bytes.len()));
            }
        }
        bytes
    };
    let (stdout, stderr) = (read("stdout", &files.out, b'O'), read("stderr", &files.err, b'E'));
    if marks.contains(&b'x') {
        return Ended::NotStarted(not_started(told.status, sentence(&stderr)));
    }
    let missing = (!missing.is_empty()).then(|| format!("output of the command is missing: {}", missing.join("; ")));
    Ended::Ran(Output { status: told.status, stdout, stderr, missing })
}

/// What the readers say once both are done, or what they have said when it is time.
fn marks(hypervisor: &mut dyn Hypervisor, done: &OpenFile, stop: &mut dyn FnMut(Instant) -> Option<String>) -> Vec<u8> {
    let (began, mut marks) = (hypervisor.now(), Vec::new());
    loop {
        let Part { bytes, end } = done.read(hypervisor, MOST_MARKS, stop);
        marks.extend(bytes);
        let said = |one: u8| marks.iter().any(|mark| mark.to_ascii_lowercase() == one);
        let over = hypervisor.now().duration_since(began) >= READERS;
        if said(b'o') && said(b'e') || over || !matches!(end, PartEnd::Whole) || marks.len() > MOST_MARKS {
            return marks;
        }
        hypervisor.pause(LOOK);
    }
}

fn not_started(status: ExecStatus, said: Option<String>) -> NotStarted {
    let code = if status == ExecStatus::Exited(126) { 126 } else { 127 };
    NotStarted { why: said.unwrap_or_else(|| "the guest's shell ended before it began".to_owned()), code }
}

/// The guest's words, fit for a terminal.
fn sentence(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let said: String = said.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
    (!said.is_empty()).then_some(said)
}

#[cfg(test)]
mod tests;
