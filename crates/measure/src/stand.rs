//! Arms side by side on one scratch device: bare metal, and clones of one guest in different definitions, each with an equal
//! region of the device and all on the same slice.

use std::collections::BTreeSet;
use std::time::Duration;

use nearmetal_load::{FioJob, SLACK, Workload, missing_file_system};
use nearmetal_place::Placement;
use nearmetal_results::{Arm, ArmName, Environment, Results, Slice};
use nearmetal_units::{Bytes, CpuSet};
use serde::{Deserialize, Serialize};

use crate::appliance::Appliance;
use crate::clones::{DiskClone, asks_for_huge_pages, clone_xml, in_its_cells, measured_disk, pinned_cpus};
use crate::engine::{Clones, Fresh, Guest, Path, Seat, Session, Step, Tenant, slice_of};
use crate::error::MeasureError;
use crate::finish::{Experiment, lab_caveat, on_top_caveat};
use crate::matrix::fill;
use crate::pairing::Pairing;
use crate::record::record;
use crate::scratch::Scratch;

/// What is written of all regions together at most before they are measured: of four arms more than the host's page cache holds of what
/// one reads in a sample, and a matter of a minute on a drive of today.
const MOST_WRITTEN: Bytes = Bytes::from_mib(128 << 10);
/// The same in a lab, whose drives have no medium.
const MOST_WRITTEN_IN_A_LAB: Bytes = Bytes::from_mib(512);
/// So much is written between two looks whether somebody asks for the end.
const WRITTEN_AT_ONCE: u64 = 4 << 30;
/// Partitions and requests are whole multiples of this.
const WHOLE: u64 = 1 << 20;

/// One arm that is to be there.
pub(crate) struct Way {
    /// Its name.
    pub name: ArmName,
    /// What it is, in a sentence.
    pub description: String,
    /// The definition that its clone is made from; `None`: bare metal, bound to the slice.
    pub xml: Option<String>,
}

impl Way {
    /// The slice of bare metal.
    pub(crate) fn bare() -> Self {
        Self {
            name: ArmName::bare_slice(),
            description: "the host itself, bound to the vCPUs' PUs and the guest's node by system calls".to_owned(),
            xml: None,
        }
    }

    /// A clone of the guest with this definition.
    pub(crate) fn clone(name: ArmName, description: &str, xml: String) -> Self {
        Self { name, description: description.to_owned(), xml: Some(xml) }
    }
}

/// The slice with the PUs that threads of any of these definitions are pinned to, unless that is the whole machine.
fn with_every_pin(ways: &[Way], slice: &Slice, online: &CpuSet) -> Result<Slice, MeasureError> {
    let mut cpus = slice.cpus.clone();
    for xml in ways.iter().filter_map(|way| way.xml.as_deref()) {
        cpus = cpus.union(&pinned_cpus(xml)?);
    }
    let is_all = online.is_subset(&cpus.union(&slice.cpus_on_top));
    Ok(if is_all { slice.clone() } else { Slice { cpus, ..slice.clone() } })
}

/// A guest, its definitions, and where it is measured with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OnScratch {
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
}

/// Which clones are up, the one whose turn it is not being paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Up {
    /// All of them, from the start to the end: the node must have memory for all.
    All,
    /// One at a time, booted for each of its turns.
    One,
}

/// Arms that are there: each clone was booted and read back.
pub(crate) struct Stand {
    /// How they reach their regions.
    pub clones: Clones,
    /// What each really is.
    pub arms: Vec<Arm>,
    /// What all of them run on.
    pub slice: Slice,
    /// Size of each region.
    pub region: Bytes,
    /// How much of each region was written beforehand, and is worked on by what works on blocks; `None`: nothing does.
    written: Option<Bytes>,
    /// How long that took.
    pub writing: Duration,
    up: Up,
    /// With [`Up::One`], the arm whose clone was booted last.
    last: Option<usize>,
    /// With [`Up::All`], arms whose clones were ended: they are booted for their next turn.
    ended: BTreeSet<usize>,
}

