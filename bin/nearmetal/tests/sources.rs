//! `inspect` of machines that are not this one: captures, and other hosts over ssh.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "tests build the files that the program reads")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nearmetal_host::{Entry, MemoryTree};

const TOPOLOGY: &str = r#"<topology version="3.0"><object type="Machine" os_index="0" cpuset="0x00000003">
  <object type="Package" os_index="0" cpuset="0x00000003">
    <object type="NUMANode" os_index="0" cpuset="0x00000003" local_memory="1073741824"/>
    <object type="Core" os_index="0" cpuset="0x00000003">
      <object type="PU" os_index="0" cpuset="0x00000001"/><object type="PU" os_index="1" cpuset="0x00000002"/>
    </object></object></object></topology>"#;

fn nearmetal() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nearmetal"))
}

fn inspect(arguments: &[&str]) -> Output {
    nearmetal().arg("inspect").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn script(path: &Path, body: &str) -> PathBuf {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_owned()
}

/// A probe that gives a capture of a machine of three PUs, and not of the one it runs on.
fn probe(directory: &Path) -> PathBuf {
    let mut tree = MemoryTree::new();
    for (path, text) in [("/sys/devices/system/cpu/online", "0-2\n"), ("/proc/sys/kernel/hostname", "far-away\n")] {
        tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
    }
    for cpu in 0..3 {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
        tree.put(&path, Entry::File(format!("{cpu}\n").into_bytes())).unwrap();
    }
    let capture = directory.join("far-away.tar.gz");
    nearmetal_capture::write(&tree, true, fs::File::create(&capture).unwrap()).unwrap();
    script(&directory.join("probe"), &format!("[ \"$1\" = --version ] || cat {}", capture.display()))
}

#[test]
fn hwloc_xml_is_shown_in_every_format() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("m.xml");
    fs::write(&file, TOPOLOGY).unwrap();
    let file = file.to_str().unwrap();
    let output = inspect(&["--capture", file, "--format", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["summary"]["pus"], &document["summary"]["memory"]), (&2.into(), &1_073_741_824u64.into()));
    assert_eq!(document["host"]["nodes"][0]["memory_free"], serde_json::Value::Null);
    // Every field the published schema demands is there.
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/reference/host.schema.json")).unwrap();
    for (part, place) in [(&schema, &document), (&schema["$defs"]["Host"], &document["host"])] {
        for name in part["required"].as_array().unwrap() {
            assert!(place.get(name.as_str().unwrap()).is_some(), "{name}");
        }
    }
    assert_eq!(schema["properties"]["schema"]["const"], document["schema"]);
    for (format, wanted) in [("text", "1 package, 1 node"), ("svg", "<svg "), ("picture", "node 0 · socket 0")] {
        let output = inspect(&["--capture", file, "--format", format]);
        assert!(text(&output.stdout).contains(wanted), "{format}: {}", text(&output.stdout));
    }
    assert!(inspect(&["--capture", file, "--format", "picture", "--ascii"]).stdout.is_ascii());
}

#[test]
fn the_pictured_machine_reads_as_hwloc_says_and_its_picture_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("fixtures/hwloc/24p-24n-8c-2t-uv2000.xml");
    let output = inspect(&["--capture", file.to_str().unwrap(), "--format", "json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let summary = &document["summary"];
    for (name, count) in [("packages", 24), ("numa_nodes", 24), ("cores", 192), ("pus", 384), ("pci_devices", 12)] {
        assert_eq!(summary[name], count, "{name}");
    }
    assert_eq!(summary["memory"], 798_447_374_336u64);
    let nodes = document["host"]["nodes"].as_array().unwrap();
    assert_eq!(nodes[0]["distances"][1], serde_json::json!([1, 50]));
    assert_eq!(nodes[23]["distances"][0], serde_json::json!([0, 79]));
    assert_eq!(document["host"]["unreadable"], serde_json::json!([]));
    let mut places: Vec<_> =
        document["host"]["pci_devices"].as_array().unwrap().iter().map(|device| device["node"].as_u64()).collect();
    places.dedup();
    assert_eq!(places, [Some(0), Some(1), Some(4), Some(6), Some(8)]);
    let drawn = inspect(&["--capture", file.to_str().unwrap(), "--format", "svg"]).stdout;
    let kept = fs::read(root.join("docs/pictures/uv2000.svg")).unwrap();
    assert!(
        drawn == kept,
        "docs/pictures/uv2000.svg is old; renew it, and look at it: nearmetal inspect --format svg --capture \
         fixtures/hwloc/24p-24n-8c-2t-uv2000.xml > docs/pictures/uv2000.svg"
    );
}

#[test]
fn what_is_no_capture_is_wrong_use_and_says_what_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("junk");
    fs::write(&file, "hello").unwrap();
    let output = inspect(&["--capture", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("hwloc XML"), "{}", text(&output.stderr));
    assert_eq!(inspect(&["--capture", "x", "--host", "y"]).status.code(), Some(2));
    assert_eq!(inspect(&["--capture", "/nonexistent"]).status.code(), Some(2));
}

#[test]
fn the_probe_is_sent_runs_and_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("there");
    fs::create_dir(&there).unwrap();
    // An ssh that hands the command to the login shell, as sshd does.
    let ssh = script(&directory.path().join("ssh"), "[ \"$1 $2 $3\" = '-T -- far' ] || exit 255\nexec sh -c \"$4\"");
    let run = |probe: &Path| {
        let arguments = ["inspect", "--host", "far", "--ssh", ssh.to_str().unwrap(), "--format", "json"];
        let output = nearmetal().args(arguments).env("NEARMETAL_PROBE", probe).env("TMPDIR", &there).output().unwrap();
        assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "the probe is removed");
        output
    };
    let output = run(&probe(directory.path()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["summary"]["pus"], &document["host"]["source"]), (&3.into(), &"far".into()));
    let failing = script(&directory.path().join("failing"), "[ \"$1\" = --version ] || { echo broken >&2; exit 7; }");
    let output = run(&failing);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("broken") && text(&output.stderr).contains("exit status: 7"));
    let babbling = script(&directory.path().join("babbling"), "echo Welcome");
    assert_eq!(run(&babbling).status.code(), Some(3));
}

