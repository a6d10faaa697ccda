//! Who may do what at the desk, whoever looks.

use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use nearmetal_host::files;

use super::tests::reservation;
use super::*;
use crate::RunError;
use crate::function::Lent;
use crate::recover::forget_others;

fn desk() -> (tempfile::TempDir, Desk) {
    let directory = tempfile::tempdir().unwrap();
    let desk = Desk::at(directory.path().join("runs"));
    (directory, desk)
}

#[test]
fn a_reservation_is_held_until_its_run_ends_and_says_then_what_it_had() {
    let (_directory, desk) = desk();
    let claim = desk.turn().unwrap().reserve(reservation("run-a", "1-2")).unwrap();
    let seen = desk.turn().unwrap().look().unwrap();
    assert!(seen.len() == 1 && seen[0].held);
    assert_eq!(seen[0].whole().unwrap(), Some(claim.reservation()));
    // As the kernel does when a process is killed.
    drop(claim);
    let turn = desk.turn().unwrap();
    // A program that another test starts has all descriptors of this process until it is there.
    let began = Instant::now();
    while turn.look().unwrap()[0].held {
        assert!(began.elapsed() < Duration::from_secs(10), "it is held by nobody");
    }
    let seen = turn.look().unwrap();
    assert!(seen[0].whole().unwrap().is_some());
    turn.forget(&seen[0]).unwrap();
    assert!(turn.look().unwrap().is_empty());
}

#[test]
fn a_run_that_waits_for_its_turn_hears_a_signal() {
    let (_directory, desk) = desk();
    let _held = desk.turn().unwrap();
    let mut looks = 0;
    let mut signal = || {
        looks += 1;
        (looks > 3).then_some(15)
    };
    assert!(matches!(desk.turn_unless(&mut signal), Err(RunError::Interrupted(15))));
}

