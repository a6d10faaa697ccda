//! Binding of this process to CPUs and NUMA nodes by system calls, and the proof from the kernel that it took effect.
//!
//! The probe binds itself, so that host and guest run the same experiment without a `numactl` on one side only.

use nearmetal_units::{CpuSet, NodeSet};
use serde::Serialize;

use crate::error::ProbeError;
use crate::system::affinity::{self, CPU_LIMIT};
use crate::system::mapping::{Mapping, PageKind, SMALL_PAGE};
use crate::system::memory_policy::{self, NODE_LIMIT};

/// What to bind to; an absent part is left as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// CPUs to run on.
    pub cpus: Option<CpuSet>,
    /// Nodes to take memory from, strictly (MPOL_BIND).
    pub nodes: Option<NodeSet>,
}

/// What the kernel says about this thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// `sched_getaffinity`.
    pub cpus: CpuSet,
    /// Name of the memory policy; `unknown` where the kernel has no NUMA support.
    pub memory_policy: &'static str,
    /// Nodes of the memory policy; empty for `default` and `local`.
    pub nodes: NodeSet,
    /// Node a freshly touched page came from; `None` where the kernel does not say.
    pub page_node: Option<u32>,
}

impl Request {
    /// Checks the indices against what the kernel can name at all.
    ///
    /// # Errors
    /// [`ProbeError::Limit`] for an empty set or an index no Linux kernel has.
    pub fn check(&self) -> Result<(), ProbeError> {
        if let Some(cpus) = &self.cpus {
            check_indices("--cpus", cpus.iter(), &cpus.to_string(), CPU_LIMIT)?;
        }
        if let Some(nodes) = &self.nodes {
            check_indices("--nodes", nodes.iter(), &nodes.to_string(), NODE_LIMIT)?;
        }
        Ok(())
    }

    /// Binds the calling thread and reads back.
    ///
    /// # Errors
    /// [`ProbeError::Limit`] as [`Self::check`]; [`ProbeError::Kernel`] when a call is refused;
    /// [`ProbeError::NotApplied`] when the kernel has another state than asked for.
    pub fn apply(&self) -> Result<Binding, ProbeError> {
        self.check()?;
        if let Some(cpus) = &self.cpus {
            affinity::set(cpus).map_err(|error| ProbeError::kernel(format!("run on CPUs {cpus}"), error))?;
        }
        if let Some(nodes) = &self.nodes {
            memory_policy::bind(nodes)
                .map_err(|error| ProbeError::kernel(format!("take memory from nodes {nodes} only"), error))?;
        }
        let binding = Binding::read()?;
        self.verify(&binding)?;
        Ok(binding)
    }

    /// Compares what was asked for with what the kernel has.
    ///
    /// # Errors
    /// [`ProbeError::NotApplied`] with both values.
    pub fn verify(&self, binding: &Binding) -> Result<(), ProbeError> {
        let differs = |what, asked: String, actual: String| Err(ProbeError::NotApplied { what, asked, actual });
        if let Some(cpus) = self.cpus.as_ref().filter(|cpus| **cpus != binding.cpus) {
            return differs("CPU affinity", cpus.to_string(), binding.cpus.to_string());
        }
        let Some(nodes) = &self.nodes else { return Ok(()) };
        if binding.memory_policy != "bind" || *nodes != binding.nodes {
            return differs(
                "memory policy",
                format!("bind:{nodes}"),
                format!("{}:{}", binding.memory_policy, binding.nodes),
            );
        }
        match binding.page_node {
            Some(node) if nodes.contains(node) => Ok(()),
            Some(node) => differs("node of a touched page", nodes.to_string(), node.to_string()),
            None => differs("node of a touched page", nodes.to_string(), "no answer".to_owned()),
        }
    }
}

impl Binding {
    /// Reads the calling thread's binding from the kernel, touching one page to see where it comes from.
    ///
    /// # Errors
    /// [`ProbeError::Kernel`] when affinity cannot be read or one page cannot be had. Missing NUMA support is no error.
    pub fn read() -> Result<Self, ProbeError> {
        let cpus = affinity::get().map_err(|error| ProbeError::kernel("tell the CPU affinity", error))?;
        let (memory_policy, nodes) = match memory_policy::get() {
            Ok(policy) => (policy.mode, policy.nodes),
            Err(_) => ("unknown", NodeSet::new()),
        };
        let page = |error| ProbeError::kernel("give one page of memory", error);
        let mut mapping = Mapping::new(SMALL_PAGE, PageKind::Small).map_err(page)?;
        mapping.populate(PageKind::Small).map_err(page)?;
        let page_node = memory_policy::node_of(mapping.start()).ok().flatten();
        Ok(Self { cpus, memory_policy, nodes, page_node })
    }
}

fn check_indices(
    what: &'static str,
    mut indices: impl DoubleEndedIterator<Item = u32>,
    shown: &str,
    limit: u32,
) -> Result<(), ProbeError> {
    match indices.next_back() {
        Some(largest) if largest < limit => Ok(()),
        Some(largest) => Err(ProbeError::Limit {
            what,
            value: largest.to_string(),
            low: "0".to_owned(),
            high: (limit - 1).to_string(),
        }),
        None => Err(ProbeError::Limit {
            what,
            value: format!("`{shown}`"),
            low: "one index".to_owned(),
            high: format!("{limit} indices"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(cpus: &str, nodes: &str) -> Request {
        Request { cpus: Some(cpus.parse().unwrap()), nodes: Some(nodes.parse().unwrap()) }
    }

    fn binding(cpus: &str, memory_policy: &'static str, nodes: &str, page_node: Option<u32>) -> Binding {
        Binding { cpus: cpus.parse().unwrap(), memory_policy, nodes: nodes.parse().unwrap(), page_node }
    }

    #[test]
    fn what_the_kernel_has_must_be_what_was_asked() {
        let asked = request("2-3", "1");
        assert!(asked.verify(&binding("2-3", "bind", "1", Some(1))).is_ok());
        for (actual, expected) in [
            (binding("2", "bind", "1", Some(1)), "CPU affinity: asked for 2-3, the kernel has 2"),
            (binding("2-3", "default", "", Some(1)), "memory policy: asked for bind:1, the kernel has default:"),
            (binding("2-3", "bind", "0-1", Some(1)), "memory policy: asked for bind:1, the kernel has bind:0-1"),
            (binding("2-3", "bind", "1", Some(0)), "node of a touched page: asked for 1, the kernel has 0"),
            (binding("2-3", "bind", "1", None), "node of a touched page: asked for 1, the kernel has no answer"),
        ] {
            let error = asked.verify(&actual).unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.exit_code(), 3);
        }
        assert!(Request::default().verify(&binding("0", "default", "", None)).is_ok());
    }

    #[test]
    fn indices_no_kernel_has_are_refused_before_any_call() {
        assert_eq!(request("9000", "0").check().unwrap_err().to_string(), "--cpus is 9000, and must be from 0 to 8191");
        assert_eq!(
            request("0", "1024").check().unwrap_err().to_string(),
            "--nodes is 1024, and must be from 0 to 1023"
        );
        assert_eq!(request("", "0").check().unwrap_err().exit_code(), 2);
    }
}
