//! One sample: the tenants of one arm, on the host or in guests, begun at one moment where there are several.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;

use nearmetal_cost::{Busy, Requests, Target, Watched, counting_reasons, distances, only_accesses, watched};
use nearmetal_host::HostFs;
use nearmetal_load::{Measured, Metric, Unit, Window, Workload, overlap};
use nearmetal_results::{ArmName, BUSY, Part, Purpose, Slice, Together};
use nearmetal_units::CpuSet;

use super::path::{Path, Seat};
use super::turn::{Told, Turn, says_what_was_done_when};
use super::{Session, Step};
use crate::barrier::{lead, lead_on_the_host, now};
use crate::error::MeasureError;

/// Who runs a load.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    /// Domain.
    pub guest: String,
    /// What it owns, and bare metal is confined to.
    pub slice: Slice,
    /// What it runs, where that is not what the step says: a consolidation tile has servers of several kinds.
    pub load: Option<Workload>,
    /// What was read back of its clone's threads, where each tenant has a clone of its own.
    pub placement: Vec<String>,
}

impl Tenant {
    /// One that runs what the steps say.
    pub(crate) fn new(guest: &str, slice: Slice) -> Self {
        Self { guest: guest.to_owned(), slice, load: None, placement: Vec::new() }
    }
}

/// What an experiment compares.
pub(crate) struct Subject<'a> {
    /// The arms.
    pub arms: Vec<ArmName>,
    /// The tenants, in the order in which they join.
    pub tenants: Vec<Tenant>,
    /// How they get to what they work on.
    pub path: &'a mut dyn Path,
    /// The least overlap of a sample of several tenants that counts, from 0 to 1.
    pub least_overlap: f64,
}

/// About how many times as long everything takes while a lab counts accesses (`./dev bench lab`).
pub(super) const SLOWED: u32 = 4;

/// The least part of the time in which accesses are counted that a program must have worked in, from 0 to 1: the others' are then few
/// beside its own.
const LEAST_COUNTED_WITHIN: f64 = 0.8;

/// What came of a sample.
pub(super) struct Sample {
    pub metrics: Vec<Metric>,
    pub notes: Vec<String>,
    pub together: Option<Together>,
    /// Why it does not count.
    pub thrown_away: Option<String>,
    /// Who else ran on its PUs meanwhile.
    pub neighbours: Option<String>,
}

