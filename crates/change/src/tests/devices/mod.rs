//! Virtual functions and drivers: refused with reasons, made, read back, undone wherever it ends.

mod kernel;
mod others;
mod refusals;

use std::time::Duration;

use nearmetal_host::ledger::{self, Ledger};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Host, SriovState};
use nearmetal_hypervisor::Fake;
use nearmetal_units::PciAddress;

use super::stage::identity;
use crate::devices::*;
use crate::verify::Outcome;
use crate::*;
use kernel::*;

struct DeviceStage {
    kernel: DeviceKernel,
    hypervisor: Fake,
    boot_id: String,
    directory: tempfile::TempDir,
}

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn request(count: u32) -> VfRequest {
    VfRequest { count, ..VfRequest::default() }
}

impl DeviceStage {
    fn new() -> Self {
        let (kernel, hypervisor) = (DeviceKernel::new(), Fake::new(""));
        Self { kernel, hypervisor, boot_id: "boot-one".to_owned(), directory: tempfile::tempdir().unwrap() }
    }

    fn journal(&self) -> Journal {
        Journal::at(self.directory.path().join("state"))
    }

    fn machine(&mut self) -> Machine<'_> {
        Machine {
            kernel: &self.kernel,
            hypervisor: &mut self.hypervisor,
            host: identity(),
            boot_id: self.boot_id.clone(),
            unit_directory: self.directory.path().join("units"),
            hook_directory: self.directory.path().join("hooks"),
            program: "/usr/bin/nearmetal".into(),
            patience: Duration::ZERO,
            surroundings: Surroundings { is_root: true, exists: |_| true },
        }
    }

    /// The host as its kernel has it now.
    fn host(&self) -> Host {
        let count =
            |card: &str| self.kernel.value(&format!("/sys/bus/pci/devices/{card}/sriov_numvfs")).parse().unwrap();
        let mut host = Synthetic::new().packages(2).network(0, 7, count(CARD)).nvme_with_sriov(1, 4).build();
        host.network_interfaces[0].state = Some("down".to_owned());
        let vfs: u32 = count(DRIVE);
        let functions = (0..vfs as usize).map(|number| address(&virtual_function(DRIVE, number))).collect();
        let drive = host.pci_devices.iter_mut().find(|device| device.address == address(DRIVE)).unwrap();
        drive.sriov = Some(SriovState { total_vfs: 4, vfs, functions });
        for device in &mut host.pci_devices {
            device.driver = self.kernel.driver(&device.address.to_string());
        }
        host
    }

    fn plan(&mut self, card: &str, request: &VfRequest) -> Result<DevicePlan, ChangeError> {
        let (host, journal) = (self.host(), self.journal());
        let ledger = ledger::of(&host, &[]);
        plan_virtual_functions(&self.machine(), &host, &ledger, address(card), request, journal.state_directory())
    }

    fn carry(&mut self, plan: &DevicePlan, faults: &Faults) -> Result<u32, ChangeError> {
        let journal = self.journal();
        let mut plan_again = |_: &mut Machine<'_>| Ok(plan.clone());
        let mut say = |_: &str| {};
        let job = DeviceJob { journal: &journal, plan, plan_again: &mut plan_again, faults, say: &mut say };
        let (number, found) = carry_out(&mut self.machine(), job)?;
        assert_eq!(found.mismatches(), 0, "{:?}", found.checks);
        Ok(number)
    }

    fn vfs(&mut self, card: &str, request: &VfRequest) -> Result<u32, ChangeError> {
        let plan = self.plan(card, request)?;
        self.carry(&plan, &Faults::none())
    }

    fn plan_bind(&mut self, function: &str) -> Result<DevicePlan, ChangeError> {
        let (host, journal) = (self.host(), self.journal());
        let ledger = ledger::of(&host, &[]);
        plan_bind(&self.machine(), &host, &ledger, address(function), false, journal.state_directory())
    }

    fn bind(&mut self, function: &str) -> Result<u32, ChangeError> {
        let plan = self.plan_bind(function)?;
        self.carry(&plan, &Faults::none())
    }

    fn release(&mut self, function: &str) -> Result<DevicePlan, ChangeError> {
        let (host, all) = (self.host(), self.journal().transactions().unwrap());
        let ledger: Ledger = ledger::of(&host, &[]);
        plan_release(&self.machine(), &host, &ledger, address(function), &all)
    }

    fn rollback(&mut self) -> Result<RolledBack, ChangeError> {
        let journal = self.journal();
        rollback(&mut self.machine(), &journal, &RollbackOptions::default(), &Faults::none(), &mut |_| {})
    }

    fn inside(&self) -> Inside {
        self.kernel.inside.borrow().clone()
    }

    fn count(&self, card: &str) -> String {
        self.kernel.value(&format!("/sys/bus/pci/devices/{card}/sriov_numvfs"))
    }
}

