//! What VMs that ask for the same share.

use nearmetal_place::WorkloadClass;

use super::node::CpuKind;
use super::state::Piece;
use crate::model::{DeviceDemand, GuestNuma, HostSelector, Locality, SmtPolicy, Vm};

/// How a VM lies on nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Cells {
    /// One node, or as few as can be.
    Free,
    /// So many nodes, evenly.
    Fixed(u32),
}

/// Everything that decides where a VM can be, apart from its groups.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) cells: Cells,
    /// The guest sees the nodes it gets.
    pub(crate) mirrors: bool,
    pub(crate) vcpus: u32,
    pub(crate) kind: CpuKind,
    pub(crate) class: usize,
    pub(crate) pages: u64,
    pub(crate) demands: Vec<Demand>,
    /// It lives on memory bandwidth or the lack of neighbours: class throughput or latency.
    pub(crate) heavy: bool,
    /// Hosts its selector allows, by index; empty: all.
    pub(crate) hosts: Vec<bool>,
}

/// Devices of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Index of the selector.
    pub(crate) selector: usize,
    pub(crate) count: u32,
    pub(crate) locality: Locality,
}

/// What makes two VMs the same shape.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShapeKey {
    cells: Cells,
    mirrors: bool,
    vcpus: u32,
    kind: CpuKind,
    class: usize,
    pages: u64,
    heavy: bool,
    pub(crate) demands: Vec<DeviceDemand>,
    pub(crate) hosts: HostSelector,
}

impl ShapeKey {
    pub(crate) fn of(vm: &Vm, class: usize, mib: u64) -> Self {
        let bytes = vm.memory.get();
        Self {
            cells: match vm.numa {
                GuestNuma::Cells(count) if count > 1 => Cells::Fixed(count),
                // One cell asked for is one whole node, never more.
                GuestNuma::Cells(_) => Cells::Fixed(1),
                GuestNuma::Hidden | GuestNuma::Mirror => Cells::Free,
            },
            mirrors: vm.numa == GuestNuma::Mirror,
            vcpus: vm.vcpus,
            kind: CpuKind { smt: vm.smt, sharing: vm.sharing() },
            class,
            pages: bytes.div_ceil(mib << 20),
            heavy: matches!(vm.class, WorkloadClass::Throughput | WorkloadClass::Latency),
            demands: vm.devices.clone(),
            hosts: match &vm.current {
                // One that has no place inside its host to keep still keeps the host.
                Some(current) if !vm.movable && current.cells.is_empty() => {
                    HostSelector { names: vec![current.host.clone()], labels: vm.hosts.labels.clone() }
                }
                _ => vm.hosts.clone(),
            },
        }
    }

    pub(crate) fn shape(&self, demands: Vec<Demand>, hosts: Vec<bool>) -> Shape {
        Shape {
            cells: self.cells,
            mirrors: self.mirrors,
            vcpus: self.vcpus,
            kind: self.kind,
            class: self.class,
            pages: self.pages,
            demands,
            heavy: self.heavy,
            hosts,
        }
    }
}

impl Shape {
    /// vCPUs and pages of cell `index` of `count`: vCPUs evenly, the first cells one more; memory by vCPUs. With as many
    /// cells as vCPUs or fewer.
    pub(crate) fn cell(&self, index: u32, count: u32) -> (u32, u64) {
        let start = |cell: u32| (u64::from(self.vcpus) * u64::from(cell)).div_ceil(u64::from(count.max(1)));
        let (low, high) = (start(index), start(index + 1));
        let vcpus = (high - low) as u32;
        let pages_until = |vcpu: u64| ((u128::from(self.pages) * u128::from(vcpu)) / u128::from(self.vcpus)) as u64;
        (vcpus, pages_until(high) - pages_until(low))
    }

    /// Whether the guest can be shown what it is shown of these nodes: a cell has vCPUs and memory.
    pub(crate) fn can_show(&self, pieces: &[Piece]) -> bool {
        !self.mirrors || pieces.iter().all(|piece| piece.vcpus > 0 && piece.pages > 0)
    }

    /// Whether the host's class of cores can carry it at all.
    pub(crate) fn threads_suit(&self, threads: u32) -> bool {
        self.kind.smt != SmtPolicy::Require || threads >= 2 || !self.is_dedicated()
    }

    pub(crate) fn is_dedicated(&self) -> bool {
        self.kind.sharing == crate::model::CpuSharing::Dedicated
    }
}