#[test]
fn what_was_amended_counts_and_a_line_that_is_cut_off_does_not() {
    let (_directory, desk) = desk();
    let turn = desk.turn().unwrap();
    let mut claim = turn.reserve(reservation("run-a", "1")).unwrap();
    claim.amend(|reservation| reservation.pid = 8).unwrap();
    let path = claim.path.clone();
    assert_eq!(turn.others(&|_| false).unwrap()[0].pid, 8);
    claim.file.write_all(b"{\"schema\":\"nearm").unwrap();
    assert_eq!(turn.others(&|_| false).unwrap()[0].pid, 8);
    claim.amend(|reservation| reservation.pid = 9).unwrap();
    assert_eq!(turn.others(&|_| false).unwrap()[0].pid, 9);
    claim.release().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_name_is_reserved_once_and_hostile_lines_say_nothing() {
    let (_directory, desk) = desk();
    let turn = desk.turn().unwrap();
    let _claim = turn.reserve(reservation("run-a", "1")).unwrap();
    assert!(matches!(turn.reserve(reservation("run-a", "2")), Err(RunError::File(_))));
    let line = |name: &str| serde_json::to_string(&reservation(name, "1")).unwrap() + "\n";
    assert!(matches!(Said::parse(&line("run-b")), Said::Whole(_)));
    for begun in ["", "\n", line("run-b").trim_end()] {
        assert_eq!(Said::parse(begun), Said::Nothing, "{begun}");
    }
    let newer = line("run-b").replace("\"pid\"", "\"colour\":1,\"pid\"");
    for other in ["{}\n", &line("../x"), &line("run-b").replace(SCHEMA, "nearmetal.reservation/9"), &newer] {
        assert_eq!(Said::parse(other), Said::Unknown, "{other}");
    }
}

#[test]
fn functions_in_a_users_file_are_nobodys() {
    let (_directory, desk) = desk();
    let functions = vec![Lent::nothing_known("0000:39:10.0".parse().unwrap())];
    let turn = desk.turn().unwrap();
    let claim = turn.reserve(Reservation { functions, ..reservation("run-a", "1") }).unwrap();
    assert_eq!(desk.living().unwrap()[0].functions.len(), 1);
    // As another user's: root can make the file one, and everybody else is seen as one.
    let desk = match rustix::process::geteuid().is_root() {
        true => {
            rustix::fs::chown(&claim.path, Some(rustix::fs::Uid::from_raw(4_000_000)), None).unwrap();
            desk
        }
        false => desk.seen_by(4_000_000),
    };
    let seen = desk.living().unwrap();
    assert!(seen[0].functions.is_empty() && seen[0].cpus.to_string() == "1", "{seen:?}");
}

#[test]
fn a_driver_in_a_reservation_is_the_name_of_one() {
    let line = |driver: &str| {
        let lent = Lent { driver: Some(driver.to_owned()), ..Lent::nothing_known("0000:39:10.0".parse().unwrap()) };
        let run = Reservation { functions: vec![lent], ..reservation("run-a", "1") };
        Said::parse(&(serde_json::to_string(&run).unwrap() + "\n"))
    };
    assert!(matches!(line("igbvf"), Said::Whole(_)));
    for driver in ["../../x", "a/b", "", "a\u{1b}"] {
        assert_eq!(line(driver), Said::Unknown, "{driver}");
    }
    // Those of runs that are older than functions have none.
    let old = serde_json::to_string(&reservation("run-a", "1")).unwrap().replace("\"functions\":[],", "") + "\n";
    assert!(matches!(Said::parse(&old), Said::Whole(run) if run.functions.is_empty()) && !old.contains("functions"));
}

#[test]
fn nobody_chooses_beside_a_reservation_that_cannot_be_read() {
    let (_directory, desk) = desk();
    let turn = desk.turn().unwrap();
    let claim = turn.reserve(reservation("run-a", "1")).unwrap();
    files::write(&claim.path, "{\"schema\":\"nearmetal.reservation/1\"}\n").unwrap();
    for refused in [desk.living().unwrap_err(), turn.others(&|_| false).unwrap_err()] {
        assert!(refused.to_string().contains("run-a.run"), "{refused}");
    }
}

#[test]
fn what_another_user_left_is_told_and_touched_by_nobody_else() {
    let (_directory, desk) = desk();
    let other = desk.clone().seen_by(4_000_000_000);
    let claim = desk.turn().unwrap().reserve(reservation("run-a", "1-2")).unwrap();
    let seen = other.turn().unwrap().look().unwrap();
    assert!(seen[0].held && !seen[0].is_own);
    // The owner of the file counts, not what it says.
    let owner = rustix::process::geteuid().as_raw();
    assert_eq!(other.living().unwrap()[0].uid, owner);
    let path = claim.path.clone();
    assert_eq!(files::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    drop(claim);
    let turn = other.turn().unwrap();
    let began = Instant::now();
    while turn.look().unwrap()[0].held {
        assert!(began.elapsed() < Duration::from_secs(10), "it is held by nobody");
    }
    // Its PUs are taken as long as its guest lives.
    assert_eq!(turn.others(&|_| true).unwrap().len(), 1);
    assert!(turn.others(&|_| false).unwrap().is_empty());
    // A damaged one of another user keeps nobody from choosing once its run is dead; one's own does.
    files::write(&path, "{\"schema\":\"nearmetal.reservation/1\"}\n").unwrap();
    assert!(turn.others(&|_| true).unwrap().is_empty());
    drop(turn);
    assert!(desk.turn().unwrap().others(&|_| true).is_err());
}

#[test]
fn root_removes_what_others_left_whose_guests_are_gone_and_no_user_does() {
    let (_directory, own) = desk();
    let roots = own.clone().seen_by(0);
    for name in ["run-gone", "run-guest", "run-unread"] {
        let claim = own.turn().unwrap().reserve(reservation(name, "1")).unwrap();
        if rustix::process::geteuid().is_root() {
            rustix::fs::chown(&claim.path, Some(rustix::fs::Uid::from_raw(4_000_000)), None).unwrap();
        }
        if name == "run-unread" {
            files::write(&claim.path, "{\"schema\":\"nearmetal.reservation/1\"}\n").unwrap();
        }
    }
    let living = roots.turn().unwrap().reserve(reservation("run-living", "2")).unwrap();
    let left = |desk: &Desk| {
        let turn = desk.turn().unwrap();
        let began = Instant::now();
        while turn.look().unwrap().iter().filter(|seen| seen.held).count() > 1 {
            assert!(began.elapsed() < Duration::from_secs(10), "they are held by nobody");
        }
        forget_others(&turn, &|dead| dead.name == "run-guest").unwrap();
        let named = |seen: &Seen| seen.path.file_stem().unwrap().to_str().unwrap().to_owned();
        turn.look().unwrap().iter().map(named).collect::<Vec<_>>()
    };
    assert_eq!(left(&own.seen_by(4_000_001)), ["run-gone", "run-guest", "run-living", "run-unread"]);
    assert_eq!(left(&roots), ["run-guest", "run-living", "run-unread"]);
    drop(living);
}

#[test]
fn a_run_that_could_not_write_down_later_what_it_gives_back_takes_nothing() {
    let (_directory, desk) = desk();
    let below = |groups: usize| {
        let limits = vec!["x".repeat(LONGEST_PATH); groups];
        desk.turn().unwrap().reserve(Reservation { limits, ..reservation("run-a", "1") })
    };
    let refused = below(30).unwrap_err();
    assert!(matches!(&refused, RunError::File(error) if error.source.to_string().contains("long paths")), "{refused}");
    assert!(desk.look().unwrap().is_empty());
    let mut claim = below(12).unwrap();
    (0..40).for_each(|pid| claim.amend(|own| own.pid = pid).unwrap());
    assert_eq!(desk.look().unwrap()[0].whole().unwrap(), Some(claim.reservation()));
}

#[test]
fn what_a_hostile_user_puts_there_is_neither_followed_nor_waited_for_nor_shown() {
    let (directory, desk) = desk();
    let turn = desk.turn().unwrap();
    let runs = directory.path().join("runs");
    let secret = directory.path().join("secret");
    files::write(&secret, serde_json::to_string(&reservation("run-x", "1")).unwrap() + "\n").unwrap();
    symlink(&secret, runs.join("run-link.run")).unwrap();
    let pipe = runs.join("run-pipe.run");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    files::create_dir_all(&runs.join("run-directory.run")).unwrap();
    assert!(turn.look().unwrap().is_empty());
    // No text of it reaches a terminal with a character that the terminal obeys.
    let hostile = |change: &dyn Fn(&mut Reservation)| {
        let mut said = reservation("run-y", "1");
        change(&mut said);
        Said::parse(&(serde_json::to_string(&said).unwrap() + "\n"))
    };
    assert!(matches!(hostile(&|_| ()), Said::Whole(_)));
    assert_eq!(hostile(&|said| said.since = "\u{1b}[2J".to_owned()), Said::Unknown);
    assert_eq!(hostile(&|said| said.uuid = "u".repeat(101)), Said::Unknown);
    assert_eq!(hostile(&|said| said.limits = vec!["/sys\n".to_owned()]), Said::Unknown);
    // Bytes that are no text.
    files::write(&runs.join("run-bytes.run"), [0xff, b'\n']).unwrap();
    assert!(turn.others(&|_| false).is_err());
}

#[test]
fn a_desk_that_root_has_not_made_is_refused_with_the_command_that_makes_it() {
    let (directory, own) = desk();
    let path = directory.path().join("runs");
    let shared = Desk::shared(&path);
    for refused in [shared.check().unwrap_err(), shared.turn().unwrap_err()] {
        assert!(refused.to_string().contains("install -d -m 3770 -g kvm"), "{refused}");
    }
    assert!(!path.exists());
    drop(own.turn().unwrap());
    shared.check().unwrap();
    shared.turn().unwrap();
    // A lock that is a link is no lock.
    files::remove(&path.join("lock")).unwrap();
    symlink("/dev/null", path.join("lock")).unwrap();
    assert!(matches!(shared.turn(), Err(RunError::File(_))));
}
