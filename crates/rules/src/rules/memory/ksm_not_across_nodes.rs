//! If KSM runs on a NUMA host, it merges only within a node.

use nearmetal_units::Bytes;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "ksm-not-across-nodes",
    layer: Layer::Memory,
    title: "If KSM runs on a NUMA host, it merges only within a node",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/kernel/mm/ksm/run", "/sys/kernel/mm/ksm/merge_across_nodes", "/sys/kernel/mm/ksm/pages_shared"],
    good: "0 when run==1 and nodes>1",
    applies: "density NUMA hosts",
    not_applies: "single node",
    effect: "unquantified ('significant increase' of access latency when merged remotely)",
    evidence: Evidence::B,
    sources: &["k-ksm", "rh-ksmnuma"],
    fix: Fix {
        live: Some("echo 2 > run; echo 0 > merge_across_nodes; echo 1 > run"),
        persistent: "ksmtuned.conf / tmpfiles",
        needs: &[Need::Live],
        undo: "temporary memory spike while unmerged; undo 1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let with_memory = host.nodes.iter().filter(|node| node.memory_total != Some(Bytes::ZERO)).count();
    if with_memory < 2 {
        return Outcome::NotApplicable;
    }
    let Some(run) = host.system.ksm else { return Outcome::unknown("/sys/kernel/mm/ksm/run") };
    if run != 1 {
        return Outcome::Clean;
    }
    let path = "/sys/kernel/mm/ksm/merge_across_nodes";
    let Some(across) = host.system.ksm_across_nodes else { return Outcome::unknown(path) };
    Outcome::one(across.then(|| {
        let object = Object::new("same-page merging", "merges pages across nodes", "only within each node");
        match host.system.ksm_shared_pages {
            Some(0) => object.cured_by(Cure::kernel_file(path, "0")),
            // The kernel takes no other value while pages are merged, and to unmerge them needs their memory: a person
            // has to see whether it is there.
            _ => object,
        }
    }))
}
