//! One host before and after a plan, ready to be drawn: packages, nodes, L3 domains, cores and PUs with their owners,
//! memory and devices.

use nearmetal_fleet::{DeviceKind, DeviceSupply, Fleet, FleetHost, FleetPlan, NodeSupply, VmPlacement};
use nearmetal_host::ThreadRole;
use nearmetal_host::ledger::Ledger;
use nearmetal_units::{Bytes, CpuSet, PageSize};

use super::owners::{OwnerKind, Resident, SheetOwner, residents};
use super::rows::kind_words;
use super::supply;
use crate::fleet::HostPicture;
use crate::view::{HostMap, MapNode};

/// The same before and after the plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Both<T> {
    pub(crate) before: T,
    pub(crate) after: T,
}

impl<T> Both<T> {
    fn of(make: impl Fn(bool) -> T) -> Self {
        Self { before: make(false), after: make(true) }
    }

    fn is_same(&self) -> bool
    where
        T: PartialEq,
    {
        self.before == self.after
    }

    /// One of the two.
    pub(crate) fn at(&self, after: bool) -> &T {
        if after { &self.after } else { &self.before }
    }
}

/// A host to draw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HostSheet {
    pub(crate) name: String,
    /// Counts and processor, in one line.
    pub(crate) about: String,
    /// VMs of the fleet, then others.
    pub(crate) owners: Vec<SheetOwner>,
    pub(crate) packages: Vec<SheetPackage>,
    /// Devices whose node is not known.
    pub(crate) strays: Vec<SheetDevice>,
}

/// Nodes in one package.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SheetPackage {
    /// In words; empty where it is not known.
    pub(crate) name: String,
    pub(crate) nodes: Vec<SheetNode>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SheetNode {
    pub(crate) index: Option<u32>,
    /// L3 domains, each a list of cores, each a list of PUs.
    pub(crate) domains: Vec<Vec<Vec<SheetPu>>>,
    pub(crate) memory: Both<SheetMemory>,
    pub(crate) devices: Vec<SheetDevice>,
    /// Owners whose vCPUs float over the node's free PUs, and how many.
    pub(crate) floats: Both<Vec<(usize, u32)>>,
}

/// A PU.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SheetPu {
    pub(crate) index: u32,
    pub(crate) uses: Both<PuUse>,
}

/// What a PU is used for. Numbers are positions in [`HostSheet::owners`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PuUse {
    /// Nobody's.
    Free,
    /// vCPUs float over it and others.
    Shared,
    /// A vCPU of this owner; `floats` where it is a candidate only and the VM is better not pinned.
    Vcpu { owner: usize, floats: bool },
    /// Left idle for this owner: a sibling of an isolated vCPU.
    Idle(usize),
    /// vCPUs of a guest that is not of the fleet.
    Held(usize),
    /// Kept for the host; emulator threads of VMs may run there.
    Kept,
    /// Online, and not to be given: isolated from the scheduler, for one.
    LeftOut,
    /// Offline.
    Offline,
}

/// Memory of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SheetMemory {
    /// All of it; `None` where it is not known.
    pub(crate) total: Option<Bytes>,
    /// Not to be given: the host's own, its reserve, and others' beside those of `others`; `None` where it is not known.
    pub(crate) held: Option<Bytes>,
    /// Pages of guests that are not of the fleet, by owner.
    pub(crate) others: Vec<(usize, Bytes)>,
    /// By owner, with the pages it is in.
    pub(crate) uses: Vec<(usize, Bytes, Option<PageSize>)>,
    /// Free in the kernel's own pages.
    pub(crate) free: Bytes,
    /// Pools: size, free pages, pages to add first.
    pub(crate) pools: Vec<(PageSize, u64, u64)>,
}