impl Subject<'_> {
    /// Starts guests of a step again that died; says whether there was one.
    pub(super) fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        self.path.revive(step, session)
    }

    /// Runs one sample.
    ///
    /// # Errors
    /// The path does not get there, a program fails, or its output is something else.
    pub(super) fn sample(&mut self, step: &Step, session: &mut Session<'_>) -> Result<Sample, MeasureError> {
        self.path.turn_to(step, session)?;
        let single = self.path.single(step.count);
        let tenants = single.as_ref().map_or(&self.tenants[..step.count], std::slice::from_ref);
        let seats: Vec<Seat> = (0..tenants.len()).map(|tenant| self.path.seat(step.arm, tenant)).collect();
        let loads: Vec<&Workload> =
            tenants.iter().map(|tenant| tenant.load.as_ref().unwrap_or(&step.workload)).collect();
        if session.conditions.loads.is_none() {
            if let Some(load) = loads.iter().find(|load| load.load().needs_loads_image()) {
                return Err(MeasureError::Unfit(format!(
                    "{} is a program of the loads image, and this measurement has none: make it with `nearmetal bench \
                     loads-image`",
                    load.label()
                )));
            }
        }
        if session.conditions.kit.is_none() {
            if let Some(load) = loads.iter().find(|load| load.load().needs_kit()) {
                return Err(MeasureError::Unfit(format!(
                    "{} needs your kit: name its directory by --kit",
                    load.label()
                )));
            }
        }
        if loads.iter().any(|load| load.load().cold()) {
            settle(session.fs)?;
        }
        // Before accesses are counted: that slows everything, the telling too.
        let slowed = if step.purpose == Purpose::Accesses { SLOWED } else { 1 };
        let lead = match seats.iter().any(|seat| seat.asks.is_some()) {
            true => Some(lead_on_the_host(tenants.len())),
            false => (tenants.len() > 1).then(|| lead(tenants.len()) * slowed),
        };
        let turn = Turn {
            tenants,
            seats: &seats,
            loads: &loads,
            seed: step.seed,
            lead,
            gates: format!("{}-{}", std::process::id(), now()),
        };
        let processes = processes(&seats, session)?;
        let unseen = guests_of(&seats).into_iter().find(|name| !processes.iter().any(|(found, _)| found == name));
        let target = target(tenants, &seats, &loads, &processes, session);
        // Without the process of a guest only a part of what it cost would be counted.
        let middle = loads.first().and_then(|load| load.load().middle()).filter(|_| unseen.is_none());
        if step.purpose == Purpose::ExitReasons {
            session.leftovers.counts_exits = true;
            session.leftovers.save()?;
        }
        let (fs, lead) = (session.fs, turn.lead.unwrap_or_default());
        // Reading takes as many times as long, too, and begins that much earlier; not where the program fills its memory then.
        let fills_first = loads.iter().any(|load| load.fills_first());
        let counted_part = middle.map(|(part, _)| if fills_first { part } else { part.earlier(slowed) });
        let guests: Vec<String> = guests_of(&seats).into_iter().map(str::to_owned).collect();
        let are_unseen = guests.iter().any(|guest| session.seen.get(guest) == Some(&false));
        let ((told, counted), reasons) = session.while_running(&guests_of(&seats), |session| {
            // Before anything is counted: what a load works on is made for each sample anew, and is no part of it.
            let mut prepared = Some(turn.prepared(session)?);
            // Until the sample ends; a lab that is asked by someone who dies ceases by itself.
            let accesses = match step.purpose {
                Purpose::Accesses => fs.watch_lab_memory().transpose().map_err(uncounted),
                _ => Ok(None),
            };
            let counted = accesses.and_then(|_accesses| {
                let begins = || turn.taken(prepared.take().unwrap_or_default(), session);
                let work = || watched(fs, &target, counted_part, lead, are_unseen, begins);
                match step.purpose {
                    Purpose::ExitReasons => counting_reasons(fs, work).map_err(MeasureError::from),
                    _ => Ok((work(), None)),
                }
            });
            // Where nothing could be counted, nothing began.
            if let Some(prepared) = prepared {
                prepared.end(&turn, session);
            }
            counted
        })?;
        counted.same_pus().map_err(|error| MeasureError::Unfit(error.to_string()))?;
        let told = told?;
        let mut sample = read(tenants, &seats, &loads, &told)?;
        let saw = counted.saw_requests(rate_of(&sample, &loads));
        session.seen.extend(guests.into_iter().filter_map(|guest| Some((guest, saw?))));
        if seats.iter().any(|seat| seat.asks.is_some()) {
            // Guests are asked for different things, so no cost is one of each request.
            if let Some(busy) = counted.busy() {
                add_busy(&mut sample, &seats, &processes, &busy);
            }
        } else {
            add_costs(&mut sample, &loads, &told, middle.map(|(_, each)| each), &counted, target.floats);
        }
        sample
            .notes
            .extend(unseen.map(|name| format!("costs are not counted: /proc shows no QEMU process of `{name}`")));
        sample.neighbours = counted.neighbours().map(str::to_owned);
        if step.purpose == Purpose::Accesses {
            // A JVM's moments are those of its score: before that it does the same.
            if let (true, Some(part), Some(together)) = (fills_first, counted.counted(), &sample.together) {
                sample.thrown_away = others_work(part, together);
            }
            let (kept, note) = only_accesses(sample.metrics);
            if kept.is_empty() {
                return Err(MeasureError::Unfit(format!(
                    "accesses to memory: none were counted; measure again, with longer samples{}",
                    because(&sample.notes)
                )));
            }
            (sample.metrics, sample.notes) = (kept, vec![note]);
        }
        if let Some(reasons) = reasons {
            sample.metrics = reasons.split(&sample.metrics)?;
            sample.notes = vec![reasons.note()];
        }
        if let Some(together) = sample.together.as_ref().filter(|together| together.overlap < self.least_overlap) {
            sample.thrown_away = Some(format!(
                "{}, {} at once: they ran together for {:.1} % of the time, and {:.0} % is the least that counts",
                self.arms[step.arm].title,
                step.count,
                together.overlap * 100.0,
                self.least_overlap * 100.0
            ));
        }
        Ok(sample)
    }
}

