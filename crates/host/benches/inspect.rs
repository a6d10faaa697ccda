//! How long it takes to know a machine: this one, and a large one made of files.
//!
//! Prints a table, and writes the same as JSON to target/bench/host.json.
#![allow(clippy::disallowed_methods, reason = "the bench builds the tree that HostFs reads")]
#![allow(clippy::print_stdout, reason = "a bench prints")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_host::{Document, Host, HostFs, text};
use nearmetal_units::Bytes;

const RUNS: usize = 15;

/// What reading a host of 4096 PUs may take; the process also holds the host it was made from.
const MEMORY_LIMIT: Bytes = Bytes::from_mib(100);

struct Line {
    what: &'static str,
    pus: usize,
    pci: usize,
    median: Duration,
    worst: Duration,
    /// Time this process itself ran, at the median: other load on the machine does not lengthen it.
    own: Option<Duration>,
    limit: Option<Duration>,
}

fn main() {
    let live = HostFs::live();
    let large = Synthetic::new()
        .packages(16)
        .nodes_per_package(4)
        .caches_per_node(4)
        .cores_per_node(32)
        .threads(2)
        .numbering(Numbering::Split);
    let large = (0..512).fold(large, |host, device| host.nvme(device % 64)).build();
    // In memory where there is such a place, as the kernel's own files are.
    let tree = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    write_tree(&large, tree.path());
    let captured = HostFs::at(tree.path()).expect("the tree just written");

    let mut lines = vec![
        measure("read this machine", Some(Duration::from_millis(50)), || Host::read(&live)),
        measure("read 4096 PUs, 64 nodes, 512 devices", Some(Duration::from_millis(300)), || Host::read(&captured)),
        measure("show them as text", None, || {
            std::hint::black_box(text::render(&large));
            large.clone()
        }),
        measure("show them as JSON", None, || {
            std::hint::black_box(Document::new(&large).to_json());
            large.clone()
        }),
    ];
    lines.extend(lstopo());
    let memory = peak_memory();
    let mut json = String::from("{\"schema\":\"nearmetal.bench.host/1\",\"unit\":\"ms\",\"lines\":[");
    println!(
        "{:40} {:>6} {:>5} {:>12} {:>12} {:>14} {:>10}",
        "what", "PUs", "PCI", "median (ms)", "worst (ms)", "processor (ms)", "limit (ms)"
    );
    for (position, line) in lines.iter().enumerate() {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let limit = line.limit.map_or_else(|| "-".to_owned(), |limit| format!("{:.0}", ms(limit)));
        let (median, worst) = (ms(line.median), ms(line.worst));
        let own = line.own.map_or_else(|| "-".to_owned(), |own| format!("{:.2}", ms(own)));
        println!("{:40} {:6} {:5} {median:12.2} {worst:12.2} {own:>14} {limit:>10}", line.what, line.pus, line.pci);
        let comma = if position == 0 { "" } else { "," };
        let limit = line.limit.map_or_else(|| "null".to_owned(), |limit| ms(limit).to_string());
        let own = line.own.map_or_else(|| "null".to_owned(), |own| format!("{:.3}", ms(own)));
        let _ = write!(
            json,
            "{comma}{{\"what\":\"{}\",\"pus\":{},\"pci_devices\":{},\"median\":{median:.3},\"worst\":{worst:.3},\"processor\":{own},\
             \"limit\":{limit},\"runs\":{RUNS}}}",
            line.what, line.pus, line.pci
        );
    }
    let shown = memory.map_or_else(|| "?".to_owned(), |memory| memory.to_string());
    println!("most memory this process had, trees and all: {shown} (limit {MEMORY_LIMIT})");
    let bytes = memory.map_or_else(|| "null".to_owned(), |memory| memory.get().to_string());
    let _ = write!(json, "],\"peak_memory\":{bytes},\"peak_memory_limit\":{}}}", MEMORY_LIMIT.get());
    json.push('\n');
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    fs::create_dir_all(&directory).expect("target/bench");
    fs::write(directory.join("host.json"), json).expect("target/bench/host.json");
}

fn measure(what: &'static str, limit: Option<Duration>, mut run: impl FnMut() -> Host) -> Line {
    let host = run();
    let (mut times, mut own): (Vec<Duration>, Vec<Duration>) = (0..RUNS)
        .map(|_| {
            let (start, before) = (Instant::now(), processor_time());
            std::hint::black_box(run());
            (start.elapsed(), processor_time().saturating_sub(before))
        })
        .unzip();
    times.sort_unstable();
    own.sort_unstable();
    let (pus, pci) = (host.processors.len(), host.pci_devices.len());
    Line { what, pus, pci, median: times[RUNS / 2], worst: times[RUNS - 1], own: Some(own[RUNS / 2]), limit }
}

