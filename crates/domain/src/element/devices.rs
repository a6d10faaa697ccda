//! `<devices>`: taking devices away from a copy, adding those that are missing.

use super::disk::DiskFacts;
use super::disk_source::DiskSource;
use super::interface::InterfaceFacts;
use crate::document::DomainXml;
use crate::edit::is_plain;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::new_domain::{
    DiskBus, NewDisk, NewDiskSource, NewInterface, NewInterfaceSource, disk_element, interface_element,
};
use crate::tree;

/// Elements behind which a disk, and then an interface, stands.
const BEFORE_DISKS: [&str; 2] = ["emulator", "disk"];
const BEFORE_INTERFACES: [&str; 4] = ["emulator", "disk", "controller", "interface"];

impl DomainXml {
    /// Removes all devices of these elements (`interface`, `hostdev`, `graphics`, …).
    pub fn remove_devices(&mut self, elements: &[&str]) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for devices in tree::find_all(document, &["devices"]) {
                for device in devices.children().filter(|node| is_plain(*node)) {
                    if elements.contains(&device.tag_name().name()) {
                        edits.remove(device);
                    }
                }
            }
            Ok(())
        })
    }

    /// The first number that no controller of this type (`scsi`, `sata`, …) has. libvirt makes every controller below the
    /// largest number it finds, each in a PCI slot: a number far off is a guest without room.
    ///
    /// # Errors
    /// Text that cannot be read.
    pub fn free_controller(&self, kind: &str) -> Result<u32, DomainError> {
        self.with_tree(|document| {
            let of_kind = tree::find_all(document, &["devices", "controller"]).into_iter();
            let of_kind = of_kind.filter(|node| tree::attribute(*node, "type").as_deref() == Some(kind));
            let numbers = of_kind.filter_map(|node| tree::attribute(node, "index")?.parse::<u32>().ok());
            Ok(numbers.max().map_or(0, |largest| largest.saturating_add(1)))
        })
    }

    /// Adds a disk that the guest can only read, as the only one on a virtio-scsi controller of its own: the names of its
    /// virtio disks stay as they are. libvirt changes no owner of what lies behind it, and several guests may share that.
    ///
    /// # Errors
    /// A path that does not start with `/`, no `<devices>`, or no name left (`sda` to `sdz`).
    pub fn add_read_only_disk(&mut self, source: &DiskSource, serial: &str) -> Result<bool, DomainError> {
        let (kind, name, path) = match source {
            DiskSource::Block(path) => ("block", "dev", path),
            DiskSource::File(path) => ("file", "file", path),
        };
        if !path.starts_with('/') {
            return Err(DomainError::argument("a disk source", path, "an absolute path is needed"));
        }
        let controller = self.free_controller("scsi")?;
        let taken: Vec<String> = self.facts()?.disks.into_iter().map(|disk| disk.target).collect();
        let target = ('a'..='z').map(|letter| format!("sd{letter}")).find(|target| !taken.contains(target));
        let target = target.ok_or_else(|| {
            DomainError::argument("the number of disks of one bus", &taken.len().to_string(), "at most 26")
        })?;
        let element = Fragment::new;
        let relabel = element("seclabel").attribute("model", "dac").attribute("relabel", "no");
        let disk = element("disk")
            .attribute("type", kind)
            .attribute("device", "disk")
            .child(element("driver").attribute("name", "qemu").attribute("type", "raw"))
            .child(element("source").attribute(name, path).child(relabel))
            .child(element("target").attribute("dev", target).attribute("bus", "scsi"))
            .child(element("readonly"))
            .child(element("shareable"))
            .child(element("serial").text(serial))
            .child(
                element("address")
                    .attribute("type", "drive")
                    .attribute("controller", controller)
                    .attribute("bus", 0)
                    .attribute("target", 0)
                    .attribute("unit", 0),
            );
        let controller = element("controller").attribute("type", "scsi").attribute("index", controller);
        let controller = controller.attribute("model", "virtio-scsi");
        self.rewrite(|document, edits| {
            let root = document.root_element();
            let missing = || DomainError::Missing { position: tree::position(root), what: "<devices>".to_owned() };
            let devices = tree::child(root, "devices").ok_or_else(missing)?;
            edits.insert_all_behind(devices, &BEFORE_DISKS, &[disk.clone(), controller.clone()]);
            Ok(())
        })
    }

    /// Adds the disks and interfaces that are not there: a disk is known by its source; an interface by its MAC address,
    /// else by what it hangs on, each of those there standing for one.
    ///
    /// # Errors
    /// No `<devices>`; no name left for a disk (`vda` to `vdz`); facts that cannot be read.
    pub fn add_missing_devices(&mut self, disks: &[NewDisk], interfaces: &[NewInterface]) -> Result<bool, DomainError> {
        let facts = self.facts()?;
        let missing: Vec<&NewDisk> =
            disks.iter().filter(|disk| !facts.disks.iter().any(|there| is_same_disk(disk, there))).collect();
        let disks = named(&missing, &facts.disks)?;
        let mut there: Vec<&InterfaceFacts> = facts.interfaces.iter().collect();
        let mut fragments = Vec::new();
        for interface in interfaces {
            match there.iter().position(|there| is_same_interface(interface, there)) {
                Some(at) => _ = there.remove(at),
                None => fragments.push(interface_element(interface)),
            }
        }
        self.rewrite(|document, edits| {
            let root = document.root_element();
            let missing = || DomainError::Missing { position: tree::position(root), what: "<devices>".to_owned() };
            let devices = tree::child(root, "devices").ok_or_else(missing)?;
            edits.insert_all_behind(devices, &BEFORE_DISKS, &disks);
            edits.insert_all_behind(devices, &BEFORE_INTERFACES, &fragments);
            Ok(())
        })
    }
}

