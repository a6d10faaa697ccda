//! Proxmox VE: `/etc/pve/qemu-server/VMID.conf` for each VM, and a hookscript that pins what no line of it can.
//!
//! Keys and forms as `man qm.conf` has them (PVE::QemuServer's `$confdesc`, `$numa_fmt`, `$net_fmt`, PVE::QemuServer::Drive).
//! `affinity` confines the whole process; one PU for each vCPU takes the hookscript.

mod conf;
mod hook;

use std::collections::{BTreeMap, BTreeSet};

use crate::guests::{Guest, Host};
use crate::limit::{followed, pools};
use crate::names::{Taken, file_name};
use crate::{Exported, InterchangeError, Limit, Options};

/// Numbers Proxmox gives to VMs.
const NUMBERS: std::ops::RangeInclusive<u32> = 100..=999_999_999;

/// The files.
///
/// # Errors
/// A number that Proxmox does not take, that two VMs share, or that is of a VM the plan does not have.
pub(crate) fn export(hosts: &[Host<'_>], options: &Options) -> Result<Exported, InterchangeError> {
    let numbers = numbers(hosts, &options.numbers)?;
    let mut exported = Exported::default();
    let mut directories = Taken::default();
    for host in hosts {
        let directory = directories.free(file_name(host.name, "host"), 100);
        for guest in &host.guests {
            let number = numbers.get(guest.name).copied().unwrap_or(*NUMBERS.start());
            let (text, limits) = conf::conf(guest, number);
            exported.add(format!("{directory}/{number}.conf"), text);
            exported.limits.extend(limits);
            if !guest.placement.is_floating() {
                exported.add(format!("{directory}/{}", hook::name(number)), hook::script(guest, number));
            }
            exported.limits.extend(of_guest(guest, number));
        }
        exported
            .limits
            .extend(pools(host, "Proxmox makes them when a VM starts, if memory is still in one piece then"));
    }
    Ok(exported)
}

/// The number of each VM: those that are given, and for others the lowest that is free.
fn numbers<'a>(hosts: &[Host<'a>], given: &BTreeMap<String, u32>) -> Result<BTreeMap<&'a str, u32>, InterchangeError> {
    let names = || hosts.iter().flat_map(|host| &host.guests).map(|guest| guest.name);
    let mut taken = BTreeSet::new();
    for (name, number) in given {
        if !names().any(|known| known == name) {
            return Err(InterchangeError::Option(format!(
                "the plan has no VM `{name}`: it cannot have the number {number}"
            )));
        }
        if !NUMBERS.contains(number) {
            let (least, most) = (NUMBERS.start(), NUMBERS.end());
            let problem = format!("`{name}` cannot have the number {number}: Proxmox takes {least} to {most}");
            return Err(InterchangeError::Option(problem));
        }
        if !taken.insert(*number) {
            return Err(InterchangeError::Option(format!(
                "two VMs cannot have the number {number}: give each its own"
            )));
        }
    }
    let mut free = NUMBERS.filter(|number| !taken.contains(number));
    Ok(names().filter_map(|name| Some((name, given.get(name).copied().or_else(|| free.next())?))).collect())
}

fn of_guest(guest: &Guest<'_>, number: u32) -> Vec<Limit> {
    let mut limits = Vec::new();
    if !guest.placement.is_floating() {
        let hook = hook::name(number);
        limits.push(Limit::of(
            guest,
            "vCPU pins",
            guest.pins_text(),
            "`affinity` is one set for all threads",
            &format!("copy {hook} to /var/lib/vz/snippets and make it executable: it pins each thread after the start"),
        ));
    }
    if !guest.placement.vhost.is_empty() || !guest.placement.networks.is_empty() && !guest.placement.is_floating() {
        limits.push(Limit::of(
            guest,
            "vhost workers",
            "",
            "they start when the guest's driver does, after the hookscript ran",
            &format!("run the hookscript again when the guest is up: {} {number} post-start", hook::name(number)),
        ));
    }
    if !guest.placement.interrupts.is_empty() {
        limits.push(Limit::of(
            guest,
            "interrupts of its functions",
            format!("on PUs {}", guest.placement.interrupts),
            "they exist only once the guest's driver asked for them",
            "write the PUs into /proc/irq/NUMBER/smp_affinity_list when the guest is up",
        ));
    }
    let why = "the file has the plan's decisions, not every setting of the definition";
    limits.extend(followed(guest, why, "set it in the VM's Options or Hardware, if Proxmox has it"));
    limits
}
