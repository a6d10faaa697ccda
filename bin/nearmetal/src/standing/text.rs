//! The overview, a line for each thing. Pure: the same facts give the same text.

use nearmetal_host::text::printable;
use nearmetal_host::{Host, System};
use nearmetal_rules::{Finding, Severity};
use nearmetal_units::PageSize;

use super::{InForce, Standing};

/// Findings that are shown.
const WORST: usize = 3;

/// About ten lines.
pub(super) fn text(standing: &Standing<'_>) -> String {
    let host = standing.host();
    let mut lines = vec![
        heading(&host.system),
        line("KVM", &kvm(standing)),
        line("machine", &machine(host)),
        line("hugepages", &hugepages(host)),
        line("libvirt", &libvirt(standing)),
        line("plan", &plan(standing)),
        line("findings", &counts(standing)),
    ];
    lines.extend(standing.examination.findings.iter().take(WORST).map(finding));
    // Names in a capture come from outside: none may move the cursor or add a line.
    lines.into_iter().map(|line| printable(line) + "\n").collect()
}

fn line(name: &str, value: &str) -> String {
    format!("{name:11}{value}")
}

fn heading(system: &System) -> String {
    let kind = match (system.container, system.hypervisor) {
        (Some(true), Some(true)) => "a container in a virtual machine",
        (Some(true), _) => "a container: hardware as the machine has it, but not its guests and processes",
        (_, Some(true)) => "a virtual machine",
        (_, Some(false)) => "a physical machine",
        (_, None) => "a machine",
    };
    let unknown = || "?".to_owned();
    format!(
        "{}: {kind}; Linux {}, {}",
        system.hostname.clone().unwrap_or_else(unknown),
        system.kernel.clone().unwrap_or_else(unknown),
        system.processor_model.clone().unwrap_or_else(unknown),
    )
}

fn kvm(standing: &Standing<'_>) -> String {
    match (&standing.kvm, standing.capture) {
        (Some(kvm), _) => {
            // What it was seen by; how that was judged is for `inspect`.
            let seen = kvm.reason.split([',', ';']).next().unwrap_or_default();
            format!("{} ({seen})", kvm.verdict)
        }
        (None, None) => "? (nearmetal-probe is missing from this program's directory, or failed)".to_owned(),
        (None, Some(_)) => format!("? (not tried in a capture); {}", extension(&standing.host().system)),
    }
}

/// What the processor offers; whether firmware and hypervisor let it be used shows only when a guest runs.
fn extension(system: &System) -> &'static str {
    match (system.has_flag("vmx"), system.has_flag("svm")) {
        (Some(true), _) => "the processor has VMX",
        (_, Some(true)) => "the processor has SVM",
        (Some(false), Some(false)) => "the processor shows neither VMX nor SVM: KVM cannot accelerate here",
        _ => "the processor does not say what it offers",
    }
}

fn machine(host: &Host) -> String {
    let summary = host.summary();
    let offline = host.processors.len() - summary.pus;
    let mut text = format!(
        "{}, {}, {}, {}",
        counted(summary.packages, "package"),
        counted(Some(summary.numa_nodes), "node"),
        counted(Some(summary.cores), "core"),
        counted(Some(summary.pus), "PU"),
    );
    if host.core_kinds.len() > 1 {
        let kinds: Vec<String> = host.core_kinds.iter().map(|kind| kind.cpus.len().to_string()).collect();
        text.push_str(&format!(" of {} kinds of cores ({})", kinds.len(), kinds.join(" and ")));
    }
    if offline > 0 {
        text.push_str(&format!(", {offline} more offline"));
    }
    // A machine without nodes, and a container's view of one, may have the total alone.
    let memory = summary.memory.or(host.system.memory_total);
    text + &format!(", {} of memory", memory.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string()))
}

/// A page size with the pages that exist and those that are free; unknown ones are `None`.
type Pool = (PageSize, Option<u64>, Option<u64>);

fn hugepages(host: &Host) -> String {
    let whole: Vec<Pool> = host.system.hugepages.iter().map(|pool| (pool.size, pool.total, pool.free)).collect();
    let pools = if whole.is_empty() { pools_of_nodes(host) } else { whole };
    if pools.is_empty() {
        return "?".to_owned();
    }
    let shown = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let there = pools.iter().filter(|(_, total, _)| *total != Some(0)).map(|(size, total, free)| {
        let together = total.map_or(String::new(), |total| format!(" ({} together)", size.bytes().times(total)));
        format!("{} of {}{together}, {} free", shown(*total), size.bytes(), shown(*free))
    });
    let there: Vec<String> = there.collect();
    let sizes: Vec<String> = pools.iter().map(|(size, ..)| size.bytes().to_string()).collect();
    match there.is_empty() {
        true => format!("none reserved; the kernel offers {}", sizes.join(" and ")),
        false => there.join("; "),
    }
}

