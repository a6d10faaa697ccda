//! Gathering: everything a verdict needs, from the kernel first, then from libvirt and the guest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::guests::{self, OpenFile};
use nearmetal_host::{GuestProcess, HostFs, ReadError, ThreadRole};
use nearmetal_hypervisor::{Definition, DomainState, Hypervisor, HypervisorError, agent};
use nearmetal_place::{DiskEngine, DiskPlacement, Placement, Plan};
use nearmetal_units::Bytes;

use super::memory::planned_pools;
use super::{EngineEvidence, GuestView, Load, Observed, ObservedDisk, ObservedPool, RingMovement};
use super::{cells, engine, functions, guest_view, interrupts, load, networks, queues, touched};
use crate::kernel::pool_directory;
use crate::machine::UNIT_DIRECTORY;
use crate::{after_start, boot_unit, qemu_hook};

/// How hard to try.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Whether the guest may be asked to read from its disks.
    pub read_in_guest: bool,
    /// How long the guest's agent may take to come up; `None`: it is not asked, as after a start that nobody waited for.
    pub agent: Option<Duration>,
    /// How long the agent may take for everything it is asked, once it is up.
    pub commands: Duration,
    /// How long to wait for the guest's own requests, where it cannot be asked.
    pub natural: Duration,
    /// How long to wait for what the hook still has to set.
    pub hook: Duration,
    /// Whether QEMU may be asked through libvirt, which taints the running guest ([`super::TAINTS`]), and the guest be
    /// watched for some seconds.
    pub deep: bool,
    /// Whether the guest is to be gone once it stops, and so has no stored definition.
    pub transient: bool,
}

impl Default for Effort {
    fn default() -> Self {
        let some = Duration::from_secs(5);
        // Under emulation each of some commands takes a minute.
        let commands = Duration::from_secs(180);
        Self {
            read_in_guest: true,
            agent: Some(some),
            commands,
            natural: some,
            hook: some,
            deep: false,
            transient: false,
        }
    }
}

/// Reads back everything about one guest.
pub fn observe(
    files: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    plan: &Plan,
    placement: &Placement,
    effort: &Effort,
) -> Observed {
    let mut guest = guests::find(files, &placement.uuid).map_err(|error| error.to_string());
    let runs = matches!(guest, Ok(Some(_)));
    let name = placement.guest.as_str();
    let another = another(hypervisor, placement, effort.transient);
    let stored = definition(hypervisor, name, Definition::Inactive);
    let live = runs.then(|| definition(hypervisor, name, Definition::Live));
    let state = runs.then(|| hypervisor.domain(name).map(|found| found.state).map_err(|error| error.to_string()));
    let mut view = Err("the guest is off".to_owned());
    let mut disks = Vec::new();
    let (mut cells, mut queues, mut vhost_queues, mut touched) = (None, None, None, None);
    let expected = functions::expected(placement, &stored);
    if let Ok(Some(process)) = &guest {
        view = match (&state, effort.agent) {
            // Its agent would be waited for in vain.
            (Some(Ok(DomainState::Paused)), _) => Err("the guest is paused".to_owned()),
            (_, None) => Err("its agent was not asked".to_owned()),
            (_, Some(patience)) => agent::wait(hypervisor, name, patience)
                .and_then(|()| guest_view::ask(hypervisor, name, effort.commands))
                .map_err(|error| error.to_string()),
        };
        let pid = process.pid;
        cells = (!placement.cells.is_empty()).then(|| cells::look(files, pid));
        vhost_queues = (!placement.networks.is_empty()).then(|| networks::look(files, pid));
        if effort.deep {
            queues = Some(queues::ask(hypervisor, name, placement));
            touched = Some(match &state {
                Some(Ok(DomainState::Paused)) => Err("the guest is paused".to_owned()),
                _ => touched::look(files, process),
            });
        }
        if let Some(Ok(live)) = &live {
            let seen = placement.disks.iter();
            disks =
                seen.filter_map(|disk| observe_disk(files, hypervisor, name, pid, disk, live, &view, effort)).collect();
        }
        hook_done(files, pid, placement, &expected, effort.hook);
        // Again, after the guest has worked: workers and late pages are there now.
        guest = guests::find(files, &placement.uuid).map_err(|error| error.to_string());
    }
    let pid = guest.as_ref().ok().and_then(|guest| Some(guest.as_ref()?.pid));
    let passed = functions::look(files, pid, &expected);
    let hook = placement
        .needs_hook()
        .then(|| qemu_hook::seen(Path::new(qemu_hook::HOOK_DIRECTORY)).map_err(|error| error.to_string()));
    let planned = planned_pools(plan, placement);
    // `apply` installs it for any plan with pools. What a run grows goes back with it, and a capture has no units.
    let boot_unit = (!effort.transient && files.is_live() && !planned.is_empty() && !plan.pools.is_empty())
        .then(|| boot_unit::seen(Path::new(UNIT_DIRECTORY)).map_err(|error| error.to_string()));
    let pools = planned
        .into_iter()
        .map(|(node, size, _)| {
            let directory = pool_directory(node, size);
            let count = |file: &str| -> Result<u64, String> {
                let path = format!("{directory}/{file}");
                let text = files.read(&path).map_err(|error| error.to_string())?;
                text.trim().parse().map_err(|_| format!("`{path}` holds `{}`, which is not a count", text.trim()))
            };
            let pages = count("nr_hugepages").and_then(|total| Ok((total, count("surplus_hugepages")?)));
            ObservedPool { node, size, pages }
        })
        .collect();
    Observed {
        guest,
        state,
        another,
        pools,
        stored,
        live,
        cells,
        functions: passed,
        boot_unit,
        hook,
        queues,
        vhost_queues,
        touched,
        disks,
        view,
    }
}

