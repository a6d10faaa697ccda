//! The whole trait against a real libvirt, a real QEMU and a real guest agent. Left out by default: it needs
//! `NEARMETAL_TEST_DOMAIN`, the path of a domain XML with two vCPUs, one iothread and an agent channel, whose guest is
//! Linux with qemu-guest-agent. The domain is defined, used and removed; one of that name must not exist before.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nearmetal_host::files;
use nearmetal_hypervisor::{Definition, DomainState, Hypervisor, HypervisorError, Libvirt, Scope, ShutdownMode, agent};
use serde_json::json;

const BOOT: Duration = Duration::from_secs(300);

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn helper() -> PathBuf {
    // Beside the test where it was pushed to another machine together with it.
    std::env::var_os("NEARMETAL_LIBVIRT").map_or_else(|| env!("CARGO_BIN_EXE_nearmetal-libvirt").into(), PathBuf::from)
}

#[test]
#[ignore = "needs libvirt and a guest: NEARMETAL_TEST_DOMAIN"]
fn a_real_guest_does_what_the_trait_says() {
    let path = std::env::var("NEARMETAL_TEST_DOMAIN").expect("NEARMETAL_TEST_DOMAIN is the path of a domain XML");
    let xml = files::read_to_string(Path::new(&path)).unwrap();
    let mut libvirt = Libvirt::with_helper(&helper(), "qemu:///system").unwrap();
    say(&format!("{:?}", libvirt.versions().unwrap()));
    let name = libvirt.define(&xml).unwrap().name;

    definitions(&mut libvirt, &name);
    libvirt.start(&name, true).unwrap();
    assert_eq!(libvirt.domain(&name).unwrap().state, DomainState::Paused);
    let paused = libvirt.shutdown(&name, ShutdownMode::Acpi, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(paused, HypervisorError::WrongState { .. }), "{paused}");
    pins(&mut libvirt, &name);
    let ping = |libvirt: &mut Libvirt| agent::ping(libvirt, &name, Duration::from_secs(2)).unwrap_err();
    let early = ping(&mut libvirt);
    assert!(matches!(early, HypervisorError::WrongState { .. }), "{early}");
    libvirt.resume(&name).unwrap();
    let early = ping(&mut libvirt);
    assert!(matches!(early, HypervisorError::AgentNotResponding { .. }), "{early}");
    let started = Instant::now();
    agent::wait(&mut libvirt, &name, BOOT).unwrap();
    say(&format!("agent up after {:.1} s", started.elapsed().as_secs_f64()));
    programs(&mut libvirt, &name);
    transfers(&mut libvirt, &name);
    monitor(&mut libvirt, &name);

    libvirt.suspend(&name).unwrap();
    libvirt.resume(&name).unwrap();
    let started = Instant::now();
    libvirt.shutdown(&name, ShutdownMode::AgentThenAcpi, BOOT).unwrap();
    say(&format!("shut down after {:.1} s", started.elapsed().as_secs_f64()));
    assert!(libvirt.domain(&name).unwrap().state.is_off());
    libvirt.undefine(&name, nearmetal_hypervisor::Nvram::Keep).unwrap();

    let clone = libvirt.create_transient(&xml, true).unwrap();
    assert!(clone.state == DomainState::Paused && !clone.persistent);
    libvirt.destroy(&name).unwrap();
    assert!(matches!(libvirt.domain(&name), Err(HypervisorError::NoSuchDomain { .. })));
}

fn definitions(libvirt: &mut Libvirt, name: &str) {
    let stored = libvirt.domain_xml(name, Definition::Inactive).unwrap();
    libvirt.define(&stored).unwrap();
    assert_eq!(libvirt.domain_xml(name, Definition::Inactive).unwrap(), stored, "libvirt's own text is stable");
    libvirt.set_autostart(name, true).unwrap();
    assert!(libvirt.domain(name).unwrap().autostart);
    libvirt.set_autostart(name, false).unwrap();
    let bad = stored.replacen("<devices>", "<bogus/><devices>", 1);
    assert!(matches!(libvirt.define(&bad), Err(HypervisorError::Refused { code: 92, .. })));
    let Err(error) = libvirt.pin_vcpu(name, 0, &"0".parse().unwrap(), Scope::LIVE) else { panic!() };
    assert!(matches!(error, HypervisorError::Refused { code: 55, .. }), "{error}");
}

