//! Which arms there are on a machine, and which are left out and why. Pure.

use std::collections::BTreeSet;

use nearmetal_place::{DiskEngine, SHARED_QUEUES};
use nearmetal_results::{Bus, Container, DiskPath, LeftOut, PathCache, Scheduler};

/// Arms measured at most: they are disks of one guest, and each takes a PCI slot and a region.
pub const MOST_ARMS: usize = 40;

/// The first libvirt that cuts a part out of a device (`<slices>`, libvirt's NEWS of 6.1).
const SLICES: (u32, u32) = (6, 1);

/// What decides which arms can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// Containers there is scratch space for.
    pub containers: Vec<Container>,
    /// vCPUs of the guest.
    pub vcpus: u32,
    /// `kernel.io_uring_disabled`; `None` where the kernel has no such setting or it was not read.
    pub io_uring_disabled: Option<u64>,
    /// Whether the scratch directory's files can be opened past the page cache; `None` if nobody tried.
    pub files_direct: Option<bool>,
    /// QEMU's version, `(major, minor)`; `None` if unknown.
    pub qemu: Option<(u32, u32)>,
    /// libvirt's version, likewise.
    pub libvirt: Option<(u32, u32)>,
    /// Whether the user accepted that `unsafe` is measured.
    pub unsafe_allowed: bool,
    /// Words whose arms are not wanted.
    pub without: Vec<String>,
    /// Whether lvm2 is installed; `None` if nobody tried.
    pub lvm: Option<bool>,
    /// The scheduler in force for the scratch device; `None` where it has none or it was not read.
    pub scheduler: Option<Scheduler>,
    /// What the kernel offers beside it.
    pub schedulers: Vec<Scheduler>,
    /// Every value of every container, as many as there are: for a read-back that no race follows.
    pub every: bool,
}

/// The arms to measure, QEMU's default first, and those left out.
///
/// Not the whole product (over a thousand), but every value beside a sound one: all caches and engines on the first
/// container; iothreads, queues, bus, discard, sector sizes and the host's schedulers beside cache `none`; every other
/// container with each engine. With [`Ground::every`] every other container has all caches and engines, and the first
/// file all that is set beside cache `none`.
pub fn arms(ground: &Ground) -> (Vec<DiskPath>, Vec<LeftOut>) {
    let (mut kept, mut left_out): (Vec<DiskPath>, Vec<LeftOut>) = (Vec::new(), Vec::new());
    for path in wanted(ground) {
        if kept.contains(&path) {
            continue;
        }
        match refused(ground, &path) {
            None if ground.every || kept.len() < MOST_ARMS => kept.push(path),
            None => left_out.push(LeftOut {
                what: path.title(),
                why: format!("{MOST_ARMS} arms are the most one guest carries: leave others out with --without WORD"),
            }),
            Some(why) => left_out.push(LeftOut { what: path.title(), why }),
        }
    }
    (kept, left_out)
}

/// Every word that `--without` takes on any machine, in alphabetical order.
pub fn path_words() -> Vec<String> {
    let everywhere = Ground {
        containers: Container::ALL.to_vec(),
        vcpus: 2,
        io_uring_disabled: None,
        files_direct: None,
        qemu: None,
        libvirt: None,
        unsafe_allowed: true,
        without: Vec::new(),
        lvm: None,
        scheduler: None,
        schedulers: Scheduler::ALL.to_vec(),
        every: true,
    };
    // Schedulers are arms of a partition, which a ground with several containers need not begin with.
    let first = |container| Ground { containers: vec![container], ..everywhere.clone() };
    let all = Container::ALL.into_iter().map(first).flat_map(|ground| wanted(&ground));
    all.flat_map(|path| path.words()).collect::<BTreeSet<_>>().into_iter().collect()
}

fn wanted(ground: &Ground) -> Vec<DiskPath> {
    let Some(first) = ground.containers.first().copied() else { return Vec::new() };
    let engines = [DiskEngine::Threads, DiskEngine::Native, DiskEngine::IoUring];
    let default = DiskPath::qemu_default(first);
    let sound = DiskPath { cache: PathCache::None, iothreads: 1, ..default };
    let mut paths = vec![default];
    for cache in PathCache::ALL {
        paths.extend(engines.map(|engine| DiskPath { cache, engine, ..sound }));
    }
    for iothreads in [0, 2] {
        paths.extend(engines.map(|engine| DiskPath { engine, iothreads, ..sound }));
    }
    // One engine tells what these are worth: io_uring, and native where the kernel refuses that.
    let allowed = matches!(ground.io_uring_disabled, None | Some(0));
    let sound = DiskPath { engine: if allowed { DiskEngine::IoUring } else { DiskEngine::Native }, ..sound };
    let options = |sound: DiskPath| {
        [
            DiskPath { bus: Bus::VirtioScsi, ..sound },
            DiskPath { queues: Some(1), ..sound },
            DiskPath { discard: true, ..sound },
            DiskPath { discard: true, detect_zeroes: true, ..sound },
            DiskPath { block_size: Some(4096), ..sound },
        ]
    };
    paths.extend(options(sound));
    let others = ground.schedulers.iter().filter(|other| ground.scheduler != Some(**other));
    if first == Container::Partition {
        paths.extend(others.map(|scheduler| DiskPath { scheduler: Some(*scheduler), ..sound }));
    }
    let mut file = first.is_file();
    for container in ground.containers.iter().skip(1).copied() {
        let caches = if ground.every { &PathCache::ALL[..] } else { &[PathCache::None] };
        for cache in caches {
            paths.extend(engines.map(|engine| DiskPath { engine, cache: *cache, container, ..sound }));
        }
        if ground.every && container.is_file() && !file {
            paths.extend(options(DiskPath { container, ..sound }));
            file = true;
        }
    }
    paths
}

