//! The whole experiment: clones and regions made ready, rounds, and everything put back.

use std::collections::BTreeMap;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use nearmetal_units::{Bytes, CpuSet};

use super::drives::{Drives, OnDrives};
use super::ready::Ready;
use super::results::{MemberInfo, Side, TogetherLoad, TogetherResults};
use super::sample::Running;
use crate::appliance::Appliance;
use crate::bench::{Event, grow_pools, new_uuid, pause_original, slice, stay_off};
use crate::clones::{clone_xml, measured_disk};
use crate::conditions::Conditions;
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::matrix::fill;
use crate::record::record;
use crate::results::{ArmKind, Environment, Slice};
use crate::scratch::Scratch;
use crate::workload::FioJob;

/// The one disk of a clone, as its kernel calls it.
const DISK_IN_GUEST: &str = "/dev/vda";

/// One guest.
#[derive(Debug, Clone)]
pub struct Member {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: its slice.
    pub placement: Placement,
    /// Its XML as planned.
    pub xml_planned: String,
    /// Its scratch device: its contents are lost.
    pub scratch: String,
}

/// How several guests are measured at once, whatever they run.
#[derive(Debug, Clone)]
pub struct TogetherTerms {
    /// Pairs for each number of guests.
    pub pairs: u32,
    /// Whether every number from one to all is measured, or all alone.
    pub scaling: bool,
    /// The least overlap of a sample that counts, from 0 to 1.
    pub least_overlap: f64,
    /// Under what.
    pub conditions: Conditions,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct TogetherRequest {
    /// The guests, in the order in which they join.
    pub members: Vec<Member>,
    /// What each runs.
    pub job: FioJob,
    /// How.
    pub terms: TogetherTerms,
}

/// Runs the experiment and puts everything back, whatever came of it.
///
/// # Errors
/// Slices that share PUs, a scratch device that holds data or is named twice, clones that do not come up; or several samples
/// in a row that fail.
pub fn bench_together(
    request: &TogetherRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    apart(request.members.iter().map(|member| (member.guest.as_str(), &member.placement)))?;
    let mut scratches = Vec::new();
    let result =
        leaving_nothing(&request.terms.conditions.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
            measure(request, fs, host, hypervisor, leftovers, &mut scratches, tell)
        });
    // The clones held the regions open, so the scratch devices come last; all of them, whatever one of them says.
    let released: Vec<_> = scratches.into_iter().map(Scratch::release).collect();
    let results = result?;
    released.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(results)
}

/// The PUs of a slice; none where the plan pins nothing.
fn pus(placement: &Placement) -> CpuSet {
    placement.vcpus.iter().fold(CpuSet::new(), |cpus, pin| cpus.union(&pin.cpus))
}

/// Refuses members that cannot run side by side.
pub(crate) fn apart<'a>(members: impl Iterator<Item = (&'a str, &'a Placement)> + Clone) -> Result<(), MeasureError> {
    let unfit = |why: String| Err(MeasureError::Unfit(why));
    for (number, (guest, placement)) in members.clone().enumerate() {
        let own = pus(placement);
        if own.is_empty() {
            return unfit(format!("the plan pins nothing of `{guest}`, so that there is no slice to compare it with"));
        }
        for (other, beside) in members.clone().take(number) {
            if other == guest {
                return unfit(format!("`{guest}` is named twice"));
            }
            let shared = own.intersection(&pus(beside));
            if !shared.is_empty() {
                return unfit(format!(
                    "`{other}` and `{guest}` share PUs {shared}: their bare slices cannot run side by side; plan them together"
                ));
            }
        }
    }
    Ok(())
}

/// Regions of scratch devices: each side has its own.
struct Regions {
    bare: Vec<String>,
}

impl Drives for Regions {
    fn device(&self, side: Side, number: usize) -> &str {
        match side {
            Side::Bare => self.bare.get(number).map_or("", String::as_str),
            Side::Guests => DISK_IN_GUEST,
        }
    }
}