impl SheetMemory {
    /// What the bar stands for: all memory, or what is known of it.
    pub(crate) fn scale(&self) -> Bytes {
        let pooled = self.pools.iter().fold(self.free, |sum, (size, free, _)| sum.plus(size.bytes().times(*free)));
        let others = self.others.iter().fold(Bytes::ZERO, |sum, (_, amount)| sum.plus(*amount));
        let known = pooled.plus(self.used()).plus(others).plus(self.held.unwrap_or_default());
        self.total.filter(|total| *total > known).unwrap_or(known)
    }

    /// Whether the node's memory is known, and how much of it is in use is not.
    pub(crate) fn is_untold(&self) -> bool {
        self.total.is_some() && self.held.is_none()
    }

    /// Memory of VMs of the fleet.
    pub(crate) fn used(&self) -> Bytes {
        self.uses.iter().fold(Bytes::ZERO, |sum, (_, amount, _)| sum.plus(*amount))
    }
}

/// A device, or some of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SheetDevice {
    pub(crate) name: String,
    /// How many there are to give; `None` for a shared one, and for one somebody else holds.
    pub(crate) of: Option<u32>,
    /// Owners and how many each has.
    pub(crate) grants: Both<Vec<(usize, u32)>>,
}

/// What is known of a host while its sheet is made.
struct Maker<'a> {
    host: &'a FleetHost,
    plan: &'a FleetPlan,
    ledger: Option<&'a Ledger>,
    residents: Vec<Resident<'a>>,
}

impl HostSheet {
    /// Of a host of the fleet; without a picture only what it has left is drawn.
    pub(crate) fn new(fleet: &Fleet, plan: &FleetPlan, host: &FleetHost, picture: Option<&HostPicture<'_>>) -> Self {
        let ledger = picture.map(|picture| picture.ledger);
        let maker = Maker { host, plan, ledger, residents: residents(fleet, plan, host, ledger) };
        let map = picture.map(|picture| HostMap::new(picture.host));
        let (about, nodes) = match map {
            Some(map) => {
                let about: Vec<_> = [map.counts, map.about].into_iter().filter(|text| !text.is_empty()).collect();
                (about.join(" · "), map.nodes)
            }
            None => ("drawn from what it has left: what others hold is not known here".to_owned(), supply::nodes(host)),
        };
        let mut packages: Vec<(Vec<u32>, SheetPackage)> = Vec::new();
        for node in &nodes {
            let drawn = maker.node(node);
            let same = packages.last_mut().filter(|(own, _)| *own == node.packages);
            match same {
                Some((_, package)) => package.nodes.push(drawn),
                None => {
                    let name = package_name(&node.packages);
                    packages.push((node.packages.clone(), SheetPackage { name, nodes: vec![drawn] }));
                }
            }
        }
        let strays = maker.devices(|node| node.is_none_or(|node| !nodes.iter().any(|own| own.index == Some(node))));
        Self {
            name: host.name.clone(),
            about,
            packages: packages.into_iter().map(|(_, package)| package).collect(),
            strays,
            owners: maker.residents.into_iter().map(|resident| resident.owner).collect(),
        }
    }

    /// Whether the plan changes nothing here.
    pub(crate) fn is_unchanged(&self) -> bool {
        let same = |node: &SheetNode| {
            let mut pus = node.domains.iter().flatten().flatten();
            let mut devices = node.devices.iter();
            pus.all(|pu| pu.uses.is_same())
                && devices.all(|device| device.grants.is_same())
                && node.memory.is_same()
                && node.floats.is_same()
        };
        self.nodes().all(same) && self.strays.iter().all(|device| device.grants.is_same())
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &SheetNode> {
        self.packages.iter().flat_map(|package| &package.nodes)
    }
}

fn package_name(packages: &[u32]) -> String {
    match packages {
        [] => String::new(),
        [one] => format!("package {one}"),
        many => format!("packages {}", many.iter().copied().collect::<CpuSet>()),
    }
}

impl<'a> Maker<'a> {
    /// Placements of the fleet's VMs on this host, by owner.
    fn placements(&self, after: bool) -> impl Iterator<Item = (usize, &'a VmPlacement)> {
        let at = move |resident: &Resident<'a>| if after { resident.after } else { resident.before };
        self.residents.iter().enumerate().filter_map(move |(owner, resident)| Some((owner, at(resident)?)))
    }

