//! A plan and the doctor agree: what rules ask of a planned definition is set, or listed with the reason.
#![allow(clippy::disallowed_methods, reason = "the test looks at the folders of fixtures itself")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_host::Host;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_place::{DiskRequest, GuestRequest, Occupied, Policy, WorkloadClass};
use nearmetal_rules::{Check as RuleCheck, Domain, Input, RULES, Settings, Severity, examine};
use nearmetal_units::{Bytes, PageSize};

use super::stage::*;
use crate::verify::{Observed, Outcome, planned_otherwise, rules_kept};
use crate::*;

/// Large enough for every fixture.
fn wide_host() -> Host {
    let machine = Synthetic::new().packages(2).cores_per_node(40).threads(2).numbering(Numbering::Split);
    let machine = machine.memory_per_node(Bytes::from_mib(256 << 10)).pool(PageSize::HUGE_2M, 8192);
    let mut host = machine.pool(PageSize::HUGE_1G, 32).nvme(0).network(0, 4, 2).build();
    host.system.numa_balancing = Some(1);
    (host.system.libvirt_version, host.system.qemu_version) = (Some("11.3.0".to_owned()), Some("10.0.0".to_owned()));
    host
}

/// Every definition that is kept as a fixture, with a UUID: libvirt gives one to each that it stores.
fn fixtures() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let mut all = Vec::new();
    for directory in ["domains", "rules", "rules/virt-install"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "xml") {
                all.push((path.display().to_string(), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    all.sort();
    assert!(all.len() >= 20, "{}", all.len());
    all
}

fn request(facts: &DomainFacts, class: WorkloadClass) -> GuestRequest {
    let disks = facts.disks.iter().map(|disk| DiskRequest {
        target: disk.target.clone(),
        source: disk.source.clone(),
        block_device: None,
        is_block: disk.kind == "block",
        is_virtio_blk: disk.is_virtio_blk(),
        is_read_only: disk.readonly || disk.device != "disk",
    });
    GuestRequest {
        name: facts.name.clone(),
        uuid: facts.uuid.clone().unwrap_or_else(|| UUID.to_owned()),
        vcpus: facts.vcpus.maximum,
        memory: facts.memory,
        class,
        disks: disks.collect(),
        networks: Vec::new(),
        passthrough: facts.hostdevs.clone(),
        shows: Default::default(),
    }
}

fn facts(xml: &str) -> DomainFacts {
    DomainXml::parse(xml).unwrap().facts().unwrap()
}

/// The plan of one definition, before and after it followed the rules; `None` where the planner has no place for it.
fn planned(host: &Host, xml: &str) -> Option<(PlanFile, PlanFile)> {
    let found = facts(xml);
    let class = found.class.as_deref().and_then(|word| word.parse().ok()).unwrap_or_default();
    let request = request(&found, class);
    let planned = nearmetal_place::plan(host, &Occupied::default(), &[request], &Policy::default());
    if planned.plan.placements.is_empty() {
        return None;
    }
    let input = DomainInput { name: found.name, inactive_xml: xml.to_owned(), live_xml: None };
    let before = compose(host, &planned.plan, &[input]).ok()?;
    let mut after = before.clone();
    follow_rules(&mut after, host, &BTreeMap::new(), &[]).unwrap();
    Some((before, after))
}

/// The host after the plan's pools were grown, as the kernel would show it.
fn grown(host: &Host, file: &PlanFile) -> Host {
    let mut host = host.clone();
    for change in &file.plan.pools {
        let node = host.nodes.iter_mut().find(|node| node.index == change.node).unwrap();
        let pool = node.pools.iter_mut().find(|pool| pool.size == change.size).unwrap();
        (pool.total, pool.free) = (change.after, pool.free + change.after - change.before);
    }
    host
}

/// What the doctor finds in a definition: (rule, object), of faults and losses.
fn doctor(host: &Host, xml: &str) -> BTreeSet<(String, String)> {
    let domains = [Domain::new(Some(facts(xml)), None, None).unwrap()];
    let settings = Settings::default();
    let severe = RULES.iter().filter(|rule| {
        matches!(rule.check, RuleCheck::Domain(_)) && matches!(rule.severity, Severity::Fault | Severity::Loss)
    });
    let found = examine(&Input { host: Some(host), domains: &domains, settings: &settings }, severe).findings;
    let objects = |finding: nearmetal_rules::Finding| {
        finding.objects.into_iter().map(move |object| (finding.rule.clone(), object.what)).collect::<Vec<_>>()
    };
    found.into_iter().flat_map(objects).collect()
}

fn observed(xml: &str) -> Observed {
    Observed {
        another: None,
        guest: Ok(None),
        state: None,
        pools: Vec::new(),
        stored: Ok(facts(xml)),
        live: Some(Ok(facts(xml))),
        cells: None,
        functions: Vec::new(),
        boot_unit: None,
        hook: None,
        queues: None,
        touched: None,
        vhost_queues: None,
        disks: Vec::new(),
        view: Err("it is off".to_owned()),
    }
}

#[test]
fn the_doctor_finds_nothing_in_a_planned_definition_that_the_plan_neither_set_nor_listed() {
    let host = wide_host();
    let (mut tried, mut set, mut left) = (0, BTreeSet::new(), BTreeSet::new());
    for (path, xml) in fixtures() {
        let Some((before, after)) = planned(&host, &xml) else { continue };
        tried += 1;
        let change = &after.domains[0];
        let listed: BTreeSet<_> = change.left.iter().map(|left| (left.rule.clone(), left.what.clone())).collect();
        assert_eq!(doctor(&grown(&host, &after), &change.xml_after), listed, "{path}");
        assert!(change.left.iter().all(|left| !left.why.is_empty()), "{path}: {:#?}", change.left);
        // Nothing the planner chose is another now, and each thing set has its reason and is read back.
        let placement = &after.plan.placements[0];
        let chosen = |file: &PlanFile| planned_otherwise(placement, &facts(&file.domains[0].xml_after));
        assert_eq!(chosen(&before), chosen(&after), "{path}");
        for followed in &change.followed {
            let reason = |reason: &&nearmetal_place::Reason| reason.because.contains(&followed.rule);
            assert!(placement.reasons.iter().any(|found| reason(&found)), "{path}: {followed:?}");
        }
        let checks = rules_kept(change, &host, &observed(&change.xml_after));
        assert_eq!(checks.len(), 2 * change.followed.len());
        assert!(checks.iter().all(|check| check.outcome == Outcome::Ok), "{path}: {checks:#?}");
        // What somebody takes out again is found.
        let undone = rules_kept(change, &host, &observed(&before.domains[0].xml_after));
        assert!(undone.iter().all(|check| check.outcome == Outcome::Mismatch), "{path}: {undone:#?}");
        set.extend(change.followed.iter().map(|followed| followed.rule.clone()));
        left.extend(change.left.iter().map(|left| left.rule.clone()));
    }
    assert!(tried >= 15, "{tried}");
    assert!(set.contains("timers-hpet-off") && set.contains("net-queues-multi"), "{set:?}");
    assert!(left.contains("disk-bus-virtio") || left.contains("net-model-virtio"), "{left:?}");
}

#[test]
fn a_definition_that_follows_the_rules_is_followed_by_no_more() {
    let host = wide_host();
    for (path, xml) in fixtures() {
        let Some((_, after)) = planned(&host, &xml) else { continue };
        let Some((_, again)) = planned(&host, &after.domains[0].xml_after) else { panic!("{path}") };
        assert_eq!(again.domains[0].followed, [], "{path}");
        assert_eq!(again.domains[0].xml_after, after.domains[0].xml_after, "{path}");
    }
}

#[test]
fn pages_that_come_with_the_plan_are_asked_for_by_no_rule() {
    let pools = |rule: &str| followed().domains[0].left.iter().any(|left| left.rule == rule);
    assert!(!pools("hugetlb-pool-sized-per-node"), "{:?}", followed().domains[0].left);
    let mut without = plan_file();
    without.plan.pools.clear();
    follow_rules(&mut without, &host(), &BTreeMap::new(), &[]).unwrap();
    let left = &without.domains[0].left;
    assert!(left.iter().any(|left| left.rule == "hugetlb-pool-sized-per-node"), "{left:?}");
}

/// The plan for `web1`, with what the rules of its class ask for.
fn followed() -> PlanFile {
    let mut file = plan_file();
    follow_rules(&mut file, &host(), &BTreeMap::new(), &[]).unwrap();
    file
}

#[test]
fn a_plan_says_which_class_it_took_and_what_it_set_for_it() {
    let file = followed();
    let change = &file.domains[0];
    assert_eq!(change.class.as_deref(), Some("throughput: guessed: each vCPU has a PU of its own"));
    assert!(change.xml_after.contains("<timer name='hpet' present='no'/>"), "{}", change.xml_after);
    let part = change.needs_restart.iter().find(|part| part.what == "timer hpet").unwrap();
    assert_eq!(part.change, "present -> present='no'");
    let text = serde_json::to_string(&file).unwrap();
    assert_eq!(PlanFile::parse(&text, "it").unwrap(), file);
}

#[test]
fn a_class_that_is_given_decides_over_the_guess() {
    let mut file = plan_file();
    let given = Beside { class: Some(WorkloadClass::Windows), ..Beside::default() };
    follow_rules(&mut file, &host(), &BTreeMap::from([("web1".to_owned(), given)]), &[]).unwrap();
    assert_eq!(file.domains[0].class.as_deref(), Some("windows: given"));
    assert!(file.domains[0].xml_after.contains("<timer name='rtc' tickpolicy='catchup'/>"));
}

#[test]
fn what_is_set_on_the_host_is_left_with_the_command_that_cures_it() {
    let (mut host, mut file) = (host(), plan_file());
    host.system.numa_balancing = Some(1);
    follow_rules(&mut file, &host, &BTreeMap::new(), &[]).unwrap();
    let left = file.left.iter().find(|left| left.rule == "numa-autobalancing-off-when-pinned").unwrap();
    assert!(left.why.ends_with("nearmetal doctor --fix numa-autobalancing-off-when-pinned"), "{left:?}");
    // A neighbour that floats needs the balancing.
    let neighbour = facts("<domain type='kvm'><name>other</name><memory>1024</memory><vcpu>1</vcpu></domain>");
    let neighbour = Domain::new(None, Some(neighbour), None).unwrap();
    follow_rules(&mut file, &host, &BTreeMap::new(), &[neighbour]).unwrap();
    assert!(file.left.iter().all(|left| left.rule != "numa-autobalancing-off-when-pinned"), "{:?}", file.left);
}

#[test]
fn rollback_takes_back_what_was_set_for_a_rule_byte_by_byte() {
    let mut stage = Stage::new();
    let found = stage.snapshot();
    let plan = followed();
    stage.apply(&plan, &with_restart(), &Faults::none()).unwrap();
    assert!(stage.snapshot().stored.contains("hpet"));
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), found);
}
