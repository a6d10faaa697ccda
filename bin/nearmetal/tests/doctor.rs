//! `nearmetal doctor` over files and a capture: exit codes and every form of output.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use nearmetal_host::files;
use serde_json::Value;
use tempfile::TempDir;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path)
}

/// A capture of a machine with one PU and nothing else.
fn capture() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/cmdline", "ro quiet\n"),
        ("proc/sys/kernel/numa_balancing", "0\n"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/devices/system/node/online", "0\n"),
    ] {
        let path = directory.path().join(path);
        files::create_dir_all(path.parent().unwrap()).unwrap();
        files::write(&path, text).unwrap();
    }
    for cpu in 0..4 {
        let topology = directory.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        files::create_dir_all(&topology).unwrap();
        files::write(&topology.join("physical_package_id"), "0\n").unwrap();
        files::write(&topology.join("core_id"), format!("{cpu}\n")).unwrap();
        files::write(&topology.join("thread_siblings_list"), format!("{cpu}\n")).unwrap();
    }
    directory
}

struct Run {
    code: i32,
    stdout: String,
    stderr: String,
}

fn run(arguments: &[&str]) -> Run {
    let output = Command::cargo_bin("nearmetal").unwrap().arg("doctor").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn on(file: &str, more: &[&str]) -> Run {
    let (capture, file) = (capture(), fixture(file));
    let mut arguments = vec!["--xml", file.to_str().unwrap(), "--capture", capture.path().to_str().unwrap()];
    arguments.extend(more);
    run(&arguments)
}

const GOOD: &str = "rules/web.xml";
const BAD: &str = "rules/virt-install/win10.xml";

#[test]
fn the_exit_code_says_whether_something_is_as_bad_as_asked() {
    assert_eq!(on(GOOD, &[]).code, 0);
    for (fail_on, code) in [("fault", 0), ("loss", 1), ("note", 1), ("never", 0)] {
        assert_eq!(on(BAD, &["--fail-on", fail_on]).code, code, "{fail_on}");
    }
    assert_eq!(on(BAD, &["--only", "cpu-host-passthrough"]).code, 0);
    assert_eq!(on(BAD, &["--only", "disk-bus-virtio"]).code, 1);
}

#[test]
fn text_has_one_line_for_each_finding_with_object_and_value() {
    let text = on(BAD, &[]).stdout;
    let line = text.lines().find(|line| line.contains("disk-bus-virtio")).unwrap();
    assert!(line.starts_with("loss ") && line.contains("disk sda: bus sata (wanted: virtio"), "{line}");
    assert!(text.contains("windows (guessed: libosinfo's metadata names Windows)"), "{text}");
    assert!(text.contains("0 fault, 3 loss, 0 decide, 0 note"), "{text}");
}

#[test]
fn json_is_as_its_schema_says() {
    let schema: Value = serde_json::from_str(include_str!("../../../docs/reference/doctor.schema.json")).unwrap();
    for file in [GOOD, BAD, "rules/rt.xml"] {
        let document: Value = serde_json::from_str(&on(file, &["--format", "json"]).stdout).unwrap();
        check(&schema, &document, "document");
    }
    let document: Value = serde_json::from_str(&on(BAD, &["--format", "json"]).stdout).unwrap();
    assert_eq!(document["findings"][0]["objects"][0]["found"], "bus sata");
    assert_eq!(document["failed"], true);
}

/// The part of JSON Schema our schemas use: type, const, enum, required, properties (all that may be), items.
fn check(schema: &Value, value: &Value, place: &str) {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match &schema["type"] {
        Value::String(kind) => assert_eq!(kind, name, "{place}"),
        Value::Array(kinds) => assert!(kinds.iter().any(|kind| kind == name), "{place} is {name}"),
        _ => {}
    }
    if let Some(constant) = schema.get("const") {
        assert_eq!(constant, value, "{place}");
    }
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.contains(value), "{place} is {value}");
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(required.as_str().unwrap()).is_some(), "{place} lacks {required}");
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        let known = schema["properties"].get(key);
        check(known.unwrap_or_else(|| panic!("{place}.{key} is not in the schema")), inner, &format!("{place}.{key}"));
    }
    for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], inner, &format!("{place}[{index}]"));
    }
}

