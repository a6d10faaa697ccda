//! The script in the shells of this machine, behind an agent that is made of this machine's files and programs.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

use nearmetal_host::files;
use nearmetal_hypervisor::Fake;
use serde_json::Value;

use super::*;

fn shells() -> impl Iterator<Item = &'static str> {
    ["/bin/sh", "/bin/dash", "/bin/bash", "/bin/busybox"].into_iter().filter(|path| Path::new(path).exists())
}

fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for three in bytes.chunks(3) {
        let at = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let known = digit <= three.len();
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            text.push(if known { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

/// An agent of this machine. It runs a program as qemu-ga does: with pipes that it reads until everybody has closed them.
fn machine(shell: &'static str, run: &str) -> Fake {
    let mut fake = Fake::new("").with_running_domain(&format!("<domain><name>{run}</name></domain>"));
    let (mut open, mut last) = (BTreeMap::new(), Value::Null);
    fake.on_agent(move |name, command| {
        let arguments = &command["arguments"];
        let refused = |message: String| HypervisorError::AgentCommandFailed {
            name: name.into(),
            command: command["execute"].to_string(),
            message,
        };
        Ok(match command["execute"].as_str().unwrap() {
            "guest-file-open" => {
                let path = Path::new(arguments["path"].as_str().unwrap());
                files::write(path, "").map_err(|error| refused(error.to_string()))?;
                let handle = i64::try_from(open.len()).unwrap() + 1;
                open.insert(handle, (files::open(path).unwrap(), 0_u64));
                json!(handle)
            }
            "guest-file-read" => {
                let (file, position) = open.get_mut(&arguments["handle"].as_i64().unwrap()).unwrap();
                let wanted = arguments["count"].as_u64().unwrap();
                let mut bytes = Vec::new();
                file.seek(SeekFrom::Start(*position)).unwrap();
                file.take(wanted).read_to_end(&mut bytes).unwrap();
                *position += bytes.len() as u64;
                json!({"count": bytes.len(), "buf-b64": encoded(&bytes), "eof": (bytes.len() as u64) < wanted})
            }
            "guest-exec" => {
                let mut words: Vec<&str> = vec![arguments["path"].as_str().unwrap()];
                words.extend(arguments["arg"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()));
                if words[0] == SHELL {
                    words[0] = shell;
                    if shell.ends_with("busybox") {
                        words.insert(1, "sh");
                    }
                }
                let ran = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
                let ran = ran.map_err(|error| refused(error.to_string()))?;
                let (out, err) = (encoded(&ran.stdout), encoded(&ran.stderr));
                last = json!({"exited": true, "exitcode": ran.status.code(), "out-data": out, "err-data": err});
                json!({"pid": 700})
            }
            "guest-exec-status" => last.clone(),
            _ => json!({}),
        })
    });
    fake
}

/// What a command leaves; the wait of the readers takes real time here, which the fake's clock does not.
fn ran(shell: &'static str, test: &str, command: &[&str]) -> Ended {
    let run = format!("test-{test}-{}-{}", shell.rsplit('/').next().unwrap(), std::process::id());
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let mut fake = machine(shell, &run);
    let job = start(&mut fake, &run, &command).unwrap().unwrap();
    // Meanwhile the readers, which are programs of this machine, store the rest.
    std::thread::sleep(Duration::from_millis(500));
    let ended = job.ended(&mut fake, &mut || None).unwrap().unwrap();
    for ending in ["out", "err", "done"] {
        files::remove(Path::new(&format!("/var/tmp/nearmetal-{run}.{ending}"))).unwrap();
    }
    for fifo in ["o", "e"] {
        assert!(!Path::new(&format!("/var/tmp/nearmetal-{run}.{fifo}")).exists(), "{shell}: {fifo} is left");
    }
    ended
}

fn output(ended: Ended) -> Output {
    match ended {
        Ended::Ran(output) => output,
        Ended::NotStarted(why) => panic!("{why:?}"),
    }
}

#[test]
fn a_shell_sends_output_of_any_length_into_files_and_passes_code_and_words() {
    for shell in shells() {
        let words = ["a b", "$HOME", "`x`", "*", "", "\n", "-n", "a'b\"c"];
        let inner = "head -c 5000000 /dev/zero; printf '[%s]' \"$@\"; echo err >&2; exit 7";
        let output = output(ran(shell, "a", &[&["sh", "-c", inner, "sh"], words.as_slice()].concat()));
        assert_eq!((output.status, &output.missing), (ExecStatus::Exited(7), &None), "{shell}");
        let printed: String = words.iter().map(|word| format!("[{word}]")).collect();
        assert_eq!(output.stdout.len(), 5_000_000 + printed.len());
        assert_eq!(&output.stdout[5_000_000..], printed.as_bytes(), "{shell}");
        assert_eq!(output.stderr, b"err\n");
    }
}

#[test]
fn a_stream_that_is_opened_anew_goes_on_behind_what_is_there() {
    for shell in shells() {
        let inner = "echo one; echo two >/dev/stdout; echo three; echo four >>/dev/stdout; echo five | tee /dev/stderr; \
                     echo e1 >&2; echo e2 >/dev/stderr; echo e3 >&2; wait";
        let output = output(ran(shell, "d", &["sh", "-c", inner]));
        assert_eq!(output.stdout, b"one\ntwo\nthree\nfour\nfive\n", "{shell}");
        assert_eq!(output.stderr, b"five\ne1\ne2\ne3\n", "{shell}");
        assert_eq!((output.status, output.missing), (ExecStatus::Exited(0), None), "{shell}");
    }
}

#[test]
fn output_beyond_the_limit_is_dropped_and_leaves_the_code() {
    for shell in shells() {
        let inner = "head -c 200000000 /dev/zero || exit 1; echo err >&2; exit 9";
        let output = output(ran(shell, "e", &["sh", "-c", inner]));
        assert_eq!((output.status, output.stdout.len()), (ExecStatus::Exited(9), MOST), "{shell}");
        assert_eq!(output.stderr, b"err\n");
        assert!(output.missing.unwrap().contains("stdout has more than 64 MiB"), "{shell}");
    }
}

#[test]
fn a_program_that_a_command_leaves_behind_does_not_hold_the_run() {
    for shell in shells() {
        let began = Instant::now();
        let output = output(ran(shell, "b", &["sh", "-c", "sleep 60 & echo $!; exit 3"]));
        assert!(began.elapsed() < Duration::from_secs(30), "{shell} waited for what was left behind");
        assert_eq!((output.status, output.missing), (ExecStatus::Exited(3), None));
        let left = String::from_utf8(output.stdout).unwrap();
        assert!(Command::new("kill").arg(left.trim()).status().unwrap().success());
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_told_apart_from_one_that_ended_with_126_or_127() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    files::write(&plain, "echo x\n").unwrap();
    let (plain, directory) = (plain.display().to_string(), directory.path().display().to_string());
    for shell in shells() {
        for (program, code, why) in [
            ("nearmetal-no-such-program", 127, "no such program in the guest"),
            ("/nearmetal/no-such-program", 127, "no such program in the guest"),
            (directory.as_str(), 126, "it is a directory in the guest"),
            (plain.as_str(), 126, "the guest may not execute it: give it the mode 755"),
        ] {
            let ended = ran(shell, "c", &[program, "x"]);
            let why = format!("`{program}`: {why}");
            assert_eq!(ended, Ended::NotStarted(NotStarted { why, code }), "{shell}");
        }
        // A word of the shell, which is no program.
        let Ended::NotStarted(NotStarted { why, code: 127 }) = ran(shell, "c", &["export"]) else { panic!("{shell}") };
        assert!(why.contains("not found"), "{shell}: {why}");
        for code in [126, 127] {
            let output = output(ran(shell, "c", &["sh", "-c", &format!("exit {code}")]));
            assert_eq!((output.status, output.stderr.as_slice()), (ExecStatus::Exited(code), &b""[..]));
        }
    }
}

#[test]
fn a_guest_that_says_something_else_first_has_not_started_the_command() {
    let run = format!("test-f-{}", std::process::id());
    let mut fake = machine("/bin/sh", &run);
    for said in ["", "/etc", "?", "x\n+\n"] {
        let job = start(&mut fake, &run, &["true".to_owned()]).unwrap().unwrap();
        let told = |stdout: &str| ExecOutput {
            status: ExecStatus::Exited(0),
            stdout: stdout.into(),
            stderr: Vec::new(),
            truncated: false,
        };
        let files_of = job.files.as_ref().unwrap();
        let ended = from_files(&mut fake, files_of, told(said), &mut || None);
        let why = "the guest's shell ended before it began".to_owned();
        assert_eq!(ended, Ended::NotStarted(NotStarted { why, code: 127 }), "{said}");
        // A guest that cannot make FIFOs has the agent keep the output.
        for (said, out) in [("-\nout\n", "out\n"), ("-", "")] {
            let ended = output(from_files(&mut fake, files_of, told(said), &mut || None));
            assert_eq!(ended.stdout, out.as_bytes());
        }
        for ending in ["out", "err", "done"] {
            files::remove(Path::new(&format!("/var/tmp/nearmetal-{run}.{ending}"))).unwrap();
        }
    }
}

#[test]
fn a_signal_while_output_is_read_leaves_the_code_and_says_what_is_missing() {
    let run = format!("test-g-{}", std::process::id());
    let mut fake = machine("/bin/sh", &run);
    let inner = "head -c 5000000 /dev/zero; exit 7".to_owned();
    let job = start(&mut fake, &run, &["sh".to_owned(), "-c".to_owned(), inner]).unwrap().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let mut asked = 0;
    let mut interrupted = || {
        asked += 1;
        (asked == 4).then_some(15)
    };
    let output = output(job.ended(&mut fake, &mut interrupted).unwrap().unwrap());
    assert_eq!(output.status, ExecStatus::Exited(7));
    assert!(!output.stdout.is_empty() && output.stdout.len() < 5_000_000, "{}", output.stdout.len());
    let missing = output.missing.unwrap();
    assert!(missing.contains("stdout after") && missing.contains("signal 15"), "{missing}");
    for ending in ["out", "err", "done"] {
        files::remove(Path::new(&format!("/var/tmp/nearmetal-{run}.{ending}"))).unwrap();
    }
}

#[test]
fn a_command_that_does_not_reach_the_agent_is_refused_with_its_length() {
    let long = |bytes: usize| fits(&["echo".to_owned(), "x".repeat(bytes)]);
    long(150 << 10).unwrap();
    let refused = long(160 << 10).unwrap_err();
    assert!(refused.is_wrong_use() && refused.to_string().contains("163840 is the limit"), "{refused}");
    // A quote takes two bytes.
    assert!(fits(&["echo".to_owned(), "\"".repeat(100 << 10)]).is_err());
}
