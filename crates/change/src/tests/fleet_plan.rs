//! Plans of fleets as files.

use nearmetal_fleet::{
    CellPlacement, CoreSupply, Fleet, FleetHost, FleetPlan, Floating, NodeSupply, Options, Vm, plan,
};
use nearmetal_units::Bytes;

use super::stage::*;
use crate::*;

/// One VM, placed where the host's plan has it.
fn fleet() -> FleetPlan {
    let cores = (0..4).map(|pu| CoreSupply { free: vec![pu], threads: 1, ..CoreSupply::default() }).collect();
    let node = NodeSupply { cores, memory: Bytes::from_mib(8192), ..NodeSupply::default() };
    let host = FleetHost { name: "alpha".to_owned(), nodes: vec![node], ..FleetHost::default() };
    let vms = vec![Vm::new("web1", 1, Bytes::from_mib(512))];
    plan(&Fleet { vms, hosts: vec![host], ..Fleet::default() }, &Options::default()).unwrap()
}

fn file() -> FleetPlanFile {
    let reach = Reach::Ssh { destination: "root@alpha".to_owned(), command: Some("ssh -p 2200".to_owned()) };
    FleetPlanFile {
        schema: FLEET_PLAN_SCHEMA.to_owned(),
        created: "2026-01-01T00:00:00Z".to_owned(),
        nearmetal: "0.1.0".to_owned(),
        fleet: fleet(),
        steps: vec![],
        hosts: vec![HostPart { name: "alpha".to_owned(), reach, plan: plan_file() }],
    }
}

#[test]
fn either_kind_is_told_by_its_schema() {
    let (one, many) = (plan_file(), file());
    assert_eq!(AnyPlan::parse(&one.to_json(), "x").unwrap(), AnyPlan::Host(Box::new(one)));
    assert_eq!(AnyPlan::parse(&many.to_json(), "x").unwrap(), AnyPlan::Fleet(Box::new(many)));
    for (text, says) in [("", "EOF"), ("{}", "no schema"), ("{\"schema\": 3}", "invalid type"), ("[1]", "p.json")] {
        let error = AnyPlan::parse(text, "`p.json`").unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_is_put_in_force_is_what_was_planned() {
    type Edit = fn(&mut FleetPlanFile);
    let edits: [(Edit, &str); 6] = [
        (
            |file| file.fleet.placements[0].host = "beta".to_owned(),
            "it changes `web1` on `alpha` but places it on `beta`",
        ),
        (|file| file.fleet.placements.clear(), "does not place it"),
        (|file| file.hosts.push(file.hosts[0].clone()), "twice"),
        (|file| file.hosts[0].plan.domains.clear(), "host `alpha`: it places 1 guests"),
        (
            |file| {
                file.hosts[0].reach = Reach::Ssh { destination: "-oProxyCommand=x".to_owned(), command: None };
            },
            "not an ssh destination",
        ),
        (|file| file.schema = "nearmetal.fleet-plan/2".to_owned(), "nearmetal.fleet-plan/2"),
    ];
    for (edit, says) in edits {
        let mut edited = file();
        edit(&mut edited);
        let error = AnyPlan::parse(&edited.to_json(), "x").unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    let text = file().to_json();
    let unknown = text.replace("\"idle\": []", "\"idle\": [], \"colour\": 1");
    assert_ne!(text, unknown);
    let error = AnyPlan::parse(&unknown, "x").unwrap_err().to_string();
    assert!(error.contains("/fleet/placements/0/cells/0/colour"), "{error}");
}

#[test]
fn a_vm_that_shares_floats_over_what_nobody_owns() {
    let host = host();
    let vm = Vm::new("web1", 2, Bytes::from_mib(512));
    let mut planned = fleet().placements[0].clone();
    planned.cells = vec![CellPlacement { node: 0, vcpus: 2, pus: vec![], idle: vec![], memory: vm.memory }];
    planned.helpers = cpus("0");
    planned.floating = Some(Floating::Overcommitted);
    let request = nearmetal_place::GuestRequest {
        name: "web1".to_owned(),
        uuid: "u".to_owned(),
        vcpus: 2,
        memory: vm.memory,
        class: Default::default(),
        disks: vec![],
        networks: vec![],
        passthrough: vec![],
        shows: Default::default(),
    };
    let unowned = [(0, cpus("1-3"))].into();
    let networks = Default::default();
    let policy = nearmetal_place::Policy::default();
    let seat = Seat {
        host: &host,
        vm: &vm,
        planned: &planned,
        request: &request,
        unowned: &unowned,
        networks: &networks,
        policy: &policy,
    };
    let found = crate::placement_of(&seat);
    assert_eq!(found.vcpus.iter().map(|pin| pin.cpus.to_string()).collect::<Vec<_>>(), ["1-3", "1-3"]);
    assert_eq!((found.emulator.to_string().as_str(), found.cells.len()), ("0", 0));
    let mut pinned = planned.clone();
    pinned.cells[0].pus = vec![2, 3];
    let found = crate::placement_of(&Seat { planned: &pinned, ..seat });
    assert_eq!(found.vcpus.iter().map(|pin| pin.cpus.to_string()).collect::<Vec<_>>(), ["2", "3"]);
}
