//! Running other programs: no shell, output kept, failure in the program's own words.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

use crate::error::MeasureError;

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
    Err(MeasureError::WorkloadFailed { what, why })
}

/// Starts a program; who starts one waits for it.
pub(crate) fn spawn(command: &mut Command) -> Result<Child, MeasureError> {
    #[cfg(test)]
    let command = &mut scripted::instead_of(command);
    command.spawn().map_err(|source| MeasureError::Program { program: name(command), source })
}

/// The stdout of a program that has ended, if it ended well; `what` is what an error calls it.
pub(crate) fn judged(what: String, output: std::io::Result<Output>) -> Result<String, MeasureError> {
    match output {
        Ok(output) => judge(what, output),
        Err(source) => Err(MeasureError::Program { program: what, source }),
    }
}

/// Runs a program to its end and gives its stdout.
pub(crate) fn run(command: &mut Command) -> Result<String, MeasureError> {
    #[cfg(test)]
    let command = &mut scripted::instead_of(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| MeasureError::Program { program: name(command), source })?;
    judge(name(command), output)
}

/// The same, with text on its stdin.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<String, MeasureError> {
    #[cfg(test)]
    let command = &mut scripted::instead_of(command);
    let program = name(command);
    let wrap = |source| MeasureError::Program { program, source };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(source) => return Err(wrap(source)),
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends without reading says why on stderr; a broken pipe adds nothing.
        let _ = stdin.write_all(input.as_bytes());
    }
    match child.wait_with_output() {
        Ok(output) => judge(name(command), output),
        Err(source) => Err(wrap(source)),
    }
}

/// Waits until udev has made the names of what was just created. Dozens of partitions take it a while on a busy machine.
pub(crate) fn settle_names() -> Result<(), MeasureError> {
    run(Command::new("udevadm").args(["settle", "--timeout=60"])).map(drop)
}

#[cfg(test)]
pub(crate) mod scripted {
    //! Programs of the host, played by a script in tests: no test runs fio, sfdisk or ip.

    use std::cell::RefCell;
    use std::process::{Command, Stdio};

    type Script = Box<dyn FnMut(&[String]) -> Result<String, String>>;

    thread_local! {
        static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
    }

    /// Lets `script` answer every program this thread runs from now on: what it prints, or why it fails.
    pub(crate) fn play(script: impl FnMut(&[String]) -> Result<String, String> + 'static) {
        SCRIPT.with(|slot| *slot.borrow_mut() = Some(Box::new(script)));
    }

    pub(super) fn instead_of(command: &Command) -> Command {
        let mut words = vec![command.get_program().to_string_lossy().into_owned()];
        words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
        let answer = SCRIPT.with(|slot| slot.borrow_mut().as_mut().map(|script| script(&words)));
        let answer = answer.unwrap_or_else(|| panic!("a test runs `{}` on this machine", words.join(" ")));
        let mut played = Command::new("sh");
        let (text, stream, code) = match &answer {
            Ok(text) => (text, "", 0),
            Err(why) => (why, " >&2", 1),
        };
        played.args(["-c", &format!("printf %s \"$1\"{stream}; exit {code}"), "sh", text]);
        played.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        played
    }
}