#[test]
fn sarif_names_a_rule_of_its_list_for_each_result() {
    let log: Value = serde_json::from_str(&on(BAD, &["--format", "sarif"]).stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        let index = result["ruleIndex"].as_u64().unwrap() as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
        assert_eq!(result["level"], "warning");
        assert_eq!(result["locations"][0]["logicalLocations"][0]["name"], "win10");
    }
}

/// The doctor on the capture alone, in one form of output.
fn without_definitions(format: &str) -> String {
    let capture = capture();
    run(&["--capture", capture.path().to_str().unwrap(), "--format", format]).stdout
}

#[test]
fn no_form_counts_findings_without_saying_that_domains_were_not_checked() {
    let sentence = "domains were not checked: a capture holds no definitions";
    let text = without_definitions("text");
    let line = text.lines().find(|line| line.starts_with("findings on the host: ")).unwrap();
    assert!(line.contains(sentence), "{text}");
    let document: Value = serde_json::from_str(&without_definitions("json")).unwrap();
    let summary = document["summary"].as_str().unwrap();
    assert!(summary.contains(" on the host; ") && summary.contains(sentence), "{summary}");
    let log: Value = serde_json::from_str(&without_definitions("sarif")).unwrap();
    let invocation = &log["runs"][0]["invocations"][0];
    assert_eq!(invocation["executionSuccessful"], true);
    assert!(invocation["toolExecutionNotifications"][0]["message"]["text"].as_str().unwrap().contains(sentence));
    let xml = without_definitions("junit");
    let case = xml.split("<testcase ").find(|case| case.contains("name=\"disk-bus-virtio\"")).unwrap();
    assert!(case.contains("<skipped message=\"") && case.contains(sentence), "{case}");
    // With definitions nothing is left out.
    let checked: Value = serde_json::from_str(&on(BAD, &["--format", "json"]).stdout).unwrap();
    assert_eq!(checked["summary"], "3 findings on the host and in 1 domain");
    assert_eq!(checked["domains_unknown"], Value::Null);
    assert!(!on(BAD, &[]).stdout.contains("not checked"));
}

#[test]
fn junit_counts_what_it_holds() {
    let xml = on(BAD, &["--format", "junit"]).stdout;
    assert!(xml.contains("failures=\"3\"") && xml.matches("<failure ").count() == 3, "{xml}");
    let cases = xml.matches("<testcase ").count();
    assert!(xml.contains(&format!("name=\"nearmetal doctor\" tests=\"{cases}\"")), "{xml}");
    assert!(on(BAD, &["--format", "junit", "--fail-on", "never"]).stdout.contains("failures=\"0\""));
}

#[test]
fn a_rule_tells_its_whole_story_and_all_are_listed() {
    let story = run(&["--explain", "disk-cache-none"]);
    assert_eq!(story.code, 0);
    for part in ["severity", "reads", "permanent fix", "risk and undo", "sources", "docs.redhat.com"] {
        assert!(story.stdout.contains(part), "{part}: {}", story.stdout);
    }
    let list = run(&["--list"]).stdout;
    assert!(list.contains("two-domains-on-one-pu") && list.contains("queues_enough"), "{list}");
}

#[test]
fn thresholds_can_be_set() {
    let few = on("rules/vdi.xml", &["--set", "polling_ns=1", "--set", "queues_enough=4"]);
    assert_eq!(few.code, 0, "{}", few.stdout);
    for (change, word) in
        [("queues=1", "unknown threshold `queues`"), ("polling_ns=x", "not a number"), ("a", "NAME=VALUE")]
    {
        let wrong = on(GOOD, &["--set", change]);
        assert!(wrong.code == 2 && wrong.stderr.contains(word), "{}", wrong.stderr);
    }
}

