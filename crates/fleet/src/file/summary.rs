//! What was understood of a fleet file, as tables for people.

use std::collections::BTreeMap;

use nearmetal_units::Bytes;

use super::entry::{FleetFile, HostEntry, HostReach, VmEntry};
use super::error::printable;
use crate::model::{
    CpuSharing, DeviceSelector, GroupRule, GuestNuma, HostSelector, Scope, SmtPolicy, SpreadHosts, Together,
};
use crate::supply::Reserve;

/// Hosts, VMs, groups and totals. VMs of one `count` share a row. Pure; no host is asked.
pub fn summary(file: &FleetFile) -> String {
    let mut hosts = vec![["HOST", "read", "labels", "failure domain", "keeps for itself"].map(str::to_owned).to_vec()];
    hosts.extend(file.hosts.iter().map(host_row));
    let mut vms = vec![
        ["VM", ">vCPUs", ">memory", "pages", "class", "CPUs", "NUMA", "hosts", "devices"].map(str::to_owned).to_vec(),
    ];
    vms.extend(rows(file).map(vm_row));
    let mut groups = vec![["GROUP", "rule", "VMs"].map(str::to_owned).to_vec()];
    groups.extend(group_rows(file));
    let tables = [hosts, vms, groups].map(|rows| if rows.len() > 1 { aligned(&rows) + "\n" } else { String::new() });
    format!("{}{}\n", tables.concat(), totals(file))
}

/// The VMs of each row: one, or all of a `count`.
fn rows(file: &FleetFile) -> impl Iterator<Item = &[VmEntry]> {
    file.vms.chunk_by(is_copy)
}

fn is_copy(one: &VmEntry, other: &VmEntry) -> bool {
    match (&one.copy, &other.copy) {
        (Some((one, _)), Some((other, number))) => one == other && *number > 1,
        _ => false,
    }
}

fn host_row(host: &HostEntry) -> Vec<String> {
    let read = match &host.reach {
        HostReach::Local => "this machine".to_owned(),
        HostReach::Ssh { destination, command } => {
            format!("{} {destination}", command.as_deref().unwrap_or("ssh"))
        }
        HostReach::Libvirt(uri) => uri.clone(),
        HostReach::Capture(path) => format!("capture {}", path.display()),
    };
    let domain = host.failure_domain.clone().unwrap_or_else(|| "its own".to_owned());
    vec![host.name.clone(), read, labels(&host.labels), domain, keeps(&host.reserve)]
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() { "-".to_owned() } else { pairs.join(" ") }
}

fn keeps(reserve: &Reserve) -> String {
    let mut parts = Vec::new();
    if reserve.first_core {
        parts.push("the first core".to_owned());
    }
    match reserve.cores_per_node {
        0 => {}
        1 => parts.push("1 core a node".to_owned()),
        cores => parts.push(format!("{cores} cores a node")),
    }
    let memory = reserve.memory_per_node.map_or("5 % of memory".to_owned(), |memory| format!("{memory} a node"));
    parts.push(memory);
    if !reserve.pools_grow {
        parts.push("pools as they are".to_owned());
    }
    parts.join(", ")
}

fn vm_row(copies: &[VmEntry]) -> Vec<String> {
    let [entry, ..] = copies else { return Vec::new() };
    let vm = &entry.vm;
    let name = match &entry.copy {
        Some((base, _)) if copies.len() > 1 => format!("{base}-1 to {base}-{}", copies.len()),
        _ => vm.name.clone(),
    };
    let numa = match vm.numa {
        GuestNuma::Hidden => "hidden".to_owned(),
        GuestNuma::Mirror => "mirror".to_owned(),
        GuestNuma::Cells(1) => "1 cell".to_owned(),
        GuestNuma::Cells(cells) => format!("{cells} cells"),
    };
    let pages = vm.page_size.map_or("kernel".to_owned(), |size| size.to_string());
    let hosts = match &entry.on {
        Some(on) => format!("on {on}"),
        None => selector(&vm.hosts),
    };
    let class = vm.class.word().to_owned();
    vec![name, vm.vcpus.to_string(), vm.memory.to_string(), pages, class, cpus(entry), numa, hosts, devices(entry)]
}

fn cpus(entry: &VmEntry) -> String {
    match (entry.vm.sharing(), entry.vm.smt) {
        (CpuSharing::Shared { ratio_percent }, _) => format!("shared, {} a PU", ratio(ratio_percent)),
        (_, SmtPolicy::Prefer) => "own PUs".to_owned(),
        (_, SmtPolicy::Isolate) => "own PUs, 1 a core".to_owned(),
        (_, SmtPolicy::Require) => "own whole cores".to_owned(),
        (_, SmtPolicy::None) => "own PUs, any".to_owned(),
    }
}

fn ratio(percent: u32) -> String {
    if percent % 100 == 0 { (percent / 100).to_string() } else { format!("{:.2}", f64::from(percent) / 100.0) }
}

fn selector(hosts: &HostSelector) -> String {
    let mut parts = hosts.names.clone();
    parts.extend(hosts.labels.iter().map(|(key, value)| format!("{key}={value}")));
    if parts.is_empty() { "any".to_owned() } else { parts.join(" ") }
}

fn devices(entry: &VmEntry) -> String {
    let parts: Vec<String> = entry.vm.devices.iter().map(|demand| counted(&demand.selector, demand.count)).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}

