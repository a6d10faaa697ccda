//! A guest as libvirt starts it, seen through /proc: on a kernel with vhost threads inside QEMU, and on one before.

#![allow(clippy::unwrap_used, reason = "a tree that cannot be built is a failed test")]

mod common;

use common::Tree;
use nearmetal_host::guests::{self, OpenFile};
use nearmetal_host::{GuestProcess, Host, ReadError, Thread, ThreadRole, disk_counters, text};
use nearmetal_units::{Bytes, PageSize};

const UUID: &str = "c7a5fdbd-edaf-9455-926a-d65c16db1809";
const RAM: &str = "/dev/hugepages/libvirt/qemu/1-db/ram-node0 (deleted)";

/// A guest with two vCPUs, an iothread, 1 GiB in 2 MiB pages of node 1, a disk through io_uring past the page cache.
fn tree() -> Tree {
    let tree = Tree::new();
    let line = format!(
        "/usr/bin/qemu-system-x86_64\0-name\0guest=db,debug-threads=on\0-m\0size=1048576k\0-object\0\
         {{\"qom-type\":\"memory-backend-file\",\"id\":\"ram-node0\",\"size\":1073741824}}\0-uuid\0{UUID}\0"
    );
    tree.file("/proc/4711/cmdline", line);
    tree.file("/proc/4711/stat", stat(4711, "qemu-system-x86", 'S', 77_000));
    thread(&tree, 4711, 4711, "qemu-system-x86", "6");
    thread(&tree, 4711, 4712, "IO iothread1", "7");
    thread(&tree, 4711, 4713, "CPU 0/KVM", "2");
    thread(&tree, 4711, 4714, "CPU 1/KVM", "3");
    thread(&tree, 4711, 4715, "IO mon_iothread", "6");
    tree.file(
        "/proc/4711/maps",
        format!(
            "55d0c8a00000-55d0c8b00000 rw-p 00000000 00:00 0 \n\
             7f1200000000-7f1240000000 rw-s 00000000 00:0f 4711 {RAM}\n\
             7f13aa000000-7f13aa001000 rw-s 00000000 00:11 9001 /[aio] (deleted)\n"
        ),
    );
    tree.file(
        "/proc/4711/numa_maps",
        "55d0c8a00000 default anon=5 dirty=5 N0=5 kernelpagesize_kB=4\n\
         7f1200000000 bind:1 file=/dev/hugepages/libvirt/qemu/1-db/ram-node0\\040(deleted) huge dirty=512 N1=512 \
         kernelpagesize_kB=2048\n\
         7f13aa000000 default\n",
    );
    tree.link("/proc/4711/fd/0", "/dev/null").file("/proc/4711/fdinfo/0", "pos:\t0\nflags:\t02\nmnt_id:\t1\n");
    tree.link("/proc/4711/fd/12", "/dev/nvme0n1").file("/proc/4711/fdinfo/12", "pos:\t0\nflags:\t02140002\n");
    tree.link("/proc/4711/fd/13", "anon_inode:[io_uring]").file(
        "/proc/4711/fdinfo/13",
        "pos:\t0\nflags:\t02\nSqMask:\t0x7f\nSqHead:\t9\nSqTail:\t9\nCqMask:\t0xff\nCqHead:\t8\nCqTail:\t9\n",
    );
    // A shell that only mentions QEMU, and a kernel thread.
    tree.file("/proc/1/cmdline", "sh\0-c\0qemu-system-x86_64 -uuid c7a5\0");
    tree.file("/proc/2/cmdline", "").file("/proc/2/comm", "kthreadd\n");
    tree
}

fn thread(tree: &Tree, pid: u32, id: u32, name: &str, cpus: &str) {
    status(tree, &format!("/proc/{pid}/task/{id}"), name, 1, cpus);
}

fn status(tree: &Tree, directory: &str, name: &str, parent: u32, cpus: &str) {
    let status = format!("Name:\t{name}\nPPid:\t{parent}\nCpus_allowed_list:\t{cpus}\nMems_allowed:\t1\n");
    tree.files(directory, &[("comm", &format!("{name}\n")), ("status", &status)]);
}

fn stat(pid: u32, name: &str, state: char, start: u64) -> String {
    format!("{pid} ({name}) {state} 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 {start} 0 0 0\n")
}

fn shape(threads: &[Thread]) -> Vec<(u32, ThreadRole, String)> {
    let affinity = |thread: &Thread| thread.affinity.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string);
    threads.iter().map(|thread| (thread.id, thread.role.clone(), affinity(thread))).collect()
}

