//! The verdict: pure, from a plan and what was observed.

use nearmetal_hypervisor::DomainState;
use nearmetal_place::{CacheMode, DiskEngine, DiskPlacement, Placement, Plan};

use super::engine::engine;
use super::{Check, CheckKind, Observed, ObservedDisk, Outcome, VERIFICATION_SCHEMA, Verification};
use super::{
    cells, definition, functions, guest_functions, interrupts, limits, memory, networks, queues, threads, touched,
};
use crate::boot_unit::UNIT_NAME;
use crate::machine::UNIT_DIRECTORY;
use crate::shared::{Seen, Shared};
use crate::{qemu_hook, timestamp};

/// Compares what a plan says about one guest with what was observed.
pub fn judge(plan: &Plan, placement: &Placement, observed: &Observed) -> Verification {
    let mut checks = Vec::new();
    let expected = functions::expected(placement, &observed.stored);
    match &observed.guest {
        Ok(Some(guest)) => {
            checks.extend(observed.state.as_ref().map(running));
            checks.extend(threads::judge(placement, guest));
            checks.extend(limits::judge(guest, observed));
            checks.extend(memory::residency(placement, guest));
            checks.extend(touched::judge(placement, observed.touched.as_ref()));
            checks.extend(cells::judge(placement, guest, observed.cells.as_ref()));
            checks.extend(functions::judge(&expected, &placement.interrupts, &observed.functions));
            checks.extend(networks::judge(placement, observed.live.as_ref(), observed.vhost_queues.as_ref()));
            for disk in &placement.disks {
                checks.extend(disk_checks(disk, observed.disks.iter().find(|seen| seen.target == disk.target)));
            }
        }
        Ok(None) => {
            let why = "it is off: start it and verify again";
            checks.push(Check::cannot_tell(CheckKind::Running, "the guest", "running", why));
            checks.extend(functions::judge_off(&observed.functions));
        }
        Err(why) => checks.push(Check::cannot_tell(CheckKind::Running, "the guest", "running", why)),
    }
    checks.extend(observed.hook.as_ref().map(hook));
    checks.extend(observed.boot_unit.as_ref().map(unit));
    checks.extend(memory::pools(plan, placement, &observed.pools));
    checks.extend(match &observed.another {
        Some(found) => {
            let planned = format!("that of the guest with UUID {}", placement.uuid);
            let check =
                Check::compared(CheckKind::StoredDefinition, "stored definition", planned, found.clone(), false);
            vec![check.at(format!("virsh dominfo {}", placement.guest))]
        }
        None => definition::judge(CheckKind::StoredDefinition, placement, Some(&observed.stored)),
    });
    checks.extend(definition::judge(CheckKind::LiveDefinition, placement, observed.live.as_ref()));
    if matches!(observed.guest, Ok(Some(_))) {
        checks.extend(guest_checks(placement, observed));
        checks.extend(cells::in_the_guest(placement, observed.view.as_ref()));
        checks.extend(guest_functions::judge(&expected, observed));
        checks.extend(queues::judge(placement, observed.queues.as_ref()));
    }
    Verification {
        schema: VERIFICATION_SCHEMA.to_owned(),
        guest: placement.guest.clone(),
        taken: timestamp::now(),
        checks,
        guest_view: observed.view.as_ref().ok().cloned(),
    }
}

/// A QEMU process is there for a guest that is paused, too.
fn running(state: &Result<DomainState, String>) -> Check {
    let (subject, planned, place) = ("the guest", "running", "virsh domstate");
    match state {
        Ok(state) => {
            let runs = matches!(state, DomainState::Running | DomainState::Blocked);
            Check::compared(CheckKind::Running, subject, planned, state.to_string(), runs).at(place)
        }
        Err(why) => Check::cannot_tell(CheckKind::Running, subject, planned, why).at(place),
    }
}

/// What is set after every start is set after the next one, too, only with the hook.
fn hook(seen: &Result<Seen, String>) -> Check {
    let idle = "not executable: libvirt passes over it, and the next start sets no pins";
    let missing = "missing: the next start sets no pins";
    shared(CheckKind::Hook, Shared::QemuHook, seen, ["installed", idle, "another one of that name", missing])
        .at(qemu_hook::HOOK_DIRECTORY)
}

/// A plan's pools are as large after the next boot only with the unit.
fn unit(seen: &Result<Seen, String>) -> Check {
    let idle = "not enabled: the next boot leaves pools as they were";
    let missing = "missing: the next boot leaves pools as they were";
    shared(
        CheckKind::BootUnit,
        Shared::BootUnit,
        seen,
        ["enabled", idle, "masked, or another one of that name", missing],
    )
    .at(format!("{UNIT_DIRECTORY}/{UNIT_NAME}"))
}