fn full() -> VfRequest {
    VfRequest {
        macs: Some("02:00:00:00:00:ff".parse().unwrap()),
        vlans: Some("0=7,1=9".parse().unwrap()),
        spoof_check: Some(false),
        trust: Some(true),
        max_rate: Some(100),
        ..request(2)
    }
}

#[test]
fn virtual_functions_are_made_set_and_read_back() {
    let mut stage = DeviceStage::new();
    let before = stage.inside();
    stage.vfs(CARD, &full()).unwrap();
    let rows = stage.inside().rows;
    let seen: Vec<_> = rows.iter().map(|row| (row.mac.as_deref().unwrap(), row.vlan.unwrap().id)).collect();
    assert_eq!(seen, [("02:00:00:00:00:ff", 7), ("02:00:00:00:01:00", 9)]);
    assert!(rows.iter().all(|row| row.spoof_check == Some(false) && row.trust == Some(true)));
    assert!(rows.iter().all(|row| row.rate == Some(Rate { max: 100, min: 0 })));
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 1)).as_deref(), Some("igbvf"), "as the card had it");
    assert_eq!(stage.plan(CARD, &full()).unwrap().changes, [], "nothing to do is nothing done");
    let note = stage.rollback().unwrap().notes.join("\n");
    assert!(note.contains("0000:01:00.0 is back to 0 virtual functions"), "{note}");
    assert_eq!(stage.inside(), before);
}

#[test]
fn another_count_goes_through_zero_and_what_stays_keeps_its_settings() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &full()).unwrap();
    stage.bind(&virtual_function(CARD, 0)).unwrap();
    let (two, before) = (stage.inside().rows, stage.inside());
    let plan = stage.plan(CARD, &request(4)).unwrap();
    assert!(plan.notes.iter().any(|note| note.contains("2 to 4 through 0")), "{:?}", plan.notes);
    stage.carry(&plan, &Faults::none()).unwrap();
    let inside = stage.inside();
    assert_eq!((inside.rows.len(), &inside.rows[..2]), (4, &two[..]));
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 0)).as_deref(), Some("vfio-pci"), "set aside still");
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 3)).as_deref(), Some("igbvf"));
    stage.rollback().unwrap();
    assert_eq!(stage.inside(), before);
}

#[test]
fn drivers_of_the_host_are_kept_away_on_request() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &VfRequest { autoprobe: Some(false), ..request(2) }).unwrap();
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 0)), None);
    stage.vfs(CARD, &VfRequest { autoprobe: Some(true), ..request(3) }).unwrap();
    assert_eq!(stage.kernel.driver(&virtual_function(CARD, 0)).as_deref(), Some("igbvf"));
    stage.rollback().unwrap();
    assert_eq!((stage.count(CARD).as_str(), stage.kernel.driver(&virtual_function(CARD, 0))), ("2", None));
}

#[test]
fn a_drive_deals_queues_and_interrupts_before_a_driver_comes() {
    let mut stage = DeviceStage::new();
    let before = stage.inside();
    stage.vfs(DRIVE, &request(3)).unwrap();
    assert_eq!(stage.inside().dealt, [(2, 1, true), (2, 1, true), (2, 1, true), (0, 0, false)]);
    assert_eq!(stage.kernel.driver(&virtual_function(DRIVE, 2)).as_deref(), Some("nvme"));
    // A reset of the drive takes its functions offline: asked for again, they come back.
    stage.kernel.inside.borrow_mut().dealt[1].2 = false;
    stage.vfs(DRIVE, &request(3)).unwrap();
    assert!(stage.inside().dealt[1].2);
    stage.rollback().unwrap();
    stage.rollback().unwrap();
    assert_eq!(stage.inside(), before);
}

