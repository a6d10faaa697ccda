//! Every experiment, killed before its steps: by `./dev test` before each that follows one it has not followed before, and by
//! `./dev test --all` before the repetitions too.

use std::collections::BTreeSet;

use super::experiments::Kind;
use super::*;

const WORDS: [&str; 4] = ["libvirt: ask the guest agent", "libvirt: suspend", "libvirt: resume", "libvirt: look up"];

/// Which steps a process is killed before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Those that follow a step they have not followed before, and one in seven of the others: the second sample does what the
    /// first has done.
    New,
    Every,
}

/// Between two things that leave the process: programs, requests to libvirt, writes to the kernel.
fn one_that_is_killed_before_a_step_leaves_nothing(kind: Kind, of: Steps) {
    let (mut machine, experiment) = kind.set_up();
    machine.perform(&experiment).document();
    let steps = machine.steps();
    let mut seen = BTreeSet::new();
    for (number, step) in steps.iter().enumerate() {
        let before = number.checked_sub(1).map(|before| &steps[before]);
        // Words to a guest that is there borrow nothing, and there are many.
        let is_a_word = |step: &String| WORDS.iter().any(|word| step.starts_with(word));
        if is_a_word(step) && before.is_some_and(is_a_word) && number % 31 != 0 {
            continue;
        }
        if !seen.insert((before, step)) && of == Steps::New && number % 7 != 0 {
            continue;
        }
        machine.kill_at(Some(number));
        assert!(matches!(machine.perform(&experiment), Came::Dead), "{kind:?} lived on behind `{step}`");
        machine.kill_at(None);
        machine.take_back();
        assert_eq!(machine.left(), Vec::<String>::new(), "{kind:?} died before `{step}`");
    }
}

/// In parts that run beside each other: together they take longer than all other tests here.
const PARTS: usize = 4;

/// A part of them.
fn killed(part: usize, of: Steps) {
    assert!(part < PARTS);
    for kind in Kind::ALL.into_iter().skip(part).step_by(PARTS) {
        one_that_is_killed_before_a_step_leaves_nothing(kind, of);
    }
}

#[test]
fn a_first_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed(0, Steps::New);
}

#[test]
fn a_second_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed(1, Steps::New);
}

#[test]
fn a_third_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed(2, Steps::New);
}

#[test]
fn the_last_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed(PARTS - 1, Steps::New);
}

#[test]
#[ignore = "takes a minute: ./dev test --all runs it"]
fn all_of_them_leave_nothing_when_killed_before_every_step() {
    std::thread::scope(|scope| {
        for part in 0..PARTS {
            scope.spawn(move || killed(part, Steps::Every));
        }
    });
}
