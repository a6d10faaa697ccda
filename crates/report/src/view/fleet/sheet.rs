//! One host before and after a plan, ready to be drawn: packages, nodes, L3 domains, cores and PUs with their owners,
//! memory and devices.

use nearmetal_fleet::{Fleet, FleetHost, FleetPlan};
use nearmetal_units::{Bytes, CpuSet, PageSize};

use super::maker::Maker;
use super::owners::{SheetOwner, residents};
use super::supply;
use crate::fleet::HostPicture;
use crate::view::HostMap;

/// The same before and after the plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Both<T> {
    pub(crate) before: T,
    pub(crate) after: T,
}

impl<T> Both<T> {
    pub(super) fn of(make: impl Fn(bool) -> T) -> Self {
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
