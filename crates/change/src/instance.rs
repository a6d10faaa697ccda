//! One run of a guest, told apart from every other.

use nearmetal_hypervisor::{DomainSummary, HypervisorError};
use nearmetal_place::Placement;
use serde::{Deserialize, Serialize};

use crate::ChangeError;
use crate::change::Change;
use crate::journal::Transaction;
use crate::machine::Machine;
use crate::steps::waits_for_restart;

/// One run of a guest, from its start to its end.
///
/// libvirt's number alone does not tell: it begins again at 1 with libvirt's daemon, and Debian's ends after two idle minutes. So
/// what was changed in the first guest of one daemon could be taken back from the first guest of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Told")]
pub struct Instance {
    /// libvirt's number of it (`virsh domid`).
    pub number: u32,
    /// When its QEMU was started, in clock ticks after the host's boot (proc(5), field 22 of /proc/PID/stat). `None` in a journal of
    /// an earlier version, and where its process was not found.
    pub started: Option<u64>,
}

/// What stands in a journal. Earlier versions kept the number alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Number(u32),
    Whole { number: u32, started: Option<u64> },
}

impl From<Told> for Instance {
    fn from(told: Told) -> Self {
        match told {
            Told::Number(number) => Self { number, started: None },
            Told::Whole { number, started } => Self { number, started },
        }
    }
}

impl Instance {
    /// The run of a domain whose summary this is; `None` if it is off.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub(crate) fn of(machine: &Machine<'_>, summary: &DomainSummary) -> Result<Option<Self>, ChangeError> {
        if summary.state.is_off() {
            return Ok(None);
        }
        let pid = machine.kernel.guest(&summary.uuid)?;
        let started = pid.map(|pid| machine.kernel.started(pid)).transpose()?.flatten();
        Ok(Some(Self { number: summary.id.unwrap_or(0), started }))
    }

    /// The run of a domain now; `None` if it is off or not there.
    ///
    /// # Errors
    /// libvirt does not answer, or /proc cannot be read.
    pub(crate) fn now(machine: &mut Machine<'_>, domain: &str) -> Result<Option<Self>, ChangeError> {
        match machine.hypervisor.domain(domain) {
            Ok(summary) => Self::of(machine, &summary),
            Err(HypervisorError::NoSuchDomain { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether both are one run. By the number alone where one of them does not say when it was started.
    pub(crate) fn is(self, other: Self) -> bool {
        self.number == other.number && self.started.zip(other.started).is_none_or(|(one, other)| one == other)
    }
}

/// What of a plan waits for its guest's next start, in the words of [`crate::Part::what`]: that still runs which ran when the plan in force
/// redefined it, and has not all of it yet. Of another plan than this placement's nothing is known, nor of a guest whose start is in no
/// journal, or of another boot.
pub fn awaits_start(machine: &mut Machine<'_>, all: &[Transaction], placement: &Placement) -> Vec<String> {
    let name = &placement.guest;
    let redefined = |one: &Transaction| {
        let plan = one.header.purpose.plan().filter(|_| one.is_in_force())?;
        let change = plan.domains.iter().find(|change| change.name == *name && !change.needs_restart.is_empty())?;
        let same_boot = one.steps.iter().filter(|step| step.done && !step.undone && step.boot_id == machine.boot_id);
        let mut then = same_boot.filter_map(|step| match &step.change {
            Change::DefineDomain { domain, instance, .. } if domain == name => *instance,
            _ => None,
        });
        let then = then.next_back().filter(|then| then.started.is_some())?;
        (plan.placement(name) == Some(placement)).then(|| (then, change.clone()))
    };
    let Some((then, change)) = all.iter().rev().find_map(redefined) else { return Vec::new() };
    let is_that_run = Instance::now(machine, name).ok().flatten().is_some_and(|now| now == then);
    if is_that_run { waits_for_restart(machine, &change) } else { Vec::new() }
}

/// Whether what runs now is what ran then.
pub(crate) fn is_same(now: Option<Instance>, then: Option<Instance>) -> bool {
    now.zip(then).is_some_and(|(now, then)| now.is(then))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(number: u32, started: Option<u64>) -> Instance {
        Instance { number, started }
    }

    #[test]
    fn a_number_that_was_given_again_is_another_run() {
        let then = instance(1, Some(4_200));
        assert!(then.is(instance(1, Some(4_200))));
        assert!(!then.is(instance(1, Some(90_000))), "libvirt counted from 1 again");
        assert!(!then.is(instance(2, Some(4_200))));
        assert!(then.is(instance(1, None)) && instance(1, None).is(then), "the number is all there is");
        assert!(!is_same(None, None) && !is_same(Some(then), None) && !is_same(None, Some(then)));
    }

    #[test]
    fn journals_of_earlier_versions_keep_the_number_alone() {
        let read = |text: &str| serde_json::from_str::<Instance>(text).unwrap();
        assert_eq!(read("7"), instance(7, None));
        for one in [instance(7, Some(12)), instance(7, None)] {
            assert_eq!(read(&serde_json::to_string(&one).unwrap()), one);
        }
    }
}