    fn node(&self, node: &MapNode) -> SheetNode {
        let supply = node.index.and_then(|index| self.host.nodes.iter().find(|supply| supply.index == index));
        let floats = Both::of(|after| node.index.map(|index| self.floats(index, after)).unwrap_or_default());
        let pu = |pu: &crate::view::MapPu| SheetPu {
            index: pu.index,
            uses: Both::of(|after| {
                if pu.online { self.pu(pu.index, supply, !floats.at(after).is_empty(), after) } else { PuUse::Offline }
            }),
        };
        let cores = |cores: &Vec<Vec<_>>| cores.iter().map(|core| core.iter().map(pu).collect()).collect();
        SheetNode {
            index: node.index,
            domains: node.domains.iter().map(cores).collect(),
            memory: Both::of(|after| supply.map(|own| self.memory(node, own, after)).unwrap_or_default()),
            devices: node.index.map(|index| self.devices(|node| node == Some(index))).unwrap_or_default(),
            floats,
        }
    }

    /// vCPUs on a node that have no PU of their own.
    fn floats(&self, node: u32, after: bool) -> Vec<(usize, u32)> {
        let mut floats = Vec::new();
        for (owner, placement) in self.placements(after) {
            let cells = placement.cells.iter().filter(|cell| cell.node == node && cell.pus.is_empty());
            let vcpus: u32 = cells.map(|cell| cell.vcpus).sum();
            if vcpus > 0 {
                floats.push((owner, vcpus));
            }
        }
        floats
    }

    fn pu(&self, pu: u32, supply: Option<&NodeSupply>, shared: bool, after: bool) -> PuUse {
        for (owner, placement) in self.placements(after) {
            for cell in &placement.cells {
                if cell.pus.contains(&pu) {
                    return PuUse::Vcpu { owner, floats: placement.floating.is_some() };
                }
                if cell.idle.contains(&pu) {
                    return PuUse::Idle(owner);
                }
            }
        }
        if let Some(owner) = self.holder(pu) {
            return PuUse::Held(owner);
        }
        let Some(supply) = supply else { return PuUse::LeftOut };
        if supply.housekeeping.contains(pu) {
            PuUse::Kept
        } else if supply.cores.iter().any(|core| core.free.contains(&pu)) {
            if shared { PuUse::Shared } else { PuUse::Free }
        } else {
            PuUse::LeftOut
        }
    }

    /// The guest that is not of the fleet and has a vCPU bound to this PU.
    fn holder(&self, pu: u32) -> Option<usize> {
        let vcpu = |claim: &&nearmetal_host::ledger::Claim| matches!(claim.role, ThreadRole::Vcpu(_));
        let claims = self.ledger?.on(pu).filter(vcpu);
        claims.filter_map(|claim| self.other(&claim.owner.name)).min()
    }

    fn other(&self, name: &str) -> Option<usize> {
        let other = |resident: &Resident<'_>| resident.owner.kind == OwnerKind::Other && resident.owner.name == name;
        self.residents.iter().position(other)
    }

