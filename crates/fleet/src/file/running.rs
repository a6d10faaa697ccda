//! Where VMs of the fleet run now, in the planner's words. What is bound one vCPU to one PU keeps exactly that. What
//! floats inside nodes keeps those nodes. What floats over the machine, or does not run as the file says, has no place of
//! its own to keep: it stays on its host, and the plan finds the place.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_host::{GuestProcess, ThreadRole};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};
use serde::Serialize;

use super::assemble::KnownHost;
use super::now::add_pu;
use crate::dense::takes;
use crate::model::{
    CellPlacement, CoreSupply, CpuSharing, DeviceGrant, FleetHost, GuestNuma, SmtPolicy, Vm, VmPlacement,
};

/// What of its place a running VM keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stay {
    /// Its PUs, nodes and devices.
    Exactly,
    /// Its nodes and devices; its vCPUs float over them, and the plan may bind them.
    OnItsNodes,
    /// Its host.
    OnItsHost,
    /// Nothing: the file lets it be moved.
    Movable,
}

/// PUs and pages of one host that VMs which stay have taken so far.
#[derive(Default)]
struct Taken {
    pus: BTreeSet<u32>,
    /// PUs by node that vCPUs floating there need.
    floating: BTreeMap<u32, u64>,
    /// Bytes by node and page size.
    memory: BTreeMap<(u32, Option<PageSize>), u64>,
    assumed: Vec<String>,
}

/// Gives each running VM of a host its `current` place, and the host what those that stay hold. VMs by position.
pub(super) fn settle(
    known: &KnownHost<'_>,
    supply: &mut FleetHost,
    vms: &mut [Vm],
    there: &[(usize, &GuestProcess)],
    assumed: &mut Vec<String>,
) -> Vec<Stay> {
    let mut taken = Taken::default();
    let mut stays = vec![Stay::OnItsHost; there.len()];
    // PUs that are bound go first: those that float take what is left.
    for bound in [true, false] {
        for (stay, (vm, guest)) in stays.iter_mut().zip(there) {
            let vm = &mut vms[*vm];
            let pins = pins(known, vm, guest, &taken);
            if pins.is_some() != bound || vm.current.is_some() {
                continue;
            }
            let name = vm.name.clone();
            let found = place(known, supply, vm, guest, pins, &mut taken);
            let empty = VmPlacement { vm: name.clone(), host: known.name.to_owned(), ..nowhere() };
            *stay = match (&found, vm.movable) {
                (_, true) => Stay::Movable,
                (Ok(_), _) if bound => Stay::Exactly,
                (Ok(_), _) => Stay::OnItsNodes,
                (Err(reason), _) => {
                    assumed
                        .push(format!("{name} stays on {}, and its place there is chosen anew: {reason}", known.name));
                    Stay::OnItsHost
                }
            };
            vm.current = Some(found.unwrap_or(empty));
        }
    }
    top_up(known, supply, &taken, assumed);
    assumed.append(&mut taken.assumed);
    stays
}

fn nowhere() -> VmPlacement {
    VmPlacement {
        vm: String::new(),
        host: String::new(),
        cells: Vec::new(),
        helpers: CpuSet::new(),
        page_size: None,
        devices: Vec::new(),
        floating: None,
        reasons: Vec::new(),
        second_best: None,
    }
}

/// vCPU threads by number, with where they may run.
fn vcpus(known: &KnownHost<'_>, guest: &GuestProcess) -> BTreeMap<u32, Option<CpuSet>> {
    let online = known.host.online();
    let threads = guest.threads.iter().filter_map(|thread| match thread.role {
        ThreadRole::Vcpu(number) => Some((number, thread.affinity.as_ref().map(|set| set.intersection(&online)))),
        _ => None,
    });
    threads.collect()
}

