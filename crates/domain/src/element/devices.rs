//! `<devices>`: taking devices away from a copy, adding those that are missing.

use roxmltree::{Document, Node};

use super::disk::DiskFacts;
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
pub(super) const BEFORE_DISKS: [&str; 2] = ["emulator", "disk"];
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

    /// Removes the interfaces of these types (`hostdev`, `vhostuser`, …).
    pub fn remove_interfaces(&mut self, types: &[&str]) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for interface in tree::find_all(document, &["devices", "interface"]) {
                if interface.attribute("type").is_some_and(|kind| types.contains(&kind)) {
                    edits.remove(interface);
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
            let devices = of(document)?;
            edits.insert_all_behind(devices, &BEFORE_DISKS, &disks);
            edits.insert_all_behind(devices, &BEFORE_INTERFACES, &fragments);
            Ok(())
        })
    }
}

/// `<devices>`.
pub(super) fn of<'a, 'i>(document: &'a Document<'i>) -> Result<Node<'a, 'i>, DomainError> {
    let root = document.root_element();
    let missing = || DomainError::Missing { position: tree::position(root), what: "<devices>".to_owned() };
    tree::child(root, "devices").ok_or_else(missing)
}

/// The first name for a disk that is free.
pub(super) fn free_name(prefix: &str, taken: &[String]) -> Result<String, DomainError> {
    let free = ('a'..='z').map(|letter| format!("{prefix}{letter}")).find(|name| !taken.contains(name));
    let full = || DomainError::argument("the number of disks of one bus", &taken.len().to_string(), "at most 26");
    free.ok_or_else(full)
}

/// Elements of new disks, each with the first name that is free.
fn named(new: &[&NewDisk], there: &[DiskFacts]) -> Result<Vec<Fragment>, DomainError> {
    let mut taken: Vec<String> = there.iter().map(|disk| disk.target.clone()).collect();
    let mut fragments = Vec::new();
    for disk in new {
        let prefix = if disk.bus == DiskBus::Scsi { "sd" } else { "vd" };
        let name = free_name(prefix, &taken)?;
        fragments.push(disk_element(disk, name.chars().last().unwrap_or('a')));
        taken.push(name);
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
