//! Running guests, from /proc alone: QEMU processes, their threads, their pages and their open files.
//!
//! Nothing here asks libvirt: these are the facts that a plan is checked against. `/proc/PID/*` is described in
//! Linux Documentation/filesystems/proc.rst.

mod command_line;
mod maps;
mod numa_maps;
mod open_files;
mod owner;
mod processes;
mod residency;
mod scheduling;
mod threads;
mod time_groups;

pub use command_line::{CommandLine, QemuCell};
pub use open_files::{IoUring, OpenFile, count_aio_rings, may_have_open, open_files};
pub(crate) use processes::{command_lines, read_all};
pub use processes::{find, is_alive, own_pid_of, pid_of, pids, running, start_time, trusted};
pub use residency::residency;
pub(crate) use threads::inside as threads_inside;
pub use threads::{resident, thread_affinity, threads};

/// Parsers of files of processes, for the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_targets() -> Vec<crate::fuzzing::Target> {
    use crate::fuzzing::Target;
    vec![
        Target::bytes(
            "QEMU command line",
            b"qemu-system-x86_64\0-name\0guest=db,x=y\0-m\0size=1024k\0-uuid\0c7\0-object\0memory-backend-ram,id=a,size=1M,\
              host-nodes=1\0-numa\0node,nodeid=0,cpus=0-1,cpus=4,memdev=a\0-numa\0dist,src=0,dst=0,val=10\0",
            |bytes| {
                drop(CommandLine::parse(bytes).map(|line| (line.guest_memory(), line.memory_sizes())));
            },
        ),
        Target::text("maps", "7f1200000000-7f1240000000 rw-s 00000000 00:0f 4711 /dev/x (deleted)\n", |text| {
            drop(maps::parse(text));
        }),
        Target::text("numa_maps", "7f12 bind:1 file=/a\\040b huge dirty=512 N1=512 kernelpagesize_kB=2048\n", |text| {
            drop(numa_maps::parse(text));
        }),
        Target::text("thread status", "Name:\tCPU 0/KVM\nPPid:\t1\nCpus_allowed_list:\t0-3\n", |text| {
            drop(threads::allowed_cpus(text));
        }),
        Target::text("thread waits", "912345 4711 20", |text| drop(threads::wait(text))),
        Target::text("process swap", "Name:\tqemu\nVmSwap:\t    2048 kB\n", |text| drop(threads::swap_in(text))),
        Target::text("thread name", "CPU 12/KVM", |text| _ = threads::role(text, false)),
        Target::text("process stat", "4711 (CPU 0) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 5 0 77 0 0 0\n", |text| {
            let _ = processes::stat(text);
        }),
        Target::text("thread scheduling", scheduling::EXAMPLE, |text| drop(scheduling::of_stat(text))),
        Target::text("CPU quota", "50000 100000", |text| drop(time_groups::quota(text))),
        Target::text("control groups of a thread", "4:cpu,cpuacct:/a/b\n0::/c\n", |text| {
            drop(time_groups::place(text));
        }),
        Target::text("fdinfo", "pos:\t0\nflags:\t02140002\nSqMask:\t0x7f\nSqHead:\t9\nSqTail:\t9\n", |text| {
            drop((open_files::open_flags(text), open_files::ring(text)));
        }),
    ]
}
