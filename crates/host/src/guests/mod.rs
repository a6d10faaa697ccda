//! Running guests, from /proc alone: QEMU processes, their threads, their pages and their open files.
//!
//! Nothing here asks libvirt: these are the facts that a plan is checked against. `/proc/PID/*` is described in
//! Linux Documentation/filesystems/proc.rst.

mod command_line;
mod maps;
mod numa_maps;
mod open_files;
mod processes;
mod residency;
mod threads;

pub use command_line::CommandLine;
pub use open_files::{IoUring, OpenFile, count_aio_rings, open_files};
pub(crate) use processes::read_all;
pub use processes::{find, is_alive, pids, start_time};
pub use residency::residency;
pub use threads::{thread_affinity, threads};
