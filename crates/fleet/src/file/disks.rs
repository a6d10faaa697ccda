//! `[[vm.disk]]` and `[[vm.nic]]`.

use std::ops::Range;
use std::path::PathBuf;

use super::entry::{DiskBus, DiskEntry, DiskFormat, DiskSource, NicAttach, NicEntry, NicKind};
use super::error::shown;
use super::keys;
use super::section::{At, Section};
use crate::model::Locality;

pub(super) const LOCALITIES: [(&str, Locality); 3] =
    [("required", Locality::Required), ("preferred", Locality::Preferred), ("far", Locality::Far)];

/// An interface, with the place of what must be unique.
#[derive(Debug, Clone)]
pub(super) struct Nic {
    pub(super) entry: NicEntry,
    pub(super) mac: Option<At<String>>,
    pub(super) span: Range<usize>,
}

pub(super) fn disks(vm: &Section<'_>) -> Vec<At<DiskEntry>> {
    vm.tables("disk", &keys::DISK).iter().filter_map(disk).collect()
}

fn disk(section: &Section<'_>) -> Option<At<DiskEntry>> {
    let device = section.line("device");
    let file = section.line("file");
    let formats = [("qcow2", DiskFormat::Qcow2), ("raw", DiskFormat::Raw)];
    let format = section.word("format", &formats);
    let pool = section.line("pool");
    let volume = section.line("volume");
    let bus = section.word("bus", &[("virtio", DiskBus::Virtio), ("scsi", DiskBus::Scsi)]);
    let read_only = section.boolean("read-only").is_some_and(|flag| flag.value);
    let drive = section.line("drive");
    let locality = section.word("locality", &LOCALITIES);
    section.finish();
    if let Some(format) = format.as_ref().filter(|_| !section.has("file")) {
        let help = "a block device is raw, and a pool knows its volumes' formats: take `format` away";
        section.wrong(&format.span, "`format` without `file`", help);
    }
    let place = ["device", "file", "pool", "volume"].into_iter().find(|key| section.has(key));
    let span = place.map_or_else(|| section.span.clone(), |key| section.place(key));
    let source = source(section, device, file, format.map(|format| format.value), pool, volume)?;
    let own_drive = match &source {
        DiskSource::Device(path) => path.strip_prefix("/dev").ok().filter(|name| name.components().count() == 1),
        _ => None,
    };
    let own_drive = own_drive.map(|name| name.display().to_string()).filter(|name| !name.contains('{'));
    if let Some(drive) = drive.as_ref().filter(|_| own_drive.is_some()) {
        section.wrong(
            &drive.span,
            "both `device` and `drive` are given",
            "`device` says which drive it is: take `drive` away",
        );
    }
    if let Some(drive) = drive.as_ref().filter(|drive| drive.value.contains('/')) {
        let message = format!("`drive` is \"{}\", which is a path", shown(&drive.value));
        section.wrong(&drive.span, message, "write the drive's name as `lsblk` shows it: drive = \"nvme0n1\"");
    }
    let drive = drive.map(|drive| drive.value).or(own_drive);
    if let Some(locality) = locality.as_ref().filter(|_| drive.is_none()) {
        let help = "say which drive holds the disk (drive = \"nvme0n1\"), or take `locality` away";
        section.wrong(&locality.span, "`locality` of a disk whose drive is not known", help);
    }
    let locality = locality.map(|locality| locality.value).or(drive.as_ref().map(|_| Locality::Preferred));
    let bus = bus.map_or(DiskBus::Virtio, |bus| bus.value);
    Some(At { value: DiskEntry { source, bus, read_only, drive, locality }, span })
}

fn source(
    section: &Section<'_>,
    device: Option<At<String>>,
    file: Option<At<String>>,
    format: Option<DiskFormat>,
    pool: Option<At<String>>,
    volume: Option<At<String>>,
) -> Option<DiskSource> {
    let given: Vec<&str> = ["device", "file", "pool"].into_iter().filter(|key| section.has(key)).collect();
    match given.as_slice() {
        [] => {
            let help = "add device = \"/dev/…\", file = \"/…\", or pool = \"…\" with volume = \"…\"";
            let what = if section.has("volume") { "`volume` without `pool`" } else { "a disk without a source" };
            let place = if section.has("volume") { section.place("volume") } else { section.span.clone() };
            section.wrong(&place, what, help);
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            let help = "a disk has one source: keep device, file, or pool with volume";
            section.wrong(&section.place(second), format!("both `{first}` and `{second}` are given"), help);
            return None;
        }
    }
    if let Some(device) = device {
        if !device.value.starts_with("/dev/") || device.value.len() == "/dev/".len() {
            let message = format!("`device` is \"{}\", which is not a block device", shown(&device.value));
            section.wrong(&device.span, message, "write its path: device = \"/dev/nvme1n1\"; a file is `file`");
            return None;
        }
        return Some(DiskSource::Device(PathBuf::from(device.value)));
    }
    if let Some(file) = file {
        if !file.value.starts_with('/') {
            let message = format!("`file` is \"{}\", which does not begin with a slash", shown(&file.value));
            section.wrong(&file.span, message, "it is a path on the VM's host: write it in full");
            return None;
        }
        let format = format.unwrap_or(DiskFormat::Qcow2);
        return Some(DiskSource::File { path: PathBuf::from(file.value), format });
    }
    match (pool, volume) {
        (Some(pool), Some(volume)) => Some(DiskSource::Volume { pool: pool.value, volume: volume.value }),
        (Some(pool), None) if !section.has("volume") => {
            section.wrong(&pool.span, "`pool` without `volume`", "add volume = \"{name}.qcow2\"");
            None
        }
        _ => None,
    }
}

