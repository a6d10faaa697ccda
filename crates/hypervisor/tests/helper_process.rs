//! [`Libvirt`] against helpers that misbehave in every way a process can. The helpers are shell scripts; one test
//! writes and runs them all, since a file that another thread's fork holds open for writing cannot be executed.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nearmetal_host::files;
use nearmetal_hypervisor::protocol::PROTOCOL;
use nearmetal_hypervisor::{DomainEvent, EventKind, Events, Hypervisor, HypervisorError, Libvirt};

const GREET: &str = "read hello; echo '{\"protocol\":7}'";
const DOMAINS: &str = "{\"id\":1,\"outcome\":{\"reply\":{\"domains\":[]}}}";

struct Scripts {
    directory: tempfile::TempDir,
    count: u32,
}

impl Scripts {
    fn write(&mut self, body: &str) -> PathBuf {
        self.count += 1;
        let path = self.directory.path().join(format!("helper-{}", self.count));
        files::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    fn open(&mut self, body: &str) -> Result<Libvirt, HypervisorError> {
        Libvirt::with_helper(&self.write(body), "test:///default")
    }

    /// The error of the first request.
    fn failure(&mut self, body: &str) -> HypervisorError {
        let mut libvirt = self.open(&format!("{GREET}\n{body}")).unwrap();
        libvirt.limit_wait(Duration::from_secs(1));
        libvirt.domains().unwrap_err()
    }
}

#[test]
fn every_misbehaviour_of_a_helper_has_its_error() {
    let mut scripts = Scripts { directory: tempfile::tempdir().unwrap(), count: 0 };

    let missing = Libvirt::with_helper(Path::new("/nonexistent/nearmetal-libvirt"), "test:///default").unwrap_err();
    assert!(matches!(&missing, HypervisorError::HelperMissing { path, .. } if path.starts_with("/nonexistent")));
    assert!(missing.to_string().contains("NEARMETAL_LIBVIRT"));

    let loader = "echo \"$0: error while loading shared libraries: libvirt.so.0: cannot open shared object file: No such \
                  file or directory\" >&2; exit 127";
    let error = scripts.open(loader).unwrap_err();
    assert_eq!(error, HypervisorError::LibvirtMissing { library: "libvirt.so.0".into() });
    assert!(error.to_string().contains("apt install libvirt0"));

    let error = scripts.open("echo 'version `GLIBC_2.41 not found' >&2; exit 1").unwrap_err();
    assert!(matches!(&error, HypervisorError::HelperFailed { output, .. } if output.contains("GLIBC_2.41")), "{error}");
    let error = scripts.open("read hello; echo '{\"protocol\":99}'; read more").unwrap_err();
    assert!(matches!(error, HypervisorError::HelperIncompatible { expected: PROTOCOL, found: 99, .. }));
    let error = scripts.open("echo Hello, world").unwrap_err();
    assert!(matches!(error, HypervisorError::Protocol { .. }), "{error}");

    let error = scripts.failure("read request; echo 'libvirt: assertion failed' >&2; kill -SEGV $$");
    let HypervisorError::HelperStopped { action, status, output, .. } = &error else { panic!("{error}") };
    assert!(
        action == "list the domains of" && status.contains("signal: 11") && output.contains("assertion"),
        "{error}"
    );

    for answer in
        ["nonsense", "{\"id\":5,\"outcome\":{\"reply\":\"done\"}}", "{\"id\":1,\"outcome\":{\"reply\":\"done\"}}", "{}"]
    {
        let error = scripts.failure(&format!("read request; echo '{answer}'; read more"));
        assert!(matches!(error, HypervisorError::Protocol { .. }), "{answer}: {error}");
    }

    let endless = scripts.failure("read request; exec cat /dev/zero");
    assert!(matches!(endless, HypervisorError::Protocol { .. }), "{endless}");

    let started = Instant::now();
    let error = scripts.failure("read request; exec sleep 60");
    assert!(matches!(&error, HypervisorError::Timeout { seconds: 1, .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));

    // The third start is the one that answers: a helper that died, in or between requests, is replaced.
    let marks = scripts.directory.path().join("starts");
    let body = format!(
        "echo >> {0}\n{GREET}\n[ $(wc -l < {0}) = 1 ] && {{ read request; exit 9; }}\nread request; echo '{DOMAINS}'",
        marks.display()
    );
    let mut libvirt = scripts.open(&body).unwrap();
    assert!(matches!(libvirt.domains(), Err(HypervisorError::HelperStopped { .. })));
    assert_eq!(libvirt.domains().unwrap(), []);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(libvirt.domains().unwrap(), []);
    assert_eq!(files::read_to_string(&marks).unwrap().lines().count(), 3);

    // Events come as they are said, none is no error, and the end of the connection is one.
    let event = "echo '{\"event\":{\"domain\":\"web1\",\"kind\":\"started\"}}'";
    let ready = "read request; echo '{\"id\":1,\"outcome\":{\"reply\":\"done\"}}'";
    let path = scripts.write(&format!("{GREET}; {ready}; {event}; read more"));
    let mut events = Events::with_helper(&path, "test:///default").unwrap();
    let started = DomainEvent { domain: "web1".into(), kind: EventKind::Started };
    assert_eq!(events.wait(Duration::from_secs(10)).unwrap(), Some(started));
    assert_eq!(events.wait(Duration::from_millis(10)).unwrap(), None);
    for (end, words) in
        [("exit 0", "libvirt closed it"), ("echo no libvirt >&2; exit 1", "no libvirt"), ("echo {}", "not an event")]
    {
        let path = scripts.write(&format!("{GREET}; {ready}; {end}"));
        let mut events = Events::with_helper(&path, "test:///default").unwrap();
        let error = events.wait(Duration::from_secs(10)).unwrap_err();
        assert!(error.to_string().contains(words), "{end}: {error}");
        assert!(events.wait(Duration::from_secs(10)).is_err(), "{end}");
    }
    let refused = scripts.write(&format!("{GREET}; read request; echo 'nonsense'; read more"));
    assert!(matches!(Events::with_helper(&refused, "test:///default"), Err(HypervisorError::Protocol { .. })));

    // Nothing is left when the client goes, not even a helper that does not read.
    let number = scripts.directory.path().join("pid");
    let libvirt = scripts.open(&format!("echo $$ > {}; {GREET}; exec sleep 60", number.display())).unwrap();
    let pid = files::read_to_string(&number).unwrap();
    drop(libvirt);
    let process = PathBuf::from("/proc").join(pid.trim());
    assert!(!process.exists(), "{} is still there", process.display());
}
