//! A command of nearmetal on another machine, over ssh, or on this one: the same way for both.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::thread;

use nearmetal_change::{Reach, check_destination};
use nearmetal_host::Piped;

/// More output than this is none of ours.
const LONGEST_OUTPUT: u64 = 256 << 20;
/// Exit code of ssh itself.
const SSH_FAILED: i32 = 255;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Exit code of nearmetal there.
    pub(crate) code: i32,
    /// Its data.
    pub(crate) stdout: String,
}

/// The words that run a program at a place: the program itself here, ssh in front of it elsewhere.
///
/// # Errors
/// The host cannot be reached so; in words.
pub(crate) fn words(reach: &Reach, program: &str, arguments: &[String]) -> Result<Vec<OsString>, String> {
    match reach {
        Reach::Local => {
            let here =
                std::env::current_exe().map_err(|error| format!("cannot find the path of this program ({error})"))?;
            let program = here.with_file_name(program).into_os_string();
            Ok(std::iter::once(program).chain(arguments.iter().map(OsString::from)).collect())
        }
        Reach::Ssh { destination, command } => {
            check_destination(destination)?;
            let ssh: Vec<&str> = command.as_deref().unwrap_or("ssh").split_whitespace().collect();
            if ssh.is_empty() {
                return Err("the ssh command is empty: write a program and its options".to_owned());
            }
            // The login shell there may be any: plain words need no quotes in all of them.
            let plain = |word: &String| {
                !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=+:,".contains(c))
            };
            if let Some(word) = arguments.iter().find(|word| !plain(word)) {
                return Err(format!("cannot pass `{word}` to another machine's shell"));
            }
            let there =
                std::iter::once(program.to_owned()).chain(arguments.iter().cloned()).collect::<Vec<_>>().join(" ");
            let options = ["-T", "--", destination.as_str()].into_iter();
            Ok(ssh.into_iter().chain(options).map(OsString::from).chain([there.into()]).collect())
        }
        Reach::Nowhere { known_by } => Err(format!(
            "cannot run anything there, since only {known_by} describes it: give the host an `ssh` key in the fleet \
             file, or apply its part of the plan on the machine itself"
        )),
    }
}

/// Runs `nearmetal ARGUMENTS` there with this input; every line of its prose is handed on as it comes.
///
/// # Errors
/// It could not be started, ssh failed, or it was killed; in words.
pub(crate) fn nearmetal(
    reach: &Reach,
    arguments: &[String],
    input: &[u8],
    said: &mut dyn FnMut(&str),
) -> Result<Ended, String> {
    let words = words(reach, "nearmetal", arguments)?;
    let (program, rest) = words.split_first().ok_or("no program named")?;
    let shown = program.to_string_lossy().into_owned();
    let started = Piped::start(Command::new(program).args(rest));
    let Piped { mut child, mut stdin, stdout, stderr } =
        started.map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let mut output = Vec::new();
    let mut last = String::new();
    thread::scope(|scope| {
        // One that does not read its input, because it refused, closes it: that is no failure of ours.
        scope.spawn(move || stdin.write_all(input));
        let reader = scope.spawn(move || {
            let mut bytes = Vec::new();
            stdout.take(LONGEST_OUTPUT).read_to_end(&mut bytes).map(|_| bytes)
        });
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            last = String::from_utf8_lossy(&line).trim_end().to_owned();
            said(&last);
        }
        if let Ok(Ok(bytes)) = reader.join() {
            output = bytes;
        }
    });
    let status = child.wait().map_err(|error| format!("lost `{shown}`: {error}"))?;
    match status.code() {
        Some(SSH_FAILED) if *reach != Reach::Local => Err(format!("`{shown}` failed: {last}")),
        Some(127) if *reach != Reach::Local => {
            Err(format!("nearmetal is not installed there, or not on the PATH of the shell that ssh starts: {last}"))
        }
        Some(code) => Ok(Ended { code, stdout: String::from_utf8_lossy(&output).into_owned() }),
        None => Err(format!("`{shown}` ended with {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(destination: &str, command: Option<&str>) -> Reach {
        Reach::Ssh { destination: destination.to_owned(), command: command.map(str::to_owned) }
    }

    #[test]
    fn the_program_runs_behind_ssh() {
        let arguments = ["apply", "-", "--yes"].map(str::to_owned);
        let all = words(&ssh("root@web7", Some("ssh -p 2200 -i key")), "nearmetal", &arguments).unwrap();
        assert_eq!(all.join(" ".as_ref()), "ssh -p 2200 -i key -T -- root@web7 nearmetal apply - --yes");
        assert_eq!(words(&ssh("web7", None), "nearmetal", &[]).unwrap().join(" ".as_ref()), "ssh -T -- web7 nearmetal");
    }

    #[test]
    fn what_a_shell_there_would_read_is_refused() {
        for hostile in ["a;b", "$(x)", "a b", "`x`", "", "a'b", "a>b", "~"] {
            assert!(words(&ssh("web7", None), "nearmetal", &[hostile.to_owned()]).is_err(), "{hostile}");
        }
        assert!(words(&ssh("-oProxyCommand=x", None), "nearmetal", &[]).is_err());
        assert!(words(&ssh("web7", Some(" ")), "nearmetal", &[]).is_err());
        let nowhere = Reach::Nowhere { known_by: "a capture".to_owned() };
        assert!(words(&nowhere, "nearmetal", &[]).unwrap_err().contains("give the host an `ssh` key"));
    }
}
