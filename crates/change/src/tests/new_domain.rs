//! Domains that are made: put in force, broken off at every step, taken back.

use nearmetal_domain::{DiskBus, DomainXml, NewDisk, NewDiskSource, NewDomain};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_hypervisor::protocol::Request;
use nearmetal_hypervisor::{Definition, DomainState, Fake, Hypervisor, Nvram};
use nearmetal_place::{
    DevicePlacement, FunctionKind, GuestCell, MemoryPlacement, Placement, Plan, VcpuPin, WorkloadClass,
};
use nearmetal_units::{Bytes, PciAddress};

use super::stage::*;
use crate::*;

const OTHER: &str = "99999999-2222-3333-4444-555555555555";

fn new() -> NewDomain {
    NewDomain {
        disks: vec![NewDisk { source: NewDiskSource::Block("/dev/nvme1n1".into()), bus: DiskBus::Virtio }],
        ..NewDomain::new("web2", OTHER, 4, Bytes::from_mib(1024))
    }
}

/// Nodes 0 and 1, a NIC with virtual functions on node 1.
fn machine() -> nearmetal_host::Host {
    Synthetic::new().packages(4).cores_per_node(2).network(1, 4, 2).build()
}

fn function() -> PciAddress {
    machine().pci_devices.iter().find(|device| device.physical_function.is_some()).unwrap().address
}

/// Two cells on nodes 0 and 1, the virtual function beside the second.
fn wide() -> Placement {
    let pin = |vcpu, pu: &str| VcpuPin { vcpu, cpus: cpus(pu) };
    let cell = |vcpus, node, distances: [u32; 2]| GuestCell {
        vcpus: cpus(vcpus),
        memory: Bytes::from_mib(512),
        node,
        distances: distances.to_vec(),
    };
    let kind = FunctionKind::NetworkVirtual { mac: Some("52:54:00:00:00:09".parse().unwrap()), vlan: None };
    Placement {
        guest: "web2".to_owned(),
        uuid: OTHER.to_owned(),
        vcpus: vec![pin(0, "0"), pin(1, "1"), pin(2, "2"), pin(3, "3")],
        emulator: cpus("4"),
        iothreads: Vec::new(),
        memory: MemoryPlacement { nodes: "0-1".parse().unwrap(), page_size: None, pages: 0 },
        disks: Vec::new(),
        networks: Vec::new(),
        cells: vec![cell("0-1", 0, [10, 20]), cell("2-3", 1, [20, 10])],
        devices: vec![DevicePlacement { function: function(), kind, cell: Some(1), node: Some(1) }],
        vhost: Vec::new(),
        interrupts: cpus(""),
        threads_per_core: Some(2),
        guest_polls: None,
        reasons: Vec::new(),
    }
}

/// The change of `web1` and the making of `web2`.
fn both() -> PlanFile {
    let input = DomainInput { name: "web1".to_owned(), inactive_xml: xml(""), live_xml: Some(xml("")) };
    let mut plan = plan();
    plan.placements.push(wide());
    PlanFile { host: identity(), ..compose_with_new(&host(), &plan, &[input], &[new()]).unwrap() }
}

/// The making of `web2` alone.
fn one() -> PlanFile {
    let plan = Plan { placements: vec![wide()], ..Plan::default() };
    PlanFile { host: identity(), ..compose_with_new(&host(), &plan, &[], &[new()]).unwrap() }
}

fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.kernel.inventory = machine();
    stage
}

fn names(stage: &mut Stage) -> Vec<String> {
    stage.hypervisor.domains().unwrap().into_iter().map(|domain| domain.name).collect()
}

fn with_start() -> ApplyOptions {
    ApplyOptions { start: true, ..with_restart() }
}

fn points() -> Vec<String> {
    let mut stage = stage();
    let journal = stage.journal();
    fault_points(&changes(&mut stage.machine(), &journal, &both(), &with_start()).unwrap())
}

#[test]
fn a_new_domain_is_composed_as_it_is_placed() {
    let plan = one();
    let domain = &plan.domains[0];
    assert!(domain.is_new() && domain.needs_restart.is_empty() && domain.live_now.is_empty());
    assert_eq!(PlanFile::parse(&plan.to_json(), "x").unwrap(), plan);
    let facts = DomainXml::parse(&domain.xml_after).unwrap().facts().unwrap();
    let topology = facts.cpu.topology.unwrap();
    assert_eq!((topology.sockets, topology.cores, topology.threads), (2, 1, 2));
    assert_eq!(facts.cells.len(), 2);
    assert_eq!((facts.functions[0].address, facts.functions[0].cell), (function(), Some(1)));
    assert!(domain.xml_after.contains("migratable='off'"));
    let memnodes: Vec<_> = facts.numatune.unwrap().cells.into_iter().map(|cell| cell.nodes.unwrap().first()).collect();
    assert_eq!(memnodes, [Some(0), Some(1)]);
}

