//! Plan files, and what is in the way of one.

use nearmetal_host::files;
use nearmetal_hypervisor::{Definition, Fake, Hypervisor, ShutdownMode};
use nearmetal_place::Placement;

use super::stage::*;
use crate::pins::PinTarget;
use crate::*;

#[test]
fn a_plan_says_what_needs_a_restart() {
    let plan = plan_file();
    let what = |parts: &[Part]| parts.iter().map(|part| part.what.clone()).collect::<Vec<_>>().join(", ");
    assert_eq!(what(&plan.domains[0].needs_restart), "iothread 1, memory nodes, page size, disk vda");
    assert_eq!(what(&plan.domains[0].live_now), "vCPU 0, emulator thread");
    assert!(plan.domains[0].xml_after.contains("cache='none'"));
}

#[test]
fn a_guest_that_polls_and_iothreads_that_share_a_disk_are_written_and_read_back() {
    let mut placement = placement();
    placement.guest_polls = Some(true);
    (placement.disks[0].iothread, placement.disks[0].iothreads) = (None, Some(2));
    placement.iothreads.push(placement.iothreads[0].clone());
    let found = nearmetal_domain::DomainXml::parse(&xml("")).unwrap();
    let written = edited(&found, &placement).unwrap();
    for part in ["<hint-dedicated state='on'/>", "<poll-control state='on'/>"] {
        assert!(written.as_str().contains(part), "{part}: {}", written.as_str());
    }
    assert_eq!(written.facts().unwrap().disks[0].driver.iothread_mapping, [1, 2]);
    assert_eq!(edited(&written, &placement).unwrap().as_str(), written.as_str());
    let otherwise =
        |xml: &nearmetal_domain::DomainXml| crate::verify::planned_otherwise(&placement, &xml.facts().unwrap());
    assert!(otherwise(&written).is_empty(), "{:?}", otherwise(&written));
    let before = otherwise(&found);
    for name in ["features/kvm/hint-dedicated", "features/kvm/poll-control", "disk vda/driver/iothreads"] {
        assert!(before.iter().any(|own| own == name), "{before:?}");
    }
}

#[test]
fn a_plan_reads_back_and_junk_does_not() {
    let plan = plan_file();
    let text = plan.to_json();
    assert_eq!(PlanFile::parse(&text, "x").unwrap(), plan);
    let junk = [
        ("", "EOF"),
        ("{}", "no schema"),
        ("[]", "no schema"),
        ("{\"schema\": \"nearmetal.plan/2\"}", "nearmetal.plan/2"),
        ("{\"schema\": \"nearmetal.plan/1\"}", "missing field"),
    ];
    for (text, says) in junk {
        let error = PlanFile::parse(text, "`p.json`").unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("p.json"), "{error}");
    }
    let edits = [
        ("\"emulator\": \"3\"", "\"emulator\": \"\"", "no PU"),
        ("\"emulator\": \"3\"", "\"emulator\": \"3\", \"priority\": 1", "/plan/placements/0/priority"),
        ("\"name\": \"web1\"", "\"name\": \"web2\"", "placement 0 is for `web1`"),
        ("\"domains\"", "\"domain\"", "domain"),
        ("\"cpus\": \"2\"", "\"cpus\": \"9-1\"", "9-1"),
    ];
    for (from, to, says) in edits {
        assert!(text.contains(from), "{from}");
        let error = PlanFile::parse(&text.replace(from, to), "x").unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
}

fn refused(stage: &mut Stage, plan: &PlanFile, options: &ApplyOptions) -> String {
    let before = stage.snapshot();
    stage.hypervisor.forget_calls();
    let error = stage.apply(plan, options, &Faults::none()).unwrap_err();
    assert!(stage.hypervisor.changes().is_empty(), "{error}");
    assert_eq!(stage.snapshot(), before);
    assert!(stage.journal().transactions().unwrap().is_empty());
    error.to_string()
}

#[test]
fn nothing_is_changed_where_something_is_in_the_way() {
    let plan = plan_file();
    let other =
        PlanFile { host: HostIdentity { hostname: "duo".into(), fingerprint: "cd".repeat(32) }, ..plan.clone() };
    let text = refused(&mut Stage::new(), &other, &with_restart());
    assert!(text.contains("duo") && text.contains("quad"), "{text}");

    let text = refused(&mut Stage::new(), &plan, &ApplyOptions::default());
    assert!(text.contains("iothread 1, memory nodes, page size, disk vda") && text.contains("--restart"), "{text}");

    let mut stage = Stage::new();
    stage.root = false;
    assert!(refused(&mut stage, &plan, &with_restart()).contains("root"));

    let mut stage = Stage::new();
    stage.hypervisor.set_managed_save("web1", true);
    let text = refused(&mut stage, &plan, &with_restart());
    assert!(text.contains("managed save image") && text.contains("virsh managedsave-remove web1"), "{text}");

    let mut stage = Stage::new();
    stage.kernel.set(&format!("{POOL}/nr_hugepages"), "20\n");
    stage.hypervisor.define(&xml(" cache='none'")).unwrap();
    let text = refused(&mut stage, &plan, &with_restart());
    assert!(text.contains("has 20 pages, but had 16") && text.contains("changed after this was planned"), "{text}");

    let mut stage = Stage::new();
    stage.kernel.set("/sys/devices/system/node/node1/meminfo", "Node 1 MemFree: 4096 kB\n");
    let mut large = plan.clone();
    large.plan.pools[0].after = 16 + 512;
    let text = refused(&mut stage, &large, &with_restart());
    assert!(text.contains("grow by 1024 MiB; 4 MiB of that node") && text.contains("guests return 512 MiB"), "{text}");

    let mut absent = plan.clone();
    absent.domains[0].xml_after = absent.domains[0].xml_after.replace("/dev/nvme0n1", "/dev/absent");
    assert!(refused(&mut Stage::new(), &absent, &with_restart()).contains("/dev/absent"));
}

