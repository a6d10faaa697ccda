//! The lines of a VM's configuration.

use std::fmt::Write;

use nearmetal_domain::{DiskFacts, InterfaceFacts};
use nearmetal_place::FunctionKind;
use nearmetal_units::{CpuSet, NodeSet, PageSize};

use super::hook;
use crate::Limit;
use crate::guests::Guest;
use crate::limit::{polling, shared_disks};
use crate::names::{dns_label, one_line};

/// Queues of an interface, at most.
const MOST_QUEUES: u32 = 64;
/// Functions handed through, at most: `hostpci0` to `hostpci15`.
const MOST_FUNCTIONS: usize = 16;
/// Disks of a bus, by Proxmox.
const MOST_VIRTIO: usize = 16;
/// As [`MOST_VIRTIO`].
const MOST_SCSI: usize = 31;
/// As [`MOST_VIRTIO`].
const MOST_SATA: usize = 6;

/// The text of `VMID.conf`, and what it cannot say.
pub(super) fn conf(guest: &Guest<'_>, number: u32) -> (String, Vec<Limit>) {
    let mut limits = Vec::new();
    let mut text = String::new();
    // A `#` line is the VM's description there.
    let _ = writeln!(text, "#nearmetal's plan of {} on {}", one_line(guest.name), one_line(guest.host));
    let mut line = |key: &str, value: &str| _ = writeln!(text, "{key}: {value}");
    let name = dns_label(guest.name, "vm");
    if name != guest.name {
        let why = "names in Proxmox are DNS names";
        limits.push(Limit::of(guest, "name", format!("as `{name}`"), why, "the description keeps it"));
    }
    line("name", &name);
    let (sockets, cores, threads) = guest.topology();
    line("sockets", &sockets.to_string());
    line("cores", &cores.saturating_mul(threads).to_string());
    if threads > 1 {
        let planned = format!("{threads} threads of each core");
        let why = "Proxmox shows guests no threads, so they are cores here";
        limits.push(Limit::of(
            guest,
            "CPU topology",
            planned,
            why,
            "nothing to do: the guest takes siblings for cores",
        ));
    }
    match guest.facts.cpu.mode.as_deref() {
        Some("host-passthrough" | "maximum" | "host-model") => line("cpu", "host"),
        mode => {
            let planned = guest.facts.cpu.model.as_deref().or(mode).unwrap_or("libvirt's default").to_owned();
            let by_hand = "set `cpu:` to a type of Proxmox's list";
            limits.push(Limit::of(guest, "CPU model", planned, "types have other names in Proxmox", by_hand));
        }
    }
    if guest.facts.boot.is_q35() {
        line("machine", "q35");
    }
    if guest.is_uefi() {
        line("bios", "ovmf");
        let by_hand = "add it: `qm set VMID --efidisk0 STORAGE:1,efitype=4m`";
        limits.push(Limit::of(guest, "UEFI variables", "", "Proxmox keeps them on a disk of its own", by_hand));
    }
    let mebibytes = guest.facts.memory.get() >> 20;
    line("memory", &mebibytes.to_string());
    if guest.facts.memory.get() % (1 << 20) != 0 {
        let by_hand = "plan it with whole MiB";
        limits.push(Limit::of(guest, "memory", guest.facts.memory, "Proxmox counts whole MiB", by_hand));
    }
    line("balloon", "0");
    if uuid_is_plain(&guest.placement.uuid) {
        line("smbios1", &format!("uuid={}", guest.placement.uuid));
    }
    placement(guest, number, &mut line, &mut limits);
    line("scsihw", "virtio-scsi-single");
    disks(guest, &mut line, &mut limits);
    for (index, interface) in guest.facts.interfaces.iter().filter(|one| one.kind != "hostdev").enumerate() {
        if let Some(value) = net(guest, interface, &mut limits) {
            line(&format!("net{index}"), &value);
        }
    }
    functions(guest, &mut line, &mut limits);
    (text, limits)
}

