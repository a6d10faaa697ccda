//! Clones: domains that measure in the place of the user's, which is not touched.

use nearmetal_domain::{CellFacts, DiskCache, DiskIo, DiskSource, DomainError, DomainXml, DriverOptions};
use nearmetal_place::{GuestCell, MemoryPlacement, Placement};
use nearmetal_results::ArmName;
use nearmetal_units::CpuSet;

use crate::appliance::Appliance;
use crate::engine::Guest;
use crate::error::MeasureError;

/// Devices that cannot be in two guests at once, or have a part outside the guest (sockets, ports, state files) that
/// the original owns. None of them is in the path that is measured.
const LEFT_OUT: &[&str] = &[
    "graphics",
    "audio",
    "sound",
    "redirdev",
    "hostdev",
    "filesystem",
    "shmem",
    "tpm",
    "channel",
    "smartcard",
    "parallel",
    "vsock",
];
/// Interfaces likewise: a function handed through, a vhost-user socket, a vDPA device.
const INTERFACES_LEFT_OUT: &[&str] = &["hostdev", "vhostuser", "vdpa"];

/// Kernel command line of the appliance. Firmware names every host bridge of a guest in its ACPI tables; without `lastbus=0` the
/// kernel of an x86-64 guest looks for others in 255 empty buses, by 16 thousand exits (`pcibios_fixup_peer_bridges` in its
/// arch/x86/pci/legacy.c).
pub const APPLIANCE_COMMAND_LINE: &str = "console=ttyS0 quiet pci=lastbus=0";

/// What a clone of one arm is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskClone<'a> {
    /// Domain it is a clone of.
    pub guest: &'a str,
    /// Arm it stands for.
    pub arm: &'a ArmName,
    /// Target of the one disk it keeps.
    pub target: &'a str,
    /// What lies behind that disk.
    pub region: &'a str,
    /// Its UUID.
    pub uuid: &'a str,
    /// Its system.
    pub appliance: &'a Appliance,
}

/// The one disk of a clone, as its kernel calls it: whatever the original's target is, it is the first on virtio.
pub(crate) const DISK_IN_GUEST: &str = "/dev/vda";
/// Serial numbers of the disks of a clone that has the loads image too: the kernel names disks in the order of their slots, and
/// a slot that the original's devices left may come first.
const REGION_SERIAL: &str = "nearmetal-region";
const LOADS_SERIAL: &str = "nearmetal-loads";
const KIT_SERIAL: &str = "nearmetal-kit";

/// A disk of a clone that has several, as the probe there takes it.
fn by_serial(serial: &str) -> String {
    format!("serial:{serial}")
}

/// The loads image of a clone, as the probe there takes it.
pub(crate) fn loads_in_guest() -> String {
    by_serial(LOADS_SERIAL)
}

/// The image of the user's kit in a clone, likewise.
pub(crate) fn kit_in_guest() -> String {
    by_serial(KIT_SERIAL)
}

/// The name of an arm's clone.
pub fn clone_name(guest: &str, arm: &str) -> String {
    format!("{guest}-nearmetal-{arm}")
}

/// The target name of the disk that is measured: the first writable virtio disk of a domain.
pub(crate) fn measured_disk(xml: &str, guest: &str) -> Result<String, MeasureError> {
    let facts = DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap(guest))?;
    facts.first_writable_virtio_disk().map(|disk| disk.target.clone()).ok_or_else(|| {
        MeasureError::Unfit(format!("`{guest}` has no writable virtio disk: fio has nothing to measure"))
    })
}

/// Makes the clone of one arm from a domain's XML.
///
/// It keeps everything that decides speed (CPUs, pins, memory, pages, iothreads, the disk's driver options) and gets a
/// name, UUID and MAC addresses of its own, the appliance as its system, and `region` behind its only disk.
pub(crate) fn clone_xml(xml: &str, made: &DiskClone<'_>) -> Result<Guest, MeasureError> {
    let name = clone_name(made.guest, &made.arm.id);
    let edit = || {
        let mut clone = make_own(xml, &name, made.uuid, made.appliance)?;
        for disk in clone.facts()?.disks {
            if disk.target != made.target {
                clone.remove_disk(&disk.target)?;
            }
        }
        clone.replace_disk_source(made.target, &DiskSource::Block(made.region.to_owned()))?;
        let device = match add_loads(&mut clone, made.appliance)? {
            true => {
                clone.set_disk_serial(made.target, REGION_SERIAL)?;
                by_serial(REGION_SERIAL)
            }
            false => DISK_IN_GUEST.to_owned(),
        };
        Ok((clone.as_str().to_owned(), device))
    };
    let (xml, device) = edit().map_err(wrap(&made.arm.id))?;
    Ok(Guest { xml, name, device })
}

/// Gives a clone the loads image and the kit's, of those that there are; says whether there was one. Its other disks are there
/// already.
pub(crate) fn add_loads(clone: &mut DomainXml, appliance: &Appliance) -> Result<bool, DomainError> {
    let mut has_one = false;
    for (image, serial) in [(&appliance.loads, LOADS_SERIAL), (&appliance.kit, KIT_SERIAL)] {
        if let Some(image) = image {
            has_one |= clone.add_read_only_disk(image, serial)?;
        }
    }
    Ok(has_one)
}

