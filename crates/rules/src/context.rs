//! The input with what several rules need, computed once.

use std::collections::BTreeMap;

use nearmetal_host::{GuestProcess, Host};
use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::input::{Domain, Input};
use crate::isolation::quiet_pus;
use crate::settings::Settings;

/// The input of one examination.
#[derive(Debug)]
pub struct Context<'a> {
    /// The host.
    pub host: Option<&'a Host>,
    /// Domains.
    pub domains: &'a [Domain],
    /// Thresholds.
    pub settings: &'a Settings,
    /// Online PUs of the host.
    pub online: CpuSet,
    /// Names of the domains that have a vCPU alone on a PU, by PU: one entry for each such vCPU.
    pub owners: BTreeMap<u32, Vec<&'a str>>,
    /// PUs the host's own work should keep off: isolated ones, and those of vCPUs of the latency class that have one
    /// each. Cures of several rules name them, and must name the same. `None` where that is unknown, or would leave a
    /// node without a core for the host.
    pub quiet: Option<CpuSet>,
}

impl<'a> Context<'a> {
    /// Prepares an input.
    pub fn new(input: &Input<'a>) -> Self {
        let mut owners: BTreeMap<u32, Vec<&'a str>> = BTreeMap::new();
        for domain in input.domains {
            for (_, cpus) in domain.in_force().into_iter().flat_map(|facts| &facts.vcpu_pins) {
                if let (1, Some(cpu)) = (cpus.len(), cpus.first()) {
                    owners.entry(cpu).or_default().push(&domain.name);
                }
            }
        }
        let mut context = Self {
            host: input.host,
            domains: input.domains,
            settings: input.settings,
            online: input.host.map(Host::online).unwrap_or_default(),
            owners,
            quiet: None,
        };
        context.quiet = quiet_pus(&context);
        context
    }

    /// The process of a domain, by name.
    pub fn process(&self, name: &str) -> Option<&'a GuestProcess> {
        self.host?.guests.iter().find(|guest| guest.name.as_deref() == Some(name))
    }

    /// A parameter of the kernel command line, the last one where it stands several times; `Some("")` without a value.
    pub fn kernel_parameter(&self, name: &str) -> Option<&'a str> {
        let (_, value) = self.host?.system.kernel_arguments().rev().find(|(known, _)| *known == name)?;
        Some(value.unwrap_or_default())
    }

    /// A parameter of a loaded module, named `module.parameter`.
    pub fn module_parameter(&self, name: &str) -> Option<&'a str> {
        let parameters = &self.host?.system.module_parameters;
        parameters.iter().find(|setting| setting.name == name).map(|setting| setting.value.trim())
    }

    /// Definitions in force of the domains that run.
    pub fn running(&self) -> impl Iterator<Item = &'a nearmetal_domain::DomainFacts> + use<'a> {
        self.domains.iter().filter_map(|domain| domain.running.as_ref())
    }

    /// Whether any domain is of this class.
    pub fn has_class(&self, class: WorkloadClass) -> bool {
        self.domains.iter().any(|domain| domain.class == class)
    }
}
