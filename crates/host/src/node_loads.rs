//! Which loads a processor counts as `node-loads`: all that went to memory, or those to the own node's memory alone.

use crate::HostFs;
use crate::read::{FIRST_BLOCK, cpuinfo_field};

/// Models of Intel's family 6, from Nehalem to Ivy Bridge, that count all loads (Linux arch/x86/events/intel/core.c, `intel_pmu_init` with
/// `nehalem_hw_cache_extra_regs` and `snb_hw_cache_extra_regs`).
const COUNT_ALL: &[&str] = &["26", "30", "31", "46", "37", "44", "47", "42", "45", "58", "62"];

/// What the kernel's generic event `node-loads` counts. `node-load-misses` are loads that another node answered, on all
/// processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLoads {
    /// Loads that any memory answered: Intel before Haswell (`NHM_LOCAL|NHM_REMOTE`, `SNB_DRAM_ANY`), and AMD (`CPU Request to
    /// Memory, l+r`, arch/x86/events/amd/core.c).
    Any,
    /// Loads that the own node's memory answered: Intel from Haswell on (`HSW_L3_MISS_LOCAL_DRAM`).
    Own,
}

impl NodeLoads {
    /// What they are on this processor.
    pub fn of(fs: &HostFs) -> Self {
        let cpuinfo = fs.read_head("/proc/cpuinfo", FIRST_BLOCK).unwrap_or_default();
        let is = |name: &str, value: &str| cpuinfo_field(&cpuinfo, name) == Some(value);
        let counts_all = || {
            let model = cpuinfo_field(&cpuinfo, "model");
            is("cpu family", "6") && model.is_none_or(|model| COUNT_ALL.contains(&model))
        };
        let counts_own = is("vendor_id", "GenuineIntel") && !counts_all();
        if counts_own { Self::Own } else { Self::Any }
    }

    /// All loads that memory answered, of both counts.
    pub fn all(self, loads: u64, misses: u64) -> u64 {
        match self {
            Self::Any => loads,
            Self::Own => loads.saturating_add(misses),
        }
    }

    /// Loads that the own node's memory answered. The two counts are read one after the other.
    pub fn own(self, loads: u64, misses: u64) -> u64 {
        match self {
            Self::Any => loads.saturating_sub(misses),
            Self::Own => loads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, MemoryTree};

    fn on(vendor: &str, family: u32, model: u32) -> NodeLoads {
        let mut tree = MemoryTree::new();
        let text =
            format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nx\t: y\n");
        tree.put("/proc/cpuinfo", Entry::File(text.into_bytes())).unwrap();
        NodeLoads::of(&HostFs::of_tree(tree, "a processor"))
    }

    #[test]
    fn intel_counts_the_own_nodes_from_haswell_on_and_all_others_count_all() {
        for (model, name) in [(44, "Westmere-EP"), (45, "Sandy Bridge-EP"), (62, "Ivy Bridge-EP")] {
            assert_eq!(on("GenuineIntel", 6, model), NodeLoads::Any, "{name}");
        }
        for (model, name) in [(63, "Haswell-EP"), (85, "Skylake-SP"), (106, "Ice Lake-SP"), (143, "Sapphire Rapids")] {
            assert_eq!(on("GenuineIntel", 6, model), NodeLoads::Own, "{name}");
        }
        assert_eq!(on("GenuineIntel", 19, 1), NodeLoads::Own, "families to come");
        assert_eq!(on("AuthenticAMD", 25, 1), NodeLoads::Any);
        assert_eq!(NodeLoads::of(&HostFs::of_tree(MemoryTree::new(), "unknown")), NodeLoads::Any);
    }

    #[test]
    fn ninety_near_and_ten_far_are_so_however_they_are_counted() {
        assert_eq!((NodeLoads::Any.all(100, 10), NodeLoads::Any.own(100, 10)), (100, 90));
        assert_eq!((NodeLoads::Own.all(90, 10), NodeLoads::Own.own(90, 10)), (100, 90));
        assert_eq!(NodeLoads::Any.own(1, 2), 0, "they were read one after the other");
    }
}