/// hwloc's own tool on this machine, where Debian's hwloc-nox is installed: what it does is not the same, it is the
/// nearest there is.
fn lstopo() -> Option<Line> {
    let run = || {
        let output = Command::new("lstopo-no-graphics").args(["--whole-io", "--of", "xml"]).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let xml = run()?;
    let (pus, pci) = (xml.matches("type=\"PU\"").count(), xml.matches("type=\"PCIDev\"").count());
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            std::hint::black_box(run());
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let what = "lstopo --of xml on this machine";
    Some(Line { what, pus, pci, median: times[RUNS / 2], worst: times[RUNS - 1], own: None, limit: None })
}

/// User and system time of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// VmHWM of this process.
fn peak_memory() -> Option<Bytes> {
    let status = HostFs::live().read("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))?;
    kib.parse().ok().map(Bytes::from_kib)
}

/// The files a kernel would show for a host: what the readers look at, no more.
/// A set as the kernel writes masks: words of 32 bits, the highest first. Kernels have these beside the lists.
fn mask(set: &Option<nearmetal_units::CpuSet>, pus: usize) -> String {
    let mut words = vec![0u32; pus.div_ceil(32)];
    for cpu in set.iter().flat_map(|set| set.iter()) {
        words[cpu as usize / 32] |= 1 << (cpu % 32);
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

fn write_tree(host: &Host, root: &Path) {
    let file = |path: String, contents: String| {
        let path: PathBuf = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, format!("{contents}\n")).expect("a file");
    };
    let shown = |number: Option<u32>| number.map_or_else(|| "-1".to_owned(), |number| number.to_string());
    let list = |set: &Option<nearmetal_units::CpuSet>| set.as_ref().map(ToString::to_string).unwrap_or_default();
    file("proc/cpuinfo".to_owned(), "model name : Synthetic Processor\nflags : fpu".to_owned());
    file("sys/devices/system/cpu/online".to_owned(), host.online().to_string());
    for processor in &host.processors {
        let directory = format!("sys/devices/system/cpu/cpu{}", processor.index);
        file(format!("{directory}/topology/physical_package_id"), shown(processor.package));
        file(format!("{directory}/topology/core_id"), shown(processor.core));
        file(format!("{directory}/topology/core_cpus_list"), list(&processor.siblings));
        file(format!("{directory}/topology/core_cpus"), mask(&processor.siblings, host.processors.len()));
        let package = host.packages.iter().find(|package| package.number == processor.package);
        let package = package.map(|package| package.cpus.clone());
        file(format!("{directory}/topology/package_cpus_list"), list(&package));
        file(format!("{directory}/topology/package_cpus"), mask(&package, host.processors.len()));
        for (index, level) in ["1", "1", "2", "3"].iter().enumerate() {
            let set = if *level == "3" { &processor.last_level_cache } else { &processor.siblings };
            file(format!("{directory}/cache/index{index}/level"), (*level).to_owned());
            file(format!("{directory}/cache/index{index}/shared_cpu_list"), list(set));
            file(format!("{directory}/cache/index{index}/shared_cpu_map"), mask(set, host.processors.len()));
            file(format!("{directory}/cache/index{index}/type"), "Unified".to_owned());
            file(format!("{directory}/cache/index{index}/size"), "1024K".to_owned());
        }
    }
    for node in &host.nodes {
        let directory = format!("sys/devices/system/node/node{}", node.index);
        let kib = node.memory_total.map_or(0, |memory| memory.kib());
        let meminfo = format!("Node {0} MemTotal: {kib} kB\nNode {0} MemFree: {kib} kB", node.index);
        file(format!("{directory}/meminfo"), meminfo);
        file(format!("{directory}/cpulist"), node.cpus.to_string());
        let distances: Vec<String> = node.distances.iter().map(|(_, distance)| distance.to_string()).collect();
        file(format!("{directory}/distance"), distances.join(" "));
        for pool in &node.pools {
            let directory = format!("{directory}/hugepages/hugepages-{}kB", pool.size.bytes().kib());
            file(format!("{directory}/nr_hugepages"), pool.total.to_string());
            file(format!("{directory}/free_hugepages"), pool.free.to_string());
            file(format!("{directory}/surplus_hugepages"), pool.surplus.to_string());
        }
    }
    for device in &host.pci_devices {
        let directory = format!("sys/bus/pci/devices/{}", device.address);
        file(format!("{directory}/class"), format!("{:#08x}", device.class.unwrap_or(0)));
        file(format!("{directory}/vendor"), format!("{:#06x}", device.vendor.unwrap_or(0)));
        file(format!("{directory}/device"), format!("{:#06x}", device.device.unwrap_or(0)));
        file(format!("{directory}/numa_node"), shown(device.node));
        for (name, value) in [("current_link", ["8.0 GT/s PCIe", "8"]), ("max_link", ["16.0 GT/s PCIe", "16"])] {
            file(format!("{directory}/{name}_speed"), value[0].to_owned());
            file(format!("{directory}/{name}_width"), value[1].to_owned());
        }
        file(format!("{directory}/resource"), "0x00000000fe000000 0x00000000ffffffff 0x000000000014220c".to_owned());
    }
}