#[test]
fn a_pool_that_needs_the_guests_own_memory_waits_until_it_is_off() {
    let order = |free: &str| {
        let mut stage = Stage::new();
        stage.kernel.set("/sys/devices/system/node/node1/meminfo", &format!("Node 1 MemFree: {free} kB\n"));
        let journal = stage.journal();
        let changes = changes(&mut stage.machine(), &journal, &plan_file(), &with_restart()).unwrap();
        changes.iter().map(Change::slug).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(order("1048576"), "pool-node1-2048kB boot-unit define-web1 shutdown-web1 start-web1");
    assert_eq!(order("4096"), "boot-unit define-web1 shutdown-web1 pool-node1-2048kB start-web1");
}

#[test]
fn a_plan_that_is_in_force_asks_for_no_restart_when_it_is_applied_again() {
    let (mut stage, plan) = (Stage::new(), plan_file());
    stage.apply(&plan, &with_restart(), &Faults::none()).unwrap();
    let journal = stage.journal();
    let again = changes(&mut stage.machine(), &journal, &plan, &ApplyOptions::default()).unwrap();
    assert_eq!(again, [], "the same plan file, which still says what waited for a restart when it was made");
    // Started by another definition, which is put back: only a restart brings back what the guest runs without.
    let planned = stage.hypervisor.domain_xml("web1", Definition::Inactive).unwrap();
    stage.hypervisor.define(&planned.replace("cache='none'", "cache='writeback'")).unwrap();
    stage.hypervisor.shutdown("web1", ShutdownMode::Acpi, with_restart().shutdown_timeout).unwrap();
    stage.hypervisor.start("web1", false).unwrap();
    stage.hypervisor.define(&planned).unwrap();
    let error = changes(&mut stage.machine(), &journal, &plan, &ApplyOptions::default()).unwrap_err().to_string();
    assert!(error.contains("only a restart changes disk vda") && !error.contains("iothread 1,"), "{error}");
}

#[test]
fn a_domain_that_is_gone_is_named() {
    let mut stage = Stage::with(Fake::new("").with_domain("<domain type='kvm'><name>db</name></domain>"));
    let error = stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap_err().to_string();
    assert!(error.contains("web1") && error.contains("db"), "{error}");
}

#[test]
fn live_only_pins_now_and_leaves_the_rest_to_the_next_start() {
    let mut stage = Stage::new();
    stage.kernel.affinity.borrow_mut().insert(PinTarget::Vcpu(0), cpus("0-3"));
    stage.kernel.affinity.borrow_mut().insert(PinTarget::Emulator, cpus("3"));
    let before = stage.snapshot();
    let options = ApplyOptions { live_only: true, ..ApplyOptions::default() };
    stage.apply(&plan_file(), &options, &Faults::none()).unwrap();
    let pins = stage.hypervisor.live_pins("web1");
    assert_eq!(pins.values().map(ToString::to_string).collect::<Vec<_>>(), ["2"], "only what differs is moved");
    let after = stage.snapshot();
    assert_eq!(after.in_force, before.in_force);
    assert_ne!(after.stored, before.stored);
    let transactions = stage.journal().transactions().unwrap();
    let plan = plan_file();
    let placement = plan.placement("web1").unwrap();
    assert!(!awaits_start(&mut stage.machine(), &transactions, placement).is_empty());
    let other = Placement { emulator: cpus("0-1"), ..placement.clone() };
    assert!(awaits_start(&mut stage.machine(), &transactions, &other).is_empty(), "another plan is in force");
    // Somebody moves a vCPU, and the plan is applied once more: that is a transaction of a pin alone, and the rest waits on.
    stage.kernel.affinity.borrow_mut().insert(PinTarget::Vcpu(0), cpus("0"));
    stage.apply(&plan, &options, &Faults::none()).unwrap();
    let transactions = stage.journal().transactions().unwrap();
    assert_eq!(transactions.len(), 2);
    assert!(!awaits_start(&mut stage.machine(), &transactions, placement).is_empty());
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), before);
    assert_eq!(stage.hypervisor.live_pins("web1").values().map(ToString::to_string).collect::<Vec<_>>(), ["0-3"]);
    let transactions = stage.journal().transactions().unwrap();
    assert!(awaits_start(&mut stage.machine(), &transactions, placement).is_empty(), "nothing is in force any more");
    // With a restart nothing waits.
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let transactions = stage.journal().transactions().unwrap();
    assert!(awaits_start(&mut stage.machine(), &transactions, placement).is_empty());
}

