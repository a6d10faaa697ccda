//! CPU frequency governor/EPP is set for performance.

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "cpufreq-governor-performance",
    layer: Layer::HostCpu,
    title: "CPU frequency governor/EPP is set for performance",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"],
    good: "governor performance (or schedutil with EPP performance on amd-pstate/intel_pstate active); EPP 'performance'; bias 0",
    applies: "bare-metal hosts",
    not_applies: "hosts in VMs/cloud (no cpufreq dir) and power-capped sites",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-tp", "rh-netlat"],
    fix: Fix {
        live: Some("cpupower frequency-set -g performance; x86_energy_perf_policy performance"),
        persistent: "tuned throughput-performance / virtual-host",
        needs: &[Need::Live],
        undo: "power/heat; undo old governor",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let slow = host.system.frequency.iter().filter(|policy| {
        policy.governor.as_deref().is_some_and(|governor| !matches!(governor, "performance" | "schedutil"))
    });
    Outcome::of(
        slow.map(|policy| {
            let governor = policy.governor.clone().unwrap_or_default();
            // A PU's directory is a link to that of its policy, whose number need not be its own.
            let file = |pu: u32| format!("/sys/devices/system/cpu/cpu{pu}/cpufreq/scaling_governor");
            Object::new(format!("PUs {}", policy.cpus), format!("governor {governor}"), "performance")
                .cured_by_all(policy.cpus.iter().map(|pu| Cure::kernel_file(file(pu), "performance")))
        })
        .collect(),
    )
}
