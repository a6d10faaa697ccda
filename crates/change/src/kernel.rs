//! The kernel values a change reads and writes, behind a seam as narrow as that: tests put a kernel in memory behind
//! it that runs out of pages.

use std::process::{Command, Stdio};

use nearmetal_host::{Host, HostFs, ReadError, ThreadRole, guests};
use nearmetal_units::{CpuSet, PageSize, PciAddress};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ChangeError;
use crate::pins::PinTarget;

/// A kernel whose settings can be read and written.
pub trait Kernel {
    /// The text of a file under /sys or /proc, `None` if there is no such file.
    fn read(&self, path: &str) -> Result<Option<String>, ChangeError>;

    /// Writes one value.
    fn write(&self, path: &str, value: &str) -> Result<(), ChangeError>;

    /// The PUs that threads of a running guest may use; `None` where there is no such guest or thread.
    fn affinity(&self, uuid: &str, target: PinTarget) -> Result<Option<CpuSet>, ChangeError>;

    /// Loads a module with all it needs.
    fn load_module(&self, module: &str) -> Result<(), ChangeError>;

    /// Removes a module, and nothing that it needed.
    fn unload_module(&self, module: &str) -> Result<(), ChangeError>;

    /// The machine's PCI functions, drives, mounts and interfaces as they are now.
    fn inventory(&self) -> Host;

    /// Bytes of a node that come free when a guest stops: its pages that are not from a pool.
    fn guest_memory(&self, uuid: &str, node: u32) -> Result<u64, ChangeError>;

    /// Names in a directory; none where there is no such directory. A kernel without devices has none.
    fn list(&self, _path: &str) -> Result<Vec<String>, ChangeError> {
        Ok(Vec::new())
    }

    /// The last name of a link's target, `None` if there is no such link.
    fn link_name(&self, _path: &str) -> Result<Option<String>, ChangeError> {
        Ok(None)
    }

    /// Runs a program that sets or tells what no file does (`ip`, `nvme`), and gives what it printed.
    fn run(&self, program: &str, _arguments: &[&str]) -> Result<String, ChangeError> {
        Err(ChangeError::Kernel(format!("`{program}` is missing")))
    }

    /// Whether some process has a device to itself: a file below /dev.
    fn is_held(&self, _path: &str) -> Result<bool, ChangeError> {
        Ok(false)
    }

    /// The guest that has one of these files open, or starts with this function, by its name; `None` if none is seen.
    fn holder(&self, _function: PciAddress, _paths: &[String]) -> Result<Option<String>, ChangeError> {
        Ok(None)
    }

    /// The process of the guest with this UUID, `None` if it does not run.
    fn guest(&self, _uuid: &str) -> Result<Option<u32>, ChangeError> {
        Ok(None)
    }

    /// When a process was started, in clock ticks after boot; `None` if it is gone.
    fn started(&self, _pid: u32) -> Result<Option<u64>, ChangeError> {
        Ok(None)
    }

    /// The vhost workers of a guest's process, with the PUs each may run on; one that ends meanwhile is left out.
    fn vhost_workers(&self, _pid: u32) -> Result<Vec<(u32, CpuSet)>, ChangeError> {
        Ok(Vec::new())
    }

    /// Sets the PUs a thread may run on, inside its cpuset.
    fn set_affinity(&self, thread: u32, _cpus: &CpuSet) -> Result<(), ChangeError> {
        Err(ChangeError::Kernel(format!("thread {thread} does not exist")))
    }
}

impl Kernel for HostFs {
    fn read(&self, path: &str) -> Result<Option<String>, ChangeError> {
        match HostFs::read(self, path) {
            Ok(text) => Ok(Some(text)),
            Err(ReadError::Missing { .. }) => Ok(None),
            Err(error) => Err(ChangeError::Kernel(error.to_string())),
        }
    }

    fn write(&self, path: &str, value: &str) -> Result<(), ChangeError> {
        Ok(HostFs::write(self, path, value)?)
    }

