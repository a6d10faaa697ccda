//! Where a kernel file belongs when its value is to stay.

/// A kernel file by the way it is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// A file of /proc/sys, by its name in sysctl.d: `kernel.numa_balancing`.
    Sysctl(String),
    /// A parameter of a module that can be written while it is loaded.
    Parameter { module: String, parameter: String },
    /// When transparent huge pages are used.
    HugepagesEnabled,
    /// What a fault may do to get one.
    HugepagesDefrag,
    /// The scheduler of a block device, by its name.
    Scheduler(String),
    /// The frequency governor of a PU.
    Governor(u32),
    /// Any other file of /sys.
    Sysfs(String),
    /// Nothing keeps it, and why.
    LiveOnly(&'static str),
}

impl Target {
    /// The target of a path.
    pub(crate) fn of(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts.as_slice() {
            ["proc", "sys", names @ ..] if names.iter().any(|name| name.contains('.')) => {
                Self::LiveOnly("its name has a dot, which tools spell differently")
            }
            ["proc", "sys", names @ ..] => Self::Sysctl(names.join(".")),
            ["proc", "irq", ..] => Self::LiveOnly("interrupts get new numbers at every boot"),
            ["sys", "module", module, "parameters", parameter] => {
                Self::Parameter { module: (*module).to_owned(), parameter: (*parameter).to_owned() }
            }
            ["sys", "kernel", "mm", "transparent_hugepage", "enabled"] => Self::HugepagesEnabled,
            ["sys", "kernel", "mm", "transparent_hugepage", "defrag"] => Self::HugepagesDefrag,
            ["sys", "class", "block", name, "queue", "scheduler"] | ["sys", "block", name, "queue", "scheduler"] => {
                Self::Scheduler((*name).to_owned())
            }
            ["sys", "devices", "system", "cpu", cpu, "cpufreq", "scaling_governor"] => {
                let pu = cpu.strip_prefix("cpu").and_then(|pu| pu.parse().ok());
                pu.map_or_else(|| Self::Sysfs(path.to_owned()), Self::Governor)
            }
            ["sys", ..] => Self::Sysfs(path.to_owned()),
            _ => Self::LiveOnly("no tool keeps this file"),
        }
    }
}
