//! What the figures rest on: versions, settings, order of runs, and the long texts.

use std::collections::BTreeMap;

use nearmetal_change::verify::{GuestDisk, GuestNode, GuestView};
use nearmetal_change::{DomainChange, PlanFile};
use nearmetal_host::Host;
use nearmetal_load::Workload;
use nearmetal_report::view::{Fact, LongText};
use nearmetal_results::{Outcome, Purpose, Results};

use super::secrets;

/// Longer values are folded away as texts of their own.
const LONGEST_FACT: usize = 160;

/// Short facts, the host's first.
pub(crate) fn facts(host: &Host, plan: &PlanFile, guest: Option<&GuestView>, results: Option<&Results>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |key: &str, value: Option<String>| facts.push(Fact { key: key.to_owned(), value });
    let system = &host.system;
    add("Host", system.hostname.clone());
    add("Processor", system.processor_model.clone());
    add("PUs online", (!host.processors.is_empty()).then(|| host.online().to_string()));
    add("Kernel", system.kernel.clone());
    add("Kernel command line", system.command_line.clone());
    add("Transparent huge pages", system.transparent_hugepage.clone());
    add("NUMA balancing", system.numa_balancing.map(|value| value.to_string()));
    add("io_uring_disabled", system.io_uring_disabled.map(|value| value.to_string()));
    add("Host runs under a hypervisor", system.hypervisor.map(|yes| if yes { "yes" } else { "no" }.to_owned()));
    add("Plan made", Some(format!("{} by nearmetal {}", plan.created, plan.nearmetal)));
    if let Some(guest) = guest {
        add("Nodes the guest sees", list(&guest.nodes, guest_node));
        add("Disks the guest sees", list(&guest.disks, guest_disk));
        add("Huge pages the guest can have", list(&guest.page_sizes, ToString::to_string));
        add("Transparent huge pages in the guest", guest.transparent_hugepage.clone());
        add("The guest was asked by", Some(guest.source.clone()));
    }
    facts.extend(results.map(facts_of).unwrap_or_default());
    facts
}

/// Short facts of a measurement.
pub(super) fn facts_of(results: &Results) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |key: &str, value: Option<String>| facts.push(Fact { key: key.to_owned(), value });
    add("Measured", Some(format!("{} by nearmetal {}", results.created, results.version)));
    // Of several guests each has its own, and a table has them all.
    if let Some(slice) = results.slice().filter(|_| results.tenants.len() == 1) {
        add("Slice both sides own", Some(format!("PUs {}, node {}", slice.cpus, slice.nodes)));
        add("PUs on top, guest side only", Some(slice.cpus_on_top.to_string()).filter(|cpus| !cpus.is_empty()));
        add("Page size behind the guest", slice.page_size.map(|size| size.to_string()));
        add("Scratch device", Some(format!("{}, {} for each arm", slice.device, slice.region)));
    }
    add("Runs", Some(runs(results)));
    add("Seed", Some(results.seed.to_string()));
    add("Order of runs", Some("random within each round, drawn from the seed".to_owned()));
    facts.extend(recorded_facts(&results.provenance));
    facts
}

/// Short values that a measurement recorded. What could not be had is written as `unknown` there.
pub(super) fn recorded_facts(provenance: &BTreeMap<String, String>) -> Vec<Fact> {
    let known = |value: &String| Some(value.clone()).filter(|value| !matches!(value.trim(), "" | "unknown"));
    let short = provenance.iter().filter(|(_, value)| is_short(value));
    short.map(|(key, value)| Fact { key: key.clone(), value: known(value) }).collect()
}

/// Long values that a measurement recorded.
pub(super) fn recorded_texts(provenance: &BTreeMap<String, String>) -> Vec<LongText> {
    let long = provenance.iter().filter(|(_, value)| !is_short(value));
    long.map(|(key, value)| LongText { title: key.clone(), text: value.clone() }).collect()
}