    fn affinity(&self, uuid: &str, target: PinTarget) -> Result<Option<CpuSet>, ChangeError> {
        let guest = guests::find(self, uuid).map_err(|error| ChangeError::Kernel(error.to_string()))?;
        let role = match target {
            PinTarget::Vcpu(number) => ThreadRole::Vcpu(number),
            PinTarget::Emulator => ThreadRole::Emulator,
            PinTarget::Iothread(number) => ThreadRole::Iothread(number),
        };
        Ok(guest.and_then(|guest| guest.threads_of(&role).next()?.affinity.clone()))
    }

    fn load_module(&self, module: &str) -> Result<(), ChangeError> {
        run(self, "modprobe", module)
    }

    fn unload_module(&self, module: &str) -> Result<(), ChangeError> {
        run(self, "rmmod", module)
    }

    fn inventory(&self) -> Host {
        Host::read(self)
    }

    fn guest_memory(&self, uuid: &str, node: u32) -> Result<u64, ChangeError> {
        let guest = guests::find(self, uuid).map_err(|error| ChangeError::Kernel(error.to_string()))?;
        let mappings = guest.map(|guest| guest.residency).unwrap_or_default();
        let small = mappings.iter().filter(|mapping| mapping.page_size == PageSize::SMALL);
        let pages = small.flat_map(|mapping| &mapping.pages).filter(|(own, _)| *own == node);
        Ok(pages.map(|(_, count)| count.saturating_mul(PageSize::SMALL.bytes().get())).sum())
    }

    fn list(&self, path: &str) -> Result<Vec<String>, ChangeError> {
        match HostFs::list(self, path) {
            Ok(names) => Ok(names),
            Err(ReadError::Missing { .. }) => Ok(Vec::new()),
            Err(error) => Err(ChangeError::Kernel(error.to_string())),
        }
    }

    fn link_name(&self, path: &str) -> Result<Option<String>, ChangeError> {
        match HostFs::link_name(self, path) {
            Ok(name) => Ok(Some(name)),
            Err(ReadError::Missing { .. }) => Ok(None),
            Err(error) => Err(ChangeError::Kernel(error.to_string())),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ChangeError> {
        let output = output(self, program, arguments)?;
        String::from_utf8(output).map_err(|_| {
            ChangeError::Kernel(format!(
                "`{program}` printed something that is not \
            text"
            ))
        })
    }

    fn is_held(&self, path: &str) -> Result<bool, ChangeError> {
        if !self.is_live() {
            return Ok(false);
        }
        // Exclusive without creating: a block device that is mounted, swapped to or in a pool is busy then (open(2)), and a
        // group of VFIO has one user at any time. Nothing is read.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::BUSY) => Ok(true),
            Ok(_) | Err(_) => Ok(false),
        }
    }

    fn holder(&self, function: PciAddress, paths: &[String]) -> Result<Option<String>, ChangeError> {
        Ok(crate::verify::holder(self, None, function, paths))
    }

    fn guest(&self, uuid: &str) -> Result<Option<u32>, ChangeError> {
        guests::pid_of(self, uuid).map_err(|error| ChangeError::Kernel(error.to_string()))
    }

    fn started(&self, pid: u32) -> Result<Option<u64>, ChangeError> {
        match guests::start_time(self, pid) {
            Ok(ticks) => Ok(Some(ticks)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(ChangeError::Kernel(error.to_string())),
        }
    }

    fn vhost_workers(&self, pid: u32) -> Result<Vec<(u32, CpuSet)>, ChangeError> {
        let threads = match guests::threads(self, pid) {
            Ok(threads) => threads,
            Err(error) if error.is_missing() => return Ok(Vec::new()),
            Err(error) => return Err(ChangeError::Kernel(error.to_string())),
        };
        let workers = threads.into_iter().filter(|thread| thread.role == ThreadRole::Vhost);
        Ok(workers.filter_map(|thread| Some((thread.id, thread.affinity?))).collect())
    }

    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> Result<(), ChangeError> {
        if !self.is_live() {
            return Err(ChangeError::Kernel(format!("cannot pin thread {thread}: it belongs to a capture")));
        }
        set_affinity(thread, cpus)
    }
}

/// sched_setaffinity(2) of one thread.
fn set_affinity(thread: u32, cpus: &CpuSet) -> Result<(), ChangeError> {
    let failed = |why: String| ChangeError::Kernel(format!("cannot pin thread {thread} to PUs {cpus}: {why}"));
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus.iter() {
        let cpu = cpu as usize;
        if cpu >= rustix::thread::CpuSet::MAX_CPU {
            return Err(failed(format!("PU {cpu} is beyond {}", rustix::thread::CpuSet::MAX_CPU - 1)));
        }
        set.set(cpu);
    }
    let pid = i32::try_from(thread).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| failed("that is not a thread id".to_owned()))?;
    rustix::thread::sched_setaffinity(Some(pid), &set).map_err(|errno| match errno {
        // None of them is in its cpuset.
        Errno::INVAL => failed("they are outside the emulator thread's cpuset".to_owned()),
        other => failed(other.to_string()),
    })
}

/// Runs a tool of kmod, which alone knows where modules lie and what they need.
fn run(files: &HostFs, program: &str, module: &str) -> Result<(), ChangeError> {
    output(files, program, &["--", module]).map(drop)
}

/// Runs a program, with no shell between, and gives its stdout.
fn output(files: &HostFs, program: &str, arguments: &[&str]) -> Result<Vec<u8>, ChangeError> {
    let command = format!("{program} {}", arguments.join(" ")).replace(" -- ", " ");
    if !files.is_live() {
        return Err(ChangeError::Kernel(format!("cannot run `{command}` on a capture")));
    }
    let failed = |why: String| ChangeError::Kernel(format!("`{command}` failed: {why}"));
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(missing(program, &error)))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.lines().next().map_or_else(|| output.status.to_string(), str::to_owned)))
}

