//! The whole experiment: clones and regions made ready, rounds, and everything put back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use nearmetal_units::{Bytes, CpuSet};

use super::results::{MemberInfo, Side, TOGETHER_SCHEMA, TogetherResults, TogetherSample};
use super::sample::{Bench, Running};
use crate::appliance::{Appliance, PROBE_IN_GUEST};
use crate::bench::{Event, grow_pools, new_uuid, pause_original, slice, stay_off};
use crate::clones::{clone_xml, measured_disk};
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::experiment::GIVE_UP_AFTER;
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::matrix::fill;
use crate::record::{provenance, record};
use crate::results::{ArmKind, Environment, Slice};
use crate::schedule::{Design, SplitMix};
use crate::scratch::Scratch;
use crate::workload::{FioJob, Workload};

/// How often a sample that does not count is tried again before its pair is given up.
const TRIES: u32 = 2;

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

/// What to measure.
#[derive(Debug, Clone)]
pub struct TogetherRequest {
    /// The guests, in the order in which they join.
    pub members: Vec<Member>,
    /// What each runs.
    pub job: FioJob,
    /// Pairs for each number of guests.
    pub pairs: u32,
    /// Whether every number from one to all is measured, or all alone.
    pub scaling: bool,
    /// The least overlap of a sample that counts, from 0 to 1.
    pub least_overlap: f64,
    /// Seed of order, workloads and bootstrap.
    pub seed: u64,
    /// Directory of the appliance.
    pub appliance: PathBuf,
    /// The probe.
    pub probe: PathBuf,
    /// State directory, for the record of what must be put back.
    pub state: PathBuf,
    /// Lab or silicon.
    pub environment: Environment,
    /// Whether the user allows running originals to be paused.
    pub pause: bool,
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
    apart(&request.members)?;
    let mut scratches = Vec::new();
    let result = leaving_nothing(&request.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
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
fn apart(members: &[Member]) -> Result<(), MeasureError> {
    let unfit = |why: String| Err(MeasureError::Unfit(why));
    for (number, member) in members.iter().enumerate() {
        let own = pus(&member.placement);
        if own.is_empty() {
            return unfit(format!(
                "the plan pins nothing of `{}`, so that there is no slice to compare it with",
                member.guest
            ));
        }
        for other in &members[..number] {
            if other.guest == member.guest {
                return unfit(format!("`{}` is named twice", member.guest));
            }
            let shared = own.intersection(&pus(&other.placement));
            if !shared.is_empty() {
                return unfit(format!(
                    "`{}` and `{}` share PUs {shared}: their bare slices cannot run side by side; plan them together",
                    other.guest, member.guest
                ));
            }
        }
    }
    Ok(())
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
    for member in &request.members {
        pause_original(&member.guest, request.pause, hypervisor, leftovers)?;
    }
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
    stay_off(host, &all_of(&slices))?;
    tell(Event::Stage("sizing hugepage pools"));
    for member in &request.members {
        // Read anew, since two members may share a pool; what it had before the first is what it gets back.
        grow_pools(&member.placement, 1, &Host::read(fs), fs, leftovers)?;
        first_of_each(leftovers);
        leftovers.save()?;
    }

    let work = request.state.join("bench");
    let appliance = Appliance::with_probe(&request.appliance, &request.probe, &work)?;
    let mut members = Vec::new();
    let mut clones = Vec::new();
    for ((member, scratch), slice) in request.members.iter().zip(scratches.iter()).zip(&slices) {
        let [bare, guest] = scratch.regions.as_slice() else { continue };
        let target = measured_disk(&member.xml_planned, &member.guest)?;
        let uuid = new_uuid(fs)?;
        let made = clone_xml(&member.xml_planned, &member.guest, ArmKind::Planned, &target, guest, &uuid, &appliance)?;
        members.push(Running {
            guest: member.guest.clone(),
            clone: made.name.clone(),
            uuid,
            slice: slice.clone(),
            bare_device: bare.clone(),
            device: "/dev/vda".to_owned(),
        });
        clones.push((GuestArm { name: made.name, xml: made.xml, device: "/dev/vda".to_owned() }, guest.clone()));
    }
    leftovers.clones = members.iter().map(|member| member.clone.clone()).collect();
    leftovers.save()?;

    let versions = hypervisor.versions().ok();
    tell(Event::Stage("booting the clones"));
    let mut caveats = caveats(request);
    let mut infos = Vec::new();
    for (member, (clone, region)) in members.iter().zip(clones) {
        // One machine each for booting and recording: they know one clone of an arm.
        let mut machine = Machine {
            hypervisor: &mut *hypervisor,
            fs,
            probe: request.probe.clone(),
            probe_in_guest: PROBE_IN_GUEST.to_owned(),
            slice: member.slice.clone(),
            bare_device: member.bare_device.clone(),
            guests: BTreeMap::from([(ArmKind::Planned, clone)]),
            notes: Vec::new(),
        };
        machine.boot(&[ArmKind::Planned])?;
        let placement = record(&mut machine, ArmKind::Planned, &region)?.placement;
        caveats.append(&mut machine.notes);
        infos.push(MemberInfo { guest: member.guest.clone(), slice: member.slice.clone(), placement });
    }

    let mut bench = Bench {
        fs,
        hypervisor: &mut *hypervisor,
        probe: request.probe.clone(),
        job: request.job.clone(),
        least_overlap: request.least_overlap,
    };
    let samples = rounds(request, &members, &mut bench, tell)?;
    let design = Design {
        arms: vec![ArmKind::BareSlice, ArmKind::Planned],
        paired: vec![Workload::Fio(request.job.clone())],
        rounds: request.pairs,
        same_arm: Vec::new(),
        same_arm_pairs: 0,
        single_shot: Vec::new(),
    };
    Ok(TogetherResults {
        schema: TOGETHER_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.environment.clone(),
        seed: request.seed,
        members: infos,
        job: request.job.clone(),
        least_overlap: request.least_overlap,
        samples,
        caveats,
        provenance: provenance(host, versions.as_ref(), request.seed, &design),
    })
}

/// The order: rounds of all numbers of members are mixed, and a coin decides which side of each goes first.
fn order(counts: &[usize], pairs: u32, seed: u64) -> Vec<(usize, [Side; 2])> {
    let mut random = SplitMix::new(seed);
    let mut rounds: Vec<usize> = counts.iter().flat_map(|count| std::iter::repeat_n(*count, pairs as usize)).collect();
    random.shuffle(&mut rounds);
    let with_sides = rounds.into_iter().map(|count| {
        let mut sides = [Side::Bare, Side::Guests];
        random.shuffle(&mut sides);
        (count, sides)
    });
    with_sides.collect()
}

fn rounds(
    request: &TogetherRequest,
    members: &[Running],
    bench: &mut Bench<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Vec<TogetherSample>, MeasureError> {
    let all = members.len();
    let counts: Vec<usize> = if request.scaling { (1..=all).collect() } else { vec![all] };
    let order = order(&counts, request.pairs, request.seed);
    let total = order.len();
    let mut seeds = SplitMix::new(request.seed.wrapping_add(1));
    let mut samples: Vec<TogetherSample> = Vec::new();
    let mut in_a_row = 0;
    for (round, (count, sides)) in order.into_iter().enumerate() {
        tell(Event::Stage(&format!("round {} of {total}: {count} at once", round + 1)));
        // fio takes a positive 32-bit seed on every version; each member has the next one, on both sides the same.
        let seed = (seeds.next() >> 34) | 1;
        'sides: for side in sides {
            for _ in 0..TRIES {
                let sample = bench.sample(&members[..count], side, round as u32, seed);
                let (is_good, ran) = (sample.thrown_away.is_none(), !sample.members.is_empty());
                in_a_row = if is_good || ran { 0 } else { in_a_row + 1 };
                let why = sample.thrown_away.clone();
                samples.push(sample);
                if is_good {
                    continue 'sides;
                }
                if in_a_row >= GIVE_UP_AFTER {
                    return Err(MeasureError::Unfit(format!(
                        "{GIVE_UP_AFTER} samples in a row failed, the last: {}",
                        why.unwrap_or_default()
                    )));
                }
            }
            // The other side alone would be no pair.
            break;
        }
    }
    Ok(samples)
}

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
    let mut caveats = Vec::new();
    if let Environment::Lab { machine } = &request.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software, and all of its processors share a few real ones: what its guests take from each other says nothing of silicon"
        ));
    }
    caveats.push("guests stay up between samples, and each runs the planned path to its own scratch device".into());
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_gets_its_pairs_and_no_side_always_goes_first() {
        let order = order(&[1, 2, 4], 20, 7);
        for count in [1, 2, 4] {
            assert_eq!(order.iter().filter(|(own, _)| *own == count).count(), 20);
        }
        let first = order.iter().filter(|(_, sides)| sides[0] == Side::Bare).count();
        assert!((15..=45).contains(&first), "{first} of 60");
        assert!(order[..20].iter().any(|(count, _)| *count != order[0].0), "they are mixed");
        assert_eq!(order, super::order(&[1, 2, 4], 20, 7));
    }
}