    fn memory(&self, node: &MapNode, supply: &NodeSupply, after: bool) -> SheetMemory {
        let mut uses: Vec<(usize, Bytes, Option<PageSize>)> = Vec::new();
        for (owner, placement) in self.placements(after) {
            for cell in placement.cells.iter().filter(|cell| cell.node == supply.index && cell.memory > Bytes::ZERO) {
                uses.push((owner, cell.memory, placement.page_size));
            }
        }
        let used = |size: Option<PageSize>| {
            let own = uses.iter().filter(|(_, _, pages)| *pages == size);
            own.fold(Bytes::ZERO, |sum, (_, amount, _)| sum.plus(*amount))
        };
        let given = supply.pools.iter().fold(supply.memory, |sum, pool| sum.plus(pool.size.bytes().times(pool.free)));
        let left = self
            .plan
            .fragmentation
            .iter()
            .find(|left| after && left.node == supply.index && left.host == self.host.name);
        let added = |size: PageSize| {
            let changes = self.plan.pools.iter().filter(|change| {
                after && change.host == self.host.name && change.node == supply.index && change.size == size
            });
            changes.map(|change| change.add).sum::<u64>()
        };
        let mut pools = Vec::new();
        for pool in &supply.pools {
            let known = left.and_then(|left| left.free_pages.iter().find(|(size, _)| *size == pool.size));
            let free = known.map_or_else(
                || (pool.free + added(pool.size)).saturating_sub(used(Some(pool.size)).pages(pool.size)),
                |(_, free)| *free,
            );
            if pool.free > 0 || free > 0 || added(pool.size) > 0 || used(Some(pool.size)) > Bytes::ZERO {
                pools.push((pool.size, free, added(pool.size)));
            }
        }
        let others: Vec<(usize, Bytes)> = self
            .ledger
            .iter()
            .flat_map(|ledger| &ledger.memory)
            .filter(|used| used.node == supply.index && used.memory > Bytes::ZERO)
            .filter_map(|used| Some((self.other(&used.owner.name)?, used.memory)))
            .collect();
        let known = others.iter().fold(given, |sum, (_, amount)| sum.plus(*amount));
        // Nothing is given of a node whose free memory nobody told: that is no knowledge that others hold it.
        let told = node.memory.free.is_some() || supply.memory > Bytes::ZERO;
        SheetMemory {
            total: node.memory.total,
            held: node.memory.total.filter(|_| told).map(|total| total.less(known)),
            others,
            free: left.map_or_else(|| supply.memory.less(used(None)), |left| left.free_memory),
            uses,
            pools,
        }
    }

    /// Devices of one place: those in use first, those nobody wants last.
    fn devices(&self, here: impl Fn(Option<u32>) -> bool) -> Vec<SheetDevice> {
        let index =
            |supply: &DeviceSupply| supply.node.and_then(|at| self.host.nodes.get(at as usize)).map(|node| node.index);
        let mut devices = Vec::new();
        for (at, supply) in self.host.devices.iter().enumerate().filter(|(_, supply)| here(index(supply))) {
            let grants = Both::of(|after| self.grants(at, after));
            let shared = matches!(supply.kind, DeviceKind::Shared { .. });
            devices.push(SheetDevice { name: device_words(supply), of: (!shared).then_some(supply.free), grants });
        }
        for device in self.ledger.iter().flat_map(|ledger| &ledger.devices).filter(|device| here(device.node)) {
            let Some(owner) = device.owner.as_ref().and_then(|owner| self.other(&owner.name)) else { continue };
            let grants = Both::of(|_| vec![(owner, 1)]);
            devices.push(SheetDevice { name: device.name.clone(), of: None, grants });
        }
        let rank = |device: &SheetDevice| match (device.grants.after.is_empty(), device.grants.before.is_empty()) {
            (false, _) => 0,
            (_, false) => 1,
            _ if device.of.is_some() => 2,
            _ => 3,
        };
        devices.sort_by_key(rank);
        devices
    }

    fn grants(&self, supply: usize, after: bool) -> Vec<(usize, u32)> {
        let mut grants: Vec<(usize, u32)> = Vec::new();
        for (owner, placement) in self.placements(after) {
            let own = placement.devices.iter().filter(|grant| grant.supply as usize == supply);
            let count: u32 = own.map(|grant| grant.count).sum();
            if count > 0 {
                grants.push((owner, count));
            }
        }
        grants
    }
}

fn device_words(supply: &DeviceSupply) -> String {
    match (&supply.kind, supply.free) {
        (DeviceKind::VirtualFunctions { of }, 1) => format!("VF of {of}"),
        (DeviceKind::VirtualFunctions { of }, _) => format!("VFs of {of}"),
        (kind, _) => kind_words(kind),
    }
}