/// Why accesses do not count that were counted while a program did not run yet, or not any more: they are those of whatever ran in its
/// place. A machine that is slowed down too much reads its counters only after the programs have ended.
fn others_work(counted: Window, together: &Together) -> Option<String> {
    let shares = together.parts.iter().map(|part| (counted.within(part.window), &part.guest));
    let (share, name) = shares.min_by(|one, other| one.0.total_cmp(&other.0))?;
    (share < LEAST_COUNTED_WITHIN).then(|| {
        format!(
            "accesses to memory: the program of `{name}` worked for {:.0} % of the time in which they were counted; at least {:.0} % is \
             needed: take longer samples (--seconds)",
            share * 100.0,
            LEAST_COUNTED_WITHIN * 100.0
        )
    })
}

fn uncounted(error: nearmetal_host::LabCountersError) -> MeasureError {
    MeasureError::Unfit(format!("accesses to memory: {error}"))
}

fn because(notes: &[String]) -> String {
    notes.iter().map(|note| format!("; {note}")).collect()
}

/// QEMU's processes of the guests that take part, where they can be found.
fn processes(seats: &[Seat], session: &mut Session<'_>) -> Result<Vec<(String, u32)>, MeasureError> {
    let mut found = Vec::new();
    for name in guests_of(seats) {
        found.extend(session.process(name)?.map(|pid| (name.to_owned(), pid)));
    }
    Ok(found)
}

/// Whose counters are read beside a sample.
fn target(
    tenants: &[Tenant],
    seats: &[Seat],
    loads: &[&Workload],
    processes: &[(String, u32)],
    session: &Session<'_>,
) -> Target {
    let union =
        |of: fn(&Slice) -> &CpuSet| tenants.iter().fold(CpuSet::new(), |all, tenant| all.union(of(&tenant.slice)));
    let slice = union(|slice| &slice.cpus);
    let on_top = union(|slice| &slice.cpus_on_top).difference(&slice);
    let target = Target {
        guests: processes.iter().map(|(_, pid)| *pid).collect(),
        on_top,
        floats: false,
        roams: false,
        slice,
        distances: distances(&session.host),
        time_model: session.fs.lab_time_model(),
        requests: requests(seats, loads),
    };
    target.where_pinned(session.fs)
}

/// What is asked for, where all ask for the same: a step's rate counts one kind of request.
fn requests(seats: &[Seat], loads: &[&Workload]) -> Option<Requests> {
    let size = |load: &&Workload| match load {
        Workload::Fio(job) => Some(job.block_size),
        _ => None,
    };
    let first = loads.first().and_then(size)?;
    let equal = loads.iter().all(|load| size(load) == Some(first));
    let bare = seats.iter().filter(|seat| seat.guest.is_none());
    // Each once: several files may be on one.
    let devices = bare.map(|seat| device_of(&seat.device)).collect::<Option<BTreeSet<String>>>()?;
    equal.then(|| Requests { size: first, devices: devices.into_iter().collect() })
}

