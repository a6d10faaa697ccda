//! The parts of a host that a guest is spread over: one for each node.

use nearmetal_host::{Host, NumaNode};
use nearmetal_results::Slice;
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

/// Memory of a node that is left to the kernel and to QEMU itself.
const LEFT_FREE: Bytes = Bytes::from_mib(256);

/// One node's part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePart {
    /// The node.
    pub node: u32,
    /// PUs, one for each vCPU.
    pub cpus: CpuSet,
    /// Other PUs of the node, for the emulator thread.
    pub beside: CpuSet,
}

impl NodePart {
    /// The part as a slice of bare metal.
    pub(super) fn slice(&self) -> Slice {
        Slice {
            cpus: self.cpus.clone(),
            nodes: NodeSet::one(self.node),
            page_size: None,
            device: format!("memory of node {}", self.node),
            region: Bytes::ZERO,
            cpus_on_top: self.beside.clone(),
        }
    }
}

/// The parts of these nodes for a guest of so many vCPUs and so much memory on each; without `wanted` of all nodes that have
/// PUs. The nearest nodes come first, so that two nodes are neighbours.
///
/// # Errors
/// A node that is not there, has too few PUs or too little free memory; or fewer than two nodes.
pub fn parts_of(
    host: &Host,
    wanted: Option<&NodeSet>,
    vcpus: u32,
    memory: Bytes,
) -> Result<Vec<NodePart>, MeasureError> {
    let refused = |why: String| MeasureError::Asked(why);
    let mut nodes: Vec<&NumaNode> = match wanted {
        None => host.nodes.iter().filter(|node| !node.cpus.is_empty()).collect(),
        Some(wanted) => {
            let of = |index: u32| host.nodes.iter().find(|node| node.index == index);
            let missing =
                |index: u32| refused(format!("this host has no node {index}: `nearmetal inspect` shows them"));
            wanted.iter().map(|index| of(index).ok_or_else(|| missing(index))).collect::<Result<_, _>>()?
        }
    };
    if nodes.len() < 2 {
        return Err(refused(format!(
            "{} with PUs: how a guest is spread over nodes can be measured on two or more",
            if nodes.len() == 1 { "there is one node" } else { "there is no node" }
        )));
    }
    let first = nodes[0].index;
    nodes[1..].sort_by_key(|node| (distance(host, first, node.index), node.index));
    nodes.into_iter().map(|node| part(host, node, vcpus, memory).map_err(refused)).collect()
}

fn part(host: &Host, node: &NumaNode, vcpus: u32, memory: Bytes) -> Result<NodePart, String> {
    let index = node.index;
    // One PU of each core first: two vCPUs on one core slow each other down.
    let mut pus: Vec<(usize, u32)> = node.cpus.iter().map(|pu| (place_in_core(host, pu), pu)).collect();
    pus.sort_unstable();
    if pus.len() < vcpus as usize {
        return Err(format!(
            "node {index} has {} PUs, and the guest has {vcpus} vCPUs: take a smaller guest, or other nodes (--nodes)",
            pus.len()
        ));
    }
    let free = node.memory_free.map(|free| free.plus(node.memory_reclaimable.unwrap_or(Bytes::ZERO)));
    if let Some(free) = free.filter(|free| *free < memory.plus(LEFT_FREE)) {
        return Err(format!(
            "node {index} has {free} free, and {} is needed: {memory} for the guest and {LEFT_FREE} for the kernel and QEMU; \
             stop other guests there, or take other nodes (--nodes)",
            memory.plus(LEFT_FREE)
        ));
    }
    let (own, beside) = pus.split_at(vcpus as usize);
    let set = |pus: &[(usize, u32)]| pus.iter().map(|(_, pu)| *pu).collect::<CpuSet>();
    Ok(NodePart { node: index, cpus: set(own), beside: set(beside) })
}

/// How many PUs of its core come before this one.
fn place_in_core(host: &Host, pu: u32) -> usize {
    let core = host.cores.iter().find(|core| core.cpus.contains(pu));
    core.map_or(0, |core| core.cpus.iter().take_while(|other| *other < pu).count())
}

/// From one node to another; what the host does not tell is as far as can be.
pub(super) fn distance(host: &Host, from: u32, to: u32) -> u32 {
    let from = host.nodes.iter().find(|node| node.index == from);
    let found = from.and_then(|node| node.distances.iter().find(|(other, _)| *other == to));
    found.map_or(u32::MAX, |(_, far)| *far)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        let node = |index: u32, distances: [u32; 3]| NumaNode {
            index,
            cpus: (index * 4..index * 4 + 4).collect(),
            memory_free: Some(Bytes::from_mib(2048)),
            distances: (0..).zip(distances).collect(),
            ..NumaNode::default()
        };
        // PUs 0 and 1 are of one core, 2 and 3 of the next.
        let core = |number: u32| nearmetal_host::Core {
            cpus: [number * 2, number * 2 + 1].into_iter().collect(),
            ..nearmetal_host::Core::default()
        };
        Host {
            nodes: vec![node(0, [10, 32, 16]), node(1, [32, 10, 32]), node(2, [16, 32, 10])],
            cores: (0..6).map(core).collect(),
            ..Host::default()
        }
    }

    #[test]
    fn each_node_gives_one_pu_of_each_core_first_and_near_nodes_come_first() {
        let parts = parts_of(&host(), None, 2, Bytes::from_mib(512)).unwrap();
        let told: Vec<_> =
            parts.iter().map(|part| (part.node, part.cpus.to_string(), part.beside.to_string())).collect();
        let told: Vec<_> = told.iter().map(|(node, cpus, beside)| (*node, cpus.as_str(), beside.as_str())).collect();
        assert_eq!(told, [(0, "0,2", "1,3"), (2, "8,10", "9,11"), (1, "4,6", "5,7")]);
    }

    #[test]
    fn what_cannot_hold_the_guest_is_named_with_its_limit() {
        let refused = |nodes: &str, vcpus, mib| {
            let nodes: NodeSet = nodes.parse().unwrap();
            parts_of(&host(), Some(&nodes), vcpus, Bytes::from_mib(mib)).unwrap_err().to_string()
        };
        assert!(refused("0,7", 2, 512).contains("no node 7"));
        assert!(refused("0", 2, 512).contains("there is one node"));
        assert!(refused("0-1", 5, 512).contains("node 0 has 4 PUs, and the guest has 5 vCPUs"));
        assert!(refused("0-1", 2, 2000).contains("node 0 has 2 GiB free"));
    }
}
