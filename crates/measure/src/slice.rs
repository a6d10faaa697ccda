//! A guest in clones — as found, as planned, as virt-install writes it — against the same slice of its own bare metal.

use nearmetal_place::Placement;
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::appliance::Appliance;
use crate::arm::ArmName;
use crate::clones::{DiskClone, clone_xml, measured_disk};
use crate::conditions::Conditions;
use crate::engine::{Clones, Fresh, Guest, Path, Seat, Session, Step, Tenant, slice_of};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request, lab_caveat, on_top_caveat};
use crate::leftovers::{THP, write};
use crate::load::{SLACK, Workload, missing_file_system};
use crate::pairing::Pairing;
use crate::record::record;
use crate::results::{Arm, Results, Slice};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SliceRequest {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: the slice.
    pub placement: Placement,
    /// Its XML as found.
    pub xml_found: String,
    /// Its XML as planned.
    pub xml_planned: String,
    /// Scratch device, `/dev/nvme0n2`: its contents are lost.
    pub scratch: String,
    /// What to run.
    pub pairing: Pairing,
    /// Under what.
    pub conditions: Conditions,
}

/// Places of the arms.
const BARE: usize = 0;
const FOUND: usize = 1;
const PLANNED: usize = 2;

fn names() -> [ArmName; 4] {
    [ArmName::bare_slice(), ArmName::as_found(), ArmName::planned(), ArmName::virt_install()]
}

const DESCRIPTIONS: [&str; 4] = [
    "the host itself, bound to the vCPUs' PUs and the guest's node by system calls",
    "the domain as it was found",
    "the domain as planned",
    "as found, with cache=none and io=native as virt-install writes them",
];

impl Request for SliceRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.guest.clone()]
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
    session.pause_original(&request.guest)?;
    session.stage("dividing the scratch device");
    let names = names();
    let scratch = session.divide(&request.scratch, names.len())?;
    let slice = slice_of(&request.placement, &request.scratch, scratch.region_size);
    session.stay_off(std::slice::from_ref(&slice))?;
    session.stage("sizing hugepage pools");
    session.grow_pools(&request.placement, 1)?;
    let appliance = Appliance::with_probe(&request.conditions)?;
    let target = measured_disk(&request.xml_found, &request.guest)?;
    let mut guests = Vec::new();
    for (place, (arm, region)) in names.iter().zip(&scratch.regions).enumerate() {
        let xml = if place == PLANNED { &request.xml_planned } else { &request.xml_found };
        let uuid = session.new_uuid()?;
        let made =
            DiskClone { guest: &request.guest, arm, target: &target, region, uuid: &uuid, appliance: &appliance };
        guests.push(if place == BARE { None } else { Some(clone_xml(xml, &made)?) });
    }
    session.will_clone(guests.iter().flatten().map(|guest: &Guest| guest.name.clone()))?;
    let mut path =
        SlicePath { clones: Clones { guests, bare: scratch.regions[BARE].clone() }, thp: None, slice: slice.clone() };
    session.stage("booting the clones");
    path.clones.boot(&[FOUND, PLANNED, 3], session)?;
    let mut arms: Vec<Arm> = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let clone = path.clones.guest(place).map(|guest| guest.name.clone());
        arms.push(record(session, name, DESCRIPTIONS[place], &scratch.regions[place], clone.as_deref(), &slice)?);
    }
    let pairing = &path.usable(&request.pairing, scratch.region_size, session)?;
    let fresh = if pairing.quick { Fresh::No } else { Fresh::Round };
    let same_arm = if pairing.quick { vec![PLANNED] } else { vec![BARE, PLANNED] };
    // Those as found come last: see the path.
    let mut design = pairing.design(&names, same_arm, &[&[BARE, PLANNED], &[FOUND]], fresh, session);
    let mut experiment = Experiment {
        experiment: "slice",
        quick: pairing.quick,
        arms,
        tenants: vec![Tenant::new(&request.guest, slice.clone())],
        least_overlap: None,
        caveats: caveats(request, session, &slice, names.len()),
        workloads: pairing.all().cloned().collect(),
        facts: Vec::new(),
        path: &mut path,
    };
    let runs = experiment.runs(&mut design, session)?;
    experiment.document(runs, session)
}

