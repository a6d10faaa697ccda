//! Several guests at once against their bare slices at once.
//!
//! One guest after the other says nothing of what they take from each other: memory channels, the IOMMU, the PCIe fabric,
//! power. Here all guests of a sample begin at one moment, and so do the bare slices they are compared with
//! ([`crate::barrier`]). That they ran side by side is not believed but read from the times their programs give: a sample
//! whose overlap is too small does not count.

mod over;
mod over_drives;
mod over_scratch;

use nearmetal_load::Workload;
use nearmetal_place::Placement;
use nearmetal_results::{Arm, ArmName, Environment, Results};
use nearmetal_units::CpuSet;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::engine::{Fresh, Pairs, Path, Plan, Session, Tenant};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request};
use crate::record::record;

pub use self::over::Over;

/// The most guests at once: each is told in turn when to begin, and that takes its time.
pub const MOST_TOGETHER: usize = 16;
/// Samples of the ceiling.
const CEILING_RUNS: u32 = 3;

/// One guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: its slice.
    pub placement: Placement,
    /// Its XML as planned.
    pub xml_planned: String,
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TogetherRequest {
    /// The guests, in the order in which they join.
    pub members: Vec<Member>,
    /// What they work on.
    pub over: Over,
    /// Pairs for each number of guests, or the pilot.
    pub pairs: u32,
    /// The factor above 1, such as 0.05, to which the interval of each number of guests is brought: the pairs are then a
    /// pilot, from which their number is fixed. `None`: the pairs are all.
    #[serde(default)]
    pub resolve: Option<f64>,
    /// A/A pairs of all guests at once.
    pub same_arm_pairs: u32,
    /// Whether every number from one to all is measured, or all alone.
    pub scaling: bool,
    /// The least overlap of a sample that counts, from 0 to 1.
    pub least_overlap: f64,
    /// Under what.
    pub conditions: Conditions,
}

/// What the tenants are, once they are there: arm 0 is bare metal, arm 1 the guests.
pub(crate) struct Ready<'p> {
    pub path: Box<dyn Path + 'p>,
    pub tenants: Vec<Tenant>,
    /// What each runs.
    pub workload: Workload,
    /// One sentence on what they share, or do not.
    pub caveats: Vec<String>,
    /// Whether what the machine and the other end do without slices bounds them.
    pub ceiling: bool,
}

impl Request for TogetherRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        self.members.iter().map(|member| member.guest.clone()).collect()
    }

    fn check(&self) -> Result<(), MeasureError> {
        apart(&self.members, MOST_TOGETHER)?;
        self.over.check(self)
    }

    /// Runs the experiment and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// Slices that share PUs, something to work on that two of them name or that holds data, clones that do not come up; or
    /// four samples in a row that fail.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        measure(self, session)
    }
}

fn measure(request: &TogetherRequest, session: &mut Session<'_>) -> Result<Results, MeasureError> {
    let Ready { mut path, tenants, workload, mut caveats, ceiling } = request.over.ready(request, session)?;
    let all = tenants.len();
    let arms = arms(&tenants, &*path, ceiling, session)?;
    let plan = Plan {
        arms: arms.iter().take(2).map(|arm| arm.name.clone()).collect(),
        counts: if request.scaling { (1..=all).collect() } else { vec![all] },
        paired: vec![workload.clone()],
        rounds: request.pairs,
        resolve: request.resolve,
        same_arm: vec![1],
        same_arm_pairs: request.same_arm_pairs,
        single_shot: Vec::new(),
        ceiling: ceiling.then_some((2, CEILING_RUNS)),
        fresh: Fresh::No,
        whole_or_nothing: true,
        reasons: false,
        accesses: 0,
        offers: false,
        accesses_in: Vec::new(),
        seed: request.conditions.seed,
    };
    if let Environment::Lab { machine } = &request.conditions.environment {
        caveats.insert(0, format!(
            "lab: emulated time. The machine `{machine}` is software, and all of its processors share a few real ones: what its guests take from each other says nothing of silicon"
        ));
    }
    let mut experiment = Experiment {
        experiment: "together",
        quick: true,
        arms,
        tenants,
        least_overlap: Some(request.least_overlap),
        caveats,
        workloads: vec![workload],
        facts: Vec::new(),
        path: &mut *path,
    };
    let runs = experiment.runs(&mut Pairs::new(plan), session)?;
    experiment.document(runs, session)
}

/// Both sides, and the one without slices where there is a ceiling.
fn arms(
    tenants: &[Tenant],
    path: &dyn Path,
    ceiling: bool,
    session: &mut Session<'_>,
) -> Result<Vec<Arm>, MeasureError> {
    let Some(first) = tenants.first() else { return Ok(Vec::new()) };
    let titled = |name: ArmName, title: &str| ArmName { title: title.to_owned(), ..name };
    let bare = titled(ArmName::bare_slice(), "bare slices");
    let bare = record(session, &bare, "the host itself, a process bound to each slice", "its own", None, &first.slice)?;
    let clone = path.seat(1, 0).guest;
    let guests = titled(ArmName::planned(), "guests");
    // A guest that is booted for its turn need not be there now.
    let mut guests = record(session, &guests, "the domains as planned", "its own", clone.as_deref(), &first.slice)?;
    guests.placement = Vec::new();
    let mut arms = vec![bare, guests];
    if ceiling {
        let name = ArmName::new("all-pus", "all PUs, without a guest", nearmetal_results::Role::Bare);
        arms.push(record(session, &name, "the host itself, where the kernel puts it", "its own", None, &first.slice)?);
    }
    Ok(arms)
}

/// The PUs of a slice; none where the plan pins nothing.
fn pus(placement: &Placement) -> CpuSet {
    placement.vcpus.iter().fold(CpuSet::new(), |cpus, pin| cpus.union(&pin.cpus))
}

/// Refuses members that cannot run side by side.
pub(crate) fn apart(members: &[Member], most: usize) -> Result<(), MeasureError> {
    let refused = |why: String| Err(MeasureError::Asked(why));
    if members.len() > most {
        return refused(format!("{} guests are named, and {most} at once are possible", members.len()));
    }
    for (number, Member { guest, placement, .. }) in members.iter().enumerate() {
        let own = pus(placement);
        if own.is_empty() {
            return refused(format!("the plan pins nothing of `{guest}`, so it has no slice"));
        }
        for Member { guest: other, placement: beside, .. } in &members[..number] {
            if other == guest {
                return refused(format!("`{guest}` is named twice"));
            }
            let shared = own.intersection(&pus(beside));
            if !shared.is_empty() {
                return refused(format!(
                    "`{other}` and `{guest}` share PUs {shared}: they cannot be measured side by side; plan them together"
                ));
            }
        }
    }
    Ok(())
}

/// Keeps this process off the slices, and sees that the pools hold a clone of each member.
pub(crate) fn make_room(members: &[Member], tenants: &[Tenant], session: &mut Session<'_>) -> Result<(), MeasureError> {
    let slices: Vec<_> = tenants.iter().map(|tenant| tenant.slice.clone()).collect();
    session.stay_off(&slices)?;
    session.stage("sizing hugepage pools");
    let placements: Vec<_> = members.iter().map(|member| &member.placement).collect();
    session.grow_pools_for(&placements, 1)
}
