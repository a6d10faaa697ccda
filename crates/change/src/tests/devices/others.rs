//! Devices that others have a say in: guests that run with a function, later transactions, the administrator.

use super::*;

fn reapplied(stage: &mut DeviceStage) -> Vec<boot::Reapplied> {
    let journal = stage.journal();
    let made = boot::reapply(&mut stage.machine(), &journal).unwrap();
    assert!(made.iter().all(|made| made.result.is_ok()), "{made:?}");
    made
}

fn reboot(stage: &mut DeviceStage) {
    stage.kernel = DeviceKernel::new();
    stage.boot_id.push_str("-next");
}

fn rollback_of(stage: &mut DeviceStage, number: u32) -> Result<RolledBack, ChangeError> {
    let journal = stage.journal();
    let options = RollbackOptions { transaction: Some(number), ..RollbackOptions::default() };
    rollback(&mut stage.machine(), &journal, &options, &Faults::none(), &mut |_| {})
}

#[test]
fn the_boot_unit_started_once_more_leaves_what_guests_and_later_transactions_have() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &VfRequest { persist: true, ..full() }).unwrap();
    reboot(&mut stage);
    assert_eq!(reapplied(&mut stage).len(), 1);
    stage.kernel.lend(&virtual_function(CARD, 0));
    stage.kernel.inside.borrow_mut().rows[0].mac = Some("52:54:00:00:00:01".to_owned());
    stage.bind(&virtual_function(CARD, 1)).unwrap();
    let before = stage.inside();
    assert_eq!(reapplied(&mut stage).len(), 0);
    assert_eq!(stage.inside(), before);
    // What is nobody else's is made good.
    stage.kernel.inside.borrow_mut().rows[1].trust = Some(false);
    assert_eq!(reapplied(&mut stage).len(), 1);
    assert_eq!(stage.inside(), before);
}

#[test]
fn a_rollback_that_would_take_a_function_from_a_guest_changes_nothing() {
    let function = virtual_function(CARD, 0);
    let mut stage = DeviceStage::new();
    let fresh = stage.inside();
    stage.vfs(CARD, &VfRequest { persist: true, ..full() }).unwrap();
    stage.kernel.lend(&function);
    let before = stage.inside();
    let error = stage.rollback().unwrap_err().to_string();
    assert!(error.contains("nothing changed") && error.contains("`/dev/vfio/11`"), "{error}");
    assert_eq!(stage.inside(), before);
    assert!(stage.directory.path().join("units").join(UNIT_NAME).exists());
    let journal = stage.journal();
    assert!(journal.transactions().unwrap()[0].is_committed());
    assert!(preview(&mut stage.machine(), &journal, &RollbackOptions::default()).is_err());
    stage.kernel.held.borrow_mut().clear();
    stage.rollback().unwrap();
    let rows = |inside: &Inside| inside.rows.clone();
    assert_eq!((stage.count(CARD).as_str(), rows(&stage.inside())), ("0", rows(&fresh)));
    // And of a binding alone.
    stage.vfs(CARD, &request(1)).unwrap();
    stage.bind(&function).unwrap();
    stage.kernel.held.borrow_mut().insert("/dev/vfio/11".to_owned());
    let error = stage.rollback().unwrap_err().to_string();
    assert!(error.contains("cannot take 0000:01:00.1 away"), "{error}");
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"));
}

#[test]
fn settings_of_a_function_are_undone_while_a_guest_has_it_and_its_driver_is_left() {
    let function = virtual_function(CARD, 0);
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &full()).unwrap();
    stage.vfs(CARD, &VfRequest { vlans: Some("0=8".parse().unwrap()), ..request(2) }).unwrap();
    stage.kernel.lend(&function);
    assert_eq!(stage.inside().rows[0].vlan.unwrap().id, 8);
    stage.rollback().unwrap();
    assert_eq!(stage.inside().rows[0].vlan.unwrap().id, 7);
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"));
    // What libvirt has bound for a guest is nothing to make again at every boot.
    let plan = stage.plan(CARD, &VfRequest { persist: true, ..request(2) }).unwrap();
    let Change::VirtualFunctions { new, .. } = &plan.changes[0] else { panic!("{:?}", plan.changes) };
    assert!(new.functions.iter().all(|own| own.driver.only.is_none()), "{new:?}");
    stage.carry(&plan, &Faults::none()).unwrap();
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"));
}

#[test]
fn a_function_that_was_bound_for_guests_stays_bound_for_them_while_one_has_it() {
    let function = virtual_function(CARD, 0);
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &request(2)).unwrap();
    stage.bind(&function).unwrap();
    stage.kernel.lend(&function);
    let plan = stage.plan(CARD, &VfRequest { persist: true, ..request(2) }).unwrap();
    let Change::VirtualFunctions { new, .. } = &plan.changes[0] else { panic!("{:?}", plan.changes) };
    let kept: Vec<_> = new.functions.iter().map(|own| own.driver.only.as_deref()).collect();
    assert_eq!(kept, [Some("vfio-pci"), None]);
}

#[test]
fn what_a_later_transaction_stands_on_stays() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &request(2)).unwrap();
    for number in [0, 1] {
        stage.bind(&virtual_function(CARD, number)).unwrap();
    }
    let error = rollback_of(&mut stage, 1).unwrap_err();
    assert!(matches!(&error, ChangeError::LaterTransaction { later: 2, .. }), "{error}");
    // The first binding loaded the module, and the second one's function is bound to it.
    let notes = rollback_of(&mut stage, 2).unwrap().notes.join("\n");
    assert!(notes.contains("the module vfio-pci drives a device now: left loaded"), "{notes}");
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 1)).as_deref(), Some("vfio-pci"));
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 0)).as_deref(), Some("igbvf"));
}

