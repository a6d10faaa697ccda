//! No cpuset with VMs sets memory_spread_page or memory_spread_slab.

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "memory-spread-flags-legacy",
    layer: Layer::Memory,
    title: "No cpuset with VMs sets memory_spread_page or memory_spread_slab",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/sys/fs/cgroup/cpuset/**/cpuset.memory_spread_{page,slab}"],
    good: "file absent (cgroup v2) or 0 (kernel default)",
    applies: "cgroup v1 or old HPC hosts",
    not_applies: "cgroup v2 hosts: not applicable",
    effect: "SGI UV 2000: native file reread +445% and IOzone +35..185% when set to 0; no effect on node-pinned KVM",
    evidence: Evidence::A,
    sources: &["paper-sgi-uv", "k-cpuset1"],
    fix: Fix {
        live: Some("echo 0 > cpuset.memory_spread_page"),
        persistent: "boot cgroup v2",
        needs: &[Need::Live],
        undo: "spreads page cache off-node when 1; undo 1",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let mut groups = host.cpusets.iter().filter(|group| group.version == 1).peekable();
    if groups.peek().is_none() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    for group in groups {
        for (name, what, spread) in
            [("page", "page cache", group.spread_page), ("slab", "kernel memory", group.spread_slab)]
        {
            if spread == Some(true) {
                let path = format!("/sys/fs/cgroup/cpuset{}/cpuset.memory_spread_{name}", group.path);
                let found = format!("{what} is spread over all its nodes");
                let object = Object::new(
                    format!("control group {}", group.path),
                    found,
                    "near the process that asks \
                    for it",
                );
                objects.push(object.cured_by(Cure::kernel_file(path, "0")));
            }
        }
    }
    Outcome::of(objects)
}
