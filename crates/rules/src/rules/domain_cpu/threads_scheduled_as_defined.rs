//! Threads of a running guest have the scheduling policy and the nice value that its definition gives them.

use crate::finding::Outcome;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::scheduling;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "threads-scheduled-as-defined",
    layer: Layer::DomainCpu,
    title: "Threads of a guest have the scheduling policy and nice value of its definition",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/proc/PID/task/*/stat nice, rt_priority, policy",
        "domain <vcpusched>, <emulatorsched>, <iothreadsched>, stored",
    ],
    good: "SCHED_OTHER with nice 0, or what the stored definition asks for; helpers may have what any thread is asked to have",
    applies: "running guests",
    not_applies: "guests that are off",
    effect: "unquantified; a SCHED_IDLE vCPU runs only while nothing else wants its PU, and each step of nice is worth about 10 % of processor time against a busy neighbour",
    evidence: Evidence::B,
    sources: &["man-sched", "lv-dom"],
    fix: Fix {
        live: Some("chrt -o -p 0 TID; renice -n 0 -p TID"),
        persistent: "where another policy is meant: virsh edit, <cputune><vcpusched>",
        needs: &[Need::Live],
        undo: "chrt and renice with the old values",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(process) = subject.process else { return Outcome::NotApplicable };
    scheduling::outcome(scheduling::of_threads(subject.stored_or_own(), process))
}
