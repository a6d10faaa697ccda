//! The modes, and the definition of a guest in each.

use nearmetal_domain::{Cell, DefinitionEdit, DomainError};
use nearmetal_host::Host;
use nearmetal_results::{ArmName, BARE_SLICE, Role};
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use super::parts::{NodePart, distance};
use crate::appliance::Appliance;
use crate::clones::{add_loads, make_own};

/// One way to spread a guest over nodes (seed 003, ch. 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Without a guest: a process on each node.
    Native,
    /// One guest, nothing pinned, no cells.
    Default,
    /// One guest, each vCPU on a PU of its own, no cells.
    Pinned,
    /// As pinned, and the guest sees the nodes as cells, each with its memory there.
    Cells,
    /// A guest on each node.
    PerNode,
}

impl Mode {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [Self::Native, Self::Default, Self::Pinned, Self::Cells, Self::PerNode];

    /// Those with guests, which are compared with the one without.
    pub const WITH_GUESTS: [Self; 4] = [Self::Default, Self::Pinned, Self::Cells, Self::PerNode];

    /// Id of its arm.
    pub fn id(self) -> &'static str {
        match self {
            Self::Native => BARE_SLICE,
            Self::Default => "default",
            Self::Pinned => "pinned",
            Self::Cells => "cells",
            Self::PerNode => "per-node",
        }
    }

    /// Its arm.
    pub(super) fn name(self) -> ArmName {
        let (title, role) = match self {
            Self::Native => ("native", Role::Bare),
            Self::Default => ("default", Role::AsFound),
            Self::Pinned => ("pinned", Role::Other),
            Self::Cells => ("cells", Role::Planned),
            Self::PerNode => ("one a node", Role::Other),
        };
        ArmName::new(self.id(), title, role)
    }

    /// In a sentence.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Native => "the host itself, a process bound to each node and to its PUs",
            Self::Default => {
                "one guest over all nodes, where the kernel puts it; a process for each node, which runs where the guest's kernel puts it"
            }
            Self::Pinned => {
                "one guest over all nodes, each vCPU on a PU of its own; it does not see the nodes, so its processes run where its kernel puts them"
            }
            Self::Cells => {
                "one guest over all nodes, pinned, with a cell for each node and its memory there; a process bound to each cell"
            }
            Self::PerNode => "a guest on each node, pinned, with its memory there; a process in each",
        }
    }

    /// Guests that it takes for so many parts.
    pub(super) fn guests(self, parts: usize) -> usize {
        match self {
            Self::Native => 0,
            Self::Default | Self::Pinned | Self::Cells => 1,
            Self::PerNode => parts,
        }
    }
}

/// What a guest is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made<'a> {
    /// The definition whose machine it has.
    pub xml: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UUID.
    pub uuid: &'a str,
    /// Its system.
    pub appliance: &'a Appliance,
    /// Its parts, each with as many PUs as it has vCPUs there.
    pub parts: &'a [NodePart],
    /// Its memory on each.
    pub memory: Bytes,
}

/// vCPUs of a part, as numbers of a guest that has all parts.
pub(super) fn vcpus(parts: &[NodePart], part: usize) -> CpuSet {
    let before: usize = parts[..part].iter().map(|part| part.cpus.len()).sum();
    (before as u32..(before + parts[part].cpus.len()) as u32).collect()
}

/// The definition of a guest with these parts.
pub(super) fn definition(mode: Mode, made: &Made<'_>, host: &Host) -> Result<String, DomainError> {
    let mut xml = make_own(made.xml, made.name, made.uuid, made.appliance)?;
    for disk in xml.facts()?.disks {
        xml.remove_disk(&disk.target)?;
    }
    add_loads(&mut xml, made.appliance)?;
    xml.remove_pins()?;
    xml.remove_numatune()?;
    xml.remove_hugepages()?;
    // Where a user's definition confines all vCPUs at once, or shows the guest cells of its own.
    xml.edit(&DefinitionEdit::RemoveAttribute { at: "vcpu".into(), name: "cpuset".into() })?;
    xml.edit(&DefinitionEdit::Remove { at: "cpu/numa".into() })?;
    let pus: Vec<u32> = made.parts.iter().flat_map(|part| part.cpus.iter()).collect();
    xml.set_size(pus.len() as u32, made.memory.times(made.parts.len() as u64))?;
    if mode == Mode::Default {
        return Ok(xml.as_str().to_owned());
    }
    let pins: Vec<(u32, CpuSet)> = (0..).zip(pus.iter().map(|pu| CpuSet::one(*pu))).collect();
    xml.set_vcpu_pins(&pins)?;
    let union = |of: fn(&NodePart) -> &CpuSet| made.parts.iter().fold(CpuSet::new(), |all, part| all.union(of(part)));
    let beside = union(|part| &part.beside);
    xml.set_emulator_pin(&if beside.is_empty() { union(|part| &part.cpus) } else { beside })?;
    match mode {
        Mode::Cells => {
            xml.set_cells(&cells(made, host))?;
        }
        Mode::PerNode => {
            xml.set_numatune_strict(&made.parts.iter().map(|part| part.node).collect::<NodeSet>())?;
        }
        Mode::Native | Mode::Default | Mode::Pinned => {}
    }
    Ok(xml.as_str().to_owned())
}

