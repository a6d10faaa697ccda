//! Every experiment, killed before its steps: each that follows one it has not followed before, and one in seven of the others.

use std::collections::BTreeSet;

use super::experiments::Kind;
use super::*;

const WORDS: [&str; 4] = ["libvirt: ask the guest agent", "libvirt: suspend", "libvirt: resume", "libvirt: look up"];

/// Between any two things that leave the process: programs, requests to libvirt, writes to the kernel.
fn one_that_is_killed_before_a_step_leaves_nothing(kind: Kind) {
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
        // The second sample does what the first has done, and a process that dies there leaves the same.
        if !seen.insert((before, step)) && number % 7 != 0 {
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

/// Part `PART` of them.
fn killed<const PART: usize>() {
    const { assert!(PART < PARTS) }
    Kind::ALL.into_iter().skip(PART).step_by(PARTS).for_each(one_that_is_killed_before_a_step_leaves_nothing);
}

#[test]
fn a_first_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed::<0>();
}

#[test]
fn a_second_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed::<1>();
}

#[test]
fn a_third_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed::<2>();
}

#[test]
fn the_last_fourth_of_them_leaves_nothing_when_killed_before_a_step() {
    killed::<{ PARTS - 1 }>();
}
