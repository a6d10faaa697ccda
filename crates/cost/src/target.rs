//! Whose counters are read: guests or programs of the host, and the PUs that are theirs.

use std::collections::BTreeMap;

use nearmetal_counters::TimeModel;
use nearmetal_host::{HostFs, ThreadRole, TimeModelError, guests, online_pus};
use nearmetal_units::{Bytes, CpuSet};

/// Whose counters are read.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// QEMU processes of the guests measured; none on bare metal.
    pub guests: Vec<u32>,
    /// The vCPUs' PUs.
    pub slice: CpuSet,
    /// PUs of emulator threads and iothreads beside them.
    pub on_top: CpuSet,
    /// Whether the vCPUs may run on every PU, so that every PU's time may be theirs.
    pub floats: bool,
    /// Whether there are more PUs for the vCPUs than vCPUs: whoever else runs there need not be in their way.
    pub roams: bool,
    /// Distance from each PU to each node; what the host does not tell is missing.
    pub distances: BTreeMap<(u32, u32), u32>,
    /// The lab's model of time. Reading it takes thousands of instructions, which are not to be counted.
    pub time_model: Option<Result<TimeModel, TimeModelError>>,
    /// The requests that are done meanwhile, where all have one size.
    pub requests: Option<Requests>,
}

/// Requests of one size.
#[derive(Debug, Clone)]
pub struct Requests {
    /// Of each.
    pub size: Bytes,
    /// The host's devices that bare metal sends them to, by kernel name; what guests ask for goes through their QEMU.
    pub devices: Vec<String>,
}

impl Target {
    /// The same with the PUs that the guests' threads may run on, by their affinity: a guest as it was found may be pinned to
    /// others than the plan's slice, or to none. What bare metal is bound to stays, and so does the slice where the affinity of
    /// a guest's vCPUs cannot be read.
    pub fn where_pinned(mut self, fs: &HostFs) -> Self {
        let (mut vcpus, mut others, mut count) = (CpuSet::new(), CpuSet::new(), 0);
        for guest in &self.guests {
            let mut of_guest = CpuSet::new();
            for thread in guests::threads(fs, *guest).unwrap_or_default() {
                let is_vcpu = matches!(thread.role, ThreadRole::Vcpu(_));
                count += usize::from(is_vcpu);
                let pus = if is_vcpu { &mut of_guest } else { &mut others };
                *pus = pus.union(&thread.affinity.unwrap_or_default());
            }
            if of_guest.is_empty() {
                return self;
            }
            vcpus = vcpus.union(&of_guest);
        }
        if vcpus.is_empty() {
            return self;
        }
        self.roams = vcpus.len() > count;
        self.floats = online_pus(fs).is_some_and(|online| online.is_subset(&vcpus));
        if !self.floats {
            (self.on_top, self.slice) = (others.difference(&vcpus), vcpus);
        }
        self
    }

    /// The PUs on which whatever else runs is in the way: all of its own, or those of the vCPUs if its other threads may run
    /// anywhere.
    pub(super) fn undisturbed(&self, online: &CpuSet) -> CpuSet {
        let own = self.slice.union(&self.on_top);
        if !online.is_empty() && online.is_subset(&own) { self.slice.clone() } else { own }
    }

    /// Whether programs of the host's are measured, and no guest.
    pub(super) fn is_bare(&self) -> bool {
        self.guests.is_empty()
    }

    /// What costs on a PU are counted as.
    pub(super) fn place(&self, pu: u32) -> &'static str {
        match pu {
            pu if self.slice.contains(pu) => "pus-of-the-slice",
            pu if self.on_top.contains(pu) => "pus-on-top",
            _ => "other-pus",
        }
    }
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};

    use super::*;

    #[test]
    fn a_guest_is_counted_where_its_threads_may_run() {
        let pinned = |vcpu: &str, emulator: &str| {
            let mut tree = MemoryTree::new();
            let mut put = |path: &str, text: String| tree.put(path, Entry::File(text.into_bytes())).unwrap();
            put("/sys/devices/system/cpu/online", "0-7\n".to_owned());
            for (thread, name, pus) in [(7, "qemu-system-x86", emulator), (8, "CPU 0/KVM", vcpu)] {
                put(&format!("/proc/7/task/{thread}/comm"), format!("{name}\n"));
                put(&format!("/proc/7/task/{thread}/status"), format!("Name:\t{name}\nCpus_allowed_list:\t{pus}\n"));
            }
            let planned = Target {
                guests: vec![7],
                slice: "0-1".parse().unwrap(),
                on_top: "2".parse().unwrap(),
                ..Target::default()
            };
            let target = planned.where_pinned(&HostFs::of_tree(tree, "a guest"));
            let undisturbed = target.undisturbed(&"0-7".parse().unwrap());
            assert_eq!(target.roams, vcpu.contains('-'), "{vcpu}");
            (target.slice.to_string(), target.on_top.to_string(), target.floats, undisturbed.to_string())
        };
        let said = |slice: &str, on_top: &str, floats, undisturbed: &str| {
            (slice.to_owned(), on_top.to_owned(), floats, undisturbed.to_owned())
        };
        assert_eq!(pinned("4-5", "6"), said("4-5", "6", false, "4-6"), "elsewhere");
        assert_eq!(pinned("0-1", "2"), said("0-1", "2", false, "0-2"), "as planned");
        assert_eq!(pinned("4", "0-7"), said("4", "0-3,5-7", false, "4"), "the emulator anywhere");
        assert_eq!(pinned("0-7", "0-7"), said("0-1", "2", true, "0-2"), "nowhere");
        assert_eq!(pinned("what", "0-7"), said("0-1", "2", false, "0-2"), "what cannot be read is as planned");
    }
}
