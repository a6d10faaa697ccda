//! Limits of a machine: those of QEMU's devices, and those of sense.

use std::collections::BTreeSet;

use nearmetal_counters::TimeModel;
use nearmetal_units::Bytes;

use super::{Accelerator, Machine, MachineError};

/// Hardware threads. More would boot for minutes under emulation.
const PROCESSORS: u32 = 64;
/// Nodes: each may need a range of bus numbers of its own, and there are 256 of those.
const NODES: usize = 8;
/// Memory of one node: the kernel and libvirt need about this much on the first.
const NODE_MEMORY: Bytes = Bytes::from_mib(256);
/// Virtual functions of the emulated drive whose queues QEMU can hand out.
const VIRTUAL_FUNCTIONS: u32 = 16;
/// Serial numbers of virtio disks have 20 characters.
const NAME: usize = 20;

/// The first rule that `machine` breaks.
pub(super) fn check(origin: &str, machine: &Machine) -> Result<(), MachineError> {
    let complain = |field: String, value: String, limit: String| {
        Err(MachineError::Value { origin: origin.to_owned(), field, value, limit })
    };
    let count = machine.processors.count();
    if count == 0 || count > PROCESSORS {
        return complain(
            "processors".into(),
            format!("{count} hardware threads"),
            format!("1 to {PROCESSORS} are possible"),
        );
    }
    let nodes = machine.nodes.len();
    if nodes == 0 || nodes > NODES {
        return complain("node".into(), format!("given {nodes} times"), format!("1 to {NODES} are possible"));
    }
    if count as usize % nodes != 0 {
        return complain(
            "node".into(),
            format!("given {nodes} times"),
            format!("{count} hardware threads do not split evenly over them"),
        );
    }
    check_nodes(machine, &complain)?;
    if let Some(Err(error)) = machine.time_model.as_ref().map(TimeModel::check) {
        return complain(format!("time_model.{}", error.field), error.value, error.limit);
    }
    let mut names = BTreeSet::from(["root"]);
    let devices = (machine.networks.iter().map(|device| ("network", device.name.as_str())))
        .chain(machine.drives.iter().map(|device| ("nvme", device.name.as_str())))
        .chain(machine.disks.iter().map(|device| ("disk", device.name.as_str())));
    for (kind, name) in devices {
        if !is_name(name) {
            return complain(
                format!("{kind}.name"),
                format!("`{name}`"),
                format!("a name has 1 to {NAME} of a-z, 0-9 and -, and begins with a letter"),
            );
        }
        if !names.insert(name) {
            return complain(format!("{kind}.name"), format!("`{name}`"), "that name is taken".into());
        }
    }
    for (index, network) in machine.networks.iter().enumerate() {
        check_node(&format!("network[{index}].node"), network.node, nodes, &complain)?;
        if let Some(cable) = network.cable.as_ref().filter(|cable| !is_name(&cable.name)) {
            return complain(
                format!("network[{index}].cable.name"),
                format!("`{}`", cable.name),
                format!("a name has 1 to {NAME} of a-z, 0-9 and -, and begins with a letter"),
            );
        }
    }
    for (index, drive) in machine.drives.iter().enumerate() {
        check_node(&format!("nvme[{index}].node"), drive.node, nodes, &complain)?;
        if drive.virtual_functions > VIRTUAL_FUNCTIONS {
            return complain(
                format!("nvme[{index}].virtual_functions"),
                drive.virtual_functions.to_string(),
                format!("at most {VIRTUAL_FUNCTIONS} are possible"),
            );
        }
        for (number, namespace) in drive.namespaces.iter().enumerate() {
            check_size(&format!("nvme[{index}].namespace[{number}].size"), namespace.size, &complain)?;
        }
    }
    for (index, disk) in machine.disks.iter().enumerate() {
        check_size(&format!("disk[{index}].size"), disk.size, &complain)?;
    }
    let blank = |argument: &&String| argument.contains(char::is_whitespace) || argument.is_empty();
    if let Some(argument) = machine.kernel_arguments.iter().find(blank) {
        return complain(
            "kernel_arguments".into(),
            format!("`{argument}`"),
            "one entry is one argument, without blanks".into(),
        );
    }
    if let Some(count) = machine.count.filter(|_| machine.processors.accelerator != Accelerator::Tcg) {
        return complain(
            "count".into(),
            format!("`{}`", count.id()),
            "only emulated processors count: set processors.accelerator to tcg".into(),
        );
    }
    let model = &machine.processors.model;
    if model.is_empty() || model.contains(|c: char| !c.is_ascii_graphic()) {
        return complain(
            "processors.model".into(),
            format!("`{model}`"),
            "it is a name as `qemu-system-x86_64 -cpu help` lists them".into(),
        );
    }
    Ok(())
}

type Complain<'a> = &'a dyn Fn(String, String, String) -> Result<(), MachineError>;

fn check_nodes(machine: &Machine, complain: Complain<'_>) -> Result<(), MachineError> {
    let nodes = machine.nodes.len();
    for (index, node) in machine.nodes.iter().enumerate() {
        if node.memory < NODE_MEMORY || node.memory.get() % Bytes::from_mib(1).get() != 0 {
            complain(
                format!("node[{index}].memory"),
                node.memory.to_string(),
                format!("it is whole MiB, at least {NODE_MEMORY}"),
            )?;
        }
        let field = format!("node[{index}].distances");
        if node.distances.len() != nodes {
            complain(field.clone(), format!("{} distances", node.distances.len()), format!("there are {nodes} nodes"))?;
        }
        for (other, &distance) in node.distances.iter().enumerate() {
            let limit = if other == index {
                (distance != 10).then_some("exactly 10")
            } else {
                (distance <= 10).then_some("above 10")
            };
            if let Some(limit) = limit {
                complain(format!("{field}[{other}]"), distance.to_string(), format!("it must be {limit}"))?;
            }
        }
    }
    Ok(())
}

fn check_node(field: &str, node: u32, nodes: usize, complain: Complain<'_>) -> Result<(), MachineError> {
    if node as usize >= nodes {
        complain(field.to_owned(), node.to_string(), format!("nodes are numbered 0 to {}", nodes - 1))?;
    }
    Ok(())
}

fn check_size(field: &str, size: Bytes, complain: Complain<'_>) -> Result<(), MachineError> {
    let mebibyte = Bytes::from_mib(1).get();
    if size.get() == 0 || size.get() % mebibyte != 0 || size.get() >> 44 != 0 {
        complain(field.to_owned(), size.to_string(), "it is whole MiB, from 1 MiB to below 16 TiB".into())?;
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}
