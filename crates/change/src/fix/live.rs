//! Cures of the running machine, with the values it has now.

use std::collections::BTreeMap;

use nearmetal_rules::{Cure, Scope, Thread};
use nearmetal_units::CpuSet;

use super::Treated;
use super::item::Item;
use crate::change::Change;
use crate::instance::Instance;
use crate::kernel::{available_bytes, persistent_pages};
use crate::machine::Machine;
use crate::pins::PinTarget;
use crate::value::{present, same_value};
use crate::{ChangeError, modules};

/// The changes one object takes; none where everything is so already. `Err` within says why it is not to be had.
pub(super) fn changes(
    machine: &mut Machine<'_>,
    treated: &Treated,
) -> Result<Result<Vec<Change>, String>, ChangeError> {
    let mut changes = Vec::new();
    for cure in &treated.object.cures {
        let change = match cure {
            Cure::KernelFile { path, value } => setting(machine, path, value),
            Cure::HugepagePool { node, size, pages } => persistent_pages(machine.kernel, *node, *size).map(|old| {
                (old != *pages).then_some(Change::HugepagePool { node: *node, size: *size, old, new: *pages })
            }),
            Cure::LoadModule { module } => modules::is_loaded(machine.kernel, module)
                .map(|loaded| (!loaded).then(|| Change::LoadModule { module: module.clone(), loaded })),
            Cure::LivePin { thread, cpus } => pin(machine, &treated.scope, *thread, cpus),
            Cure::Definition(_)
            | Cure::KernelArgument { .. }
            | Cure::NoKernelArgument { .. }
            | Cure::ModuleParameter { .. } => Ok(None),
        };
        match change {
            Ok(change) => changes.extend(change),
            // A file that is not there, a guest that has just gone: this cure is not to be had, others are.
            Err(ChangeError::Kernel(why)) => return Ok(Err(why)),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(changes))
}

fn setting(machine: &Machine<'_>, path: &str, value: &str) -> Result<Option<Change>, ChangeError> {
    let old = present(machine.kernel, path)?;
    let changes = !same_value(path, &old, value);
    Ok(changes.then(|| Change::SysfsValue { path: path.to_owned(), old, new: value.to_owned() }))
}

fn pin(machine: &mut Machine<'_>, scope: &Scope, thread: Thread, cpus: &CpuSet) -> Result<Option<Change>, ChangeError> {
    let Scope::Domain { name, .. } = scope else {
        return Err(ChangeError::Kernel("a host has no guest threads".to_owned()));
    };
    let target = target(thread);
    let summary = machine.hypervisor.domain(name)?;
    let gone = || ChangeError::Kernel(format!("{target} of `{name}` is not running"));
    let old = machine.kernel.affinity(&summary.uuid, target)?.ok_or_else(gone)?;
    let (domain, new, instance) = (name.clone(), cpus.clone(), Instance::of(machine, &summary)?);
    Ok((old != new).then_some(Change::LivePin { domain, target, old, new, instance }))
}

/// The change's word for a thread.
pub(super) fn target(thread: Thread) -> PinTarget {
    match thread {
        Thread::Vcpu(number) => PinTarget::Vcpu(number),
        Thread::Emulator => PinTarget::Emulator,
        Thread::Iothread(number) => PinTarget::Iothread(number),
    }
}

/// Refuses pools that are to grow by more than their node can give. No guest stops for a cure, so nothing comes back.
pub(super) fn refuse_pools_without_room(machine: &Machine<'_>, items: &mut [Item]) -> Result<(), ChangeError> {
    let mut growth: BTreeMap<u32, BTreeMap<String, u64>> = BTreeMap::new();
    for change in items.iter().filter(|item| item.open).flat_map(|item| &item.changes) {
        if let Change::HugepagePool { node, size, old, new } = change {
            let bytes = new.saturating_sub(*old).saturating_mul(size.bytes().get());
            // Two objects may want the same pool: it grows once.
            growth.entry(*node).or_default().insert(change.object(), bytes);
        }
    }
    for (node, pools) in growth {
        let wanted: u64 = pools.values().fold(0, |sum, bytes| sum.saturating_add(*bytes));
        let available = available_bytes(machine.kernel, node)?;
        if wanted <= available {
            continue;
        }
        let on_node = |change: &Change| matches!(change, Change::HugepagePool { node: own, .. } if *own == node);
        for item in items.iter_mut().filter(|item| item.open && item.changes.iter().any(on_node)) {
            item.refuse(format!(
                "the pools of node {node} must grow by {} MiB, but only {} MiB of that node are free or can be freed: \
                 stop what uses its memory",
                wanted >> 20,
                available >> 20
            ));
        }
    }
    Ok(())
}
