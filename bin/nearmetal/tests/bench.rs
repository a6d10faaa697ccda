//! `nearmetal bench`: what it refuses before it touches anything, and what it lists without root and libvirt.
#![allow(clippy::unwrap_used, reason = "a test that cannot set itself up has failed")]

#[allow(dead_code, reason = "documents of all kinds, of which others are for the tests of reports")]
mod documents;

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use nearmetal_load::{FioJob, NetTest, Workload};
use nearmetal_measure::Over;
use nearmetal_results::{Begun, Link, NetPath, Results, Store, as_json};
use nearmetal_units::Bytes;
use serde_json::{Value, json};

/// Exit code and what was said.
fn bench(arguments: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nearmetal"));
    let state = tempfile::tempdir().unwrap();
    let output =
        command.env("NEARMETAL_STATE", state.path()).arg("bench").args(arguments.split_whitespace()).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code().unwrap(), said)
}

/// The plan of the sample job: it places web1.
fn plan() -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/results/job-sample/plan.json");
    format!("--plan {}", path.display())
}

/// Sixteen VMs and one more.
fn seventeen() -> String {
    (0..17).map(|number| format!("w{number} ")).collect()
}

const PORT: &str = "--port eth9 --peer 192.0.2.1 --address 192.0.2.10/24";

/// Every one of these ends with 2, and what it says contains the words on the right.
fn refused(cases: &[(String, &str)]) {
    for (arguments, words) in cases {
        let (code, said) = bench(arguments);
        assert_eq!(code, 2, "bench {arguments}: {said}");
        assert!(said.contains(words), "bench {arguments} does not say `{words}`: {said}");
    }
}

#[test]
fn help_lists_the_commands_and_gives_each_an_example() {
    let (code, help) = bench("--help");
    assert_eq!(code, 0, "{help}");
    for command in [
        "slice",
        "decisions",
        "pages",
        "inside",
        "drive",
        "disk",
        "net",
        "together",
        "history",
        "show",
        "resume",
        "compare",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))), "{command}: {help}");
    }
    for command in [
        "slice",
        "decisions",
        "pages",
        "inside",
        "drive",
        "disk list",
        "disk read-back",
        "disk race",
        "net list",
        "net read-back",
        "net race",
        "together",
        "history",
        "show",
        "resume",
        "compare",
    ] {
        let (code, help) = bench(&format!("{command} --help"));
        assert_eq!(code, 0, "{command}: {help}");
        assert!(help.contains(&format!("\n  nearmetal bench {command} ")), "{command} has no example: {help}");
    }
}

#[test]
fn a_flag_of_another_command_is_refused_by_its_name() {
    let cases = [
        ("slice web1", "--scratch"),
        ("slice web1 --scratch /dev/x --namespace 1", "--namespace"),
        ("slice web1 --scratch /dev/x --scratch /dev/y", "--scratch"),
        ("slice web1 --scratch /dev/x --resolve 3 --pairs 4", "--resolve"),
        ("slice web1 --scratch /dev/x --no-single-shots", "--quick"),
        ("slice web1 --scratch /dev/x --same-arm-pairs 1", "--same-arm-pairs"),
        ("inside web1 --pause --resolve 3 --pairs 4", "--resolve"),
        ("inside web1 --pause --block-size 4KiB", "--block-size"),
        ("inside web1 --pause --scratch /dev/x", "--scratch"),
        ("inside web1 --pause --workload random", "--workload"),
        ("inside web1 --pause --appliance /x", "--appliance"),
        ("inside web1 --pause --no-single-shots", "--no-single-shots"),
        ("drive web1 --workload random", "--workload"),
        ("drive web1 --resolve 3 --pairs 4", "--resolve"),
        ("drive web1 --scratch /dev/x", "--scratch"),
        ("drive web1 --no-memory", "--no-memory"),
        ("drive web1 nvme0", "FUNCTION"),
        ("disk list web1 --error 3", "--error"),
        ("disk list web1 --pause", "--pause"),
        ("disk read-back web1 --scratch /dev/x --pairs 3", "--pairs"),
        ("disk read-back web1", "--scratch"),
        ("disk race web1", "--scratch"),
        ("disk race web1 --scratch /dev/x --resolve 3", "--resolve"),
        ("disk race web1 --scratch /dev/x --quick", "--quick"),
        ("disk race web1 --scratch /dev/x --port eth9", "--port"),
        ("disk race web1 --scratch /dev/x --workload iozone", "iozone-ext4"),
        ("disk race web1 --scratch /dev/x --block-size 4KiB --block-size 8KiB", "--block-size"),
        ("net list web1", "--port"),
        ("net list web1 --port eth9 --chart x", "--chart"),
        ("net read-back web1 --port eth9", "--peer"),
        ("net race web1 --port eth9 --peer 192.0.2.1", "--address"),
        ("net race web1 --port eth9 --scratch /dev/x", "--scratch"),
        ("net race web1 --port eth9 --test ping", "--test"),
        ("net race web1 --port eth9 --peer nobody", "--peer"),
    ];
    refused(&cases.map(|(arguments, words)| (arguments.to_owned(), words)));
}