fn counted(selector: &DeviceSelector, count: u32) -> String {
    let many = if count == 1 { String::new() } else { format!("{count} × ") };
    let what = match selector {
        DeviceSelector::VirtualFunction { of: Some(name) } => format!("VF of {name}"),
        DeviceSelector::VirtualFunction { of: None } => "any VF".to_owned(),
        DeviceSelector::Id { vendor, device } => format!("{vendor:04x}:{device:04x}"),
        DeviceSelector::Class { class } => format!("class {class:04x}"),
        DeviceSelector::Function(address) => address.to_string(),
        DeviceSelector::Shared { name } => format!("near {name}"),
    };
    many + &what
}

fn group_rows(file: &FleetFile) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<&str, (GroupRule, Vec<String>)> = BTreeMap::new();
    for copies in rows(file) {
        let same = copies.iter().all(|other| other.vm.groups == copies[0].vm.groups);
        // A group may hold some of the copies only: then each is named.
        for other in copies.iter().take(if same { 1 } else { copies.len() }) {
            for rule in &other.vm.groups {
                let name = match &other.copy {
                    Some((base, _)) if same && copies.len() > 1 => format!("{base} ({})", copies.len()),
                    _ => other.vm.name.clone(),
                };
                groups.entry(&rule.group).or_insert_with(|| (rule.clone(), Vec::new())).1.push(name);
            }
        }
    }
    let row = |(name, (rule, members)): (&str, (GroupRule, Vec<String>))| {
        let scope = match rule.scope {
            Scope::Host => "host",
            Scope::Node => "node",
            Scope::FailureDomain => "failure domain",
        };
        let words = match rule.rule {
            Together::Together => format!("on one {scope}"),
            Together::Apart => format!("no two on one {scope}"),
            Together::ApartFromOtherLabels(_) => format!("labels on different {scope}s"),
        };
        vec![name.to_owned(), words, members.join(", ")]
    };
    groups.into_iter().map(row).collect()
}

/// The sums, in sentences.
fn totals(file: &FleetFile) -> String {
    let (mut own, mut shared, mut load) = (0u64, 0u64, 0u64);
    let mut memory: BTreeMap<Option<nearmetal_units::PageSize>, Bytes> = BTreeMap::new();
    let mut devices: BTreeMap<String, u32> = BTreeMap::new();
    for entry in &file.vms {
        let vm = &entry.vm;
        let vcpus = u64::from(vm.vcpus);
        match vm.sharing() {
            CpuSharing::Dedicated => own += vcpus,
            CpuSharing::Shared { ratio_percent } => {
                shared += vcpus;
                load += vcpus * 10_000 / u64::from(ratio_percent.max(1));
            }
        }
        let sum = memory.entry(vm.page_size).or_default();
        *sum = sum.plus(vm.memory);
        for demand in vm.devices.iter().filter(|demand| !matches!(demand.selector, DeviceSelector::Shared { .. })) {
            let all = devices.entry(counted(&demand.selector, 1)).or_default();
            *all = all.saturating_add(demand.count);
        }
    }
    let all = memory.values().fold(Bytes::ZERO, |sum, part| sum.plus(*part));
    let spread = match file.spread {
        SpreadHosts::Fewest => "gathered on as few hosts as possible",
        SpreadHosts::Most => "spread over as many hosts as possible",
    };
    let (vms, hosts) = (plural(file.vms.len() as u64, "VM"), plural(file.hosts.len() as u64, "host"));
    let mut lines = vec![format!("{vms}, {hosts}; VMs are {spread}")];
    let mut cpus = vec![format!("{} with a PU each", plural(own, "vCPU"))];
    if shared > 0 {
        cpus.push(format!("{} that share {}", plural(shared, "vCPU"), plural(load.div_ceil(100), "PU")));
    }
    lines.push(cpus.join(", "));
    let parts: Vec<String> = memory
        .iter()
        .map(|(size, sum)| match size {
            None => format!("{sum} in the kernel's own pages"),
            Some(size) => format!("{sum} in pages of {size}"),
        })
        .collect();
    lines.push(match parts.len() {
        0 => "no memory".to_owned(),
        1 => format!("memory: {}", parts[0]),
        _ => format!("memory: {all}, of it {}", parts.join(", ")),
    });
    if !devices.is_empty() {
        let parts: Vec<String> = devices.iter().map(|(what, count)| format!("{count} × {what}")).collect();
        lines.push(format!("devices: {}", parts.join(", ")));
    }
    lines.join("\n")
}

fn plural(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Columns as wide as their widest cell; headings that begin with `>` stand over figures, to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let right: Vec<bool> =
        rows.first().map_or(Vec::new(), |row| row.iter().map(|cell| cell.starts_with('>')).collect());
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| cell.trim_start_matches('>').chars().map(printable).collect()).collect())
        .collect();
    let width = |at: usize| cells.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..right.len()).map(|at| width(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &cells {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let padding = " ".repeat(widths.get(at).copied().unwrap_or(0).saturating_sub(cell.chars().count()));
            let is_right = right.get(at).is_some_and(|right| *right);
            let parts = if is_right { [padding.as_str(), cell] } else { [cell, padding.as_str()] };
            line.push_str(if at == 0 { "" } else { "  " });
            line.push_str(&parts.concat());
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