/// How often is looked whether the hook has done its work.
const HOOK_STEP: Duration = Duration::from_millis(250);

/// Waits until what the hook sets after a start is set: it works beside the guest that boots.
fn hook_done(files: &HostFs, pid: u32, placement: &Placement, expected: &[functions::Expected], patience: Duration) {
    if !placement.needs_hook() {
        return;
    }
    let functions: Vec<_> = expected.iter().map(|device| device.function).collect();
    let began = Instant::now();
    while began.elapsed() < patience {
        match after_start::differences(files, pid, placement, &functions) {
            Ok((_, new)) if !new.is_empty() => sleep(HOOK_STEP),
            _ => return,
        }
    }
}

/// Why what libvirt stores under the guest's name is not the planned guest's. What libvirt does not answer is no reason.
fn another(hypervisor: &mut dyn Hypervisor, placement: &Placement, transient: bool) -> Option<String> {
    match hypervisor.domain(&placement.guest) {
        Err(HypervisorError::NoSuchDomain { .. }) => Some("no domain of that name".to_owned()),
        Ok(found) if !found.uuid.eq_ignore_ascii_case(&placement.uuid) => {
            Some(format!("another domain of that name, with UUID {}", found.uuid))
        }
        Ok(found) if !found.persistent && !transient => Some("none: the domain is gone once it stops".to_owned()),
        _ => None,
    }
}

fn definition(hypervisor: &mut dyn Hypervisor, name: &str, which: Definition) -> Result<DomainFacts, String> {
    let xml = hypervisor.domain_xml(name, which).map_err(|error| error.to_string())?;
    DomainXml::parse(&xml).and_then(|xml| xml.facts()).map_err(|error| error.to_string())
}

