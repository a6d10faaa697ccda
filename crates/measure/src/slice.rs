//! A guest in clones — as found, as planned, as virt-install writes it, or some of them — against the same slice of its own
//! bare metal.

use nearmetal_load::Workload;
use nearmetal_results::{AS_FOUND, ArmName, PLANNED, Results, VIRT_INSTALL};
use serde::{Deserialize, Serialize};

use crate::clones::as_virt_install;
use crate::conditions::Conditions;
use crate::engine::{Fresh, Path, Seat, Session, Step};
use crate::error::MeasureError;
use crate::finish::Request;
use crate::stand::{OnScratch, OnStand, Stand, Turns, Up, Way, paired};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceRequest {
    /// The guest, and where it is measured with what.
    #[serde(flatten)]
    pub on: OnScratch,
    /// The clones beside bare metal. An earlier version always had all.
    #[serde(default = "all_arms")]
    pub arms: Vec<SliceArm>,
    /// Under what.
    pub conditions: Conditions,
}

fn all_arms() -> Vec<SliceArm> {
    SliceArm::ALL.to_vec()
}

/// A clone of the guest that can be compared with its slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SliceArm {
    /// By its definition as found.
    AsFound,
    /// By its planned one.
    Planned,
    /// As found, with the driver options that virt-install writes.
    VirtInstall,
}

impl SliceArm {
    /// All of them, in the order of the arms.
    pub const ALL: [Self; 3] = [Self::AsFound, Self::Planned, Self::VirtInstall];

    /// Id of its arm.
    pub fn id(self) -> &'static str {
        match self {
            Self::AsFound => AS_FOUND,
            Self::Planned => PLANNED,
            Self::VirtInstall => VIRT_INSTALL,
        }
    }

    fn way(self, on: &OnScratch) -> Result<Way, MeasureError> {
        let by_hand = "as found, with cache=none and io=native as virt-install writes them";
        Ok(match self {
            Self::AsFound => Way::clone(ArmName::as_found(), "the domain as it was found", on.xml_found.clone()),
            Self::Planned => Way::clone(ArmName::planned(), "the domain as planned", on.xml_planned.clone()),
            Self::VirtInstall => {
                Way::clone(ArmName::virt_install(), by_hand, as_virt_install(&on.xml_found, &on.guest)?)
            }
        })
    }
}

/// Place of bare metal.
const BARE: usize = 0;

impl Request for SliceRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.on.guest.clone()]
    }

    fn check(&self) -> Result<(), MeasureError> {
        if self.arms.is_empty() {
            return Err(MeasureError::Asked("no clone to compare with bare metal: name one with --arm".to_owned()));
        }
        Ok(())
    }

    /// Runs the comparison and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The guest runs and may not be paused, the scratch device cannot be used, a clone does not come up, or four runs in a row
    /// failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        measure(self, session)
    }
}

fn measure(request: &SliceRequest, session: &mut Session<'_>) -> Result<Results, MeasureError> {
    let arms: Vec<SliceArm> = SliceArm::ALL.into_iter().filter(|arm| request.arms.contains(arm)).collect();
    let mut ways = vec![Way::bare()];
    for arm in &arms {
        ways.push(arm.way(&request.on)?);
    }
    let place = |wanted: SliceArm| arms.iter().position(|arm| *arm == wanted).map(|clone| BARE + 1 + clone);
    let (found, planned) = (place(SliceArm::AsFound), place(SliceArm::Planned));
    let stand = Stand::set_up(ways, Up::All, &request.on, session)?;
    let mut path = SlicePath { stand, found, in_small_pages: false };
    // The plan's own arm is what others are compared with; without it, the first clone is.
    let with_itself = planned.unwrap_or(BARE + 1);
    let (fresh, same_arm) = match request.on.pairing.quick {
        true => (Fresh::No, vec![with_itself]),
        false => (Fresh::Round, vec![BARE, with_itself]),
    };
    // Those as found come last: see the path. virt-install's driver options say nothing of memory.
    let near: Vec<usize> = std::iter::once(BARE).chain(planned).collect();
    let last: Vec<usize> = found.into_iter().collect();
    let groups: &[&[usize]] = match (planned, found) {
        (_, Some(_)) => &[&near, &last],
        (Some(_), None) => &[&near],
        (None, None) => &[],
    };
    let turns = Turns { same_arm, groups, fresh };
    paired("slice", &request.on, turns, &mut path, session)
}

/// The arms on their regions.
///
/// Guest memory is backed by 4 KiB pages only if transparent huge pages are off while it is first touched, so the host's
/// setting is `never` from the first memory run of the domain as found on, and a guest booted under it is used.
struct SlicePath {
    stand: Stand,
    /// Place of the domain as found, if it is there.
    found: Option<usize>,
    /// Whether the domain as found was booted with them off.
    in_small_pages: bool,
}

impl OnStand for SlicePath {
    fn stand(&self) -> &Stand {
        &self.stand
    }
}

impl Path for SlicePath {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let memory = matches!(step.workload, Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_));
        if memory && Some(step.arm) == self.found && !self.in_small_pages {
            session.transparent_pages_off(true)?;
            self.in_small_pages = true;
            self.stand.end(step.arm, session)?;
        }
        self.stand.turn_to(step, session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        self.stand.seat(arm, tenant)
    }

    fn refresh(&mut self, arms: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.stand.refresh(arms, session)
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        self.stand.revive(step, session)
    }
}
