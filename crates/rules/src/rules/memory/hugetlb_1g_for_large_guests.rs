//! Large memory-intensive guests use 1 GiB pages.

use nearmetal_domain::HugepageFacts;
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize};

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::pools::{asked, demands, free_pages};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "hugetlb-1g-for-large-guests",
    layer: Layer::Memory,
    title: "Large memory-intensive guests use 1 GiB pages",
    severity: Severity::Loss,
    classes: &[WorkloadClass::Throughput, WorkloadClass::Latency, WorkloadClass::Passthrough],
    reads: &["domain <hugepages><page>, <memory>, <cell>"],
    good: "guest RAM >= 64 GiB or RT/NFV -> 1G pages, RAM a multiple of 1 GiB per NUMA cell",
    applies: "RT, NFV, in-memory DB",
    not_applies: "small/elastic guests; hosts needing balloon/swap",
    effect: "native random-access microbenchmark: 2M THP 2.9x over 4K, 1G a further 8% (Tiger Lake); VM result of the Red Hat 1GiB-vs-THP article",
    evidence: Evidence::A,
    sources: &["rh-1gib", "hugedemo", "lv-rt", "k-huge"],
    fix: Fix {
        live: None,
        persistent: "default_hugepagesz=1G hugepagesz=1G hugepages=0:N,1:M",
        needs: &[Need::VmRestart, Need::HostReboot],
        undo: "reserved memory unusable by others; undo remove args",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(pages) = &subject.facts.hugepages else { return Outcome::NotApplicable };
    let facts = subject.facts;
    let one_gib = Bytes::from_mib(1024);
    let size = pages.first().map(|page| page.size);
    let mut objects = Vec::new();
    if size == Some(PageSize::HUGE_1G) {
        let parts = facts.cells.iter().map(|cell| (format!("cell {}", cell.id), cell.memory));
        let parts: Vec<_> =
            if facts.cells.is_empty() { vec![("memory".to_owned(), facts.memory)] } else { parts.collect() };
        let odd = parts.into_iter().filter(|(_, memory)| memory.get() % one_gib.get() != 0);
        objects.extend(
            odd.map(|(what, memory)| Object::new(what, memory.to_string(), "a multiple of 1 GiB, the page size")),
        );
    } else if facts.memory >= Bytes::from_mib(subject.context.settings.large_memory_gib << 10) {
        let found = format!("{} in pages of {}", facts.memory, size.unwrap_or(PageSize::HUGE_2M).bytes());
        objects.push(Object::new("memory", found, "pages of 1 GiB").cured_by_all(larger_pages(subject)));
    }
    Outcome::of(objects)
}

/// Pages of 1 GiB in the definition, where one size is meant for all its memory and the pools have them already.
fn larger_pages(subject: &Subject<'_>) -> Vec<Cure> {
    let plain = subject
        .facts
        .hugepages
        .as_deref()
        .is_some_and(|pages| matches!(pages, [] | [HugepageFacts { cells: None, .. }]));
    let Some(host) = subject.context.host.filter(|_| plain) else { return Vec::new() };
    let size = PageSize::HUGE_1G;
    let fits = demands(subject.facts, host).iter().all(|(memory, nodes)| {
        let whole = memory.get() % size.bytes().get() == 0;
        whole && asked(subject.facts, host, nodes, size) <= free_pages(host, nodes, size)
    });
    let page = "memoryBacking/hugepages/page";
    let kib = size.bytes().kib().to_string();
    let cures = [Cure::attribute(page, "size", kib), Cure::attribute(page, "unit", "KiB")];
    cures.into_iter().filter(|_| fits).collect()
}