/// A definition with the driver options that virt-install writes for the disk that is measured: cache=none, io=native.
pub(crate) fn as_virt_install(xml: &str, guest: &str) -> Result<String, MeasureError> {
    let target = measured_disk(xml, guest)?;
    let options = DriverOptions { cache: Some(DiskCache::None), io: Some(DiskIo::Native), ..Default::default() };
    let mut xml = DomainXml::parse(xml).map_err(wrap(guest))?;
    xml.set_disk_driver(&target, &options).map_err(wrap(guest))?;
    Ok(xml.as_str().to_owned())
}

/// Whether a definition backs the guest's memory with huge pages.
pub(crate) fn asks_for_huge_pages(xml: &str, guest: &str) -> Result<bool, MeasureError> {
    let facts = DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap(guest))?;
    Ok(facts.hugepages.is_some())
}

/// PUs that threads of a definition are pinned to.
pub(crate) fn pinned_cpus(xml: &str) -> Result<CpuSet, MeasureError> {
    let facts = DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap("the definition"))?;
    let vcpus = facts.vcpu_pins.iter().fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
    let helpers = facts.emulator_pin.iter().fold(vcpus, |all, cpus| all.union(cpus));
    Ok(facts.iothreads.pins.iter().fold(helpers, |all, (_, cpus)| all.union(cpus)))
}

/// The placement of a guest whose definition backs cells with huge pages, each of one node, with these cells; `None` of any other.
pub(crate) fn in_its_cells(xml: &str, guest: &str, placement: &Placement) -> Result<Option<Placement>, MeasureError> {
    let facts = DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap(guest))?;
    let cell = |cell: &CellFacts| {
        let node = facts.node_of_cell(cell.id)?;
        Some(GuestCell { vcpus: cell.vcpus.clone(), memory: cell.memory, node, distances: Vec::new() })
    };
    let cells: Option<Vec<GuestCell>> = facts.cells.iter().map(cell).collect();
    let page_size = match facts.hugepages.as_deref() {
        Some([]) => placement.memory.page_size,
        Some([one]) => Some(one.size),
        _ => None,
    };
    let Some((cells, size)) = cells.filter(|cells| !cells.is_empty()).zip(page_size) else { return Ok(None) };
    let memory = MemoryPlacement { page_size: Some(size), ..placement.memory.clone() };
    Ok(Some(Placement { cells, memory, ..placement.clone() }))
}

/// A clone with a name, UUID and MAC addresses of its own, the appliance as its system, and no device that the original
/// owns; its disks are still the original's.
pub(crate) fn make_own(xml: &str, name: &str, uuid: &str, appliance: &Appliance) -> Result<DomainXml, DomainError> {
    let kernel = appliance.kernel.display().to_string();
    let initramfs = appliance.initramfs.display().to_string();
    let mut clone = DomainXml::parse(xml)?;
    clone.set_name(name)?;
    clone.set_uuid(uuid)?;
    clone.remove_metadata()?;
    clone.regenerate_mac_addresses(name)?;
    clone.remove_nvram()?;
    clone.set_direct_boot(&kernel, Some(&initramfs), APPLIANCE_COMMAND_LINE)?;
    clone.remove_devices(LEFT_OUT)?;
    clone.remove_interfaces(INTERFACES_LEFT_OUT)?;
    // A log or a socket of the original's would be opened again, and a log perhaps emptied.
    clone.replace_consoles()?;
    clone.add_agent_channel()?;
    Ok(clone)
}

