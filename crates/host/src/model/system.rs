//! Kernel, name, boot, and the settings that decide how guests run.

use super::settings::{Boost, IdleStates, ProcessorTime, SwapArea, Sysctl, Throttling, TunedProfile};
use nearmetal_units::{Bytes, CpuSet, PageSize};
use serde::{Deserialize, Serialize};

/// Kernel, name and boot of a host, and settings of the whole machine. `None`: the source does not say.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct System {
    /// The host's name.
    pub hostname: Option<String>,
    /// `uname -r`.
    pub kernel: Option<String>,
    /// Changes at every boot: tells whether volatile changes can still be in force.
    pub boot_id: Option<String>,
    /// The kernel command line.
    pub command_line: Option<String>,
    /// Model name of the first processor.
    pub processor_model: Option<String>,
    /// What the first processor can do, as the kernel names it (`svm`, `avic`, `pdpe1gb`, …). Sorted; x86 alone has them.
    #[serde(default)]
    pub processor_flags: Option<Vec<String>>,
    /// Whether the kernel says it runs under a hypervisor (the `hypervisor` CPU flag).
    pub hypervisor: Option<bool>,
    /// Whether whoever read this was in a container: in a PID namespace that is not the machine's first. Its /sys is the
    /// machine's, and its /proc lacks the machine's processes. `None` where the source is not a process of that machine.
    #[serde(default)]
    pub container: Option<bool>,
    /// /proc/sys/kernel/numa_balancing.
    pub numa_balancing: Option<u64>,
    /// /proc/sys/kernel/io_uring_disabled: 0 all may use it, 1 only its group, 2 nobody.
    pub io_uring_disabled: Option<u64>,
    /// The bracketed word of /sys/kernel/mm/transparent_hugepage/enabled.
    pub transparent_hugepage: Option<String>,
    /// The bracketed word of /sys/kernel/mm/transparent_hugepage/defrag.
    #[serde(default)]
    pub transparent_hugepage_defrag: Option<String>,
    /// /sys/kernel/mm/ksm/run: 0 stopped, 1 merging, 2 stopped and unmerged.
    #[serde(default)]
    pub ksm: Option<u64>,
    /// /proc/sys/vm/swappiness.
    #[serde(default)]
    pub swappiness: Option<u64>,
    /// /proc/sys/vm/zone_reclaim_mode.
    #[serde(default)]
    pub zone_reclaim_mode: Option<u64>,
    /// The clock source in use (`tsc`, `kvm-clock`, …).
    #[serde(default)]
    pub clocksource: Option<String>,
    /// /sys/devices/system/cpu/smt/control: `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    #[serde(default)]
    pub smt: Option<String>,
    /// PUs kept from the scheduler (`isolcpus=`); empty: none.
    #[serde(default)]
    pub isolated: Option<CpuSet>,
    /// PUs without the scheduler's tick (`nohz_full=`); empty: none.
    #[serde(default)]
    pub nohz_full: Option<CpuSet>,
    /// Drivers and governors of processor frequency, each with its PUs; empty where the kernel scales none.
    #[serde(default)]
    pub frequency: Vec<FrequencyPolicy>,
    /// Driver of idle states (`intel_idle`, `acpi_idle`, `none`, …).
    #[serde(default)]
    pub idle_driver: Option<String>,
    /// Governor of idle states (`menu`, `teo`, `haltpoll`, …).
    #[serde(default)]
    pub idle_governor: Option<String>,
    /// What the kernel says of each processor vulnerability and its mitigation, by name.
    #[serde(default)]
    pub vulnerabilities: Vec<Setting>,
    /// Parameters of the modules `kvm`, `kvm_intel`, `kvm_amd`, `vfio*`, `vhost_net` and, in guests, `haltpoll`, named
    /// `module.parameter`.
    #[serde(default)]
    pub module_parameters: Vec<Setting>,
    /// Hugepages of the whole machine by size: reservations are counted here, not by node.
    #[serde(default)]
    pub hugepages: Vec<HugepageTotal>,
    /// Numbers under /proc/sys that decide how guests run; what a kernel does not have is not listed.
    #[serde(default)]
    pub sysctls: Vec<Sysctl>,
    /// `net.bridge.bridge-nf-call-*`: whether bridged frames pass the host's packet filters. Empty where `br_netfilter`
    /// is not loaded.
    #[serde(default)]
    pub bridge_filters: Option<Vec<Sysctl>>,
    /// What tuned was told.
    #[serde(default)]
    pub tuned: Option<TunedProfile>,
    /// Frequencies above the nominal one.
    #[serde(default)]
    pub boost: Option<Boost>,
    /// The longest way out of an idle state that any program allows now, in µs (/dev/cpu_dma_latency).
    #[serde(default)]
    pub idle_latency_limit: Option<u64>,
    /// Idle states of one PU for each package, and of the first isolated PU.
    #[serde(default)]
    pub idle_states: Vec<IdleStates>,
    /// Packages that were slowed down by heat; empty where the kernel does not count (it does on Intel's).
    #[serde(default)]
    pub throttling: Vec<Throttling>,
    /// What processors did since boot.
    #[serde(default)]
    pub processor_time: Option<ProcessorTime>,
    /// Seconds since boot.
    #[serde(default)]
    pub uptime: Option<u64>,
    /// Swap areas; empty: none.
    #[serde(default)]
    pub swap: Option<Vec<SwapArea>>,
    /// Whether same-page merging joins pages of different nodes.
    #[serde(default)]
    pub ksm_across_nodes: Option<bool>,
    /// Pages that stand for several merged ones now.
    #[serde(default)]
    pub ksm_shared_pages: Option<u64>,
    /// MemTotal of the whole machine (/proc/meminfo); what nodes have together should be the same.
    #[serde(default)]
    pub memory_total: Option<Bytes>,
    /// Whether KVM runs guest code on the processor rather than emulating it; `None` where no guest was tried.
    #[serde(default)]
    pub kvm_accelerates: Option<bool>,
    /// Version of libvirt's daemon, `10.0.0`; `None` where it was not asked.
    #[serde(default)]
    pub libvirt_version: Option<String>,
    /// Version of QEMU by libvirt's word, `9.2.0`; `None` where it was not asked.
    #[serde(default)]
    pub qemu_version: Option<String>,
}

