//! Host dirty page limits suit VM images that use the page cache.

use nearmetal_domain::DiskFacts;
use nearmetal_host::DirtyLimit;
use nearmetal_units::Bytes;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::input::Domain;
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "host-dirty-limits",
    layer: Layer::Memory,
    title: "Host dirty page limits suit VM images that use the page cache",
    severity: Severity::Note,
    classes: &ALL,
    reads: &["/proc/sys/vm/dirty_{background_,}{ratio,bytes}", "domain <driver cache>"],
    good: "virtual-host: background 5%, dirty 40%; latency-performance: 3%/10%",
    applies: "cache=writeback guests, backup hosts",
    not_applies: "all-O_DIRECT hosts (irrelevant)",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["t-vh", "t-lp", "t-tp"],
    fix: Fix {
        live: Some("sysctl vm.dirty_background_ratio=5"),
        persistent: "tuned virtual-host",
        needs: &[Need::Live],
        undo: "too low throttles writers; undo defaults 10/20",
    },
    check: Check::Host(check),
};

/// Percent of memory: the widest of tuned's profiles.
const MOST: u64 = 40;
const MOST_BACKGROUND: u64 = 10;

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    let cached = |disk: &DiskFacts| {
        disk.device == "disk"
            && !disk.readonly
            && matches!(disk.kind.as_str(), "file" | "block")
            && !matches!(disk.driver.cache.as_deref(), Some("none" | "directsync"))
    };
    let mut in_force = context.domains.iter().filter_map(Domain::in_force);
    if !in_force.any(|facts| facts.disks.iter().any(cached)) {
        return Outcome::NotApplicable;
    }
    let total = host.nodes.iter().filter_map(|node| node.memory_total).fold(Bytes::ZERO, Bytes::plus);
    let percent = |limit: DirtyLimit| match (limit.bytes, limit.ratio) {
        (Some(bytes), _) if bytes > 0 => bytes.saturating_mul(100).checked_div(total.get()),
        (_, ratio) => ratio,
    };
    let tuning = &host.tuning;
    let (Some(limit), Some(background)) = (percent(tuning.dirty), percent(tuning.dirty_background)) else {
        return Outcome::unknown("/proc/sys/vm/dirty_{,background_}{ratio,bytes}");
    };
    let mut objects = Vec::new();
    if limit > MOST {
        let wanted = format!("at most {MOST} %: all writers stall at once when it is reached");
        let cure = Cure::kernel_file("/proc/sys/vm/dirty_ratio", MOST.to_string());
        objects.push(Object::new("dirty_ratio", format!("{limit} % of memory"), wanted).cured_by(cure));
    }
    // The kernel halves a start that lies behind the end.
    if background > MOST_BACKGROUND && background >= limit.min(MOST) || background > MOST {
        let wanted = format!("at most {MOST_BACKGROUND} %, and less than dirty_ratio");
        let cure = Cure::kernel_file("/proc/sys/vm/dirty_background_ratio", MOST_BACKGROUND.to_string());
        objects.push(Object::new("dirty_background_ratio", format!("{background} % of memory"), wanted).cured_by(cure));
    }
    Outcome::of(objects)
}