/// Where its threads and its memory are.
fn placement(guest: &Guest<'_>, number: u32, line: &mut impl FnMut(&str, &str), limits: &mut Vec<Limit>) {
    let placement = guest.placement;
    if placement.is_floating() {
        return;
    }
    line("affinity", &guest.slice().to_string());
    line("hookscript", &format!("local:snippets/{}", hook::name(number)));
    if placement.memory.nodes.is_empty() && placement.cells.is_empty() {
        return;
    }
    line("numa", "1");
    let numa = |vcpus: &CpuSet, nodes: &NodeSet, memory: u64| {
        let (vcpus, nodes) = (semicolons(&vcpus.to_string()), semicolons(&nodes.to_string()));
        format!("cpus={vcpus},hostnodes={nodes},memory={memory},policy=bind")
    };
    if placement.cells.is_empty() {
        let vcpus: CpuSet = placement.vcpus.iter().fold(CpuSet::new(), |all, pin| all.union(&CpuSet::one(pin.vcpu)));
        line("numa0", &numa(&vcpus, &placement.memory.nodes, guest.facts.memory.get() >> 20));
    }
    for (index, cell) in placement.cells.iter().enumerate() {
        line(&format!("numa{index}"), &numa(&cell.vcpus, &NodeSet::one(cell.node), cell.memory.get() >> 20));
    }
    limits.extend(Limit::distances(guest, placement, "Proxmox"));
    // Proxmox starts no VM whose hugepages come from several nodes at once, or from a node of two digits.
    let nodes = &placement.memory.nodes;
    let of_one = !placement.cells.is_empty() || nodes.len() == 1;
    let short = |node: u32| node < 10;
    let startable = of_one && nodes.iter().all(short) && placement.cells.iter().all(|cell| short(cell.node));
    match placement.memory.page_size {
        None => {}
        Some(size) if !startable => {
            let planned = format!("{} on nodes {nodes}", size.bytes());
            let why = "Proxmox takes hugepages from one node for each guest cell, of one digit";
            limits.push(Limit::of(guest, "page size", planned, why, "plan it with guest cells, or on one node"));
        }
        Some(PageSize::HUGE_2M) => line("hugepages", "2"),
        Some(PageSize::HUGE_1G) => line("hugepages", "1024"),
        Some(other) => {
            let why = "Proxmox knows pages of 2 MiB and of 1 GiB";
            limits.push(Limit::of(guest, "page size", other.bytes(), why, "plan it with one of those"));
        }
    }
}

/// Ranges of a list in a property are parted by semicolons there.
fn semicolons(set: &str) -> String {
    set.replace(',', ";")
}

fn uuid_is_plain(uuid: &str) -> bool {
    uuid.len() == 36 && uuid.chars().all(|character| character.is_ascii_hexdigit() || character == '-')
}

/// Whether a text means itself inside a property string: no comma, no white space, nothing beyond ASCII.
fn is_plain(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/_.:+@-".contains(&byte);
    !text.is_empty() && text.bytes().all(allowed) && !text.starts_with('-')
}

/// Whether Proxmox takes it as a disk's source.
fn is_path(source: &str) -> bool {
    source.starts_with('/') && is_plain(source)
}

/// The disks of a kind that Proxmox knows and takes, by bus, in the order in which it makes their iothreads.
pub(super) fn with_iothreads<'a>(guest: &'a Guest<'_>) -> impl Iterator<Item = &'a DiskFacts> {
    let on = |bus: &'static str, most: usize| {
        let of = move |disk: &&DiskFacts| {
            disk.bus.as_deref() == Some(bus) && is_path(disk.source.as_deref().unwrap_or_default())
        };
        guest.facts.disks.iter().filter(of).take(most).filter(|disk| disk.device != "cdrom")
    };
    on("scsi", MOST_SCSI).chain(on("virtio", MOST_VIRTIO)).filter(|disk| has_iothread(disk))
}

/// Whether an iothread serves it; of several that share it, one is left.
fn has_iothread(disk: &DiskFacts) -> bool {
    disk.driver.iothread.is_some() || !disk.driver.iothread_mapping.is_empty()
}

fn disks(guest: &Guest<'_>, line: &mut impl FnMut(&str, &str), limits: &mut Vec<Limit>) {
    let mut counts = [("virtio", 0, MOST_VIRTIO), ("scsi", 0, MOST_SCSI), ("sata", 0, MOST_SATA)];
    let mut boot = None;
    for disk in &guest.facts.disks {
        let what = format!("disk {}", disk.target);
        let source = disk.source.as_deref().unwrap_or_default();
        let bus = disk.bus.as_deref().unwrap_or_default();
        let place = counts.iter_mut().find(|(name, count, most)| *name == bus && count < most);
        let (Some((bus, count, _)), true) = (place, is_path(source)) else {
            let planned = format!("{} on {bus}", if source.is_empty() { "empty" } else { source });
            let why = "Proxmox takes a path or a volume, on virtio, scsi or sata";
            limits.push(Limit::of(guest, &what, planned, why, "add it in the VM's Hardware"));
            continue;
        };
        let key = format!("{bus}{count}");
        *count += 1;
        line(&key, &drive(guest, disk, source, &what, limits));
        if disk.device == "disk" && boot.is_none() {
            boot = Some(key);
        }
    }
    if let Some(first) = boot {
        line("boot", &format!("order={first}"));
    }
}

