//! Which plans race on which machine.

use clap::{Args as _, FromArgMatches as _};
use nearmetal_change::DomainInput;
use nearmetal_domain::DomainXml;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Versions;
use nearmetal_measure::least_tune_seconds;
use nearmetal_units::{Bytes, PageSize};

use super::arms::{Arms, Ground};
use super::{Args, listed, within_budget};
use crate::commands::plan::Found;

/// A VM with so many vCPUs and MiB, on a drive of node 0.
fn ground(host: Host, vcpus: u32, mib: u64, more: &str) -> Ground {
    ground_of(host, vcpus, mib, more, "", None)
}

/// The same with more devices, and with versions of libvirt and QEMU; with devices it runs a command itself.
fn ground_of(host: Host, vcpus: u32, mib: u64, more: &str, devices: &str, versions: Option<Versions>) -> Ground {
    let is_itself = !devices.is_empty();
    let xml = format!(
        "<domain type='kvm'><name>web1</name><uuid>6b29fc40-ca47-1067-b31d-00dd010662da</uuid><memory unit='MiB'>{mib}</memory>\
         <vcpu>{vcpus}</vcpu>{more}<os><type machine='q35'>hvm</type></os><devices><disk type='block' device='disk'>\
         <driver name='qemu' type='raw'/><source dev='/dev/nvme0n1'/><target dev='vda' bus='virtio'/></disk>{devices}</devices></domain>"
    );
    let input = DomainInput { name: "web1".into(), inactive_xml: xml, live_xml: None };
    let found = Found { inputs: vec![input], neighbours: Vec::new(), versions, denied: None };
    Ground::of(host, found, is_itself).unwrap().unwrap()
}

fn machine() -> Synthetic {
    Synthetic::new()
        .packages(2)
        .cores_per_node(12)
        .memory_per_node(Bytes::from_mib(8192))
        .pool(PageSize::HUGE_2M, 0)
        .nvme(0)
}

fn arms(ground: &Ground, crossed: usize) -> Arms {
    ground.arms(&[], crossed).unwrap().unwrap()
}

fn factors(arms: &Arms) -> Vec<&str> {
    arms.factors.iter().map(|factor| factor.id.as_str()).collect()
}

fn alone(arms: &Arms) -> Vec<&str> {
    arms.alone.iter().map(|own| own.factor.id.as_str()).collect()
}

fn why<'a>(arms: &'a Arms, what: &str) -> &'a str {
    arms.left_out.iter().find(|left| left.what == what).map_or("", |left| left.why.as_str())
}

fn ids(arms: &Arms) -> Vec<&str> {
    arms.arms.iter().map(|arm| arm.id.as_str()).collect()
}

#[test]
fn a_machine_with_smt_and_a_vm_on_two_nodes_have_every_factor() {
    let small = arms(&ground(machine().build(), 4, 1024, ""), 8);
    assert_eq!(factors(&small), ["pages", "pins", "engine", "iothread", "emulator"]);
    assert!(why(&small, "smt").contains("SMT") && why(&small, "cells") == "it lies on one node");
    assert!(why(&small, "how long the host polls (halt_poll_ns)").contains("whole host"));
    let wide = ground(machine().threads(2).build(), 28, 10 * 1024, "");
    let wide = arms(&wide, 8);
    assert_eq!(factors(&wide), ["pages", "pins", "engine", "iothread", "emulator", "cells"], "{:?}", wide.left_out);
    // 28 cores would take more than these 24.
    assert!(why(&wide, "smt").contains("28 whole cores"), "{:?}", wide.left_out);
    let smt = arms(&ground(machine().threads(2).build(), 4, 1024, ""), 8);
    assert_eq!(factors(&smt), ["pages", "pins", "engine", "iothread", "emulator", "smt"]);
    assert!(ids(&smt).iter().any(|id| id.ends_with(".emulator-node.core-each")), "{:?}", ids(&smt));
}

