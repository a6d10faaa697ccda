//! One change to the machine, as data: what it touches, the old value and the new one.

use std::fmt;

use nearmetal_units::{CpuSet, PageSize, PciAddress};
use serde::{Deserialize, Serialize};

use crate::device_state::{Card, DriverState, VfState};
use crate::instance::Instance;
use crate::pins::{PinTarget, Pins};

/// A change, complete enough to be done and undone from the journal alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Change {
    /// The number of persistent pages of a node's pool. Lost at a reboot.
    HugepagePool {
        /// Node.
        node: u32,
        /// Page size.
        size: PageSize,
        /// Persistent pages before.
        old: u64,
        /// Persistent pages after.
        new: u64,
    },
    /// A kernel setting. Lost at a reboot.
    SysfsValue {
        /// Its file.
        path: String,
        /// Text before.
        old: String,
        /// Text after.
        new: String,
    },
    /// A module is loaded. Lost at a reboot. Undone by removing it, if nothing uses it by then.
    LoadModule {
        /// Its name.
        module: String,
        /// Whether it was loaded before: in a later boot something else may load it.
        loaded: bool,
    },
    /// The unit that re-applies at boot what a reboot loses. Survives a reboot.
    BootUnit {
        /// Its text before, `None` if it was not installed.
        old: Option<String>,
        /// Its text after.
        new: String,
    },
    /// libvirt's qemu hook, which sets after every start what libvirt has no element for. Survives a reboot.
    QemuHook {
        /// Its text before, `None` if it was not installed.
        old: Option<String>,
        /// Its text after.
        new: String,
    },
    /// What the hook sets after a start, for a guest that runs already. Lost when the guest stops.
    AfterStart {
        /// Name.
        domain: String,
        /// UUID.
        uuid: String,
        /// The run of the guest that this is about.
        instance: Option<Instance>,
        /// PUs before.
        old: Pins,
        /// PUs after.
        new: Pins,
    },
    /// The stored definition of a domain. Survives a reboot.
    DefineDomain {
        /// Name.
        domain: String,
        /// UUID.
        uuid: String,
        /// Definition before, as libvirt printed it.
        old_xml: String,
        /// Definition after.
        new_xml: String,
        /// The run with the old definition, `None` if it was off.
        instance: Option<Instance>,
    },
    /// A domain that was not there is defined. Survives a reboot. Undone by removing its definition, if it is still that
    /// domain and off.
    NewDomain {
        /// Name.
        domain: String,
        /// UUID.
        uuid: String,
        /// Definition.
        xml: String,
    },
    /// The running guest is shut down. Undone by starting it.
    ShutdownDomain {
        /// Name.
        domain: String,
        /// The run before.
        instance: Option<Instance>,
    },
    /// The guest is started. Undone by shutting it down.
    StartDomain {
        /// Name.
        domain: String,
    },
    /// The affinity of a running guest's threads. Lost when the guest stops.
    LivePin {
        /// Name.
        domain: String,
        /// Which threads.
        target: PinTarget,
        /// PUs before.
        old: CpuSet,
        /// PUs after.
        new: CpuSet,
        /// The run of the guest that this is about.
        instance: Option<Instance>,
    },
    /// The virtual functions of a card: how many, and how each is set. Lost at a reboot.
    VirtualFunctions {
        /// The card.
        card: Card,
        /// As they were.
        old: Box<VfState>,
        /// As they are to be.
        new: Box<VfState>,
        /// Whether the boot unit makes them again.
        persist: bool,
    },
    /// The driver of a PCI function. Lost at a reboot.
    Driver {
        /// The function.
        card: Card,
        /// What drove it.
        old: DriverState,
        /// What is to drive it.
        new: DriverState,
        /// Whether the boot unit makes it so again.
        persist: bool,
    },
}

/// When a change ceases to be in force by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Never.
    Persistent,
    /// At a reboot, unless the boot unit re-applies it.
    Boot,
    /// When the guest stops.
    Instance,
}

impl Change {
    /// When it ceases to be in force by itself.
    pub fn lifetime(&self) -> Lifetime {
        match self {
            Self::HugepagePool { .. }
            | Self::SysfsValue { .. }
            | Self::LoadModule { .. }
            | Self::VirtualFunctions { .. }
            | Self::Driver { .. } => Lifetime::Boot,
            Self::BootUnit { .. } | Self::QemuHook { .. } | Self::DefineDomain { .. } | Self::NewDomain { .. } => {
                Lifetime::Persistent
            }
            Self::ShutdownDomain { .. } | Self::StartDomain { .. } | Self::LivePin { .. } | Self::AfterStart { .. } => {
                Lifetime::Instance
            }
        }
    }

