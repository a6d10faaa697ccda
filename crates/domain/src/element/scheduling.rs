//! `<cputune>`: limits, schedulers and cache parts of the threads. Pins are in `cputune.rs`.

use nearmetal_units::CpuSet;
use roxmltree::Document;
use serde::{Deserialize, Serialize};

use crate::error::DomainError;
use crate::tree;

/// Limits and schedulers of a domain's threads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SchedulingFacts {
    /// Bandwidth limits by element (`quota`, `emulator_quota`, …) in µs of each period; libvirt takes a negative
    /// value as no limit, and those are not listed.
    pub quotas: Vec<(String, u64)>,
    /// Lengths of periods by element (`period`, `emulator_period`, …) in µs; the kernel's 100000 where none is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub periods: Vec<(String, u64)>,
    /// Weight of the whole domain beside others (`<shares>`); `None`: the kernel's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u64>,
    /// Schedulers that are written.
    pub schedulers: Vec<SchedulerFacts>,
}

/// One `<vcpusched>`, `<iothreadsched>` or `<emulatorsched>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerFacts {
    /// `vcpu`, `iothread` or `emulator`.
    pub threads: String,
    /// Numbers of those vCPUs or iothreads; empty for the emulator.
    pub numbers: CpuSet,
    /// `batch`, `idle`, `fifo`, `rr`.
    pub scheduler: String,
    /// Real-time priority, 1 to 99.
    pub priority: Option<u32>,
}

impl SchedulingFacts {
    /// The limit of a group of threads (`""` for each vCPU, `"emulator_"`, `"iothread_"`, `"global_"`), as µs and µs of a
    /// period; `None` for none.
    pub fn quota(&self, threads: &str) -> Option<(u64, u64)> {
        let of =
            |list: &[(String, u64)], name: String| list.iter().find(|(own, _)| *own == name).map(|(_, value)| *value);
        let quota = of(&self.quotas, format!("{threads}quota"))?;
        Some((quota, of(&self.periods, format!("{threads}period")).filter(|period| *period > 0).unwrap_or(100_000)))
    }

    /// The scheduler that is written for a vCPU, an iothread or (with number 0) the emulator.
    pub fn scheduler(&self, threads: &str, number: u32) -> Option<&SchedulerFacts> {
        let own = |entry: &&SchedulerFacts| {
            entry.threads == threads && (threads == "emulator" || entry.numbers.contains(number))
        };
        self.schedulers.iter().find(own)
    }
}

impl SchedulerFacts {
    /// Whether the threads are real-time threads, which never yield to ordinary ones.
    pub fn is_real_time(&self) -> bool {
        matches!(self.scheduler.as_str(), "fifo" | "rr")
    }
}

/// vCPUs of each `<cachetune>` that cuts a part out of a cache; one that only watches has no `<cache>`.
pub(crate) fn cache_parts(document: &Document<'_>) -> Result<Vec<CpuSet>, DomainError> {
    let parts = tree::find_all(document, &["cputune", "cachetune"]);
    let cutting = parts.into_iter().filter(|part| tree::child(*part, "cache").is_some());
    cutting.filter_map(|part| tree::cpu_set(part, "vcpus").transpose()).collect()
}

pub(crate) fn read(document: &Document<'_>) -> Result<SchedulingFacts, DomainError> {
    let mut facts = SchedulingFacts::default();
    for name in ["quota", "global_quota", "emulator_quota", "iothread_quota"] {
        for node in tree::find_all(document, &["cputune", name]) {
            let text = tree::text(node);
            // 17592186044415 is what libvirt prints for "no limit" besides a negative number.
            if !text.starts_with('-') {
                let quota: u64 = tree::whole_number(node, &format!("<{name}>"), &text)?;
                if quota > 0 && quota < 17_592_186_044_415 {
                    facts.quotas.push((name.to_owned(), quota));
                }
            }
        }
    }
    for name in ["period", "global_period", "emulator_period", "iothread_period"] {
        for node in tree::find_all(document, &["cputune", name]) {
            let period = tree::whole_number(node, &format!("<{name}>"), &tree::text(node))?;
            facts.periods.push((name.to_owned(), period));
        }
    }
    for node in tree::find_all(document, &["cputune", "shares"]) {
        facts.shares = Some(tree::whole_number(node, "<shares>", &tree::text(node))?);
    }
    for (threads, element, numbers) in
        [("vcpu", "vcpusched", "vcpus"), ("iothread", "iothreadsched", "iothreads"), ("emulator", "emulatorsched", "")]
    {
        for node in tree::find_all(document, &["cputune", element]) {
            let Some(scheduler) = tree::attribute(node, "scheduler") else { continue };
            facts.schedulers.push(SchedulerFacts {
                threads: threads.to_owned(),
                numbers: tree::cpu_set(node, numbers)?.unwrap_or_default(),
                scheduler,
                priority: tree::number(node, "priority")?,
            });
        }
    }
    Ok(facts)
}
