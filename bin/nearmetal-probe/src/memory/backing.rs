//! What page size and which nodes really back a buffer, from /proc/self/smaps and /proc/self/numa_maps.

use std::collections::BTreeMap;

use nearmetal_host::HostFs;
use serde::Serialize;

use crate::system::mapping::{HUGE_PAGE, PageKind, SMALL_PAGE};

/// The pages behind a buffer, asked for and found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Backing {
    /// Page size asked for: `4k`, `2m` or `thp`.
    pub asked: &'static str,
    /// Page size found: `4k`, `2m`, `thp`, `mixed` (some transparent huge pages) or `unknown`.
    pub got: &'static str,
    /// Whether they are the same.
    pub as_asked: bool,
    /// Why not, as far as the kernel said.
    pub reason: Option<String>,
    /// KernelPageSize of the mapping.
    pub kernel_page_bytes: Option<u64>,
    /// Bytes in transparent huge pages (AnonHugePages).
    pub transparent_huge_bytes: Option<u64>,
    /// Length of the mapping.
    pub mapping_bytes: u64,
    /// Pages of the mapping per node, in units of the kernel's page size; empty where the kernel does not say.
    pub pages_per_node: BTreeMap<u32, u64>,
    /// The memory policy of the mapping as the kernel prints it.
    pub memory_policy: Option<String>,
}

/// Page sizes of one mapping, as smaps gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// KernelPageSize in bytes.
    pub kernel_page_bytes: u64,
    /// AnonHugePages in bytes.
    pub transparent_huge_bytes: u64,
}

impl Backing {
    /// Reads the backing of the buffer at `address`, which was `asked` for. Facts the kernel does not give stay empty.
    pub fn read(files: &HostFs, address: usize, bytes: u64, asked: PageKind, reason: Option<String>) -> Self {
        let sizes = files.read("/proc/self/smaps").ok().and_then(|text| sizes(&text, address));
        let (memory_policy, pages_per_node) =
            files.read("/proc/self/numa_maps").ok().and_then(|text| nodes(&text, address)).unwrap_or_default();
        let got = sizes.map_or("unknown", |sizes| name(sizes, bytes));
        Self {
            asked: asked.name(),
            got,
            as_asked: got == asked.name(),
            reason: reason.filter(|_| got != asked.name()),
            kernel_page_bytes: sizes.map(|sizes| sizes.kernel_page_bytes),
            transparent_huge_bytes: sizes.map(|sizes| sizes.transparent_huge_bytes),
            mapping_bytes: bytes,
            pages_per_node,
            memory_policy: Some(memory_policy).filter(|policy| !policy.is_empty()),
        }
    }

    /// One sentence for the person at the terminal, if the pages are not those asked for.
    pub fn warning(&self) -> Option<String> {
        let reason = self.reason.as_deref().unwrap_or("the kernel gave no reason");
        (!self.as_asked).then(|| format!("asked for {} pages, got {}: {reason}", self.asked, self.got))
    }
}

fn name(sizes: Sizes, bytes: u64) -> &'static str {
    match (sizes.kernel_page_bytes, sizes.transparent_huge_bytes) {
        (page, _) if page == HUGE_PAGE as u64 => PageKind::Huge.name(),
        (page, _) if page != SMALL_PAGE as u64 => "unknown",
        (_, 0) => PageKind::Small.name(),
        (_, huge) if huge >= bytes => PageKind::Transparent.name(),
        _ => "mixed",
    }
}

/// Finds the mapping that starts at `address` in the text of smaps (proc_pid_smaps(5)).
pub fn sizes(text: &str, address: usize) -> Option<Sizes> {
    let mut lines = text.lines().skip_while(|line| start_of(line) != Some(address)).skip(1);
    let entry: Vec<&str> = lines.by_ref().take_while(|line| start_of(line).is_none()).collect();
    let kibibytes = |key: &str| {
        let value = entry.iter().find_map(|line| line.strip_prefix(key))?;
        value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some(Sizes {
        kernel_page_bytes: kibibytes("KernelPageSize:")?,
        transparent_huge_bytes: kibibytes("AnonHugePages:").unwrap_or(0),
    })
}

/// The first address of a header line (`7f0-7f1 rw-p …`); `None` for a line of values.
fn start_of(line: &str) -> Option<usize> {
    let (start, rest) = line.split_once('-')?;
    rest.split(' ').next().and_then(|end| usize::from_str_radix(end, 16).ok())?;
    usize::from_str_radix(start, 16).ok()
}

/// Policy and pages per node of the mapping that starts at `address`, from the text of numa_maps (numa(7)).
pub fn nodes(text: &str, address: usize) -> Option<(String, BTreeMap<u32, u64>)> {
    let line = text.lines().find(|line| {
        let start = line.split(' ').next().and_then(|start| usize::from_str_radix(start, 16).ok());
        start == Some(address)
    })?;
    let mut words = line.split_whitespace().skip(1);
    let policy = words.next()?.to_owned();
    let pages = words.filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    });
    Some((policy, pages.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f1000000000-7f1000400000 rw-p 00000000 00:00 0 \nSize:               4096 kB\nKernelPageSize:        4 kB\n\
MMUPageSize:           4 kB\nAnonHugePages:      2048 kB\nVmFlags: rd wr mr mw me ac hg\n\
7f2000000000-7f2000400000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)\nKernelPageSize:     2048 kB\nAnonHugePages:         0 kB\n";

    #[test]
    fn smaps_of_each_kind() {
        let transparent = sizes(SMAPS, 0x7f10_0000_0000).unwrap();
        assert_eq!(transparent, Sizes { kernel_page_bytes: 4096, transparent_huge_bytes: 2 << 20 });
        assert_eq!(name(transparent, 4 << 20), "mixed");
        assert_eq!(name(transparent, 2 << 20), "thp");
        assert_eq!(name(sizes(SMAPS, 0x7f20_0000_0000).unwrap(), 4 << 20), "2m");
        assert_eq!(sizes(SMAPS, 0x7f30_0000_0000), None);
    }

    #[test]
    fn numa_maps_with_pages_on_two_nodes() {
        let text = "7f1 default file=/bin/x N0=1 kernelpagesize_kB=4\n\
                    7f2 bind:0-1 anon=7 dirty=7 active=0 N0=5 N1=2 kernelpagesize_kB=4\n";
        let (policy, pages) = nodes(text, 0x7f2).unwrap();
        assert_eq!((policy.as_str(), pages), ("bind:0-1", BTreeMap::from([(0, 5), (1, 2)])));
        assert_eq!(nodes(text, 0x7f3), None);
    }

    #[test]
    fn damaged_texts_are_no_answer_and_no_panic() {
        for text in [
            "",
            "-",
            "7f1-",
            "7f1-7f2 rw-p\nKernelPageSize: x kB\n",
            "7f1-7f2\nKernelPageSize: 99999999999999999999 kB",
        ] {
            assert_eq!(sizes(text, 0x7f1), None, "{text}");
        }
        assert_eq!(nodes("7f1", 0x7f1), None);
        assert_eq!(nodes("7f1 default N=3 Nx=1 N1=", 0x7f1).unwrap().1, BTreeMap::new());
    }
}
