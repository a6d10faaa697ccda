//! One node as numbers: what it has, what is used of it, and whether more fits. The order VMs came in makes no
//! difference, so that taking one away is a subtraction.

use crate::model::{CpuSharing, NodeSupply, SmtPolicy};

/// Page classes told apart: the kernel's own pages, and three pool sizes.
pub(crate) const PAGE_CLASSES: usize = 4;
/// The class of the kernel's own pages, counted in MiB.
pub(crate) const KERNEL: usize = 0;
/// A PU in the unit shared vCPUs are counted in.
pub(crate) const MILLI: u64 = 1000;

/// What a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct NodeCap {
    /// PUs of a core, the most on this node.
    pub(crate) threads: u32,
    /// Whole free cores of so many PUs.
    pub(crate) full: u32,
    /// Whole free cores of one PU on a node that has larger ones too.
    pub(crate) single: u32,
    /// Other free PUs: their cores are used in part.
    pub(crate) partial: u32,
    /// Pages by class.
    pub(crate) pages: [u64; PAGE_CLASSES],
    /// Bit k: pool k may grow from the kernel's memory.
    pub(crate) grows: u8,
}

/// What is used of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct NodeUse {
    /// Cores of isolated vCPUs.
    pub(crate) isolated: u32,
    /// Cores of VMs that require siblings.
    pub(crate) required: u32,
    /// PUs those leave to others.
    pub(crate) left: u32,
    /// PUs of all other dedicated vCPUs.
    pub(crate) flexible: u32,
    /// Shared vCPUs, in thousandths of a PU.
    pub(crate) shared: u64,
    /// Pages by class.
    pub(crate) pages: [u64; PAGE_CLASSES],
    /// VMs with vCPUs or memory here.
    pub(crate) vms: u32,
}

/// How many MiB a page of each class has.
pub(crate) type PageMib = [u64; PAGE_CLASSES];

/// The part of a VM that decides how its vCPUs count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct CpuKind {
    pub(crate) smt: SmtPolicy,
    pub(crate) sharing: CpuSharing,
}

/// Shared vCPUs in thousandths of a PU, rounded up.
pub(crate) fn milli(vcpus: u32, ratio_percent: u32) -> u64 {
    (u64::from(vcpus) * 100 * MILLI).div_ceil(u64::from(ratio_percent.max(1)))
}

impl NodeCap {
    /// `held`: PUs of the host that VMs which stay have.
    pub(crate) fn of(
        node: &NodeSupply,
        sizes: &[Option<nearmetal_units::PageSize>],
        held: Option<&std::collections::BTreeSet<u32>>,
    ) -> Self {
        let threads = node.cores.iter().map(|core| core.threads).max().unwrap_or(1).max(1);
        let mut cap = Self { threads, ..Self::default() };
        for core in &node.cores {
            let is_free = |pu: &&u32| held.is_none_or(|held| !held.contains(pu));
            let free = core.free.iter().filter(is_free).count() as u32;
            match (free == core.threads, core.threads == threads) {
                (true, true) => cap.full += 1,
                (true, false) if free == 1 => cap.single += 1,
                _ => cap.partial += free,
            }
        }
        for (class, size) in sizes.iter().enumerate() {
            match size {
                None => cap.pages[class] = node.memory.get() >> 20,
                Some(size) => {
                    let pool = node.pools.iter().find(|pool| pool.size == *size);
                    cap.pages[class] = pool.map_or(0, |pool| pool.free);
                    if pool.is_some_and(|pool| pool.may_grow) {
                        cap.grows |= 1 << class;
                    }
                }
            }
        }
        cap
    }

    /// All PUs.
    pub(crate) fn pus(&self) -> u32 {
        self.threads * self.full + self.single + self.partial
    }

    /// Whether the use is within what there is.
    pub(crate) fn holds(&self, used: &NodeUse, mib: &PageMib) -> bool {
        self.free_pus(used).is_some() && self.memory_holds(used, mib)
    }

