//! A host as compact tables, for people. Pure: the same host gives the same text.
//!
//! Unknown is `?`, nothing is `-`; neither is ever 0.

mod devices;
mod guests;
mod machine;
mod processors;
mod table;

use std::fmt::Display;

pub(crate) use devices::link;
pub(crate) use table::Table;

use crate::{Host, invariants};

/// The most lines of a list of damages; the JSON form has all of them.
const MOST_DAMAGES: usize = 20;

/// The whole text: machine, nodes, cores, devices, guests, and what is wrong with the source.
pub fn render(host: &Host) -> String {
    let sections = [
        format!("{}{}", heading(host), machine::settings(host)),
        processors::nodes(host),
        machine::memory(host),
        processors::cores(host),
        machine::kinds(host),
        machine::caches(host),
        devices::pci(host),
        devices::block(host),
        devices::network(host),
        machine::interrupts(host),
        machine::cpusets(host),
        guests::render(host),
        contradictions(host),
        unreadable(host),
    ];
    let mut text = sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    // Names in a capture come from outside: none may move the cursor.
    match text.chars().any(|c| c.is_control() && c != '\n') {
        true => text.split('\n').map(|line| printable(line.to_owned())).collect::<Vec<_>>().join("\n"),
        false => text,
    }
}

/// The text with its control characters spelled out.
pub fn printable(text: String) -> String {
    if !text.chars().any(char::is_control) {
        return text;
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// What root would see beyond this user, in one sentence; `None` if nothing was refused.
pub fn what_root_would_add(host: &Host) -> Option<String> {
    const SHOWN: usize = 3;
    let (first, count) = (host.denied.first()?, host.denied.len());
    if count == 1 {
        return Some(format!("run as root to read one more file, which this user may not: `{first}`"));
    }
    let shown: Vec<String> = host.denied.iter().take(SHOWN).map(|path| format!("`{path}`")).collect();
    let more = if count > SHOWN { ", …" } else { "" };
    Some(format!("run as root to read {count} more files, which this user may not: {}{more}", shown.join(", ")))
}

fn heading(host: &Host) -> String {
    let system = &host.system;
    let summary = host.summary();
    let under = match system.hypervisor {
        Some(true) => ", itself under a hypervisor",
        _ => "",
    };
    let balancing = match system.numa_balancing {
        Some(0) => "off".to_owned(),
        Some(_) => "on".to_owned(),
        None => "?".to_owned(),
    };
    let io_uring = match system.io_uring_disabled {
        Some(0) => "allowed".to_owned(),
        Some(1) => "for its group only".to_owned(),
        Some(2) => "forbidden".to_owned(),
        other => shown(other),
    };
    let mut text = format!(
        "{}  Linux {}  {}{under}\n{}, {}, {}, {}, {} memory, {}\n\
         NUMA balancing {balancing}, transparent huge pages {}, io_uring {io_uring}\n",
        system.hostname.as_deref().unwrap_or("?"),
        shown(system.kernel.as_ref()),
        shown(system.processor_model.as_ref()),
        counted(summary.packages, "package"),
        counted(Some(summary.numa_nodes), "node"),
        counted(Some(summary.cores), "core"),
        counted(Some(summary.pus), "PU"),
        shown(summary.memory),
        counted(Some(summary.pci_devices), "PCI function"),
        shown(system.transparent_hugepage.as_ref()),
    );
    if host.source != "live" {
        text.push_str(&format!("from {}\n", host.source));
    }
    text
}

fn contradictions(host: &Host) -> String {
    let lines: Vec<String> = invariants::check(host).iter().map(ToString::to_string).collect();
    damages("CONTRADICTIONS", &lines)
}

fn unreadable(host: &Host) -> String {
    let lines: Vec<String> = host
        .unreadable
        .iter()
        .map(|damage| match damage.raw.is_empty() {
            true => format!("{}: {}", damage.path, damage.reason),
            false => format!("{}: {}: {:?}", damage.path, damage.reason, damage.raw),
        })
        .collect();
    damages("NOT UNDERSTOOD", &lines)
}

fn damages(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("{title}\n");
    for line in lines.iter().take(MOST_DAMAGES) {
        text.push_str(&format!("  {line}\n"));
    }
    if lines.len() > MOST_DAMAGES {
        text.push_str(&format!("  and {} more\n", lines.len() - MOST_DAMAGES));
    }
    text
}

/// `1 node`, `2 nodes`, `? nodes`.
fn counted(count: Option<usize>, name: &str) -> String {
    let plural = if count == Some(1) { "" } else { "s" };
    format!("{} {name}{plural}", shown(count))
}

/// The value, or `?`.
pub(crate) fn shown<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

/// The value, or `-` where there is none and that is known.
pub(crate) fn or_dash<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use nearmetal_units::PageSize;

    use super::*;
    use crate::Unreadable;
    use crate::synthetic::{Numbering, Synthetic};

    #[test]
    fn a_small_host_reads_at_a_glance() {
        let host = Synthetic::new()
            .packages(2)
            .cores_per_node(2)
            .threads(2)
            .numbering(Numbering::Split)
            .pool(PageSize::HUGE_2M, 512)
            .nvme(1)
            .network(0, 7, 2)
            .build();
        let expected = "\
synthetic  Linux 6.12.0-synthetic  Synthetic Processor
2 packages, 2 nodes, 4 cores, 8 PUs, 8 GiB memory, 4 PCI functions
NUMA balancing on, transparent huge pages madvise, io_uring allowed
from synthetic

NODES (pools: free of total pages)
node  PUs      memory   free  2 MiB pool  1 GiB pool  distance to   0   1
   0  0-1,4-5   4 GiB  3 GiB  512 of 512      0 of 0               10  20
   1  2-3,6-7   4 GiB  3 GiB  512 of 512      0 of 0               20  10

CORES (PUs of one core joined by +)
package  node  last-level cache  cores
      0     0  0-1,4-5           0+4 1+5
      1     1  2-3,6-7           2+6 3+7

CACHES
cache           count    size  PUs each  dies  clusters
L1 data             4  32 KiB         2     -         -
L1 instruction      4  32 KiB         2     -         -
L2                  4   1 MiB         2     -         -
L3                  2  32 MiB         4     -         -

PCI FUNCTIONS
address       kind     vendor:device  node  driver  IOMMU group  VFs     link
0000:01:00.0  nvme     1b36:0010         1  nvme              1  -       -
0000:02:00.0  network  8086:10c9         0  igb               2  2 of 7  -
  VF 0-1      network  8086:10ca         0  -               3-4  -       -

BLOCK DEVICES
name        size  medium  queues  scheduler  logical/physical block  PCI function  node  holders
nvme0n1  100 GiB  flash       16  none       512 B/4 KiB             0000:01:00.0     1  -

NETWORK INTERFACES
name  state  Mbit/s  driver  queues receive/transmit  PCI function  node  part of
eth0  up          -  igb     8/8                      0000:02:00.0     0  -
";
        assert_eq!(render(&host), expected, "\n{}", render(&host));
    }

    #[test]
    fn unknown_is_a_question_mark_never_zero() {
        let mut host = Synthetic::new().nvme(0).build();
        host.nodes[0].memory_total = None;
        host.nodes[0].memory_free = None;
        host.nodes[0].distances.clear();
        host.processors[0].package = None;
        host.cores[0].package = None;
        host.packages.clear();
        host.pci_devices[0].node = None;
        host.block_devices[0].size = None;
        host.system = crate::System::default();
        let text = render(&host);
        for line in
            ["? packages, 1 node, ", "     ?     ?  ", "nvme0n1     ?", "Linux ?", "NUMA balancing ?", "io_uring ?"]
        {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn damages_are_listed_and_cut() {
        let mut host = Synthetic::new().build();
        let damage = Unreadable { path: "/sys/x".to_owned(), raw: "a\u{1b}[31m".to_owned(), reason: "no".to_owned() };
        host.unreadable = vec![damage; 25];
        let text = render(&host);
        assert!(text.contains("and 5 more") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn what_root_adds_is_said_once() {
        let mut host = Synthetic::new().build();
        assert_eq!(what_root_would_add(&host), None);
        host.denied = vec!["/proc/1/maps".to_owned()];
        assert!(what_root_would_add(&host).unwrap().contains("/proc/1/maps"));
        host.denied = (0..9).map(|pid| format!("/proc/{pid}/maps")).collect();
        assert!(what_root_would_add(&host).unwrap().contains("9 more files"));
    }
}