#[test]
fn vms_at_once_work_on_one_kind_of_thing_and_take_its_flags_alone() {
    let cases = [
        ("together w0 w1", "--scratch"),
        ("together w0 w1", "--drives"),
        ("together w0 w1", "--port"),
        ("together w0 --drives", "VM"),
        ("together w0 w1 --drives --scratch /dev/x", "--scratch"),
        ("together w0 w1 --drives --port eth9 --peer 192.0.2.1 --address 192.0.2.10/24", "--port"),
        ("together w0 w1 --drives --way bridge.vhost.q1", "--way"),
        ("together w0 w1 --drives --test tcp-rr", "--test"),
        ("together w0 w1 --scratch /dev/x --scratch /dev/y --namespace 1", "--namespace"),
        ("together w0 w1 --scratch /dev/x --scratch /dev/y --peer 192.0.2.1", "--peer"),
        ("together w0 w1 --drives --workload random", "--workload"),
        ("together w0 w1 --drives --resolve 3 --pairs 4", "--resolve"),
        ("together w0 w1 --port eth9", "--peer"),
        ("together w0 w1 --port eth9 --peer 192.0.2.1 --address 192.0.2.10/24 --block-size 4KiB", "--block-size"),
        ("together w0 w1 --port eth9 --peer 192.0.2.1 --address 192.0.2.10/24 --namespace 1", "--namespace"),
        ("together w0 w1 --port eth9 --peer 192.0.2.1 --address 192.0.2.10/24 --test sockperf-udp", "--test"),
        ("together w0 w1 --scratch /dev/x", "2 VMs and 1 scratch devices"),
        ("together w0 w0 --drives", "`w0` is named twice"),
    ];
    refused(&cases.map(|(arguments, words)| (arguments.to_owned(), words)));
}

#[test]
fn more_vms_than_can_begin_together_are_refused_whatever_they_work_on() {
    let (vms, scratch) = (seventeen(), "--scratch /dev/x ".repeat(17));
    let words = "17 VMs are named, and 16 at once is the most";
    refused(&[
        (format!("together {vms} {scratch}"), words),
        (format!("together {vms} --drives"), words),
        (format!("together {vms} {PORT}"), words),
    ]);
}

#[test]
fn what_the_user_named_wrongly_is_wrong_use_before_anything_is_touched() {
    let plan = plan();
    refused(&[
        ("disk list web1 --without main-lop".to_owned(), "main-loop"),
        (format!("disk race web1 --scratch /dev/x --without macvtap {plan}"), "--without"),
        (format!("net race web1 {PORT} --without qcow2-full {plan}"), "--without"),
        ("disk race web1 --scratch /dev/x --scratch /dev/x".to_owned(), "`/dev/x` is named twice"),
        ("net race web1 --port eth9 --peer 192.0.2.1 --address 192.0.3.1/24".to_owned(), "not in the network"),
        ("net read-back web1 --port eth9 --peer 192.0.2.1 --address 192.0.2.2".to_owned(), "--address"),
        ("together w0 w1 --port eth9 --peer 192.0.2.1 --address 192.0.3.1/24".to_owned(), "--address"),
        (format!("together web1 web2 {PORT} {plan}"), "`web2` is not in the plan"),
        (format!("slice db --scratch /dev/x {plan}"), "`db` is not in the plan, which places web1"),
        (format!("inside db --pause {plan}"), "`db` is not in the plan"),
        (format!("drive db {plan}"), "`db` is not in the plan"),
        (format!("disk list db {plan}"), "`db` is not in the plan"),
        (format!("net list db --port eth9 {plan}"), "`db` is not in the plan"),
        ("disk list web1".to_owned(), "no plan was applied to `web1` here"),
        ("disk list web1 --plan /nowhere/plan.json".to_owned(), "/nowhere/plan.json"),
        ("disk list web1 --plan Cargo.toml".to_owned(), "not a plan"),
        ("inside web1".to_owned(), "--pause"),
        (format!("drive web1 {plan}"), "is given no PCI function"),
        ("slice web1 --scratch /dev/x --span 64MiB".to_owned(), "--span"),
        ("slice web1 --scratch /dev/x --workload iozone --seconds 3".to_owned(), "--seconds"),
        ("disk race web1 --scratch /dev/x --workload iozone-xfs --seconds 3".to_owned(), "--seconds"),
    ]);
}