#[test]
fn bad_input_is_wrong_use_in_clear_words_and_the_rest_is_checked() {
    let capture = capture();
    let broken = capture.path().join("broken.xml");
    files::write(&broken, "<domain type='kvm'><name>x</name>").unwrap();
    let good = fixture(BAD);
    let directory = capture.path().to_str().unwrap();
    let both = run(&["--xml", broken.to_str().unwrap(), good.to_str().unwrap(), "--capture", directory]);
    assert_eq!(both.code, 2);
    assert!(both.stderr.contains("broken.xml") && both.stdout.contains("disk-bus-virtio"), "{}", both.stderr);
    assert_eq!(run(&["--xml", "/nonexistent.xml", "--capture", directory]).code, 2);
    assert_eq!(run(&["--capture", "/nonexistent"]).code, 2);
    assert_eq!(run(&["--explain", "no-such-rule"]).code, 2);
    assert_eq!(run(&["--class", "fast"]).code, 2);
}

#[test]
fn a_capture_without_a_file_says_which_one_is_missing() {
    let capture = capture();
    files::remove(&capture.path().join("proc/cmdline")).unwrap();
    let text = run(&["--capture", capture.path().to_str().unwrap()]).stdout;
    let line = text.lines().find(|line| line.starts_with("cannot tell: /proc/cmdline (")).unwrap();
    assert!(line.contains("mitigations-reported-not-disabled"), "{text}");
}

/// A file in a capture's directory, which the run deletes with it.
fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    files::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const VM: &str = "<domain type='kvm'><name>NAME</name><memory unit='GiB'>1</memory><vcpu>1</vcpu><devices>\
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/images/vm.qcow2'/>\
    <target dev='vda' bus='virtio'/></disk></devices></domain>";

#[test]
fn images_are_judged_by_what_qemu_img_printed() {
    let folder = capture();
    let (xml, tree) = (file(&folder, "vm.xml", VM), folder.path().to_str().unwrap().to_owned());
    let image = |size: u64, name: &str| {
        format!(
            r#"[{{"virtual-size": {size}, "filename": "{name}", "cluster-size": 65536, "format": "qcow2",
                "actual-size": 200704, "format-specific": {{"type": "qcow2", "data": {{"compat": "0.10"}}}}}}]"#
        )
    };
    let described = file(&folder, "vm.json", &image(1 << 40, "/images/vm.qcow2"));
    let asked = |more: &[&str]| {
        let mut arguments = vec!["--xml", &xml, "--capture", &tree];
        arguments.extend(more);
        run(&arguments)
    };
    let unknown = asked(&[]);
    let line = unknown.stdout.lines().find(|line| line.starts_with("cannot tell: /images/vm.qcow2 (--image-info)"));
    assert!(line.is_some_and(|line| line.contains("image-compat-v3")), "{}", unknown.stdout);
    let judged = asked(&["--image-info", &described]);
    for part in ["disk vda: at most 32 MiB (wanted: 128 MiB)", "/images/vm.qcow2: version 2 (compat 0.10)"] {
        assert!(judged.stdout.contains(part), "{part}: {}", judged.stdout);
    }
    let other = file(&folder, "other.json", &image(1, "/images/other.qcow2"));
    let unused = asked(&["--image-info", &other]);
    assert!(unused.code == 2 && unused.stderr.contains("no domain here has that disk"), "{}", unused.stderr);
    let junk = asked(&["--image-info", &xml]);
    assert!(junk.code == 2 && junk.stderr.contains("qemu-img info"), "{}", junk.stderr);
}

#[test]
fn the_inside_of_a_guest_is_read_like_any_machine() {
    let (folder, guest) = (capture(), capture());
    let clock = guest.path().join("sys/devices/system/clocksource/clocksource0/current_clocksource");
    files::create_dir_all(clock.parent().unwrap()).unwrap();
    files::write(&clock, "acpi_pm\n").unwrap();
    let (xml, tree) = (file(&folder, "vm.xml", VM), folder.path().to_str().unwrap().to_owned());
    let asked = |more: &[&str]| {
        let mut arguments = vec!["--xml", &xml, "--capture", &tree];
        arguments.extend(more);
        run(&arguments)
    };
    let unseen = asked(&[]).stdout;
    assert!(unseen.contains("cannot tell: the inside of NAME (--guest-capture, or --guests with its agent) (guest"));
    let seen = asked(&["--guest-capture", &format!("NAME={}", guest.path().display())]);
    assert!(seen.stdout.contains("clock source of the guest: acpi_pm (wanted: kvm-clock or tsc)"), "{}", seen.stdout);
    for (wrong, word) in [("other=/x", "unknown domain"), ("NAME", "DOMAIN=FILE"), ("NAME=/nonexistent", "cannot open")]
    {
        let refused = asked(&["--guest-capture", wrong]);
        assert!(refused.code == 2 && refused.stderr.contains(word), "{wrong}: {}", refused.stderr);
    }
}