/// A program that is not there, with the package that has it.
fn missing(program: &str, error: &std::io::Error) -> String {
    let package = match program {
        "ip" => "iproute2",
        "nvme" => "nvme-cli",
        "systemctl" => "systemd",
        _ => "kmod",
    };
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("it is not installed (Debian: apt install {package})"),
        _ => error.to_string(),
    }
}

/// The text of a file that must be there, without the newline at its end.
pub(crate) fn required(kernel: &dyn Kernel, path: &str) -> Result<String, ChangeError> {
    match kernel.read(path)? {
        Some(text) => Ok(text.trim_end().to_owned()),
        None => Err(ChangeError::Kernel(format!("`{path}` does not exist on this kernel"))),
    }
}

/// The directory of a node's pool.
pub(crate) fn pool_directory(node: u32, size: PageSize) -> String {
    format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{}kB", size.bytes().kib())
}

/// Pages a pool keeps: total minus surplus. The total alone does not change when a pool in use is shrunk, since its
/// pages only turn into surplus (Linux, Documentation/admin-guide/mm/hugetlbpage.rst).
pub fn persistent_pages(kernel: &dyn Kernel, node: u32, size: PageSize) -> Result<u64, ChangeError> {
    let directory = pool_directory(node, size);
    let count = |name: &str| -> Result<u64, ChangeError> {
        let path = format!("{directory}/{name}");
        let text = required(kernel, &path)?;
        text.parse().map_err(|_| ChangeError::Kernel(format!("`{path}` holds `{text}`, which is not a count of pages")))
    };
    Ok(count("nr_hugepages")?.saturating_sub(count("surplus_hugepages")?))
}

/// Memory a node could give to a pool: what is free, and what the kernel drops or writes back on demand.
///
/// MemFree alone would refuse every machine that has read a large file; the sum is an upper bound, and whether the
/// pages are really there shows only when the pool grows.
pub(crate) fn available_bytes(kernel: &dyn Kernel, node: u32) -> Result<u64, ChangeError> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let text = required(kernel, &path)?;
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(2);
            (words.next() == Some(name)).then(|| words.next()?.parse::<u64>().ok()).flatten()
        })
    };
    let free = field("MemFree:").ok_or_else(|| ChangeError::Kernel(format!("`{path}` has no MemFree")))?;
    let reclaimable: u64 =
        ["Active(file):", "Inactive(file):", "SReclaimable:"].iter().filter_map(|name| field(name)).sum();
    Ok(free.saturating_add(reclaimable).saturating_mul(1024))
}

/// The identifier of the present boot.
pub fn boot_id(kernel: &dyn Kernel) -> Result<String, ChangeError> {
    required(kernel, "/proc/sys/kernel/random/boot_id")
}
