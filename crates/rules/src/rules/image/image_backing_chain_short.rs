//! Backing chains are short, with no leftovers.

use nearmetal_place::WorkloadClass;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "image-backing-chain-short",
    layer: Layer::Image,
    title: "Backing chains are short, with no leftovers",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["qemu-img info --output=json -U --backing-chain IMAGE"],
    good: "no backing file for a performance disk; elsewhere at most 3 images; no leftovers from backups or snapshots",
    applies: "all images",
    not_applies: "-",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["rh-rhel7io", "lv-dom"],
    fix: Fix {
        live: Some("virsh blockcommit DOM vda --active --pivot (or blockpull)"),
        persistent: "backup tools that merge",
        needs: &[Need::Live],
        undo: "long I/O during the merge; keep copies; undo not possible: backup first",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let performance =
        matches!(subject.class, WorkloadClass::Throughput | WorkloadClass::Latency | WorkloadClass::Passthrough);
    let most = if performance { 0 } else { subject.context.settings.backing_depth };
    subject.judge_images(
        |_| true,
        |disk, chain| {
            let Some(depth) = chain.depth() else {
                return Some(Outcome::unknown(format!("{}: its backing chain", chain.top.name)));
            };
            let object = (depth > most).then(|| {
                let below = chain.top.backing.as_deref().unwrap_or("?");
                let found = format!("{depth} backing images, the nearest {below}");
                let wanted = if most == 0 { "none".to_owned() } else { format!("at most {most}") };
                Object::new(format!("disk {}", disk.target), found, wanted)
            });
            Some(Outcome::one(object))
        },
    )
}