#[test]
fn a_function_is_set_aside_and_given_back() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &request(1)).unwrap();
    let before = stage.inside();
    let function = virtual_function(CARD, 0);
    stage.bind(&function).unwrap();
    let bound = stage.inside();
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"));
    assert_eq!(stage.kernel.value(&format!("/sys/bus/pci/devices/{function}/driver_override")), "vfio-pci");
    assert_eq!(stage.plan_bind(&function).unwrap().changes, []);
    let plan = stage.release(&function).unwrap();
    stage.carry(&plan, &Faults::none()).unwrap();
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("igbvf"));
    assert_eq!(stage.release(&function).unwrap().changes, [], "it is the host's");
    stage.rollback().unwrap();
    assert_eq!(stage.inside(), bound, "giving back is taken back");
    stage.rollback().unwrap();
    assert_eq!(stage.inside(), before, "the module with it");
}

#[test]
fn a_function_without_a_driver_gets_none_back() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &VfRequest { autoprobe: Some(false), ..request(1) }).unwrap();
    let function = virtual_function(CARD, 0);
    stage.bind(&function).unwrap();
    assert_eq!(stage.kernel.driver(&function).as_deref(), Some("vfio-pci"), "an override counts for more");
    let plan = stage.release(&function).unwrap();
    stage.carry(&plan, &Faults::none()).unwrap();
    assert_eq!(stage.kernel.driver(&function), None);
}

#[test]
fn a_crash_at_any_step_is_taken_back() {
    let points = {
        let mut stage = DeviceStage::new();
        let plan = stage.plan(CARD, &VfRequest { persist: true, ..full() }).unwrap();
        fault_points(&plan.changes)
    };
    assert!(points.iter().any(|point| point == "1:vfs-0000:01:00.0:made"), "{points:?}");
    for point in points.iter().skip(1) {
        let mut stage = DeviceStage::new();
        let before = stage.inside();
        let plan = stage.plan(CARD, &VfRequest { persist: true, ..full() }).unwrap();
        let crash = stage.carry(&plan, &Faults::failing_at(point.as_str())).unwrap_err();
        assert!(matches!(crash, ChangeError::Fault { .. }), "{point}: {crash}");
        stage.rollback().unwrap();
        assert_eq!(stage.inside(), before, "{point}");
        assert!(!stage.directory.path().join("units").join(UNIT_NAME).exists(), "{point}");
    }
}

#[test]
fn what_fails_half_way_is_taken_back_at_once() {
    for failing in ["vf 1 trust", "vf 0 mac", "sriov_drivers_autoprobe"] {
        let mut stage = DeviceStage::new();
        let before = stage.inside();
        *stage.kernel.failing.borrow_mut() = Some(failing.to_owned());
        let error = stage.vfs(CARD, &full()).unwrap_err();
        assert!(matches!(error, ChangeError::TakenBack { .. }), "{failing}: {error}");
        assert_eq!(stage.inside(), before, "{failing}");
    }
}

#[test]
fn a_rate_without_a_link_says_what_helps() {
    let mut stage = DeviceStage::new();
    *stage.kernel.failing.borrow_mut() = Some("max_tx_rate".to_owned());
    let error = stage.vfs(CARD, &full()).unwrap_err().to_string();
    assert!(error.contains("`eth0` has no link") && error.contains("rolled back"), "{error}");
}

#[test]
fn a_reboot_loses_them_unless_the_boot_unit_makes_them_again() {
    for persist in [false, true] {
        let mut stage = DeviceStage::new();
        let before = stage.inside();
        stage.vfs(CARD, &VfRequest { persist, ..full() }).unwrap();
        let made = stage.inside();
        assert_eq!(stage.directory.path().join("units").join(UNIT_NAME).exists(), persist);
        stage.kernel = DeviceKernel::new();
        stage.boot_id.push_str("-next");
        let journal = stage.journal();
        let again = boot::reapply(&mut stage.machine(), &journal).unwrap();
        assert!(again.iter().all(|made| made.result.is_ok()) && again.len() == usize::from(persist), "{again:?}");
        assert_eq!(stage.inside(), if persist { made } else { before.clone() });
        let transactions = stage.journal().transactions().unwrap();
        let found = held(&mut stage.machine(), &transactions[0], &transactions).unwrap();
        assert_eq!(found.checks[0].outcome == Outcome::Ok, persist, "{:?}", found.checks);
        let note = stage.rollback().unwrap().notes.join("\n");
        assert_eq!(note.contains("the restart of the machine already undid"), !persist, "{note}");
        assert_eq!(stage.inside(), before);
    }
}

