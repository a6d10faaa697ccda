//! What is set after a start: planned, done to a guest that runs, taken back, and followed.

use nearmetal_place::{DevicePlacement, FunctionKind};

use super::stage::*;
use crate::after_start::{Known, differences};
use crate::*;

const FUNCTION: &str = "0000:3b:02.0";
const MASK: &str = "/proc/irq/74/smp_affinity_list";

/// Two workers and an interrupt, all where the kernel puts them; the plan is otherwise in force.
fn running() -> (Stage, PlanFile) {
    let mut plan = plan_file();
    let placement = &mut plan.plan.placements[0];
    placement.emulator = cpus("3-4");
    placement.vhost = vec![cpus("4")];
    placement.interrupts = cpus("3");
    let (function, kind) = (FUNCTION.parse().unwrap(), FunctionKind::Virtual);
    placement.devices = vec![DevicePlacement { function, kind, cell: None, node: None }];
    plan.plan.pools.clear();
    plan.domains[0].needs_restart.clear();
    let stage = Stage::new();
    *stage.kernel.workers.borrow_mut() = [(4704, cpus("3-4")), (4705, cpus("3-4"))].into();
    stage.kernel.set(&format!("/sys/bus/pci/devices/{FUNCTION}/msi_irqs/74"), "msix\n");
    stage.kernel.set(&format!("/sys/bus/pci/devices/{FUNCTION}/local_cpulist"), "2-4\n");
    stage.kernel.set(MASK, "2-4\n");
    (stage, plan)
}

fn mask(stage: &Stage) -> String {
    stage.kernel.files.borrow()[MASK].trim().to_owned()
}

fn workers(stage: &Stage) -> Vec<String> {
    stage.kernel.workers.borrow().values().map(ToString::to_string).collect()
}

#[test]
fn a_running_guest_is_pinned_at_once_and_the_hook_does_it_at_the_next_start() {
    let (mut stage, plan) = running();
    let hook = stage.directory.path().join("hooks/nearmetal");
    stage.apply(&plan, &ApplyOptions::default(), &Faults::none()).unwrap();
    assert_eq!((mask(&stage), workers(&stage)), ("3".to_owned(), vec!["4".to_owned(); 2]));
    let text = nearmetal_host::files::read_to_string(&hook).unwrap();
    assert!(text.contains("after-start --state"), "{text}");
    assert_eq!(stage.journal().plan_at_start("web1").unwrap().as_ref(), Some(&plan));
    let again = changes(&mut stage.machine(), &Journal::at("/nowhere"), &plan, &ApplyOptions::default()).unwrap();
    assert!(!again.iter().any(|change| matches!(change, Change::AfterStart { .. })), "{again:?}");
    let notes = stage.rollback(&RollbackOptions { keep_running: true, ..RollbackOptions::default() }, &Faults::none());
    assert!(notes.unwrap().notes.iter().any(|note| note.contains("removed libvirt's qemu hook")));
    assert_eq!((mask(&stage), workers(&stage)), ("2-4".to_owned(), vec!["3-4".to_owned(); 2]));
    assert!(!hook.exists() && !hook.parent().unwrap().exists());
    assert_eq!(stage.journal().plan_at_start("web1").unwrap(), None);
}

#[test]
fn nothing_asked_is_no_hook() {
    let (mut stage, mut plan) = running();
    (plan.plan.placements[0].vhost, plan.plan.placements[0].interrupts) = (Vec::new(), cpus(""));
    let list = changes(&mut stage.machine(), &Journal::at("/nowhere"), &plan, &ApplyOptions::default()).unwrap();
    assert!(
        list.iter().all(|change| !matches!(change, Change::AfterStart { .. } | Change::QemuHook { .. })),
        "{list:?}"
    );
}

#[test]
fn a_worker_outside_of_the_emulators_pus_is_refused() {
    let (_, mut plan) = running();
    plan.plan.placements[0].vhost = vec![cpus("4"), cpus("9")];
    let error = PlanFile::parse(&plan.to_json(), "x").unwrap_err().to_string();
    assert!(error.contains("vhost worker of `web1`"), "{error}");
}

#[test]
fn what_is_new_is_set_and_what_somebody_moved_is_left() {
    let (stage, plan) = running();
    let (placement, functions) = (&plan.plan.placements[0], [FUNCTION.parse().unwrap()]);
    let mut known = Known::default();
    let mut round = |stage: &Stage| {
        let pins = known.round(&stage.kernel, 4700, placement, &functions).unwrap();
        crate::after_start::set(&stage.kernel, 4700, &pins).unwrap();
        (pins.workers.len(), pins.interrupts.len())
    };
    assert_eq!(round(&stage), (2, 1));
    assert_eq!(round(&stage), (0, 0));
    // Moved by hand: not fought.
    stage.kernel.set(MASK, "0\n");
    stage.kernel.workers.borrow_mut().insert(4705, cpus("3"));
    assert_eq!(round(&stage), (0, 0));
    assert_eq!(differences(&stage.kernel, 4700, placement, &functions).unwrap().1.interrupts.len(), 1);
    // The guest restarted: the kernel's own mask is back.
    stage.kernel.set(MASK, "2-4\n");
    assert_eq!(round(&stage), (0, 1));
    // Another interrupt, and a worker of an interface that was plugged in.
    stage.kernel.set(&format!("/sys/bus/pci/devices/{FUNCTION}/msi_irqs/75"), "msix\n");
    stage.kernel.set("/proc/irq/75/smp_affinity_list", "1\n");
    stage.kernel.workers.borrow_mut().insert(4706, cpus("3-4"));
    assert_eq!(round(&stage), (1, 1));
}

#[test]
fn a_guest_is_followed_until_it_ends() {
    let (mut stage, plan) = running();
    stage.apply(&plan, &ApplyOptions::default(), &Faults::none()).unwrap();
    let mut said = Vec::new();
    // No such process: it has ended already.
    follow(&stage.kernel, &stage.journal(), "web1", &mut |text| said.push(text.to_owned())).unwrap();
    assert_eq!(said, Vec::<String>::new());
    follow(&stage.kernel, &stage.journal(), "other", &mut |text| said.push(text.to_owned())).unwrap();
    assert!(said[0].contains("no plan in force covers `other`"), "{said:?}");
}
