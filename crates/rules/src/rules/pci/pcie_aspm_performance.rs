//! PCIe link power saving is off on latency hosts.

use nearmetal_place::WorkloadClass;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "pcie-aspm-performance",
    layer: Layer::Pci,
    title: "PCIe link power saving is off on latency hosts",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/module/pcie_aspm/parameters/policy"],
    good: "not powersave or powersupersave; [performance] or the firmware's choice for latency/throughput classes",
    applies: "NVMe/NIC latency",
    not_applies: "power-capped sites",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["k-params"],
    fix: Fix {
        live: Some("echo performance > /sys/module/pcie_aspm/parameters/policy"),
        persistent: "pcie_aspm.policy=performance",
        needs: &[Need::Live],
        undo: "more idle power; undo default",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    const PATH: &str = "/sys/module/pcie_aspm/parameters/policy";
    let Some(host) = context.host else { return Outcome::no_host() };

    let fast = [WorkloadClass::Latency, WorkloadClass::Throughput, WorkloadClass::Passthrough];
    if !context.domains.iter().any(|domain| fast.contains(&domain.class)) {
        return Outcome::NotApplicable;
    }
    let Some(policy) = host.tuning.link_power_policy.as_deref() else { return Outcome::unknown(PATH) };
    // `default` is the firmware's choice, which no file tells.
    Outcome::one(policy.starts_with("powers").then(|| {
        let found = format!("{policy}: the links of drives and cards sleep between requests");
        Object::new("PCI Express links", found, "performance").cured_by(Cure::kernel_file(PATH, "performance"))
    }))
}