/// One PU for each vCPU, in their order; `None` where it floats, shares PUs, or somebody else is bound to one of them.
fn pins(known: &KnownHost<'_>, vm: &Vm, guest: &GuestProcess, taken: &Taken) -> Option<Vec<u32>> {
    if vm.sharing() != CpuSharing::Dedicated {
        return None;
    }
    let mut pus = Vec::new();
    for set in vcpus(known, guest).into_values() {
        let set = set?;
        let pu = set.first().filter(|_| set.len() == 1)?;
        let others =
            known.ledger.on(pu).any(|claim| matches!(claim.role, ThreadRole::Vcpu(_)) && claim.owner.pid != guest.pid);
        if others || taken.pus.contains(&pu) || pus.contains(&pu) {
            return None;
        }
        pus.push(pu);
    }
    (pus.len() == vm.vcpus as usize).then_some(pus)
}

/// Where it is; or why that cannot be kept, in words.
fn place(
    known: &KnownHost<'_>,
    supply: &mut FleetHost,
    vm: &Vm,
    guest: &GuestProcess,
    pins: Option<Vec<u32>>,
    taken: &mut Taken,
) -> Result<VmPlacement, String> {
    let threads = vcpus(known, guest);
    if threads.len() != vm.vcpus as usize {
        return Err(format!("it runs with {} vCPUs, the file says {}", threads.len(), vm.vcpus));
    }
    if let Some(memory) = guest.memory.filter(|memory| *memory != vm.memory) {
        return Err(format!("it runs with {memory} of memory, the file says {}", vm.memory));
    }
    let homes = homes(known, &threads)?;
    let memory = memory(vm, guest, &homes, taken)?;
    let devices = devices(known, supply, vm, guest)?;
    let mut cells = Vec::new();
    for (node, numbers) in &homes {
        let pus: Vec<u32> = match &pins {
            Some(pins) => {
                threads.keys().zip(pins).filter(|(number, _)| numbers.contains(number)).map(|(_, pu)| *pu).collect()
            }
            None => Vec::new(),
        };
        let bytes = memory.get(node).copied().unwrap_or_default();
        cells.push(CellPlacement { node: *node, vcpus: numbers.len() as u32, idle: Vec::new(), pus, memory: bytes });
    }
    let first = |cell: &CellPlacement| homes.get(&cell.node).and_then(|numbers| numbers.first().copied());
    cells.sort_by_key(first);
    let elsewhere = memory.iter().filter(|(node, bytes)| !homes.contains_key(node) && **bytes > Bytes::ZERO);
    cells.extend(elsewhere.map(|(node, bytes)| CellPlacement {
        node: *node,
        vcpus: 0,
        pus: Vec::new(),
        idle: Vec::new(),
        memory: *bytes,
    }));
    if !vm.movable {
        let half = |cell: &&CellPlacement| cell.vcpus == 0 || cell.memory == Bytes::ZERO;
        let shown = vm.numa != GuestNuma::Hidden && cells.len() > 1;
        if let Some(cell) = cells.iter().find(half).filter(|_| shown) {
            return Err(format!(
                "on node {} it has only vCPUs or only memory, and a guest's cell needs both",
                cell.node
            ));
        }
        keep(known, supply, vm, &mut cells, pins.is_some(), taken)?;
    }
    let online = known.host.online();
    let emulators = guest.threads_of(&ThreadRole::Emulator).filter_map(|thread| thread.affinity.as_ref());
    let helpers = emulators.filter(|set| !online.is_subset(set)).fold(CpuSet::new(), |all, set| all.union(set));
    let (vm_name, host) = (vm.name.clone(), known.name.to_owned());
    Ok(VmPlacement { vm: vm_name, host, cells, helpers, page_size: vm.page_size, devices, ..nowhere() })
}

/// vCPUs by node, where each may run inside one node only.
fn homes(known: &KnownHost<'_>, threads: &BTreeMap<u32, Option<CpuSet>>) -> Result<BTreeMap<u32, Vec<u32>>, String> {
    let mut homes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let several = known.host.nodes.iter().filter(|node| !node.cpus.is_empty()).count() > 1;
    for (number, set) in threads {
        let Some(set) = set else { return Err(format!("where vCPU {number} may run is not known")) };
        let node = set.first().and_then(|pu| known.host.node_of_cpu(pu));
        match node {
            Some(node) if set.is_subset(&node.cpus) => homes.entry(node.index).or_default().push(*number),
            _ if several => return Err("its vCPUs float over several nodes".to_owned()),
            _ => return Err("the node of its vCPUs is not known".to_owned()),
        }
    }
    Ok(homes)
}