#[test]
fn what_the_time_is_too_short_to_cross_races_alone() {
    let ground = ground(machine().threads(2).build(), 4, 1024, "");
    let (all, few) = (arms(&ground, 8), arms(&ground, 4));
    let nested = ["iothread-pu", "iothreads", "polling"];
    assert_eq!((alone(&all), alone(&few)), (nested.to_vec(), [&["emulator", "smt"], &nested[..]].concat()));
    let beside =
        |arms: &Arms| arms.arms.iter().filter(|arm| arm.levels.is_none()).map(|arm| arm.id.clone()).collect::<Vec<_>>();
    assert_eq!((all.arms.len() - beside(&all).len(), few.arms.len() - beside(&few).len()), (16, 8));
    let rule = "pu.huge.none-io_uring.iothread";
    let words = ["emulator-node", "core-each", "iothread-node", "two-iothreads", "guest-polls"];
    assert_eq!(beside(&few)[..5], words.map(|word| format!("{rule}.{word}")));
    assert_eq!(beside(&few)[2..], beside(&all)[..]);
    assert_eq!(few.plans.len(), few.arms.len());
    let mut xmls: Vec<&str> = all.arms.iter().chain(&few.arms[8..13]).map(|arm| arm.xml.as_str()).collect();
    xmls.sort_unstable();
    xmls.dedup();
    // The three that hang on another factor race in both.
    assert!(xmls.len() == all.arms.len() + 2, "each plan is another definition");
}

#[test]
fn cells_that_a_definition_shows_stay_and_are_no_factor() {
    let shown = |first: &str, second: &str| {
        let cells = format!(
            "<cpu><numa><cell id='0' cpus='{first}' memory='5' unit='GiB'/><cell id='1' cpus='{second}' memory='5' unit='GiB'/></numa></cpu>"
        );
        arms(&ground(machine().threads(2).build(), 28, 10 * 1024, &cells), 8)
    };
    let even = shown("0-13", "14-27");
    assert!(why(&even, "cells").contains("which the plan by rule deals to its nodes"), "{:?}", even.left_out);
    let mixed = shown("0-12,27", "13-26");
    assert!(why(&mixed, "cells").contains("do not lie on a node each"), "{:?}", mixed.left_out);
}

#[test]
fn siblings_that_would_take_another_node_are_no_factor() {
    let arms = arms(&ground(machine().threads(2).build(), 16, 1024, ""), 8);
    assert!(why(&arms, "smt").contains("what differs would be the nodes"), "{:?}", arms.left_out);
}

#[test]
fn a_factor_that_is_left_out_is_raced_nowhere() {
    let arms = ground(machine().build(), 4, 1024, "").arms(&["emulator".into(), "pins".into()], 8).unwrap().unwrap();
    assert_eq!(factors(&arms), ["pages", "engine", "iothread"]);
    assert!(ids(&arms).iter().all(|id| !id.contains("emulator-node") && !id.starts_with("node")), "{:?}", ids(&arms));
}

#[test]
fn the_budget_decides_how_many_factors_are_crossed_and_which_are_raced_at_all() {
    let root = tempfile::tempdir().unwrap();
    for directory in ["sys", "proc"] {
        nearmetal_host::files::create_dir_all(&root.path().join(directory)).unwrap();
    }
    let fs = HostFs::at(root.path()).unwrap();
    let ground = ground(machine().build(), 4, 1024, "");
    let within = |seconds: u32, more: &[&str]| {
        let command = Args::augment_args(clap::Command::new("tune").no_binary_name(true));
        let budget = seconds.to_string();
        let words = ["web1", "--dry-run", "--budget", budget.as_str()].into_iter().chain(more.iter().copied());
        let args = Args::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap();
        within_budget(&args, None, &fs, &ground).unwrap()
    };
    let (arms, request) = within(3 * 3600, &[]);
    assert_eq!((factors(&arms).len(), arms.alone.len()), (5, 3));
    let all = least_tune_seconds(&request);
    assert_eq!(factors(&within(2 * all, &[]).0).len(), 5);
    let (arms, request) = within(2 * all - 1, &[]);
    assert_eq!((factors(&arms).len(), arms.alone.len(), request.alone.len()), (4, 4, 4));
    let each_alone = least_tune_seconds(&request) * 3 / 2;
    assert_eq!(within(each_alone, &[]).0.alone.len(), 4);
    // One that is beyond the time leaves, and no other.
    let (arms, request) = within(each_alone - 1, &[]);
    assert_eq!((factors(&arms).len(), alone(&arms)), (4, vec!["emulator", "iothread-pu", "iothreads"]));
    assert_eq!(why(&arms, "polling"), "the budget is too short for it");
    assert!(listed(&request).contains("the budget is too short for it"));
    let (arms, request) = within(60, &[]);
    assert_eq!((factors(&arms).len(), arms.alone.len()), (4, 0));
    assert_eq!(why(&arms, "emulator"), "the budget is too short for it");
    // What it leaves out is no more than that, and it takes no more than a tune that was never asked for it.
    let without: Vec<&str> =
        ["emulator", "iothread-pu", "iothreads", "polling"].into_iter().flat_map(|id| ["--without", id]).collect();
    assert_eq!(least_tune_seconds(&request), least_tune_seconds(&within(3 * 3600, &without).1));
}