/// Why a path cannot be, or is not wanted.
fn refused(ground: &Ground, path: &DiskPath) -> Option<String> {
    let older = |found: Option<(u32, u32)>, needed| found.filter(|found| *found < needed);
    // QEMU's default is what everything is compared with.
    let default = path.is_qemu_default() && ground.containers.first() == Some(&path.container);
    let word = path.words().into_iter().find(|word| ground.without.contains(word)).filter(|_| !default);
    if let Some(word) = word {
        return Some(format!("--without {word}"));
    }
    if path.engine == DiskEngine::Native && !path.cache.is_direct() {
        return Some(format!(
            "QEMU opens no image with io=native and cache={}: Linux AIO needs O_DIRECT",
            path.cache.id()
        ));
    }
    if path.engine == DiskEngine::IoUring {
        match ground.io_uring_disabled {
            None | Some(0) => {}
            Some(value) => return Some(format!("kernel.io_uring_disabled is {value}: the kernel refuses io_uring")),
        }
    }
    if !path.cache.is_durable() && !ground.unsafe_allowed {
        return Some(
            "cache=unsafe ignores the guest's flushes: --unsafe-loses-data measures it, and it never wins".to_owned(),
        );
    }
    if path.cache.is_direct() && path.container.is_file() && ground.files_direct == Some(false) {
        return Some("the file system of the scratch directory has no O_DIRECT".to_owned());
    }
    if path.container == Container::Lvm && ground.lvm == Some(false) {
        return Some("lvm2 is not installed, which makes logical volumes".to_owned());
    }
    if path.container == Container::Device {
        if let Some((major, minor)) = older(ground.libvirt, SLICES) {
            return Some(format!("libvirt {major}.{minor} gives a guest no part of a device; 6.1 is the first"));
        }
    }
    if path.iothreads > 1 {
        if path.iothreads > ground.vcpus {
            return Some(format!(
                "{} iothreads share one queue a vCPU, and the guest has {} vCPU",
                path.iothreads, ground.vcpus
            ));
        }
        if let Some((major, minor)) = older(ground.qemu, SHARED_QUEUES.0) {
            return Some(format!(
                "QEMU {major}.{minor} gives a disk one iothread; 9.0 is the first that shares its queues"
            ));
        }
        if let Some((major, minor)) = older(ground.libvirt, SHARED_QUEUES.1) {
            return Some(format!("libvirt {major}.{minor} knows no sharing of queues; 10.0 is the first"));
        }
    }
    if path.queues.is_some_and(|queues| queues >= ground.vcpus) {
        return Some(format!("the guest has {} vCPU: that is QEMU's default", ground.vcpus));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground {
            containers: vec![Container::Partition],
            vcpus: 2,
            io_uring_disabled: Some(0),
            files_direct: None,
            qemu: Some((10, 0)),
            libvirt: Some((11, 3)),
            unsafe_allowed: false,
            without: Vec::new(),
            lvm: Some(true),
            scheduler: Some(Scheduler::None),
            schedulers: vec![Scheduler::None, Scheduler::MqDeadline],
            every: false,
        }
    }

    fn why(left_out: &[LeftOut], word: &str) -> bool {
        left_out.iter().any(|left| left.why.contains(word))
    }

    #[test]
    fn the_words_of_all_machines_are_known() {
        let words = path_words();
        for word in
            ["main-loop", "2-iothreads", "scheduler-kyber", "sectors-4096", "virtio-scsi", "q1", "lvm", "unsafe"]
        {
            assert!(words.iter().any(|known| known == word), "{word} is not in {words:?}");
        }
    }

    #[test]
    fn every_arm_is_one_qemu_takes_and_the_default_is_the_first() {
        let (arms, left_out) = arms(&ground());
        assert_eq!(arms[0], DiskPath::qemu_default(Container::Partition));
        assert!(arms.iter().all(|arm| arm.engine != DiskEngine::Native || arm.cache.is_direct()));
        assert!(arms.iter().all(|arm| arm.cache.is_durable()), "unsafe needs its flag");
        assert!(why(&left_out, "O_DIRECT") && why(&left_out, "--unsafe-loses-data"), "{left_out:?}");
        let mut ids: Vec<_> = arms.iter().map(DiskPath::id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), arms.len(), "no arm twice");
        for cache in [PathCache::None, PathCache::Directsync, PathCache::Writeback, PathCache::Writethrough] {
            assert!(arms.iter().any(|arm| arm.cache == cache), "{cache:?} is not there");
        }
        assert!(arms.iter().any(|arm| arm.iothreads == 2) && arms.iter().any(|arm| arm.bus == Bus::VirtioScsi));
    }

    #[test]
    fn what_the_machine_forbids_is_left_out_with_the_reason() {
        type Row = (Ground, fn(&DiskPath) -> bool, &'static str);
        let table: [Row; 5] = [
            (
                Ground { io_uring_disabled: Some(2), ..ground() },
                |arm| arm.engine == DiskEngine::IoUring,
                "io_uring_disabled is 2",
            ),
            (Ground { qemu: Some((8, 2)), ..ground() }, |arm| arm.iothreads > 1, "QEMU 8.2"),
            (Ground { libvirt: Some((9, 0)), ..ground() }, |arm| arm.iothreads > 1, "libvirt 9.0"),
            (Ground { vcpus: 1, ..ground() }, |arm| arm.iothreads > 1 || arm.queues.is_some(), "1 vCPU"),
            (
                Ground { without: vec!["virtio-scsi".to_owned()], ..ground() },
                |arm| arm.bus == Bus::VirtioScsi,
                "--without virtio-scsi",
            ),
        ];
        for (ground, gone, reason) in table {
            let (arms, left_out) = arms(&ground);
            assert!(!arms.iter().any(gone) && why(&left_out, reason), "{reason}: {left_out:?}");
            assert!(arms.len() > 5);
        }
    }

    #[test]
    fn the_default_stays_whatever_is_left_out_and_files_need_o_direct_for_direct_caches() {
        let without = ["writeback", "threads", "main-loop"].map(str::to_owned).to_vec();
        let (left, _) = arms(&Ground { without, ..ground() });
        assert!(left[0].is_qemu_default());
        let containers = vec![Container::RawFile, Container::Qcow2Full];
        let (left, _) = arms(&Ground { containers, files_direct: Some(false), ..ground() });
        assert!(left.iter().all(|arm| !arm.cache.is_direct()) && left.len() >= 3, "{left:?}");
    }

    #[test]
    fn unsafe_is_measured_with_its_flag() {
        let (arms, _) = arms(&Ground { unsafe_allowed: true, ..ground() });
        assert!(arms.iter().any(|arm| arm.cache == PathCache::Unsafe));
    }

    #[test]
    fn a_scheduler_is_an_arm_if_the_kernel_offers_it_and_it_is_not_in_force() {
        let (arms, _) = arms(&ground());
        let set: Vec<_> = arms.iter().filter_map(|arm| arm.scheduler).collect();
        assert_eq!(set, [Scheduler::MqDeadline]);
    }

    #[test]
    fn a_read_back_has_every_cache_and_engine_of_every_container() {
        let every = Ground { containers: Container::ALL.to_vec(), unsafe_allowed: true, every: true, ..ground() };
        let (all, left_out) = arms(&every);
        for container in Container::ALL {
            for cache in PathCache::ALL {
                let engines =
                    all.iter().filter(|arm| arm.container == container && arm.cache == cache && arm.iothreads == 1);
                let engines: std::collections::BTreeSet<_> = engines.map(|arm| arm.engine.name()).collect();
                assert_eq!(engines.len(), if cache.is_direct() { 3 } else { 2 }, "{container:?} {cache:?}");
            }
        }
        assert!(all.iter().any(|arm| arm.container == Container::RawFile && arm.detect_zeroes));
        assert!(left_out.iter().all(|left| left.why.contains("O_DIRECT")), "{left_out:?}");
        let (few, left_out) = arms(&Ground { lvm: Some(false), libvirt: Some((6, 0)), ..every });
        assert!(!few.iter().any(|arm| matches!(arm.container, Container::Lvm | Container::Device)));
        assert!(why(&left_out, "lvm2") && why(&left_out, "libvirt 6.0"), "{left_out:?}");
    }

    #[test]
    fn no_more_arms_than_a_guest_carries() {
        let (arms, left_out) = arms(&Ground { containers: Container::ALL.to_vec(), unsafe_allowed: true, ..ground() });
        assert_eq!(arms.len(), MOST_ARMS);
        assert!(why(&left_out, "--without"));
    }
}
