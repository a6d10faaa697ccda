//! The kernel command line has no obsolete elevator=.

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "blk-elevator-param-obsolete",
    layer: Layer::Block,
    title: "The kernel command line has no obsolete elevator=",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/proc/cmdline", "uname -r"],
    good: "absent (parameter is not in the 6.1 kernel parameter list; single-queue schedulers cfq/deadline/noop are gone since 5.0)",
    applies: "kernel >= 5.0",
    not_applies: "RHEL 7 and older kernels",
    effect: "none, but it hides that the wanted scheduler is not set",
    evidence: Evidence::B,
    sources: &["k-params", "k-blk", "talk-kvm-tuning"],
    fix: Fix { live: None, persistent: "grubby --remove-args=elevator", needs: &[Need::HostReboot], undo: "none" },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    if host.system.command_line.is_none() {
        return Outcome::unknown("/proc/cmdline");
    }
    if host.system.kernel_version().is_some_and(|version| version < (5, 0)) {
        return Outcome::NotApplicable;
    }
    let value = context.kernel_parameter("elevator");
    Outcome::one(value.map(|value| {
        Object::new("kernel command line", format!("elevator={value}, which does nothing"), "a udev rule")
            .cured_by(Cure::NoKernelArgument { name: "elevator".to_owned() })
    }))
}