impl Stand {
    /// Pauses the guest, divides the scratch device, and boots a clone for each arm that has one; `up` says which of them
    /// stay.
    ///
    /// # Errors
    /// The guest runs and may not be paused, the scratch device cannot be used, or a clone does not come up.
    pub(crate) fn set_up(
        ways: Vec<Way>,
        up: Up,
        on: &OnScratch,
        session: &mut Session<'_>,
    ) -> Result<Self, MeasureError> {
        session.pause_original(&on.guest)?;
        session.stage("dividing the scratch device");
        let scratch = session.divide(&on.scratch, ways.len())?;
        let slice = slice_of(&on.placement, &on.scratch, scratch.region_size);
        session.stay_off(&[slice.clone(), with_every_pin(&ways, &slice, &session.host.online())?])?;
        let began = session.hypervisor.now();
        let written = write_regions(&on.pairing, &scratch, session)?;
        let writing = session.hypervisor.now().duration_since(began);
        session.stage("sizing hugepage pools");
        let definitions = || ways.iter().filter_map(|way| way.xml.as_deref());
        let mut in_huge_pages = 0;
        for xml in definitions() {
            in_huge_pages += u64::from(asks_for_huge_pages(xml, &on.guest)?);
        }
        let at_once = match up {
            Up::All => in_huge_pages,
            Up::One => 1,
        };
        session.grow_pools(&on.placement, at_once.max(1))?;
        for xml in definitions() {
            if let Some(own) = in_its_cells(xml, &on.guest, &on.placement)? {
                session.grow_pools(&own, at_once.max(1))?;
            }
        }
        let appliance = Appliance::with_probe(&session.conditions)?;
        let target = definitions().next().map(|xml| measured_disk(xml, &on.guest)).transpose()?.unwrap_or_default();
        let mut guests: Vec<Option<Guest>> = Vec::new();
        let mut bare = String::new();
        for (way, region) in ways.iter().zip(&scratch.regions) {
            let Some(xml) = &way.xml else {
                bare.clone_from(region);
                guests.push(None);
                continue;
            };
            let uuid = session.new_uuid()?;
            let (arm, guest) = (&way.name, on.guest.as_str());
            let made = DiskClone { guest, arm, target: &target, region, uuid: &uuid, appliance: &appliance };
            guests.push(Some(clone_xml(xml, &made)?));
        }
        session.will_clone(guests.iter().flatten().map(|guest| guest.name.clone()))?;
        let clones = Clones { guests, bare };
        session.stage("booting the clones");
        let mut stand = Self {
            clones,
            arms: Vec::new(),
            slice,
            region: scratch.region_size,
            written,
            writing,
            up,
            last: None,
            ended: BTreeSet::new(),
        };
        if up == Up::All {
            stand.clones.boot(&(0..ways.len()).collect::<Vec<_>>(), session)?;
        }
        for (place, (way, region)) in ways.iter().zip(&scratch.regions).enumerate() {
            stand.bring_up(place, session)?;
            let clone = stand.clones.guest(place).map(|guest| guest.name.clone());
            let arm = record(session, &way.name, &way.description, region, clone.as_deref(), &stand.slice)?;
            stand.arms.push(arm);
        }
        Ok(stand)
    }

    /// Ends the clone of an arm, which is booted for its next turn.
    pub(crate) fn end(&mut self, arm: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let Some(guest) = self.clones.guest(arm) else { return Ok(()) };
        session.end(&guest.name)?;
        self.ended.insert(arm);
        Ok(())
    }

