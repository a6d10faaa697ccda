use super::*;
use crate::disk::PathCache;
use crate::disk::race::tests::sample_matrix;
use crate::net::race::tests::sample_net_matrix;
use crate::samples::sample_results;

fn memory() -> Store {
    Store::prepare(Connection::open_in_memory().unwrap(), ":memory:".into()).unwrap()
}

fn lab() -> Environment {
    Environment::Lab { machine: "quad".into() }
}

fn begun<'a>(experiment: &'a str, guest: &str, environment: &'a Environment) -> Begun<'a> {
    Begun {
        experiment,
        guests: vec![guest.to_owned()],
        created: "2026-01-01T00:00:00Z".into(),
        environment,
        kernel: "6.12.41".into(),
        qemu: "10.0.3".into(),
        device: Some("QEMU NVMe Ctrl".into()),
        plan: Some("2026-01-01T00:00:00Z".into()),
        request: "{}".into(),
    }
}

#[test]
fn runs_are_kept_as_they_end_and_the_document_comes_last() {
    let (mut store, lab, results) = (memory(), lab(), sample_results());
    let id = store.begin(&begun("slice", "web1", &lab)).unwrap();
    for (number, run) in results.runs.iter().enumerate() {
        store.add_run(id, number as u32, 1, run).unwrap();
    }
    let entry = store.entry(id).unwrap();
    assert_eq!((entry.state, entry.runs as usize), (State::Running, results.runs.len()));
    let kept: Vec<Run> = store.runs(id).unwrap().into_iter().map(|(_, run)| run).collect();
    assert_eq!(kept, results.runs);
    let error = store.results(id).unwrap_err().to_string();
    assert!(error.contains("bench resume"), "{error}");
    store.give_up(id, "the drive is gone").unwrap();
    assert_eq!(store.entry(id).unwrap().state, State::Failed("the drive is gone".into()));
    store.finish(id, &serde_json::to_string(&results).unwrap(), None).unwrap();
    assert_eq!((store.entry(id).unwrap().state, store.results(id).unwrap()), (State::Done, results));
}

#[test]
fn a_run_takes_the_place_of_what_was_written_down_from_its_number_on() {
    let (mut store, lab, results) = (memory(), lab(), sample_results());
    let [id, other] = [0, 1].map(|_| store.begin(&begun("slice", "web1", &lab)).unwrap());
    let with_seed = |seed: u64| Run { seed, ..results.runs[0].clone() };
    for number in 1..=5 {
        store.add_run(id, number, 1, &with_seed(u64::from(number))).unwrap();
        store.add_run(other, number, 1, &with_seed(u64::from(number))).unwrap();
    }
    // The round that the third began is run again in fewer runs than before.
    store.add_run(id, 3, 1, &with_seed(13)).unwrap();
    store.add_run(id, 4, 1, &with_seed(14)).unwrap();
    let seeds = |id| store.runs(id).unwrap().iter().map(|(_, run)| run.seed).collect::<Vec<_>>();
    assert_eq!((seeds(id), seeds(other)), (vec![1, 2, 13, 14], vec![1, 2, 3, 4, 5]));
}

#[test]
fn a_store_of_the_version_before_is_read_and_its_measurements_have_no_times_yet() {
    let connection = Connection::open_in_memory().unwrap();
    for (_, statements) in &MIGRATIONS[..3] {
        connection.execute_batch(statements).unwrap();
    }
    connection.pragma_update(None, "user_version", 3).unwrap();
    let row = "INSERT INTO measurement (experiment, guests, created, version, environment, kernel, qemu, state, request)
         VALUES ('tune', '[\"web1\"]', '2026-01-01T00:00:00Z', '0.2.0', 'silicon', '6.12.41', '10.0.3', 'running', '{}')";
    connection.execute(row, []).unwrap();
    let mut store = Store::prepare(connection, ":memory:".into()).unwrap();
    assert_eq!((store.entry(1).unwrap().state, store.times(1).unwrap()), (State::Running, None));
    store.keep_times(1, "12.5").unwrap();
    assert_eq!(store.times(1).unwrap().as_deref(), Some("12.5"));
    assert!(store.times(2).unwrap_err().to_string().contains("no measurement 2"));
}

#[test]
fn history_is_of_one_guest_and_the_newest_first() {
    let (mut store, lab) = (memory(), lab());
    for guest in ["web1", "db1", "web1"] {
        store.begin(&begun("slice", guest, &lab)).unwrap();
    }
    let ids = |guest| store.entries(guest).unwrap().iter().map(|entry| entry.id).collect::<Vec<_>>();
    assert_eq!((ids(Some("web1")), ids(Some("db1")), ids(None).len()), (vec![3, 1], vec![2], 3));
    let error = store.entry(9).unwrap_err().to_string();
    assert!(error.contains("no measurement 9") && error.contains("newest is 3"), "{error}");
}