/// Clones on regions of one scratch device.
///
/// Guest memory is backed by 4 KiB pages only if transparent huge pages are off while it is first touched, so the host's
/// setting is `never` from the first memory run of the domain as found on, and a guest booted under it is used.
struct SlicePath {
    clones: Clones,
    thp: Option<String>,
    slice: Slice,
}

impl SlicePath {
    /// What can be run: without file systems that an arm cannot make or mount, or that the regions cannot hold; each is
    /// noted.
    fn usable(&self, pairing: &Pairing, region: Bytes, session: &mut Session<'_>) -> Result<Pairing, MeasureError> {
        let mut kept = Pairing { paired: Vec::new(), ..pairing.clone() };
        for workload in &pairing.paired {
            match self.why_not(workload, region, session)? {
                None => kept.paired.push(workload.clone()),
                Some(why) => session.note(format!("left out: {}, {why}", workload.label())),
            }
        }
        if kept.paired.is_empty() && !pairing.paired.is_empty() {
            return Err(MeasureError::Unfit(format!("nothing can be measured: {}", session.notes.join("; "))));
        }
        Ok(kept)
    }

    fn why_not(
        &self,
        workload: &Workload,
        region: Bytes,
        session: &mut Session<'_>,
    ) -> Result<Option<String>, MeasureError> {
        let Workload::FileSystem(job) = workload else { return Ok(None) };
        if job.room() > region {
            return Ok(Some(format!("it needs {} and a region has {region}: give a smaller --span", job.room())));
        }
        for (place, name) in names().iter().enumerate() {
            let seat = self.clones.seat(place, 0);
            let output = match &seat.guest {
                None => session.on_the_slice(&self.slice, &["file-systems"])?,
                Some(guest) => session.ask_paused(guest, &[&seat.probe, "file-systems"], SLACK)?,
            };
            if let Some(why) = missing_file_system(&output, job.file_system) {
                return Ok(Some(format!("arm {} cannot have it: {why}", name.title)));
            }
        }
        Ok(None)
    }
}

impl Path for SlicePath {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let memory = matches!(step.workload, Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_));
        if !memory || step.arm != FOUND || self.thp.is_some() {
            return Ok(());
        }
        let found = session.host.system.transparent_hugepage.clone();
        if let Some(mode) = &found {
            session.leftovers.transparent_hugepage = Some(mode.clone());
            session.leftovers.save()?;
            write(session.fs, THP, "never")?;
        }
        self.thp = Some(found.unwrap_or_default());
        let Some(guest) = self.clones.guest(FOUND).cloned() else { return Ok(()) };
        session.end(&guest.name)?;
        session.boot_paused(&guest)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        self.clones.seat(arm, tenant)
    }

    fn refresh(&mut self, arms: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.clones.refresh(arms, session)
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        self.clones.revive(step, session)
    }
}

fn caveats(request: &SliceRequest, session: &Session<'_>, slice: &Slice, arms: usize) -> Vec<String> {
    let mut caveats: Vec<String> = lab_caveat(&request.conditions.environment).into_iter().collect();
    let free: u64 = session.host.nodes.iter().filter_map(|node| node.memory_free).map(Bytes::get).sum();
    let regions = slice.region.times(arms as u64);
    if regions.get() < free {
        caveats.push(format!(
            "the regions together ({regions}) are smaller than the host's free memory ({}): the host's page cache can hold what the as-found arm (writeback) has touched within a sample; it is dropped before each",
            Bytes::new(free)
        ));
    }
    if request.pairing.quick {
        caveats.push("quick mode: guests stay up between samples; `nearmetal bench slice` without --quick boots them afresh for each pair".into());
    }
    caveats.extend(on_top_caveat(slice, "iothreads"));
    caveats
}