    /// Whether the boot unit makes it again: what a reboot loses, unless its name may mean another thing by then.
    /// Interrupts are numbered anew at each boot; devices are made again on request alone.
    pub fn is_made_again_at_boot(&self) -> bool {
        let renumbered = matches!(self, Self::SysfsValue { path, .. } if path.starts_with("/proc/irq/"));
        let unwanted =
            matches!(self, Self::VirtualFunctions { persist, .. } | Self::Driver { persist, .. } if !persist);
        self.lifetime() == Lifetime::Boot && !renumbered && !unwanted
    }

    /// Whether it is to a device: virtual functions, or a driver.
    pub fn is_of_devices(&self) -> bool {
        matches!(self, Self::VirtualFunctions { .. } | Self::Driver { .. })
    }

    /// What it touches, in words: two changes with the same words exclude each other's rollback.
    pub fn object(&self) -> String {
        match self {
            Self::HugepagePool { node, size, .. } => pool_words(*node, *size),
            Self::SysfsValue { path, .. } => format!("`{path}`"),
            Self::LoadModule { module, .. } => format!("the module {module}"),
            Self::BootUnit { .. } => "the boot unit".to_owned(),
            Self::QemuHook { .. } => "libvirt's qemu hook".to_owned(),
            Self::DefineDomain { domain, .. }
            | Self::NewDomain { domain, .. }
            | Self::ShutdownDomain { domain, .. }
            | Self::StartDomain { domain }
            | Self::AfterStart { domain, .. }
            | Self::LivePin { domain, .. } => format!("the domain `{domain}`"),
            Self::VirtualFunctions { card, .. } => functions_words(card.function),
            Self::Driver { card, .. } => format!("the driver of {}", card.function),
        }
    }

    /// Its place in the names of fault points: no spaces.
    pub fn slug(&self) -> String {
        match self {
            Self::HugepagePool { node, size, .. } => format!("pool-node{node}-{}kB", size.bytes().kib()),
            Self::SysfsValue { path, .. } => format!("sysfs-{}", path.rsplit('/').next().unwrap_or(path)),
            Self::LoadModule { module, .. } => format!("module-{module}"),
            Self::BootUnit { .. } => "boot-unit".to_owned(),
            Self::QemuHook { .. } => "qemu-hook".to_owned(),
            Self::AfterStart { domain, .. } => format!("after-start-{domain}"),
            Self::DefineDomain { domain, .. } => format!("define-{domain}"),
            Self::NewDomain { domain, .. } => format!("new-{domain}"),
            Self::ShutdownDomain { domain, .. } => format!("shutdown-{domain}"),
            Self::StartDomain { domain } => format!("start-{domain}"),
            Self::LivePin { domain, target, .. } => match target {
                PinTarget::Vcpu(number) => format!("pin-{domain}-vcpu{number}"),
                PinTarget::Emulator => format!("pin-{domain}-emulator"),
                PinTarget::Iothread(number) => format!("pin-{domain}-iothread{number}"),
            },
            Self::VirtualFunctions { card, .. } => format!("vfs-{}", card.function),
            Self::Driver { card, .. } => format!("driver-{}", card.function),
        }
    }
}

/// A pool, as [`Change::object`] names it.
pub(crate) fn pool_words(node: u32, size: PageSize) -> String {
    format!("the pool of {size} pages on node {node}")
}

/// A card's virtual functions, as [`Change::object`] names them.
pub(crate) fn functions_words(card: PciAddress) -> String {
    format!("the virtual functions of {card}")
}

impl fmt::Display for Change {
    /// What is done, in the imperative.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HugepagePool { node, size, old, new } => {
                write!(formatter, "resize the pool of {size} pages on node {node} from {old} to {new}")
            }
            Self::SysfsValue { path, old, new } => write!(formatter, "set `{path}` from `{old}` to `{new}`"),
            Self::LoadModule { module, .. } => write!(formatter, "load the module {module}"),
            Self::BootUnit { .. } => formatter.write_str("install the unit that applies this again at boot"),
            Self::QemuHook { .. } => formatter.write_str("install libvirt's qemu hook and reload its daemon"),
            Self::AfterStart { domain, new, .. } => write!(formatter, "pin for `{domain}`: {new}"),
            Self::DefineDomain { domain, .. } => write!(formatter, "redefine `{domain}`"),
            Self::NewDomain { domain, .. } => write!(formatter, "define the new domain `{domain}`"),
            Self::ShutdownDomain { domain, .. } => write!(formatter, "shut down `{domain}`"),
            Self::StartDomain { domain } => write!(formatter, "start `{domain}`"),
            Self::LivePin { domain, target, old, new, .. } => {
                write!(formatter, "move {target} of `{domain}` from PUs {old} to PUs {new}")
            }
            Self::VirtualFunctions { card, old, new, .. } => {
                let (function, old, new) = (card.function, old.count(), new.count());
                match old == new {
                    true => write!(formatter, "configure the {new} virtual functions of {function} again"),
                    false => write!(formatter, "give {function} {new} virtual functions (it has {old})"),
                }
            }
            Self::Driver { card, old, new, .. } => {
                write!(formatter, "bind {} to {new} (it has {old})", card.function)
            }
        }
    }
}
