//! What a guest sees of itself, asked of its agent: by nearmetal-probe where the guest has it, else by `ls` and `grep`.
//!
//! The guest is not trusted: its answers are read into fixed forms, and nothing of them is ever run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nearmetal_host::Host;
use nearmetal_hypervisor::{Hypervisor, HypervisorError, agent};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

use super::GuestFunction;

/// Where a guest's kernel lists its PCI functions.
const BUS: &str = "/sys/bus/pci/devices";

/// A guest has some dozen of these; a longer list is not one.
const MOST: usize = 512;

/// The guest's own picture.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GuestView {
    /// Its NUMA nodes.
    pub nodes: Vec<GuestNode>,
    /// Its block devices.
    pub disks: Vec<GuestDisk>,
    /// Its PCI functions.
    #[serde(default)]
    pub functions: Vec<GuestFunction>,
    /// Sizes of the huge pages it can have.
    pub page_sizes: Vec<PageSize>,
    /// Its setting of transparent huge pages.
    pub transparent_hugepage: Option<String>,
    /// How it was asked: `nearmetal-probe` or `ls and grep`.
    pub source: String,
}

/// One node of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNode {
    /// Number.
    pub index: u32,
    /// Its vCPUs.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory: Option<Bytes>,
}

/// One disk of the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestDisk {
    /// Name in the guest.
    pub name: String,
    /// Queues.
    pub queues: Option<u32>,
    /// Size.
    pub size: Option<Bytes>,
    /// Node of the device, as the guest sees it.
    pub node: Option<u32>,
}

impl GuestView {
    /// The disk behind a target name. Names are given by the guest in its own order, so one that has the right name
    /// counts only if its size is right too; else a size that only one disk has.
    pub fn disk(&self, target: &str, size: Option<Bytes>) -> Option<&GuestDisk> {
        let fits = |disk: &&GuestDisk| size.is_none() || disk.size == size;
        let named = self.disks.iter().find(|disk| disk.name == target).filter(fits);
        let mut of_size = self.disks.iter().filter(|disk| size.is_some() && disk.size == size);
        named.or_else(|| of_size.next().filter(|_| of_size.next().is_none()))
    }
}

/// When everything asked of a guest is to have been answered.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    began: Instant,
    all: Duration,
}

impl Deadline {
    /// What is left for the next command.
    fn left(self, hypervisor: &dyn Hypervisor, name: &str) -> Result<Duration, HypervisorError> {
        let left = self.all.saturating_sub(hypervisor.now().duration_since(self.began));
        if left.is_zero() {
            return Err(HypervisorError::Timeout {
                action: "ask the guest agent of".to_owned(),
                name: name.to_owned(),
                seconds: self.all.as_secs(),
                advice: "the guest, or its agent, is busy: check it again later".to_owned(),
            });
        }
        Ok(left)
    }
}

/// Asks the guest; all its answers together may take `all`.
pub(super) fn ask(hypervisor: &mut dyn Hypervisor, name: &str, all: Duration) -> Result<GuestView, HypervisorError> {
    let deadline = Deadline { began: hypervisor.now(), all };
    match by_probe(hypervisor, name, deadline) {
        Some(view) => Ok(view),
        None => by_files(hypervisor, name, deadline),
    }
}

fn by_probe(hypervisor: &mut dyn Hypervisor, name: &str, deadline: Deadline) -> Option<GuestView> {
    // Fails at once where the guest has no such program.
    let left = deadline.left(hypervisor, name).ok()?;
    let output = agent::exec(hypervisor, name, &["nearmetal-probe", "see"], None, left).ok()?;
    let value: serde_json::Value =
        serde_json::from_slice(&output.stdout).ok().filter(|_| output.status.is_success())?;
    let host: Host = serde_json::from_value(value.get("host")?.clone()).ok()?;
    Some(GuestView {
        nodes: host
            .nodes
            .iter()
            .map(|node| GuestNode { index: node.index, cpus: node.cpus.clone(), memory: node.memory_total })
            .collect(),
        disks: host
            .block_devices
            .iter()
            .filter(|disk| disk.partition_of.is_none())
            .map(|disk| GuestDisk { name: disk.name.clone(), queues: disk.queues, size: disk.size, node: disk.node })
            .collect(),
        functions: host.pci_devices.iter().filter_map(GuestFunction::of).collect(),
        page_sizes: host
            .nodes
            .first()
            .map(|node| node.pools.iter().map(|pool| pool.size).collect())
            .unwrap_or_default(),
        transparent_hugepage: host.system.transparent_hugepage,
        source: "nearmetal-probe".to_owned(),
    })
}

