//! The command and its output, which goes into files of the guest.
//!
//! The agent could keep the output itself, and has two limits then: libvirt passes on 4 MiB of an answer and the agent forgets
//! what it has sent, exit code and all; and the command has not ended for it before everybody has closed its output, a program
//! that it left behind as well. So a shell of the guest sends the output into files, then becomes the command (`exec`), and the
//! files are read piece by piece. The words of the command pass through it as they are. In a guest without a shell, or
//! without a place for files, the agent keeps the output.

use nearmetal_hypervisor::agent::{self, ExecOutput, ExecStatus, Running};
use nearmetal_hypervisor::{Hypervisor, HypervisorError};

/// The shell that POSIX systems have.
const SHELL: &str = "/bin/sh";
/// Where there may be room, the guest's disk first: what lies in memory is missing to the command.
const PLACES: [&str; 3] = ["/var/tmp", "/tmp", "/run"];
/// `$0`: what the files are called. Its first line is for us: where they are, or that there is no place for them and the agent
/// keeps the output ([`NOWHERE`]), or that there is no such program ([`NO_PROGRAM`]).
const SCRIPT: &str = "\
command -v \"$1\" >/dev/null 2>&1 || { echo '?'; echo \"\\`$1\\`: no such program in the guest\" >&2; exit 127; }
for place in /var/tmp /tmp /run; do
    if { true >\"$place/$0.out\"; } 2>/dev/null; then
        echo \"$place\"
        exec \"$@\" >\"$place/$0.out\" 2>\"$place/$0.err\"
    fi
done
echo -
exec \"$@\"";
const NOWHERE: &str = "-";
const NO_PROGRAM: &str = "?";
/// Of each stream at most: it is held in memory, and the agent sends some MB a second.
const MOST: usize = 64 << 20;

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
    /// It was never started, for this reason.
    NotStarted(String),
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Job {
    running: Running,
    /// What its files are called; `None` if the agent keeps its output.
    files: Option<String>,
}

/// Starts a command in a guest. `Err` of the second kind: it cannot be started, in the agent's words.
///
/// # Errors
/// The agent does not answer.
pub(crate) fn start(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &[String],
) -> Result<Result<Job, String>, HypervisorError> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let base = format!("nearmetal-{name}");
    // `exec` and `command` would take it for an option.
    if command.first().is_some_and(|program| !program.starts_with('-')) {
        let inside = [&[SHELL, "-c", SCRIPT, base.as_str()], command.as_slice()].concat();
        match agent::start(hypervisor, name, &inside, None) {
            Ok(running) => return Ok(Ok(Job { running, files: Some(base) })),
            // There is no shell, or nothing may be run: the next attempt tells.
            Err(HypervisorError::AgentCommandFailed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    match agent::start(hypervisor, name, &command, None) {
        Ok(running) => Ok(Ok(Job { running, files: None })),
        // The agent's own words say whether it is missing or may not be run.
        Err(HypervisorError::AgentCommandFailed { message, .. }) => Ok(Err(message)),
        Err(error) => Err(error),
    }
}

impl Job {
    /// What it left, if it has ended.
    ///
    /// # Errors
    /// The agent does not answer, or does not know it any more.
    pub(crate) fn ended(&self, hypervisor: &mut dyn Hypervisor, name: &str) -> Result<Option<Ended>, HypervisorError> {
        let Some(told) = self.running.ended(hypervisor)? else { return Ok(None) };
        Ok(Some(match &self.files {
            None => Ended::Ran(kept(told)),
            Some(base) => from_files(hypervisor, name, base, told),
        }))
    }
}

/// Of a command whose output the agent has kept.
fn kept(told: ExecOutput) -> Output {
    let ExecOutput { status, stdout, stderr, truncated } = told;
    let missing = truncated.then(|| "the guest's agent cut the output: have the command write less".to_owned());
    Output { status, stdout, stderr, missing }
}

/// Reads what a command has written. Its code is known already, and stays so whatever comes of this.
fn from_files(hypervisor: &mut dyn Hypervisor, name: &str, base: &str, mut told: ExecOutput) -> Ended {
    let end = told.stdout.iter().position(|byte| *byte == b'\n').unwrap_or(told.stdout.len());
    let first = String::from_utf8_lossy(&told.stdout[..end]).into_owned();
    if first == NOWHERE {
        told.stdout.drain(..=end.min(told.stdout.len().saturating_sub(1)));
        return Ended::Ran(kept(told));
    }
    // The guest's word leads to one of three places, or nowhere.
    let Some(place) = PLACES.into_iter().find(|known| *known == first) else {
        let said = String::from_utf8_lossy(&told.stderr);
        let said: String = said.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect();
        let unheard = first != NO_PROGRAM || said.is_empty();
        return Ended::NotStarted(if unheard { "the guest's shell ended before it began".to_owned() } else { said });
    };
    let mut missing = Vec::new();
    let mut read = |stream: &str, ending: &str| {
        let path = format!("{place}/{base}.{ending}");
        match agent::read_file_up_to(hypervisor, name, &path, MOST) {
            Ok((bytes, true)) => bytes,
            Ok((bytes, false)) => {
                missing.push(format!("{stream} has more than {} MiB, and only these are passed on", MOST >> 20));
                bytes
            }
            Err(error) => {
                missing.push(format!("{stream} cannot be read: {error}"));
                Vec::new()
            }
        }
    };
    let (stdout, stderr) = (read("stdout", "out"), read("stderr", "err"));
    let missing = (!missing.is_empty()).then(|| format!("output of the command is missing: {}", missing.join("; ")));
    Ended::Ran(Output { status: told.status, stdout, stderr, missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::files;
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    /// As the agent runs it: with pipes that it reads until everybody has closed them.
    fn run(shell: &Path, base: &str, command: &[&str]) -> (ExecOutput, PathBuf) {
        let mut child = Command::new(shell);
        if shell.ends_with("busybox") {
            child.arg("sh");
        }
        let child = child.args(["-c", SCRIPT, base]).args(command).stdin(Stdio::null());
        let output = child.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let place = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
        let status = ExecStatus::Exited(output.status.code().unwrap().into());
        let told = ExecOutput { status, stdout: output.stdout, stderr: output.stderr, truncated: false };
        (told, Path::new(&place).join(base))
    }

    /// What it has written, which is removed.
    fn taken(base: &Path, ending: &str) -> Vec<u8> {
        let path = PathBuf::from(format!("{}.{ending}", base.display()));
        let bytes = files::read(&path).unwrap();
        files::remove(&path).unwrap();
        bytes
    }

    fn shells() -> impl Iterator<Item = &'static Path> {
        ["/bin/sh", "/bin/dash", "/bin/bash", "/bin/busybox"].map(Path::new).into_iter().filter(|path| path.exists())
    }

    #[test]
    fn a_shell_sends_output_of_any_length_into_files_and_passes_code_and_words() {
        for (number, shell) in shells().enumerate() {
            let base = format!("nearmetal-test-a{number}-{}", std::process::id());
            let words = ["a b", "$HOME", "`x`", "*", "", "\n", "-n", "a'b\"c"];
            let inner = "head -c 5000000 /dev/zero; printf '[%s]' \"$@\"; echo err >&2; exit 7";
            let (told, base) = run(shell, &base, &[&["sh", "-c", inner, "sh"], words.as_slice()].concat());
            assert_eq!((told.status, told.stderr.as_slice()), (ExecStatus::Exited(7), &b""[..]), "{shell:?}");
            let out = taken(&base, "out");
            let printed: String = words.iter().map(|word| format!("[{word}]")).collect();
            assert_eq!(out.len(), 5_000_000 + printed.len());
            assert_eq!(&out[5_000_000..], printed.as_bytes(), "{shell:?}");
            assert_eq!(taken(&base, "err"), b"err\n");
        }
    }

    #[test]
    fn a_program_that_a_command_leaves_behind_does_not_hold_the_run() {
        for (number, shell) in shells().enumerate() {
            let base = format!("nearmetal-test-b{number}-{}", std::process::id());
            let began = Instant::now();
            let (told, base) = run(shell, &base, &["sh", "-c", "sleep 60 & echo $!; exit 3"]);
            assert!(began.elapsed() < Duration::from_secs(30), "{shell:?} waited for what was left behind");
            assert_eq!(told.status, ExecStatus::Exited(3));
            let left = String::from_utf8(taken(&base, "out")).unwrap();
            let _ = taken(&base, "err");
            assert!(Command::new("kill").arg(left.trim()).status().unwrap().success());
        }
    }

    #[test]
    fn a_program_that_is_missing_is_told_apart_from_a_command_that_ended_with_127() {
        for (number, shell) in shells().enumerate() {
            let base = format!("nearmetal-test-c{number}-{}", std::process::id());
            let (told, _) = run(shell, &base, &["nearmetal-no-such-program", "x"]);
            let mut nobody = nearmetal_hypervisor::Fake::new("");
            let Ended::NotStarted(why) = from_files(&mut nobody, "run-a", &base, told) else { panic!("{shell:?}") };
            assert_eq!(why, "`nearmetal-no-such-program`: no such program in the guest");
            let (told, base) = run(shell, &base, &["sh", "-c", "exit 127"]);
            assert_eq!((told.status, told.stderr.as_slice()), (ExecStatus::Exited(127), &b""[..]));
            let _ = (taken(&base, "out"), taken(&base, "err"));
        }
    }

    #[test]
    fn in_a_guest_without_a_place_for_files_the_agent_keeps_the_output() {
        let mut nobody = nearmetal_hypervisor::Fake::new("");
        for shell in shells() {
            // No directory of this name is anywhere.
            let base = "nearmetal-no-such-directory/x";
            let (told, _) = run(shell, base, &["sh", "-c", "echo out; echo err >&2; exit 5"]);
            let (stdout, stderr) = (b"out\n".to_vec(), b"err\n".to_vec());
            let output = Output { status: ExecStatus::Exited(5), stdout, stderr, missing: None };
            assert_eq!(from_files(&mut nobody, "run-a", base, told), Ended::Ran(output), "{shell:?}");
        }
        let told =
            ExecOutput { status: ExecStatus::Exited(0), stdout: b"-".to_vec(), stderr: Vec::new(), truncated: false };
        assert!(matches!(from_files(&mut nobody, "run-a", "x", told), Ended::Ran(output) if output.stdout.is_empty()));
    }

    #[test]
    fn a_guest_that_names_another_place_is_not_followed() {
        let mut nobody = nearmetal_hypervisor::Fake::new("");
        for place in ["/etc", "/var/tmp/../../etc", "", "?", "/var/tmp/\n", "x\n/var/tmp\n"] {
            let status = ExecStatus::Exited(0);
            let told = ExecOutput { status, stdout: place.into(), stderr: Vec::new(), truncated: false };
            let ended = from_files(&mut nobody, "run-a", "x", told);
            assert_eq!(ended, Ended::NotStarted("the guest's shell ended before it began".to_owned()), "{place}");
        }
        assert!(nobody.calls().is_empty());
    }
}