#[test]
fn a_binding_that_no_longer_holds_keeps_nothing() {
    for released in [true, false] {
        let mut stage = DeviceStage::new();
        stage.vfs(CARD, &VfRequest { persist: true, ..request(2) }).unwrap();
        stage.bind(&virtual_function(CARD, 0)).unwrap();
        if released {
            let plan = stage.release(&virtual_function(CARD, 0)).unwrap();
            stage.carry(&plan, &Faults::none()).unwrap();
        } else {
            reboot(&mut stage);
            reapplied(&mut stage);
            let driver = stage.kernel.driver(&virtual_function(CARD, 0));
            assert_eq!(driver.as_deref(), Some("igbvf"), "the binding was not to be made again");
        }
        let all = stage.journal().transactions().unwrap();
        assert!(set_aside(&stage.kernel, &all, &stage.boot_id).is_empty(), "{released}");
        rollback_of(&mut stage, 1).unwrap();
        assert_eq!(stage.count(CARD), "0");
    }
}

#[test]
fn a_binding_that_the_boot_unit_makes_with_the_cards_functions_is_kept() {
    let function = virtual_function(CARD, 0);
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &request(2)).unwrap();
    stage.bind(&function).unwrap();
    stage.vfs(CARD, &VfRequest { persist: true, ..request(2) }).unwrap();
    reboot(&mut stage);
    reapplied(&mut stage);
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"));
    let kept = |stage: &DeviceStage| {
        let all = stage.journal().transactions().unwrap();
        set_aside(&stage.kernel, &all, &stage.boot_id).into_iter().map(|one| one.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(kept(&stage), std::slice::from_ref(&function));
    let plan = stage.release(&function).unwrap();
    stage.carry(&plan, &Faults::none()).unwrap();
    assert!(kept(&stage).is_empty());
    // The next boot undoes that, and makes the card's functions as they were asked for.
    reboot(&mut stage);
    reapplied(&mut stage);
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"));
    assert_eq!(kept(&stage), std::slice::from_ref(&function));
    // Others in its place are new.
    stage.vfs(CARD, &request(0)).unwrap();
    stage.vfs(CARD, &request(2)).unwrap();
    assert!(kept(&stage).is_empty());
}

#[test]
fn what_is_in_force_again_and_was_not_made_at_boot_is_told() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &VfRequest { persist: true, ..full() }).unwrap();
    stage.vfs(CARD, &request(0)).unwrap();
    reboot(&mut stage);
    assert_eq!(reapplied(&mut stage).len(), 0, "the last word counts");
    let left = stage.rollback().unwrap().left.join("\n");
    assert!(
        left.contains("transaction 1 is in force again") && left.contains("systemctl restart nearmetal-boot"),
        "{left}"
    );
    assert_eq!(reapplied(&mut stage).len(), 1);
    assert_eq!(stage.count(CARD), "2");
}

#[test]
fn a_driver_that_is_not_loaded_yet_at_boot_comes_back_with_a_rollback() {
    let mut stage = DeviceStage::new();
    let (host, journal) = (stage.host(), stage.journal());
    let ledger = ledger::of(&host, &[]);
    let plan = plan_bind(&stage.machine(), &host, &ledger, address(CARD), true, journal.state_directory()).unwrap();
    stage.carry(&plan, &Faults::none()).unwrap();
    reboot(&mut stage);
    stage.kernel.inside.borrow_mut().links.remove(&format!("/sys/bus/pci/devices/{CARD}/driver"));
    assert!(!reapplied(&mut stage).is_empty());
    assert_eq!(stage.kernel.driver(CARD).as_deref(), Some("vfio-pci"));
    let notes = stage.rollback().unwrap().notes.join("\n");
    assert_eq!(stage.kernel.driver(CARD).as_deref(), Some("igb"), "{notes}");
}

#[test]
fn which_driver_the_kernel_chose_is_shown_and_that_none_took_it() {
    let function = virtual_function(CARD, 0);
    for (has_driver, found) in [(true, "igbvf"), (false, "no driver")] {
        let mut stage = DeviceStage::new();
        stage.vfs(CARD, &request(1)).unwrap();
        stage.kernel.lend(&function);
        stage.kernel.held.borrow_mut().clear();
        if !has_driver {
            stage.kernel.inside.borrow_mut().files.remove("/sys/bus/pci/drivers/igbvf/bind");
        }
        let plan = stage.release(&function).unwrap();
        stage.carry(&plan, &Faults::none()).unwrap();
        let all = stage.journal().transactions().unwrap();
        let checks = held(&mut stage.machine(), &all[1], &all).unwrap().checks;
        assert_eq!(checks[0].found.as_deref(), Some(found), "{checks:?}");
        assert_eq!(checks[0].planned, "the driver the kernel chooses");
    }
}

#[test]
fn a_unit_that_was_masked_since_stays_masked() {
    let mut stage = DeviceStage::new();
    let before = stage.inside();
    stage.vfs(CARD, &VfRequest { persist: true, ..full() }).unwrap();
    let unit = stage.directory.path().join("units").join(UNIT_NAME);
    std::fs::remove_file(&unit).unwrap();
    std::os::unix::fs::symlink("/dev/null", &unit).unwrap();
    let notes = stage.rollback().unwrap().notes.join("\n");
    assert!(notes.contains("replaced or masked since: left as it is"), "{notes}");
    assert_eq!(unit.read_link().unwrap(), std::path::Path::new("/dev/null"));
    assert_eq!(stage.inside(), before);
    let refused = stage.plan(CARD, &VfRequest { persist: true, ..full() }).unwrap_err().to_string();
    assert!(refused.contains("systemctl unmask"), "{refused}");
}
