//! Running a program in a guest.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{QUICK, ask, decode, encode, unexpected};
use crate::{Hypervisor, HypervisorError};

/// The most bytes given to a program as its input: they travel in one command, whose length is limited as described
/// at [`super::WRITE_CHUNK`].
const LONGEST_INPUT: usize = 96 << 10;

/// The first look comes soon, for short commands; the pauses double up to the last, since each look costs the guest
/// work, and the guest is what is measured. The last is this, or for what runs for hours this part of its time until then.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
const PART_OF_ITS_TIME: u32 = 100;

/// How a program in the guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecStatus {
    /// With this exit code.
    Exited(i64),
    /// By this signal.
    Signal(i64),
}

impl std::fmt::Display for ExecStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

impl ExecStatus {
    /// Whether it ended with exit code 0.
    pub fn is_success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// What a program in the guest left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// How it ended.
    pub status: ExecStatus,
    /// What it wrote to stdout. libvirt passes on about 3 MB of both together, and the agent keeps 16 MB of each:
    /// larger output goes to a file, and comes by [`super::read_file`].
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
    /// Whether the agent cut one of them.
    pub truncated: bool,
}

#[derive(Deserialize)]
struct Started {
    pid: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    exited: bool,
    exitcode: Option<i64>,
    signal: Option<i64>,
    out_data: Option<String>,
    err_data: Option<String>,
    #[serde(default)]
    out_truncated: bool,
    #[serde(default)]
    err_truncated: bool,
}

/// Runs a program (the first of `command`, by its path or through the guest's PATH; no shell) and waits for its end. A
/// program that does not end within `timeout` is sent SIGKILL and reported as
/// [`HypervisorError::GuestCommandTimedOut`].
pub fn exec(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &[&str],
    input: Option<&[u8]>,
    timeout: Duration,
) -> Result<ExecOutput, HypervisorError> {
    // libvirt counts an agent's time in whole seconds.
    let patience = timeout.clamp(Duration::from_secs(1), QUICK);
    started(hypervisor, name, command, input, patience)?.wait(hypervisor, timeout)
}

/// A program that was started in a guest.
#[derive(Debug)]
pub struct Running {
    guest: String,
    program: String,
    pid: i64,
    started: Instant,
    /// How long the agent may take to tell of it.
    patience: Duration,
}

/// Starts a program as [`exec`] does, and does not wait: for several guests at once. Who starts one calls
/// [`Running::wait`], since nothing else ends it.
///
/// # Errors
/// No program, too much input, or the agent refused.
pub fn start(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &[&str],
    input: Option<&[u8]>,
) -> Result<Running, HypervisorError> {
    started(hypervisor, name, command, input, QUICK)
}

fn started(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &[&str],
    input: Option<&[u8]>,
    patience: Duration,
) -> Result<Running, HypervisorError> {
    let invalid = |reason: String| HypervisorError::InvalidRequest {
        action: "run a command in".into(),
        name: name.into(),
        reason,
    };
    let Some((program, arguments)) = command.split_first() else {
        return Err(invalid("no program is named".into()));
    };
    let mut start = json!({"path": program, "arg": arguments, "capture-output": true});
    if let Some(input) = input {
        if input.len() > LONGEST_INPUT {
            return Err(invalid(format!(
                "its input is {} bytes long, and {LONGEST_INPUT} is the limit: write a file first",
                input.len()
            )));
        }
        start["input-data"] = Value::String(encode(input));
    }
    let started = hypervisor.now();
    let Started { pid } = ask(hypervisor, name, "guest-exec", start, patience)?;
    Ok(Running { guest: name.to_owned(), program: (*program).to_owned(), pid, started, patience })
}

impl Running {
    /// What it left, if it has ended. The agent tells that once, and then forgets the program.
    ///
    /// # Errors
    /// The agent does not answer, or does not know the program: the guest was booted anew, for one.
    pub fn ended(&self, hypervisor: &mut dyn Hypervisor) -> Result<Option<ExecOutput>, HypervisorError> {
        let status: Status =
            ask(hypervisor, &self.guest, "guest-exec-status", json!({"pid": self.pid}), self.patience)?;
        if status.exited { output(&self.guest, status).map(Some) } else { Ok(None) }
    }

    /// Its process id in the guest, for who has to end it.
    pub fn pid(&self) -> i64 {
        self.pid
    }

    /// Waits for the end, for `timeout` from the start on; a program that has not ended by then is sent SIGKILL.
    ///
    /// # Errors
    /// [`HypervisorError::GuestCommandTimedOut`], or the agent does not answer.
    pub fn wait(self, hypervisor: &mut dyn Hypervisor, timeout: Duration) -> Result<ExecOutput, HypervisorError> {
        let (name, pid) = (self.guest.as_str(), self.pid);
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(output) = self.ended(hypervisor)? {
                return Ok(output);
            }
            let elapsed = hypervisor.now().duration_since(self.started);
            let left = timeout.saturating_sub(elapsed);
            if left.is_zero() {
                return Err(HypervisorError::GuestCommandTimedOut {
                    name: name.into(),
                    command: self.program,
                    seconds: timeout.as_secs(),
                    pid,
                    killed: kill(hypervisor, name, pid),
                });
            }
            hypervisor.pause(pause.min(left));
            pause = (pause * 2).min(LAST_PAUSE.max(elapsed / PART_OF_ITS_TIME));
        }
    }
}

/// The guest's clock (CLOCK_REALTIME, ns since 1970).
///
/// # Errors
/// The agent does not answer, or with something else.
pub fn clock(hypervisor: &mut dyn Hypervisor, name: &str) -> Result<i64, HypervisorError> {
    ask(hypervisor, name, "guest-get-time", json!({}), QUICK)
}

/// A program left behind would disturb whatever is measured next. The agent has no command to end one, `kill` in the
/// guest does; its result is not waited for.
fn kill(hypervisor: &mut dyn Hypervisor, name: &str, pid: i64) -> bool {
    // Not a process of the guest's user: 0, 1 and negative numbers mean others to kill.
    if pid < 2 {
        return false;
    }
    let arguments = json!({"path": "kill", "arg": ["-KILL", pid.to_string()]});
    ask::<Started>(hypervisor, name, "guest-exec", arguments, QUICK).is_ok()
}

fn output(name: &str, status: Status) -> Result<ExecOutput, HypervisorError> {
    const COMMAND: &str = "guest-exec-status";
    let data = |text: Option<String>| text.map_or(Ok(Vec::new()), |text| decode(name, COMMAND, &text));
    Ok(ExecOutput {
        status: match (status.exitcode, status.signal) {
            (Some(code), _) => ExecStatus::Exited(code),
            (None, Some(signal)) => ExecStatus::Signal(signal),
            (None, None) => return Err(unexpected(name, COMMAND, "a program ended with neither exit code nor signal")),
        },
        stdout: data(status.out_data)?,
        stderr: data(status.err_data)?,
        truncated: status.out_truncated || status.err_truncated,
    })
}
