//! The kernel values a change reads and writes, behind a seam as narrow as that: tests put a kernel in memory behind
//! it that runs out of pages.

use std::process::{Command, Stdio};

use nearmetal_host::{Host, HostFs, ReadError, ThreadRole, guests};
use nearmetal_units::{CpuSet, PageSize};

use crate::ChangeError;
use crate::change::PinTarget;

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
}

/// Runs a tool of kmod, which alone knows where modules lie and what they need.
fn run(files: &HostFs, program: &str, module: &str) -> Result<(), ChangeError> {
    if !files.is_live() {
        return Err(ChangeError::Kernel(format!("`{program} {module}` cannot be done to a capture")));
    }
    let failed = |why: String| ChangeError::Kernel(format!("`{program} {module}` failed: {why}"));
    let output = Command::new(program).arg("--").arg(module).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.lines().next().map_or_else(|| output.status.to_string(), str::to_owned)))
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
pub(crate) fn persistent_pages(kernel: &dyn Kernel, node: u32, size: PageSize) -> Result<u64, ChangeError> {
    let directory = pool_directory(node, size);
    let count = |name: &str| -> Result<u64, ChangeError> {
        let path = format!("{directory}/{name}");
        let text = required(kernel, &path)?;
        text.parse().map_err(|_| ChangeError::Kernel(format!("`{path}` holds `{text}`, which is no count of pages")))
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
pub(crate) fn boot_id(kernel: &dyn Kernel) -> Result<String, ChangeError> {
    required(kernel, "/proc/sys/kernel/random/boot_id")
}
