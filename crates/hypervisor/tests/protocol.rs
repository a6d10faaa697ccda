//! The lines between nearmetal and its helper: what is written is read back, and nothing read can do harm.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::time::Duration;

use nearmetal_hypervisor::protocol::{
    EventLine, Hello, Outcome, PROTOCOL, Reply, ReplyLine, Request, RequestLine, ShutdownSignal,
};
use nearmetal_hypervisor::{
    Definition, DomainEvent, DomainState, Effect, EventKind, Fake, HypervisorError, Nvram, PassedFile, Scope, Served,
    serve, write_event,
};
use proptest::prelude::*;
use serde_json::json;

const WEB: &str = "<domain type='kvm'><name>web</name></domain>";

fn requests() -> Vec<Request> {
    let name = || "web \"1\"\n<é>".to_owned();
    let cpus = || "2-3,8".parse().unwrap();
    vec![
        Request::Versions,
        Request::Capabilities,
        Request::NodeDevices,
        Request::Domains,
        Request::Domain { name: name() },
        Request::DomainXml { name: name(), which: Definition::Inactive },
        Request::Define { xml: WEB.into() },
        Request::Undefine { name: name(), nvram: Nvram::Keep },
        Request::Undefine { name: name(), nvram: Nvram::Remove },
        Request::Start { name: name(), paused: true },
        Request::CreateTransient { xml: WEB.into(), paused: false },
        Request::CreateTied {
            xml: WEB.into(),
            files: vec![PassedFile { group: "delta".into(), path: "/proc/7/fd/3".into(), writable: true }],
        },
        Request::Shutdown { name: name(), signal: ShutdownSignal::Agent },
        Request::Destroy { name: name() },
        Request::Suspend { name: name() },
        Request::Resume { name: name() },
        Request::PinVcpu { name: name(), vcpu: 3, cpus: cpus(), scope: Scope::LIVE },
        Request::PinEmulator { name: name(), cpus: cpus(), scope: Scope::CONFIG },
        Request::PinIothread { name: name(), id: 1, cpus: cpus(), scope: Scope::BOTH },
        Request::SetAutostart { name: name(), autostart: true },
        Request::SetMetadata {
            name: name(),
            namespace: "https://example.org/1".into(),
            prefix: "own".into(),
            element: Some("<class>latency</class>".into()),
            scope: Scope::CONFIG,
        },
        Request::Agent {
            name: name(),
            command: json!({"execute": "guest-ping"}),
            timeout: Duration::from_millis(1500),
        },
        Request::Monitor { name: name(), command: json!({"execute": "query-iothreads"}) },
        Request::Events,
    ]
}

/// Runs a whole session against a fake; the first line of the answer, and the rest as replies.
fn session(fake: &mut Fake, input: &[u8]) -> (Hello, Vec<ReplyLine>) {
    let mut output = Vec::new();
    serve(input, &mut output, fake).unwrap();
    let text = String::from_utf8(output).unwrap();
    let mut lines = text.lines();
    let hello = serde_json::from_str(lines.next().unwrap()).unwrap();
    (hello, lines.map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn every_request_reads_back_from_one_line() {
    for request in requests() {
        let line = serde_json::to_string(&RequestLine { id: 7, request: request.clone() }).unwrap();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<RequestLine>(&line).unwrap().request, request);
        assert!(!request.action().is_empty());
    }
}

#[test]
fn errors_cross_the_pipe_unchanged() {
    let refused = HypervisorError::Refused {
        action: "define".into(),
        name: "web".into(),
        domain: 20,
        code: 27,
        message: "XML error: unexpected rng model 'x'\n".into(),
    };
    let state = HypervisorError::WrongState {
        action: "shut down".into(),
        name: "web".into(),
        state: DomainState::Paused,
        advice: "resume it first".into(),
    };
    for error in [refused, state] {
        let line = serde_json::to_string(&Outcome::from(Err(error.clone()))).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&line).unwrap(), Outcome::Error(error));
    }
}

