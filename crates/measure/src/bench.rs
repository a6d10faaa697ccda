//! One whole experiment on this machine: clones, pools, regions, rounds, and everything put back.

use std::collections::BTreeMap;

use nearmetal_change::{POOL_PATIENCE, resize_pool};
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{DomainState, Hypervisor};
use nearmetal_place::Placement;
use nearmetal_units::{Bytes, CpuSet};

use crate::appliance::Appliance;
use crate::clones::{clone_xml, measured_disk};
use crate::conditions::Conditions;
use crate::cost::exit_reasons;
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::experiment::perform;
use crate::file_set::FileJob;
use crate::leftovers::{Leftovers, PoolBefore, THP, leaving_nothing_on_scratch, write};
use crate::pilot;
use crate::record::{provenance, record};
use crate::results::{ArmKind, Environment, Results, Run, SCHEMA, Slice};
use crate::schedule::{Design, Step, schedule};
use crate::scratch::Scratch;
use crate::workload::Workload;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Request {
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
    pub design: Design,
    /// The factor above 1, such as 0.05, to which every interval is brought: the design's rounds are then a pilot, from
    /// which the number of pairs is fixed. `None`: the design's rounds are all.
    pub resolve: Option<f64>,
    /// Memory workloads, run once in each arm and page size.
    pub memory: Vec<crate::workload::Workload>,
    /// Guests stay up between rounds.
    pub quick: bool,
    /// Under what.
    pub conditions: Conditions,
}

/// What the caller hears while it runs.
pub enum Event<'a> {
    /// A stage began.
    Stage(&'a str),
    /// A run of a race begins.
    Turn {
        /// Round, from 0.
        round: u32,
        /// What a person calls the arm.
        arm: &'a str,
        /// Arms of this round.
        racing: usize,
    },
    /// Step `index` of `total` begins.
    Step {
        /// From 0.
        index: usize,
        /// Of all.
        total: usize,
        /// Which.
        step: &'a Step,
    },
}

