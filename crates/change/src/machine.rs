//! The machine that a change is made to, as the pieces it is made of; tests put other pieces in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nearmetal_hypervisor::Hypervisor;

use crate::ChangeError;
use crate::kernel::Kernel;
use crate::plan_file::HostIdentity;

/// Where the administrator's units are.
pub(crate) const UNIT_DIRECTORY: &str = "/etc/systemd/system";
/// Where libvirt looks for hooks of QEMU guests (since libvirt 6.5).
pub(crate) const HOOK_DIRECTORY: &str = "/etc/libvirt/hooks/qemu.d";

/// Everything apply, rollback and the boot unit touch.
pub struct Machine<'a> {
    /// Kernel settings.
    pub kernel: &'a dyn Kernel,
    /// libvirt.
    pub hypervisor: &'a mut dyn Hypervisor,
    /// Which machine this is.
    pub host: HostIdentity,
    /// The boot it is in.
    pub boot_id: String,
    /// Where units are installed.
    pub unit_directory: PathBuf,
    /// Where libvirt looks for hooks of QEMU guests.
    pub hook_directory: PathBuf,
    /// The program the boot unit runs: this one.
    pub program: PathBuf,
    /// How long to wait between two attempts to grow a pool.
    pub patience: Duration,
    /// Facts that are not the kernel's settings.
    pub surroundings: Surroundings,
}

/// What preconditions ask beside kernel and libvirt.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// Whether this process may change things.
    pub is_root: bool,
    /// Whether a path exists.
    pub exists: fn(&Path) -> bool,
}

impl Surroundings {
    /// Of this process on this machine.
    pub fn here() -> Self {
        Self { is_root: rustix::process::geteuid().is_root(), exists: Path::exists }
    }
}

impl<'a> Machine<'a> {
    /// This machine.
    pub fn here(
        kernel: &'a dyn Kernel,
        hypervisor: &'a mut dyn Hypervisor,
        host: HostIdentity,
    ) -> Result<Self, ChangeError> {
        let program = std::env::current_exe().map_err(|source| nearmetal_host::files::FileError {
            action: "find",
            path: "/proc/self/exe".into(),
            source,
        })?;
        Ok(Self {
            boot_id: crate::kernel::boot_id(kernel)?,
            kernel,
            hypervisor,
            host,
            unit_directory: UNIT_DIRECTORY.into(),
            hook_directory: HOOK_DIRECTORY.into(),
            program,
            patience: crate::POOL_PATIENCE,
            surroundings: Surroundings::here(),
        })
    }
}

impl std::fmt::Debug for Machine<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Machine")
            .field("host", &self.host)
            .field("boot_id", &self.boot_id)
            .finish_non_exhaustive()
    }
}
