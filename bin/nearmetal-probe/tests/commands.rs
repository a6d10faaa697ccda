//! The program as its users run it. These tests read the machine they run on, and claim nothing about it beyond what
//! every Linux with /proc has; what depends on the machine is compared with what the kernel says there.

#![allow(clippy::unwrap_used, reason = "a test says by panicking that it failed")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use assert_cmd::Command;
use serde_json::Value;

fn probe(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nearmetal-probe"));
    command.args(arguments);
    command
}

/// Runs a command that succeeds; returns its result and what it said on standard error.
fn result_of(arguments: &[&str]) -> (Value, String) {
    let output = probe(arguments).output().unwrap();
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {remarks}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "one JSON object, on one line");
    let mut envelope: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(envelope["schema"], "nearmetal-probe");
    assert_eq!(envelope["schema_version"], 1);
    (envelope["result"].take(), remarks)
}

/// Runs a command that fails with this code; returns what it said. Nothing may be on standard output.
fn failure_of(arguments: &[&str], code: i32) -> String {
    let output = probe(arguments).output().unwrap();
    let remarks = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {remarks}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    remarks
}

/// A CPU this process may use.
fn some_cpu() -> String {
    let (binding, _) = result_of(&["see-binding"]);
    let cpus = binding["cpus"].as_str().unwrap().to_owned();
    cpus.split([',', '-']).next().unwrap().to_owned()
}

#[test]
fn bind_holds_in_the_command_it_becomes() {
    let cpu = some_cpu();
    let this = assert_cmd::cargo::cargo_bin!("nearmetal-probe").to_str().unwrap().to_owned();
    let (binding, _) = result_of(&["bind", "--cpus", &cpu, "--", &this, "see-binding"]);
    assert_eq!(binding["cpus"], cpu.as_str());
    // The kernel's other witness: /proc/self/status of the command.
    let output =
        probe(&["bind", "--cpus", &cpu, "--", "grep", "Cpus_allowed_list", "/proc/self/status"]).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    assert_eq!(line.split_whitespace().last(), Some(cpu.as_str()));
}

#[test]
fn bind_holds_for_memory_where_the_kernel_has_nodes() {
    let (before, _) = result_of(&["see-binding"]);
    let Some(node) = before["page_node"].as_u64() else {
        eprintln!("skipped: this kernel does not say which node a page is on");
        return;
    };
    let node = node.to_string();
    let this = assert_cmd::cargo::cargo_bin!("nearmetal-probe").to_str().unwrap().to_owned();
    let (binding, _) = result_of(&["bind", "--nodes", &node, "--", &this, "see-binding"]);
    assert_eq!(binding["memory_policy"], "bind");
    assert_eq!(binding["nodes"], node.as_str());
    assert_eq!(binding["page_node"].as_u64(), before["page_node"].as_u64());
}

#[test]
fn bind_passes_the_commands_exit_code_on() {
    probe(&["bind", "--cpus", &some_cpu(), "--", "sh", "-c", "exit 42"]).assert().code(42);
}

#[test]
fn bind_refuses_what_the_kernel_dropped_in_silence() {
    let cpu = some_cpu();
    let remarks = failure_of(&["bind", "--cpus", &format!("{cpu},8191"), "--", "echo", "ran"], 3);
    assert!(remarks.contains(&format!("CPU affinity: asked for {cpu},8191, the kernel has {cpu}")), "{remarks}");
    let remarks = failure_of(&["bind", "--cpus", "8191", "--", "echo", "ran"], 3);
    assert!(remarks.contains("CPUs 8191"), "{remarks}");
    let remarks = failure_of(&["bind", "--nodes", "1023", "--", "echo", "ran"], 3);
    assert!(remarks.contains("1023"), "{remarks}");
    let remarks = failure_of(&["bind", "--cpus", &cpu, "--", "/no/such/program"], 3);
    assert!(remarks.contains("/no/such/program"), "{remarks}");
}

#[test]
fn wrong_use_is_told_from_refusal() {
    for (arguments, named) in [
        (&["bind", "--cpus", "3-1", "--", "true"][..], "3-1"),
        (&["bind", "--cpus", "8192", "--", "true"], "8192"),
        (&["bind", "--cpus", "", "--", "true"], "--cpus"),
        (&["bind", "--cpus", "0"], "COMMAND"),
        (&["memory", "latency", "--size", "1024TiB"], "64 GiB"),
        (&["memory", "latency", "--size", "99999999999999999999"], "99999999999999999999"),
        (&["memory", "latency", "--size", "1"], "4 KiB"),
        (&["memory", "latency", "--samples", "0"], "from 3 to 100000"),
        (&["memory", "latency", "--loads", "18446744073709551615"], "1000000000"),
        (&["memory", "latency", "--page-size", "1g"], "1g"),
        (&["memory", "bandwidth", "--threads", "0"], "from 1 to 4096"),
        (&["memory", "bandwidth", "--threads", "4000", "--size", "1MiB"], "4000 threads"),
        (&["memory", "work", "--threads", "4097"], "from 1 to 4096"),
        (&["memory", "work", "--seconds", "0"], "from 1 to 3600"),
        (&["memory", "work", "--threads", "3", "--size", "512KiB"], "256 KiB per thread (3 threads)"),
        (&["nonsense"], "nonsense"),
    ] {
        let remarks = failure_of(arguments, 2);
        assert!(remarks.contains(named), "{arguments:?}: {remarks}");
    }
}