/// The kernel's own name of a block device, to which the path may be a link, or of the one that a file is on.
fn device_of(path: &str) -> Option<String> {
    let path = std::path::Path::new(path).canonicalize().ok()?;
    let about = path.metadata().ok()?;
    let device = match about.is_file() {
        true => {
            let (major, minor) = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
            std::path::Path::new(&format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?
        }
        false => path,
    };
    let name = device.file_name()?.to_str()?;
    let about = std::path::Path::new("/sys/class/block").join(name).canonicalize();
    Some(about.ok().and_then(|about| counted_as(&about, about.join("partition").exists())).unwrap_or(name.to_owned()))
}

/// Where a device's requests are counted, if not as its own: those to a partition of an NVMe drive that may have several paths are
/// counted as the whole drive's alone (Linux drivers/nvme/host/multipath.c, `nvme_mpath_start_request`). `about`: its directory in
/// /sys/devices.
fn counted_as(about: &std::path::Path, is_partition: bool) -> Option<String> {
    let has_paths = about.components().any(|part| part.as_os_str() == "nvme-subsystem");
    let drive = about.parent().filter(|_| is_partition && has_paths)?;
    Some(drive.file_name()?.to_str()?.to_owned())
}

/// The values of all tenants: of one its own, of several the sum of their rates. Where guests are asked, each of them is a
/// part, even of one.
fn read(tenants: &[Tenant], seats: &[Seat], loads: &[&Workload], told: &[Told]) -> Result<Sample, MeasureError> {
    let (mut metrics, mut notes): (Vec<Metric>, Vec<String>) = (Vec::new(), Vec::new());
    if let ([load], [told], [Seat { asks: None, .. }]) = (loads, told, seats) {
        let Measured { metrics, notes } = load.load().read(&told.output)?;
        return Ok(Sample { metrics, notes, together: None, thrown_away: None, neighbours: None });
    }
    let mut together = Together::default();
    for (((tenant, seat), load), told) in tenants.iter().zip(seats).zip(loads).zip(told) {
        let measured = load.load().read(&told.output)?;
        let name = load.rate().unwrap_or_default();
        let found = measured.metrics.iter().find(|metric| metric.name == name).cloned();
        let rate = found.ok_or_else(|| MeasureError::Unfit(format!("{} has no rate to add up", load.label())))?;
        let window = load.window(&told.output, told.clock.milliseconds())?;
        let part = Part { guest: tenant.guest.clone(), rate: rate.value, window, metrics: measured.metrics };
        together.parts.push(part);
        together.clocks_within = together.clocks_within.max(told.clock.give_or_take as f64 / 1e6);
        match metrics.iter_mut().find(|metric| metric.name == rate.name) {
            Some(sum) => sum.value += rate.value,
            None => metrics.push(rate),
        }
        notes.extend(measured.notes.into_iter().map(|note| match &seat.asks {
            Some(_) => format!("{}: {note}", tenant.guest),
            None => note,
        }));
    }
    let windows: Vec<Window> = together.parts.iter().map(|part| part.window).collect();
    together.overlap = overlap(&windows);
    Ok(Sample { metrics, notes, together: Some(together), thrown_away: None, neighbours: None })
}

/// The PUs that were busy: the machine's among the values of all, those of each guest among its own.
fn add_busy(sample: &mut Sample, seats: &[Seat], processes: &[(String, u32)], busy: &Busy) {
    sample.metrics.extend(Metric::new(BUSY, Unit::BusyPus, busy.machine));
    let parts = sample.together.iter_mut().flat_map(|together| &mut together.parts);
    for (part, seat) in parts.zip(seats) {
        let process = processes.iter().find(|(name, _)| Some(name.as_str()) == seat.asks.as_deref());
        let pus = process.and_then(|(_, pid)| busy.guests.get(pid)).copied();
        part.metrics.extend(pus.and_then(|pus| Metric::new(BUSY, Unit::BusyPus, pus)));
    }
}

/// What all of it cost, for each of what was done.
fn add_costs(
    sample: &mut Sample,
    loads: &[&Workload],
    told: &[Told],
    each: Option<nearmetal_load::Each>,
    counted: &Watched,
    floats: bool,
) {
    let Some(each) = each else { return };
    let rate = rate_of(sample, loads);
    let part = counted.counted();
    let all =
        loads.iter().zip(told).map(|(load, told)| load.load().done(&told.output, part?, told.clock.milliseconds()));
    let meanwhile: Option<f64> = all.sum();
    if meanwhile.is_none() && part.is_some() && says_what_was_done_when(loads) {
        let note = "what it did while costs were counted is not known, so they are divided by the rate of all its time";
        sample.notes.push(note.to_owned());
    }
    let (costs, notes) = counted.costs(each.done(rate), meanwhile, each);
    sample.metrics.extend(nearmetal_cost::comparable_figures(&costs, each, floats));
    sample.metrics.extend(costs);
    sample.notes.extend(notes);
}

/// What a sample did in a second, by the metric that is its load's rate.
fn rate_of(sample: &Sample, loads: &[&Workload]) -> f64 {
    let name = loads.first().and_then(|load| load.rate()).unwrap_or_default();
    sample.metrics.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value)
}

/// The guests that they are in or ask, each once: tenants may share one.
fn guests_of(seats: &[Seat]) -> Vec<&str> {
    let mut names: Vec<&str> = seats.iter().filter_map(Seat::takes_part).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(*name));
    names
}

/// Writes dirty pages and drops the page cache, so that no sample pays for or profits from the one before.
pub(crate) fn settle(fs: &HostFs) -> Result<(), MeasureError> {
    // A fixture has no cache, and takes no writes.
    if !fs.is_live() {
        return Ok(());
    }
    rustix::fs::sync();
    fs.write("/proc/sys/vm/drop_caches", "3").map_err(|source| MeasureError::KernelWrite {
        what: "cannot drop the page cache before a sample".into(),
        source,
    })
}

#[cfg(test)]
mod tests;
