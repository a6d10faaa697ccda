//! OpenStack Nova: flavors with their extra specs, the commands that make them, and each host's `nova.conf`; and the other
//! way, flavors as entries of a fleet file.
//!
//! Extra specs as in nova.api.validation.extra_specs (hw.py, pci_passthrough.py) and nova.virt.hardware. Nova chooses PUs
//! and nodes when a VM is created: the flavor says what they must be like.

mod flavor;
mod host_conf;
mod import;

use std::fmt::Write;

use nearmetal_fleet::file::FleetFile;
use nearmetal_fleet::{Scope, Together};
use nearmetal_place::FunctionKind;

pub use self::import::fleet_from_flavors;
use crate::guests::{Guest, Host};
use crate::limit::{NO_PAGES, after_start, followed, pools};
use crate::names::{Taken, dns_label, file_name, one_line};
use crate::{Exported, Limit, Options};
use flavor::Flavor;

/// The files.
pub(crate) fn export(hosts: &[Host<'_>], options: &Options) -> Exported {
    let mut exported = Exported::default();
    let mut flavors: Vec<Flavor> = Vec::new();
    let (mut names, mut directories) = (Taken::default(), Taken::default());
    let mut servers = String::new();
    for host in hosts {
        let directory = directories.free(file_name(host.name, "host"), 100);
        exported.add(format!("{directory}/nova.conf"), host_conf::conf(host));
        for guest in &host.guests {
            let (mut flavor, limits) = flavor::of(guest);
            exported.limits.extend(limits);
            // VMs of one shape have one flavor.
            let name = match flavors.iter().find(|known| known.is_like(&flavor)) {
                Some(known) => known.name.clone(),
                None => {
                    flavor.name = names.free(format!("nearmetal-{}", dns_label(guest.name, "vm")), 100);
                    flavors.push(flavor);
                    flavors.last().map(|flavor| flavor.name.clone()).unwrap_or_default()
                }
            };
            let _ = writeln!(
                servers,
                "# openstack server create --flavor {name} --host {} --image IMAGE --nic … {}",
                quoted(host.name),
                quoted(guest.name)
            );
            exported.limits.extend(of_guest(guest, &name));
        }
        exported.limits.extend(pools(host, NO_PAGES));
    }
    let list: Vec<_> = flavors.iter().map(Flavor::json).collect();
    exported.add("flavors.json", serde_json::to_string_pretty(&list).unwrap_or_default() + "\n");
    let groups = groups(hosts, options.fleet.as_ref(), &mut exported.limits);
    exported.add("create.sh", script(&flavors, &groups, &servers));
    exported
}

/// A word of a shell's command.
fn quoted(text: &str) -> String {
    format!("'{}'", one_line(text).replace('\'', "'\\''"))
}

fn script(flavors: &[Flavor], groups: &[(String, &'static str)], servers: &str) -> String {
    let mut text = "#!/bin/sh\n# Makes the flavors of nearmetal's plan, and its server groups. Run it once, as an administrator.\nset -eu\n"
        .to_owned();
    for flavor in flavors {
        let _ = write!(text, "openstack flavor create --vcpus {} --ram {} --disk 0", flavor.vcpus, flavor.mebibytes);
        for (key, value) in &flavor.properties {
            let _ = write!(text, " \\\n\t--property {}", quoted(&format!("{key}={value}")));
        }
        let _ = writeln!(text, " \\\n\t{}", flavor.name);
    }
    for (name, policy) in groups {
        let _ = writeln!(text, "openstack server group create --policy {policy} {}", quoted(name));
    }
    text.push_str("# Each VM on the host of the plan (API 2.74; `--hint group=ID` puts it into a group):\n");
    text + servers
}

/// Server groups of a fleet file, with Nova's policy.
fn groups(hosts: &[Host<'_>], fleet: Option<&FleetFile>, limits: &mut Vec<Limit>) -> Vec<(String, &'static str)> {
    let Some(fleet) = fleet else { return Vec::new() };
    let mut groups: Vec<(String, &'static str)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for guest in hosts.iter().flat_map(|host| &host.guests) {
        let Some(entry) = fleet.vm(guest.name) else { continue };
        for rule in &entry.vm.groups {
            let policy = match (rule.scope, rule.rule) {
                (Scope::Host, Together::Together) => Some("affinity"),
                (Scope::Host, Together::Apart) => Some("anti-affinity"),
                _ => None,
            };
            let Some(policy) = policy else {
                limits.push(Limit::of(
                    guest,
                    "group",
                    &rule.group,
                    "server groups keep VMs together or apart on hosts, and nothing else",
                    "the plan keeps the rule: create each VM on its host",
                ));
                continue;
            };
            if seen.insert(rule.group.clone()) {
                groups.push((rule.group.clone(), policy));
            }
        }
    }
    groups
}

fn of_guest(guest: &Guest<'_>, flavor: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut limit = |what: &str, planned: String, why: &str, by_hand: &str| {
        limits.push(Limit::of(guest, what, planned, why, by_hand));
    };
    let create = format!("create it with `--flavor {flavor} --host {}`", one_line(guest.host));
    limit("host", guest.host.to_owned(), "Nova's scheduler chooses it", &create);
    let placement = guest.placement;
    if !placement.is_floating() {
        limit(
            "vCPU pins",
            guest.pins_text(),
            "Nova chooses among the PUs of cpu_dedicated_set",
            "nothing to do: nova.conf lists those of the plan; compare with `virsh vcpupin`",
        );
    }
    if !placement.emulator.is_empty() {
        limit(
            "emulator thread",
            format!("on PUs {}", placement.emulator),
            "Nova lets it run on all of cpu_shared_set, which serves every guest of the host, or on the PUs of the vCPUs",
            "pin it by hand after the start: `virsh emulatorpin`",
        );
    }
    for (number, pus) in placement.iothreads.iter().enumerate() {
        limit(
            &format!("iothread {}", number + 1),
            format!("on PUs {pus}"),
            "Nova has no setting for iothreads",
            "nothing to do: the emulator thread does their work",
        );
    }
    for disk in &placement.disks {
        limit(
            &format!("disk {}", disk.target),
            "its cache, engine and queues".to_owned(),
            "Nova sets the cache of all disks of a kind, and chooses the rest",
            "in nova.conf: [libvirt] disk_cachemodes = block=none,file=none",
        );
    }
    for network in placement.networks.iter().filter(|network| network.offloads_off) {
        let what = format!("interface {}", network.mac);
        limit(
            &what,
            "offloads off".to_owned(),
            "Nova has no setting for offloads",
            "turn them off inside the guest: `ethtool -K`",
        );
    }
    for device in &placement.devices {
        let FunctionKind::NetworkVirtual { mac, vlan } = &device.kind else { continue };
        let mac = mac.map_or_else(String::new, |mac| format!(" --mac-address {mac}"));
        let vlan = vlan.map_or_else(String::new, |vlan| format!(", on a network of VLAN {vlan}"));
        limit(
            "virtual function",
            device.function.to_string(),
            "Neutron's port brings it",
            &format!("make the port: `openstack port create --vnic-type direct{mac} …`{vlan}"),
        );
    }
    if guest.is_uefi() {
        let by_hand = "openstack image set --property hw_firmware_type=uefi IMAGE";
        limit("UEFI", String::new(), "it is a property of the image", by_hand);
    }
    let by_hand = "pin them by hand after the start, or with `nearmetal apply` outside of Nova";
    limits.extend(after_start(guest, "Nova places the threads of the guest alone", by_hand));
    let why = "a flavor has the plan's decisions, not every setting of the definition";
    limits.extend(followed(guest, why, "set its image property (`hw_…`) if Nova has one"));
    limits
}