    /// Where one at a time is up, boots the clone of an arm in the place of the last one, even of the same arm: two samples
    /// of an arm must differ by as much as two of different arms do. Where all are, boots one that was ended.
    fn bring_up(&mut self, arm: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let Some(guest) = self.clones.guest(arm).cloned() else { return Ok(()) };
        if self.up == Up::All {
            // Forgotten before the boot: one that fails is there all the same, and is ended by who revives it.
            return if self.ended.remove(&arm) { session.boot_paused(&guest) } else { Ok(()) };
        }
        if let Some(last) = self.last.and_then(|last| self.clones.guest(last)) {
            session.end(&last.name)?;
        }
        // Before the boot: one that fails half way must be ended too.
        self.last = Some(arm);
        session.boot_paused(&guest)
    }

    /// Whether what the arm runs in is there to be asked.
    fn is_there(&self, arm: usize) -> bool {
        match self.up {
            Up::All => true,
            Up::One => self.last == Some(arm) || self.clones.guest(arm).is_none(),
        }
    }

    /// The arms by name.
    pub(crate) fn names(&self) -> Vec<ArmName> {
        self.arms.iter().map(|arm| arm.name.clone()).collect()
    }

    /// What can be run: without file systems that an arm cannot make or mount, or that the regions cannot hold; each is
    /// noted.
    ///
    /// # Errors
    /// Nothing is left to run.
    pub(crate) fn usable(&self, pairing: &Pairing, session: &mut Session<'_>) -> Result<Pairing, MeasureError> {
        let within = |workload: &Workload| self.within_what_was_written(workload);
        let single_shot = pairing.single_shot.iter().map(within).collect();
        let mut kept = Pairing { paired: Vec::new(), single_shot, ..pairing.clone() };
        for workload in &pairing.paired {
            match self.why_not(workload, session)? {
                None => kept.paired.push(within(workload)),
                Some(why) => session.note(format!("left out: {}, {why}", workload.label())),
            }
        }
        if kept.paired.is_empty() && !pairing.paired.is_empty() {
            return Err(MeasureError::Unfit(format!("nothing can be measured: {}", session.notes.join("; "))));
        }
        Ok(kept)
    }

    /// What works on blocks keeps to those that were written; all of a region is no span.
    fn within_what_was_written(&self, workload: &Workload) -> Workload {
        match (workload, self.written) {
            (Workload::Fio(job), Some(written)) if job.span.is_none() && written < self.region => {
                FioJob { span: Some(written), ..job.clone() }.into()
            }
            _ => workload.clone(),
        }
    }

    fn why_not(&self, workload: &Workload, session: &mut Session<'_>) -> Result<Option<String>, MeasureError> {
        let Some((file_system, room)) = workload.load().files() else { return Ok(None) };
        if room > self.region {
            return Ok(Some(format!("it needs {room} and a region has {}: give a smaller --span", self.region)));
        }
        // All clones boot the same appliance: one of them answers for all.
        for (place, arm) in self.arms.iter().enumerate().filter(|(place, _)| self.is_there(*place)) {
            let seat = self.clones.seat(place, 0);
            let output = match &seat.guest {
                None => session.on_the_slice(&self.slice, &["file-systems"])?,
                Some(guest) => session.ask_paused(guest, &[&seat.probe, "file-systems"], SLACK)?,
            };
            if let Some(why) = missing_file_system(&output, file_system) {
                return Ok(Some(format!("arm {} cannot have it: {why}", arm.name.title)));
            }
        }
        Ok(None)
    }

    /// What a reader must know of such a measurement. `command`: what measures without --quick.
    pub(crate) fn caveats(&self, quick: bool, command: &str, session: &Session<'_>) -> Vec<String> {
        let mut caveats: Vec<String> = lab_caveat(&session.conditions.environment).into_iter().collect();
        let free: u64 = session.host.nodes.iter().filter_map(|node| node.memory_free).map(Bytes::get).sum();
        let worked_on = self.written.unwrap_or(self.region).times(self.arms.len() as u64);
        if worked_on.get() < free {
            caveats.push(format!(
                "what the arms work on together ({worked_on}) is smaller than the host's free memory ({}): the host's page cache can hold what an arm with cache=writeback has touched within a sample; it is dropped before each",
                Bytes::new(free)
            ));
        }
        match self.up {
            Up::All if quick => caveats.push(format!(
                "quick mode: guests stay up between samples, so the intervals leave out what changes from boot to boot; `nearmetal bench {command}` without --quick boots them afresh for each pair"
            )),
            Up::All => {}
            Up::One => caveats.push("one clone is up at a time, and each is booted afresh for every sample".to_owned()),
        }
        caveats.extend(on_top_caveat(&self.slice, "iothreads"));
        caveats
    }
}

