//! What changed between two readings of one host that matters for where guests belong: after a firmware or kernel
//! update, a part that failed, a setting somebody made.
//!
//! Left out is what changes by itself: free memory, running guests, interrupts, boot identity.
//!
//! ```
//! use nearmetal_host::{diff::diff, synthetic::Synthetic};
//! let (two, one) = (Synthetic::new().packages(2).build(), Synthetic::new().build());
//! assert_eq!(diff(&two, &one)[0].to_string(), "PUs online: 0-3 before, 0-1 now");
//! assert!(diff(&two, &two).is_empty());
//! ```

mod devices;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use nearmetal_units::CpuSet;
use serde::{Deserialize, Serialize};

use crate::{Cache, CpuGroup, Host};

/// What a difference means for plans made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weight {
    /// PUs, cores, caches or nodes are not what they were: plans name things that are elsewhere now.
    Shape,
    /// Memory, pools or devices are more or fewer.
    Capacity,
    /// Something is nearer or farther, faster or slower, or bound to another driver.
    Locality,
    /// A setting that changes how guests run.
    Setting,
    /// Versions and names.
    Version,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Difference {
    /// What it means.
    pub weight: Weight,
    /// What differs: `node 1: memory`, `0000:41:00.0: driver`.
    pub subject: String,
    /// Before; `None`: was not there, or not known.
    pub before: Option<String>,
    /// Now; `None`: is not there, or not known.
    pub now: Option<String>,
}

impl Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown or absent".to_owned());
        write!(formatter, "{}: {} before, {} now", self.subject, shown(&self.before), shown(&self.now))
    }
}

/// All differences, the heaviest first, then by subject. Pure.
pub fn diff(before: &Host, now: &Host) -> Vec<Difference> {
    let mut found = Found(Vec::new());
    shape(before, now, &mut found);
    nodes(before, now, &mut found);
    devices::compare(before, now, &mut found);
    settings(before, now, &mut found);
    found.0.sort();
    found.0
}

/// The differences as lines under headings; one sentence if there are none. Pure.
pub fn render(differences: &[Difference]) -> String {
    if differences.is_empty() {
        return "nothing that matters for placement differs\n".to_owned();
    }
    let mut text = String::new();
    for group in differences.chunk_by(|left, right| left.weight == right.weight) {
        text.push_str(match group[0].weight {
            Weight::Shape => "SHAPE (plans made before may name the wrong PUs and nodes)\n",
            Weight::Capacity => "CAPACITY\n",
            Weight::Locality => "LOCALITY\n",
            Weight::Setting => "SETTINGS\n",
            Weight::Version => "VERSIONS\n",
        });
        for difference in group {
            text.push_str(&format!("  {}\n", crate::text::printable(difference.to_string())));
        }
    }
    text
}

struct Found(Vec<Difference>);

impl Found {
    fn compare<T: PartialEq + Display>(
        &mut self,
        weight: Weight,
        subject: impl Into<String>,
        before: Option<T>,
        now: Option<T>,
    ) {
        if before != now {
            let shown = |value: Option<T>| value.map(|value| value.to_string());
            let (before, now) = (shown(before), shown(now));
            self.0.push(Difference { weight, subject: subject.into(), before, now });
        }
    }
}

/// Sets as one text, shortened by count where there are many.
fn sets<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> String {
    const MOST: usize = 8;
    let all: Vec<String> = sets.map(ToString::to_string).collect();
    match all.len() {
        0 => "none".to_owned(),
        count if count <= MOST => all.join(" | "),
        count => format!("{count} sets, the first {}", all[..2].join(" | ")),
    }
}

