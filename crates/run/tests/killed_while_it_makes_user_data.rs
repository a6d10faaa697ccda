//! Whoever is killed while the disk with user data is made: no file of it has a name, at no moment.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_host::files;
use nearmetal_run::seed::{UserData, make};

const UUID: &str = "11111111-2222-4333-8444-555555555555";

/// Not a test of its own: what the one below kills.
#[test]
#[ignore = "makes disks until it is killed"]
fn makes_disks_until_it_is_killed() {
    let Some(directory) = std::env::var_os("NEARMETAL_TEST_SEEDS") else { return };
    let directory = Path::new(&directory);
    let given = directory.with_file_name("user-data");
    files::write(&given, "#cloud-config\n").unwrap();
    let data = UserData::read(&given, None).unwrap();
    loop {
        make(directory, &data, "run-job-1", UUID).unwrap();
        files::write(&directory.with_file_name("made"), "").unwrap();
    }
}

#[test]
fn a_run_that_is_killed_while_it_makes_its_user_data_leaves_no_file() {
    if Command::new("mformat").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (seeds, made) = (directory.path().join("deltas"), directory.path().join("made"));
    for delay in [0, 1, 2, 3, 5, 7, 11, 13] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "makes_disks_until_it_is_killed"])
            .env("NEARMETAL_TEST_SEEDS", &seeds)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while files::metadata(&made).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(delay));
        // SIGKILL, at whatever it does by then.
        child.kill().unwrap();
        child.wait().unwrap();
        // mformat and mcopy may live a little longer, and must not make one either.
        for _ in 0..20 {
            assert!(files::list(&seeds).unwrap().is_empty(), "{delay} ms");
            sleep(Duration::from_millis(1));
        }
        files::remove(&made).unwrap();
    }
}