#[test]
fn an_existing_domain_is_edited_to_the_same_and_says_that_it_waits() {
    let text = new().to_xml().unwrap().to_string();
    let input = DomainInput { name: "web2".to_owned(), inactive_xml: text.clone(), live_xml: Some(text) };
    let plan = Plan { placements: vec![wide()], ..Plan::default() };
    let found = compose(&host(), &plan, &[input]).unwrap();
    let parts: Vec<_> = found.domains[0].needs_restart.iter().map(|part| part.to_owned()).collect();
    let what: Vec<_> = parts.iter().map(|part| part.what.as_str()).collect();
    let function = format!("PCI function {}", function());
    assert_eq!(what, ["memory nodes", "guest cells", "topology", &function]);
    assert!(parts[3].change.ends_with("given as interface on cell 1, 52:54:00:00:00:09"), "{}", parts[3].change);
    assert_eq!(
        parts[1].change,
        "none -> vCPUs 0-1 with 512 MiB from node 0 at 10 20, vCPUs 2-3 with 512 MiB from node 1 at 20 10"
    );
    // On the older machine type the address is libvirt's choice, and that is said.
    let old = found.domains[0].xml_before.replace("machine='q35'", "machine='pc-i440fx-7.2'");
    let input = DomainInput { name: "web2".to_owned(), inactive_xml: old, live_xml: None };
    let found = compose(&host(), &plan, &[input]).unwrap();
    assert!(!found.domains[0].xml_after.contains("pcie-expander-bus"));
    assert!(found.domains[0].needs_restart[3].why.contains("only machine type q35"));
}

#[test]
fn what_contradicts_itself_is_not_composed() {
    let plan = |placement: Placement| Plan { placements: vec![placement], ..Plan::default() };
    let refused = |placement: Placement, new: NewDomain| {
        compose_with_new(&host(), &plan(placement), &[], &[new]).unwrap_err().to_string()
    };
    let uuid = NewDomain { uuid: UUID.to_owned(), ..new() };
    assert!(refused(wide(), uuid).contains(OTHER));
    let larger = NewDomain { memory: Bytes::from_mib(2048), ..new() };
    assert!(refused(wide(), larger).contains("memory of the domain"));
    assert!(refused(Placement { threads_per_core: Some(3), ..wide() }, new()).contains("3 threads for 4 vCPUs"));
    let unknown = compose_with_new(&host(), &plan(wide()), &[], &[]).unwrap_err().to_string();
    assert!(unknown.contains("web2"), "{unknown}");
}

#[test]
fn an_old_plan_file_without_a_text_before_is_one_of_a_new_domain() {
    let text = one().to_json();
    let absent = text.replace("\"xml_before\": \"\",", "");
    assert_ne!(text, absent);
    assert!(PlanFile::parse(&absent, "x").unwrap().domains[0].is_new());
    let twice = {
        let mut plan = one();
        let device = plan.plan.placements[0].devices[0].clone();
        plan.plan.placements[0].devices.push(device);
        plan.to_json()
    };
    assert!(PlanFile::parse(&twice, "x").unwrap_err().to_string().contains("twice"));
}

#[test]
fn a_crash_at_any_step_is_taken_back() {
    assert!(points().contains(&"4:new-web2:made".to_owned()), "{:?}", points());
    for point in points() {
        let mut stage = stage();
        let before = stage.snapshot();
        let crash = stage.apply(&both(), &with_start(), &Faults::failing_at(&*point));
        assert!(matches!(crash, Err(ChangeError::Fault { .. })), "{point}: {crash:?}");
        if point != "begin:before-header" {
            stage.rollback(&back_with_restart(), &Faults::none()).unwrap_or_else(|error| panic!("{point}: {error}"));
        }
        assert_eq!(stage.snapshot(), before, "{point}");
        assert_eq!(names(&mut stage), ["web1"], "{point}");
        stage.apply(&both(), &with_start(), &Faults::none()).unwrap();
        assert_eq!(names(&mut stage), ["web1", "web2"]);
    }
}

#[test]
fn a_rollback_that_crashes_is_run_again() {
    let points = {
        let mut stage = stage();
        stage.apply(&both(), &with_start(), &Faults::none()).unwrap();
        let journal = stage.journal();
        rollback_fault_points(&mut stage.machine(), &journal, &back_with_restart()).unwrap()
    };
    assert!(points.contains(&"undo:stop-web2:made".to_owned()), "{points:?}");
    for point in points {
        let mut stage = stage();
        let before = stage.snapshot();
        stage.apply(&both(), &with_start(), &Faults::none()).unwrap();
        stage.rollback(&back_with_restart(), &Faults::failing_at(&*point)).unwrap_err();
        let again = stage.rollback(&back_with_restart(), &Faults::none());
        assert!(again.is_ok() || point == "undo:ended", "{point}: {again:?}");
        assert_eq!((stage.snapshot(), names(&mut stage)), (before, vec!["web1".to_owned()]), "{point}");
    }
}