fn pins(libvirt: &mut Libvirt, name: &str) {
    let (first, second) = ("0".parse().unwrap(), "1".parse().unwrap());
    libvirt.pin_vcpu(name, 0, &first, Scope::BOTH).unwrap();
    libvirt.pin_vcpu(name, 1, &second, Scope::LIVE).unwrap();
    libvirt.pin_emulator(name, &first, Scope::CONFIG).unwrap();
    libvirt.pin_iothread(name, 1, &second, Scope::BOTH).unwrap();
    let live = libvirt.domain_xml(name, Definition::Live).unwrap();
    let stored = libvirt.domain_xml(name, Definition::Inactive).unwrap();
    for (pin, in_live, in_stored) in [
        ("<vcpupin vcpu='0' cpuset='0'/>", true, true),
        ("<vcpupin vcpu='1' cpuset='1'/>", true, false),
        ("<emulatorpin cpuset='0'/>", false, true),
        ("<iothreadpin iothread='1' cpuset='1'/>", true, true),
    ] {
        assert_eq!((live.contains(pin), stored.contains(pin)), (in_live, in_stored), "{pin}\n{live}\n{stored}");
    }
    assert!(libvirt.pin_iothread(name, 99, &first, Scope::LIVE).is_err());
    assert!(libvirt.pin_emulator(name, &Default::default(), Scope::LIVE).is_err());
}

fn programs(libvirt: &mut Libvirt, name: &str) {
    let wait = Duration::from_secs(60);
    let started = Instant::now();
    let output = agent::exec(libvirt, name, &["sh", "-c", "cat; echo no >&2; exit 3"], Some(b"in"), wait).unwrap();
    say(&format!("exec took {:.0} ms", started.elapsed().as_secs_f64() * 1e3));
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"in"[..], &b"no\n"[..]));
    assert_eq!(output.status, agent::ExecStatus::Exited(3));
    let killed = agent::exec(libvirt, name, &["sh", "-c", "kill -TERM $$"], None, wait).unwrap();
    assert_eq!(killed.status, agent::ExecStatus::Signal(15));
    let hung = agent::exec(libvirt, name, &["sleep", "9876"], None, Duration::from_secs(2)).unwrap_err();
    let HypervisorError::GuestCommandTimedOut { pid, killed: true, .. } = hung else { panic!("{hung}") };
    let gone = format!("sleep 1; grep -c '^State:.*[RSD] ' /proc/{pid}/status; true");
    let left = agent::exec(libvirt, name, &["sh", "-c", &gone], None, wait).unwrap();
    assert_ne!(left.stdout.trim_ascii(), b"1", "process {pid} still runs");
    let missing = agent::exec(libvirt, name, &["/no/such/program"], None, wait).unwrap_err();
    let HypervisorError::AgentCommandFailed { command, message, .. } = &missing else { panic!("{missing}") };
    assert_eq!(command, "guest-exec");
    say(&format!("a missing program: {message}"));
    // Output larger than libvirt passes on: an error, and the connection is still good for the next question.
    let large = agent::exec(libvirt, name, &["head", "-c", "6000000", "/dev/zero"], None, wait);
    assert!(matches!(&large, Err(HypervisorError::AgentReply { .. })), "{large:?}");
    let input = vec![b'x'; 96 << 10];
    let output = agent::exec(libvirt, name, &["wc", "-c"], Some(&input), wait).unwrap();
    assert_eq!(output.stdout.trim_ascii(), b"98304");
    let long = libvirt.agent(name, &json!({"execute": "guest-ping", "arguments": {"x": "x".repeat(200 << 10)}}), wait);
    assert!(matches!(&long, Err(HypervisorError::InvalidRequest { .. })), "{long:?}");
    agent::ping(libvirt, name, wait).unwrap();
}

fn transfers(libvirt: &mut Libvirt, name: &str) {
    let bytes: Vec<u8> = (0..3_000_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let started = Instant::now();
    agent::write_file(libvirt, name, "/tmp/file", &bytes).unwrap();
    let wrote = started.elapsed().as_secs_f64();
    let started = Instant::now();
    assert!(agent::read_file(libvirt, name, "/tmp/file", bytes.len()).unwrap() == bytes);
    let read = started.elapsed().as_secs_f64();
    say(&format!("3 MB to the guest in {wrote:.2} s, back in {read:.2} s"));
    assert!(agent::read_file(libvirt, name, "/tmp/file", 1000).is_err());
    let nowhere = agent::write_file(libvirt, name, "/no/such/directory/file", b"x").unwrap_err();
    assert!(matches!(nowhere, HypervisorError::AgentCommandFailed { .. }), "{nowhere}");
    agent::push_executable(libvirt, name, "/tmp/program", b"#!/bin/sh\necho ran\n").unwrap();
    let output = agent::exec(libvirt, name, &["/tmp/program"], None, Duration::from_secs(60)).unwrap();
    assert_eq!(output.stdout, b"ran\n");
    assert!(agent::interfaces(libvirt, name).unwrap().iter().any(|interface| interface.name == "lo"));
}

fn monitor(libvirt: &mut Libvirt, name: &str) {
    let iothreads = libvirt.monitor(name, &json!({"execute": "query-iothreads"})).unwrap();
    assert_eq!(iothreads.as_array().map(Vec::len), Some(1), "{iothreads}");
    let refused = libvirt.monitor(name, &json!({"execute": "no-such-command"})).unwrap_err();
    let HypervisorError::MonitorCommandFailed { class, .. } = &refused else { panic!("{refused}") };
    assert_eq!(class, "CommandNotFound");
}