#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
fn observe_disk(
    files: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    pid: u32,
    planned: &DiskPlacement,
    live: &DomainFacts,
    view: &Result<GuestView, String>,
    effort: &Effort,
) -> Option<ObservedDisk> {
    let disk = live.disks.iter().find(|disk| disk.target == planned.target)?;
    // QEMU may have been given a link (/dev/disk/by-id/…); the kernel shows where it led.
    let source = disk.source.as_deref().filter(|source| source.starts_with('/')).map(|source| {
        Path::new(source).canonicalize().map_or_else(|_| source.to_owned(), |path| path.display().to_string())
    });
    let device = source.as_deref().filter(|_| disk.kind == "block").and_then(|path| path.strip_prefix("/dev/"));
    let size = device.and_then(|device| {
        let sectors: u64 = files.read(&format!("/sys/class/block/{device}/size")).ok()?.trim().parse().ok()?;
        Some(Bytes::new(512).times(sectors))
    });
    let open = guests::open_files(files, pid).map_err(|error| error.to_string());
    let own = open.map(|open| -> Vec<OpenFile> {
        open.into_iter().filter(|file| Some(file.target.as_str()) == source.as_deref()).collect()
    });
    let engine = match Look::take(files, pid) {
        Err(why) => EngineEvidence::none(why),
        Ok(before) => {
            let load = make_load(files, hypervisor, name, planned, size, device, view, effort);
            match Look::take(files, pid) {
                Ok(after) => before.until(&after, load),
                Err(why) => EngineEvidence::none(why),
            }
        }
    };
    let drive = device.and_then(|device| Some((device.to_owned(), interrupts::of_drive(files, device)?)));
    Some(ObservedDisk { target: planned.target.clone(), source, size, files: own, engine, drive })
}

#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
fn make_load(
    files: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    planned: &DiskPlacement,
    size: Option<Bytes>,
    device: Option<&str>,
    view: &Result<GuestView, String>,
    effort: &Effort,
) -> Load {
    let asked = match view {
        _ if !effort.read_in_guest => Err("--no-load: the guest was not asked to read".to_owned()),
        Err(why) => Err(why.clone()),
        Ok(view) => match view.disk(&planned.target, size) {
            Some(disk) => load::read_in_guest(hypervisor, name, disk),
            None => Err(format!("cannot tell which of the guest's disks is {}", planned.target)),
        },
    };
    asked
        .or_else(|first| match device {
            Some(device) => {
                load::await_natural(files, device, effort.natural).map_err(|second| format!("{first}; {second}"))
            }
            None => Err(first),
        })
        .unwrap_or_else(|why| Load::None { why })
}

/// Which engine a QEMU process uses for a disk, by what moves in it while `load` makes that disk work, with the evidence
/// in words. Nothing else of the guest may work meanwhile. `Err` says why it cannot be told.
pub fn engine_under(files: &HostFs, pid: u32, load: impl FnOnce() -> Load) -> Result<(DiskEngine, String), String> {
    let before = Look::take(files, pid)?;
    let load = load();
    let after = Look::take(files, pid)?;
    engine::engine(&before.until(&after, load))
}

struct Ring {
    entries: u32,
    completions: u32,
    waits: bool,
}

/// The state of everything that can move.
struct Look {
    /// By descriptor.
    rings: BTreeMap<u32, Ring>,
    aio_rings: usize,
    /// By thread: bytes read and written; `None` where that may not be seen.
    workers: BTreeMap<u32, Option<u64>>,
}

impl Look {
    fn take(files: &HostFs, pid: u32) -> Result<Self, String> {
        let text = |error: ReadError| error.to_string();
        let mut rings = BTreeMap::new();
        for file in guests::open_files(files, pid).map_err(text)?.iter().filter(|file| file.is_io_uring()) {
            if let Some(ring) = file.io_uring {
                let info = files.read(&format!("/proc/{pid}/fdinfo/{}", file.fd)).unwrap_or_default();
                let (entries, completions) = (ring.sq_mask.saturating_add(1), ring.cq_tail);
                rings.insert(file.fd, Ring { entries, completions, waits: waits(&info) });
            }
        }
        let process = GuestProcess::read(files, pid).map_err(text)?;
        // QEMU ends a worker that has had nothing to do for a while: one that is gone by now was idle.
        let workers = process.threads_of(&ThreadRole::Worker).filter_map(|thread| {
            let task = format!("/proc/{pid}/task/{}", thread.id);
            let bytes = files.read(&format!("{task}/io")).ok().as_deref().and_then(transferred);
            (bytes.is_some() || files.exists(&format!("{task}/status"))).then_some((thread.id, bytes))
        });
        Ok(Self { rings, aio_rings: guests::count_aio_rings(files, pid).map_err(text)?, workers: workers.collect() })
    }

