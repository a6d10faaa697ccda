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

/// One case.
pub struct Case {
    /// Subject and claim, `sabotage/vcpu-repinned`.
    pub name: &'static str,
    /// What it does.
    pub body: Body,
    /// Only with `--all`.
    pub long: bool,
}

/// How a case is run.
pub enum Body {
    /// In the lab that cases share; it must not reboot it.
    Shared(fn(&Bench) -> anyhow::Result<Verdict>),
    /// With labs of its own: long.
    Alone(fn() -> anyhow::Result<Verdict>),
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
    Case { name, body: Body::Shared(body), long: false }
}

/// Shares the boot, and takes long enough to be left to `--all`.
const fn shared_long(name: &'static str, body: fn(&Bench) -> anyhow::Result<Verdict>) -> Case {
    Case { name, body: Body::Shared(body), long: true }
}

const fn alone(name: &'static str, body: fn() -> anyhow::Result<Verdict>) -> Case {
    Case { name, body: Body::Alone(body), long: true }
}

/// What somebody broke: a mismatch of a guest, or of devices, that names all of these words. Document, figures and journal
/// tell it alike.
fn told(bench: &Bench, guest: &str, words: &[&str]) -> anyhow::Result<Verdict> {
    let all = bench.mismatches()?;
    let named = all.iter().find(|mismatch| mismatch.names(guest, words));
    let named = named.with_context(|| format!("no mismatch of `{guest}` names {words:?}: {all:#?}"))?;
    Ok(Verdict::Holds(named.to_string().chars().take(200).collect()))
}

/// All cases, those that share a boot first.
pub fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = [
        machine::cases(),
        job::cases(),
        matrix::cases(),
        net::cases(),
        packages::cases(),
        workloads::cases(),
        agreement::cases(),
        sabotage::cases(),
        sabotage_devices::cases(),
        bad_input::cases(),
        bench::cases(),
        counting::cases(),
        crash::cases(),
        killed::cases(),
        demo::cases(),
        device::cases(),
        doctor::cases(),
        drift::cases(),
        engines::cases(),
        experiment::cases(),
        export::cases(),
        faults::cases(),
        fleet::cases(),
        run::cases(),
        tiles::cases(),
        tune::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    // Those that share the boot first.
    cases.sort_by_key(|case| matches!(case.body, Body::Alone(_)));
    cases
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_cases_that_the_page_of_experiments_names_are_there() {
        let page = include_str!("../../../../docs/reference/experiments.md");
        let subjects = ["job/", "bench/", "matrix/", "workload/", "tune/", "tiles/"];
        let named: Vec<&str> =
            page.split('`').filter(|word| subjects.iter().any(|subject| word.starts_with(subject))).collect();
        assert!(named.len() > 8, "{named:?}");
        let all = super::all();
        for name in named {
            assert!(
                all.iter().any(|case| case.name == name),
                "docs/reference/experiments.md names `{name}`: no such case"
            );
        }
    }
}
