//! Boost, idle states, throttling by heat.
//!
//! Documentation/ABI/testing/sysfs-devices-system-cpu, admin-guide/pm/cpuidle.rst; thermal_throttle in
//! arch/x86/kernel/cpu/mce/therm_throt.c. These files exist once for each PU; one PU stands for its package, since a
//! machine of 4096 PUs has thirty thousand of them.

use nearmetal_units::CpuSet;

use super::processors::ROOT;
use crate::facts::{Facts, index_after};
use crate::parse::{Parsed, flag, number, word};
use crate::{Boost, CpuGroup, IdleState, IdleStates, ReadError, Throttling};

/// The same in two words: `no_turbo` is 1 where boost is off.
pub(super) fn boost(facts: &mut Facts<'_>) -> Option<Boost> {
    let (turbo, boost) = (format!("{ROOT}/intel_pstate/no_turbo"), format!("{ROOT}/cpufreq/boost"));
    match facts.optional(&turbo, flag) {
        Some(off) => Some(Boost { allowed: !off, path: turbo }),
        None => facts.optional(&boost, flag).map(|allowed| Boost { allowed, path: boost }),
    }
}

/// A number of 32 bits in the machine's own order, in µs. Documentation/power/pm_qos_interface.rst.
pub(super) fn idle_latency_limit(facts: &mut Facts<'_>) -> Option<u64> {
    const PATH: &str = "/dev/cpu_dma_latency";
    let bytes = facts.fs.read_bytes(PATH);
    let bytes = facts.noted(bytes)?;
    let limit = latency_limit(&bytes);
    if limit.is_none() {
        facts.note(ReadError::unreadable(PATH, &format!("{bytes:?}"), "expected a number of 4 bytes, not negative"));
    }
    limit
}

pub(super) fn latency_limit(bytes: &[u8]) -> Option<u64> {
    u64::try_from(i32::from_ne_bytes(bytes.try_into().ok()?)).ok()
}

/// The first PU of each package, and the first isolated one, which is often set up differently.
pub(super) fn sample(packages: &[CpuGroup], isolated: Option<&CpuSet>, online: &CpuSet) -> Vec<u32> {
    let firsts = packages.iter().filter_map(|package| package.cpus.first());
    let first = packages.is_empty().then(|| online.first()).flatten();
    let alone = isolated.and_then(|cpus| cpus.iter().find(|cpu| online.contains(*cpu)));
    firsts.chain(first).chain(alone).collect::<CpuSet>().iter().collect()
}

pub(super) fn idle_states(facts: &mut Facts<'_>, cpus: &[u32]) -> Vec<IdleStates> {
    cpus.iter().filter_map(|cpu| idle_states_of(facts, *cpu)).collect()
}

fn idle_states_of(facts: &mut Facts<'_>, cpu: u32) -> Option<IdleStates> {
    let root = format!("{ROOT}/cpu{cpu}/cpuidle");
    let mut states = Vec::new();
    for name in facts.list(&root) {
        let Some(number_of_it) = index_after(&name, "state") else { continue };
        let path = |file: &str| format!("{root}/{name}/{file}");
        states.push(IdleState {
            number: number_of_it,
            name: facts.optional(&path("name"), word),
            latency: facts.optional(&path("latency"), number),
            disabled: facts.optional(&path("disable"), |text| Ok(number(text)? != 0)),
        });
    }
    if states.is_empty() {
        return None;
    }
    let limit = facts.optional(&format!("{ROOT}/cpu{cpu}/power/pm_qos_resume_latency_us"), resume_latency);
    Some(IdleStates { cpu, latency_limit: limit.flatten(), states })
}

/// `0` is no limit, `n/a` is a limit of 0. Documentation/ABI/testing/sysfs-devices-power.
pub(super) fn resume_latency(text: &str) -> Parsed<Option<u64>> {
    match text {
        "n/a" => Ok(Some(0)),
        "0" => Ok(None),
        other => number(other).map(Some),
    }
}

pub(super) fn throttling(facts: &mut Facts<'_>, cpus: &[u32], packages: &[CpuGroup]) -> Vec<Throttling> {
    let mut found: Vec<Throttling> = Vec::new();
    for package in packages {
        let Some(cpu) = cpus.iter().copied().find(|cpu| package.cpus.contains(*cpu)) else { continue };
        let root = format!("{ROOT}/cpu{cpu}/thermal_throttle");
        let count = facts.optional(&format!("{root}/package_throttle_count"), number);
        let time = facts.optional(&format!("{root}/package_throttle_total_time_ms"), number);
        if count.is_some() || time.is_some() {
            found.push(Throttling { cpu, package: package.number, count, time });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_latency_are_numbers_or_none() {
        assert_eq!(latency_limit(&70i32.to_ne_bytes()), Some(70));
        for junk in [&[][..], &[1, 2, 3], &(-1i32).to_ne_bytes(), &[0; 5]] {
            assert_eq!(latency_limit(junk), None, "{junk:?}");
        }
        assert_eq!(
            (resume_latency("0"), resume_latency("n/a"), resume_latency("50")),
            (Ok(None), Ok(Some(0)), Ok(Some(50)))
        );
        assert!(resume_latency("soon").is_err());
    }

    #[test]
    fn one_pu_stands_for_its_package_and_one_for_the_isolated() {
        let group = |cpus: &str| CpuGroup { number: None, cpus: cpus.parse().unwrap() };
        let online: CpuSet = "0-6".parse().unwrap();
        let isolated: CpuSet = "7,2-3".parse().unwrap();
        assert_eq!(sample(&[group("0-3"), group("4-6")], Some(&isolated), &online), [0, 2, 4]);
        assert_eq!(sample(&[], None, &online), [0]);
    }
}
