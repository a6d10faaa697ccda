//! IOMMU groups are no smaller than what the hardware isolates.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "acs-override-absent",
    layer: Layer::Pci,
    title: "IOMMU groups are no smaller than what the hardware isolates",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/proc/cmdline"],
    good: "pcie_acs_override absent in production",
    applies: "PCI passthrough",
    not_applies: "-",
    effect: "none (isolation; avoids P2P detours)",
    evidence: Evidence::B,
    sources: &["pve-pci", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "remove pcie_acs_override; firmware ACS/ARI on, or the card in another slot",
        needs: &[Need::HostReboot],
        undo: "functions fall back into one group; undo add",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    if host.system.command_line.is_none() {
        return Outcome::unknown("/proc/cmdline");
    }
    let value = context.kernel_parameter("pcie_acs_override");
    Outcome::one(value.map(|value| {
        let found = format!("pcie_acs_override={value}: groups look separate but are not isolated");
        Object::new("kernel command line", found, "absent in production")
    }))
}
