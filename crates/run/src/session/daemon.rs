//! libvirt's daemon as a child of the run.
//!
//! It is told to end a few seconds after nobody is connected any more (`--timeout`); a guest that runs keeps it. The run holds a
//! connection of its own from the start, so that the time does not begin before the helper is there. `PR_SET_PDEATHSIG` would end
//! the daemon at once, and leave QEMU: the daemon must live until it has ended the guest that was tied to the helper.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_host::files;
use rustix::process::{Pid, Signal, kill_process};

use crate::RunError;

/// Programs, the better first, and what each calls its socket. `virtqemud` has QEMU's driver alone; Debian has only the one with
/// all drivers.
const PROGRAMS: [(&str, &str); 2] = [("virtqemud", "virtqemud-sock"), ("libvirtd", "libvirt-sock")];
/// Where daemons are, beside the user's own PATH.
const DAEMONS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];
/// Seconds without a connection and without a guest after which it ends.
const TIMEOUT: &str = "5";
/// How long it may take to listen; in an emulated machine under load, seconds.
const COMING_UP: Duration = Duration::from_secs(120);
/// How long it may take to end before it is killed: its guest is gone, and its directory goes with it. One that a signal to all
/// processes of a job has reached as well was seen to take longer.
const ENDING: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(10);
/// Characters of its log in a message.
const SHOWN: usize = 600;
/// The variable that says where sockets are (XDG base directory specification).
pub(super) const RUNTIME: &str = "XDG_RUNTIME_DIR";
/// Variables of the user's that it gets.
const PASSED: [&str; 5] = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR"];

/// Where a session's sockets are.
pub(super) fn runtime(directory: &Path) -> PathBuf {
    directory.join("run")
}

/// libvirt's daemon for a user, of what is installed: first by this PATH, then where daemons are.
pub fn find_program(path: &OsStr) -> Option<PathBuf> {
    let places: Vec<PathBuf> = std::env::split_paths(path).chain(DAEMONS.map(PathBuf::from)).collect();
    let all = PROGRAMS.iter().flat_map(|(name, _)| places.iter().map(move |place| place.join(name)));
    // A relative place would depend on where somebody stands.
    all.filter(|program| program.is_absolute()).find(|program| program.is_file())
}

/// A daemon that runs.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
    /// The run's own connection: nothing is asked by it.
    _connection: UnixStream,
}

impl Daemon {
    /// Starts it, and waits until it listens, unless the run is told to end by a signal with this number meanwhile.
    pub(super) fn start(
        directory: &Path,
        program: &Path,
        interrupted: &mut dyn FnMut() -> Option<i32>,
    ) -> Result<Self, RunError> {
        let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let socket = PROGRAMS.iter().find(|(known, _)| *known == name).map_or(PROGRAMS[1].1, |(_, socket)| socket);
        let socket = runtime(directory).join("libvirt").join(socket);
        let log = directory.join("daemon.log");
        let output: File = files::append(&log)?;
        let failed = |why: String| RunError::Session(format!("`{}`: {why}", program.display()));
        let mut command = Command::new(program);
        command
            .args(["--timeout", TIMEOUT])
            .env_clear()
            .envs(PASSED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))))
            // Its messages are data here: always in English.
            .env("LC_ALL", "C")
            .env(RUNTIME, runtime(directory))
            .env("XDG_CONFIG_HOME", directory)
            .envs(["CACHE", "DATA", "STATE"].map(|kind| (format!("XDG_{kind}_HOME"), directory.join("cache"))))
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(|error| failed(error.to_string()))?)
            .stderr(output)
            // Ctrl-C is for the run to handle, which needs its guest until then.
            .process_group(0);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let began = Instant::now();
        loop {
            if let Ok(connection) = UnixStream::connect(&socket) {
                return Ok(Self { child, socket, _connection: connection });
            }
            if let Some(signal) = interrupted() {
                end(&mut child);
                return Err(RunError::Interrupted(signal));
            }
            let why = match child.try_wait() {
                Ok(Some(status)) => format!("it ended with {status}"),
                Ok(None) if began.elapsed() < COMING_UP => {
                    sleep(STEP);
                    continue;
                }
                Ok(None) => format!("it does not listen on its socket within {} s", COMING_UP.as_secs()),
                Err(error) => error.to_string(),
            };
            end(&mut child);
            return Err(failed(format!("{why}; it said: {}", last_words(&log))));
        }
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(super) fn end(&mut self) {
        end(&mut self.child);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends it, by force if it does not obey.
fn end(child: &mut Child) {
    // It is not waited for yet, so that the number is its own still.
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
    }
    let began = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if began.elapsed() >= ENDING {
            let _ = child.kill();
            let _ = child.wait();
        }
        sleep(STEP);
    }
}

fn last_words(log: &Path) -> String {
    let text = files::read_to_string_up_to(log, 1 << 20).unwrap_or_default();
    let text: String = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let skipped = text.chars().count().saturating_sub(SHOWN);
    if text.is_empty() { "nothing".to_owned() } else { text.chars().skip(skipped).collect() }
}
