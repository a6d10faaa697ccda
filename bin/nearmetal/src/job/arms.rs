//! The arms: what ran, with which settings, and what it used beside the slice.

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_measure::{Arm, ArmKind, Outcome, Results};
use nearmetal_place::Placement;
use nearmetal_report::view::{ArmRole, ArmView, ExtraPus, IncompleteArm, SliceRole};

use super::describe;
use super::error::{JobError, cut};
use super::files::RESULTS;

/// The most lines of read-back affinity shown for one arm; the rest is in `results.json`.
const MOST_PLACEMENT_LINES: usize = 24;

/// Characters of a failure's reason: room for the error and its cause.
const LONGEST_REASON: usize = 240;

/// The arms in the order of the results, bare metal first.
pub(crate) fn views(results: &Results, placement: &Placement) -> Result<Vec<ArmView>, JobError> {
    results.arms.iter().enumerate().map(|(index, arm)| view(index, arm, results, placement)).collect()
}

/// The arms that lost samples, with why the first of each failed.
pub(crate) fn incomplete(results: &Results) -> Vec<IncompleteArm> {
    let of = |arm: &Arm| {
        let runs = || results.runs.iter().filter(|run| run.arm == arm.kind);
        let mut failures = runs().filter_map(|run| match &run.outcome {
            Outcome::Failed { why } => Some(why),
            Outcome::Measured { .. } => None,
        });
        let why = failures.next()?.as_str();
        Some(IncompleteArm {
            arm: arm.kind.id().to_owned(),
            failed: failures.count() as u32 + 1,
            samples: runs().count() as u32,
            why: cut(why, LONGEST_REASON),
        })
    };
    results.arms.iter().filter_map(of).collect()
}

/// The facts of an arm's domain; `None` for bare metal.
pub(crate) fn facts(index: usize, arm: &Arm) -> Result<Option<DomainFacts>, JobError> {
    let wrap = |source| JobError::Xml { file: RESULTS, field: format!("arms[{index}].xml"), source };
    arm.xml.as_deref().map(|xml| DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap)).transpose()
}

fn view(index: usize, arm: &Arm, results: &Results, placement: &Placement) -> Result<ArmView, JobError> {
    let mut configuration = match facts(index, arm)? {
        Some(facts) => describe::settings(&facts),
        None => vec![format!("confined to PUs {}, memory on node {}", results.slice.cpus, results.slice.nodes)],
    };
    configuration.push(format!("measures {}", arm.region));
    if !arm.placement.is_empty() {
        configuration.push("read back while it ran:".to_owned());
        configuration.extend(arm.placement.iter().take(MOST_PLACEMENT_LINES).cloned());
        let left = arm.placement.len().saturating_sub(MOST_PLACEMENT_LINES);
        configuration.extend((left > 0).then(|| format!("… and {left} more lines")));
    }
    Ok(ArmView {
        id: arm.kind.id().to_owned(),
        name: arm.kind.title().to_owned(),
        description: arm.description.clone(),
        role: match arm.kind {
            ArmKind::BareSlice => ArmRole::Bare,
            ArmKind::AsFound => ArmRole::AsFound,
            ArmKind::Planned => ArmRole::Planned,
            ArmKind::VirtInstall => ArmRole::Other,
        },
        configuration,
        extra_pus: if arm.kind == ArmKind::Planned { extra(results, placement) } else { Vec::new() },
    })
}

/// PUs of the planned guest's other threads that are not in the slice both sides own. A floating guest has none of its
/// own: its threads share the host's.
fn extra(results: &Results, placement: &Placement) -> Vec<ExtraPus> {
    let emulator = (SliceRole::Emulator, &placement.emulator);
    let all = [emulator].into_iter().chain(placement.iothreads.iter().map(|cpus| (SliceRole::Iothread, cpus)));
    all.map(|(role, cpus)| ExtraPus { role, cpus: cpus.difference(&results.slice.cpus) })
        .filter(|extra| !extra.cpus.is_empty())
        .collect()
}