/// Runs an experiment and puts everything back, whatever came of it.
pub fn bench(
    request: &Request,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Results, MeasureError> {
    leaving_nothing_on_scratch(
        &request.conditions.state,
        fs,
        hypervisor,
        tell,
        |host, hypervisor, leftovers, scratch, tell| measure(request, fs, host, hypervisor, leftovers, scratch, tell),
    )
}

fn measure(
    request: &Request,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    scratch_slot: &mut Option<Scratch>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Results, MeasureError> {
    pause_original(&request.guest, request.conditions.pause, hypervisor, leftovers)?;
    let arms = &request.design.arms;
    tell(Event::Stage("dividing the scratch device"));
    let scratch = scratch_slot.insert(Scratch::prepare(fs, &request.scratch, arms.len())?);
    let slice = slice(&request.placement, &request.scratch, scratch.region_size);
    stay_off(host, &slice)?;
    tell(Event::Stage("sizing hugepage pools"));
    grow_pools(&request.placement, 1, host, fs, leftovers)?;

    let work = request.conditions.state.join("bench");
    let appliance = Appliance::with_probe(&request.conditions.appliance, &request.conditions.probe, &work)?;
    let target = measured_disk(&request.xml_found, &request.guest)?;
    let mut guests = BTreeMap::new();
    let mut regions = BTreeMap::new();
    for (arm, region) in arms.iter().zip(&scratch.regions) {
        regions.insert(*arm, region.clone());
        let xml = match arm {
            ArmKind::BareSlice => continue,
            ArmKind::Planned => &request.xml_planned,
            ArmKind::AsFound | ArmKind::VirtInstall => &request.xml_found,
        };
        let uuid = new_uuid(fs)?;
        let clone = clone_xml(xml, &request.guest, *arm, &target, region, &uuid, &appliance)?;
        // The clone has this one disk on virtio, so the guest's kernel names it so whatever the original's target is.
        guests.insert(*arm, GuestArm { name: clone.name, xml: clone.xml, device: "/dev/vda".to_owned() });
    }
    leftovers.clones = guests.values().map(|guest| guest.name.clone()).collect();
    leftovers.save()?;

    let bare_device = regions.get(&ArmKind::BareSlice).cloned().unwrap_or_default();
    let versions = hypervisor.versions().ok();
    let mut machine = Machine::of_clones(hypervisor, fs, &request.conditions, &slice, &bare_device, guests);
    tell(Event::Stage("booting the clones"));
    machine.boot(arms)?;
    let records = arms.iter().map(|arm| record(&mut machine, *arm, &regions[arm])).collect::<Result<Vec<_>, _>>()?;

    let design = &usable(&request.design, &mut machine, scratch.region_size)?;
    let steps = schedule(design, request.conditions.seed);
    let total = steps.len();
    let mut runs =
        perform(&steps, !request.quick, &mut machine, &mut |index, step| tell(Event::Step { index, total, step }))?;
    if let Some(resolve) = request.resolve {
        tell(Event::Stage("fixing the number of pairs"));
        for workload in &design.paired {
            let rounds = design.rounds;
            let Some(needed) = pilot::needed(&runs, workload, resolve)? else { continue };
            let more = (needed.n as u32).saturating_sub(rounds);
            let capped =
                if needed.capped { format!(" of the {} it would take", needed.uncapped) } else { String::new() };
            machine.notes.push(format!(
                "{}: {} pairs{capped}, fixed after a pilot of {rounds} to resolve {:.1} %",
                workload.label(),
                rounds + more,
                resolve * 100.0
            ));
            let first = runs.last().map_or(0, |run| run.round + 1);
            let steps = pilot::remaining(design, workload, more, request.conditions.seed.wrapping_add(1), first);
            let total = steps.len();
            runs.extend(perform(&steps, !request.quick, &mut machine, &mut |index, step| {
                tell(Event::Step { index, total, step });
            })?);
        }
    }
    tell(Event::Stage("exits by reason"));
    let next = runs.last().map_or(0, |run| run.round + 1);
    let (more, untold) = exit_reasons(fs, &request.design, request.conditions.seed, next, &mut machine, leftovers);
    runs.extend(more);
    machine.notes.extend(untold);
    if !request.memory.is_empty() {
        tell(Event::Stage("memory latency and bandwidth"));
        runs.extend(memory_runs(request, &mut machine, leftovers, host, runs.last().map_or(0, |run| run.round + 1))?);
    }

    let provenance = provenance(host, versions.as_ref(), request.conditions.seed, design);
    Ok(Results {
        schema: SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.conditions.environment.clone(),
        quick: request.quick,
        seed: request.conditions.seed,
        guest: request.guest.clone(),
        caveats: [caveats(request, host, &slice, arms.len()), machine.notes].concat(),
        slice,
        arms: records,
        runs,
        provenance,
    })
}

/// The design without file systems that an arm cannot make or mount, or that the regions cannot hold; each is noted.
fn usable(design: &Design, machine: &mut Machine<'_>, region: Bytes) -> Result<Design, MeasureError> {
    let mut kept = design.clone();
    kept.paired.clear();
    for workload in &design.paired {
        let mut why = None;
        if let Workload::FileSystem(job) = workload {
            let needed = needed(job);
            if needed > region {
                why = Some(format!("it needs {needed} and a region has {region}: give a smaller --span"));
            }
            for arm in design.arms.iter().filter(|_| why.is_none()).copied().collect::<Vec<_>>() {
                why = machine
                    .missing(arm, job.file_system)?
                    .map(|why| format!("arm {} cannot have it: {why}", arm.title()));
                if why.is_some() {
                    break;
                }
            }
        }
        match why {
            None => kept.paired.push(workload.clone()),
            Some(why) => machine.notes.push(format!("left out: {}, {why}", workload.label())),
        }
    }
    if kept.paired.is_empty() && !design.paired.is_empty() {
        return Err(MeasureError::Unfit(format!("nothing can be measured: {}", machine.notes.join("; "))));
    }
    Ok(kept)
}

/// Room for the files, a quarter for tables and journal, and no less than the file system takes.
pub(crate) fn needed(job: &FileJob) -> Bytes {
    Bytes::new(job.total.get() / 4 * 5).max(job.file_system.smallest())
}

pub(crate) fn pause_original(
    guest: &str,
    allowed: bool,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
) -> Result<(), MeasureError> {
    let wrap = |source| MeasureError::Hypervisor { arm: guest.to_owned(), source };
    let summary = hypervisor.domain(guest).map_err(wrap)?;
    if summary.state != DomainState::Running {
        return Ok(());
    }
    if !allowed {
        return Err(MeasureError::Unfit(format!(
            "`{guest}` is running on the slice that is to be measured: allow it to be paused meanwhile (--pause), or shut it down"
        )));
    }
    leftovers.paused.push(guest.to_owned());
    leftovers.save()?;
    hypervisor.suspend(guest).map_err(wrap)
}

/// The slice that a placement gives a guest, with `device` as what both sides measure.
pub(crate) fn slice(placement: &Placement, device: &str, region: Bytes) -> Slice {
    let cpus = placement.vcpus.iter().fold(CpuSet::new(), |cpus, pin| cpus.union(&pin.cpus));
    let on_top = placement.iothreads.iter().fold(placement.emulator.clone(), |cpus, more| cpus.union(more));
    Slice {
        nodes: placement.memory.nodes.clone(),
        page_size: placement.memory.page_size,
        device: device.to_owned(),
        region,
        cpus_on_top: on_top.difference(&cpus),
        cpus,
    }
}

/// Moves this process off the PUs that are measured, where there are others.
pub(crate) fn stay_off(host: &Host, slice: &Slice) -> Result<(), MeasureError> {
    let elsewhere = host.online().difference(&slice.cpus).difference(&slice.cpus_on_top);
    if elsewhere.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    elsewhere.iter().for_each(|cpu| set.set(cpu as usize));
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| MeasureError::Unfit(format!("cannot move to PUs {elsewhere}, off the slice: {error}")))
}

/// Room in the pools for that many planned clones beside what is in use; equal for all arms, since done before the first.
pub(crate) fn grow_pools(
    placement: &Placement,
    clones: u64,
    host: &Host,
    fs: &HostFs,
    leftovers: &mut Leftovers,
) -> Result<(), MeasureError> {
    let memory = &placement.memory;
    let Some(size) = memory.page_size else { return Ok(()) };
    let nodes = memory.nodes.len().max(1) as u64;
    for index in memory.nodes.iter() {
        // Strict binding over several nodes fills them in turn; a clone needs an equal share of each at most.
        let needed = memory.pages.saturating_mul(clones).div_ceil(nodes);
        let pool = host.node(index).and_then(|node| node.pool(size)).ok_or_else(|| {
            MeasureError::Unfit(format!("node {index} has no pool of {size} pages: does this kernel support them?"))
        })?;
        if pool.free >= needed {
            continue;
        }
        leftovers.pools.push(PoolBefore { node: index, size, pages: pool.persistent() });
        leftovers.save()?;
        resize_pool(fs, index, size, pool.persistent() + needed - pool.free, POOL_PATIENCE)?;
    }
    Ok(())
}

pub(crate) fn new_uuid(fs: &HostFs) -> Result<String, MeasureError> {
    let text = fs
        .read("/proc/sys/kernel/random/uuid")
        .map_err(|source| MeasureError::Kernel { what: "cannot make a UUID".into(), source })?;
    Ok(text.trim().to_owned())
}

/// Memory figures: each workload once in the bare slice, the planned guest, and the guest as found.
///
/// Guest memory is backed by 4 KiB pages only if transparent huge pages are off while it is first touched, so the host's
/// setting is `never` during the as-found runs, and a guest booted under it is used.
fn memory_runs(
    request: &Request,
    machine: &mut Machine<'_>,
    leftovers: &mut Leftovers,
    host: &Host,
    round: u32,
) -> Result<Vec<Run>, MeasureError> {
    let has_found = request.design.arms.contains(&ArmKind::AsFound);
    let mut arms = vec![ArmKind::BareSlice, ArmKind::Planned];
    let steps = |arms: &[ArmKind], first: u32| -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, workload) in request.memory.iter().enumerate() {
            for (position, arm) in arms.iter().enumerate() {
                steps.push(Step {
                    round: first + index as u32,
                    position: position as u32,
                    purpose: crate::results::Purpose::SingleShot,
                    arm: *arm,
                    workload: workload.clone(),
                    seed: request.conditions.seed,
                });
            }
        }
        steps
    };
    arms.retain(|arm| request.design.arms.contains(arm));
    let mut runs = perform(&steps(&arms, round), false, machine, &mut |_, _| {})?;
    if has_found {
        if let Some(mode) = host.system.transparent_hugepage.clone() {
            leftovers.transparent_hugepage = Some(mode);
            leftovers.save()?;
            write(machine.fs, THP, "never")?;
        }
        machine.refresh_one(ArmKind::AsFound)?;
        let more = steps(&[ArmKind::AsFound], round);
        runs.extend(perform(&more, false, machine, &mut |_, _| {})?);
        if let Some(mode) = leftovers.transparent_hugepage.clone() {
            write(machine.fs, THP, &mode)?;
        }
    }
    Ok(runs)
}

fn caveats(request: &Request, host: &Host, slice: &Slice, arms: usize) -> Vec<String> {
    let mut caveats = Vec::new();
    if let Environment::Lab { machine } = &request.conditions.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
        ));
    }
    let free: u64 = host.nodes.iter().filter_map(|node| node.memory_free).map(Bytes::get).sum();
    let regions = slice.region.times(arms as u64);
    if regions.get() < free {
        caveats.push(format!(
            "the regions together ({regions}) are smaller than the host's free memory ({}): the host's page cache can hold what the as-found arm (writeback) has touched within a sample; it is dropped before each",
            Bytes::new(free)
        ));
    }
    if request.quick {
        caveats.push("quick mode: guests stay up between samples; `nearmetal bench slice` without --quick boots them afresh for each pair".into());
    }
    if !slice.cpus_on_top.is_empty() {
        caveats.push(format!(
            "the guest also uses PUs {} for its emulator thread and iothreads: what virtualization costs on top of the slice",
            slice.cpus_on_top
        ));
    }
    caveats
}
