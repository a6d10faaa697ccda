//! What is made of a sample: the requests it is told by, its figures, and its words.

use nearmetal_load::{FileJob, FileSystem, FioJob, Unit};
use nearmetal_units::Bytes;

use super::*;
use crate::barrier::Ahead;

fn fio(size: u64) -> Workload {
    FioJob::first_seed(Bytes::new(size), 3, 1).into()
}

#[test]
fn requests_are_told_where_all_ask_for_the_same_of_devices_that_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link");
    rustix::fs::symlinkat("/dev/null", rustix::fs::CWD, &link).unwrap();
    let bare = Seat::bare(&link.display().to_string());
    let (guest, gone) = (Seat::guest("one", "/dev/vdb"), Seat::bare("/dev/nothing/of/that/name"));
    let (four, eight) = (fio(4096), fio(8192));
    let told = |seats: &[&Seat], loads: &[&Workload]| {
        let seats: Vec<Seat> = seats.iter().copied().cloned().collect();
        requests(&seats, loads).map(|requests| (requests.size, requests.devices))
    };
    let of_four = |devices: &[&str]| {
        let devices: Vec<String> = devices.iter().map(|one| (*one).to_owned()).collect();
        Some((Bytes::new(4096), devices))
    };
    assert_eq!(told(&[&bare], &[&four]), of_four(&["null"]), "the kernel counts by its own name");
    assert_eq!(told(&[&guest], &[&four]), of_four(&[]), "what a guest asks for goes through its QEMU");
    assert_eq!(told(&[&bare, &bare], &[&four, &four]), of_four(&["null"]), "two on one device");
    assert_eq!(told(&[&bare, &bare], &[&four, &eight]), None, "two sizes are no number of requests");
    assert_eq!(told(&[&gone], &[&four]), None);
    let files: Workload = FileJob::fourth_seed(FileSystem::Xfs, Bytes::from_kib(64), Bytes::from_mib(64)).into();
    assert_eq!(told(&[&bare], &[&files]), None, "a file system makes its own requests");
}

#[test]
fn rates_of_tenants_add_up_and_their_clocks_are_as_sure_as_the_least_sure() {
    let said = |rate: u32, began: u32| {
        format!(
            r#"{{"jobs":[{{"error":0,"job_start":{began},"job_runtime":1000,
            "read":{{"iops":{rate},"bw_bytes":1,"total_ios":{rate}}},"write":{{"iops":0,"bw_bytes":0,"total_ios":0}}}}]}}"#
        )
    };
    let slice = nearmetal_results::samples::sample_results().tenants[0].slice.clone();
    let tenants = ["one", "two"].map(|name| Tenant::new(name, slice.clone()));
    let load = fio(4096);
    // The second guest's clock is 5 s before the host's, and known to 2 ms.
    let ahead = Ahead { by: 5_000_000_000, give_or_take: 2_000_000 };
    let told = [
        Told { output: said(700, 10_000), clock: Ahead { give_or_take: 500_000, ..Ahead::HOST } },
        Told { output: said(300, 15_000), clock: ahead },
    ];
    let sample = read(&tenants, &[Seat::guest("a", ""), Seat::guest("b", "")], &[&load, &load], &told).unwrap();
    assert_eq!(sample.metrics.iter().map(|metric| metric.value).collect::<Vec<_>>(), [1000.0]);
    let together = sample.together.unwrap();
    assert_eq!((together.overlap, together.clocks_within), (1.0, 2.0));
    assert_eq!(together.parts.iter().map(|part| part.rate).collect::<Vec<_>>(), [700.0, 300.0]);
}

#[test]
fn costs_are_given_for_each_of_what_the_load_did() {
    let metric = |name: &str, unit, value| Metric { name: name.to_owned(), unit, value };
    let mut sample = Sample {
        metrics: vec![metric("bandwidth", Unit::BytesPerSecond, 4e6), metric("iops", Unit::Iops, 1000.0)],
        notes: vec!["of the load".to_owned()],
        together: None,
        thrown_away: None,
        neighbours: None,
    };
    // In two seconds: 8000 exits, and 4 ms of the slice.
    let counted = Watched::of_two_seconds(&[
        (nearmetal_load::Cost::Exits, "all", 8000),
        (nearmetal_load::Cost::Cpu, "pus-of-the-slice", 4_000_000),
    ]);
    let load = fio(4096);
    add_costs(
        &mut sample,
        &[&load],
        &[Told { output: String::new(), clock: Ahead::HOST }],
        Some(nearmetal_load::Each::Io),
        &counted,
        false,
    );
    let value = |name: &str| sample.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value);
    assert_eq!((value("cost.exits.all"), value("cpu.host")), (Some(4.0), Some(2000.0)), "{:?}", sample.metrics);
    assert_eq!(sample.notes, ["of the load", "not counted: what a test leaves out"]);
    let before = sample.metrics.clone();
    add_costs(&mut sample, &[&load], &[Told { output: String::new(), clock: Ahead::HOST }], None, &counted, false);
    assert_eq!(sample.metrics, before, "a load whose costs are not counted");
}

#[test]
fn what_was_not_counted_is_named_behind_the_advice() {
    assert_eq!(because(&[]), "");
    assert_eq!(because(&["no perf".to_owned(), "no tracefs".to_owned()]), "; no perf; no tracefs");
}

#[test]
fn a_partition_of_a_drive_with_paths_is_counted_as_the_drive() {
    let head = std::path::Path::new("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n2/nvme0n2p1");
    assert_eq!(counted_as(head, true).as_deref(), Some("nvme0n2"));
    assert_eq!(counted_as(head.parent().unwrap(), false), None, "the drive itself");
    let other = std::path::Path::new("/sys/devices/pci0000:00/0000:00:03.0/virtio1/block/vda/vda1");
    assert_eq!(counted_as(other, true), None, "those of most drives have counters of their own");
}

#[test]
fn accesses_that_were_counted_while_a_program_did_not_work_do_not_count() {
    let window = |began: f64, ended: f64| Window { began, ended };
    let part = |guest: &str, window| Part { guest: guest.to_owned(), rate: 1.0, window, metrics: Vec::new() };
    let why = |parts: Vec<Part>| others_work(window(1000.0, 2000.0), &Together { parts, ..Together::default() });
    assert_eq!(why(vec![part("a", window(900.0, 2100.0)), part("b", window(1100.0, 2000.0))]), None);
    let early = why(vec![part("a", window(900.0, 2100.0)), part("b", window(0.0, 1300.0))]).unwrap();
    assert!(early.contains("`b` worked for 30 %") && early.contains("--seconds"), "{early}");
    assert!(why(vec![part("a", window(2500.0, 3500.0))]).unwrap().contains("for 0 %"));
}