fn wrap(arm: &str) -> impl FnOnce(nearmetal_domain::DomainError) -> MeasureError {
    let arm = arm.to_owned();
    move |source| MeasureError::Xml { arm, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: &str = "<domain type='kvm'>
  <name>web1</name>
  <uuid>11111111-1111-1111-1111-111111111111</uuid>
  <memory unit='MiB'>384</memory>
  <vcpu>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <disk type='block' device='disk'>
      <source dev='/dev/nvme0n1'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='cdrom'><target dev='sda' bus='sata'/><readonly/></disk>
    <interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/><model type='virtio'/></interface>
    <graphics type='vnc' port='5901'/>
  </devices>
</domain>
";

    fn appliance(loads: Option<DiskSource>) -> Appliance {
        Appliance { kernel: "/a/vmlinuz".into(), initramfs: "/a/initramfs".into(), loads, kit: None }
    }

    fn clone_of(arm: &ArmName, xml: &str) -> nearmetal_domain::DomainFacts {
        let appliance = appliance(None);
        let target = measured_disk(FOUND, "web1").unwrap();
        let uuid = "22222222-2222-2222-2222-222222222222";
        let region = "/dev/nvme0n2p1";
        let made = DiskClone { guest: "web1", arm, target: &target, region, uuid, appliance: &appliance };
        let clone = clone_xml(xml, &made).unwrap();
        assert!(!clone.xml.contains("graphics") && !clone.xml.contains("52:54:00:00:00:01"), "{}", clone.xml);
        DomainXml::parse(&clone.xml).unwrap().facts().unwrap()
    }

    #[test]
    fn a_clone_has_its_own_identity_and_one_disk() {
        let facts = clone_of(&ArmName::as_found(), FOUND);
        assert_eq!(facts.name, "web1-nearmetal-as-found");
        assert_eq!(facts.uuid.as_deref(), Some("22222222-2222-2222-2222-222222222222"));
        assert_eq!(facts.disks.len(), 1);
        assert_eq!(facts.disks[0].source.as_deref(), Some("/dev/nvme0n2p1"));
        assert_eq!(facts.disks[0].driver.cache, None, "as found means: no driver options");
        assert_eq!(facts.boot.kernel.as_deref(), Some("/a/vmlinuz"));
        assert!(facts.has_agent_channel);
    }

    #[test]
    fn a_clone_opens_nothing_that_the_original_owns() {
        let owned = "<interface type='hostdev'><source><address type='pci' bus='0x39'/></source></interface>
    <interface type='vhostuser'><source type='unix' path='/run/owned' mode='server'/></interface>
    <serial type='file'><source path='/var/log/owned'/></serial>
    <console type='pty'><log file='/var/log/owned-too'/></console>
    <parallel type='file'><source path='/var/log/owned'/></parallel>
    <vsock model='virtio'><cid auto='no' address='3'/></vsock>
  </devices>";
        let xml = FOUND.replace("</devices>", owned);
        let clone = make_own(&xml, "clone", "22222222-2222-2222-2222-222222222222", &appliance(None)).unwrap();
        let clone = clone.as_str();
        for gone in ["hostdev", "vhostuser", "owned", "<console", "<parallel", "<vsock"] {
            assert!(!clone.contains(gone), "{gone}: {clone}");
        }
        assert!(clone.contains("<serial type='pty'/>") && clone.contains("<interface type='network'>"), "{clone}");
    }

    #[test]
    fn the_loads_image_is_a_disk_more_that_is_only_read_and_both_are_told_apart_by_serial_numbers() {
        for (image, kind) in [
            (DiskSource::Block("/dev/vdb".into()), "block"),
            (DiskSource::File("/var/cache/loads.erofs".into()), "file"),
        ] {
            let appliance = appliance(Some(image));
            let (arm, uuid) = (&ArmName::planned(), "22222222-2222-2222-2222-222222222222");
            let made = DiskClone { guest: "web1", arm, target: "vda", region: "/dev/r", uuid, appliance: &appliance };
            let clone = clone_xml(FOUND, &made).unwrap();
            let disks = DomainXml::parse(&clone.xml).unwrap().facts().unwrap().disks;
            let told = |serial: &str| disks.iter().find(|disk| disk.serial.as_deref() == Some(serial)).unwrap();
            let (region, loads) = (told("nearmetal-region"), told("nearmetal-loads"));
            assert_eq!((disks.len(), region.readonly, loads.readonly), (2, false, true));
            assert_eq!((region.source.as_deref(), loads.kind.as_str()), (Some("/dev/r"), kind));
            assert_eq!(loads.driver.format.as_deref(), Some("raw"));
            assert_eq!(
                (clone.device.as_str(), loads_in_guest().as_str()),
                ("serial:nearmetal-region", "serial:nearmetal-loads")
            );
        }
    }

    #[test]
    fn a_kit_is_one_disk_more() {
        let loads = appliance(Some(DiskSource::File("/var/cache/loads.erofs".into())));
        let appliance = Appliance { kit: Some(DiskSource::File("/var/cache/kit.ext4".into())), ..loads };
        let (arm, uuid) = (&ArmName::planned(), "22222222-2222-2222-2222-222222222222");
        let made = DiskClone { guest: "web1", arm, target: "vda", region: "/dev/r", uuid, appliance: &appliance };
        let disks = DomainXml::parse(&clone_xml(FOUND, &made).unwrap().xml).unwrap().facts().unwrap().disks;
        let kit = disks.iter().find(|disk| disk.serial.as_deref() == Some("nearmetal-kit")).unwrap();
        assert!(disks.len() == 3 && kit.readonly && kit.source.as_deref() == Some("/var/cache/kit.ext4"));
        assert_eq!(kit_in_guest(), "serial:nearmetal-kit");
    }

    #[test]
    fn the_virt_install_arm_differs_in_its_driver_options_alone() {
        let facts = clone_of(&ArmName::virt_install(), &as_virt_install(FOUND, "web1").unwrap());
        assert_eq!(facts.disks[0].driver.cache.as_deref(), Some("none"));
        assert_eq!(facts.disks[0].driver.io.as_deref(), Some("native"));
        assert_eq!(facts.disks[0].driver.iothread, None);
    }

    #[test]
    fn a_guest_without_a_virtio_disk_is_refused_in_words() {
        let error =
            measured_disk("<domain type='kvm'><name>x</name><memory>1</memory><vcpu>1</vcpu><devices/></domain>", "x");
        assert!(error.unwrap_err().to_string().contains("no writable virtio disk"));
    }
}
