//! The kernel command line is well below its length limit.

use crate::context::Context;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "command-line-near-limit",
    layer: Layer::HostKernel,
    title: "The kernel command line is well below its length limit",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &["/proc/cmdline"],
    good: "at most 90 % of COMMAND_LINE_SIZE",
    applies: "all",
    not_applies: "-",
    effect: "the kernel silently drops what is beyond the limit (isolcpus=, hugepages=)",
    evidence: Evidence::B,
    sources: &["k-params"],
    fix: Fix {
        live: None,
        persistent: "shorten lists (0-31 for 0,1,2,…), move settings to sysctl.d and modprobe.d",
        needs: &[Need::HostReboot],
        undo: "restore the command line",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };
    let Some(line) = host.system.command_line.as_deref() else { return Outcome::unknown("/proc/cmdline") };
    // COMMAND_LINE_SIZE is 2048 on x86 and arm64, with its final zero.
    let limit = 2047;
    let most = limit * context.settings.command_line_percent as usize / 100;
    let found = format!("{} characters of {limit}", line.len());
    Outcome::one(
        (line.len() > most).then(|| {
            Object::new("kernel command line", found, format!("at most {most}: the kernel cuts off the rest"))
        }),
    )
}