#[test]
fn latency_reports_samples_and_backing() {
    for pattern in ["groups", "page"] {
        let arguments =
            ["memory", "latency", "--size", "1MiB", "--samples", "5", "--loads", "1000", "--pattern", pattern];
        let (result, _) = result_of(&arguments);
        assert_eq!(result["pattern"], pattern);
        assert_eq!(result["size_bytes"], 1 << 20);
        assert_eq!(result["places"], if pattern == "page" { 256 } else { 4096 });
        assert_eq!(result["loads_per_sample"], 1008);
        assert_eq!(result["latency"]["unit"], "ns/load");
        assert_eq!(result["latency"]["values"].as_array().unwrap().len(), 5);
        assert!(result["latency"]["minimum"].as_f64().unwrap() > 0.0);
        assert_eq!(result["backing"]["got"], "4k");
        assert_eq!(result["backing"]["as_asked"], true);
    }
}

#[test]
fn other_pages_than_asked_for_are_never_silent() {
    let arguments = ["memory", "latency", "--size", "4MiB", "--samples", "3", "--loads", "1000", "--page-size", "2m"];
    let (result, remarks) = result_of(&arguments);
    let backing = &result["backing"];
    assert_eq!(backing["asked"], "2m");
    if backing["got"] == "2m" {
        assert_eq!(backing["as_asked"], true);
        return;
    }
    assert_eq!(backing["as_asked"], false);
    let reason = backing["reason"].as_str().unwrap();
    assert!(remarks.contains(reason), "{remarks}");
    let refusal = failure_of(&[&arguments[..], &["--require-page-size"]].concat(), 3);
    assert!(refusal.contains("2m were demanded"), "{refusal}");
}