#[test]
fn ways_to_a_disk_are_listed_without_root_and_libvirt() {
    let (code, said) = bench(&format!("disk list web1 {} --without virtio-scsi", plan()));
    assert_eq!(code, 0, "{said}");
    for words in ["partition.none", "--without virtio-scsi", "--unsafe-loses-data", "at least"] {
        assert!(said.contains(words), "no `{words}`: {said}");
    }
}

#[test]
fn ways_to_a_network_are_listed_with_what_the_peer_must_run() {
    let (code, said) = bench(&format!("net list web1 --port eth9 --test sockperf-tcp {}", plan()));
    assert_eq!(code, 0, "{said}");
    for words in ["bridge.vhost.q1", "on the peer: `netserver` and `sockperf server --tcp"] {
        assert!(said.contains(words), "no `{words}`: {said}");
    }
}

/// Two measurements to compare: of each its experiment, its request and its document.
type Two<'a> = [(&'a str, Value, Results); 2];

/// What `bench compare` says of them.
fn compared(two: Two<'_>) -> (i32, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.sqlite");
    let mut store = Store::open(&path).unwrap();
    for (experiment, request, results) in two {
        let begun = Begun {
            experiment,
            guests: vec!["web1".to_owned()],
            created: results.created.clone(),
            environment: &results.environment,
            kernel: "6.12.41".to_owned(),
            qemu: "10.0.8".to_owned(),
            device: None,
            plan: None,
            request: request.to_string(),
        };
        let id = store.begin(&begun).unwrap();
        store.finish(id, &as_json(&results), None).unwrap();
    }
    bench(&format!("compare 1 2 --store {}", path.display()))
}

#[test]
fn measurements_of_two_experiments_are_not_compared() {
    let of = |experiment| (experiment, json!({}), documents::pairs(experiment));
    let (code, said) = compared([of("slice"), of("inside")]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("1 is of the experiment `slice` and 2 of the experiment `inside`"), "{said}");
    assert_eq!(compared([of("slice"), of("slice")]).0, 0);
}

#[test]
fn what_differs_between_two_measurements_of_an_experiment_is_said() {
    let conditions = json!({"seed": 1, "appliance": "", "probe": "", "state": "", "pause": true,
        "environment": {"kind": "silicon"}});
    let job = FioJob::first_seed(Bytes::from_kib(4), 5, 1);
    let fio = || documents::together(Workload::from(job.clone()));
    let together = |over: Over, results: Results| {
        let request = json!({"members": [], "over": over, "pairs": 3, "same_arm_pairs": 0, "scaling": true,
            "least_overlap": 0.8, "conditions": conditions});
        ("together", request, results)
    };
    let scratch = || Over::Scratch { job: job.clone(), devices: vec![] };
    let drives = Over::Drives { job: job.clone(), functions: vec![], namespace: None };
    let by = |way: NetPath| {
        let (peer, address) = ("192.0.2.1".parse().unwrap(), "192.0.2.10/24".to_owned());
        let over = Over::Port { way, test: NetTest::TcpStream, seconds: 3, port: "enp57s0".to_owned(), peer, address };
        together(over, documents::together_over_a_port())
    };
    let modes = |single: bool| {
        let request = json!({"guest": "web1", "xml": "", "memory": 1, "parts": [], "counts": [1], "pairs": 3,
            "workload": Workload::from(job.clone()), "single": single, "same_arm_pairs": 0, "least_overlap": 0.8,
            "quick": true, "conditions": conditions});
        ("modes", request, fio())
    };
    let mut elsewhere = fio();
    elsewhere.tenants[0].slice.device = "/dev/nvme9n1".to_owned();
    let differing: [(Two<'_>, &[&str]); 4] = [
        ([together(scratch(), fio()), together(drives, fio())], &["over: scratch devices -> drives of their own\n"]),
        (
            [by(NetPath::libvirt_default()), by(NetPath::hardware(Link::VfHostdev))],
            &["over: a port, by bridge.vhost.q1 -> a port, by vf-hostdev\n"],
        ),
        ([modes(false), modes(true)], &["programs: one on each node -> one over all nodes\n"]),
        (
            [together(scratch(), fio()), together(scratch(), elsewhere)],
            &["devices: /dev/nvme0n1, /dev/nvme1n1 -> /dev/nvme9n1, /dev/nvme1n1\n"],
        ),
    ];
    for (two, words) in differing {
        let (code, said) = compared(two);
        assert_eq!(code, 0, "{said}");
        let changed: Vec<&str> =
            said.split_inclusive('\n').filter(|line| line.contains(" -> ") && !line.contains("n = ")).collect();
        assert_eq!(changed, words, "{said}");
    }
}