fn shape(before: &Host, now: &Host, found: &mut Found) {
    let shape = Weight::Shape;
    found.compare(shape, "PUs online", Some(before.online()), Some(now.online()));
    let mut groups = |name: &str, old: &[CpuGroup], new: &[CpuGroup]| {
        if old.iter().map(|group| &group.cpus).ne(new.iter().map(|group| &group.cpus)) {
            let (old, new) = (sets(old.iter().map(|group| &group.cpus)), sets(new.iter().map(|group| &group.cpus)));
            let subject = name.to_owned();
            found.0.push(Difference { weight: shape, subject, before: Some(old), now: Some(new) });
        }
    };
    groups("packages", &before.packages, &now.packages);
    groups("dies", &before.dies, &now.dies);
    groups("clusters", &before.clusters, &now.clusters);
    let by_first = |host: &Host| -> BTreeMap<Option<u32>, CpuSet> {
        host.cores.iter().map(|core| (core.cpus.first(), core.cpus.clone())).collect()
    };
    let (old, new) = (by_first(before), by_first(now));
    if old != new {
        found.0.push(Difference {
            weight: shape,
            subject: "cores".to_owned(),
            before: Some(sets(old.values())),
            now: Some(sets(new.values())),
        });
    }
    let levels: std::collections::BTreeSet<u32> = before.caches.iter().chain(&now.caches).map(|c| c.level).collect();
    for level in levels.into_iter().filter(|level| *level > 1) {
        let of =
            |host: &Host| -> Vec<Cache> { host.caches.iter().filter(|cache| cache.level == level).cloned().collect() };
        let (old, new) = (of(before), of(now));
        if old.iter().map(|cache| &cache.cpus).ne(new.iter().map(|cache| &cache.cpus)) {
            let (old, new) = (sets(old.iter().map(|c| &c.cpus)), sets(new.iter().map(|c| &c.cpus)));
            let subject = format!("PUs that share an L{level}");
            found.0.push(Difference { weight: shape, subject, before: Some(old), now: Some(new) });
        }
        let size = |caches: &[Cache]| caches.iter().filter_map(|cache| cache.size).min();
        found.compare(Weight::Capacity, format!("smallest L{level}"), size(&old), size(&new));
    }
}

fn nodes(before: &Host, now: &Host, found: &mut Found) {
    found.compare(Weight::Shape, "nodes", Some(before.node_set()), Some(now.node_set()));
    let machine = |host: &Host| host.system.memory_total;
    found.compare(Weight::Capacity, "memory of the machine", machine(before), machine(now));
    for old in &before.nodes {
        let Some(new) = now.node(old.index) else { continue };
        let name = format!("node {}", old.index);
        found.compare(Weight::Shape, format!("{name}: PUs"), Some(old.cpus.clone()), Some(new.cpus.clone()));
        found.compare(Weight::Capacity, format!("{name}: memory"), old.memory_total, new.memory_total);
        for pool in &old.pools {
            let persistent = new.pool(pool.size).map(crate::HugepagePool::persistent);
            let subject = format!("{name}: pages of {}", pool.size);
            found.compare(Weight::Capacity, subject, Some(pool.persistent()), persistent);
        }
        for (other, distance) in &old.distances {
            let subject = format!("{name}: distance to node {other}");
            found.compare(Weight::Locality, subject, Some(*distance), new.distance(*other));
        }
        let latency = |node: &crate::NumaNode| node.access.iter().find_map(|access| access.read_latency);
        found.compare(Weight::Locality, format!("{name}: read latency in ns"), latency(old), latency(new));
        found.compare(Weight::Locality, format!("{name}: memory tier"), old.tier, new.tier);
    }
}

