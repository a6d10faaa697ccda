//! Makes a fixture of a captured tree: the files that are read, as one text. See fixtures/hosts/README.md.
//!
//! `cargo run -p nearmetal-host --example fixture -- DIRECTORY >fixtures/hosts/SHAPE/tree.txt`
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people who add a fixture")]

use std::process::ExitCode;

use nearmetal_host::{HostFs, tree_text};
use nearmetal_units::CpuSet;

fn main() -> ExitCode {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("name the directory that has `sys` and `proc` in it");
        return ExitCode::from(2);
    };
    let text = HostFs::at(&directory).and_then(|fs| tree_text::pack(&fs, &|path| wanted(&fs, path)));
    match text {
        Ok(text) => {
            print!("{}", shortened(&text));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(3)
        }
    }
}

/// Without what says nothing: leading zeros of masks, and all of cpuinfo but its first block.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    let (mut cpuinfo, mut first_block) = (false, true);
    for line in text.lines() {
        if let Some(content) = line.strip_prefix('|').filter(|_| cpuinfo) {
            first_block &= !content.trim().is_empty();
            if !first_block {
                continue;
            }
        } else {
            cpuinfo = line == "cpuinfo =";
        }
        match line.split_once(" = ") {
            Some((name, mut mask)) if mask.starts_with("00000000,") => {
                while let Some(rest) = mask.strip_prefix("00000000,") {
                    mask = rest;
                }
                short.push_str(&format!("{name} = {mask}\n"));
            }
            _ => short.push_str(&format!("{line}\n")),
        }
    }
    short
}

/// Files under these directories, if their name is one of those.
const WANTED: [(&str, &[&str]); 10] = [
    ("/cache/index", &["level", "type", "size", "coherency_line_size", "ways_of_associativity", "shared_cpu_list"]),
    (
        "/topology/",
        &[
            "physical_package_id",
            "core_id",
            "die_id",
            "cluster_id",
            "book_id",
            "drawer_id",
            "core_cpus_list",
            "thread_siblings_list",
            "package_cpus_list",
            "core_siblings_list",
            "die_cpus_list",
            "cluster_cpus_list",
            "book_siblings_list",
            "drawer_siblings_list",
        ],
    ),
    ("/sys/devices/system/node/", &["online", "cpulist", "meminfo", "distance"]),
    ("/hugepages/", &["nr_hugepages", "free_hugepages", "surplus_hugepages"]),
    ("/memory_side_cache/", &["size", "line_size", "indexing", "write_policy"]),
    ("/access", &["read_latency", "write_latency", "read_bandwidth", "write_bandwidth"]),
    (
        "/sys/devices/system/cpu/",
        &[
            "online",
            "isolated",
            "nohz_full",
            "cpu_capacity",
            "cpuinfo_max_freq",
            "base_frequency",
            "midr_el1",
            "current_driver",
            "current_governor",
            "scaling_driver",
            "scaling_governor",
            "cpufreq",
            "boost",
            "no_turbo",
            "package_throttle_count",
            "package_throttle_total_time_ms",
        ],
    ),
    (
        "/sys/devices/pci",
        &[
            "class",
            "vendor",
            "device",
            "numa_node",
            "local_cpulist",
            "sriov_totalvfs",
            "sriov_numvfs",
            "current_link_speed",
            "current_link_width",
            "max_link_speed",
            "max_link_width",
            "driver",
            "iommu_group",
            "physfn",
            "reset_method",
            "resource",
            "size",
            "dev",
            "hidden",
            "rotational",
            "scheduler",
            "logical_block_size",
            "physical_block_size",
            "operstate",
            "speed",
            "master",
            "mtu",
        ],
    ),
    ("/sys/bus/pci/devices/", &["class", "vendor", "device", "numa_node", "local_cpulist"]),
    (
        "/block/",
        &["size", "dev", "hidden", "partition", "rotational", "scheduler", "logical_block_size", "physical_block_size"],
    ),
];

/// Whole files of /proc and /sys.
const ALONE: [&str; 9] = [
    "/proc/version",
    "/proc/sys/kernel/osrelease",
    "/proc/cmdline",
    "/proc/cpuinfo",
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/proc/meminfo",
    "/sys/devices/cpu_core/cpus",
    "/sys/devices/cpu_atom/cpus",
];

fn wanted(fs: &HostFs, path: &str) -> bool {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    if ALONE.contains(&path) {
        return path != "/proc/meminfo" || !fs.exists("/sys/devices/system/node");
    }
    if ["/sys/class/block", "/sys/class/net", "/sys/bus/pci/devices"].contains(&directory) {
        return true;
    }
    if directory.ends_with("/initiators") && name.starts_with("node") {
        return true;
    }
    let (list, mask) = twins(name);
    let says = |twin: &str, parse: fn(&str) -> Option<CpuSet>| {
        fs.read(&format!("{directory}/{twin}")).ok().and_then(|text| parse(text.trim()))
    };
    WANTED.iter().any(|(place, names)| {
        if !path.contains(place) {
            return false;
        }
        if names.contains(&name) {
            return true;
        }
        if name != mask || !names.contains(&list.as_str()) {
            return false;
        }
        // A mask where the list is missing, or says something else.
        let listed = says(&list, |text| text.parse().ok());
        listed.is_none() || listed != says(&mask, |text| CpuSet::parse_mask(text).ok())
    })
}

/// The names of a set in its two forms.
fn twins(name: &str) -> (String, String) {
    for (list, mask) in [("cpulist", "cpumap"), ("shared_cpu_list", "shared_cpu_map"), ("local_cpulist", "local_cpus")]
    {
        if name == list || name == mask {
            return (list.to_owned(), mask.to_owned());
        }
    }
    let mask = name.strip_suffix("_list").unwrap_or(name);
    (format!("{mask}_list"), mask.to_owned())
}