#[test]
fn at_boot_the_last_word_counts() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &VfRequest { persist: true, ..full() }).unwrap();
    stage.vfs(CARD, &request(0)).unwrap();
    stage.kernel = DeviceKernel::new();
    stage.boot_id.push_str("-next");
    let journal = stage.journal();
    assert_eq!(boot::reapply(&mut stage.machine(), &journal).unwrap().len(), 0);
    assert_eq!(stage.count(CARD), "0");
}

#[test]
fn at_boot_another_card_in_the_slot_is_left_alone() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &VfRequest { persist: true, ..full() }).unwrap();
    stage.kernel = DeviceKernel::new();
    stage.kernel.set("/sys/bus/pci/devices/0000:01:00.0/device", "0x1521");
    stage.boot_id.push_str("-next");
    let journal = stage.journal();
    let again = boot::reapply(&mut stage.machine(), &journal).unwrap();
    let error = again[0].result.as_ref().unwrap_err().to_string();
    assert!(error.contains("is now another device (0x8086:0x1521"), "{error}");
    assert_eq!(stage.count(CARD), "0");
}

#[test]
fn what_somebody_has_changed_since_is_seen() {
    let mut stage = DeviceStage::new();
    stage.vfs(CARD, &full()).unwrap();
    let look = |stage: &mut DeviceStage| {
        let all = stage.journal().transactions().unwrap();
        let found: Vec<_> = all.iter().filter_map(|one| held(&mut stage.machine(), one, &all)).collect();
        found.into_iter().flat_map(|one| one.checks).collect::<Vec<_>>()
    };
    assert_eq!(look(&mut stage)[0].outcome, Outcome::Ok);
    let unknown = &look(&mut stage)[1];
    assert!(
        matches!(&unknown.outcome, Outcome::CannotTell { why } if why.contains("interface `eth0` is gone")),
        "{unknown:?}"
    );
    stage.kernel.set("/sys/class/net/eth0/flags", "0x1002");
    let down = look(&mut stage);
    assert_eq!((down[1].subject.as_str(), &down[1].outcome), ("link of eth0 (0000:01:00.0)", &Outcome::Mismatch));
    stage.kernel.set("/sys/class/net/eth0/flags", "0x1003");
    stage.kernel.set("/sys/class/net/eth0/carrier", "0");
    assert!(look(&mut stage)[1].found.as_deref().unwrap().starts_with("no carrier"));
    stage.kernel.set("/sys/class/net/eth0/operstate", "up");
    stage.bind(&virtual_function(CARD, 0)).unwrap();
    assert!(
        look(&mut stage).iter().all(|check| check.outcome == Outcome::Ok),
        "given to a guest it is still as it was set"
    );
    stage.kernel.inside.borrow_mut().rows[1].trust = Some(false);
    stage.kernel.inside.borrow_mut().rows[1].mac = Some("02:00:00:00:00:99".to_owned());
    let checks = look(&mut stage);
    let wrong: Vec<_> = checks.iter().filter(|check| check.outcome == Outcome::Mismatch).collect();
    let [mac, trust] = wrong.as_slice() else { panic!("each is told: {wrong:?}") };
    assert_eq!(mac.found.as_deref(), Some("the MAC address of VF 1: 02:00:00:00:00:99"));
    assert_eq!(trust.planned.as_str(), "trust of VF 1: on");
    stage.vfs(CARD, &request(1)).unwrap();
    let checks = look(&mut stage);
    let held: Vec<_> = checks.iter().map(|check| &check.outcome).collect();
    assert_eq!(held, [&Outcome::Ok; 4], "the later one counts: module, driver, functions, link");
}