#[test]
fn what_hangs_on_another_factor_or_on_versions_is_told() {
    let versions = |qemu: &str, libvirt: &str| Versions {
        libvirt: libvirt.to_owned(),
        hypervisor: qemu.to_owned(),
        hypervisor_kind: "QEMU".to_owned(),
        uri: String::new(),
    };
    let of = |vcpus: u32, more: &str, versions: Option<Versions>| {
        arms(&ground_of(machine().build(), vcpus, 1024, more, "", versions), 8)
    };
    let old = of(4, "", Some(versions("7.2.0", "9.0.0")));
    assert_eq!(alone(&old), ["iothread-pu", "polling"]);
    assert!(why(&old, "iothreads").starts_with("QEMU 7.2 shares no queues"), "{:?}", old.left_out);
    assert!(why(&of(4, "", Some(versions("9.0.0", "9.9.0"))), "iothreads").starts_with("libvirt 9.9 shares no"));
    let new = of(4, "", Some(versions("10.0.8", "11.3.0")));
    let two = new.arms.iter().find(|arm| arm.id.ends_with(".two-iothreads")).unwrap();
    assert!(two.xml.contains("<iothreads><iothread id='1'/><iothread id='2'/></iothreads>"), "{}", two.xml);
    assert!(why(&of(1, "", None), "iothreads").contains("one vCPU"));
    // A node that has one PU beside the vCPUs' has none for a second iothread.
    let narrow = arms(&ground(machine().cores_per_node(6).build(), 4, 1024, ""), 8);
    assert!(why(&narrow, "iothreads").contains("no other PU is free"), "{:?}", narrow.left_out);
    let polls_already = "<features><kvm><hint-dedicated state='on'/><poll-control state='on'/></kvm></features>";
    let polls_already = of(4, polls_already, None);
    let back = polls_already.arms.iter().find(|arm| arm.id.ends_with(".host-polls")).unwrap();
    assert!(back.xml.contains("<hint-dedicated state='off'/><poll-control state='off'/>"), "{}", back.xml);
    let polls = new.arms.iter().find(|arm| arm.id.ends_with(".guest-polls")).unwrap();
    assert!(polls.xml.contains("<hint-dedicated state='on'/><poll-control state='on'/>"), "{}", polls.xml);
}

#[test]
fn queues_of_interfaces_are_a_factor_where_the_vm_itself_runs() {
    let devices = |driver: &str| {
        format!(
            "<interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/><model type='virtio'/>{driver}</interface>"
        )
    };
    let of = |vcpus: u32, driver: &str| arms(&ground_of(machine().build(), vcpus, 1024, "", &devices(driver), None), 8);
    let one = of(4, "");
    assert_eq!(factors(&one).last(), Some(&"network"), "{:?}", one.left_out);
    let network = one.factors.last().unwrap();
    let queues = |end: &str| {
        let arm = one.arms.iter().find(|arm| arm.id.ends_with(end)).unwrap();
        DomainXml::parse(&arm.xml).unwrap().facts().unwrap().interfaces[0].queues.unwrap_or(1)
    };
    // Whatever the rules make of it, the other level is the other one.
    match network.levels[0].as_str() {
        "one queue" => assert_eq!((queues(".net-queue-each"), queues(".two-iothreads")), (4, 1)),
        _ => assert_eq!((queues(".net-one-queue"), queues(".two-iothreads")), (1, 4)),
    }
    assert!(why(&of(1, ""), "network").contains("one vCPU"));
    let on_scratch = arms(&ground(machine().build(), 4, 1024, ""), 8);
    assert!(why(&on_scratch, "network").contains("bench net race"));
}