/// Its memory by node, all of it: what is not there yet will come where the rest is. In whole pages, or MiB.
fn memory(
    vm: &Vm,
    guest: &GuestProcess,
    homes: &BTreeMap<u32, Vec<u32>>,
    taken: &mut Taken,
) -> Result<BTreeMap<u32, Bytes>, String> {
    let mut resident: BTreeMap<u32, u64> = BTreeMap::new();
    for mapping in guest.residency.iter().filter(|mapping| mapping.guest_memory) {
        let size = Some(mapping.page_size).filter(|size| *size > PageSize::SMALL);
        let pages: u64 = mapping.pages.iter().map(|(_, pages)| *pages).sum();
        if size != vm.page_size && pages > 0 {
            let now = size.map_or("the kernel's own pages".to_owned(), |size| format!("pages of {size}"));
            return Err(format!("its memory is in {now}, the file says otherwise"));
        }
        for (node, pages) in &mapping.pages {
            *resident.entry(*node).or_default() += mapping.page_size.bytes().times(*pages).get();
        }
    }
    if let Some(reason) = &guest.residency_error {
        let assumed =
            format!("where the memory of {} is could not be read ({reason}): taken to be with its vCPUs", vm.name);
        taken.assumed.push(assumed);
    }
    let unit = unit(vm);
    let all = vm.memory.get().div_ceil(unit);
    // Pages by node, the resident ones first.
    let mut pages: BTreeMap<u32, u64> = BTreeMap::new();
    let mut left = all;
    for (node, bytes) in &resident {
        let here = (bytes / unit).min(left);
        left -= here;
        if here > 0 {
            pages.insert(*node, here);
        }
    }
    let weights: Vec<(u32, u64)> = match pages.is_empty() {
        true => homes.iter().map(|(node, numbers)| (*node, numbers.len() as u64)).collect(),
        false => pages.iter().map(|(node, pages)| (*node, *pages)).collect(),
    };
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let rest = left;
    for (at, (node, weight)) in weights.iter().enumerate() {
        let share = (u128::from(rest) * u128::from(*weight) / u128::from(total.max(1))) as u64;
        let more = if at + 1 == weights.len() { left } else { share.min(left) };
        left -= more;
        *pages.entry(*node).or_default() += more;
    }
    Ok(pages.into_iter().map(|(node, pages)| (node, Bytes::new(pages * unit))).collect())
}

/// What memory of the VM is counted in.
fn unit(vm: &Vm) -> u64 {
    vm.page_size.map_or(0, |size| size.bytes().get()).max(Bytes::from_mib(1).get())
}

/// The devices it holds, as answers to what the file asks for.
fn devices(
    known: &KnownHost<'_>,
    supply: &FleetHost,
    vm: &Vm,
    guest: &GuestProcess,
) -> Result<Vec<DeviceGrant>, String> {
    let mut held: BTreeSet<PciAddress> = known.ledger.held_by(guest.pid).collect();
    let mut grants = Vec::new();
    // Those that name one function take it before those that take any.
    let mut order: Vec<usize> = (0..vm.devices.len()).collect();
    order.sort_by_key(|at| !matches!(vm.devices[*at].selector, crate::model::DeviceSelector::Function(_)));
    for at in order {
        let demand = &vm.devices[at];
        let mut missing = demand.count;
        for (position, there) in supply.devices.iter().enumerate().filter(|(_, there)| takes(&demand.selector, there)) {
            let shared = matches!(there.kind, crate::model::DeviceKind::Shared { .. });
            let own: Vec<PciAddress> = there
                .functions
                .iter()
                .copied()
                .filter(|function| held.contains(function))
                .take(missing as usize)
                .collect();
            let count = if shared { missing } else { own.len() as u32 };
            if count == 0 {
                continue;
            }
            own.iter().for_each(|function| _ = held.remove(function));
            missing -= count;
            grants.push(DeviceGrant {
                demand: at as u32,
                selector: demand.selector.clone(),
                supply: position as u32,
                count,
                functions: own,
                node: there.node.and_then(|node| supply.nodes.get(node as usize)).map(|node| node.index),
            });
        }
        if missing > 0 {
            let why = match known.ledger.unseen.iter().any(|owner| owner.pid == guest.pid) {
                true => "which devices it holds could not be read",
                false => "the file asks for a device it does not hold now",
            };
            return Err(why.to_owned());
        }
    }
    grants.sort_by_key(|grant| grant.demand);
    Ok(grants)
}