fn drive(guest: &Guest<'_>, disk: &DiskFacts, source: &str, what: &str, limits: &mut Vec<Limit>) -> String {
    let mut value = source.to_owned();
    if disk.device == "cdrom" {
        return value + ",media=cdrom";
    }
    if let Some(io @ ("native" | "threads" | "io_uring")) = disk.driver.io.as_deref() {
        let _ = write!(value, ",aio={io}");
    }
    if let Some(cache @ ("none" | "writeback" | "writethrough" | "directsync" | "unsafe")) =
        disk.driver.cache.as_deref()
    {
        let _ = write!(value, ",cache={cache}");
    }
    if has_iothread(disk) {
        value.push_str(",iothread=1");
    }
    if let Some(format @ ("raw" | "qcow2")) = disk.driver.format.as_deref().filter(|_| disk.kind == "file") {
        let _ = write!(value, ",format={format}");
    }
    if disk.readonly && disk.is_virtio_blk() {
        value.push_str(",ro=1");
    }
    if let Some(queues) = disk.driver.queues {
        let why = "Proxmox has no option for queues of a virtio disk: QEMU makes one for each vCPU";
        limits.push(Limit::of(guest, what, format!("{queues} queues"), why, "nothing to do"));
    }
    value
}

fn net(guest: &Guest<'_>, interface: &InterfaceFacts, limits: &mut Vec<Limit>) -> Option<String> {
    let mac = interface.mac.as_deref().filter(|mac| is_plain(mac));
    let what = format!("interface {}", mac.unwrap_or("without address"));
    let source = interface.source.as_deref().unwrap_or_default();
    if interface.kind != "bridge" || !is_plain(source) {
        let planned = format!("{} {}", interface.kind, one_line(source));
        let why = "Proxmox connects VMs to bridges";
        let by_hand = format!("add `net0: virtio={},bridge=vmbr0` for your bridge", mac.unwrap_or("ADDRESS"));
        limits.push(Limit::of(guest, &what, planned, why, &by_hand));
        return None;
    }
    let model = match interface.model.as_deref() {
        Some(model) if model.starts_with("virtio") => "virtio",
        Some(model @ ("e1000" | "e1000e" | "rtl8139" | "vmxnet3")) => model,
        _ => "virtio",
    };
    let mut value = model.to_owned();
    if let Some(mac) = mac {
        let _ = write!(value, "={}", mac.to_ascii_uppercase());
    }
    let _ = write!(value, ",bridge={source}");
    if let Some(queues) = interface.queues.filter(|queues| *queues > 1) {
        let _ = write!(value, ",queues={}", queues.min(MOST_QUEUES));
        if queues > MOST_QUEUES {
            let why = "Proxmox gives 64 at most";
            limits.push(Limit::of(guest, &what, format!("{queues} queues"), why, "nothing to do"));
        }
    }
    if !interface.offloads_off.is_empty() {
        let planned = format!("offloads off: {}", interface.offloads_off.join(" "));
        let (why, by_hand) = ("Proxmox has no option for offloads", "turn them off inside the guest: `ethtool -K`");
        limits.push(Limit::of(guest, &what, planned, why, by_hand));
    }
    Some(value)
}

fn functions(guest: &Guest<'_>, line: &mut impl FnMut(&str, &str), limits: &mut Vec<Limit>) {
    let pcie = if guest.facts.boot.is_q35() { ",pcie=1" } else { "" };
    let decided = guest.placement.devices.iter().map(|device| device.function);
    let all: Vec<_> = decided.chain(guest.undecided_functions()).collect();
    for (index, function) in all.iter().enumerate() {
        if index < MOST_FUNCTIONS {
            line(&format!("hostpci{index}"), &format!("{function}{pcie}"));
        } else {
            let why = "Proxmox hands 16 functions through at most";
            limits.push(Limit::of(guest, "PCI function", function, why, "give the VM fewer"));
        }
    }
    limits.extend(Limit::cells_of_functions(guest, guest.placement, "Proxmox"));
    limits.extend(shared_disks(guest, "Proxmox"));
    limits.extend(polling(guest, "Proxmox"));
    limits.extend(Limit::served_by_qemu(guest, guest.placement, "Proxmox"));
    for device in &guest.placement.devices {
        let what = format!("function {}", device.function);
        if let FunctionKind::NetworkVirtual { mac, vlan } = &device.kind {
            let mac = mac.map_or_else(String::new, |mac| format!(" mac {mac}"));
            let vlan = vlan.map_or_else(String::new, |vlan| format!(" vlan {vlan}"));
            if !mac.is_empty() || !vlan.is_empty() {
                let by_hand = format!("before the start: `ip link set PF vf NUMBER{mac}{vlan}`");
                let planned = format!("{mac}{vlan}").trim().to_owned();
                let why = "Proxmox sets neither on a virtual function";
                limits.push(Limit::of(guest, &what, planned, why, &by_hand));
            }
        }
    }
}
