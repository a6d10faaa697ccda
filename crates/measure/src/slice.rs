//! A guest in clones — as found, as planned, as virt-install writes it — against the same slice of its own bare metal.

use nearmetal_load::Workload;
use nearmetal_results::{ArmName, Results};
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
    /// Under what.
    pub conditions: Conditions,
}

/// Places of the arms.
const BARE: usize = 0;
const FOUND: usize = 1;
const PLANNED: usize = 2;

impl Request for SliceRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.on.guest.clone()]
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
    let (found, planned) = (request.on.xml_found.clone(), request.on.xml_planned.clone());
    let virt_install = as_virt_install(&found, &request.on.guest)?;
    let by_hand = "as found, with cache=none and io=native as virt-install writes them";
    let ways = vec![
        Way::bare(),
        Way::clone(ArmName::as_found(), "the domain as it was found", found),
        Way::clone(ArmName::planned(), "the domain as planned", planned),
        Way::clone(ArmName::virt_install(), by_hand, virt_install),
    ];
    let mut path = SlicePath { stand: Stand::set_up(ways, Up::All, &request.on, session)?, in_small_pages: false };
    let (fresh, same_arm) = match request.on.pairing.quick {
        true => (Fresh::No, vec![PLANNED]),
        false => (Fresh::Round, vec![BARE, PLANNED]),
    };
    // Those as found come last: see the path.
    let turns = Turns { same_arm, groups: &[&[BARE, PLANNED], &[FOUND]], fresh };
    paired("slice", &request.on, turns, &mut path, session)
}

/// The arms on their regions.
///
/// Guest memory is backed by 4 KiB pages only if transparent huge pages are off while it is first touched, so the host's
/// setting is `never` from the first memory run of the domain as found on, and a guest booted under it is used.
struct SlicePath {
    stand: Stand,
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
        self.stand.turn_to(step, session)?;
        let memory = matches!(step.workload, Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_));
        if !memory || step.arm != FOUND || self.in_small_pages {
            return Ok(());
        }
        session.transparent_pages_off(true)?;
        self.in_small_pages = true;
        let Some(guest) = self.stand.clones.guest(FOUND).cloned() else { return Ok(()) };
        session.end(&guest.name)?;
        session.boot_paused(&guest)
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
