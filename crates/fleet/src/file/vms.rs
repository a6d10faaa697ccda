//! `[[vm]]` and `[defaults]`: one VM at a time, then all of them with their copies.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize, PciAddress};

use super::devices;
use super::disks::{self, Nic};
use super::entry::{DiskEntry, DiskSource, Firmware, NicEntry, NicKind, VmEntry};
use super::error::shown;
use super::hosts::{name_of, with_name};
use super::keys;
use super::section::{At, Notes, Section};
use crate::dense::MOST_VCPUS;
use crate::model::{CpuSharing, DeviceDemand, DeviceSelector, GuestNuma, HostSelector, SmtPolicy, Vm};

/// VMs of a file at most, copies counted.
const MOST_VMS: usize = 100_000;
/// Guest cells at most: Linux keeps 1024 nodes apart.
const MOST_CELLS: i64 = 1024;
/// vCPUs a PU may carry at most, as the planner has it.
const MOST_RATIO: f64 = 100.0;

/// What `[defaults]` may say too.
#[derive(Debug, Clone, Default)]
pub(super) struct Common {
    vcpus: Option<At<i64>>,
    memory: Option<At<Bytes>>,
    pub(super) page_size: Option<At<Option<PageSize>>>,
    class: Option<At<WorkloadClass>>,
    smt: Option<At<SmtPolicy>>,
    cpus: Option<At<CpuSharing>>,
    numa: Option<At<GuestNuma>>,
    pub(super) priority: Option<At<i64>>,
    pub(super) hosts: Option<Selector>,
    movable: Option<At<bool>>,
    template: Option<At<String>>,
    firmware: Option<At<Firmware>>,
}

/// Hosts by name and label, with their places.
#[derive(Debug, Clone)]
pub(super) struct Selector {
    pub(super) names: Vec<At<String>>,
    pub(super) labels: Vec<(At<String>, At<String>)>,
    pub(super) span: std::ops::Range<usize>,
}

/// A `[[vm]]` as it stands, defaults filled in.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) whose: String,
    pub(super) name: At<String>,
    count: Option<At<i64>>,
    uuid: Option<At<String>>,
    pub(super) on: Option<At<String>>,
    pub(super) common: Common,
    disks: Vec<At<DiskEntry>>,
    nics: Vec<Nic>,
    devices: Vec<At<DeviceDemand>>,
}

impl Common {
    /// Reads what is there.
    pub(super) fn read(section: &Section<'_>) -> Self {
        let classes = WorkloadClass::ALL.map(|class| (class.word(), class));
        let policies = [
            ("prefer", SmtPolicy::Prefer),
            ("isolate", SmtPolicy::Isolate),
            ("require", SmtPolicy::Require),
            ("none", SmtPolicy::None),
        ];
        Self {
            vcpus: section.integer("vcpus", 1..=i64::from(MOST_VCPUS), "vCPUs"),
            memory: section.bytes("memory").filter(|memory| sensible_memory(section, memory)),
            page_size: section.page_size("page-size"),
            class: section.word("class", &classes),
            smt: section.word("smt", &policies),
            cpus: sharing(section),
            numa: numa(section),
            priority: section.integer("priority", i64::from(i32::MIN)..=i64::from(i32::MAX), "as priority"),
            hosts: section.table("hosts", &keys::SELECTOR).map(|selector| {
                let span = section.place("hosts");
                let names = selector.strings("names").map(|names| names.value);
                let labels = selector.texts("labels");
                selector.finish();
                if names.as_ref().is_some_and(Vec::is_empty) {
                    section.wrong(&span, "`names` of `hosts` is an empty list", "name a host, or take it away for any");
                }
                Selector { names: names.unwrap_or_default(), labels, span }
            }),
            movable: section.boolean("movable"),
            template: section.line("template"),
            firmware: section.word("firmware", &[("bios", Firmware::Bios), ("efi", Firmware::Efi)]),
        }
    }

    /// With what the defaults say where it says nothing.
    fn or(self, defaults: &Self) -> Self {
        let other = defaults.clone();
        Self {
            vcpus: self.vcpus.or(other.vcpus),
            memory: self.memory.or(other.memory),
            page_size: self.page_size.or(other.page_size),
            class: self.class.or(other.class),
            smt: self.smt.or(other.smt),
            cpus: self.cpus.or(other.cpus),
            numa: self.numa.or(other.numa),
            priority: self.priority.or(other.priority),
            hosts: self.hosts.or(other.hosts),
            movable: self.movable.or(other.movable),
            template: self.template.or(other.template),
            firmware: self.firmware.or(other.firmware),
        }
    }
}