fn by_files(hypervisor: &mut dyn Hypervisor, name: &str, deadline: Deadline) -> Result<GuestView, HypervisorError> {
    let listed = run(
        hypervisor,
        name,
        &["ls", "-1", "/sys/block", BUS, "/sys/devices/system/node", "/sys/kernel/mm/hugepages"],
        deadline,
    )?;
    let listed = directories(&listed);
    let of = |directory: &str| listed.get(directory).cloned().unwrap_or_default();
    let nodes: Vec<u32> =
        of("/sys/devices/system/node").iter().filter_map(|entry| entry.strip_prefix("node")?.parse().ok()).collect();
    let disks: Vec<String> = of("/sys/block").into_iter().filter(|disk| is_plain(disk)).collect();
    let mut paths = vec!["/sys/kernel/mm/transparent_hugepage/enabled".to_owned()];
    paths.extend(
        nodes
            .iter()
            .flat_map(|node| ["cpulist", "meminfo"].map(|file| format!("/sys/devices/system/node/node{node}/{file}"))),
    );
    paths.extend(disks.iter().flat_map(|disk| {
        ["size", "device/numa_node", "device/device/numa_node"].map(|file| format!("/sys/block/{disk}/{file}"))
    }));
    let functions: Vec<PciAddress> = of(BUS).iter().filter_map(|name| name.parse().ok()).collect();
    paths.extend(functions.iter().flat_map(|own| ["uevent", "numa_node"].map(|file| format!("{BUS}/{own}/{file}"))));
    let mut command = vec!["grep", "-s", "-H", ""];
    command.extend(paths.iter().map(String::as_str));
    let values = lines_by_path(&run(hypervisor, name, &command, deadline)?);
    let first = |path: String| values.get(&path).and_then(|lines| lines.first()).map(|line| line.trim().to_owned());
    let queues: Vec<String> = disks.iter().map(|disk| format!("/sys/block/{disk}/mq")).collect();
    let mut command = vec!["ls", "-1"];
    command.extend(queues.iter().map(String::as_str));
    // A single directory would be listed without its name.
    command.push("/sys/block");
    let queues = directories(&run(hypervisor, name, &command, deadline)?);
    let number = |path: String| first(path).and_then(|text| text.parse::<u64>().ok());
    Ok(GuestView {
        nodes: nodes
            .iter()
            .filter_map(|node| {
                let directory = format!("/sys/devices/system/node/node{node}");
                let total = values.get(&format!("{directory}/meminfo"))?.iter().find_map(|line| {
                    let (_, rest) = line.split_once("MemTotal:")?;
                    rest.split_whitespace().next()?.parse().ok()
                });
                let cpus = first(format!("{directory}/cpulist"))?.parse().ok()?;
                Some(GuestNode { index: *node, cpus, memory: total.map(Bytes::from_kib) })
            })
            .collect(),
        disks: disks
            .iter()
            .map(|disk| GuestDisk {
                queues: queues.get(&format!("/sys/block/{disk}/mq")).map(|list| list.len() as u32),
                // Always in sectors of 512 bytes.
                size: number(format!("/sys/block/{disk}/size")).map(|sectors| Bytes::new(512).times(sectors)),
                node: ["device/numa_node", "device/device/numa_node"]
                    .into_iter()
                    .find_map(|file| number(format!("/sys/block/{disk}/{file}")))
                    .and_then(|node| u32::try_from(node).ok()),
                name: disk.clone(),
            })
            .collect(),
        functions: functions
            .iter()
            .filter_map(|own| {
                let uevent = values.get(&format!("{BUS}/{own}/uevent"))?;
                let node = number(format!("{BUS}/{own}/numa_node")).and_then(|node| u32::try_from(node).ok());
                GuestFunction::told(*own, uevent, node)
            })
            .collect(),
        page_sizes: of("/sys/kernel/mm/hugepages")
            .iter()
            .filter_map(|entry| {
                let kib = entry.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
                PageSize::try_from(Bytes::from_kib(kib)).ok()
            })
            .collect(),
        transparent_hugepage: first("/sys/kernel/mm/transparent_hugepage/enabled".to_owned())
            .and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())),
        source: "ls and grep".to_owned(),
    })
}

