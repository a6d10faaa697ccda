//! No debug or memory-poisoning options on production hosts.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "kernel-debug-options-off",
    layer: Layer::HostKernel,
    title: "No debug or memory-poisoning options on production hosts",
    severity: Severity::Decide,
    classes: &ALL,
    reads: &["/proc/cmdline", "/proc/sys/kernel/osrelease"],
    good: "none present; init_on_alloc noted as a fact (distribution default)",
    applies: "all",
    not_applies: "security-hardened hosts by policy; kernel debugging",
    effect: "unquantified",
    evidence: Evidence::C,
    sources: &["k-params"],
    fix: Fix {
        live: None,
        persistent: "remove from command line / boot the non-debug kernel",
        needs: &[Need::HostReboot],
        undo: "low; undo re-add",
    },
    check: Check::Host(check),
};

/// Parameters that make the kernel check or overwrite memory as it works.
const DEBUGGING: [&str; 7] =
    ["slub_debug", "slab_debug", "page_poison", "debug_pagealloc", "init_on_free", "page_owner", "kmemleak"];

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    if host.system.command_line.is_none() {
        return Outcome::unknown("/proc/cmdline");
    }
    let on = DEBUGGING.into_iter().filter_map(|name| Some((name, context.kernel_parameter(name)?)));
    // `slub_debug=-` takes out of a kernel what was built into it.
    let on = on.filter(|(_, value)| !matches!(*value, "0" | "off" | "n" | "N" | "-"));
    let mut objects: Vec<Object> = on
        .map(|(name, value)| {
            let found = if value.is_empty() { name.to_owned() } else { format!("{name}={value}") };
            Object::new(
                "kernel command line",
                found,
                "no option that checks or overwrites memory, unless policy \
                requires it",
            )
        })
        .collect();
    // Fedora and RHEL name such a build `+debug`, SUSE `-debug`.
    let release = host.system.kernel.as_deref().unwrap_or_default();
    if release.ends_with("+debug") || release.ends_with("-debug") {
        objects.push(Object::new("kernel", release, "the regular build of this release"));
    }
    Outcome::of(objects)
}
