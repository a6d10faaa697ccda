//! VFIO does not allow unsafe interrupts.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "intremap-no-unsafe-interrupts",
    layer: Layer::Pci,
    title: "VFIO does not allow unsafe interrupts",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"],
    good: "N",
    applies: "passthrough hosts",
    not_applies: "lab without remapping hardware",
    effect: "none (also a sign that posted interrupts cannot work)",
    evidence: Evidence::B,
    sources: &["pve-pci", "k-params"],
    fix: Fix {
        live: Some("echo N > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"),
        persistent: "remove from /etc/modprobe.d",
        needs: &[Need::Live],
        undo: "guest MSI attacks on the host, possible instability; undo Y",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let unsafe_ones =
        host.system.module_parameters.iter().find(|setting| setting.name == "vfio_iommu_type1.allow_unsafe_interrupts");
    let on = unsafe_ones.is_some_and(|setting| matches!(setting.value.trim(), "Y" | "1"));
    Outcome::one(
        on.then(|| Object::new("vfio_iommu_type1.allow_unsafe_interrupts", "Y", "N, with interrupt remapping")),
    )
}
