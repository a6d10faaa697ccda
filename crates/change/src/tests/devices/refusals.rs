//! Every refusal names who or what is in the way, and nothing is changed.

use nearmetal_host::ledger::OpenDevices;
use nearmetal_host::{GuestProcess, Mount};

use super::*;

fn refused(result: Result<DevicePlan, ChangeError>, words: &[&str]) {
    match result {
        Err(ChangeError::Preconditions { problems }) => {
            let text = problems.join("\n");
            for word in words {
                assert!(text.contains(word), "`{word}` is not in: {text}");
            }
        }
        other => panic!("not refused ({words:?}): {other:?}"),
    }
}

/// A stage whose card has two virtual functions, the first set aside.
fn stage() -> DeviceStage {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &request(2)).unwrap();
    stage.bind(&virtual_function(CARD, 0)).unwrap();
    stage
}

/// A guest `web1` that has the first virtual function.
fn with_guest(stage: &DeviceStage) -> (Host, Ledger) {
    let mut host = stage.host();
    host.guests = vec![GuestProcess { pid: 7, name: Some("web1".to_owned()), ..GuestProcess::default() }];
    let device = host.pci_devices.iter().find(|device| device.address == address(&virtual_function(CARD, 0))).unwrap();
    let files = Some(vec![format!("/dev/vfio/{}", device.iommu_group.unwrap())]);
    let ledger = ledger::of(&host, &[OpenDevices { pid: 7, files }]);
    (host, ledger)
}

#[test]
fn cards_that_cannot() {
    let mut stage = DeviceStage::new();
    refused(stage.plan("0000:77:00.0", &request(1)), &["no PCI function 0000:77:00.0", "device list"]);
    refused(stage.plan(CARD, &request(8)), &["can have 7", "`igb`", "8 were requested"]);
    let path = stage.journal();
    let mut host = stage.host();
    let card = host.pci_devices.iter().position(|device| device.address == address(CARD)).unwrap();
    let mut look = |host: &Host| {
        let state = path.state_directory();
        plan_virtual_functions(&stage.machine(), host, &Ledger::default(), address(CARD), &request(1), state)
    };
    host.pci_devices[card].driver = Some("vfio-pci".to_owned());
    refused(look(&host), &["is reserved for a guest"]);
    host.pci_devices[card].driver = None;
    refused(look(&host), &["has no driver"]);
    host.pci_devices[card].sriov = None;
    refused(look(&host), &["has no SR-IOV"]);
    host.pci_devices[card].physical_function = Some(address(DRIVE));
    refused(look(&host), &["is itself a virtual function of 0000:02:00.0"]);
}

#[test]
fn numbers_that_do_not_fit() {
    let mut stage = DeviceStage::new();
    let vlans = Some("0=7,5=9".parse().unwrap());
    refused(stage.plan(CARD, &VfRequest { vlans, ..request(2) }), &["names VF 5, but there are only 2"]);
    let macs = Some("fe:ff:ff:ff:ff:ff".parse().unwrap());
    assert!(stage.plan(CARD, &VfRequest { macs, ..request(2) }).is_ok());
    let trust = Some(true);
    refused(stage.plan(DRIVE, &VfRequest { trust, ..request(2) }), &["`nvme`", "only network cards"]);
    for junk in ["", "4095", "x", "0=7,0=8", "0=", "=7", "1=2,3", "-1"] {
        assert!(junk.parse::<Vlans>().is_err(), "{junk}");
    }
    for junk in [
        "",
        "01:00:00:00:00:01",
        "00:00:00:00:00:00",
        "2:0:0:0:0:1",
        "02:00:00:00:00",
        "02:00:00:00:00:0g",
        "é2:00:00:00:00:00",
    ] {
        assert!(junk.parse::<Macs>().is_err(), "{junk}");
    }
}

#[test]
fn a_drive_that_has_too_little_to_deal() {
    let mut stage = DeviceStage::new();
    assert!(stage.vfs(DRIVE, &request(4)).is_ok(), "8 queues, 4 interrupts");
    let mut stage = DeviceStage::new();
    *stage.kernel.failing.borrow_mut() = Some("primary-ctrl-caps".to_owned());
    assert!(stage.plan(DRIVE, &request(1)).unwrap_err().to_string().contains("primary-ctrl-caps"));
}

#[test]
fn virtual_functions_that_would_vanish_and_are_in_use() {
    let mut stage = stage();
    let journal = stage.journal();
    let function = virtual_function(CARD, 0);
    let (host, ledger) = with_guest(&stage);
    for count in [0, 1, 3] {
        let (asked, state) = (request(count), journal.state_directory());
        let plan = plan_virtual_functions(&stage.machine(), &host, &ledger, address(CARD), &asked, state);
        refused(plan, &["VF 0 (0000:01:00.1)", "the guest `web1` has it"]);
    }
    // Settings alone take nothing away from it.
    let (asked, state) = (VfRequest { trust: Some(true), ..request(2) }, journal.state_directory());
    assert!(plan_virtual_functions(&stage.machine(), &host, &ledger, address(CARD), &asked, state).is_ok());
    // A program that is no guest of ours.
    stage.kernel.held.borrow_mut().insert("/dev/vfio/11".to_owned());
    refused(stage.plan(CARD, &request(0)), &["VF 0 (0000:01:00.1)", "holds `/dev/vfio/11`"]);
    stage.kernel.held.borrow_mut().clear();
    let other = virtual_function(CARD, 1);
    stage.kernel.set(&format!("/sys/bus/pci/devices/{other}/net/eth0v1/flags"), "0x1003");
    refused(stage.plan(CARD, &request(0)), &["VF 1 (0000:01:00.2)", "`eth0v1` is up"]);
    assert_eq!((stage.count(CARD).as_str(), stage.kernel.driver(&function).as_deref()), ("2", Some("vfio-pci")));
}

