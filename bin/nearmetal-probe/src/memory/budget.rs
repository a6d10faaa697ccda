//! How much memory a measurement may take, and how much it needs to get past the caches.

use nearmetal_host::HostFs;
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use serde::Serialize;

use crate::error::ProbeError;
use crate::see::caches;
use crate::system::mapping::{HUGE_PAGE, PageKind};

/// Largest buffer of any measurement: line numbers of a chase fit 32 bits with room to spare.
pub const SIZE_LIMIT: Bytes = Bytes::from_mib(64 << 10);

/// The size of a measurement, and why it is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    /// Bytes to use.
    pub bytes: u64,
    /// What was done to a default size that did not fit.
    pub note: Option<String>,
}

/// The last-level cache of the CPUs a measurement runs on, and whether the measurement gets past it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CacheRule {
    /// Sum of the distinct last-level caches; `None` where the kernel does not say. A guest may be told anything.
    pub last_level_cache_bytes: Option<u64>,
    /// Bytes the rule asks for: four times the cache.
    pub required_bytes: Option<u64>,
    /// Whether the size fulfils it; `None` when the cache is not known.
    pub fulfilled: Option<bool>,
}

impl CacheRule {
    /// Compares a size with the cache.
    pub fn new(cache: Option<u64>, size: u64) -> Self {
        let required_bytes = cache.map(|cache| cache.saturating_mul(4));
        Self {
            last_level_cache_bytes: cache,
            required_bytes,
            fulfilled: required_bytes.map(|required| size >= required),
        }
    }

    /// One sentence for the person at the terminal, unless the rule is fulfilled.
    pub fn warning(&self, size: u64) -> Option<String> {
        let size = Bytes::new(size);
        match (self.last_level_cache_bytes, self.required_bytes, self.fulfilled) {
            (_, _, Some(true)) => None,
            (Some(cache), Some(required), _) => Some(format!(
                "{size} is less than {} (four times the last-level cache of {}): the figure is in part the cache's",
                Bytes::new(required),
                Bytes::new(cache)
            )),
            _ => Some(format!("the kernel does not say how large the last-level cache is; {size} may fit into it")),
        }
    }
}

/// Memory to be had without swapping or killing: on the nodes if any are named, else on the whole machine.
/// With it the place, in words. `None` where the kernel does not say.
pub fn available(files: &HostFs, nodes: Option<&NodeSet>) -> Option<(Bytes, String)> {
    let Some(nodes) = nodes else {
        let text = files.read("/proc/meminfo").ok()?;
        return Some((kibibytes(&text, "MemAvailable:")?, "this machine".to_owned()));
    };
    let mut sum = Bytes::ZERO;
    for node in nodes.iter() {
        let text = files.read(&format!("/sys/devices/system/node/node{node}/meminfo")).ok()?;
        // Page cache is given back when memory is short, so it counts.
        for key in ["MemFree:", "Active(file):", "Inactive(file):"] {
            sum = sum.plus(kibibytes(&text, key).unwrap_or_default());
        }
    }
    Some((sum, format!("node {nodes}")))
}

/// The value after a key: `MemTotal:  16 kB` or, of a node, `Node 0 MemTotal:  16 kB`.
fn kibibytes(text: &str, key: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.split_once(key))?.1;
    Some(Bytes::from_kib(value.trim().strip_suffix("kB")?.trim().parse().ok()?))
}

/// Settles the size: as asked, or the default cut to what is there. At most three quarters of the available memory.
///
/// # Errors
/// [`ProbeError::Limit`] outside 4 KiB … [`SIZE_LIMIT`]; [`ProbeError::Memory`] when an asked size does not fit.
pub fn size(asked: Option<Bytes>, default: Bytes, available: Option<(Bytes, String)>) -> Result<Size, ProbeError> {
    let page = Bytes::from_kib(4);
    let chosen = asked.unwrap_or(default);
    if chosen < page || chosen > SIZE_LIMIT {
        let shown = |bytes: Bytes| bytes.to_string();
        return Err(ProbeError::Limit {
            what: "--size",
            value: shown(chosen),
            low: shown(page),
            high: shown(SIZE_LIMIT),
        });
    }
    let whole_pages = chosen.get().next_multiple_of(page.get());
    let Some((free, place)) = available else { return Ok(Size { bytes: whole_pages, note: None }) };
    let limit = free.get() / 4 * 3;
    if whole_pages <= limit {
        return Ok(Size { bytes: whole_pages, note: None });
    }
    if asked.is_some() || limit < page.get() {
        return Err(ProbeError::Memory { asked: chosen.to_string(), available: Bytes::new(limit).to_string(), place });
    }
    let bytes = limit - limit % page.get();
    let note = format!("the default of {chosen} was cut to {}: {place} has {free} available", Bytes::new(bytes));
    Ok(Size { bytes, note: Some(note) })
}