fn measure(
    request: &TogetherRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    scratches: &mut Vec<Scratch>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    let guests = request.members.iter().map(|member| (member.guest.as_str(), &member.placement));
    pause_all(guests.clone(), &request.terms, hypervisor, leftovers)?;
    tell(Event::Stage("dividing the scratch devices"));
    for member in &request.members {
        // One region for each side.
        scratches.push(Scratch::prepare(fs, &member.scratch, 2)?);
    }
    for (number, scratch) in scratches.iter().enumerate() {
        if scratches[..number].iter().any(|other| other.device() == scratch.device()) {
            return Err(MeasureError::Unfit(format!("the scratch device {} is named twice", scratch.device())));
        }
    }
    if let Some(span) = request.job.span {
        // Blocks that were never written are read without the drive's medium.
        tell(Event::Stage("writing what is read later"));
        for scratch in scratches.iter() {
            if span > scratch.region_size {
                return Err(MeasureError::Unfit(format!(
                    "{} has {} for each side, and {span} are to be worked on: take a larger one",
                    scratch.device(),
                    scratch.region_size
                )));
            }
            scratch.regions.iter().try_for_each(|region| fill(region, Bytes::ZERO, span))?;
        }
    }
    let slices: Vec<Slice> = request
        .members
        .iter()
        .zip(scratches.iter())
        .map(|(member, scratch)| slice(&member.placement, scratch.device(), scratch.region_size))
        .collect();
    make_room(guests, &slices, fs, host, leftovers, tell)?;

    let work = request.terms.conditions.state.join("bench");
    let appliance = Appliance::with_probe(&request.terms.conditions.appliance, &request.terms.conditions.probe, &work)?;
    let mut members = Vec::new();
    let (mut clones, mut bare_regions) = (Vec::new(), Vec::new());
    for ((member, scratch), slice) in request.members.iter().zip(scratches.iter()).zip(&slices) {
        let [bare, guest] = scratch.regions.as_slice() else { continue };
        let target = measured_disk(&member.xml_planned, &member.guest)?;
        let uuid = new_uuid(fs)?;
        let made = clone_xml(&member.xml_planned, &member.guest, ArmKind::Planned, &target, guest, &uuid, &appliance)?;
        members.push(Running { guest: member.guest.clone(), clone: made.name.clone(), uuid, slice: slice.clone() });
        bare_regions.push(bare.clone());
        clones.push((GuestArm { name: made.name, xml: made.xml, device: DISK_IN_GUEST.to_owned() }, guest.clone()));
    }
    leftovers.clones = members.iter().map(|member| member.clone.clone()).collect();
    leftovers.save()?;

    let versions = hypervisor.versions().ok();
    tell(Event::Stage("booting the clones"));
    let mut caveats = caveats(request);
    let mut infos = Vec::new();
    for ((member, bare), (clone, region)) in members.iter().zip(&bare_regions).zip(clones) {
        // One machine each for booting and recording: they know one clone of an arm.
        let guests = BTreeMap::from([(ArmKind::Planned, clone)]);
        let mut machine =
            Machine::of_clones(&mut *hypervisor, fs, &request.terms.conditions, &member.slice, bare, guests);
        machine.boot(&[ArmKind::Planned])?;
        let placement = record(&mut machine, ArmKind::Planned, &region)?.placement;
        caveats.append(&mut machine.notes);
        infos.push(MemberInfo { guest: member.guest.clone(), slice: member.slice.clone(), placement });
    }

    let mut load = OnDrives { job: request.job.clone(), drives: Regions { bare: bare_regions } };
    let ready = Ready { terms: &request.terms, members, infos, load: &mut load, versions, caveats };
    ready.measured(TogetherLoad::Disk { job: request.job.clone() }, fs, host, hypervisor, tell)
}

/// Pauses the originals of all members.
pub(crate) fn pause_all<'a>(
    members: impl Iterator<Item = (&'a str, &'a Placement)>,
    terms: &TogetherTerms,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
) -> Result<(), MeasureError> {
    for (guest, _) in members {
        pause_original(guest, terms.conditions.pause, hypervisor, leftovers)?;
    }
    Ok(())
}

/// Keeps this process off the slices, and sees that the pools hold a clone of each member.
pub(crate) fn make_room<'a>(
    members: impl Iterator<Item = (&'a str, &'a Placement)>,
    slices: &[Slice],
    fs: &HostFs,
    host: &Host,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(), MeasureError> {
    stay_off(host, &all_of(slices))?;
    tell(Event::Stage("sizing hugepage pools"));
    for (_, placement) in members {
        // Read anew, since two members may share a pool; what it had before the first is what it gets back.
        grow_pools(placement, 1, &Host::read(fs), fs, leftovers)?;
        first_of_each(leftovers);
        leftovers.save()?;
    }
    Ok(())
}

/// What a reader of figures of several guests must know of a lab.
pub(crate) fn lab_caveat(environment: &Environment) -> Option<String> {
    let Environment::Lab { machine } = environment else { return None };
    Some(format!(
        "lab: emulated time. The machine `{machine}` is software, and all of its processors share a few real ones: what its guests take from each other says nothing of silicon"
    ))
}

/// What all slices cover together.
fn all_of(slices: &[Slice]) -> Slice {
    let mut all = Slice {
        cpus: CpuSet::new(),
        nodes: slices.first().map(|slice| slice.nodes.clone()).unwrap_or_default(),
        page_size: None,
        device: String::new(),
        region: Bytes::ZERO,
        cpus_on_top: CpuSet::new(),
    };
    for slice in slices {
        all.cpus = all.cpus.union(&slice.cpus);
        all.cpus_on_top = all.cpus_on_top.union(&slice.cpus_on_top);
    }
    all
}

/// A pool that was grown twice is shrunk once, to what it had before the first time.
fn first_of_each(leftovers: &mut Leftovers) {
    let mut seen = Vec::new();
    leftovers.pools.retain(|pool| {
        let key = (pool.node, pool.size);
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    });
}

fn caveats(request: &TogetherRequest) -> Vec<String> {
    let mut caveats: Vec<String> = lab_caveat(&request.terms.conditions.environment).into_iter().collect();
    caveats.push("guests stay up between samples, and each runs the planned path to its own scratch device".into());
    caveats
}
