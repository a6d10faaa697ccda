use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;
use crate::Fake;

const SECOND: Duration = Duration::from_secs(1);

/// A guest that answers what the test lists, in order; what it was asked is kept.
fn scripted(replies: Vec<Value>) -> (Fake, Arc<Mutex<Vec<Value>>>) {
    let mut fake = Fake::new("").with_running_domain("<domain><name>web</name></domain>");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let mut replies = VecDeque::from(replies);
    fake.on_agent(move |name, command| {
        log.lock().unwrap().push(command.clone());
        match replies.pop_front() {
            Some(reply) if reply.get("refused").is_some() => Err(HypervisorError::AgentCommandFailed {
                name: name.into(),
                command: command["execute"].to_string(),
                message: reply["refused"].to_string(),
            }),
            Some(reply) => Ok(reply),
            None => Err(HypervisorError::AgentNotResponding { name: name.into(), reason: "end of script".into() }),
        }
    });
    (fake, asked)
}

fn commands(asked: &Mutex<Vec<Value>>) -> Vec<String> {
    asked.lock().unwrap().iter().map(|command| command["execute"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn exec_waits_and_brings_output() {
    let (mut fake, asked) = scripted(vec![
        json!({"pid": 77}),
        json!({"exited": false}),
        json!({"exited": true, "exitcode": 3, "out-data": "aGVsbG8K", "err-data": "AP8=", "out-truncated": true}),
    ]);
    let output = exec(&mut fake, "web", &["cat", "-"], Some(b"hi"), SECOND).unwrap();
    assert_eq!(output.status, ExecStatus::Exited(3));
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"hello\n"[..], &b"\0\xff"[..]));
    assert!(output.truncated && !output.status.is_success());
    let start = asked.lock().unwrap()[0]["arguments"].clone();
    assert_eq!(start, json!({"path": "cat", "arg": ["-"], "capture-output": true, "input-data": "aGk="}));
}

#[test]
fn a_hung_command_is_killed_and_reported() {
    let mut replies = vec![json!({"pid": 77})];
    replies.extend(vec![json!({"exited": false}); 5]);
    let (mut fake, asked) = scripted(replies);
    let error = exec(&mut fake, "web", &["sleep", "9999"], None, Duration::from_millis(100)).unwrap_err();
    assert!(matches!(&error, HypervisorError::GuestCommandTimedOut { pid: 77, .. }), "{error}");
    let last = asked.lock().unwrap().last().unwrap().clone();
    assert_eq!(last["arguments"]["arg"], json!(["-KILL", "77"]));
}

#[test]
fn nonsense_from_the_guest_is_an_error() {
    let ended = json!({"exited": true, "exitcode": 0});
    for (replies, what) in [
        (vec![json!(null)], "no pid"),
        (vec![json!({"pid": "77"})], "a pid that is a text"),
        (vec![json!({"pid": 77}), json!([])], "a list as status"),
        (vec![json!({"pid": 77}), json!({"exited": true})], "an end without a code"),
        (vec![json!({"pid": 77}), json!({"exited": true, "exitcode": 0, "out-data": "%%%"})], "junk base64"),
    ] {
        let (mut fake, _) = scripted(replies);
        let error = exec(&mut fake, "web", &["true"], None, SECOND).unwrap_err();
        assert!(matches!(error, HypervisorError::AgentReply { .. }), "{what}: {error}");
    }
    let (mut fake, _) = scripted(vec![json!({"refused": "not found"})]);
    assert!(matches!(exec(&mut fake, "web", &["x"], None, SECOND), Err(HypervisorError::AgentCommandFailed { .. })));
    let (mut fake, asked) = scripted(vec![json!({"pid": 77}), ended]);
    assert!(matches!(exec(&mut fake, "web", &[], None, SECOND), Err(HypervisorError::InvalidRequest { .. })));
    assert!(exec(&mut fake, "web", &["x"], Some(&vec![0; 100 << 10]), SECOND).is_err());
    assert!(asked.lock().unwrap().is_empty());
}

#[test]
fn files_are_written_in_chunks_and_closed() {
    let (mut fake, asked) = scripted(vec![
        json!(1000),
        json!({"count": WRITE_CHUNK, "eof": false}),
        json!({"count": 3, "eof": false}),
        json!({"count": 2, "eof": false}),
        json!({}),
        json!({}),
    ]);
    write_file(&mut fake, "web", "/tmp/probe", &vec![7; WRITE_CHUNK + 5]).unwrap();
    let write = "guest-file-write";
    assert_eq!(commands(&asked), ["guest-file-open", write, write, write, "guest-file-flush", "guest-file-close"]);
    assert_eq!(asked.lock().unwrap()[3]["arguments"]["buf-b64"], encode(&[7, 7]));
}

#[test]
fn a_failed_write_closes_its_handle() {
    for reply in [json!({"refused": "no space"}), json!({"count": 0, "eof": false}), json!({"count": 9, "eof": false})]
    {
        let (mut fake, asked) = scripted(vec![json!(1000), reply, json!({})]);
        assert!(write_file(&mut fake, "web", "/tmp/probe", b"12345").is_err());
        assert_eq!(commands(&asked).last().unwrap(), "guest-file-close");
    }
}

#[test]
fn files_are_read_to_their_end_and_within_their_limit() {
    let chunk = |text: &str, eof: bool| json!({"count": text.len(), "buf-b64": encode(text.as_bytes()), "eof": eof});
    let script = || vec![json!(1), chunk("one", false), chunk("two", true), json!({})];
    let (mut fake, _) = scripted(script());
    assert_eq!(read_file(&mut fake, "web", "/etc/x", 6).unwrap(), b"onetwo");
    let (mut fake, _) = scripted(script());
    assert!(matches!(read_file(&mut fake, "web", "/etc/x", 5), Err(HypervisorError::InvalidRequest { .. })));
    for (limit, read) in [(6, (&b"onetwo"[..], true)), (5, (b"onetw", false)), (2, (b"on", false))] {
        let (mut fake, _) = scripted(script());
        let file = OpenFile::create(&mut fake, "web", "/etc/x").unwrap();
        let Part { bytes, end } = file.read(&mut fake, limit, &mut |_| None);
        assert_eq!((bytes.as_slice(), matches!(end, PartEnd::Whole)), read);
    }
    for junk in [json!({"count": 9, "buf-b64": "YQ==", "eof": true}), chunk("", false), json!(7)] {
        let (mut fake, _) = scripted(vec![json!(1), junk, json!({})]);
        assert!(matches!(read_file(&mut fake, "web", "/etc/x", 5), Err(HypervisorError::AgentReply { .. })));
    }
}

#[test]
fn what_was_read_stays_when_the_agent_fails_the_caller_stops_or_pieces_are_tiny() {
    let piece = |text: &str| json!({"count": text.len(), "buf-b64": encode(text.as_bytes()), "eof": false});
    let (mut fake, _) = scripted(vec![json!(1), piece("one"), json!({"refused": "input/output error"})]);
    let file = OpenFile::create(&mut fake, "web", "/x").unwrap();
    let Part { bytes, end } = file.read(&mut fake, 100, &mut |_| None);
    assert!(bytes == b"one" && matches!(end, PartEnd::Failed(HypervisorError::AgentCommandFailed { .. })), "{end:?}");

    let (mut fake, asked) = scripted(vec![json!(1), piece("one"), piece("two"), piece("three")]);
    let file = OpenFile::create(&mut fake, "web", "/x").unwrap();
    let mut left = 2;
    let Part { bytes, end } = file.read(&mut fake, 100, &mut |_| {
        left -= 1;
        (left < 0).then(|| "enough".to_owned())
    });
    assert!(bytes == b"onetwo" && matches!(&end, PartEnd::Stopped(why) if why == "enough"), "{end:?}");
    assert_eq!(commands(&asked).len(), 3);

    // A byte at a time, for ever.
    let mut fake = Fake::new("").with_running_domain("<domain><name>web</name></domain>");
    fake.on_agent(move |_, command| Ok(if command["execute"] == "guest-file-open" { json!(1) } else { piece("x") }));
    let file = OpenFile::create(&mut fake, "web", "/x").unwrap();
    let Part { bytes, end } = file.read(&mut fake, 64 << 20, &mut |_| None);
    assert!(bytes.len() < 1000 && matches!(end, PartEnd::Failed(HypervisorError::AgentReply { .. })), "{end:?}");
}

#[test]
fn a_file_that_was_read_is_right_even_if_it_cannot_be_closed() {
    let (mut fake, asked) =
        scripted(vec![json!(1), json!({"count": 1, "buf-b64": "eA==", "eof": true}), json!({"refused": "no"})]);
    assert_eq!(read_file(&mut fake, "web", "/etc/x", 5).unwrap(), b"x");
    assert_eq!(commands(&asked).last().unwrap(), "guest-file-close");
}

#[test]
fn programs_are_made_executable_and_a_failure_of_that_is_told() {
    let script = |code: i64| {
        vec![
            json!(1),
            json!({"count": 2, "eof": false}),
            json!({}),
            json!({}),
            json!({"pid": 5}),
            json!({"exited": true, "exitcode": code, "err-data": "cmVhZC1vbmx5"}),
        ]
    };
    let (mut fake, _) = scripted(script(0));
    push_executable(&mut fake, "web", "/tmp/x", b"ab").unwrap();
    let (mut fake, _) = scripted(script(1));
    assert!(push_executable(&mut fake, "web", "/tmp/x", b"ab").unwrap_err().to_string().contains("read-only"));
}

#[test]
fn interfaces_are_listed_as_the_guest_names_them() {
    let (mut fake, _) = scripted(vec![json!([
        {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "prefix": 8, "ip-address-type": "ipv4"}]},
        {"name": "ens1", "hardware-address": "52:54:00:00:00:01"},
    ])]);
    let found = interfaces(&mut fake, "web").unwrap();
    assert_eq!(found[0].addresses, ["127.0.0.1/8"]);
    assert_eq!(found[1].hardware_address.as_deref(), Some("52:54:00:00:00:01"));
}

