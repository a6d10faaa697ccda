//! The arms: what ran, with which settings, and what it used beside the slice.

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_place::Placement;
use nearmetal_report::view::{ArmRole, ArmView, ExtraPus, IncompleteArm, SliceRole};
use nearmetal_results::{Arm, BARE_SLICE, Results, Role, Run, last_tries};

use super::describe;
use super::error::{JobError, cut};
use super::files::RESULTS;

/// The most lines of read-back affinity shown for one arm; the rest is in `results.json`.
const MOST_PLACEMENT_LINES: usize = 24;

/// Characters of a failure's reason: room for the error and its cause.
const LONGEST_REASON: usize = 240;

/// The arms in the order of the results, bare metal first.
///
/// Without the plan's placement, what runs beside the slice is not told apart by role.
pub(crate) fn views(results: &Results, placement: Option<&Placement>) -> Result<Vec<ArmView>, JobError> {
    results.arms.iter().enumerate().map(|(index, arm)| view(index, arm, results, placement)).collect()
}

/// The arms that lost samples, with why the first of each failed. One that was made good by another try is not lost.
pub(crate) fn incomplete(results: &Results) -> Vec<IncompleteArm> {
    let of = |arm: &Arm| {
        let own = results.runs.iter().filter(|run| run.arm == arm.name.id);
        let samples: Vec<_> = last_tries(own, Run::step).into_iter().map(Run::failure).collect();
        lost(&arm.name.id, &samples)
    };
    results.arms.iter().filter_map(of).collect()
}

/// An arm with these samples, each with why it failed; `None` if none did.
pub(super) fn lost(arm: &str, samples: &[Option<&str>]) -> Option<IncompleteArm> {
    let failures: Vec<&str> = samples.iter().copied().flatten().collect();
    Some(IncompleteArm {
        arm: arm.to_owned(),
        failed: failures.len() as u32,
        samples: samples.len() as u32,
        why: cut(failures.first()?, LONGEST_REASON),
    })
}

/// The facts of an arm's domain; `None` for bare metal.
pub(crate) fn facts(index: usize, arm: &Arm) -> Result<Option<DomainFacts>, JobError> {
    let wrap = |source| JobError::Xml { file: RESULTS.to_owned(), field: format!("arms[{index}].xml"), source };
    arm.xml.as_deref().map(|xml| DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap)).transpose()
}

fn view(index: usize, arm: &Arm, results: &Results, placement: Option<&Placement>) -> Result<ArmView, JobError> {
    let mut configuration = match facts(index, arm)? {
        Some(facts) => describe::settings(&facts),
        // Several slices are in a table of their own, and what runs on all PUs is confined to none.
        None => results
            .slice()
            .filter(|_| results.tenants.len() == 1 && arm.name.id == BARE_SLICE)
            .map(|slice| format!("confined to PUs {}, memory on node {}", slice.cpus, slice.nodes))
            .into_iter()
            .collect(),
    };
    if !arm.region.is_empty() {
        configuration.push(format!("measures {}", arm.region));
    }
    if !arm.placement.is_empty() {
        configuration.push("read back while it ran:".to_owned());
        configuration.extend(arm.placement.iter().take(MOST_PLACEMENT_LINES).cloned());
        let left = arm.placement.len().saturating_sub(MOST_PLACEMENT_LINES);
        configuration.extend((left > 0).then(|| format!("… and {left} more lines")));
    }
    Ok(ArmView {
        id: arm.name.id.clone(),
        name: arm.name.title.clone(),
        description: arm.description.clone(),
        role: match arm.name.role {
            Role::Bare => ArmRole::Bare,
            Role::AsFound => ArmRole::AsFound,
            Role::Planned => ArmRole::Planned,
            Role::Other => ArmRole::Other,
        },
        configuration,
        extra_pus: match placement {
            Some(placement) if arm.name.role == Role::Planned => extra(results, placement),
            _ => Vec::new(),
        },
    })
}

/// PUs of the planned guest's other threads that are not in the slice both sides own. A floating guest has none of its
/// own: its threads share the host's.
fn extra(results: &Results, placement: &Placement) -> Vec<ExtraPus> {
    let Some(slice) = results.slice() else { return Vec::new() };
    let emulator = (SliceRole::Emulator, &placement.emulator);
    let all = [emulator].into_iter().chain(placement.iothreads.iter().map(|cpus| (SliceRole::Iothread, cpus)));
    all.map(|(role, cpus)| ExtraPus { role, cpus: cpus.difference(&slice.cpus) })
        .filter(|extra| !extra.cpus.is_empty())
        .collect()
}
