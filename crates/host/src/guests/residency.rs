//! Where a guest's pages are: numa_maps joined with maps.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::{Bytes, PageSize};

use super::command_line::CommandLine;
use super::maps::{self, Mapping};
use super::numa_maps::{self, MappedPages};
use crate::facts::parsed;
use crate::{HostFs, ReadError, Residency};

/// Every mapping of a QEMU process that has pages, and its guest memory whether it has pages yet or not.
///
/// The kernel walks the page tables for this: about 10 ns a page, so some milliseconds per GiB of 4 KiB pages.
///
/// # Errors
/// No such process; not this user's (root or CAP_SYS_PTRACE reads any); a kernel without NUMA has no numa_maps.
pub fn residency(fs: &HostFs, pid: u32) -> Result<Vec<Residency>, ReadError> {
    let path = format!("/proc/{pid}/cmdline");
    let line = CommandLine::parse(&fs.read_bytes(&path)?).unwrap_or_default();
    of_command_line(fs, pid, &line)
}

/// As [`residency`], with the command line already read.
pub(super) fn of_command_line(fs: &HostFs, pid: u32, line: &CommandLine) -> Result<Vec<Residency>, ReadError> {
    let (numa_maps_path, maps_path) = (format!("/proc/{pid}/numa_maps"), format!("/proc/{pid}/maps"));
    let pages = parsed(&numa_maps_path, &fs.read(&numa_maps_path)?, numa_maps::parse)?;
    let mappings = parsed(&maps_path, &fs.read(&maps_path)?, maps::parse)?;
    // A truncated pair of files must not look like a process without memory.
    for (path, is_empty) in [(numa_maps_path, pages.is_empty()), (maps_path, mappings.is_empty())] {
        if is_empty {
            return Err(ReadError::unreadable(&path, "", "no mappings: the process is ending, or the file was cut"));
        }
    }
    let sizes = page_sizes(fs, pid, &pages);
    Ok(join(&mappings, &pages, &line.memory_sizes(), &sizes))
}

/// Page sizes by mapping start, for hugetlb mappings that have no page yet: numa_maps leaves them out, smaps knows.
fn page_sizes(fs: &HostFs, pid: u32, pages: &[MappedPages]) -> BTreeMap<u64, PageSize> {
    if !pages.iter().any(|mapped| mapped.huge && mapped.page_size.is_none()) {
        return BTreeMap::new();
    }
    // Best effort: without it such a mapping is left out, and the sum of guest memory falls short of the plan's.
    let smaps = fs.read(&format!("/proc/{pid}/smaps")).unwrap_or_default();
    let mut sizes = BTreeMap::new();
    let mut start = None;
    for line in smaps.lines() {
        if let Some(size) = line.strip_prefix("KernelPageSize:") {
            let size =
                size.trim().strip_suffix("kB").map(str::trim_end).and_then(|kib| crate::parse::page_size_kib(kib).ok());
            sizes.extend(start.take().zip(size));
        } else if let Some((low, _)) = line.split_once('-') {
            start = maps::address(low).or(start);
        }
    }
    sizes
}

fn join(
    mappings: &[Mapping],
    pages: &[MappedPages],
    guest_sizes: &[Bytes],
    hugetlb_sizes: &BTreeMap<u64, PageSize>,
) -> Vec<Residency> {
    let by_start: BTreeMap<u64, &Mapping> = mappings.iter().map(|mapping| (mapping.start, mapping)).collect();
    // The base page: the smallest any mapping has (4 KiB on x86, 64 KiB on some ARM and POWER kernels).
    let base = pages.iter().filter_map(|mapped| mapped.page_size).min().unwrap_or(PageSize::SMALL);
    let guest = guest_mappings(mappings, guest_sizes);
    let mut residency = Vec::new();
    for mapped in pages {
        // Mapped or unmapped between the two reads: QEMU's helpers come and go, guest memory stays.
        let Some(mapping) = by_start.get(&mapped.start) else { continue };
        let guest_memory = guest.contains(&mapped.start);
        let page_size = match mapped.page_size {
            Some(size) => size,
            None if !guest_memory => continue,
            None if mapped.huge => match hugetlb_sizes.get(&mapped.start) {
                Some(size) => *size,
                None => continue,
            },
            None => base,
        };
        residency.push(Residency {
            start: mapped.start,
            page_size,
            length: mapping.length(),
            guest_memory,
            pages: mapped.pages.clone(),
            policy: mapped.policy.clone(),
            file: mapped.file.clone(),
        });
    }
    residency
}

