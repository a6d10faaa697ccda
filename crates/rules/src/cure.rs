//! What would cure an object that breaks a rule, as data: made live through the journal, or exported in the forms the
//! ecosystem keeps.

use std::fmt;

use nearmetal_domain::DefinitionEdit;
use nearmetal_units::{CpuSet, PageSize};
use serde::{Deserialize, Serialize};

/// One thing to do. A rule whose severity is [`Decide`](crate::Severity::Decide) has none: a person decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Cure {
    /// A kernel file under /sys or /proc is written. In force at once, lost at a reboot.
    KernelFile {
        /// Its path.
        path: String,
        /// What is written.
        value: String,
    },
    /// A node's pool of persistent hugepages is resized. In force at once, lost at a reboot.
    HugepagePool {
        /// Node.
        node: u32,
        /// Page size.
        size: PageSize,
        /// Persistent pages it is to have.
        pages: u64,
    },
    /// A parameter of the kernel command line is set; in force after a reboot.
    KernelArgument {
        /// Its name.
        name: String,
        /// Its value; `None` for a bare word.
        value: Option<String>,
    },
    /// A parameter is taken off the kernel command line; in force after a reboot.
    NoKernelArgument {
        /// Its name.
        name: String,
    },
    /// A parameter of a module that can only be given when it is loaded.
    ModuleParameter {
        /// The module.
        module: String,
        /// The parameter.
        parameter: String,
        /// Its value.
        value: String,
    },
    /// A module is loaded; at every boot in the persistent form.
    LoadModule {
        /// The module.
        module: String,
    },
    /// The stored definition of the domain is edited; in force at its next start.
    Definition(DefinitionEdit),
    /// Threads of the running guest are moved; lost when it stops.
    LivePin {
        /// Which threads.
        thread: Thread,
        /// PUs they are to run on.
        cpus: CpuSet,
    },
}

/// Threads of a guest that are pinned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Thread {
    /// One vCPU.
    Vcpu(u32),
    /// The emulator and its helpers.
    Emulator,
    /// One iothread, from 1.
    Iothread(u32),
}

impl fmt::Display for Thread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vcpu(number) => write!(formatter, "vCPU {number}"),
            Self::Emulator => formatter.write_str("emulator thread"),
            Self::Iothread(number) => write!(formatter, "iothread {number}"),
        }
    }
}

impl Cure {
    /// Writing a kernel file.
    pub fn kernel_file(path: impl Into<String>, value: impl Into<String>) -> Self {
        Self::KernelFile { path: path.into(), value: value.into() }
    }

    /// Removing an attribute from the stored definition.
    pub fn no_attribute(at: impl Into<String>, name: &str) -> Self {
        Self::Definition(DefinitionEdit::RemoveAttribute { at: at.into(), name: name.to_owned() })
    }

    /// Making sure that an element stands in the stored definition.
    pub fn element(at: impl Into<String>) -> Self {
        Self::Definition(DefinitionEdit::Ensure { at: at.into() })
    }

    /// Removing an element from the stored definition.
    pub fn no_element(at: impl Into<String>) -> Self {
        Self::Definition(DefinitionEdit::Remove { at: at.into() })
    }

    /// Setting a parameter of the kernel command line.
    pub fn kernel_argument(name: &str, value: impl Into<String>) -> Self {
        Self::KernelArgument { name: name.to_owned(), value: Some(value.into()) }
    }

    /// Setting an attribute in the stored definition.
    pub fn attribute(at: impl Into<String>, name: &str, value: impl Into<String>) -> Self {
        let (name, value) = (name.to_owned(), value.into());
        Self::Definition(DefinitionEdit::SetAttribute { at: at.into(), name, value })
    }
}

impl Cure {
    /// When it comes into force, in words.
    pub fn when(&self) -> &'static str {
        match self {
            Self::KernelFile { .. } | Self::HugepagePool { .. } | Self::LoadModule { .. } | Self::LivePin { .. } => {
                "now"
            }
            Self::Definition(_) => "next start",
            Self::KernelArgument { .. } | Self::NoKernelArgument { .. } => "next boot",
            Self::ModuleParameter { .. } => "when its module is next loaded",
        }
    }
}

/// One line, as a person would write it down.
impl fmt::Display for Cure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelFile { path, value } => write!(formatter, "{path} = {value}"),
            Self::HugepagePool { node, size, pages } => {
                write!(formatter, "hugepages of {} on node {node} = {pages}", size.bytes())
            }
            Self::KernelArgument { name, value: Some(value) } => write!(formatter, "kernel argument {name}={value}"),
            Self::KernelArgument { name, value: None } => write!(formatter, "kernel argument {name}"),
            Self::NoKernelArgument { name } => write!(formatter, "no kernel argument {name}"),
            Self::ModuleParameter { module, parameter, value } => {
                write!(formatter, "module parameter {module}.{parameter} = {value}")
            }
            Self::LoadModule { module } => write!(formatter, "module {module} loaded"),
            Self::Definition(edit) => edit.fmt(formatter),
            Self::LivePin { thread, cpus } => write!(formatter, "{thread} on PUs {cpus}"),
        }
    }
}