/// The plan for `web1` as an applied plan has left it.
fn again(stage: &mut Stage) -> PlanFile {
    let input = DomainInput {
        name: "web1".to_owned(),
        inactive_xml: stage.snapshot().stored,
        live_xml: Some(stage.snapshot().stored),
    };
    PlanFile { host: identity(), ..compose(&host(), &plan(), &[input]).unwrap() }
}

#[test]
fn applying_twice_changes_nothing_the_second_time() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let again = again(&mut stage);
    assert!(again.domains[0].needs_restart.is_empty() && again.domains[0].live_now.is_empty());
    let applied = stage.apply(&again, &ApplyOptions::default(), &Faults::none()).unwrap();
    assert_eq!(applied.transaction, None);
}

#[test]
fn a_boot_unit_that_somebody_disabled_is_enabled_by_the_next_plan_and_stays_while_it_is_needed() {
    let mut stage = Stage::new();
    let before = stage.snapshot();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let link = stage.directory.path().join("units/multi-user.target.wants").join(UNIT_NAME);
    files::remove(&link).unwrap();
    let again = again(&mut stage);
    let applied = stage.apply(&again, &ApplyOptions::default(), &Faults::none()).unwrap();
    assert!(applied.transaction == Some(2) && link.symlink_metadata().is_ok(), "{applied:?}");
    for (number, is_there) in [(2, true), (1, false)] {
        stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
        assert_eq!(link.symlink_metadata().is_ok(), is_there, "transaction {number} taken back");
    }
    assert_eq!(stage.snapshot(), before);
}

/// `web1` with two virtio interfaces, of which the plan sets one: four queues, offloads off.
fn with_interfaces() -> (nearmetal_place::Plan, String) {
    let interface = |number| {
        format!(
            "<interface type='bridge'><mac address='52:54:00:00:00:0{number}'/><source bridge='br0'/><model type='virtio'/></interface>"
        )
    };
    let text = xml("").replace("</devices>", &format!("{}{}</devices>", interface(1), interface(2)));
    let mut plan = plan();
    plan.placements[0].networks = vec![nearmetal_place::NetworkPlacement {
        mac: "52:54:00:00:00:01".parse().unwrap(),
        backend: nearmetal_place::NetworkBackend::Vhost,
        queues: 4,
        offloads_off: true,
    }];
    (plan, text)
}

#[test]
fn an_interface_of_the_plan_waits_for_a_restart_and_others_stay() {
    let (plan, text) = with_interfaces();
    let input = DomainInput { name: "web1".to_owned(), inactive_xml: text.clone(), live_xml: Some(text) };
    let file = PlanFile { host: identity(), ..compose(&host(), &plan, &[input]).unwrap() };
    let parts: Vec<&Part> =
        file.domains[0].needs_restart.iter().filter(|part| part.what.starts_with("interface")).collect();
    assert_eq!(parts.len(), 1, "{parts:?}");
    assert_eq!(parts[0].what, "interface 52:54:00:00:00:01");
    assert!(
        parts[0].change.starts_with("backend vhost, 1 queue -> backend vhost, 4 queues, off: host/csum"),
        "{parts:?}"
    );
    assert_eq!(file.domains[0].xml_after.matches("name='vhost'").count(), 1);
    let json = file.to_json();
    assert_eq!(PlanFile::parse(&json, "x").unwrap(), file);
    for (from, to, says) in [
        ("\"queues\": 4", "\"queues\": 0", "has no queue"),
        ("\"backend\": \"vhost\"", "\"backend\": \"magic\"", "magic"),
        ("\"mac\": \"52:54:00:00:00:01\"", "\"mac\": \"52:54\"", "52:54"),
    ] {
        assert!(json.contains(from), "{from}");
        let error = PlanFile::parse(&json.replace(from, to), "x").unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    let mut twice = file.clone();
    let network = twice.plan.placements[0].networks[0].clone();
    twice.plan.placements[0].networks.push(network);
    assert!(PlanFile::parse(&twice.to_json(), "x").unwrap_err().to_string().contains("` twice"));
}

#[test]
fn an_interface_that_is_gone_is_named() {
    let (plan, _) = with_interfaces();
    let input = DomainInput { name: "web1".to_owned(), inactive_xml: xml(""), live_xml: None };
    let error = compose(&host(), &plan, &[input]).unwrap_err().to_string();
    assert!(error.contains("52:54:00:00:00:01") && error.contains("there are: none"), "{error}");
}