/// Why the huge page pool cannot back this many bytes; `None` if it can. Asked before any page is touched, since the
/// kernel reserves pages without regard to nodes and kills a process that finds its node's pool empty.
pub fn pool_shortage(files: &HostFs, kind: PageKind, bytes: u64, nodes: Option<&NodeSet>) -> Option<String> {
    if kind != PageKind::Huge {
        return None;
    }
    let needed = bytes.div_ceil(HUGE_PAGE as u64);
    let count = |path: String| files.read(&path).ok()?.trim().parse::<u64>().ok();
    let (free, place) = match nodes {
        None => {
            (count("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages".to_owned()), "this machine".to_owned())
        }
        Some(nodes) => {
            let pool =
                |node| count(format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/free_hugepages"));
            (nodes.iter().map(pool).sum(), format!("node {nodes}"))
        }
    };
    match free {
        Some(free) if free >= needed => None,
        Some(free) => Some(format!("the 2 MiB pool of {place} has {free} free pages, {needed} are needed")),
        None => Some(format!("{place} has no 2 MiB pool")),
    }
}

/// Bytes of the distinct last-level caches of these CPUs; `None` unless the kernel tells all of them.
pub fn last_level_cache(files: &HostFs, cpus: &CpuSet) -> Option<u64> {
    let caches = caches(files, cpus);
    let all = !cpus.is_empty() && cpus.iter().all(|cpu| caches.iter().any(|cache| cache.cpus.contains(cpu)));
    let sizes = caches.iter().map(|cache| cache.bytes).collect::<Option<Vec<Bytes>>>()?;
    all.then(|| sizes.into_iter().fold(Bytes::ZERO, Bytes::plus).get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearmetal_host::files::{create_dir_all, write};
    use tempfile::TempDir;

    fn tree(entries: &[(&str, &str)]) -> (TempDir, HostFs) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in entries {
            let path = root.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(&path, text).unwrap();
        }
        let files = HostFs::at(root.path()).unwrap();
        (root, files)
    }

    #[test]
    fn a_default_is_cut_and_a_wish_is_refused() {
        let small = || Some((Bytes::from_mib(40), "this machine".to_owned()));
        let cut = size(None, Bytes::from_mib(64), small()).unwrap();
        assert_eq!(cut.bytes, 30 << 20);
        assert_eq!(cut.note.unwrap(), "the default of 64 MiB was cut to 30 MiB: this machine has 40 MiB available");
        let error = size(Some(Bytes::from_mib(64)), Bytes::from_mib(64), small()).unwrap_err();
        assert_eq!(error.to_string(), "64 MiB is more than the 30 MiB free on this machine; choose a smaller --size");
        assert_eq!(size(Some(Bytes::new(5000)), Bytes::ZERO, None).unwrap().bytes, 8192);
    }

    #[test]
    fn sizes_have_bounds() {
        for asked in [Bytes::ZERO, Bytes::new(4095), Bytes::from_mib(70_000), Bytes::new(u64::MAX)] {
            let error = size(Some(asked), Bytes::from_mib(64), None).unwrap_err();
            assert!(error.to_string().ends_with("must be from 4 KiB to 64 GiB"), "{error}");
        }
    }

    #[test]
    fn memory_of_named_nodes_is_summed_with_its_page_cache() {
        let node = "Node 1 MemTotal:  999 kB\nNode 1 MemFree:  100 kB\nNode 1 Active(file):  10 kB\nNode 1 Inactive(file): 5 kB\n";
        let (_root, files) = tree(&[
            ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 7 kB\n"),
            ("sys/devices/system/node/node1/meminfo", node),
        ]);
        assert_eq!(available(&files, None).unwrap().0, Bytes::from_kib(7));
        assert_eq!(available(&files, Some(&NodeSet::one(1))).unwrap(), (Bytes::from_kib(115), "node 1".to_owned()));
        assert_eq!(available(&files, Some(&NodeSet::one(2))), None);
    }

    #[test]
    fn each_last_level_cache_counts_once() {
        let index = |cpu: u32, sharers: &'static str| {
            let base = format!("sys/devices/system/cpu/cpu{cpu}/cache");
            [
                ("index0", "level", "1"),
                ("index0", "size", "48K"),
                ("index0", "shared_cpu_list", "0"),
                ("index3", "level", "3"),
                ("index3", "size", "16384K"),
                ("index3", "shared_cpu_list", sharers),
            ]
            .map(|(index, file, text)| (format!("{base}/{index}/{file}"), text))
        };
        let entries: Vec<(String, &str)> = [index(0, "0-1"), index(1, "0-1"), index(2, "2")].concat();
        let entries: Vec<(&str, &str)> = entries.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_root, files) = tree(&entries);
        assert_eq!(last_level_cache(&files, &CpuSet::from_iter([0, 1])), Some(16 << 20));
        assert_eq!(last_level_cache(&files, &CpuSet::from_iter([0, 1, 2])), Some(32 << 20));
        assert_eq!(last_level_cache(&files, &CpuSet::from_iter([0, 7])), None);
        let rule = CacheRule::new(Some(16 << 20), 64 << 20);
        assert_eq!((rule.fulfilled, rule.warning(64 << 20)), (Some(true), None));
        assert!(CacheRule::new(Some(16 << 20), 63 << 20).warning(63 << 20).unwrap().contains("four times"));
    }

    #[test]
    fn a_pool_too_small_is_named() {
        let (_root, files) =
            tree(&[("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "3\n")]);
        let short = |bytes, node| pool_shortage(&files, PageKind::Huge, bytes, Some(&NodeSet::one(node)));
        assert_eq!(short(6 << 20, 0), None);
        assert_eq!(short(7 << 20, 0).unwrap(), "the 2 MiB pool of node 0 has 3 free pages, 4 are needed");
        assert_eq!(short(2 << 20, 1).unwrap(), "node 1 has no 2 MiB pool");
        assert_eq!(pool_shortage(&files, PageKind::Small, 7 << 20, None), None);
    }
}
