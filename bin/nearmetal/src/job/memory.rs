//! Memory latency and bandwidth: both sides, each with the pages the probe really had and the pages behind the guest.

use nearmetal_domain::DomainFacts;
use nearmetal_host::Host;
use nearmetal_load::{MemoryBandwidth, MemoryJob, MemoryLatency, Pattern, ProbePages, Workload};
use nearmetal_report::view::{MemoryRow, MemorySide, MemoryTable};
use nearmetal_results::{Arm, Purpose, Results, Role, Run};
use nearmetal_units::PageSize;
use serde_json::Value;

use super::comparisons::geometric_mean;
use super::error::JobError;
use super::{arms, describe};

/// What a lab's figures are worth.
const LAB_LABEL: &str = "the lab's TLB and caches are emulated: these figures show that it was measured, not how fast";

/// The table; `None` if no memory job gave a value.
pub(crate) fn table(results: &Results, host: &Host, lab: bool) -> Result<Option<MemoryTable>, JobError> {
    let mut rows = Vec::new();
    for workload in workloads(results) {
        for (index, arm) in results.arms.iter().enumerate() {
            let ran =
                |run: &&Run| run.arm == arm.name.id && run.workload == *workload && run.purpose != Purpose::SameArm;
            let runs: Vec<&Run> = results.runs.iter().filter(ran).collect();
            let facts = arms::facts(index, arm)?;
            rows.extend(row(arm, facts.as_ref(), workload, &runs, host));
        }
    }
    let label = lab.then(|| LAB_LABEL.to_owned());
    Ok((!rows.is_empty()).then_some(MemoryTable { label, rows }))
}

fn workloads(results: &Results) -> Vec<&Workload> {
    let mut workloads: Vec<&Workload> = Vec::new();
    for run in &results.runs {
        let memory = matches!(run.workload, Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_));
        if memory && !workloads.contains(&&run.workload) {
            workloads.push(&run.workload);
        }
    }
    workloads
}

fn row(arm: &Arm, facts: Option<&DomainFacts>, workload: &Workload, runs: &[&Run], host: &Host) -> Option<MemoryRow> {
    let mean = |name: &str| geometric_mean(runs.iter().filter_map(|run| run.value(name)).map(|metric| metric.value));
    let (job, walk) = match workload {
        Workload::MemoryLatency(MemoryLatency(job)) => (job, walk(job.pattern)),
        Workload::MemoryBandwidth(MemoryBandwidth(job)) => (job, "reading one after the other"),
        _ => return None,
    };
    let bare = arm.name.is_bare();
    let (page, doubt) = page(job, runs);
    let mut pattern = format!("{walk}, {}", job.size);
    if !bare {
        pattern.push_str(", ");
        pattern.push_str(&arm.name.title);
    }
    let backing = if bare { None } else { backing(arm.name.role, facts, host) };
    pattern.push_str(doubt.as_deref().unwrap_or_default());
    if !bare && backing.is_none() {
        pattern.push_str(", backing left to the kernel");
    }
    let row = MemoryRow {
        side: if bare { MemorySide::Bare } else { MemorySide::Guest },
        pattern,
        page,
        backing,
        median_ns: mean("latency.median"),
        p99_ns: mean("latency.p99"),
        minimum_ns: mean("latency.minimum"),
        bandwidth_mb_s: mean("bandwidth.read").map(|bytes| bytes / 1e6),
    };
    [row.median_ns, row.p99_ns, row.minimum_ns, row.bandwidth_mb_s].iter().any(Option::is_some).then_some(row)
}

fn walk(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Groups => "random loads within and across groups of 64 pages",
        Pattern::Page => "one load per page",
    }
}

/// Pages the probe had, by its own note; those it asked for, and the doubt, where it does not say.
fn page(job: &MemoryJob, runs: &[&Run]) -> (PageSize, Option<String>) {
    let asked = match job.pages {
        ProbePages::Small => PageSize::SMALL,
        ProbePages::Transparent => PageSize::HUGE_2M,
    };
    let found: Vec<String> = runs.iter().flat_map(|run| notes(run)).flat_map(|note| got(note)).collect();
    let sizes: Vec<Option<PageSize>> = found.iter().map(|name| size_of(name)).collect();
    match sizes.first() {
        Some(Some(first)) if sizes.iter().all(|size| size == &Some(*first)) => (*first, None),
        Some(_) => (asked, Some(format!(", asked for {} pages and got {}", job.pages.argument(), distinct(&found)))),
        None => (asked, Some(", pages as asked for, not checked".to_owned())),
    }
}

fn notes(run: &Run) -> &[String] {
    match &run.outcome {
        nearmetal_results::Outcome::Measured { notes, .. } => notes,
        nearmetal_results::Outcome::Failed { .. } => &[],
    }
}

/// What `backing: {…}` says was got: one object of a latency run, one per thread of a bandwidth run.
fn got(note: &str) -> Vec<String> {
    let backing = note.strip_prefix("backing:").and_then(|json| serde_json::from_str::<Value>(json.trim()).ok());
    let one = |value: &Value| value.get("got").and_then(Value::as_str).map(super::error::short);
    match backing {
        Some(Value::Array(threads)) => threads.iter().filter_map(one).collect(),
        Some(value) => one(&value).into_iter().collect(),
        None => Vec::new(),
    }
}

fn size_of(name: &str) -> Option<PageSize> {
    match name {
        "4k" => Some(PageSize::SMALL),
        "2m" | "thp" => Some(PageSize::HUGE_2M),
        _ => None,
    }
}

fn distinct(names: &[String]) -> String {
    let set: std::collections::BTreeSet<&str> = names.iter().map(String::as_str).collect();
    set.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Pages behind the guest's memory: its huge pages, or base pages where the host makes no transparent huge ones. QEMU
/// asks for those itself, so `madvise` leaves it as open as `always` does; `nearmetal bench` therefore boots the guest
/// as found with the host's setting at `never` for these runs, where the host has that setting.
fn backing(role: Role, facts: Option<&DomainFacts>, host: &Host) -> Option<PageSize> {
    let transparent = host.system.transparent_hugepage.as_deref();
    match facts {
        Some(facts) if facts.hugepages.is_some() => describe::huge_page(facts),
        Some(_) if transparent == Some("never") => Some(PageSize::SMALL),
        Some(_) if role == Role::AsFound && transparent.is_some() => Some(PageSize::SMALL),
        _ => None,
    }
}
