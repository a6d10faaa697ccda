//! A command of nearmetal on another machine, over ssh, or on this one: the same way for both.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nearmetal_change::{Reach, check_destination};
use nearmetal_host::Piped;
use rustix::process::{Pid, Signal, kill_process_group};

pub(crate) use super::converse::Patience;
use super::converse::{Heard, Pipes, converse};

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
    nearmetal_within(reach, arguments, input, None, said)
}

/// As [`nearmetal`]; with patience, not longer than that.
///
/// # Errors
/// As [`nearmetal`], and that it took too long.
pub(crate) fn nearmetal_within(
    reach: &Reach,
    arguments: &[String],
    input: &[u8],
    patience: Option<&Patience<'_>>,
    said: &mut dyn FnMut(&str),
) -> Result<Ended, String> {
    let mut words = words(reach, "nearmetal", arguments)?;
    if let (Some(patience), Reach::Ssh { .. }) = (patience, reach) {
        unattended(&mut words, patience.limit);
    }
    let (program, rest) = words.split_first().ok_or("no program named")?;
    let shown = program.to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command.args(rest);
    if patience.is_some() {
        // Its own, so that what ssh has started (a jump host's ssh, say) ends with it.
        command.process_group(0);
        // Whatever program asks for a password in the end: nobody would see the question.
        command.envs([("SSH_ASKPASS_REQUIRE", "force"), ("SSH_ASKPASS", "/bin/false")]);
    }
    let started = Piped::start(&mut command);
    let Piped { mut child, stdin, stdout, stderr } =
        started.map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let pipes = Pipes { stdin: Some(stdin), stdout: Some(stdout), stderr: Some(stderr) };
    let mut last = String::new();
    let heard = converse(&mut child, pipes, input, patience, &mut |line| {
        line.clone_into(&mut last);
        said(line);
    });
    let Heard { output, gave_up } = heard.map_err(|error| format!("lost `{shown}`: {error}"))?;
    if let Some(patience) = patience.filter(|_| gave_up) {
        // Not reaped yet: its number is nobody else's.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        let why = if last.is_empty() { String::new() } else { format!(": {last}") };
        return Err(format!("no answer within {} s{why}", patience.limit.as_secs_f64()));
    }
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

/// Tells ssh that nobody sits before it, and how long it may take to connect. What the user's own options say counts more:
/// ssh takes the first value that it reads.
fn unattended(words: &mut Vec<OsString>, limit: Duration) {
    let is_ssh = words.first().and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == "ssh");
    // `-T -- HOST COMMAND` are the last four.
    if let Some(at) = words.len().checked_sub(4).filter(|_| is_ssh) {
        let seconds = limit.as_secs().max(1);
        // The last ends one that outlives us while its host is silent.
        let options = [
            "-oBatchMode=yes".to_owned(),
            format!("-oConnectTimeout={seconds}"),
            format!("-oServerAliveInterval={seconds}"),
        ];
        words.splice(at..at, options.map(OsString::from));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

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

    fn asked(script: &str, limit: Duration, stop: bool) -> (Result<Ended, String>, Duration) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("stand-in");
        nearmetal_host::files::write(&path, script).unwrap();
        let reach = ssh("web7", Some(&format!("sh {}", path.display())));
        let stop = AtomicBool::new(stop);
        let patience = Patience { limit, stop: &stop, most: 1000 };
        let began = Instant::now();
        let ended = nearmetal_within(&reach, &["x".to_owned()], b"", Some(&patience), &mut |_| ());
        (ended, began.elapsed())
    }

    #[test]
    fn nobody_is_waited_for_longer_than_one_has_patience() {
        let long = Duration::from_secs(60);
        assert_eq!(asked("echo $3", long, false).0, Ok(Ended { code: 0, stdout: "web7\n".to_owned() }));
        // The grandchild holds both pipes open.
        let hangs = "echo connecting >&2\nsleep 600 &\nsleep 600";
        let (ended, took) = asked(hangs, Duration::from_millis(300), false);
        assert_eq!(ended, Err("no answer within 0.3 s: connecting".to_owned()));
        assert!(took < long, "{took:?}");
        let (ended, took) = asked(hangs, Duration::from_secs(600), true);
        assert!(ended.is_err() && took < long, "{ended:?} {took:?}");
        // As ssh's shared connection: it left the group, holds both pipes, and outlives its starter.
        let left = "setsid sleep 40 &\necho there";
        let (ended, took) = asked(left, Duration::from_secs(600), false);
        assert_eq!(ended, Ok(Ended { code: 0, stdout: "there\n".to_owned() }));
        assert!(took < Duration::from_secs(30), "{took:?}");
        let (ended, took) = asked("setsid sleep 40 &\nsleep 600", Duration::from_millis(300), false);
        assert!(ended.is_err() && took < Duration::from_secs(30), "{ended:?} {took:?}");
    }

    #[test]
    fn one_who_prints_without_end_is_not_listened_to() {
        let (ended, took) = asked("while echo yes; do :; done", Duration::from_secs(60), false);
        // Its pipe is closed: it ends by that, or is ended.
        assert!(ended.is_err() || ended.is_ok_and(|ended| ended.stdout.len() == 1000), "an answer without an end");
        assert!(took < Duration::from_secs(50), "{took:?}");
    }

    #[test]
    fn ssh_alone_is_told_that_nobody_sits_before_it() {
        let told = |command: Option<&str>| {
            let mut all = words(&ssh("web7", command), "nearmetal", &[]).unwrap();
            unattended(&mut all, Duration::from_secs(10));
            all.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(told(None), "ssh -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=10 -T -- web7 nearmetal");
        let own = told(Some("/usr/bin/ssh -oConnectTimeout=3"));
        assert_eq!(
            own,
            "/usr/bin/ssh -oConnectTimeout=3 -oBatchMode=yes -oConnectTimeout=10 -oServerAliveInterval=10 -T -- web7 nearmetal"
        );
        assert_eq!(told(Some("sh my-ssh")), "sh my-ssh -T -- web7 nearmetal");
    }
}