fn sensible_memory(section: &Section<'_>, memory: &At<Bytes>) -> bool {
    let mib = memory.value.get() >> 20;
    let ok = mib > 0 && mib <= 1 << 30;
    if !ok {
        section.wrong(&memory.span, format!("`memory` is {}", memory.value), "give 1 MiB to 1024 TiB");
    }
    ok
}

fn sharing(section: &Section<'_>) -> Option<At<CpuSharing>> {
    if !section.is_table("cpus") {
        let word = section.string("cpus")?;
        if word.value != "dedicated" {
            let help = "write cpus = \"dedicated\", or cpus = { shared = 4.0 } for four vCPUs a hardware thread";
            section.wrong(&word.span, format!("`cpus` cannot be \"{}\"", shown(&word.value)), help);
            return None;
        }
        return Some(At { value: CpuSharing::Dedicated, span: word.span });
    }
    let table = section.table("cpus", &keys::SHARED)?;
    let ratio = table.number("shared");
    table.finish();
    let Some(ratio) = ratio else {
        if !table.has("shared") {
            section.wrong(&table.span, "`cpus` has no ratio", "write cpus = \"dedicated\" or cpus = { shared = 4.0 }");
        }
        return None;
    };
    if !(1.0..=MOST_RATIO).contains(&ratio.value) {
        let help = format!("give 1 to {MOST_RATIO} vCPUs a hardware thread; 4.0 is a usual one");
        section.wrong(&ratio.span, format!("`shared` is {}", ratio.value), help);
        return None;
    }
    let ratio_percent = (ratio.value * 100.0).round() as u32;
    Some(At { value: CpuSharing::Shared { ratio_percent }, span: ratio.span })
}

fn numa(section: &Section<'_>) -> Option<At<GuestNuma>> {
    if section.is_integer("numa") {
        let cells = section.integer("numa", 1..=MOST_CELLS, "cells, \"hidden\" or \"mirror\"")?;
        return Some(At { value: GuestNuma::Cells(cells.value as u32), span: cells.span });
    }
    let words = [("hidden", GuestNuma::Hidden), ("mirror", GuestNuma::Mirror)];
    let word = section.string("numa")?;
    if let Ok(cells) = word.value.trim().parse::<u32>() {
        let message = format!("`numa` is \"{cells}\" in quotes");
        section.wrong(&word.span, message, format!("a number of cells stands without them: numa = {cells}"));
        return None;
    }
    section.one_of("numa", &word, &words)
}

