//! The hookscript: pins each thread after the start. POSIX sh, `taskset` and nothing else.
//!
//! QEMU names its threads since Proxmox starts it with `debug-threads=on`: `CPU 0/KVM` for vCPUs, `IO iothread-…` for
//! iothreads, cut to 15 bytes, so these are told apart by their order, which is that of the disks in the configuration.

use std::fmt::Write;

use nearmetal_units::CpuSet;

use super::conf::with_iothreads;
use crate::guests::Guest;
use crate::names::one_line;

/// Name of the script of a VM.
pub(super) fn name(number: u32) -> String {
    format!("nearmetal-{number}.sh")
}

/// The script. Only numbers and sets of PUs are in its commands.
pub(super) fn script(guest: &Guest<'_>, number: u32) -> String {
    let placement = guest.placement;
    let emulator = &placement.emulator;
    let mut cases = String::new();
    for pin in &placement.vcpus {
        let _ = writeln!(cases, "\t\t'CPU {}/KVM') pus={} vcpus=$((vcpus + 1)) ;;", pin.vcpu, pin.cpus);
    }
    let iothreads = chosen("iothreads", &of_disks(guest), emulator);
    let workers = chosen("workers", &placement.vhost.iter().collect::<Vec<_>>(), emulator);
    format!(
        r#"#!/bin/sh
# nearmetal's plan of {vm} on {host}: pins the threads of VM {number} after its start.
# Copy it to /var/lib/vz/snippets, make it executable, and set: hookscript: local:snippets/{name}
set -eu
vmid=$1
phase=$2
[ "$phase" = post-start ] || exit 0
if [ "$vmid" != {number} ]; then
	echo "nearmetal: this hookscript is for VM {number}, not for $vmid" >&2
	exit 1
fi
# Other places are for trying it out.
proc=${{NEARMETAL_PROC:-/proc}}
pid=$(cat "${{NEARMETAL_RUN:-/var/run/qemu-server}}/$vmid.pid")
vcpus=0
iothreads=0
workers=0
# In the order in which they were made: glob order is not that of numbers.
for thread in $(ls "$proc/$pid/task" | sort -n); do
	name=$(cat "$proc/$pid/task/$thread/comm" 2>/dev/null) || continue
	case $name in
{cases}		'IO iothread'*)
			iothreads=$((iothreads + 1))
{iothreads}			;;
		vhost-*)
			workers=$((workers + 1))
{workers}			;;
		*) pus={emulator} ;;
	esac
	# A thread may have ended meanwhile.
	taskset -pc "$pus" "$thread" >/dev/null || [ ! -e "$proc/$pid/task/$thread" ]
done
if [ "$vcpus" != {count} ]; then
	echo "nearmetal: VM $vmid has $vcpus vCPU threads with names, and the plan pins {count}" >&2
	exit 1
fi
if [ "$iothreads" != {disks} ]; then
	echo "nearmetal: VM $vmid has $iothreads iothreads with names, and the plan pins {disks}" >&2
	exit 1
fi
"#,
        disks = of_disks(guest).len(),
        vm = one_line(guest.name),
        host = one_line(guest.host),
        name = name(number),
        count = placement.vcpus.len(),
    )
}

/// PUs of the iothread of each disk that has one: Proxmox makes one a disk. Of several that share a disk the first is left; one that
/// the plan does not place runs where the emulator thread does.
fn of_disks<'a>(guest: &'a Guest<'_>) -> Vec<&'a CpuSet> {
    let placement = guest.placement;
    let planned = |number: u32| placement.iothreads.get((number as usize).checked_sub(1)?);
    let numbers = with_iothreads(guest)
        .map(|disk| disk.driver.iothread.or_else(|| disk.driver.iothread_mapping.first().copied()));
    numbers.map(|number| number.and_then(planned).unwrap_or(&placement.emulator)).collect()
}

/// Lines that choose a set by a counter; more threads than sets begin with the first again.
fn chosen(counter: &str, sets: &[&CpuSet], otherwise: &CpuSet) -> String {
    if sets.is_empty() {
        return format!("\t\t\tpus={otherwise}\n");
    }
    let mut lines = format!("\t\t\tcase $((({counter} - 1) % {})) in\n", sets.len());
    for (index, set) in sets.iter().enumerate() {
        let _ = writeln!(lines, "\t\t\t{index}) pus={set} ;;");
    }
    lines.push_str("\t\t\tesac\n");
    lines
}