fn settings(before: &Host, now: &Host, found: &mut Found) {
    let (old, new) = (&before.system, &now.system);
    let mut text = |weight, subject: &str, old: &Option<String>, new: &Option<String>| {
        found.compare(weight, subject, old.as_ref(), new.as_ref());
    };
    text(Weight::Setting, "transparent huge pages", &old.transparent_hugepage, &new.transparent_hugepage);
    text(Weight::Setting, "clock source", &old.clocksource, &new.clocksource);
    text(Weight::Setting, "SMT", &old.smt, &new.smt);
    text(Weight::Setting, "idle driver", &old.idle_driver, &new.idle_driver);
    text(Weight::Setting, "idle governor", &old.idle_governor, &new.idle_governor);
    text(Weight::Setting, "kernel command line", &old.command_line, &new.command_line);
    text(Weight::Version, "kernel", &old.kernel, &new.kernel);
    text(Weight::Version, "processor", &old.processor_model, &new.processor_model);
    text(Weight::Version, "host name", &old.hostname, &new.hostname);
    let setting = Weight::Setting;
    found.compare(setting, "isolated PUs", old.isolated.as_ref(), new.isolated.as_ref());
    found.compare(setting, "PUs without a tick", old.nohz_full.as_ref(), new.nohz_full.as_ref());
    let profile = |host: &Host| host.system.tuned.as_ref().map(ToString::to_string);
    found.compare(setting, "tuned profile", profile(before), profile(now));
    let boost = |host: &Host| host.system.boost.as_ref().map(|boost| if boost.allowed { "on" } else { "off" });
    found.compare(setting, "boost", boost(before), boost(now));
    let names: BTreeSet<&str> = old.sysctls.iter().chain(&new.sysctls).map(|sysctl| sysctl.name.as_str()).collect();
    for name in names {
        found.compare(setting, name, old.sysctl(name), new.sysctl(name));
    }
    for (name, old, new) in [
        ("NUMA balancing", old.numa_balancing, new.numa_balancing),
        ("io_uring forbidden", old.io_uring_disabled, new.io_uring_disabled),
        ("page merging", old.ksm, new.ksm),
        ("swappiness", old.swappiness, new.swappiness),
        ("zone reclaim", old.zone_reclaim_mode, new.zone_reclaim_mode),
        ("proactive compaction", before.tuning.compaction_proactiveness, now.tuning.compaction_proactiveness),
        ("busy polling", before.tuning.busy_poll, now.tuning.busy_poll),
    ] {
        found.compare(setting, name, old, new);
    }
    let (old, new) = (&before.tuning, &now.tuning);
    found.compare(setting, "PUs of unbound work", old.workqueue_cpus.as_ref(), new.workqueue_cpus.as_ref());
    found.compare(setting, "PCI link power", old.link_power_policy.as_ref(), new.link_power_policy.as_ref());
    let (old, new) = (&before.system, &now.system);
    let governors = |host: &Host| -> Option<String> {
        let shown = |policy: &crate::FrequencyPolicy| {
            let word = |text: &Option<String>| text.clone().unwrap_or_else(|| "?".to_owned());
            format!("{} {} on {}", word(&policy.driver), word(&policy.governor), policy.cpus)
        };
        let all: Vec<String> = host.system.frequency.iter().map(shown).collect();
        (!all.is_empty()).then(|| all.join(" | "))
    };
    found.compare(setting, "frequency", governors(before), governors(now));
    for (what, old, new) in [
        ("vulnerability", &old.vulnerabilities, &new.vulnerabilities),
        ("parameter", &old.module_parameters, &new.module_parameters),
    ] {
        let by_name = |settings: &[crate::Setting]| -> BTreeMap<String, String> {
            settings.iter().map(|setting| (setting.name.clone(), setting.value.clone())).collect()
        };
        let (old, new) = (by_name(old), by_name(new));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            found.compare(setting, format!("{what} {name}"), old.get(name), new.get(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;
    use nearmetal_units::{Bytes, PageSize};

    /// Breaks one thing and gives the differences in words.
    fn after(change: impl FnOnce(&mut Host)) -> Vec<String> {
        let before =
            Synthetic::new().packages(2).threads(2).pool(PageSize::HUGE_2M, 64).nvme(1).network(0, 7, 2).build();
        let mut now = before.clone();
        change(&mut now);
        diff(&before, &now).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_change_is_said_in_words_and_nothing_else() {
        assert_eq!(after(|_| ()), [""; 0]);
        assert_eq!(after(|host| host.nodes[1].memory_free = None), [""; 0], "changes by itself");
        let less = Some(Bytes::from_mib(2048));
        assert_eq!(after(|host| host.nodes[1].memory_total = less), ["node 1: memory: 4 GiB before, 2 GiB now"]);
        assert_eq!(after(|host| host.nodes[0].pools[0].total = 32), ["node 0: pages of 2 MiB: 64 before, 32 now"]);
        assert_eq!(after(|host| host.nodes[0].distances[1].1 = 32), ["node 0: distance to node 1: 20 before, 32 now"]);
        let moved = after(|host| host.pci_devices[0].node = None);
        assert_eq!(moved, ["0000:01:00.0: node: 1 before, unknown or absent now"]);
        let taken = after(|host| host.pci_devices[0].driver = Some("vfio-pci".to_owned()));
        assert_eq!(taken, ["0000:01:00.0: driver: nvme before, vfio-pci now"]);
        let gone = after(|host| drop(host.pci_devices.remove(0)));
        assert_eq!(gone, ["0000:01:00.0: 1b36:0010 before, unknown or absent now"]);
        let thp = after(|host| host.system.transparent_hugepage = Some("never".to_owned()));
        assert_eq!(thp, ["transparent huge pages: madvise before, never now"]);
    }

    #[test]
    fn the_heaviest_comes_first() {
        let before = Synthetic::new().packages(2).threads(2).build();
        let mut now = Synthetic::new().packages(2).threads(1).build();
        now.system.kernel = Some("6.13.0".to_owned());
        let differences = diff(&before, &now);
        assert_eq!(differences.first().map(|difference| difference.weight), Some(Weight::Shape));
        assert_eq!(differences.last().map(|difference| difference.subject.as_str()), Some("kernel"));
        let text = render(&differences);
        assert!(text.starts_with("SHAPE") && text.contains("\nVERSIONS\n  kernel: 6.12.0-synthetic before"), "{text}");
        assert_eq!(render(&[]), "nothing that matters for placement differs\n");
    }
}