#[test]
fn a_rollback_takes_nothing_from_a_guest_either() {
    let mut stage = stage();
    let before = stage.inside();
    stage.kernel.held.borrow_mut().insert("/dev/vfio/11".to_owned());
    let error = stage.rollback().unwrap_err().to_string();
    assert!(error.contains("cannot take 0000:01:00.1 away") && error.contains("/dev/vfio/11"), "{error}");
    assert_eq!(stage.inside(), before);
    // The guest stops, and the rollback is run again.
    stage.kernel.held.borrow_mut().clear();
    stage.rollback().unwrap();
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 0)).as_deref(), Some("igbvf"));
}

#[test]
fn functions_that_cannot_be_set_aside() {
    let mut stage = stage();
    let journal = stage.journal();
    let state = journal.state_directory();
    refused(stage.plan_bind(CARD), &["it has 2 virtual functions"]);
    let look = |stage: &mut DeviceStage, change: &dyn Fn(&mut Host)| {
        let mut host = stage.host();
        change(&mut host);
        let ledger = ledger::of(&host, &[]);
        plan_bind(&stage.machine(), &host, &ledger, address(DRIVE), false, state)
    };
    let root = |host: &mut Host| {
        let (point, kind, source) = ("/".to_owned(), "ext4".to_owned(), "/dev/nvme0n1".to_owned());
        host.mounts = Some(vec![Mount { point, kind, source, number: None, options: Vec::new() }]);
    };
    refused(look(&mut stage, &root), &["root file system is on `nvme0n1`"]);
    let shared = |host: &mut Host| {
        let own = host.pci_devices.iter().find(|device| device.address == address(DRIVE)).unwrap().iommu_group;
        host.pci_devices[0].iommu_group = own;
    };
    refused(look(&mut stage, &shared), &["IOMMU group", "0000:01:00.0 (igb)"]);
    refused(
        look(&mut stage, &|host| host.pci_devices.iter_mut().for_each(|device| device.iommu_group = None)),
        &["no IOMMU"],
    );
    let console = |host: &mut Host| host.pci_devices.iter_mut().for_each(|device| device.console = Some(true));
    refused(look(&mut stage, &console), &["console"]);
    refused(
        look(&mut stage, &|host| {
            host.pci_devices.iter_mut().for_each(|device| (device.class, device.sriov) = (Some(0x06_0400), None))
        }),
        &["is a bridge"],
    );
    refused(look(&mut stage, &|host| host.pci_devices.clear()), &["no PCI function"]);
    stage.kernel.held.borrow_mut().insert("/dev/nvme0n1".to_owned());
    refused(look(&mut stage, &|_| {}), &["holds `/dev/nvme0n1`"]);
    stage.kernel.held.borrow_mut().clear();
    assert!(look(&mut stage, &|_| {}).is_ok());
}

#[test]
fn the_default_route_stays_with_the_host() {
    let mut stage = DeviceStage::new();
    let journal = stage.journal();
    let mut host = stage.host();
    host.network_interfaces[0].default_route = Some(true);
    let plan = plan_bind(&stage.machine(), &host, &Ledger::default(), address(CARD), false, journal.state_directory());
    refused(plan, &["default route leads through `eth0`"]);
    let asked = request(1);
    let plan = plan_virtual_functions(
        &stage.machine(),
        &host,
        &Ledger::default(),
        address(CARD),
        &asked,
        journal.state_directory(),
    );
    assert!(
        plan.unwrap().notes.iter().any(|note| note.contains("default route")),
        "virtual functions beside it are fine"
    );
}

#[test]
fn what_a_guest_has_is_neither_bound_nor_given_back() {
    let mut stage = stage();
    let journal = stage.journal();
    let (host, ledger) = with_guest(&stage);
    let function = address(&virtual_function(CARD, 0));
    let all = journal.transactions().unwrap();
    refused(plan_release(&stage.machine(), &host, &ledger, function, &all), &["`web1` has it"]);
    refused(
        plan_bind(&stage.machine(), &host, &ledger, function, true, journal.state_directory()),
        &["the guest `web1` has 0000:01:00.1"],
    );
    stage.kernel.held.borrow_mut().insert("/dev/vfio/11".to_owned());
    refused(stage.release(&virtual_function(CARD, 0)), &["holds `/dev/vfio/11`"]);
}

#[test]
fn a_machine_that_has_changed_since_is_looked_at_again() {
    let mut stage = DeviceStage::new();
    let plan = stage.plan(CARD, &request(2)).unwrap();
    let journal = stage.journal();
    let mut plan_again = |_: &mut Machine<'_>| Ok(DevicePlan { changes: Vec::new(), ..plan.clone() });
    let mut say = |_: &str| {};
    let faults = Faults::none();
    let job = DeviceJob { journal: &journal, plan: &plan, plan_again: &mut plan_again, faults: &faults, say: &mut say };
    let error = carry_out(&mut stage.machine(), job).unwrap_err().to_string();
    assert!(error.contains("changed after these changes were shown"), "{error}");
    assert_eq!(stage.count(CARD), "0");
}