/// A cell for each part. The guest is told the distances where the host knows all of them.
fn cells(made: &Made<'_>, host: &Host) -> Vec<Cell> {
    let far = |from: &NodePart| made.parts.iter().map(|to| distance(host, from.node, to.node)).collect::<Vec<_>>();
    // What libvirt takes: 10 to itself, 11 to 255 to others.
    let is_good = |(row, far): (usize, &Vec<u32>)| {
        far.iter().enumerate().all(|(to, far)| if to == row { *far == 10 } else { (11..=255).contains(far) })
    };
    let rows: Vec<Vec<u32>> = made.parts.iter().map(far).collect();
    let is_told = made.parts.len() > 1 && rows.iter().enumerate().all(is_good);
    let cell = |(number, part): (usize, &NodePart)| Cell {
        vcpus: vcpus(made.parts, number),
        memory: made.memory,
        nodes: NodeSet::one(part.node),
        distances: if is_told { rows[number].clone() } else { Vec::new() },
    };
    made.parts.iter().enumerate().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use nearmetal_domain::{DomainFacts, DomainXml};
    use nearmetal_host::NumaNode;

    use super::*;

    const USER: &str = "<domain type='kvm'>
  <name>db</name>
  <memory unit='MiB'>384</memory>
  <vcpu cpuset='0-3'>2</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <cputune><vcpupin vcpu='0' cpuset='3'/></cputune>
  <numatune><memory mode='strict' nodeset='1'/></numatune>
  <cpu mode='host-passthrough'><numa><cell id='0' cpus='0-1' memory='384' unit='MiB'/></numa></cpu>
  <devices><disk type='block' device='disk'><source dev='/dev/sda'/><target dev='vda' bus='virtio'/></disk></devices>
</domain>
";

    fn facts(mode: Mode) -> DomainFacts {
        let part = |node: u32| NodePart {
            node,
            cpus: [node * 3, node * 3 + 1].into_iter().collect(),
            beside: CpuSet::one(node * 3 + 2),
        };
        let node = |index: u32, distances: [u32; 2]| NumaNode {
            index,
            distances: (0..).zip(distances).collect(),
            ..NumaNode::default()
        };
        let host = Host { nodes: vec![node(0, [10, 16]), node(1, [16, 10])], ..Host::default() };
        let appliance =
            Appliance { kernel: "/a/vmlinuz".into(), initramfs: "/a/initramfs".into(), loads: None, kit: None };
        let uuid = "22222222-2222-2222-2222-222222222222";
        let parts = [part(0), part(1)];
        let made =
            Made { xml: USER, name: "db-x", uuid, appliance: &appliance, parts: &parts, memory: Bytes::from_mib(384) };
        DomainXml::parse(&definition(mode, &made, &host).unwrap()).unwrap().facts().unwrap()
    }

    #[test]
    fn the_default_guest_is_as_wide_and_says_nothing_of_where() {
        let facts = facts(Mode::Default);
        assert_eq!((facts.vcpus.maximum, facts.memory), (4, Bytes::from_mib(768)));
        assert!(facts.vcpu_pins.is_empty() && facts.vcpus.cpuset.is_none() && facts.numatune.is_none());
        assert!(facts.cells.is_empty() && facts.disks.is_empty() && facts.emulator_pin.is_none());
    }

    #[test]
    fn a_pinned_guest_has_its_vcpus_in_the_order_of_the_nodes_and_no_memory_policy() {
        let facts = facts(Mode::Pinned);
        let pins: Vec<String> = facts.vcpu_pins.iter().map(|(vcpu, cpus)| format!("{vcpu}:{cpus}")).collect();
        assert_eq!(pins, ["0:0", "1:1", "2:3", "3:4"]);
        assert_eq!(facts.emulator_pin.map(|cpus| cpus.to_string()).as_deref(), Some("2,5"));
        assert!(facts.numatune.is_none() && facts.cells.is_empty());
    }

    #[test]
    fn cells_have_their_memory_on_their_node_and_know_how_far_the_other_is() {
        let facts = facts(Mode::Cells);
        let told: Vec<String> = facts.cells.iter().map(|cell| format!("{} {}", cell.vcpus, cell.memory)).collect();
        assert_eq!(told, ["0-1 384 MiB", "2-3 384 MiB"]);
        assert_eq!(facts.cells[0].distances, [(0, 10), (1, 16)]);
        let nodes: Vec<String> =
            facts.numatune.unwrap().cells.iter().filter_map(|cell| Some(cell.nodes.as_ref()?.to_string())).collect();
        assert_eq!(nodes, ["0", "1"]);
    }
}
