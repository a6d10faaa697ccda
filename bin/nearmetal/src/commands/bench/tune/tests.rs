//! Which plans race on which machine.

use nearmetal_change::DomainInput;
use nearmetal_host::Host;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_units::{Bytes, PageSize};

use super::arms::{Arms, Ground};
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
