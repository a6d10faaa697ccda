//! The guest that is measured: a clone whose disks are the arms.
//!
//! All arms are disks of one guest, so they share its CPUs, memory and kernel, and nothing but the path differs; no boot
//! lies between two samples. The winner is measured again in a guest that has no other disk.

use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_results::{Bus, DiskPath};
use nearmetal_units::Bytes;

use crate::appliance::Appliance;
use crate::clones::make_own;
use crate::error::MeasureError;

/// One disk of the clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArmDisk {
    /// The arm.
    pub path: DiskPath,
    /// Block device or file behind it.
    pub source: String,
    /// The part of the device that is its own; `None`: all of it.
    pub part: Option<Part>,
    /// Serial number by which the guest's kernel tells it from the others.
    pub serial: String,
}

/// A part of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it begins.
    pub offset: Bytes,
    /// How large it is.
    pub size: Bytes,
}

/// The serial number of an arm's disk. virtio-blk carries 20 bytes of it (VIRTIO 1.2, 5.2.6).
pub(crate) fn serial(arm: usize) -> String {
    format!("nearmetal{arm:03}")
}

/// The clone of a domain that has exactly these disks. `name` and `uuid` are its own.
pub(crate) fn guest_with(
    xml: &str,
    name: &str,
    uuid: &str,
    disks: &[ArmDisk],
    appliance: &Appliance,
) -> Result<String, MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: name.to_owned(), source };
    let mut clone = make_own(xml, name, uuid, appliance).map_err(wrap)?;
    for disk in clone.facts().map_err(wrap)?.disks {
        clone.remove_disk(&disk.target).map_err(wrap)?;
    }
    let iothreads = disks.iter().map(|disk| disk.path.iothreads).max().unwrap_or(0);
    add_iothreads(&mut clone, iothreads).map_err(wrap)?;
    let mut controller = clone.free_controller("scsi").map_err(wrap)?;
    let mut fragments = String::new();
    for (index, disk) in disks.iter().enumerate() {
        fragments.push_str(&fragment(index, controller, disk));
        // Each SCSI disk has a controller of its own: that has its iothread and its queues.
        controller += u32::from(disk.path.bus == Bus::VirtioScsi);
    }
    let text = clone.as_str();
    let end = text
        .rfind("</devices>")
        .ok_or_else(|| MeasureError::Unfit(format!("the definition behind `{name}` has no <devices>")))?;
    let text = format!("{}{fragments}{}", &text[..end], &text[end..]);
    // What a path brought into the text is read again as hostile.
    DomainXml::parse(&text).map(|clone| clone.as_str().to_owned()).map_err(wrap)
}

/// As many iothreads as the arms use, each where the plan pins the first one.
fn add_iothreads(clone: &mut DomainXml, count: u32) -> Result<(), DomainError> {
    let facts = clone.facts()?;
    if facts.iothreads.ids.len() >= count as usize {
        return Ok(());
    }
    let pinned = facts.iothreads.pins.first().map(|(_, cpus)| cpus.clone());
    let everywhere = pinned.or(facts.emulator_pin).or(facts.vcpus.cpuset);
    match everywhere {
        Some(cpus) => clone.set_iothreads(&vec![cpus; count as usize]),
        None => {
            clone.edit(&nearmetal_domain::DefinitionEdit::SetText { at: "iothreads".into(), text: count.to_string() })
        }
    }
    .map(drop)
}

fn fragment(index: usize, controller: u32, disk: &ArmDisk) -> String {
    let path = &disk.path;
    let mut driver = format!("<driver name='qemu' type='{}'", path.container.format());
    for (name, value) in path.driver_attributes() {
        driver.push_str(&format!(" {name}='{value}'"));
    }
    if path.iothreads > 1 {
        let each: String = (1..=path.iothreads).map(|id| format!("<iothread id='{id}'/>")).collect();
        driver.push_str(&format!("><iothreads>{each}</iothreads></driver>"));
    } else {
        driver.push_str("/>");
    }
    let (kind, attribute) = if path.container.is_file() { ("file", "file") } else { ("block", "dev") };
    let letters = target_letters(index);
    let (target, bus) = match path.bus {
        Bus::VirtioBlk => (format!("vd{letters}"), "virtio"),
        Bus::VirtioScsi => (format!("sd{letters}"), "scsi"),
    };
    let block = path
        .block_size
        .map(|size| format!("<blockio logical_block_size='{size}' physical_block_size='{size}'/>"))
        .unwrap_or_default();
    let (address, controller) = match path.bus {
        Bus::VirtioBlk => (String::new(), String::new()),
        Bus::VirtioScsi => {
            let iothread = if path.iothreads > 0 { " iothread='1'" } else { "" };
            let queues = path.queues.map(|queues| format!(" queues='{queues}'")).unwrap_or_default();
            (
                format!("<address type='drive' controller='{controller}' bus='0' target='0' unit='0'/>"),
                format!(
                    "<controller type='scsi' index='{controller}' model='virtio-scsi'><driver{iothread}{queues}/></controller>\n"
                ),
            )
        }
    };
    let part = disk.part.map_or_else(
        || "/>".to_owned(),
        |part| {
            let (offset, size) = (part.offset.get(), part.size.get());
            format!("><slices><slice type='storage' offset='{offset}' size='{size}'/></slices></source>")
        },
    );
    // Parts of one device are one file to QEMU's locks, which let one disk write to it; they never overlap.
    let shareable = if disk.part.is_some() { "<shareable/>" } else { "" };
    format!(
        "{controller}<disk type='{kind}' device='disk'>{driver}<source {attribute}='{}'{part}{block}{shareable}<target dev='{target}' bus='{bus}'/><serial>{}</serial>{address}</disk>\n",
        escape(&disk.source),
        disk.serial
    )
}