/// Long texts: definitions, command lines, arguments, the order of runs. Passwords are masked.
pub(crate) fn texts(change: &DomainChange, results: Option<&Results>) -> Vec<LongText> {
    let mut texts = Vec::new();
    let mut add = |title: String, text: String| texts.push(LongText { title, text });
    if !change.is_new() {
        add("Domain XML, as found".to_owned(), secrets::mask(&change.xml_before));
    }
    add("Domain XML, as planned".to_owned(), secrets::mask(&change.xml_after));
    texts.extend(results.map(texts_of).unwrap_or_default());
    texts
}

/// Long texts of a measurement.
pub(super) fn texts_of(results: &Results) -> Vec<LongText> {
    let mut texts = Vec::new();
    let mut add = |title: String, text: String| texts.push(LongText { title, text });
    for arm in &results.arms {
        let title = &arm.name.title;
        if let Some(xml) = &arm.xml {
            add(format!("Domain XML of the arm `{title}`, as libvirt ran it"), secrets::mask(xml));
        }
        if let Some(line) = &arm.command_line {
            add(format!("QEMU command line of the arm `{title}`"), line.clone());
        }
    }
    if let Some(arguments) = fio_arguments(results) {
        add("fio arguments".to_owned(), arguments);
    }
    add("Order of runs".to_owned(), order(results));
    texts.extend(recorded_texts(&results.provenance));
    texts
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> Option<String> {
    (!items.is_empty()).then(|| items.iter().map(show).collect::<Vec<_>>().join("; "))
}

fn guest_node(node: &GuestNode) -> String {
    let memory = node.memory.map_or_else(|| "memory unknown".to_owned(), |memory| memory.to_string());
    format!("node {}: vCPUs {}, {memory}", node.index, node.cpus)
}

fn guest_disk(disk: &GuestDisk) -> String {
    let queues = disk.queues.map_or_else(|| "queues unknown".to_owned(), |count| format!("{count} queues"));
    let node = disk.node.map_or_else(|| "on no node".to_owned(), |node| format!("on node {node}"));
    format!("{}: {queues}, {node}", disk.name)
}

fn is_short(value: &str) -> bool {
    value.chars().count() <= LONGEST_FACT && !value.trim_end().contains('\n')
}

fn runs(results: &Results) -> String {
    let count = |purpose| results.runs.iter().filter(|run| run.purpose == purpose).count();
    let failed = results.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed { .. })).count();
    format!(
        "{} in pairs, {} in A/A pairs, {} single shots; {failed} failed",
        count(Purpose::Pair),
        count(Purpose::SameArm),
        count(Purpose::SingleShot)
    )
}

/// fio's arguments of each job on bare metal; the guest's differ in the device's name alone.
fn fio_arguments(results: &Results) -> Option<String> {
    let bare = results.arms.iter().find(|arm| arm.name.is_bare());
    let device = bare.map_or("DEVICE", |arm| arm.region.as_str());
    let mut seen: Vec<&Workload> = Vec::new();
    let mut lines = Vec::new();
    for run in &results.runs {
        let arguments = match &run.workload {
            Workload::Fio(job) => job.arguments(device, run.seed),
            Workload::FileSystem(job) => job.arguments(run.seed),
            _ => continue,
        };
        if !seen.contains(&&run.workload) {
            seen.push(&run.workload);
            lines.push(format!("fio {}", arguments.join(" ")));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n\n"))
}

/// One line a run, in the order they ran.
fn order(results: &Results) -> String {
    let line = |run: &nearmetal_results::Run| {
        let purpose = match run.purpose {
            Purpose::Pair => "pair",
            Purpose::SameArm => "A/A",
            Purpose::SingleShot => "single",
            Purpose::Race => "race",
            Purpose::ExitReasons => "exits",
            Purpose::Accesses => "accesses",
            Purpose::Ceiling => "ceiling",
            Purpose::Fill => "tiles",
        };
        let end = match &run.outcome {
            Outcome::Measured { .. } => String::new(),
            Outcome::Failed { why } => format!("  failed: {why}"),
        };
        let (round, arm, workload) = (run.round, &run.arm, run.workload.id());
        format!("{}  round {round:<3} {purpose:<7} {arm:<13} {workload}{end}", run.started)
    };
    results.runs.iter().map(line).collect::<Vec<_>>().join("\n")
}