pub(super) fn nics(vm: &Section<'_>) -> Vec<Nic> {
    vm.tables("nic", &keys::NIC).iter().filter_map(nic).collect()
}

fn nic(section: &Section<'_>) -> Option<Nic> {
    let kinds =
        [("virtio", NicKind::Virtio), ("vhost", NicKind::Vhost), ("macvtap", NicKind::Macvtap), ("vf", NicKind::Vf)];
    let kind = section.word("kind", &kinds);
    let network = section.line("network");
    let bridge = section.line("bridge");
    let interface = section.line("interface");
    let mac = section.line("mac").and_then(|mac| mac_of(section, mac));
    let vlan = section.integer("vlan", 1..=4094, "as VLAN").map(|vlan| vlan.value as u16);
    let locality = section.word("locality", &LOCALITIES);
    section.finish();
    if !section.has("kind") {
        let help = "add kind = \"virtio\", \"vhost\", \"macvtap\" or \"vf\"";
        section.wrong(&section.span, "an interface without a `kind`", help);
    }
    let kind = kind?;
    let on_host = matches!(kind.value, NicKind::Macvtap | NicKind::Vf);
    let pooled = kind.value == NicKind::Vf && section.has("network");
    for key in ["network", "bridge"].into_iter().filter(|key| on_host && section.has(key)) {
        if pooled && key == "network" {
            continue;
        }
        let help = "macvtap and vf hang on a host interface: write interface = \"…\", or kind = \"vhost\"";
        section.wrong(&section.place(key), format!("this kind of interface takes no `{key}`"), help);
    }
    if pooled && !section.has("interface") {
        let help = "add the physical function whose VFs that network deals: interface = \"ens1f0\"";
        section.wrong(&section.place("network"), "a VF of a libvirt network without `interface`", help);
    }
    let attach = match (network, bridge) {
        (Some(network), _) if pooled => Some(NicAttach::Network(network.value)),
        _ if on_host => None,
        (Some(_), Some(bridge)) => {
            section.wrong(
                &bridge.span,
                "both `network` and `bridge` are given",
                "an interface hangs on one of them: keep one",
            );
            None
        }
        (Some(network), None) => Some(NicAttach::Network(network.value)),
        (None, Some(bridge)) => Some(NicAttach::Bridge(bridge.value)),
        (None, None) => {
            if !section.has("network") && !section.has("bridge") {
                let help = "add network = \"default\" or bridge = \"br0\"";
                section.wrong(&kind.span, "the interface hangs on nothing", help);
            }
            None
        }
    };
    if kind.value == NicKind::Macvtap && !section.has("interface") {
        section.wrong(&kind.span, "macvtap without `interface`", "add the host interface: interface = \"ens1f0\"");
    }
    if let Some(locality) = locality.as_ref().filter(|_| interface.is_none() && kind.value != NicKind::Vf) {
        let help = "say which host interface it is to be near (interface = \"ens1f0\"), or take `locality` away";
        section.wrong(&locality.span, "`locality` of an interface whose device is not known", help);
    }
    let near = interface.is_some() || kind.value == NicKind::Vf;
    let locality = locality.map(|locality| locality.value).or(near.then_some(Locality::Preferred));
    let entry = NicEntry {
        kind: kind.value,
        attach,
        interface: interface.map(|interface| interface.value),
        mac: mac.as_ref().map(|mac| mac.value.clone()),
        vlan,
        locality,
    };
    Some(Nic { entry, mac, span: section.span.clone() })
}

/// A MAC address of one interface, in lower case.
fn mac_of(section: &Section<'_>, mac: At<String>) -> Option<At<String>> {
    let text = mac.value.to_ascii_lowercase();
    let octets: Vec<Option<u8>> = text
        .split(':')
        .map(|pair| u8::from_str_radix(pair, 16).ok().filter(|_| pair.len() == 2 && !pair.starts_with('+')))
        .collect();
    let message = match octets.first() {
        Some(Some(first)) if octets.len() == 6 && octets.iter().all(Option::is_some) => {
            if first % 2 == 0 {
                return Some(At { value: text, span: mac.span });
            }
            format!("`mac` is \"{text}\", which is a group's address: its first byte is odd")
        }
        _ => format!("`mac` is \"{}\", which is not a MAC address", shown(&mac.value)),
    };
    section.wrong(
        &mac.span,
        message,
        "write six pairs of hex digits, QEMU's begin with 52:54:00: \"52:54:00:12:34:56\"",
    );
    None
}
