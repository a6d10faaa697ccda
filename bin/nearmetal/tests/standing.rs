//! `nearmetal` without a command, of machines of each shape.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![allow(clippy::disallowed_methods, reason = "tests build the files that the program reads")]

use std::path::Path;
use std::process::{Command, Output};

use nearmetal_host::tree_text;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What is said of a kept machine, after its text was changed.
fn of(fixture: &str, change: impl FnOnce(String) -> String) -> Output {
    let memory = Path::new("/dev/shm");
    let directory = tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts").join(fixture);
    let tree = change(std::fs::read_to_string(root.join("tree.txt")).unwrap());
    tree_text::unpack(&tree, directory.path()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_nearmetal")).arg("--capture").arg(directory.path()).output().unwrap()
}

/// Its lines; all of them, with the next command on stderr.
fn lines(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    assert!((7..=10).contains(&lines.len()), "about ten lines: {lines:#?}");
    let last = text(&output.stderr).lines().last().unwrap().to_owned();
    assert!(last.contains("nearmetal inspect --capture "), "{last}");
    lines
}

/// The line of a name.
fn line<'a>(lines: &'a [String], name: &str) -> &'a str {
    let found = lines.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
    found.unwrap_or_else(|| panic!("no line `{name}`: {lines:#?}"))
}

fn same(text: String) -> String {
    text
}

#[test]
fn a_laptop_has_kinds_of_cores_and_a_processor_that_can_accelerate() {
    let lines = lines(&of("1p-1n-6c-2t-8c-1t-hybrid", same));
    assert!(lines[0].contains("a physical machine") && lines[0].contains("i7-1370P"), "{}", lines[0]);
    let machine = line(&lines, "machine");
    assert!(machine.starts_with("1 package, 1 node, 14 cores, 20 PUs of 2 kinds of cores (12 and 8), "), "{machine}");
    assert_eq!(line(&lines, "KVM"), "? (not tried in a capture); the processor has VMX");
}

#[test]
fn a_virtual_machine_is_called_one_and_its_lack_of_vmx_is_said() {
    let lines = lines(&of("1p-1n-2c-1t-memory-beyond-node", same));
    assert!(lines[0].contains(": a virtual machine; Linux 6.12.0, AMD EPYC"), "{}", lines[0]);
    assert!(line(&lines, "KVM").ends_with("shows neither VMX nor SVM: KVM cannot accelerate here"), "{lines:#?}");
    assert_eq!(line(&lines, "machine"), "1 package, 1 node, 2 cores, 2 PUs, 10 GiB of memory");
    assert_eq!(line(&lines, "hugepages"), "?", "the source does not say");
    assert_eq!(line(&lines, "findings"), "0 fault, 0 loss, 1 decide, 0 note on the host; domains were not checked");
    assert!(lines[7].contains("numa-memory-adds-up"), "{}", lines[7]);
}

#[test]
fn a_container_is_called_one_whatever_its_hardware_looks_like() {
    let in_a_vm = lines(&of("1p-1n-2c-1t-container", same));
    assert!(in_a_vm[0].starts_with("build-7f9c: a container in a virtual machine; "), "{}", in_a_vm[0]);
    assert_eq!(line(&in_a_vm, "hugepages"), "none reserved; the kernel offers 2 MiB");
    let on_hardware = lines(&of("1p-1n-2c-1t-container", |text| text.replace(" hypervisor", "")));
    assert!(on_hardware[0].starts_with("build-7f9c: a container: hardware as "), "{}", on_hardware[0]);
    let not = lines(&of("1p-1n-2c-1t-container", |text| text.replace("4026532177", "4026531836")));
    assert!(not[0].starts_with("build-7f9c: a virtual machine; "), "{}", not[0]);
}

#[test]
fn a_server_of_two_sockets_is_counted_with_its_pools() {
    let lines = lines(&of("2p-2n-8c-2t-vector-engines", same));
    assert!(lines[0].contains("a physical machine"), "{}", lines[0]);
    assert!(line(&lines, "machine").starts_with("2 packages, 2 nodes, 16 cores, 32 PUs, "), "{lines:#?}");
    let pools = line(&lines, "hugepages");
    assert!(pools.contains(" of 2 MiB (") && pools.ends_with(" free"), "{pools}");
    assert_eq!(line(&lines, "plan"), "? (a capture holds no journal)");
}

#[test]
fn names_from_a_capture_cannot_add_lines_or_move_the_cursor() {
    let evil = |text: String| text.replace("hostname = build-7f9c", r"hostname : a\x1b[2Jb\n");
    let output = of("1p-1n-2c-1t-container", evil);
    let first = lines(&output)[0].clone();
    assert!(first.starts_with(r"a\u{1b}[2Jb: "), "{first}");
}

#[test]
fn a_capture_before_a_command_is_wrong_use_and_what_is_none_is_too() {
    let nearmetal = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_nearmetal")).args(arguments).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let (code, words) = nearmetal(&["--capture", "x", "inspect"]);
    assert!(code == Some(2) && words.contains("after the command"), "{words}");
    let (code, words) = nearmetal(&["--capture", "/nonexistent"]);
    assert!(code == Some(2) && words.contains("/nonexistent"), "{words}");
}

#[test]
fn what_is_in_force_is_listed_the_latest_first_and_nothing_where_nothing_is() {
    let state = tempfile::tempdir().unwrap();
    let list = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
        let output = command.args(["rollback", "--list", "--state"]).arg(state.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(list(), "");
    let journal = state.path().join("journal");
    std::fs::create_dir(&journal).unwrap();
    let write = |number: u32, end: &str| {
        let header = serde_json::json!({
            "record": "header", "schema": "nearmetal.journal/1", "transaction": number,
            "started": "2026-01-01T00:00:00Z", "boot_id": "00000000-0000-4000-8000-000000000000",
            "nearmetal": "0.1.0", "host": {"hostname": "a", "fingerprint": "0"},
            "devices": {"schema": "nearmetal.devices/1", "task": "2 virtual functions"},
        });
        std::fs::write(journal.join(format!("{number:04}.jsonl")), format!("{header}\n{end}")).unwrap();
    };
    write(1, "{\"record\":\"committed\",\"at\":\"2026-01-01T00:00:01Z\",\"mismatches\":0}\n");
    write(2, "{\"record\":\"rolled-back\",\"at\":\"2026-01-01T00:00:01Z\"}\n");
    write(3, "");
    let line = "2026-01-01T00:00:00Z  devices: 2 virtual functions";
    assert_eq!(list(), format!("3  {line}  unfinished: it was interrupted\n1  {line}\n"));
}