impl System {
    /// Major and minor version of the kernel.
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self.kernel.as_deref()?.split(['.', '-']).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }

    /// Words of the kernel command line as (name, value); `None` for a bare word.
    pub fn kernel_arguments(&self) -> impl DoubleEndedIterator<Item = (&str, Option<&str>)> {
        let words = self.command_line.as_deref().unwrap_or_default().split_ascii_whitespace();
        words.map(|word| word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))))
    }

    /// A number under /proc/sys by its sysctl name, `vm.swappiness`; `None` where it is not known or not there.
    pub fn sysctl(&self, name: &str) -> Option<i64> {
        self.sysctls.iter().find(|sysctl| sysctl.name == name).map(|sysctl| sysctl.value)
    }

    /// Whether the first processor can do this; `None` where the architecture names no flags.
    pub fn has_flag(&self, flag: &str) -> Option<bool> {
        let flags = self.processor_flags.as_ref()?;
        Some(flags.binary_search_by(|known| known.as_str().cmp(flag)).is_ok())
    }
}

/// A name and what the kernel says for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// The kernel's text.
    pub value: String,
}

/// How the frequency of some PUs is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequencyPolicy {
    /// `intel_pstate`, `amd-pstate-epp`, `acpi-cpufreq`, ….
    pub driver: Option<String>,
    /// `performance`, `powersave`, `schedutil`, ….
    pub governor: Option<String>,
    /// PUs under it.
    pub cpus: CpuSet,
}

/// Hugepages of one size on the whole machine. Counts are pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepageTotal {
    /// Page size.
    pub size: PageSize,
    /// Pages that exist.
    pub total: Option<u64>,
    /// Free pages, reserved ones included.
    pub free: Option<u64>,
    /// Pages promised to a mapping and not touched yet.
    pub reserved: Option<u64>,
    /// Pages beyond the pool.
    pub surplus: Option<u64>,
    /// Surplus pages allowed.
    pub overcommit: Option<u64>,
}

impl HugepageTotal {
    /// Memory in pages that are free and promised to nobody.
    pub fn available(&self) -> Option<Bytes> {
        Some(self.size.bytes().times(self.free?.saturating_sub(self.reserved?)))
    }
}