#[test]
fn bandwidth_runs_four_kernels_and_says_how() {
    let arguments =
        ["memory", "bandwidth", "--size", "2MiB", "--samples", "3", "--threads", "2", "--instructions", "sse2"];
    let (result, _) = result_of(&arguments);
    assert_eq!(result["instructions"], "sse2");
    assert_eq!(result["stores"], "ordinary");
    assert_eq!(result["thread_cpus"].as_array().unwrap().len(), 2);
    let kernels = result["kernels"].as_array().unwrap();
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel["kernel"].as_str().unwrap()).collect();
    assert_eq!(names, ["read", "write", "copy", "triad"]);
    for kernel in kernels {
        assert_eq!(kernel["bandwidth"]["unit"], "bytes/s");
        assert_eq!(kernel["bandwidth"]["values"].as_array().unwrap().len(), 3);
        assert!(kernel["bandwidth"]["minimum"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn work_counts_loads_and_says_when_it_ran() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64() * 1e3;
    let before = now();
    let (result, _) = result_of(&["memory", "work", "--threads", "2", "--seconds", "1", "--size", "2MiB"]);
    let after = now();
    let number = |name: &str| result[name].as_f64().unwrap();
    assert_eq!((number("threads"), number("size_bytes")), (2.0, f64::from(2 << 20)));
    let (began, ended) = (number("began_ms"), number("ended_ms"));
    assert!(
        before <= began + 1.0 && began + 999.0 <= ended && ended <= after + 1.0,
        "{before} {began} {ended} {after}"
    );
    let (loads, rate) = (number("loads"), number("loads_per_second"));
    // The rate counts from the first begin, which is not later than that of all.
    assert!(loads > 0.0 && rate > 0.0 && rate <= loads * 1.001, "{loads} {rate}");
    let each: Vec<f64> = result["each"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect();
    assert!(each.len() == 2 && each.iter().all(|rate| *rate > 0.0), "{each:?}");
    assert_eq!(result["backing"].as_array().unwrap().len(), 2);
    assert_eq!(result["backing"][1]["mapping_bytes"], 1 << 20);
}

#[test]
fn work_ends_where_threads_or_memory_run_out() {
    let limited = |kibibytes: u32, arguments: &str| {
        let this = assert_cmd::cargo::cargo_bin!("nearmetal-probe").to_str().unwrap().to_owned();
        let script = format!("ulimit -v {kibibytes} && exec '{this}' memory work --seconds 3600 {arguments}");
        let output = Command::new("sh").args(["-c", &script]).timeout(std::time::Duration::from_secs(60)).output();
        let output = output.unwrap();
        let remarks = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{remarks}");
        assert!(output.stdout.is_empty());
        remarks
    };
    // Each thread needs 2 MiB of addresses for its stack.
    let remarks = limited(400_000, "--threads 400 --size 100MiB");
    assert!(remarks.contains("start 400 threads"), "{remarks}");
    let remarks = limited(120_000, "--threads 2 --size 200MiB");
    // For its buffer, or, where one thread got that, for the order of its walk.
    assert!(["give 104857600 bytes", "give 1638400 bytes"].iter().any(|words| remarks.contains(words)), "{remarks}");
}

#[test]
fn the_kvm_verdict_is_data() {
    let (result, _) = result_of(&["kvm"]);
    let verdict = result["verdict"].as_str().unwrap();
    assert!(["accelerates", "emulates", "absent", "not permitted"].contains(&verdict), "{verdict}");
    assert_eq!(result["threshold"], 0.1);
    if verdict == "absent" || verdict == "not permitted" {
        eprintln!("skipped the figures: /dev/kvm is {verdict} here ({})", result["reason"]);
        assert_eq!(result["rate"], Value::Null);
        return;
    }
    let ratio = result["rate"]["ratio"].as_f64().unwrap();
    assert_eq!(verdict == "accelerates", ratio >= 0.1, "{ratio}");
    assert_eq!(result["exit_to_user_space"]["cost"]["unit"], "ns/exit");
    assert!(result["exit_to_user_space"]["cost"]["median"].as_f64().unwrap() > 0.0);
    // Half a second is usual; a crowded test machine gets more.
    assert!(result["elapsed_ns"].as_u64().unwrap() < 3_000_000_000, "{}", result["elapsed_ns"]);
}

#[test]
fn see_reads_a_captured_tree_instead_of_the_machine() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("sys/devices/system/clocksource/clocksource0");
    nearmetal_host::files::create_dir_all(&directory).unwrap();
    nearmetal_host::files::write(&directory.join("current_clocksource"), "not-of-this-machine\n").unwrap();
    let (result, _) = result_of(&["see", "--root", root.path().to_str().unwrap()]);
    assert_eq!(result["clock_source"]["current"], "not-of-this-machine");
    let remarks = failure_of(&["see", "--root", "/no/such/tree"], 3);
    assert!(remarks.contains("/no/such/tree"), "{remarks}");
}

#[test]
fn see_shows_this_machine() {
    let (result, _) = result_of(&["see"]);
    assert!(!result["host"]["processors"].as_array().unwrap().is_empty());
}

#[test]
fn at_begins_at_its_moment_and_never_late() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let moment = now() + 300_000_000;
    let output = probe(&["at", "--nanoseconds", &moment.to_string(), "--", "echo", "begun"]).output().unwrap();
    assert!(now() >= moment, "it did not wait");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "begun\n");
    let soon = (now() + 100_000_000).to_string();
    let output =
        probe(&["at", "--nanoseconds", &soon, "--stamp", "--", "sh", "-c", "echo begun; sleep 0.1"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let stamp = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.parse::<u128>().ok()).unwrap();
    assert!(text.starts_with("begun\n") && stamp("ENDED=") - stamp("BEGAN=") >= 100_000_000, "{text}");
    let soon = (now() + 100_000_000).to_string();
    let failing = ["at", "--nanoseconds", &soon, "--stamp", "--", "sh", "-c", "exit 7"];
    assert!(failure_of(&failing, 3).contains("exit status: 7"));
    assert!(failure_of(&["at", "--nanoseconds", "1000", "--", "echo"], 3).contains("late"));
    let far = (now() + 3_600_000_000_000).to_string();
    assert!(failure_of(&["at", "--nanoseconds", &far, "--", "echo"], 2).contains("ahead"));
}

#[test]
fn reach_waits_for_a_server_and_says_when_there_is_none() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    assert!(probe(&["reach", "--address", &address.to_string(), "--seconds", "5"]).output().unwrap().status.success());
    drop(listener);
    let late = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.accept().unwrap();
    });
    let reached = probe(&["reach", "--address", &address.to_string(), "--seconds", "20"]).output().unwrap();
    assert!(reached.status.success(), "{reached:?}");
    late.join().unwrap();
    let said = failure_of(&["reach", "--address", &address.to_string(), "--seconds", "1"], 3);
    assert!(said.contains(&address.to_string()) && said.contains("within 1 s"), "{said}");
}