#[test]
fn a_race_is_found_by_device_kernel_and_environment_and_by_nothing_else() {
    let (mut store, lab) = (memory(), lab());
    let results = sample_matrix(PathCache::None);
    for (guest, seed) in [("web1", 1), ("db1", 7)] {
        let id = store.begin(&begun("disk", guest, &lab)).unwrap();
        let document = crate::MatrixResults { guest: guest.into(), seed, ..results.clone() };
        store.finish(id, &serde_json::to_string(&document).unwrap(), Some("x")).unwrap();
    }
    // One that never ended is no answer.
    store.begin(&begun("disk", "web1", &lab)).unwrap();
    let find = |device: &str, kernel: &str, guest: &str, environment: &Environment| {
        store.newest_matrix(device, kernel, guest, environment).unwrap().map(|found| (found.guest, found.seed))
    };
    let drive = "QEMU NVMe Ctrl";
    assert_eq!(find(drive, "6.12.41", "web1", &lab), Some(("web1".into(), 1)), "its own goes first");
    assert_eq!(find(drive, "6.12.41", "new", &lab), Some(("db1".into(), 7)), "else the newest");
    assert_eq!(find(drive, "6.13.0", "web1", &lab), None);
    assert_eq!(find("another", "6.12.41", "web1", &lab), None);
    assert_eq!(find(drive, "6.12.41", "web1", &Environment::Silicon), None, "lab figures stay in the lab");
    let elsewhere = Environment::Lab { machine: "other".into() };
    assert_eq!(find(drive, "6.12.41", "web1", &elsewhere), None);
    assert!(store.newest_net_matrix(drive, "6.12.41", "web1", &lab).unwrap().is_none(), "a disk's is not a network's");
}

#[test]
fn what_the_version_before_wrote_is_carried_over() {
    let connection = Connection::open_in_memory().unwrap();
    for (_, statements) in &MIGRATIONS[..2] {
        connection.execute_batch(statements).unwrap();
    }
    connection.pragma_update(None, "user_version", 2).unwrap();
    let fio = serde_json::to_string(&sample_results().runs[0].workload).unwrap();
    let slice = serde_json::to_string(sample_results().slice().unwrap()).unwrap();
    connection
        .execute(
            "INSERT INTO experiment VALUES (1, '2026-01-01T00:00:00Z', '0.1.0', 'lab', 'quad', 1, 5, 'web1', ?1, '[]', ?2)",
            params![slice, r#"{"host kernel": "6.12.41", "hypervisor": "QEMU 10.0.3"}"#],
        )
        .unwrap();
    connection
        .execute("INSERT INTO arm VALUES (1, 'planned', 'as planned', '/dev/x1', NULL, NULL, 'a\nb')", [])
        .unwrap();
    let run =
        "INSERT INTO run VALUES (1, 1, 'planned', 0, 0, '\"pair\"', 'fio', ?1, 3, '2026-01-01T00:00:01Z', 6.5, NULL)";
    connection.execute(run, params![fio]).unwrap();
    connection.execute("INSERT INTO sample VALUES (1, 'iops', 'IOPS', 1234.5)", []).unwrap();
    let net = serde_json::to_string(&sample_net_matrix()).unwrap();
    let matrix = "INSERT INTO matrix VALUES (1, '2026-01-02T00:00:00Z', 'net', 'lab', 'quad', 'igb 8086:10c9', '6.12.41', '10.0.3', 'web1', 'bare', ?1)";
    connection.execute(matrix, params![net]).unwrap();

    let store = Store::prepare(connection, ":memory:".into()).unwrap();
    let results = store.results(1).unwrap();
    assert_eq!((results.guest(), results.seed, results.arms[0].placement.len()), ("web1", 5, 2));
    assert_eq!(results.runs[0].value("iops").map(|metric| metric.value), Some(1234.5));
    let entry = store.entry(1).unwrap();
    assert_eq!((entry.kernel.as_str(), entry.qemu.as_str(), entry.request), ("6.12.41", "QEMU 10.0.3", None));
    let found = store.newest_net_matrix("igb 8086:10c9", "6.12.41", "web1", &lab()).unwrap();
    assert_eq!(found.map(|found| found.turns), Some(sample_net_matrix().turns));
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    let connection = Connection::open_in_memory().unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    let error = Store::prepare(connection, "x".into()).unwrap_err().to_string();
    assert!(error.contains("99") && error.contains("knows 4"), "{error}");
}

#[test]
fn a_store_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("results.sqlite");
    drop(Store::open(&path).unwrap());
    assert_eq!(nearmetal_host::files::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}
