//! The guest does not see a wider last-level cache than the host has.

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "guest-l3-wider-than-host",
    layer: Layer::DomainCpu,
    title: "The guest does not see a wider last-level cache than the host has",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list",
        "domain <cpu><cache mode='passthrough'>, <topology>",
    ],
    good: "vCPUs of a guest die <= PUs of a host cache",
    applies: "guests that see the host caches",
    not_applies: "-",
    effect: "the guest scheduler spreads work over caches it takes for one",
    evidence: Evidence::B,
    sources: &["t-nri-716", "lv-dom"],
    fix: Fix {
        live: None,
        persistent: "virsh edit <topology dies> or <cache mode='emulate'>",
        needs: &[Need::VmRestart],
        undo: "restore the topology",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let cpu = &subject.facts.cpu;
    if cpu.cache.as_deref() != Some("passthrough") {
        return Outcome::NotApplicable;
    }
    let vcpus = match &cpu.topology {
        Some(topology) => {
            let parts = [topology.clusters, topology.cores, topology.threads];
            parts.into_iter().fold(1, |product: u64, part| product.saturating_mul(u64::from(part)))
        }
        None => 1,
    };
    let caches = host.processors.iter().filter_map(|processor| processor.last_level_cache.as_ref());
    let Some(widest) = caches.map(|cache| cache.len() as u64).max() else {
        return Outcome::unknown("/sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list");
    };
    let found = format!("{vcpus} vCPUs of a guest die see one cache");
    // QEMU emulates the third level alone.
    let emulated = [("mode", "emulate"), ("level", "3")].map(|(name, value)| Cure::attribute("cpu/cache", name, value));
    let object = || Object::new("guest's last-level cache", found, format!("at most {widest}, as on the host"));
    Outcome::one((vcpus > widest).then(|| object().cured_by_all(emulated)))
}
