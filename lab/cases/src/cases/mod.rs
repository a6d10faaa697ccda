//! The cases, by subject. A new one is a function and a line in its file's list.

mod agreement;
mod bad_input;
mod bench;
mod counting;
mod crash;
mod demo;
mod device;
mod doctor;
mod drift;
mod engines;
mod experiment;
mod export;
mod faults;
mod fleet;
mod job;
mod killed;
mod machine;
mod matrix;
mod net;
mod packages;
mod run;
mod sabotage;
mod sabotage_devices;
mod tiles;
mod tune;
mod workloads;

use anyhow::Context;

use crate::context::Bench;
use crate::labs::Labs;

/// One case.
pub struct Case {
    /// Subject and claim, `sabotage/vcpu-repinned`.
    pub name: &'static str,
    /// What it does.
    pub body: Body,
    /// Only with `--all`.
    pub long: bool,
}

impl Case {
    /// Whether another case may run beside it.
    pub fn has_room_beside(&self) -> bool {
        !matches!(self.body, Body::Own(Room::Whole, _))
    }

    /// The labs that it shares.
    pub fn labs(&self) -> Option<Labs> {
        match self.body {
            Body::Shared(labs, _) => Some(labs),
            Body::Own(..) => None,
        }
    }
}

/// How a case is run.
pub enum Body {
    /// In labs that cases share; it must not reboot them.
    Shared(Labs, fn(&Bench) -> anyhow::Result<Verdict>),
    /// With labs of its own: long.
    Own(Room, fn() -> anyhow::Result<Verdict>),
}

/// What labs of a case's own leave to another case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Room for it: they have no more memory than shared labs, and names that no other case uses.
    Beside,
    /// None: they are two machines of full size, or a large one.
    Whole,
}

/// What a case says, if it did not fail.
pub enum Verdict {
    /// It holds; with what was measured, if anything.
    Holds(String),
    /// It cannot be tried here, and why.
    CannotTry(String),
}

/// Nothing to add.
pub const HOLDS: Verdict = Verdict::Holds(String::new());

const fn shared(name: &'static str, body: fn(&Bench) -> anyhow::Result<Verdict>) -> Case {
    Case { name, body: Body::Shared(Labs::Counting, body), long: false }
}

/// Shares a boot, and takes long enough to be left to `--all`.
const fn shared_long(name: &'static str, body: fn(&Bench) -> anyhow::Result<Verdict>) -> Case {
    long_in(Labs::Plain, name, body)
}

/// The same in labs of another kind.
const fn long_in(labs: Labs, name: &'static str, body: fn(&Bench) -> anyhow::Result<Verdict>) -> Case {
    Case { name, body: Body::Shared(labs, body), long: true }
}

const fn alone(name: &'static str, body: fn() -> anyhow::Result<Verdict>) -> Case {
    Case { name, body: Body::Own(Room::Beside, body), long: true }
}

/// The same with two machines of full size or a large one: nothing runs beside it.
const fn whole(name: &'static str, body: fn() -> anyhow::Result<Verdict>) -> Case {
    Case { name, body: Body::Own(Room::Whole, body), long: true }
}

/// What somebody broke: a mismatch of a guest, or of devices, that names all of these words. Document, figures and journal
/// tell it alike.
fn told(bench: &Bench, guest: &str, words: &[&str]) -> anyhow::Result<Verdict> {
    let all = bench.mismatches()?;
    let named = all.iter().find(|mismatch| mismatch.names(guest, words));
    let named = named.with_context(|| format!("no mismatch of `{guest}` names {words:?}: {all:#?}"))?;
    Ok(Verdict::Holds(named.to_string().chars().take(200).collect()))
}

/// All cases: those of one kind of labs follow each other, and those with labs of their own come last.
pub fn all() -> Vec<Case> {
    // Subjects that want the guest as found come first, and those that keep it as applied follow each other: from one to the other
    // takes two boots.
    let mut cases: Vec<Case> = [
        bad_input::cases(),
        job::cases(),
        machine::cases(),
        matrix::cases(),
        workloads::cases(),
        bench::cases(),
        experiment::cases(),
        drift::cases(),
        net::cases(),
        packages::cases(),
        agreement::cases(),
        sabotage::cases(),
        sabotage_devices::cases(),
        counting::cases(),
        crash::cases(),
        killed::cases(),
        doctor::cases(),
        device::cases(),
        engines::cases(),
        export::cases(),
        faults::cases(),
        fleet::cases(),
        run::cases(),
        tiles::cases(),
        tune::cases(),
        // The longest of those that `./dev test` runs: the second lane begins with it, so that neither ends up waiting for it.
        demo::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    cases.sort_by_key(|case| (case.labs().is_none(), case.labs()));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_one_kind_of_labs_follow_each_other_and_those_without_long_ones_need_one_boot() {
        let all = all();
        let mut kinds: Vec<Option<Labs>> = all.iter().map(Case::labs).collect();
        kinds.dedup();
        let boots = kinds.len();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), boots, "a kind of labs would be booted twice");
        assert!(all.iter().filter(|case| !case.long).all(|case| case.labs() == Some(Labs::Counting)));
    }

    #[test]
    fn a_name_is_that_of_one_case() {
        let mut names: Vec<&str> = all().iter().map(|case| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_cases_that_the_page_of_experiments_names_are_there() {
        let page = include_str!("../../../../docs/reference/experiments.md");
        let subjects = ["job/", "bench/", "matrix/", "workload/", "tune/", "tiles/", "experiment/", "count/"];
        let named: Vec<&str> =
            page.split('`').filter(|word| subjects.iter().any(|subject| word.starts_with(subject))).collect();
        assert!(named.len() > 8, "{named:?}");
        let all = all();
        for name in named {
            assert!(
                all.iter().any(|case| case.name == name),
                "docs/reference/experiments.md names `{name}`: no such case"
            );
        }
    }
}