/// Runs a command and takes what it printed: `ls` and `grep` fail for one missing path and print the others.
fn run(
    hypervisor: &mut dyn Hypervisor,
    name: &str,
    command: &[&str],
    deadline: Deadline,
) -> Result<String, HypervisorError> {
    let left = deadline.left(hypervisor, name)?;
    let output = agent::exec(hypervisor, name, command, None, left)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a name from the guest can go back into a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() < 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_!.".contains(&byte))
        && !name.starts_with('.')
}

/// `ls -1 A B` prints `A:`, its entries, an empty line, `B:`, ….
fn directories(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(str::trim_end) {
        if let Some(path) = line.strip_suffix(':').filter(|path| path.starts_with('/')) {
            found.entry(path.to_owned()).or_default();
            current = Some(path.to_owned());
        } else if let (false, Some(list)) = (line.is_empty(), current.as_ref().and_then(|path| found.get_mut(path))) {
            if list.len() < MOST {
                list.push(line.to_owned());
            }
        }
    }
    found
}

/// `grep -H "" A B` prints `A:line` for every line.
fn lines_by_path(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        if let Some((path, rest)) = line.split_once(':') {
            found.entry(path.to_owned()).or_default().push(rest.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use nearmetal_hypervisor::Fake;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_guest_whose_commands_never_end_is_given_up_once_the_time_for_all_is_over() {
        let mut fake = Fake::new("").with_running_domain("<domain type='kvm'><name>web1</name></domain>");
        fake.on_agent(|_, command| {
            Ok(match command["execute"].as_str() {
                Some("guest-exec-status") => json!({"exited": false}),
                _ => json!({"pid": 77}),
            })
        });
        let began = fake.now();
        let error = ask(&mut fake, "web1", Duration::from_secs(3)).unwrap_err();
        assert!(matches!(error, HypervisorError::Timeout { seconds: 3, .. }), "{error}");
        let took = fake.now().duration_since(began);
        assert!(took < Duration::from_secs(4), "{took:?}");
    }

    #[test]
    fn listings_read_as_ls_and_grep_print_them() {
        let listed = directories("/sys/block:\nvda\nvdb\n\n/sys/kernel/mm/hugepages:\nhugepages-2048kB\n");
        assert_eq!(listed["/sys/block"], ["vda", "vdb"]);
        assert_eq!(listed["/sys/kernel/mm/hugepages"], ["hugepages-2048kB"]);
        let lines = lines_by_path("/a/meminfo:Node 0 MemTotal:  512 kB\n/a/meminfo:x\n/b:1\n");
        assert_eq!(lines["/a/meminfo"].len(), 2);
        assert_eq!(lines["/b"], ["1"]);
        assert!(is_plain("nvme0n1") && !is_plain("../etc") && !is_plain("a b") && !is_plain(""));
    }

    #[test]
    fn a_disk_is_found_by_name_and_size_or_by_a_size_of_its_own() {
        let disk = |name: &str, mib| GuestDisk {
            name: name.to_owned(),
            queues: Some(1),
            size: Some(Bytes::from_mib(mib)),
            node: None,
        };
        let view = GuestView { disks: vec![disk("vda", 1), disk("vdb", 2), disk("vdc", 2)], ..GuestView::default() };
        let name =
            |target: &str, mib: Option<u64>| view.disk(target, mib.map(Bytes::from_mib)).map(|disk| disk.name.as_str());
        assert_eq!(name("vdb", Some(2)), Some("vdb"));
        assert_eq!(name("vdb", Some(1)), Some("vda"));
        assert_eq!(name("vda", Some(2)), None);
        assert_eq!(name("vda", None), Some("vda"));
        assert_eq!(name("sda", None), None);
    }
}