/// Reads all of them; those without a name, vCPUs or memory are noted and left out.
pub(super) fn read(sections: &[Section<'_>], defaults: &Common, notes: &Notes) -> Vec<Read> {
    if let Some(section) = sections.get(MOST_VMS) {
        let message = format!("the file has {} VMs; {MOST_VMS} at most", sections.len());
        notes.add(&section.span, message, "split it into several files");
        return Vec::new();
    }
    sections.iter().filter_map(|section| one(section, defaults)).collect()
}

fn one(section: &Section<'_>, defaults: &Common) -> Option<Read> {
    let name = name_of(section);
    let section = &with_name(section, "VM", name.as_ref());
    let own = Common::read(section);
    let count = section.integer("count", 1..=MOST_VMS as i64, "VMs");
    let uuid = section.line("uuid").filter(|uuid| sensible_uuid(section, uuid));
    let on = section.line("on");
    // Where a definition stands already, what one starts from is of no use; in the defaults it is for the others.
    for (key, there) in [("template", own.template.is_some()), ("firmware", own.firmware.is_some())] {
        if on.is_some() && there {
            let help = format!("a VM that is defined there keeps its definition: take `{key}` or `on` away");
            section.wrong(&section.place(key), format!("both `on` and `{key}` are given"), help);
        }
    }
    if let (Some(uuid), Some(_)) = (&uuid, &count) {
        section.wrong(
            &uuid.span,
            "both `count` and `uuid` are given",
            "one UUID names one VM: take one of the two away",
        );
    }
    let disks = disks::disks(section);
    let nics = disks::nics(section);
    let devices = devices::devices(section);
    section.finish();
    for (key, example) in [("vcpus", "vcpus = 4"), ("memory", "memory = \"16 GiB\"")] {
        let there = section.has(key)
            || match key {
                "vcpus" => defaults.vcpus.is_some(),
                _ => defaults.memory.is_some(),
            };
        if !there {
            let place = name.as_ref().map_or(section.span.clone(), |name| name.span.clone());
            section.wrong(&place, format!("`{key}` is missing"), format!("add it here or under [defaults]: {example}"));
        }
    }
    let common = own.or(defaults);
    contradictions(section, &common);
    copies(section, count.as_ref(), &disks, &nics, &devices);
    Some(Read { whose: section.whose.clone(), name: name?, count, uuid, on, common, disks, nics, devices })
}

fn sensible_uuid(section: &Section<'_>, uuid: &At<String>) -> bool {
    let groups: Vec<usize> = uuid.value.split('-').map(str::len).collect();
    let ok = groups == [8, 4, 4, 4, 12] && uuid.value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    if !ok {
        let message = format!("`uuid` is \"{}\", which is not a UUID", shown(&uuid.value));
        section.wrong(&uuid.span, message, "write it as `virsh domuuid NAME` prints it");
    }
    ok
}

/// What cannot hold together.
fn contradictions(section: &Section<'_>, common: &Common) {
    let vcpus = common.vcpus.as_ref().map(|vcpus| vcpus.value);
    if let (Some(At { value: GuestNuma::Cells(cells), span }), Some(vcpus)) = (&common.numa, vcpus) {
        if i64::from(*cells) > vcpus {
            let message = format!("`numa` is {cells}, and it has {vcpus} vCPUs");
            section.wrong(span, message, format!("each cell has a vCPU at least: give {vcpus} cells at most"));
        }
    }
    if let (Some(memory), Some(At { value: Some(size), .. })) = (&common.memory, &common.page_size) {
        if memory.value.get() % size.bytes().get() != 0 {
            let whole = size.bytes().times(memory.value.pages(*size));
            let message = format!("`memory` is {}, which is not a multiple of its pages of {size}", memory.value);
            let help = format!("give {whole}, or smaller pages (page-size = \"2 MiB\" or \"kernel\")");
            section.wrong(&memory.span, message, help);
        } else if let Some(At { value: GuestNuma::Cells(cells), span }) = &common.numa {
            if u64::from(*cells) > memory.value.pages(*size) {
                let pages = memory.value.pages(*size);
                let message = format!("`numa` is {cells}, and its memory is {pages} × {size}");
                section.wrong(span, message, "each cell has a page at least: fewer cells, or smaller pages");
            }
        }
    }
    let Some(smt) = common.smt.as_ref().filter(|smt| smt.value != SmtPolicy::Prefer) else { return };
    let help = "`smt` is for VMs that own hardware threads: take it away, or write smt = \"prefer\"";
    if let Some(At { value: CpuSharing::Shared { .. }, .. }) = &common.cpus {
        section.wrong(&smt.span, "`smt` means nothing with shared CPUs", help);
    } else if let Some(At { value: WorkloadClass::Density, .. }) = &common.class {
        section.wrong(&smt.span, "`smt` means nothing with class density, whose vCPUs float", help);
    }
}

/// What several alike cannot all have.
fn copies(
    section: &Section<'_>,
    count: Option<&At<i64>>,
    disks: &[At<DiskEntry>],
    nics: &[Nic],
    devices: &[At<DeviceDemand>],
) {
    let Some(count) = count.map(|count| count.value).filter(|count| *count > 1) else { return };
    for disk in disks.iter().filter(|disk| !disk.value.read_only && named(&disk.value.source, "") == disk.value.source)
    {
        let help = "put {name} where each VM's name belongs, or write read-only = true";
        section.wrong(&disk.span, format!("{count} VMs would write to the same disk"), help);
    }
    for mac in nics.iter().filter_map(|nic| nic.mac.as_ref()) {
        section.wrong(&mac.span, format!("{count} VMs would have the same MAC address"), "take `mac` away, or `count`");
    }
    for device in devices {
        if let DeviceSelector::Function(address) = &device.value.selector {
            let message = format!("{count} VMs cannot all have the function {address}");
            section.wrong(&device.span, message, "choose by `class` or `id`, or write a [[vm]] for each");
        }
    }
}

/// The source with the VM's name put in.
fn named(source: &DiskSource, name: &str) -> DiskSource {
    let path = |path: &PathBuf| PathBuf::from(path.to_string_lossy().replace("{name}", name));
    match source {
        DiskSource::Device(device) => DiskSource::Device(path(device)),
        DiskSource::File { path: file, format } => DiskSource::File { path: path(file), format: *format },
        DiskSource::Volume { pool, volume } => {
            DiskSource::Volume { pool: pool.clone(), volume: volume.replace("{name}", name) }
        }
    }
}

/// Every VM by itself, and what two of them cannot share.
pub(super) fn expand(read: &[Read], hosts: usize, notes: &Notes) -> Vec<VmEntry> {
    let total: i64 = read.iter().map(|vm| vm.count.as_ref().map_or(1, |count| count.value)).sum();
    if total > MOST_VMS as i64 {
        let largest = read.iter().filter_map(|vm| vm.count.as_ref()).max_by_key(|count| count.value);
        let span = largest.map_or(0..0, |count| count.span.clone());
        notes.add(&span, format!("the file has {total} VMs; {MOST_VMS} at most"), "lower `count`, or split the file");
        return Vec::new();
    }
    let mut entries = Vec::new();
    let mut names: BTreeMap<String, &Read> = BTreeMap::new();
    let mut disks: BTreeMap<DiskSource, &Read> = BTreeMap::new();
    let mut macs: BTreeMap<&str, &Read> = BTreeMap::new();
    let mut uuids: BTreeMap<&str, &Read> = BTreeMap::new();
    let mut dealt: Vec<(&Read, &Nic)> = Vec::new();
    let mut functions: BTreeMap<(PciAddress, Option<&str>), &Read> = BTreeMap::new();
    for vm in read {
        let count = vm.count.as_ref().map(|count| count.value);
        let mut collided = false;
        for number in 1..=count.unwrap_or(1) {
            let name = match count {
                None => vm.name.value.clone(),
                Some(_) => format!("{}-{number}", vm.name.value),
            };
            if let Some(other) = names.insert(name.clone(), vm) {
                if !collided {
                    twice(vm, other, &name, notes);
                }
                collided = true;
            }
            let Some(entry) = vm.entry(name, number as u32) else { continue };
            for disk in entry.disks.iter().zip(&vm.disks).filter(|(disk, _)| !disk.read_only) {
                let (disk, place) = disk;
                if let Some(other) = disks.insert(disk.source.clone(), vm).filter(|other| may_meet(vm, other)) {
                    if !(std::ptr::eq(other, vm) && count.is_some_and(|count| count > 1)) {
                        let who = if std::ptr::eq(other, vm) { "it" } else { &other.whose };
                        let message = format!("{}: {who} writes to this disk already", vm.whose);
                        notes.add(&place.span, message, "give each VM a disk of its own, or write read-only = true");
                    }
                }
            }
            entries.push(entry);
        }
        for mac in vm.nics.iter().filter_map(|nic| nic.mac.as_ref()) {
            if let Some(other) = macs.insert(&mac.value, vm) {
                let message = format!("{}: {} has this MAC address already", vm.whose, other.whose);
                notes.add(&mac.span, message, "MAC addresses are unique in a fleet: change one, or take it away");
            }
        }
        let functions_of = vm.nics.iter().filter(|nic| nic.entry.kind == NicKind::Vf);
        for nic in functions_of {
            let mixed =
                |(other, theirs): &&(&Read, &Nic)| may_meet(vm, other) && deals_otherwise(&nic.entry, &theirs.entry);
            if let Some((other, _)) = dealt.iter().find(mixed) {
                let message = format!("{}: {} has VFs of this interface in another way", vm.whose, other.whose);
                let help = "libvirt's network would deal VFs that the plan gives to others: let it deal all VFs of an interface, or none";
                notes.add(&nic.span, message, help);
            }
            dealt.push((vm, nic));
        }
        for device in &vm.devices {
            // An address is one of each host: who has which is known where the host is.
            let on = vm.on.as_ref().map(|on| on.value.as_str()).filter(|_| hosts > 1);
            let DeviceSelector::Function(address) = device.value.selector else { continue };
            if on.is_none() && hosts > 1 {
                continue;
            }
            if let Some(other) = functions.insert((address, on), vm).filter(|other| !std::ptr::eq(*other, vm)) {
                let message = format!("{}: {} has the function {address} already", vm.whose, other.whose);
                notes.add(&device.span, message, "a function goes to one VM: choose another one for this");
            }
        }
        if let Some(uuid) = &vm.uuid {
            if let Some(other) = uuids.insert(&uuid.value, vm) {
                let message = format!("{}: {} has this UUID already", vm.whose, other.whose);
                notes.add(&uuid.span, message, "`virsh domuuid NAME` prints each one's");
            }
        }
    }
    entries
}

/// Whether the one's VF is dealt by libvirt's network, the other's by the plan, and both may be of one card.
fn deals_otherwise(one: &NicEntry, other: &NicEntry) -> bool {
    let same = one.interface.is_none() || other.interface.is_none() || one.interface == other.interface;
    same && one.attach.is_some() != other.attach.is_some()
}

/// Whether two VMs can be on one host, as far as `on` tells.
fn may_meet(one: &Read, other: &Read) -> bool {
    match (&one.on, &other.on) {
        (Some(one), Some(other)) => one.value == other.value,
        _ => true,
    }
}

fn twice(vm: &Read, other: &Read, name: &str, notes: &Notes) {
    let message = if name == vm.name.value && name == other.name.value {
        format!("{}: another VM has this name already", vm.whose)
    } else {
        format!("{}: there would be two VMs named \"{}\"", vm.whose, shown(name))
    };
    notes.add(&vm.name.span, message, "names are unique in a fleet, those that `count` makes included: rename one");
}

impl Read {
    /// How many there are.
    pub(super) fn is_counted(&self) -> bool {
        self.count.is_some()
    }

    /// One of them; `None` without vCPUs or memory, which is noted already.
    fn entry(&self, name: String, number: u32) -> Option<VmEntry> {
        let common = &self.common;
        let mut vm = Vm::new(name, common.vcpus.as_ref()?.value as u32, common.memory.as_ref()?.value);
        vm.page_size = common.page_size.as_ref().and_then(|size| size.value);
        vm.class = value(&common.class);
        vm.smt = value(&common.smt);
        vm.cpus = value(&common.cpus);
        vm.numa = value(&common.numa);
        vm.priority = common.priority.as_ref().map_or(0, |priority| priority.value as i32);
        vm.movable = value(&common.movable);
        vm.hosts = common.hosts.as_ref().map(Selector::plain).unwrap_or_default();
        if let Some(on) = &self.on {
            vm.hosts.names = vec![on.value.clone()];
        }
        let template = common.template.as_ref().filter(|_| self.on.is_none());
        let template = template.map(|path| PathBuf::from(path.value.replace("{name}", &vm.name)));
        let disks = self.disks.iter().map(|disk| {
            let mut disk = disk.value.clone();
            disk.source = named(&disk.source, &vm.name);
            disk
        });
        let mut entry = VmEntry {
            uuid: self.uuid.as_ref().map(|uuid| uuid.value.to_ascii_lowercase()),
            on: self.on.as_ref().map(|on| on.value.clone()),
            template,
            firmware: common.firmware.as_ref().filter(|_| self.on.is_none()).map(|firmware| firmware.value),
            disks: disks.collect(),
            nics: self.nics.iter().map(|nic| nic.entry.clone()).collect(),
            devices: self.devices.iter().map(|device| device.value.clone()).collect(),
            copy: self.count.as_ref().map(|_| (self.name.value.clone(), number)),
            vm,
        };
        entry.vm.devices = entry.demands().into_iter().map(|(_, demand)| demand).collect();
        Some(entry)
    }
}

fn value<T: Copy + Default>(found: &Option<At<T>>) -> T {
    found.as_ref().map(|found| found.value).unwrap_or_default()
}

impl Selector {
    fn plain(&self) -> HostSelector {
        HostSelector {
            names: self.names.iter().map(|name| name.value.clone()).collect(),
            labels: self.labels.iter().map(|(key, value)| (key.value.clone(), value.value.clone())).collect(),
        }
    }
}