#[test]
fn two_files_of_one_name_are_both_shown_with_their_file() {
    let folder = capture();
    let files =
        [file(&folder, "a.xml", VM), file(&folder, "b.xml", VM), file(&folder, "c.xml", &VM.replace("NAME", "c"))];
    let tree = folder.path().to_str().unwrap();
    let document = run(&["--xml", &files[0], &files[1], &files[2], "--capture", tree, "--format", "json"]).stdout;
    let document: Value = serde_json::from_str(&document).unwrap();
    let names: Vec<&str> =
        document["domains"].as_array().unwrap().iter().map(|domain| domain["name"].as_str().unwrap()).collect();
    assert_eq!(names, [format!("NAME ({})", files[0]), format!("NAME ({})", files[1]), "c".to_owned()]);
}

#[test]
fn a_domain_that_is_named_is_shown_alone_with_the_host() {
    let (capture, good, bad) = (capture(), fixture(GOOD), fixture(BAD));
    let all = |more: &[&str]| {
        let mut arguments = vec!["--xml", good.to_str().unwrap(), bad.to_str().unwrap()];
        arguments.extend(["--capture", capture.path().to_str().unwrap()]);
        arguments.extend(more);
        run(&arguments)
    };
    let both = all(&[]).stdout;
    assert!(both.lines().any(|line| line.starts_with("win10 ")) && both.lines().any(|line| line.starts_with("web ")));
    let one = all(&["--domain", "web"]);
    assert!(one.stdout.lines().any(|line| line.starts_with("web ")), "{}", one.stdout);
    assert!(!one.stdout.contains("win10"), "{}", one.stdout);
    let unknown = all(&["--domain", "wbe"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("unknown domain `wbe`; there are: "), "{}", unknown.stderr);
}

#[test]
fn a_watch_prints_what_it_finds_and_ends_on_ctrl_c_by_what_is_left() {
    use std::io::{BufRead, BufReader};
    let schema: Value = serde_json::from_str(include_str!("../../../docs/reference/doctor-watch.schema.json")).unwrap();
    let (folder, bad) = (capture(), fixture(BAD));
    // Whoever runs the tests in the background may have Ctrl-C ignored, and a program that ignores it is not to be ended by it.
    let mut child = std::process::Command::new("env")
        .arg("--default-signal=INT")
        .arg(assert_cmd::cargo::cargo_bin("nearmetal"))
        .args(["doctor", "--watch", "3600", "--format", "json", "--only", "disk-bus-virtio"])
        .args(["--capture", folder.path().to_str().unwrap(), "--xml", bad.to_str().unwrap()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    check(&schema, &line, "line");
    assert_eq!((&line["change"], &line["scope"]["name"]), (&"found".into(), &"win10".into()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(run(&["--watch", "0"]).code, 2);
    assert_eq!(run(&["--watch", "--format", "sarif", "--capture", folder.path().to_str().unwrap()]).code, 2);
}

#[test]
fn a_fix_is_for_this_machine_and_says_so() {
    let capture = capture();
    let place = capture.path().to_str().unwrap();
    for arguments in [
        &["--capture", place, "--fix"][..],
        &["--xml", "a.xml", "--fix"],
        &["--only", "ksm-off-for-performance", "--fix"],
        &["--fix", "no-such-rule"],
        &["--dry-run"],
        &["--yes"],
        &["--fix", "--format", "sarif"],
        &["--fix", "--watch", "5"],
        &["--fix", "--guest-capture", "a=b"],
        &["--watch", "5", "export", "out"],
    ] {
        let run = run(arguments);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{arguments:?}: {}", run.stderr);
    }
}

#[test]
fn a_finding_says_what_would_cure_it() {
    let run = on("rules/virt-install/win10.xml", &[]);
    assert!(run.stdout.contains("fix: next start: "), "{}", run.stdout);
    assert!(run.stdout.contains("doctor --fix --dry-run"), "{}", run.stdout);
}