#[test]
fn a_session_answers_each_line_in_order() {
    let mut fake = Fake::new("<capabilities/>").with_domain(WEB);
    let input = [
        r#"{"protocol":1}"#,
        r#"{"id":1,"request":"capabilities"}"#,
        "",
        r#"{"id":2,"request":{"domain":{"name":"db"}}}"#,
        r#"{"id":3,"request":{"start":{"name":"web","paused":false,"force":true}}}"#,
        r#"{"id":4,"request":{"start":{"name":"web","paused":false}}}"#,
    ];
    let (hello, replies) = session(&mut fake, input.join("\n").as_bytes());
    assert_eq!(hello, Hello { protocol: PROTOCOL });
    assert_eq!(replies.iter().map(|reply| reply.id).collect::<Vec<_>>(), [Some(1), None, Some(2), None, Some(4)]);
    assert_eq!(replies[0].outcome, Outcome::Reply(Reply::Xml("<capabilities/>".into())));
    assert!(matches!(&replies[2].outcome, Outcome::Error(HypervisorError::NoSuchDomain { .. })));
    assert_eq!(replies[4].outcome, Outcome::Reply(Reply::Done));
}

#[test]
fn a_session_without_a_hello_ends() {
    let mut fake = Fake::new("");
    let (_, replies) = session(&mut fake, b"GET / HTTP/1.1\n{\"id\":1,\"request\":\"versions\"}\n");
    assert_eq!(replies.len(), 1);
    let mut nothing = Vec::new();
    serve(&b""[..], &mut nothing, &mut fake).unwrap();
    assert!(nothing.is_empty() && fake.calls().is_empty());
}

#[test]
fn after_the_request_for_events_nothing_more_is_answered() {
    let input = b"{\"protocol\":1}\n{\"id\":1,\"request\":\"events\"}\n{\"id\":2,\"request\":\"domains\"}\n";
    let mut output = Vec::new();
    let mut fake = Fake::new("");
    assert_eq!(serve(&input[..], &mut output, &mut fake).unwrap(), Served::UntilEvents);
    assert_eq!(fake.calls(), [Request::Events]);
    let event = DomainEvent { domain: "a\nb".into(), kind: EventKind::DevicesChanged };
    write_event(&mut output, event.clone()).unwrap();
    let text = String::from_utf8(output).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(serde_json::from_str::<EventLine>(text.lines().last().unwrap()).unwrap().event, event);

    // Where they cannot be had, that is a reply like any other.
    let gone = HypervisorError::Unreachable { uri: "qemu:///system".into(), reason: "gone".into() };
    fake.forget_calls();
    fake.fail_at(1, Effect::Nothing, gone);
    assert_eq!(serve(&input[..], Vec::new(), &mut fake).unwrap(), Served::All);
    assert_eq!(fake.calls(), [Request::Events, Request::Domains]);
}

#[test]
fn a_failure_is_a_reply_too() {
    let mut fake = Fake::new("").with_domain(WEB);
    let error = HypervisorError::Unreachable { uri: "qemu:///system".into(), reason: "gone".into() };
    fake.fail_at(1, Effect::Nothing, error.clone());
    let (_, replies) = session(&mut fake, b"{\"protocol\":1}\n{\"id\":9,\"request\":\"domains\"}\n");
    assert_eq!(replies[0].outcome, Outcome::Error(error));
}

proptest! {
    #[test]
    fn junk_lines_are_answered_and_do_nothing(lines in proptest::collection::vec("[^\n]{0,60}", 0..8)) {
        let mut fake = Fake::new("").with_domain(WEB);
        let input = format!("{{\"protocol\":1}}\n{}\n{{\"id\":1,\"request\":\"domains\"}}\n", lines.join("\n"));
        let (_, replies) = session(&mut fake, input.as_bytes());
        prop_assert!(replies.last().is_some_and(|reply| reply.id == Some(1)));
        prop_assert_eq!(fake.calls().len(), 1);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut input = b"{\"protocol\":1}\n".to_vec();
        input.extend(bytes);
        session(&mut Fake::new(""), &input);
    }
}