/// Starts of the mappings that hold guest memory.
///
/// Files of libvirt's memory backends and memfds of QEMU's name themselves. Anonymous memory is known by its length:
/// a mapping exactly as long as a backend; failing that (the kernel merges neighbours and splits by policy and advice),
/// neighbouring mappings that together are at least as long.
fn guest_mappings(mappings: &[Mapping], sizes: &[Bytes]) -> BTreeSet<u64> {
    let data = || mappings.iter().filter(|mapping| mapping.is_plain_data());
    let mut guest: BTreeSet<u64> =
        data().filter(|mapping| is_backend_file(&mapping.path)).map(|mapping| mapping.start).collect();
    for (position, size) in sizes.iter().enumerate() {
        // Several cells of one size are looked up once.
        if sizes[..position].contains(size) {
            continue;
        }
        let found: Vec<u64> = data().filter(|mapping| mapping.length() == *size).map(|mapping| mapping.start).collect();
        if !found.is_empty() {
            guest.extend(found);
        } else if !guest_files_cover(mappings, &guest, sizes) {
            guest.extend(runs_of_at_least(mappings, *size));
        }
    }
    guest
}

fn is_backend_file(path: &str) -> bool {
    path.contains("/libvirt/qemu/") && !path.ends_with(".fd") || path.starts_with("/memfd:memory-backend")
}

/// Whether the mappings found so far are all the memory the command line asks for.
fn guest_files_cover(mappings: &[Mapping], guest: &BTreeSet<u64>, sizes: &[Bytes]) -> bool {
    let found = mappings.iter().filter(|mapping| guest.contains(&mapping.start));
    let found = found.fold(Bytes::ZERO, |sum, mapping| sum.plus(mapping.length()));
    found >= sizes.iter().fold(Bytes::ZERO, |sum, size| sum.plus(*size))
}

/// Starts of mappings in gapless runs of one kind that are at least `size` long together.
fn runs_of_at_least(mappings: &[Mapping], size: Bytes) -> Vec<u64> {
    let mut starts = Vec::new();
    let mut rest: Vec<&Mapping> = mappings.iter().filter(|mapping| mapping.is_plain_data()).collect();
    rest.sort_by_key(|mapping| mapping.start);
    for run in rest.chunk_by(|left, right| {
        left.end == right.start && left.permissions == right.permissions && left.path == right.path
    }) {
        let length = run.iter().fold(Bytes::ZERO, |sum, mapping| sum.plus(mapping.length()));
        if length >= size {
            starts.extend(run.iter().map(|mapping| mapping.start));
        }
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start_mib: u64, mib: u64, permissions: &str, path: &str) -> Mapping {
        let start = start_mib << 20;
        Mapping { start, end: start + (mib << 20), permissions: permissions.to_owned(), path: path.to_owned() }
    }

    fn guest_mib(mappings: &[Mapping], sizes: &[u64]) -> Vec<u64> {
        let sizes: Vec<Bytes> = sizes.iter().map(|mib| Bytes::from_mib(*mib)).collect();
        guest_mappings(mappings, &sizes).into_iter().map(|start| start >> 20).collect()
    }

    #[test]
    fn anonymous_guest_memory_is_the_mapping_of_its_length() {
        let mappings = [
            mapping(0, 1024, "rwxp", ""), // QEMU's code buffer
            mapping(2000, 512, "rw-p", ""),
            mapping(4000, 600, "rw-p", ""),
            mapping(6000, 512, "r--p", "/usr/lib/locale"),
        ];
        assert_eq!(guest_mib(&mappings, &[512]), [2000]);
    }

    #[test]
    fn files_of_memory_backends_name_themselves() {
        let mappings = [
            mapping(0, 512, "rw-s", "/dev/hugepages/libvirt/qemu/1-a/ram-node0 (deleted)"),
            mapping(1000, 512, "rw-s", "/memfd:memory-backend-memfd (deleted)"),
            mapping(2000, 2048, "rw-p", ""),
        ];
        assert_eq!(guest_mib(&mappings, &[512]), [0, 1000]);
        assert_eq!(guest_mib(&mappings, &[1024]), [0, 1000], "the files already are all of it");
        assert_eq!(guest_mib(&mappings, &[]), [0, 1000], "no size known");
    }

    #[test]
    fn merged_and_split_mappings_are_found() {
        let merged = [mapping(0, 1024, "rw-p", ""), mapping(3000, 64, "rw-p", "")];
        assert_eq!(guest_mib(&merged, &[512, 512]), [0]);
        let split = [mapping(0, 100, "rw-p", ""), mapping(100, 412, "rw-p", ""), mapping(3000, 64, "rw-p", "")];
        assert_eq!(guest_mib(&split, &[512]), [0, 100]);
    }

    #[test]
    fn guest_memory_without_a_page_is_listed_with_none() {
        let mappings = [mapping(0, 512, "rw-p", ""), mapping(1000, 8, "rw-p", "")];
        let pages = numa_maps::parse("0 bind:1\n3e800000 default anon=3 N0=3 kernelpagesize_kB=4\n").unwrap();
        let found = join(&mappings, &pages, &[Bytes::from_mib(512)], &BTreeMap::new());
        assert_eq!(found.len(), 2);
        assert!(found[0].guest_memory && found[0].pages.is_empty() && found[0].page_size == PageSize::SMALL);
        assert!(!found[1].guest_memory);
    }
}