#[test]
fn waiting_ends_with_the_first_answer_or_the_time() {
    let (mut fake, asked) = scripted(vec![json!({})]);
    wait(&mut fake, "web", SECOND).unwrap();
    let error = wait(&mut fake, "web", SECOND).unwrap_err();
    assert!(matches!(error, HypervisorError::AgentNotResponding { .. }));
    assert!(asked.lock().unwrap().len() > 2);
    let mut without = Fake::new("").with_running_domain("<domain><name>web</name></domain>");
    assert!(matches!(wait(&mut without, "web", SECOND), Err(HypervisorError::AgentNotConfigured { .. })));
}

#[test]
fn a_program_that_runs_for_hours_is_seldom_asked_for() {
    let mut fake = Fake::new("").with_running_domain("<domain><name>web</name></domain>");
    let looks = Arc::new(Mutex::new(0));
    let log = Arc::clone(&looks);
    fake.on_agent(move |_, command| {
        let is_look = command["execute"] == "guest-exec-status";
        *log.lock().unwrap() += u32::from(is_look);
        Ok(if is_look { json!({"exited": false}) } else { json!({"pid": 7}) })
    });
    let wait = |seconds: u64, fake: &mut Fake| {
        let running = start(fake, "web", &["sleep"], None).unwrap();
        *looks.lock().unwrap() = 0;
        running.wait(fake, Duration::from_secs(seconds)).unwrap_err();
        *looks.lock().unwrap()
    };
    // For a minute every second, as ever; for two hours not 7200 times.
    assert!((60..80).contains(&wait(60, &mut fake)));
    assert!((400..700).contains(&wait(7200, &mut fake)));
}

#[test]
fn programs_of_several_guests_run_at_once() {
    let (mut fake, asked) = scripted(vec![
        json!(1_700_000_000_000_000_000_i64),
        json!({"pid": 7}),
        json!({"pid": 8}),
        json!({"exited": true, "exitcode": 0}),
        json!({"exited": true, "exitcode": 1}),
    ]);
    assert_eq!(clock(&mut fake, "web").unwrap(), 1_700_000_000_000_000_000);
    let one = start(&mut fake, "web", &["true"], None).unwrap();
    let two = start(&mut fake, "web", &["false"], None).unwrap();
    assert!(one.wait(&mut fake, SECOND).unwrap().status.is_success());
    assert_eq!(two.wait(&mut fake, SECOND).unwrap().status, ExecStatus::Exited(1));
    let order = ["guest-get-time", "guest-exec", "guest-exec", "guest-exec-status", "guest-exec-status"];
    assert_eq!(commands(&asked), order);
}