/// Takes what a VM that stays holds; or says why its nodes do not carry it.
fn keep(
    known: &KnownHost<'_>,
    supply: &mut FleetHost,
    vm: &Vm,
    cells: &mut [CellPlacement],
    bound: bool,
    taken: &mut Taken,
) -> Result<(), String> {
    for cell in cells.iter().filter(|_| !bound) {
        let node = supply.nodes.iter().find(|node| node.index == cell.node);
        let cores = node.map_or(&[][..], |node| &node.cores);
        let threads = cores.iter().map(|core| core.threads).max().unwrap_or(1);
        let left = |core: &CoreSupply| core.free.iter().filter(|pu| !taken.pus.contains(pu)).count() as u32;
        // Whole cores are counted by themselves; what floats may take whole ones too, so that this errs to the safe side.
        let whole = vm.sharing() == CpuSharing::Dedicated && matches!(vm.smt, SmtPolicy::Isolate | SmtPolicy::Require);
        let usable = |core: &&CoreSupply| !whole || (left(core) == core.threads && core.threads == threads);
        let free: u64 = cores.iter().filter(usable).map(|core| u64::from(left(core))).sum();
        let need = match vm.sharing() {
            CpuSharing::Shared { ratio_percent } => {
                (u64::from(cell.vcpus) * 100).div_ceil(u64::from(ratio_percent.max(1)))
            }
            CpuSharing::Dedicated if whole => u64::from(cell.vcpus) * u64::from(threads),
            CpuSharing::Dedicated => u64::from(cell.vcpus),
        };
        if vm.smt == SmtPolicy::Require && whole && threads < 2 && cell.vcpus > 0 {
            return Err(format!("node {} has no cores of several PUs", cell.node));
        }
        if need + taken.floating.get(&cell.node).copied().unwrap_or(0) > free {
            return Err(format!("node {} has too few PUs for its vCPUs to own", cell.node));
        }
        *taken.floating.entry(cell.node).or_default() += need;
    }
    for cell in cells.iter_mut() {
        for pu in &cell.pus {
            add_pu(known.host, supply, cell.node, *pu);
            taken.pus.insert(*pu);
        }
        *taken.memory.entry((cell.node, vm.page_size)).or_default() += cell.memory.get();
    }
    // Siblings nobody else is bound to stay idle with it.
    if vm.smt == SmtPolicy::Isolate {
        for cell in cells.iter_mut() {
            let Some(node) = supply.nodes.iter().find(|node| node.index == cell.node) else { continue };
            let own = node.cores.iter().filter(|core| core.free.iter().any(|pu| cell.pus.contains(pu)));
            let idle = own.flat_map(|core| &core.free).filter(|pu| !taken.pus.contains(pu));
            cell.idle = idle.copied().collect();
            taken.pus.extend(&cell.idle);
        }
    }
    Ok(())
}

/// What stays stays: where a node has less free than its VMs may still touch, that is theirs all the same.
fn top_up(known: &KnownHost<'_>, supply: &mut FleetHost, taken: &Taken, assumed: &mut Vec<String>) {
    for ((index, size), bytes) in &taken.memory {
        let Some(node) = supply.nodes.iter_mut().find(|node| node.index == *index) else { continue };
        let missing = match size {
            None => {
                let missing = Bytes::new(*bytes).less(node.memory);
                node.memory = node.memory.plus(missing);
                missing
            }
            Some(size) => {
                let pages = bytes / size.bytes().get();
                match node.pools.iter_mut().find(|pool| pool.size == *size) {
                    Some(pool) => {
                        let missing = pages.saturating_sub(pool.free);
                        pool.free += missing;
                        size.bytes().times(missing)
                    }
                    None => continue,
                }
            }
        };
        if missing > Bytes::ZERO {
            assumed.push(format!(
                "node {index} of {}: VMs that stay there are promised {missing} more than is free beside the reserve; it is \
                 theirs",
                known.name
            ));
        }
    }
}