    fn memory_holds(&self, used: &NodeUse, mib: &PageMib) -> bool {
        let mut kernel = used.pages[KERNEL];
        for (class, mib) in mib.iter().enumerate().skip(1) {
            let over = used.pages[class].saturating_sub(self.pages[class]);
            if over > 0 {
                if self.grows & (1 << class) == 0 {
                    return false;
                }
                kernel += over * mib;
            }
        }
        kernel <= self.pages[KERNEL]
    }

    /// PUs left to flexible vCPUs; `None` if the use is too much already.
    pub(crate) fn free_pus(&self, used: &NodeUse) -> Option<u32> {
        let isolated_full = used.isolated.saturating_sub(self.single);
        let whole = isolated_full + used.required;
        if whole > self.full {
            return None;
        }
        let singles = self.single.saturating_sub(used.isolated);
        let there = self.threads * (self.full - whole) + singles + self.partial + used.left;
        let taken = u64::from(used.flexible) + used.shared.div_ceil(MILLI);
        u32::try_from(u64::from(there).checked_sub(taken)?).ok()
    }

    /// The most vCPUs of a kind that still fit, memory aside.
    pub(crate) fn room(&self, used: &NodeUse, kind: CpuKind) -> u32 {
        let Some(free) = self.free_pus(used) else { return 0 };
        if let CpuSharing::Shared { ratio_percent } = kind.sharing {
            let there = u64::from(free) * MILLI + (used.shared.div_ceil(MILLI) * MILLI - used.shared);
            return u32::try_from(there * u64::from(ratio_percent) / (100 * MILLI)).unwrap_or(u32::MAX);
        }
        match kind.smt {
            SmtPolicy::Prefer | SmtPolicy::None => free,
            SmtPolicy::Require if self.threads < 2 => 0,
            SmtPolicy::Require | SmtPolicy::Isolate => {
                // Monotone: the most that fits is found by halving.
                let (mut low, mut high) = (0, self.pus());
                while low < high {
                    let middle = low + (high - low).div_ceil(2);
                    let mut more = *used;
                    more.add_cpus(middle, kind, self.threads);
                    if self.free_pus(&more).is_some() { low = middle } else { high = middle - 1 }
                }
                low
            }
        }
    }

    /// Pages of a class still to be had, those a pool may grow by included.
    pub(crate) fn free_pages(&self, used: &NodeUse, class: usize, mib: &PageMib) -> u64 {
        let mut kernel = self.pages[KERNEL].saturating_sub(used.pages[KERNEL]);
        for (other, mib) in mib.iter().enumerate().skip(1) {
            kernel = kernel.saturating_sub(used.pages[other].saturating_sub(self.pages[other]) * mib);
        }
        if class == KERNEL {
            return kernel;
        }
        let pool = self.pages[class].saturating_sub(used.pages[class]);
        if self.grows & (1 << class) == 0 { pool } else { pool + kernel / mib[class].max(1) }
    }
}

impl NodeUse {
    /// vCPUs of one VM on this node.
    pub(crate) fn add_cpus(&mut self, vcpus: u32, kind: CpuKind, threads: u32) {
        match (kind.sharing, kind.smt) {
            (CpuSharing::Shared { ratio_percent }, _) => self.shared += milli(vcpus, ratio_percent),
            (_, SmtPolicy::Isolate) => self.isolated += vcpus,
            (_, SmtPolicy::Require) => {
                let cores = vcpus.div_ceil(threads);
                self.required += cores;
                self.left += cores * threads - vcpus;
            }
            _ => self.flexible += vcpus,
        }
    }

    /// The reverse of [`Self::add_cpus`].
    pub(crate) fn remove_cpus(&mut self, vcpus: u32, kind: CpuKind, threads: u32) {
        match (kind.sharing, kind.smt) {
            (CpuSharing::Shared { ratio_percent }, _) => self.shared -= milli(vcpus, ratio_percent),
            (_, SmtPolicy::Isolate) => self.isolated -= vcpus,
            (_, SmtPolicy::Require) => {
                let cores = vcpus.div_ceil(threads);
                self.required -= cores;
                self.left -= cores * threads - vcpus;
            }
            _ => self.flexible -= vcpus,
        }
    }
}
