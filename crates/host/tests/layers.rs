//! Facts about power, swap, file systems and the kernel's settings, and what their absence means.
#![allow(clippy::unwrap_used, reason = "a tree that cannot be built is a failed test")]

mod common;

use common::Tree;
use nearmetal_host::{Boost, Host, TunedProfile};
use nearmetal_units::Bytes;

fn everything() -> Tree {
    Tree::of_text(include_str!("data/everything.txt"))
}

fn read(tree: &Tree) -> Host {
    let host = Host::read(&tree.fs());
    assert_eq!(host.unreadable, []);
    host
}

#[test]
fn settings_counters_and_mounts_are_read() {
    let tree = everything();
    let host = read(&tree);
    let system = &host.system;
    let sysctl = |name: &str| system.sysctl(name);
    assert_eq!((sysctl("kernel.sched_rt_runtime_us"), sysctl("vm.stat_interval")), (Some(-1), Some(1)));
    assert_eq!(sysctl("kernel.no_such"), None);
    let filters: Vec<i64> = system.bridge_filters.iter().flatten().map(|filter| filter.value).collect();
    assert_eq!(filters, [0, 0, 1]);
    let turbo = "/sys/devices/system/cpu/intel_pstate/no_turbo".to_owned();
    assert_eq!(system.boost, Some(Boost { allowed: true, path: turbo }));
    let states: Vec<_> = system.idle_states.iter().map(|states| (states.cpu, states.states.len())).collect();
    assert_eq!(states, [(0, 1)], "PU 0 stands for its package; the isolated PU 2 shows none");
    let state = &system.idle_states[0].states[0];
    assert_eq!(
        (state.number, state.name.as_deref(), state.latency, state.disabled),
        (1, Some("C1"), Some(2), Some(false))
    );
    assert_eq!((system.throttling[0].count, system.throttling[0].time), (Some(3), Some(12)));
    assert_eq!((system.uptime, system.ksm_across_nodes, system.ksm_shared_pages), (Some(12_704), Some(true), Some(0)));
    assert_eq!(system.swap.as_ref().unwrap()[0].used, Bytes::from_mib(1));
    assert_eq!(host.mount_of("/vm images/a.raw").unwrap().option("vers"), Some("4.2"));
    assert_eq!(host.mount_of("/srv/a.raw").unwrap().kind, "ext4");
    assert_eq!(host.guests[0].swapped, Some(Bytes::from_mib(2)));
    assert_eq!(host.guests[0].vcpu_waits, [(0, 4711)]);
    let group = host.cpusets.iter().find(|group| group.version == 1).unwrap();
    assert_eq!((group.spread_page, group.spread_slab), (Some(true), Some(false)));
    assert_eq!(host.block_device("md0").unwrap().requests, Some(150));
    assert_eq!(host.block_device("dm-0").unwrap().requests, None);
    let domains: Vec<_> = host.pci_devices.iter().filter_map(|device| device.dma_domain.as_deref()).collect();
    assert_eq!(domains, ["DMA-FQ"], "of the card that has a group and a driver of the host");
}

#[test]
fn nothing_there_is_told_from_nobody_looked() {
    let tree = Tree::new();
    tree.file("/sys/devices/system/cpu/online", "0\n").directory("/sys/devices/system/cpu/cpu0");
    let system = Host::read(&tree.fs()).system;
    assert_eq!((system.bridge_filters, system.tuned, system.swap, system.boost), (None, None, None, None));
    // A source that shows the directory above says that there is none.
    tree.directory("/proc/sys/net/ipv4").directory("/etc");
    tree.file("/proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n");
    tree.file("/sys/devices/system/cpu/cpufreq/boost", "0\n");
    let system = Host::read(&tree.fs()).system;
    assert_eq!((system.bridge_filters.map(|all| all.len()), system.tuned), (Some(0), Some(TunedProfile::Absent)));
    assert_eq!(system.swap, Some(Vec::new()));
    assert_eq!(system.boost.map(|boost| boost.allowed), Some(false));
    for (text, profile) in [
        ("", TunedProfile::None),
        ("virtual-host\n", TunedProfile::Active("virtual-host".to_owned())),
        ("virtual-host  mine", TunedProfile::Active("virtual-host mine".to_owned())),
    ] {
        tree.file("/etc/tuned/active_profile", text);
        assert_eq!(Host::read(&tree.fs()).system.tuned, Some(profile));
    }
}

#[test]
fn the_latency_that_programs_allow_is_a_number_of_the_kernel() {
    let tree = everything();
    assert_eq!(read(&tree).system.idle_latency_limit, None);
    tree.file("/dev/cpu_dma_latency", 3i32.to_ne_bytes());
    assert_eq!(read(&tree).system.idle_latency_limit, Some(3));
    tree.file("/dev/cpu_dma_latency", "3\n");
    let host = Host::read(&tree.fs());
    assert_eq!((host.system.idle_latency_limit, host.unreadable.len()), (None, 1));
}

#[test]
fn a_reader_in_a_namespace_of_its_own_is_in_a_container() {
    let tree = everything();
    assert_eq!(read(&tree).system.container, None, "nobody says");
    tree.link("/proc/self", "77").link("/proc/77/ns/pid", "pid:[4026531836]");
    assert_eq!(read(&tree).system.container, Some(false));
    tree.link("/proc/77/ns/pid", "pid:[4026532177]");
    assert_eq!(read(&tree).system.container, Some(true));
    tree.link("/proc/77/ns/pid", "pid:[many]");
    let host = Host::read(&tree.fs());
    assert_eq!(host.system.container, None);
    assert!(host.unreadable.iter().any(|damage| damage.path == "/proc/self/ns/pid"), "{:?}", host.unreadable);
}

#[test]
fn mounts_are_those_of_the_first_process_or_of_the_reader() {
    let tree = everything();
    tree.file("/proc/77/mountinfo", "27 1 253:0 / / rw shared:1 - xfs /dev/dm-0 rw\n").link("/proc/self", "77");
    assert_eq!(read(&tree).mount_of("/").unwrap().kind, "ext4");
    tree.remove("/proc/1/mountinfo");
    assert_eq!(read(&tree).mount_of("/").unwrap().kind, "xfs");
    tree.remove("/proc/77/mountinfo");
    assert_eq!(read(&tree).mounts, None);
}
