//! Affinity of every thread of a guest against its plan.

use nearmetal_host::{GuestProcess, Thread, ThreadRole};
use nearmetal_place::Placement;
use nearmetal_units::CpuSet;

use super::{Check, CheckKind};

/// Of KVM itself (recovery of huge pages once an hour). It is made on the first run of a vCPU, stays on that vCPU's PU, and
/// libvirt knows nothing of it. The name is cut by the kernel.
const KVM_THREAD: &str = "kvm-nx-lpage-re";

/// Threads of the kernel's io_uring workers are named after the thread that made them.
const IO_URING_WORKER: &str = "iou-wrk-";

pub(super) fn judge(placement: &Placement, guest: &GuestProcess) -> Vec<Check> {
    let mut checks = Vec::new();
    // A guest that floats may run anywhere: nothing to compare.
    if placement.vcpus.is_empty() && placement.emulator.is_empty() {
        return checks;
    }
    for pin in &placement.vcpus {
        let role = ThreadRole::Vcpu(pin.vcpu);
        checks.extend(expected(guest, &role, CheckKind::Vcpu, &format!("vCPU {}", pin.vcpu), &pin.cpus));
    }
    checks.extend(expected(guest, &ThreadRole::Emulator, CheckKind::Emulator, "emulator", &placement.emulator));
    for (cpus, number) in placement.iothreads.iter().zip(1..) {
        let role = ThreadRole::Iothread(number);
        checks.extend(expected(guest, &role, CheckKind::Iothread, &format!("iothread {number}"), cpus));
    }
    checks.extend(vhost(placement, guest));
    checks.extend(guest.threads.iter().filter_map(|thread| helper(placement, guest, thread)));
    checks
}

/// What is found where there is none.
pub(super) const NO_THREAD: &str = "no such thread";

/// A thread the plan names: exactly these PUs.
fn expected(guest: &GuestProcess, role: &ThreadRole, kind: CheckKind, name: &str, cpus: &CpuSet) -> Vec<Check> {
    let planned = format!("PUs {cpus}");
    let threads: Vec<&Thread> = guest.threads_of(role).collect();
    if threads.is_empty() {
        return vec![Check::compared(kind, name, planned, NO_THREAD, false).at(format!("/proc/{}/task", guest.pid))];
    }
    threads.iter().map(|thread| check(thread, kind, name, planned.clone(), |found| found == cpus)).collect()
}

/// vhost workers that the plan gives PUs of their own, in the order in which QEMU makes them.
fn vhost(placement: &Placement, guest: &GuestProcess) -> Vec<Check> {
    if placement.vhost.is_empty() {
        return Vec::new();
    }
    let mut workers: Vec<&Thread> = guest.threads_of(&ThreadRole::Vhost).collect();
    workers.sort_by_key(|thread| thread.id);
    let turns = workers.into_iter().zip(placement.vhost.iter().cycle());
    let checks = turns.map(|(thread, cpus)| {
        let name = format!("vhost worker `{}`", thread.name);
        check(thread, CheckKind::Vhost, &name, format!("PUs {cpus}"), |found| found == cpus)
    });
    checks.collect()
}

/// A thread the plan does not name: it must keep off the vCPUs' PUs, which is to say inside what is set aside.
fn helper(placement: &Placement, guest: &GuestProcess, thread: &Thread) -> Option<Check> {
    let aside = placement.iothreads.iter().fold(placement.emulator.clone(), |all, cpus| all.union(cpus));
    let (kind, name, allowed) = match &thread.role {
        ThreadRole::Vhost if !placement.vhost.is_empty() => return None,
        ThreadRole::Vhost => (CheckKind::Vhost, "vhost worker", placement.emulator.clone()),
        // Workers are started by the event loop that needs them, and stay in its cgroup: the emulator's or an iothread's.
        ThreadRole::Worker => (CheckKind::Worker, "block worker", aside),
        ThreadRole::Other if thread.name.starts_with(IO_URING_WORKER) => {
            let maker = thread.name[IO_URING_WORKER.len()..].parse::<u32>().ok();
            let maker = maker.and_then(|id| guest.threads.iter().find(|thread| thread.id == id));
            let allowed = maker.and_then(|maker| planned(placement, &maker.role)).unwrap_or(aside);
            (CheckKind::Worker, "io_uring worker", allowed)
        }
        ThreadRole::Other if thread.name.starts_with(KVM_THREAD) => {
            let all = placement.vcpus.iter().fold(aside, |all, pin| all.union(&pin.cpus));
            (CheckKind::Helper, "thread of KVM", all)
        }
        ThreadRole::Other => (CheckKind::Helper, "helper", placement.emulator.clone()),
        ThreadRole::Vcpu(number) if placement.vcpus.iter().all(|pin| pin.vcpu != *number) => {
            let planned = "no such vCPU".to_owned();
            let found = thread.affinity.as_ref().map_or_else(String::new, |cpus| format!("PUs {cpus}"));
            let subject = format!("vCPU {number} (thread {})", thread.id);
            return Some(Check::compared(CheckKind::Vcpu, subject, planned, found, false));
        }
        // Other devices' than the plan's disks, or added since.
        ThreadRole::Iothread(number) if *number as usize > placement.iothreads.len() => {
            (CheckKind::Iothread, "iothread", aside)
        }
        _ => return None,
    };
    let name = format!("{name} `{}`", thread.name);
    let inside = format!("within PUs {allowed}");
    Some(check(thread, kind, &name, inside, |found| found.is_subset(&allowed)))
}

fn planned(placement: &Placement, role: &ThreadRole) -> Option<CpuSet> {
    match role {
        ThreadRole::Vcpu(number) => placement.vcpus.iter().find(|pin| pin.vcpu == *number).map(|pin| pin.cpus.clone()),
        ThreadRole::Iothread(number) => placement.iothreads.get((*number as usize).checked_sub(1)?).cloned(),
        _ => Some(placement.emulator.clone()),
    }
}

fn check(thread: &Thread, kind: CheckKind, name: &str, planned: String, fits: impl FnOnce(&CpuSet) -> bool) -> Check {
    let subject = format!("{name} (thread {})", thread.id);
    // By its own number: right for threads of QEMU and for the kernel's vhost threads before Linux 6.4 alike.
    let place = format!("/proc/{}/status", thread.id);
    match &thread.affinity {
        Some(found) => Check::compared(kind, subject, planned, format!("PUs {found}"), fits(found)).at(place),
        None => Check::cannot_tell(kind, subject, planned, "cannot read its status; it may have ended").at(place),
    }
}