    fn until(&self, after: &Self, load: Load) -> EngineEvidence {
        let rings = after.rings.iter().map(|(fd, ring)| {
            // A ring made meanwhile began at zero; the counters wrap.
            let before = self.rings.get(fd);
            RingMovement {
                fd: *fd,
                entries: ring.entries,
                // For a moment, while it is served, an event loop waits for nothing.
                waits: ring.waits || before.is_some_and(|before| before.waits),
                completions: ring.completions.wrapping_sub(before.map_or(0, |before| before.completions)),
            }
        });
        let bytes = after.workers.iter().map(|(thread, bytes)| {
            let before = self.workers.get(thread).copied().flatten().unwrap_or(0);
            bytes.map(|bytes| bytes.saturating_sub(before))
        });
        EngineEvidence {
            load,
            rings: rings.collect(),
            aio_rings: after.aio_rings,
            workers: after.workers.keys().copied().collect::<BTreeSet<_>>(),
            worker_bytes: bytes.sum(),
        }
    }
}

/// Whether fdinfo of a ring lists anything between `PollList:` and the next heading.
fn waits(info: &str) -> bool {
    let listed = info.lines().skip_while(|line| !line.starts_with("PollList:")).nth(1);
    listed.is_some_and(|line| line.trim_start().starts_with("op="))
}

/// `rchar` and `wchar` of /proc/PID/task/TID/io.
fn transferred(text: &str) -> Option<u64> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(field("rchar:")?.saturating_add(field("wchar:")?))
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, HostFs, MemoryTree};

    #[test]
    fn a_worker_that_is_there_and_may_not_be_seen_is_unknown() {
        let mut tree = MemoryTree::new();
        let mut put = |path: &str, entry: Entry| tree.put(&format!("/proc/4700/{path}"), entry).unwrap();
        let file = |text: &str| Entry::File(text.as_bytes().to_vec());
        put("cmdline", file("qemu-system-x86_64\0-name\0guest=web1\0"));
        put("stat", file("4700 (qemu-system-x86) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 77 0 0 0\n"));
        put("status", file("Name:\tqemu-system-x86\n"));
        put("maps", file(""));
        put("fd", Entry::Directory);
        for (thread, io) in [(4701, Some(file("rchar: 7\nwchar: 1\n"))), (4702, Some(Entry::Denied)), (4703, None)] {
            put(&format!("task/{thread}/comm"), file("worker\n"));
            put(&format!("task/{thread}/status"), file("Name:\tworker\nPPid:\t1\nCpus_allowed_list:\t3\n"));
            io.into_iter().for_each(|io| put(&format!("task/{thread}/io"), io));
        }
        let seen = super::Look::take(&HostFs::of_tree(tree, "a test"), 4700).unwrap();
        assert_eq!(seen.workers, [(4701, Some(8)), (4702, None), (4703, None)].into());
    }

    #[test]
    fn an_event_loops_ring_is_known_by_what_it_waits_for() {
        let info = |list: &str| format!("pos:\t0\nSqMask:\t0x7f\nPollList:\n{list}CqOverflowList:\nNAPI:\tdisabled\n");
        assert!(super::waits(&info("  op=6, task_works=0\n  op=6, task_works=0\n")));
        assert!(!super::waits(&info("")));
        assert!(!super::waits(""));
    }

    #[test]
    fn bytes_are_those_of_the_system_calls() {
        let io = "rchar: 4096\nwchar: 10\nsyscr: 1\nread_bytes: 0\n";
        assert_eq!(super::transferred(io), Some(4106));
        assert_eq!(super::transferred("rchar: 1\n"), None);
    }
}