#[test]
fn a_host_is_never_an_option_of_ssh() {
    for name in ["-oProxyCommand=touch /tmp/x", "", "a b"] {
        let output = inspect(&[&format!("--host={name}"), "--ssh", "false"]);
        assert_eq!(output.status.code(), Some(3), "{name}");
        assert!(text(&output.stderr).contains("is not a host"), "{name}: {}", text(&output.stderr));
    }
}

/// A sshd of its own keys on a free port of 127.0.0.1, ended with this value.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn key(path: &Path) -> bool {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    made.is_ok_and(|status| status.success())
}

/// Starts sshd; or why that cannot be.
fn daemon(directory: &Path) -> Result<(Daemon, u16), String> {
    let program = std::env::var("NEARMETAL_TEST_SSHD").unwrap_or_else(|_| "/usr/sbin/sshd".to_owned());
    if !Path::new(&program).exists() {
        return Err(format!("`{program}` is not there (apt install openssh-server, or set NEARMETAL_TEST_SSHD)"));
    }
    if !key(&directory.join("host")) || !key(&directory.join("user")) {
        return Err("ssh-keygen makes no keys".to_owned());
    }
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().port();
    let here = directory.display();
    let configuration = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host\nAuthorizedKeysFile {here}/user.pub\n\
         StrictModes no\nUsePAM no\nPidFile none\n"
    );
    fs::write(directory.join("sshd_config"), configuration).unwrap();
    let mut child = Command::new(&program)
        .args(["-D", "-e", "-f"])
        .arg(directory.join("sshd_config"))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("`{program}` does not start: {error}"))?;
    for _ in 0..100 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok((Daemon(child), port));
        }
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let mut words = String::new();
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut words));
    let _ = child.wait();
    Err(format!("`{program}` does not listen: {}", words.trim()))
}

#[test]
fn a_real_sshd_gives_a_real_answer() {
    let directory = tempfile::tempdir().unwrap();
    let (_daemon, port) = match daemon(directory.path()) {
        Ok(found) => found,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let here = directory.path().display();
    let ssh = format!(
        "ssh -F none -p {port} -i {here}/user -o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
         -o UserKnownHostsFile={here}/known_hosts"
    );
    let output = nearmetal()
        .args(["inspect", "--host", "127.0.0.1", "--ssh", &ssh, "--format", "json"])
        .env("NEARMETAL_PROBE", probe(directory.path()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["summary"]["pus"], &document["host"]["source"]), (&3.into(), &"127.0.0.1".into()));
}

#[test]
fn two_captures_are_compared_in_words_and_for_programs() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let before = write("before.xml", TOPOLOGY);
    let smaller = TOPOLOGY.replace("1073741824", "536870912");
    assert_ne!(smaller, TOPOLOGY);
    let now = write("now.xml", &smaller);
    let same = inspect(&["--diff", &before, &before]);
    assert!(same.status.success() && text(&same.stdout).contains("nothing that matters"), "{}", text(&same.stdout));
    let output = inspect(&["--diff", &before, &now]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("1 GiB before, 512 MiB now"), "{}", text(&output.stdout));
    let output = inspect(&["--diff", &before, &now, "--format", "json"]);
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list[0]["weight"], "capacity");
    assert_eq!(inspect(&["--diff", &before, "/nonexistent"]).status.code(), Some(2));
    assert_eq!(inspect(&["--diff", &before]).status.code(), Some(2));
}
