//! What can hold a running guest back while every thread and every page is where it should be: how the kernel schedules
//! its threads, quotas and weights, the balloon, and throttles of disks and interfaces.
//!
//! Compared with the stored definition, which says what the guest is to have; `virsh … --live` and `chrt` change what runs
//! and leave that as it is.

use nearmetal_domain::DomainFacts;
use nearmetal_host::GuestProcess;
use nearmetal_rules::scheduling::{Scheduled, of_groups, of_threads};

use super::{Check, CheckKind, Observed};

const STORED_UNREAD: &str = "the stored definition could not be read";

/// All of them for a guest that runs.
pub(super) fn judge(guest: &GuestProcess, observed: &Observed) -> Vec<Check> {
    let stored = observed.stored.as_ref().map_err(|why| format!("{STORED_UNREAD}: {why}"));
    let live = match &observed.live {
        Some(live) => live.as_ref().map_err(|why| format!("the definition in force could not be read: {why}")),
        None => Err("the definition in force was not read".to_owned()),
    };
    let mut checks = scheduling(guest, stored.as_ref());
    checks.extend(processor_time(guest, stored.as_ref()));
    let both = stored.and_then(|stored| Ok((stored, live?)));
    checks.push(balloon(both.as_ref()));
    checks.extend(throttles(both.as_ref()));
    checks
}

fn scheduling(guest: &GuestProcess, stored: Result<&&DomainFacts, &String>) -> Vec<Check> {
    let (subject, planned) = ("scheduling of all threads", "as defined, by default SCHED_OTHER nice 0");
    match stored {
        Err(why) => vec![Check::cannot_tell(CheckKind::Scheduling, subject, planned, why)],
        Ok(stored) => summed(CheckKind::Scheduling, subject, planned, "scheduling of ", &of_threads(stored, guest)),
    }
}

fn processor_time(guest: &GuestProcess, stored: Result<&&DomainFacts, &String>) -> Vec<Check> {
    let (subject, planned) = ("weights and quotas of its control groups", "as defined, by default no quota");
    match stored {
        Err(why) => vec![Check::cannot_tell(CheckKind::ProcessorTime, subject, planned, why)],
        Ok(_) if guest.time_groups.is_empty() => {
            let why = "none of its threads is in a control group with the CPU controller, or those may not be read";
            vec![Check::cannot_tell(CheckKind::ProcessorTime, subject, planned, why)]
        }
        Ok(stored) => summed(CheckKind::ProcessorTime, subject, planned, "", &of_groups(stored, guest)),
    }
}

/// One check where all is as it should be, else one for each that is not, or that nobody knows.
fn summed(kind: CheckKind, subject: &str, planned: &str, of: &str, all: &[Scheduled]) -> Vec<Check> {
    let odd = all.iter().filter(|state| !state.fits).map(|state| {
        let subject = format!("{of}{}", state.what);
        match &state.found {
            Some(found) => Check::compared(kind, subject, &state.wanted, found, false),
            None => {
                let why = format!("`{}` could not be read", state.place);
                Check::cannot_tell(kind, subject, &state.wanted, why)
            }
        }
        .at(&state.place)
    });
    let odd: Vec<Check> = odd.collect();
    if odd.is_empty() {
        return vec![Check::compared(kind, subject, planned, format!("{0} of {0} as defined", all.len()), true)];
    }
    odd
}

/// libvirt keeps the live `<currentMemory>` as the guest's balloon driver reports it (QEMU's BALLOON_CHANGE).
fn balloon(both: Result<&(&DomainFacts, &DomainFacts), &String>) -> Check {
    let subject = "memory the balloon leaves";
    match both {
        Err(why) => Check::cannot_tell(CheckKind::Balloon, subject, "all that it starts with", why),
        Ok((stored, live)) => {
            // A guest that waits for its start with another size has no more than it was started with.
            let wanted = stored.current_memory.min(live.memory);
            let planned = format!("at least {wanted}");
            let found = format!("{} of {}", live.current_memory, live.memory);
            Check::compared(CheckKind::Balloon, subject, planned, found, live.current_memory >= wanted)
                .at("virsh dumpxml: <currentMemory>")
        }
    }
}

/// One check for all disks and interfaces, or one for each that has other limits than its definition.
fn throttles(both: Result<&(&DomainFacts, &DomainFacts), &String>) -> Vec<Check> {
    let subject = "throttles of disks and interfaces";
    let planned = "as defined, by default none";
    let (stored, live) = match both {
        Err(why) => return vec![Check::cannot_tell(CheckKind::Throttle, subject, planned, why)],
        Ok(both) => *both,
    };
    let mut checks = Vec::new();
    for disk in &live.disks {
        let own = stored.disks.iter().find(|own| own.target == disk.target);
        let (wanted, found) = (limits(own.map_or(&[], |own| &own.limits)), limits(&disk.limits));
        checks.push((format!("throttle of disk {}", disk.target), "<iotune>", wanted, found));
    }
    for (index, interface) in live.interfaces.iter().enumerate() {
        let own = match &interface.mac {
            Some(mac) => stored.interfaces.iter().find(|own| own.has_mac(mac)),
            None => stored.interfaces.get(index),
        };
        let (wanted, found) = (limits(own.map_or(&[], |own| &own.bandwidth)), limits(&interface.bandwidth));
        let name = interface.mac.as_deref().unwrap_or("without address");
        checks.push((format!("throttle of interface {name}"), "<bandwidth>", wanted, found));
    }
    let number = checks.len();
    let odd: Vec<Check> = checks
        .into_iter()
        .filter(|(_, _, wanted, found)| wanted != found)
        .map(|(subject, element, wanted, found)| {
            Check::compared(CheckKind::Throttle, subject, wanted, found, false).at(format!("virsh dumpxml: {element}"))
        })
        .collect();
    if odd.is_empty() {
        let found = format!("{number} of {number} as defined");
        return vec![Check::compared(CheckKind::Throttle, subject, planned, found, true)];
    }
    odd
}

/// In one line, in an order of its own: libvirt need not keep that of the text.
fn limits(limits: &[(String, u64)]) -> String {
    let mut words: Vec<String> = limits.iter().map(|(name, value)| format!("{name} {value}")).collect();
    words.sort();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}