#[test]
fn a_guest_is_found_by_uuid_with_threads_and_pages() {
    let tree = tree();
    let fs = tree.fs();
    assert_eq!(guests::pids(&fs).unwrap(), [4711]);
    let guest = guests::find(&fs, &UUID.to_uppercase()).unwrap().unwrap();
    assert_eq!((guest.name.as_deref(), guest.start_time), (Some("db"), Some(77_000)));
    assert_eq!(
        shape(&guest.threads),
        [
            (4711, ThreadRole::Emulator, "6".to_owned()),
            (4712, ThreadRole::Iothread(1), "7".to_owned()),
            (4713, ThreadRole::Vcpu(0), "2".to_owned()),
            (4714, ThreadRole::Vcpu(1), "3".to_owned()),
            (4715, ThreadRole::Other, "6".to_owned()),
        ]
    );
    assert_eq!(guest.memory_by_node(), [(1, Bytes::from_mib(1024))]);
    let ram: Vec<_> = guest.residency.iter().filter(|mapping| mapping.guest_memory).collect();
    assert_eq!((ram.len(), ram[0].page_size, ram[0].policy.as_str()), (1, PageSize::HUGE_2M, "bind:1"));
    assert_eq!(ram[0].file.as_deref(), Some(RAM));
    assert_eq!(guests::find(&fs, "00000000-0000-0000-0000-000000000000").unwrap(), None);
    let host = Host::read(&fs);
    assert_eq!(host.guests, [guest]);
    assert!(text::render(&host).contains("GUEST db (process 4711"));
}

#[test]
fn vhost_workers_are_found_inside_and_outside() {
    let tree = tree();
    let vhost = |tree: &Tree| GuestProcess::read(&tree.fs(), 4711).unwrap().threads.pop().unwrap();
    // Linux before 6.4: a child of kthreadd. A user's process of that name is not taken for one.
    status(&tree, "/proc/900", "vhost-4711", 2, "0-7");
    status(&tree, "/proc/901", "vhost-4711", 1, "0-7");
    status(&tree, "/proc/902", "vhost-9999", 2, "0-7");
    let outside = vhost(&tree);
    assert_eq!((outside.id, outside.role), (900, ThreadRole::Vhost));
    assert_eq!(guests::threads(&tree.fs(), 4711).unwrap().iter().filter(|t| t.role == ThreadRole::Vhost).count(), 1);
    assert_eq!(Host::read(&tree.fs()).guests[0].threads.len(), 6);
    // Linux 6.4 and later: a thread of QEMU.
    thread(&tree, 4711, 4720, "vhost-4711", "6");
    assert_eq!((vhost(&tree).id, vhost(&tree).role), (4720, ThreadRole::Vhost));
    assert_eq!(guests::thread_affinity(&tree.fs(), 4711, 4720).unwrap().to_string(), "6");
}

#[test]
fn open_files_tell_engine_and_cache_mode() {
    let tree = tree();
    let files = guests::open_files(&tree.fs(), 4711).unwrap();
    let file = |fd: u32| files.iter().find(|file| file.fd == fd).unwrap();
    assert!(!file(0).direct);
    assert_eq!((file(12).target.as_str(), file(12).direct), ("/dev/nvme0n1", cfg!(target_arch = "x86_64")));
    assert!(file(13).is_io_uring());
    assert_eq!(file(13).io_uring.map(|ring| (ring.sq_tail, ring.cq_head, ring.cq_tail)), Some((9, 8, 9)));
    assert_eq!(files.iter().filter(|file| OpenFile::is_io_uring(file)).count(), 1);
    assert_eq!(guests::count_aio_rings(&tree.fs(), 4711).unwrap(), 1);
}

#[test]
fn a_pid_given_to_another_process_is_not_the_guest() {
    let tree = tree();
    let fs = tree.fs();
    let start = guests::start_time(&fs, 4711).unwrap();
    assert!(guests::is_alive(&fs, 4711, start) && !guests::is_alive(&fs, 4711, start + 1));
    tree.file("/proc/4711/stat", stat(4711, "qemu-system-x86", 'Z', start));
    assert!(!guests::is_alive(&fs, 4711, start));
    assert!(!guests::is_alive(&fs, 1, start) && guests::start_time(&fs, 1).is_err());
    assert!(matches!(GuestProcess::read(&fs, 1), Err(ReadError::Unreadable { .. })));
    assert!(matches!(GuestProcess::read(&fs, 5), Err(ReadError::Missing { .. })));
}

#[test]
fn a_damaged_process_loses_only_what_was_damaged() {
    for (path, damage) in [
        ("/proc/4711/numa_maps", "7f1200000000 bind:1 N1=512\n"),
        ("/proc/4711/numa_maps", ""),
        ("/proc/4711/maps", "junk\n"),
    ] {
        let tree = tree();
        tree.file(path, damage);
        let guest = GuestProcess::read(&tree.fs(), 4711).unwrap();
        assert!(guest.residency.is_empty() && guest.residency_error.is_some(), "{path} {damage}");
        assert_eq!(guest.threads.len(), 5);
    }
    let tree = tree();
    tree.file("/proc/4711/task/4713/status", "Cpus_allowed_list:\t\n");
    let host = Host::read(&tree.fs());
    assert_eq!(host.guests[0].threads[2].affinity, None);
    assert!(host.unreadable.iter().any(|damage| damage.path == "/proc/4711/task/4713/status"));
    tree.file("/proc/4711/fdinfo/12", "junk");
    assert!(guests::open_files(&tree.fs(), 4711).is_err());
}

#[test]
fn counters_of_a_disk() {
    let tree = tree();
    tree.file("/sys/class/block/nvme0n1/stat", "  10 0 80 1 20 0 160 2 1 3 3 0 0 0 0 0 0\n");
    let counters = disk_counters(&tree.fs(), "nvme0n1").unwrap();
    assert_eq!((counters.reads, counters.writes, counters.in_flight), (10, 20, 1));
    assert!(disk_counters(&tree.fs(), "sda").unwrap_err().is_missing());
}