/// `words` for what is seen, in the order of [`Seen`]; the first is what is wanted.
fn shared(kind: CheckKind, shared: Shared, seen: &Result<Seen, String>, words: [&str; 4]) -> Check {
    let [wanted, idle, foreign, missing] = words;
    let found = match seen {
        Err(why) => return Check::cannot_tell(kind, shared.name(), wanted, why),
        Ok(Seen::InForce) => wanted,
        Ok(Seen::Idle) => idle,
        Ok(Seen::Foreign) => foreign,
        Ok(Seen::Missing) => missing,
    };
    Check::compared(kind, shared.name(), wanted, found, found == wanted)
}

/// libvirt's word for an engine.
pub(super) fn engine_word(engine: DiskEngine) -> &'static str {
    match engine {
        DiskEngine::Threads => "threads",
        DiskEngine::Native => "native",
        DiskEngine::IoUring => "io_uring",
    }
}

fn disk_checks(planned: &DiskPlacement, seen: Option<&ObservedDisk>) -> Vec<Check> {
    let subject = format!("disk {}", planned.target);
    let cache = match planned.cache {
        CacheMode::None => "O_DIRECT, bypassing the host's page cache",
        CacheMode::Writeback => "through the host's page cache",
    };
    let word = engine_word(planned.engine);
    let Some(seen) = seen else {
        let why = "the running guest has no such disk";
        return vec![Check::cannot_tell(CheckKind::DiskCache, subject, cache, why)];
    };
    let source = seen.source.clone().unwrap_or_else(|| "its source".to_owned());
    let cache = match &seen.files {
        Err(why) => Check::cannot_tell(CheckKind::DiskCache, &subject, cache, why),
        Ok(files) if files.is_empty() => {
            let why = format!("QEMU has no open descriptor on {source}: it may reach it some other way");
            Check::cannot_tell(CheckKind::DiskCache, &subject, cache, why)
        }
        Ok(files) => {
            let wanted = planned.cache == CacheMode::None;
            let each: Vec<String> = files
                .iter()
                .map(|file| format!("descriptor {} {}", file.fd, if file.direct { "O_DIRECT" } else { "cached" }))
                .collect();
            let equal = files.iter().all(|file| file.direct == wanted);
            Check::compared(CheckKind::DiskCache, &subject, cache, each.join(", "), equal).at(source)
        }
    };
    let engine = match engine(&seen.engine) {
        Ok((found, evidence)) => Check::compared(
            CheckKind::DiskEngine,
            &subject,
            format!("engine {word}"),
            format!("engine {}: {evidence}", engine_word(found)),
            found == planned.engine,
        ),
        Err(why) => Check::cannot_tell(CheckKind::DiskEngine, &subject, format!("engine {word}"), why),
    };
    let drive = seen.drive.as_ref().and_then(|(device, drive)| interrupts::report(device, drive));
    [cache, engine].into_iter().chain(drive).collect()
}

/// What the guest itself sees of its disks.
fn guest_checks(placement: &Placement, observed: &Observed) -> Vec<Check> {
    let planned = placement.disks.iter().filter_map(|disk| Some((disk, disk.queues?)));
    planned
        .map(|(disk, queues)| {
            let subject = format!("disk {} as the guest sees it", disk.target);
            let wanted = format!("{queues} queues");
            let view = match &observed.view {
                Ok(view) => view,
                Err(why) => return Check::cannot_tell(CheckKind::Guest, subject, wanted, why),
            };
            let size = observed.disks.iter().find(|seen| seen.target == disk.target).and_then(|seen| seen.size);
            match view.disk(&disk.target, size).and_then(|found| Some((found, found.queues?))) {
                Some((found, number)) => {
                    let text = format!("{number} queues");
                    Check::compared(CheckKind::Guest, subject, wanted, text, number == queues)
                        .at(format!("/sys/block/{}/mq in the guest", found.name))
                }
                None => {
                    let why = "cannot tell which of the guest's disks it is, or the disk shows no queues";
                    Check::cannot_tell(CheckKind::Guest, subject, wanted, why)
                }
            }
        })
        .collect()
}

impl Outcome {
    /// A word for it: never only a colour or a sign.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Mismatch => "MISMATCH",
            Self::CannotTell { .. } => "unknown",
        }
    }

    /// A sign for it.
    pub fn sign(&self) -> char {
        match self {
            Self::Ok => '✓',
            Self::Mismatch => '✗',
            Self::CannotTell { .. } => '?',
        }
    }
}
