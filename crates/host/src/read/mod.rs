//! Filling a [`Host`] from [`HostFs`]: one module for each kind of thing.

mod block;
mod caches;
mod cpusets;
mod groups;
mod interrupts;
mod kinds;
mod mounts;
mod network;
mod node_memory;
mod nodes;
mod pci;
mod pci_details;
mod power;
mod processor_time;
mod processors;
mod routes;
mod settings;
mod system;
mod tunables;
mod tuning;

pub use block::{DiskCounters, disk_counters};
pub(crate) use nodes::whole_machine;
pub(crate) use system::{FIRST_BLOCK, cpuinfo_field};

use crate::facts::Facts;
use crate::{Host, HostFs, guests};

impl Host {
    /// Reads a whole host. Never fails: what cannot be understood is in [`Host::unreadable`], what this user may not
    /// read in [`Host::denied`], and what is not there is `None`.
    pub fn read(fs: &HostFs) -> Self {
        let mut facts = Facts::new(fs);
        let mut system = system::read(&mut facts);
        let tuning = tuning::read(&mut facts);
        let listing = processors::list(&mut facts);
        let nodes = nodes::read(&mut facts, &listing.online);
        let mut processors = processors::read(&mut facts, &listing, &nodes);
        let cores = processors::cores(&processors);
        let caches = caches::read(&mut facts, &mut processors, &listing.online);
        let groups = groups::read(&mut facts, &processors, &listing.online);
        let sample = power::sample(&groups.packages, system.isolated.as_ref(), &listing.online);
        system.idle_states = power::idle_states(&mut facts, &sample);
        system.throttling = power::throttling(&mut facts, &sample, &groups.packages);
        let pci_devices = pci::read(&mut facts, &nodes);
        let block_devices = block::read(&mut facts, &pci_devices);
        let network_interfaces = network::read(&mut facts, &pci_devices);
        let core_kinds = kinds::read(&mut facts, &listing.online);
        let interrupts = interrupts::read(&mut facts, &pci_devices);
        let cpusets = cpusets::read(&mut facts);
        let mounts = mounts::read(&mut facts);
        let guests = guests::read_all(&mut facts);
        let memory_groups = tuning::memory_groups(&mut facts, &guests);
        facts.denied.sort_unstable();
        facts.denied.dedup();
        Self {
            source: fs.describe().to_owned(),
            system,
            tuning,
            processors,
            cores,
            packages: groups.packages,
            dies: groups.dies,
            clusters: groups.clusters,
            books: groups.books,
            drawers: groups.drawers,
            caches,
            core_kinds,
            nodes,
            pci_devices,
            block_devices,
            network_interfaces,
            interrupts,
            cpusets,
            mounts,
            // No file of /sys or /proc tells these: who needs them asks, on the machine itself.
            images: Vec::new(),
            open_vswitch: None,
            guests,
            memory_groups,
            unreadable: facts.unreadable,
            denied: facts.denied,
        }
    }
}

/// Parsers of single files, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_targets() -> Vec<crate::fuzzing::Target> {
    use crate::fuzzing::Target;
    vec![
        Target::text("block counters", "1 2 3 4 5 6 7 8 9 10 11\n", |text| drop(block::counters(text))),
        Target::text("block number", "259:1", |text| drop(block::device_number(text))),
        Target::text("cache kind", "Unified", |text| drop(caches::kind(text))),
        Target::text("cache size", "32768K", |text| drop(caches::size(text))),
        Target::text("hardware address", "52:54:00:12:34:56", |text| drop(network::mac(text))),
        Target::text("node meminfo", "Node 0 MemTotal: 1024 kB\nNode 0 MemFree: 512 kB\n", |text| {
            drop((nodes::meminfo(text, "MemTotal:"), nodes::meminfo(text, "MemFree:")));
        }),
        Target::text("pool size", "2048kB", |text| drop(nodes::pool_size(text))),
        Target::text("PCI class and identity", "0x010802", |text| drop((pci::class(text), pci::identity(text)))),
        Target::text("function in a path", "/sys/devices/pci0000:00/0000:00:1f.2/host4/block/sda", |text| {
            let _ = pci::function_in_path(text);
        }),
        Target::text("link speed and width", "8.0 GT/s PCIe", |text| {
            drop((pci_details::speed(text), pci_details::width(text)));
        }),
        Target::text("PCI regions", "0x00000000febc0000 0x00000000febdffff 0x0000000000040200\n", |text| {
            drop(pci_details::regions(text));
        }),
        Target::bytes("access control", &[0x0d, 0, 1, 0, 0x1f, 0, 0x1d, 0], |bytes| {
            let mut config = vec![0; 0x100];
            config.extend(bytes);
            config.resize(4096, 0);
            let _ = pci_details::find_access_control(&config);
        }),
        Target::text("default routes", "Iface\tDestination\tGateway\nbr0\t0\t0\t3\t0\t0\t0\t0\n", |text| {
            drop((routes::fourth(text), routes::sixth(text)));
        }),
        Target::text("processor time", "cpu  10 0 20 60 5 0 0 5 9 0\ncpu0 1\n", |text| {
            drop(processor_time::processor_time(text));
        }),
        Target::text("PUs with spaces", "0 1 2 3", |text| drop((settings::spaced(text), settings::list_or_null(text)))),
        Target::text("swap areas", "Filename Type Size Used Priority\n/swap\\040a file 1048572 0 -2\n", |text| {
            drop(tunables::swap_areas(text));
        }),
        Target::text("uptime", "12704.28 5964.14", |text| drop(tunables::uptime(text))),
        Target::text(
            "mountinfo",
            "36 35 98:0 / /vm\\040images rw,noatime master:1 - ext4 /dev/vda1 rw,vers=4.2\n",
            |text| {
                let Ok(found) = mounts::mounts(text) else { return };
                let host = Host { mounts: Some(found), ..Host::default() };
                let _ = host.mount_of("/vm images/a.raw");
            },
        ),
        Target::bytes("idle latency limit", &70i32.to_ne_bytes(), |bytes| _ = power::latency_limit(bytes)),
        Target::text("resume latency", "n/a", |text| drop(power::resume_latency(text))),
        Target::text("namespace", "pid:[4026531836]", |text| drop(system::pid_namespace(text))),
        Target::text("cpuinfo", "model name\t: AMD EPYC\nflags\t: fpu hypervisor\n\n", |text| {
            drop((system::model_name(text), system::processor_flags(text)));
        }),
        Target::text("write cache", "write back", |text| drop(tuning::write_cache(text))),
        Target::text("memory events", "low 0\nhigh 3\nmax 1\noom 0\n", |text| {
            let _ = (tuning::count(text, "high"), tuning::count(text, "oom"));
        }),
        Target::text("group of a process", "/machine.slice/machine-qemu.scope/libvirt/vcpu0", |text| {
            let _ = tuning::scope(text);
        }),
        Target::text("version", "Linux version 6.1.0-9 (x@y) #1 SMP", |text| {
            drop((system::release_in_version(text), system::boot_id(text)));
        }),
    ]
}