/// a, b, … z, aa, ab, …: the kernel's own way (drivers/scsi/sd.c, sd_format_disk_name).
fn target_letters(index: usize) -> String {
    let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
    match index / 26 {
        0 => letter(index).to_string(),
        more => format!("{}{}", letter(more - 1), letter(index)),
    }
}

fn escape(path: &str) -> String {
    path.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_place::DiskEngine;
    use nearmetal_results::{Container, PathCache};

    const FOUND: &str = "<domain type='kvm'>
  <name>web1</name>
  <memory unit='MiB'>384</memory>
  <vcpu>2</vcpu>
  <iothreads>1</iothreads>
  <cputune><vcpupin vcpu='0' cpuset='6'/><iothreadpin iothread='1' cpuset='8'/></cputune>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <disk type='block' device='disk'><source dev='/dev/sda'/><target dev='vda' bus='virtio'/></disk>
  </devices>
</domain>
";

    fn disk(arm: usize, path: DiskPath, source: &str) -> ArmDisk {
        ArmDisk { path, source: source.into(), part: None, serial: serial(arm) }
    }

    #[test]
    fn every_arm_becomes_a_disk_with_its_options_and_the_users_own_disk_is_gone() {
        let default = DiskPath::qemu_default(Container::Partition);
        let sound = DiskPath { cache: PathCache::None, engine: DiskEngine::IoUring, iothreads: 1, ..default };
        let disks = [
            disk(0, default, "/dev/x1"),
            disk(1, DiskPath { iothreads: 2, ..sound }, "/dev/x2"),
            disk(2, DiskPath { bus: Bus::VirtioScsi, ..sound }, "/dev/x3"),
            disk(3, DiskPath { container: Container::Qcow2Full, block_size: Some(4096), ..sound }, "/s/it's <&>.qcow2"),
        ];
        let appliance =
            Appliance { kernel: "/a/vmlinuz".into(), initramfs: "/a/initramfs".into(), loads: None, kit: None };
        let uuid = "22222222-2222-2222-2222-222222222222";
        let xml = guest_with(FOUND, "web1-nearmetal-matrix", uuid, &disks, &appliance).unwrap();
        let facts = DomainXml::parse(&xml).unwrap().facts().unwrap();
        assert_eq!(facts.disks.len(), 4, "{xml}");
        let driver = |index: usize| &facts.disks[index].driver;
        assert_eq!((driver(0).cache.as_deref(), driver(0).io.as_deref()), (None, None));
        assert_eq!(driver(1).iothread_mapping, [1, 2]);
        assert_eq!((driver(1).iothread, driver(2).iothread), (None, None), "a controller has the SCSI disk's iothread");
        assert_eq!((facts.disks[2].bus.as_deref(), facts.disks[2].target.as_str()), (Some("scsi"), "sdc"));
        assert!(xml.contains("index='0' model='virtio-scsi'><driver iothread='1'/>"), "{xml}");
        assert_eq!(facts.disks[3].source.as_deref(), Some("/s/it's <&>.qcow2"));
        assert_eq!(driver(3).format.as_deref(), Some("qcow2"));
        assert_eq!(facts.iothreads.ids, [1, 2]);
        assert_eq!(facts.iothreads.pins.iter().map(|(_, cpus)| cpus.to_string()).collect::<Vec<_>>(), ["8", "8"]);
        assert_eq!(facts.disks[1].serial.as_deref(), Some("nearmetal001"));
    }

    #[test]
    fn a_part_of_a_device_is_cut_out_by_offset_and_size() {
        let part = Part { offset: Bytes::from_mib(1), size: Bytes::from_mib(64) };
        let path = DiskPath::qemu_default(Container::Device);
        let text = fragment(0, 0, &ArmDisk { part: Some(part), ..disk(0, path, "/dev/x") });
        let expected =
            "<source dev='/dev/x'><slices><slice type='storage' offset='1048576' size='67108864'/></slices></source>";
        assert!(text.contains(expected) && text.contains("<shareable/>"), "{text}");
    }

    #[test]
    fn disks_are_named_as_the_kernel_names_them() {
        assert_eq!([0, 25, 26, 51, 52].map(target_letters), ["a", "z", "aa", "az", "ba"]);
    }
}
