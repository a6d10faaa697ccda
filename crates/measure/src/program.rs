//! The gate to other programs: no shell, output kept, failure in the program's own words. In tests a script plays all of
//! them, and no test runs fio, sfdisk or ip.

#[cfg(not(test))]
use std::io::Write;
#[cfg(not(test))]
use std::os::unix::process::CommandExt;
#[cfg(not(test))]
use std::process::{Child, Stdio};
use std::process::{Command, Output};
use std::time::Duration;
#[cfg(not(test))]
use std::time::Instant;

use nearmetal_load::LoadError;

use crate::error::MeasureError;

#[cfg(test)]
pub(crate) use scripted::{Started, end_of};

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn judge(what: String, output: Output) -> Result<String, MeasureError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let why = match words.trim() {
        "" => output.status.to_string(),
        words => words.chars().take(400).collect(),
    };
    Err(LoadError::WorkloadFailed { what, why }.into())
}

/// How long a program that was told to end may take for it.
#[cfg(not(test))]
const TO_END: Duration = Duration::from_secs(5);

/// A program that was started; who starts one waits for it.
#[cfg(not(test))]
pub(crate) struct Started {
    child: Child,
    started: Instant,
}

#[cfg(not(test))]
impl Started {
    fn new(command: &mut Command) -> std::io::Result<Self> {
        // Ctrl-C is for nearmetal, which lets a sample come to its end and needs programs to give back what was borrowed.
        command.process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { child, started: Instant::now() })
    }

    /// Waits for its end, for `limit` from its start on. One that has hung is told to end, and then ended.
    pub(crate) fn wait(self, limit: Duration) -> std::io::Result<Output> {
        use rustix::process::{Pid, Signal, kill_process};
        let (child, left) = (self.child, limit.saturating_sub(self.started.elapsed()));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (done, is_done) = std::sync::mpsc::channel();
        // A thread of its own, so that nobody looks at the program while it is measured.
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let mut wait = left;
        // fio takes its jobs along when it is asked to end, and leaves them behind when it is killed.
        for signal in [Signal::TERM, Signal::KILL] {
            match is_done.recv_timeout(wait) {
                Ok(output) if wait == left => return output,
                Ok(_) => break,
                Err(_) => {
                    // It may have ended between the two.
                    let _ = pid.map(|pid| kill_process(pid, signal));
                }
            }
            wait = TO_END;
        }
        Err(hung(limit))
    }
}

fn hung(limit: Duration) -> std::io::Error {
    let why = format!("it had not ended after {} s", limit.as_secs());
    std::io::Error::new(std::io::ErrorKind::TimedOut, why)
}

/// Runs a program to its end, with `input` on its stdin.
#[cfg(not(test))]
fn end_of(command: &mut Command, input: Option<&str>) -> std::io::Result<Output> {
    // As in `Started::new`.
    command.process_group(0);
    let Some(input) = input else { return command.stdin(Stdio::null()).output() };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading says why on stderr; a broken pipe adds nothing.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

/// Starts a program; who starts one waits for it.
pub(crate) fn spawn(command: &mut Command) -> Result<Started, MeasureError> {
    Started::new(command).map_err(|source| MeasureError::Program { program: name(command), source })
}

/// The stdout of a program that has ended, if it ended well and in time; `what` is what an error calls it.
pub(crate) fn judged(what: String, output: std::io::Result<Output>) -> Result<String, MeasureError> {
    match output {
        Ok(output) => judge(what, output),
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            Err(LoadError::WorkloadFailed { what, why: error.to_string() }.into())
        }
        Err(source) => Err(MeasureError::Program { program: what, source }),
    }
}

/// Runs a program to its end and gives what it left, however it ended.
pub(crate) fn output(command: &mut Command) -> Result<Output, MeasureError> {
    end_of(command, None).map_err(|source| MeasureError::Program { program: name(command), source })
}

/// Runs a program to its end and gives its stdout.
pub(crate) fn run(command: &mut Command) -> Result<String, MeasureError> {
    judge(name(command), output(command)?)
}

/// The same, with text on its stdin.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<String, MeasureError> {
    judged(name(command), end_of(command, Some(input)))
}

/// Waits until udev has made the names of what was just created. Dozens of partitions take it a while on a busy machine.
pub(crate) fn settle_names() -> Result<(), MeasureError> {
    run(Command::new("udevadm").args(["settle", "--timeout=60"])).map(drop)
}

#[cfg(test)]
pub(crate) mod scripted {
    //! Programs of the host, played by a script.

    use std::cell::RefCell;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus, Output};
    use std::time::Duration;

    type Script = Box<dyn FnMut(&[String], &str) -> Result<String, String>>;

    thread_local! {
        static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
    }

    /// Lets `script` answer every program this thread runs from now on, by its words and its stdin: what it prints, or why
    /// it fails.
    pub(crate) fn play(script: impl FnMut(&[String], &str) -> Result<String, String> + 'static) {
        SCRIPT.with(|slot| *slot.borrow_mut() = Some(Box::new(script)));
    }

    /// What a script says of a program that never ends.
    pub(crate) const HANGS: &str = "it hangs";

    /// A program that was started: it has ended already, or never will.
    pub(crate) struct Started(Output);

    impl Started {
        pub(super) fn new(command: &mut Command) -> std::io::Result<Self> {
            end_of(command, None).map(Self)
        }

        /// What it left.
        pub(crate) fn wait(self, limit: Duration) -> std::io::Result<Output> {
            if self.0.stderr == HANGS.as_bytes() { Err(super::hung(limit)) } else { Ok(self.0) }
        }
    }

    pub(crate) fn end_of(command: &mut Command, input: Option<&str>) -> std::io::Result<Output> {
        let mut words = vec![command.get_program().to_string_lossy().into_owned()];
        words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
        let input = input.unwrap_or_default();
        let answer = SCRIPT.with(|slot| slot.borrow_mut().as_mut().map(|script| script(&words, input)));
        let answer = answer.unwrap_or_else(|| panic!("a test runs `{}` on this machine", words.join(" ")));
        let (status, stdout, stderr) = match answer {
            Ok(text) => (0, text, String::new()),
            // wait(2): the exit code is in the second byte.
            Err(why) => (1 << 8, String::new(), why),
        };
        let (stdout, stderr) = (stdout.into_bytes(), stderr.into_bytes());
        Ok(Output { status: ExitStatus::from_raw(status), stdout, stderr })
    }
}