/// Captures of other tools may have the nodes' pools alone.
fn pools_of_nodes(host: &Host) -> Vec<Pool> {
    let mut pools: Vec<Pool> = Vec::new();
    for pool in host.nodes.iter().flat_map(|node| &node.pools) {
        match pools.iter_mut().find(|(size, ..)| *size == pool.size) {
            Some((_, total, free)) => {
                *total = total.map(|sum| sum.saturating_add(pool.total));
                *free = free.map(|sum| sum.saturating_add(pool.free));
            }
            None => pools.push((pool.size, Some(pool.total), Some(pool.free))),
        }
    }
    pools
}

fn libvirt(standing: &Standing<'_>) -> String {
    let (gathered, system) = (standing.gathered, &standing.host().system);
    if standing.capture.is_some() {
        return match standing.host().guests.len() {
            0 => "? (a capture holds no definitions)".to_owned(),
            count => format!("? (a capture holds no definitions); {count} QEMU processes ran"),
        };
    }
    if let Some(why) = &gathered.domains_unknown {
        return format!("? ({why})");
    }
    let version = |name: &str, version: &Option<String>| version.as_ref().map(|version| format!("{name}{version}"));
    let versions: Vec<String> =
        [version("", &system.libvirt_version), version("QEMU ", &system.qemu_version)].into_iter().flatten().collect();
    let readable = gathered.domains.iter().filter(|domain| domain.running.is_some()).map(|domain| domain.name.as_str());
    let bad = gathered.bad_domains.iter().filter(|domain| domain.runs).map(|domain| domain.name.as_str());
    let running: Vec<&str> = readable.chain(bad).collect();
    let all = gathered.domains.len() + gathered.bad_domains.len();
    format!(
        "{}; {}, {}",
        versions.join(", "),
        counted(Some(all), "domain"),
        match running.as_slice() {
            [] => "none of them runs".to_owned(),
            names => format!("running: {}", some_of(names)),
        }
    )
}

fn plan(standing: &Standing<'_>) -> String {
    match &standing.in_force {
        None => "? (a capture holds no journal)".to_owned(),
        Some(InForce::Unknown(why)) => format!("? ({why})"),
        Some(InForce::UnderWay(number, since)) => format!("transaction {number} of {since} is under way"),
        Some(InForce::Unfinished(number, since)) => format!("transaction {number} of {since} is unfinished"),
        Some(InForce::Changes { transactions: 0, .. }) => "none in force".to_owned(),
        Some(InForce::Changes { transactions, planned }) if planned.is_empty() => {
            format!("none in force; {} to the host is", counted(Some(*transactions), "change"))
        }
        Some(InForce::Changes { planned, .. }) => {
            let names: Vec<&str> = planned.iter().map(String::as_str).collect();
            format!("in force for {}", some_of(&names))
        }
    }
}

fn counts(standing: &Standing<'_>) -> String {
    let findings = &standing.examination.findings;
    let gathered = standing.gathered;
    // A capture says in its line of libvirt that it holds no definitions.
    let unchecked = match (&gathered.domains_unknown, gathered.bad_domains.len()) {
        (Some(_), _) => " on the host; domains were not checked".to_owned(),
        (None, 0) => String::new(),
        (None, bad) => format!("; {} could not be read", counted(Some(bad), "domain")),
    };
    if findings.is_empty() {
        return format!("none{unchecked}");
    }
    let counts = Severity::ALL.iter().map(|severity| {
        let count = findings.iter().filter(|finding| finding.severity == *severity).count();
        format!("{count} {}", severity.as_str())
    });
    let worst = if findings.len() > WORST { "; the worst:" } else { "" };
    counts.collect::<Vec<_>>().join(", ") + &unchecked + worst
}

fn finding(finding: &Finding) -> String {
    let more = match finding.objects.len() {
        0 | 1 => String::new(),
        count => format!("; and {} more", count - 1),
    };
    let first = finding.objects.first().map(|object| format!("{}: {}", object.what, object.found)).unwrap_or_default();
    let (severity, place, rule) = (finding.severity.as_str(), finding.place(), &finding.rule);
    format!("  {severity:6}  {place}  {rule}  {first}{more}")
}

/// Three names, and how many more there are.
fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 3;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn counted(count: Option<usize>, name: &str) -> String {
    let plural = if count == Some(1) { "" } else { "s" };
    format!("{} {name}{plural}", count.map_or_else(|| "?".to_owned(), |count| count.to_string()))
}
