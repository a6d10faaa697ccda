use super::*;
use nearmetal_host::files;
use std::os::unix::fs::{PermissionsExt, symlink};

const UUID: &str = "1a2b3c4d-2222-4333-8444-555555555555";

/// A program in the place of libvirt's daemon: a shell script.
fn program(directory: &Path, name: &str, script: &str) -> PathBuf {
    let path = directory.join(name);
    files::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    path
}

/// A short one: sockets lie below it.
fn base() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("").rand_bytes(2).tempdir_in("/tmp").unwrap()
}

#[test]
fn a_directory_is_closed_to_others_held_while_its_run_lives_and_gone_with_it() {
    let base = base();
    let directory = Directory::make(base.path(), UUID).unwrap();
    let path = base.path().join("nearmetal-1a2b3c4d");
    assert_eq!(directory.path(), path);
    assert_eq!(files::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    directory.configure().unwrap();
    assert!(files::read_to_string(&path.join("libvirt/qemu.conf")).unwrap().contains("max_core = 0"));
    // A second run with the same digits, and a sweep beside it.
    assert!(Directory::make(base.path(), UUID).is_err());
    assert!(sweep(&HostFs::live(), base.path()).is_empty());
    assert!(path.exists());
    drop(directory);
    assert!(!path.exists());
}

#[test]
fn a_path_that_is_too_long_for_sockets_is_refused_with_both_numbers() {
    let base = base();
    let long = base.path().join("x".repeat(30));
    files::create_dir_all(&long).unwrap();
    let refused = Directory::make(&long, UUID).unwrap_err().to_string();
    assert!(refused.contains("107 is the limit"), "{refused}");
    assert!(files::list(&long).unwrap().is_empty());
    // The usual place has room for all of them.
    assert!(Path::new(BASE).join("nearmetal-1a2b3c4d").as_os_str().len() + 1 + 80 <= 107);
}

#[test]
fn what_a_killed_run_left_is_removed_with_its_daemon_and_nothing_else_is() {
    let base = base();
    let left = base.path().join("nearmetal-00000001");
    for path in [&left, &base.path().join("nearmetal-short"), &base.path().join("nearmetal-0000000g")] {
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(path).unwrap();
    }
    // One that is open to others is no run's.
    let open = base.path().join("nearmetal-00000002");
    files::create_dir_all(&open).unwrap();
    rustix::fs::chmod(&open, rustix::fs::Mode::from_raw_mode(0o755)).unwrap();
    symlink(&open, base.path().join("nearmetal-00000003")).unwrap();
    files::write(&left.join("socket"), "x").unwrap();
    let mut daemon =
        std::process::Command::new("sleep").arg("600").env(daemon::RUNTIME, daemon::runtime(&left)).spawn().unwrap();
    let mut other = std::process::Command::new("sleep").arg("600").env(daemon::RUNTIME, &left).spawn().unwrap();
    assert!(sweep(&HostFs::live(), base.path()).is_empty());
    assert!(!left.exists());
    assert!(!daemon.wait().unwrap().success());
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(files::list(base.path()).unwrap().len(), 4);
}

#[test]
fn a_daemon_that_does_not_come_up_is_told_in_its_own_words_and_leaves_nothing() {
    let base = base();
    let script = "echo \"cannot do it as $(basename $XDG_RUNTIME_DIR) $1 $2\" >&2; exit 6";
    let program = program(base.path(), "libvirtd", script);
    let directory = Directory::make(base.path(), UUID).unwrap();
    let refused = Session::start(directory, &program, &mut || None).unwrap_err().to_string();
    assert!(refused.contains("exit status: 6") && refused.contains("cannot do it as run --timeout 5"), "{refused}");
    assert!(!base.path().join("nearmetal-1a2b3c4d").exists());
}

#[test]
fn a_signal_is_heard_while_the_daemon_comes_up_and_nothing_is_left() {
    let base = base();
    let program = program(base.path(), "libvirtd", "exec sleep 100");
    let directory = Directory::make(base.path(), UUID).unwrap();
    let began = std::time::Instant::now();
    let mut looks = 0;
    let mut signal = || {
        looks += 1;
        (looks > 3).then_some(15)
    };
    let interrupted = Session::start(directory, &program, &mut signal).unwrap_err();
    assert!(matches!(interrupted, RunError::Interrupted(15)), "{interrupted}");
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    assert!(!base.path().join("nearmetal-1a2b3c4d").exists());
}

#[test]
fn the_programs_of_this_host_are_found_by_path_and_where_daemons_are() {
    let base = base();
    let path = base.path().as_os_str();
    let found = program(base.path(), "virtqemud", "");
    assert_eq!(find_program(path), Some(found.clone()));
    program(base.path(), "libvirtd", "");
    // The one with QEMU's driver alone goes first.
    assert_eq!(find_program(path), Some(found));
    assert!(find_program(std::ffi::OsStr::new("relative")).is_none_or(|found| found.is_absolute()));
}