/// Writes the regions, or the beginning of large ones, where blocks are worked on: those that were never written are read without
/// the drive's medium, and an arm that writes faster than another would soon work on a drive that is written further. Says how much of
/// each.
fn write_regions(
    pairing: &Pairing,
    scratch: &Scratch,
    session: &mut Session<'_>,
) -> Result<Option<Bytes>, MeasureError> {
    let mut all = pairing.paired.iter().chain(&pairing.single_shot);
    if !all.any(|workload| matches!(workload, Workload::Fio(_))) {
        return Ok(None);
    }
    let most = match session.conditions.environment {
        Environment::Lab { .. } => MOST_WRITTEN_IN_A_LAB,
        Environment::Silicon => MOST_WRITTEN,
    };
    let share = most.get() / scratch.regions.len().max(1) as u64 / WHOLE * WHOLE;
    let written = scratch.region_size.min(Bytes::new(share.max(WHOLE)));
    session.stage("writing what is read later");
    for region in &scratch.regions {
        for offset in (0..written.get()).step_by(WRITTEN_AT_ONCE as usize) {
            session.goes_on()?;
            fill(region, Bytes::new(offset), Bytes::new(WRITTEN_AT_ONCE.min(written.get() - offset)))?;
        }
    }
    Ok(Some(written))
}

/// A path whose tenant stands on one of these.
pub(crate) trait OnStand: Path {
    /// It.
    fn stand(&self) -> &Stand;
}

impl OnStand for Stand {
    fn stand(&self) -> &Stand {
        self
    }
}

/// How arms on a stand take turns.
pub(crate) struct Turns<'t> {
    /// Arms that are also compared with themselves.
    pub same_arm: Vec<usize>,
    /// Arms that run together, one group after the other.
    pub groups: &'t [&'t [usize]],
    /// When clones are booted anew.
    pub fresh: Fresh,
}

/// Runs what can be run of a pairing on a stand, to its document. `word`: the command that measures so.
///
/// # Errors
/// Nothing can be run, or four runs in a row failed.
pub(crate) fn paired(
    word: &'static str,
    on: &OnScratch,
    turns: Turns<'_>,
    path: &mut impl OnStand,
    session: &mut Session<'_>,
) -> Result<Results, MeasureError> {
    let pairing = path.stand().usable(&on.pairing, session)?;
    let names = path.stand().names();
    let mut design = pairing.design(&names, turns.same_arm, turns.groups, turns.fresh, session);
    let mut experiment = Experiment {
        experiment: word,
        quick: pairing.quick,
        arms: path.stand().arms.clone(),
        tenants: vec![Tenant::new(&on.guest, path.stand().slice.clone())],
        least_overlap: None,
        caveats: path.stand().caveats(pairing.quick, word, session),
        workloads: pairing.all().cloned().collect(),
        facts: Vec::new(),
        path,
    };
    let runs = experiment.runs(&mut design, session)?;
    experiment.document(runs, session)
}

impl Path for Stand {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.bring_up(step.arm, session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        self.clones.seat(arm, tenant)
    }

    fn refresh(&mut self, arms: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        match self.up {
            Up::All => {
                self.clones.refresh(arms, session)?;
                self.ended = (0..self.arms.len()).filter(|arm| !arms.contains(arm)).collect();
                Ok(())
            }
            Up::One => Ok(()),
        }
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        self.clones.revive(step, session)
    }
}
