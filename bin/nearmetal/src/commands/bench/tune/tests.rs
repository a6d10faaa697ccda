//! Which plans race on which machine.

use clap::{Args as _, FromArgMatches as _};
use nearmetal_change::DomainInput;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Host, HostFs};
use nearmetal_measure::least_tune_seconds;
use nearmetal_units::{Bytes, PageSize};

use super::arms::{Arms, Ground};
use super::{Args, listed, within_budget};
use crate::commands::plan::Found;

/// A VM with so many vCPUs and MiB, on a drive of node 0.
fn ground(host: Host, vcpus: u32, mib: u64, more: &str) -> Ground {
    let xml = format!(
        "<domain type='kvm'><name>web1</name><uuid>6b29fc40-ca47-1067-b31d-00dd010662da</uuid><memory unit='MiB'>{mib}</memory>\
         <vcpu>{vcpus}</vcpu>{more}<os><type machine='q35'>hvm</type></os><devices><disk type='block' device='disk'>\
         <driver name='qemu' type='raw'/><source dev='/dev/nvme0n1'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
    );
    let input = DomainInput { name: "web1".into(), inactive_xml: xml, live_xml: None };
    let found = Found { inputs: vec![input], neighbours: Vec::new(), versions: None, denied: None };
    Ground::of(host, found).unwrap().unwrap()
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

fn why<'a>(arms: &'a Arms, what: &str) -> &'a str {
    arms.left_out.iter().find(|left| left.what == what).map_or("", |left| left.why.as_str())
}

fn ids(arms: &Arms) -> Vec<&str> {
    arms.arms.iter().map(|arm| arm.id.as_str()).collect()
}

#[test]
fn a_machine_with_smt_and_a_vm_on_two_nodes_have_every_factor() {
    let small = arms(&ground(machine().build(), 4, 1024, ""), 7);
    assert_eq!(factors(&small), ["pages", "pins", "engine", "iothread", "emulator"]);
    assert!(why(&small, "smt").contains("SMT") && why(&small, "cells") == "it lies on one node");
    assert!(why(&small, "halt polling").contains("whole host"));
    let wide = ground(machine().threads(2).build(), 28, 10 * 1024, "");
    let wide = arms(&wide, 7);
    assert_eq!(factors(&wide), ["pages", "pins", "engine", "iothread", "emulator", "cells"], "{:?}", wide.left_out);
    // 28 cores would take more than these 24.
    assert!(why(&wide, "smt").contains("28 whole cores"), "{:?}", wide.left_out);
    let smt = arms(&ground(machine().threads(2).build(), 4, 1024, ""), 7);
    assert_eq!(factors(&smt), ["pages", "pins", "engine", "iothread", "emulator", "smt"]);
    assert!(ids(&smt).iter().any(|id| id.ends_with(".emulator-node.core-each")), "{:?}", ids(&smt));
}

#[test]
fn what_the_time_is_too_short_to_cross_races_alone() {
    let ground = ground(machine().threads(2).build(), 4, 1024, "");
    let (all, few) = (arms(&ground, 7), arms(&ground, 4));
    assert_eq!(
        (all.alone.len(), few.alone.iter().map(|own| own.factor.id.as_str()).collect::<Vec<_>>().as_slice()),
        (0, ["emulator", "smt"].as_slice())
    );
    let beside =
        |arms: &Arms| arms.arms.iter().filter(|arm| arm.levels.is_none()).map(|arm| arm.id.clone()).collect::<Vec<_>>();
    assert_eq!((all.arms.len() - beside(&all).len(), few.arms.len() - beside(&few).len()), (16, 8));
    let rule = "pu.huge.none-io_uring.iothread";
    assert_eq!(beside(&few)[..2], [format!("{rule}.emulator-node"), format!("{rule}.core-each")]);
    assert_eq!(beside(&few)[2..], beside(&all)[..]);
    assert_eq!(few.plans.len(), few.arms.len());
    let mut xmls: Vec<&str> = all.arms.iter().chain(&few.arms[8..10]).map(|arm| arm.xml.as_str()).collect();
    xmls.sort_unstable();
    xmls.dedup();
    assert!(xmls.len() == all.arms.len() + 2, "each plan is another definition");
}

#[test]
fn cells_that_a_definition_shows_stay_and_are_no_factor() {
    let shown = |first: &str, second: &str| {
        let cells = format!(
            "<cpu><numa><cell id='0' cpus='{first}' memory='5' unit='GiB'/><cell id='1' cpus='{second}' memory='5' unit='GiB'/></numa></cpu>"
        );
        arms(&ground(machine().threads(2).build(), 28, 10 * 1024, &cells), 7)
    };
    let even = shown("0-13", "14-27");
    assert!(why(&even, "cells").contains("which the plan by rule deals to its nodes"), "{:?}", even.left_out);
    let mixed = shown("0-12,27", "13-26");
    assert!(why(&mixed, "cells").contains("do not lie on a node each"), "{:?}", mixed.left_out);
}

#[test]
fn siblings_that_would_take_another_node_are_no_factor() {
    let arms = arms(&ground(machine().threads(2).build(), 16, 1024, ""), 7);
    assert!(why(&arms, "smt").contains("what differs would be the nodes"), "{:?}", arms.left_out);
}

#[test]
fn a_factor_that_is_left_out_is_raced_nowhere() {
    let arms = ground(machine().build(), 4, 1024, "").arms(&["emulator".into(), "pins".into()], 7).unwrap().unwrap();
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
        within_budget(&args, &fs, &ground).unwrap()
    };
    let (arms, request) = within(3 * 3600, &[]);
    assert_eq!((factors(&arms).len(), arms.alone.len()), (5, 0));
    let all = least_tune_seconds(&request);
    assert_eq!(factors(&within(2 * all, &[]).0).len(), 5);
    let (arms, request) = within(2 * all - 1, &[]);
    assert_eq!((factors(&arms).len(), arms.alone.len(), request.alone.len()), (4, 1, 1));
    let alone = least_tune_seconds(&request);
    assert_eq!(within(alone, &[]).0.alone.len(), 1);
    let (arms, request) = within(alone - 1, &[]);
    assert_eq!((factors(&arms).len(), arms.alone.len()), (4, 0));
    assert_eq!(why(&arms, "emulator"), "the budget is too short for it");
    // What it leaves out is no more than that, and it takes no more than a tune that was never asked for it.
    assert_eq!(least_tune_seconds(&request), least_tune_seconds(&within(3 * 3600, &["--without", "emulator"]).1));
    assert!(listed(&request).contains("the budget is too short for it"));
}