#[test]
fn power_loss_leaves_nothing_of_it_after_a_rollback() {
    for point in points().into_iter().skip(1) {
        let mut stage = stage();
        stage.apply(&both(), &with_start(), &Faults::failing_at(&*point)).unwrap_err();
        stage.reboot();
        if names(&mut stage).contains(&"web2".to_owned()) {
            stage.hypervisor.set_state("web2", DomainState::ShutOff);
        }
        stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
        assert_eq!(names(&mut stage), ["web1"], "{point}");
    }
}

#[test]
fn a_name_or_uuid_that_is_taken_is_in_the_way() {
    let refused = |domain: &str, plan: &PlanFile| {
        let mut stage = stage();
        stage.hypervisor = Fake::new("").with_domain(domain);
        let error = stage.apply(plan, &with_start(), &Faults::none()).unwrap_err().to_string();
        assert!(stage.hypervisor.changes().is_empty() && stage.journal().transactions().unwrap().is_empty());
        error
    };
    let domain = |name: &str, uuid: &str| format!("<domain type='kvm'><name>{name}</name><uuid>{uuid}</uuid></domain>");
    assert!(refused(&domain("web2", UUID), &one()).contains("another domain has that name"));
    assert!(refused(&domain("web2", OTHER), &one()).contains("exists already"));
    assert!(refused(&domain("db", OTHER), &one()).contains("belongs to `db`"));
    let mut absent = one();
    absent.domains[0].xml_after = absent.domains[0].xml_after.replace("/dev/nvme1n1", "/dev/absent");
    assert!(refused(&domain("db", UUID), &absent).contains("/dev/absent"));
    // The same definition on a machine without that function.
    let mut elsewhere = Stage::new();
    let error = elsewhere.apply(&one(), &with_start(), &Faults::none()).unwrap_err().to_string();
    assert!(error.contains(&function().to_string()) && error.contains("this machine lacks"), "{error}");
}

#[test]
fn what_was_edited_since_is_kept_as_a_text_and_another_domain_is_left() {
    let mut stage = stage();
    stage.apply(&one(), &ApplyOptions::default(), &Faults::none()).unwrap();
    let stored = stage.hypervisor.domain_xml("web2", Definition::Inactive).unwrap();
    stage.hypervisor.define(&stored.replace("<vcpu placement='static'>4", "<vcpu placement='static'>8")).unwrap();
    let notes = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap().notes.join("\n");
    assert!(notes.contains("removed `web2`; it had been edited") && notes.contains("edited.xml"), "{notes}");
    assert_eq!(names(&mut stage), ["web1"]);

    stage.apply(&one(), &ApplyOptions::default(), &Faults::none()).unwrap();
    stage.hypervisor.undefine("web2", Nvram::Keep).unwrap();
    stage.hypervisor.define(&stored.replace(OTHER, UUID)).unwrap();
    let notes = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap().notes.join("\n");
    assert!(notes.contains("now another domain"), "{notes}");
    assert_eq!(names(&mut stage), ["web1", "web2"]);
}

#[test]
fn a_new_guest_that_runs_is_shut_down_first_or_left() {
    let mut stage = stage();
    stage.apply(&one(), &with_start(), &Faults::none()).unwrap();
    let error = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap_err();
    assert!(matches!(&error, ChangeError::RollbackNeedsRestart { guests } if guests[0].contains("web2")), "{error}");
    let keep = RollbackOptions { keep_running: true, ..RollbackOptions::default() };
    let notes = stage.rollback(&keep, &Faults::none()).unwrap().notes.join("\n");
    assert!(notes.contains("virsh undefine web2"), "{notes}");
    assert_eq!(stage.hypervisor.domain("web2").unwrap().state, DomainState::Running);
}

#[test]
fn uefi_variables_go_only_where_they_came_with_the_domain() {
    for (path, nvram) in [("/dev/absent", Nvram::Remove), ("/var/lib/libvirt/qemu/nvram/web2.fd", Nvram::Keep)] {
        let mut stage = stage();
        let mut plan = one();
        let xml = &mut plan.domains[0].xml_after;
        *xml = xml.replace("<boot dev='hd'/>", &format!("<nvram>{path}</nvram><boot dev='hd'/>"));
        stage.apply(&plan, &ApplyOptions::default(), &Faults::none()).unwrap();
        stage.hypervisor.forget_calls();
        let notes = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap().notes.join("\n");
        let undefine = Request::Undefine { name: "web2".to_owned(), nvram };
        assert_eq!(stage.hypervisor.changes(), [&undefine]);
        assert_eq!(notes.contains("stay in"), nvram == Nvram::Keep, "{notes}");
    }
}

#[test]
fn a_class_shapes_a_new_domain() {
    let text = |class, one_to_one| shaped_by_class(new(), class, one_to_one).to_xml().unwrap().to_string();
    assert!(text(WorkloadClass::Latency, true).contains("hint-dedicated"));
    assert!(!text(WorkloadClass::Latency, false).contains("hint-dedicated"));
    assert!(text(WorkloadClass::Density, false).contains("freePageReporting='on'"));
    assert!(text(WorkloadClass::Windows, true).contains("<hyperv"));
    assert!(text(WorkloadClass::Passthrough, true).contains(">passthrough</nearmetal:class>"));
}