/// Elements of new disks, each with the first name that is free.
fn named(new: &[&NewDisk], there: &[DiskFacts]) -> Result<Vec<Fragment>, DomainError> {
    let mut taken: Vec<String> = there.iter().map(|disk| disk.target.clone()).collect();
    let mut fragments = Vec::new();
    for disk in new {
        let prefix = if disk.bus == DiskBus::Scsi { "sd" } else { "vd" };
        let letter = ('a'..='z').find(|letter| !taken.contains(&format!("{prefix}{letter}"))).ok_or_else(|| {
            DomainError::argument("the number of disks of one bus", &taken.len().to_string(), "at most 26")
        })?;
        taken.push(format!("{prefix}{letter}"));
        fragments.push(disk_element(disk, letter));
    }
    Ok(fragments)
}

fn is_same_disk(disk: &NewDisk, there: &DiskFacts) -> bool {
    let source = match &disk.source {
        NewDiskSource::Block(path) | NewDiskSource::File { path, .. } => path.clone(),
        NewDiskSource::Volume { pool, volume, .. } => format!("{pool}/{volume}"),
    };
    there.source.as_deref() == Some(source.as_str())
}

fn is_same_interface(interface: &NewInterface, there: &InterfaceFacts) -> bool {
    let (kind, source) = match &interface.source {
        NewInterfaceSource::Network(name) | NewInterfaceSource::FunctionPool(name, _) => ("network", Some(name)),
        NewInterfaceSource::Bridge(name) => ("bridge", Some(name)),
        NewInterfaceSource::Macvtap(name) => ("direct", Some(name)),
        NewInterfaceSource::User => ("user", None),
    };
    match interface.mac {
        Some(mac) => there.mac.as_deref().is_some_and(|there| there.eq_ignore_ascii_case(&mac.to_string())),
        None => there.kind == kind && there.source.as_ref() == source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: &str = "<domain type='kvm'><name>x</name><memory>1048576</memory><vcpu>1</vcpu><devices>\
        <disk type='block' device='disk'><source dev='/dev/x'/><target dev='vda' bus='virtio'/></disk>\
        <controller type='scsi' index='0' model='lsilogic'/></devices></domain>";

    #[test]
    fn a_disk_to_read_has_a_controller_of_its_own_and_leaves_the_others_alone() {
        let mut xml = DomainXml::parse(DOMAIN).unwrap();
        assert!(xml.add_read_only_disk(&DiskSource::File("/a & b".into()), "loads").unwrap());
        let facts = xml.facts().unwrap();
        assert_eq!(facts.disks[0].target, "vda");
        let disk = &facts.disks[1];
        assert_eq!((disk.target.as_str(), disk.source.as_deref(), disk.readonly), ("sda", Some("/a & b"), true));
        assert_eq!(disk.serial.as_deref(), Some("loads"));
        for part in ["index='1' model='virtio-scsi'", "controller='1'", "relabel='no'", "<shareable/>"] {
            assert!(xml.as_str().contains(part), "{part}: {}", xml.as_str());
        }
        assert!(xml.add_read_only_disk(&DiskSource::File("relative".into()), "loads").is_err());
    }
}
