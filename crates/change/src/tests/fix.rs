//! Cures: what becomes of each object, what is done, and how it is taken back.
//!
//! Over 500 lines, since all of it stands on one host with its findings.

use nearmetal_domain::{DefinitionEdit, DomainXml};
use nearmetal_host::files;
use nearmetal_hypervisor::{Definition, Fake, Hypervisor};
use nearmetal_rules::{
    Cure, Domain, Examination, Finding, Input, Object, RULES, Scope, Settings, Severity, Thread, Which, WorkloadClass,
    examine,
};
use nearmetal_units::PageSize;

use super::stage::*;
use crate::fix::{CureJob, Cured, Findings, FixPlan, Treatment, cure, held, plan};
use crate::journal::{Purpose, Record, State};
use crate::verify::{CheckKind, Outcome};
use crate::*;

fn domain_scope(which: Which) -> Scope {
    Scope::Domain { name: "web1".to_owned(), which }
}

fn finding(rule: &str, scope: Scope, cures: &[Cure]) -> Finding {
    let object = cures.iter().cloned().fold(Object::new("it", "poor", "good"), Object::cured_by);
    Finding { rule: rule.to_owned(), severity: Severity::Loss, scope, objects: vec![object] }
}

fn balancing(value: &str) -> Cure {
    Cure::kernel_file(BALANCING, value)
}

fn cache_none() -> Cure {
    Cure::attribute("devices/disk[target/@dev='vda']/driver", "cache", "none")
}

fn pool(pages: u64) -> Cure {
    Cure::HugepagePool { node: 1, size: PageSize::HUGE_2M, pages }
}

fn pin(text: &str) -> Cure {
    Cure::LivePin { thread: Thread::Emulator, cpus: cpus(text) }
}

fn module() -> Cure {
    Cure::LoadModule { module: "vhost_net".to_owned() }
}

/// One of each kind that can be done live.
fn all() -> Vec<Finding> {
    vec![
        finding("a-host", Scope::Host, &[balancing("0"), module(), pool(20)]),
        finding("b-choice", Scope::Host, &[Cure::kernel_file(THP, "madvise")]),
        finding("c-stored", domain_scope(Which::Defined), &[cache_none()]),
        finding("d-pin", domain_scope(Which::Both), &[pin("3"), Cure::attribute("cputune/emulatorpin", "cpuset", "3")]),
    ]
}

fn stage() -> Stage {
    let stage = Stage::new();
    stage.kernel.affinity.borrow_mut().insert(PinTarget::Emulator, cpus("0-3"));
    stage
}

/// What the rules know: the domain as it is, and these findings beside what they find by themselves.
struct Known {
    host: nearmetal_host::Host,
    domains: Vec<Domain>,
    settings: Settings,
}

impl Known {
    fn of(stage: &mut Stage) -> Self {
        Self::with_class(stage, WorkloadClass::General)
    }

    fn with_class(stage: &mut Stage, class: WorkloadClass) -> Self {
        let mut facts = |which| {
            let text = stage.hypervisor.domain_xml("web1", which).ok()?;
            DomainXml::parse(&text).ok()?.facts().ok()
        };
        let domain = Domain::new(facts(Definition::Inactive), facts(Definition::Live), Some(class));
        Self { host: host(), domains: domain.into_iter().collect(), settings: Settings::default() }
    }

    fn input(&self) -> Input<'_> {
        Input { host: Some(&self.host), domains: &self.domains, settings: &self.settings }
    }

    fn examination(&self, findings: Vec<Finding>) -> Examination {
        let mut examination = examine(&self.input(), RULES);
        examination.findings.extend(findings);
        examination
    }
}

const OWN: [&str; 6] = ["a-host", "b-choice", "c-stored", "d-pin", "e-other", "f-other"];

fn planned_of(stage: &mut Stage, findings: Vec<Finding>, class: WorkloadClass) -> FixPlan {
    let known = Known::with_class(stage, class);
    let (input, examination) = (known.input(), known.examination(findings));
    let journal = stage.journal();
    let findings = Findings { input: &input, examination: &examination, rules: &OWN };
    plan(&mut stage.machine(), findings, journal.state_directory()).unwrap()
}

fn planned(stage: &mut Stage, findings: Vec<Finding>) -> FixPlan {
    planned_of(stage, findings, WorkloadClass::General)
}

fn refusal(plan: &FixPlan, index: usize) -> &str {
    match &plan.treated[index].treatment {
        Treatment::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

fn cure_all(stage: &mut Stage, findings: Vec<Finding>, faults: &Faults) -> Result<Cured<()>, ChangeError> {
    let agreed = planned(stage, findings.clone());
    let known = Known::of(stage);
    let (input, examination) = (known.input(), known.examination(findings));
    let journal = stage.journal();
    let findings = Findings { input: &input, examination: &examination, rules: &OWN };
    let state = journal.state_directory();
    let job = CureJob {
        journal: &journal,
        plan: &agreed,
        plan_again: &mut |machine| plan(machine, findings, state),
        read_back: &mut |_| (0, ()),
        faults,
        say: &mut |_| {},
    };
    cure(&mut stage.machine(), job)
}

#[test]
fn every_kind_of_cure_is_done_in_its_order_and_taken_back() {
    let mut stage = stage();
    let before = stage.snapshot();
    let plan = planned(&mut stage, all());
    let slugs: Vec<String> = plan.changes.iter().map(Change::slug).collect();
    let wanted = [
        "module-vhost_net",
        "sysfs-numa_balancing",
        "sysfs-enabled",
        "pool-node1-2048kB",
        "boot-unit",
        "define-web1",
        "pin-web1-emulator",
    ];
    assert_eq!(slugs, wanted);
    let treatments: Vec<_> = plan.treated.iter().map(|treated| treated.treatment.clone()).collect();
    assert_eq!(treatments, [Treatment::Now, Treatment::Now, Treatment::NextStart, Treatment::Now]);
    assert_eq!(plan.lifetimes().len(), 3);
    let cured = cure_all(&mut stage, all(), &Faults::none()).unwrap();
    assert_eq!(cured.transaction, 1);
    let after = stage.snapshot();
    assert_eq!(after.settings[1], "always [madvise] never\n");
    assert!(after.settings[0] == "0\n" && after.settings[2].starts_with("vhost_net "), "{:?}", after.settings);
    assert!(after.stored.contains("cache='none'") && after.stored.contains("<emulatorpin cpuset='3'/>"));
    assert_eq!((after.pages.as_str(), after.unit), ("20", true));
    assert_eq!(after.in_force, before.in_force, "no guest was touched");
    // Nothing is left to do.
    assert!(planned(&mut stage, all()).changes.iter().all(|change| matches!(change, Change::LivePin { .. })));
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), before);
    assert_eq!(stage.hypervisor.live_pins("web1").values().map(ToString::to_string).collect::<Vec<_>>(), ["0-3"]);
}

#[test]
fn the_boot_unit_goes_with_the_last_that_needs_it_in_whatever_order_they_go() {
    let foreign = "[Unit]\nDescription=somebody else's\n";
    for (order, before) in [([1, 2], None), ([2, 1], None), ([1, 2], Some(foreign)), ([2, 1], Some(foreign))] {
        let mut stage = stage();
        let path = stage.directory.path().join("units").join(UNIT_NAME);
        if let Some(text) = before {
            files::create_dir_all(path.parent().unwrap()).unwrap();
            files::write(&path, text).unwrap();
        }
        for cure in [balancing("0"), Cure::kernel_file(THP, "madvise")] {
            cure_all(&mut stage, vec![finding("a-host", Scope::Host, &[cure])], &Faults::none()).unwrap();
        }
        for (done, number) in order.into_iter().enumerate() {
            assert!(
                files::read_to_string(&path).unwrap().starts_with("# Installed by"),
                "{order:?}, {done} taken back"
            );
            let one = RollbackOptions { transaction: Some(number), ..RollbackOptions::default() };
            stage.rollback(&one, &Faults::none()).unwrap();
        }
        assert_eq!(files::read_to_string(&path).ok().as_deref(), before, "{order:?}");
    }
}

#[test]
fn a_crash_at_any_step_of_a_cure_is_taken_back() {
    let mut points = vec!["begin:header-written".to_owned()];
    points.extend(fault_points(&planned(&mut stage(), all()).changes).into_iter().skip(2));
    assert!(points.len() > 28, "{points:?}");
    for point in points {
        let mut stage = stage();
        let before = stage.snapshot();
        let crash = cure_all(&mut stage, all(), &Faults::failing_at(&*point));
        assert!(matches!(crash, Err(ChangeError::Fault { .. })), "{point}: {crash:?}");
        stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap_or_else(|error| panic!("{point}: {error}"));
        assert_eq!(stage.snapshot(), before, "{point}");
        cure_all(&mut stage, all(), &Faults::none()).unwrap();
    }
}

#[test]
fn a_reboot_is_made_good_by_the_boot_unit_and_taken_back() {
    let mut stage = stage();
    let before = stage.snapshot();
    cure_all(&mut stage, all(), &Faults::none()).unwrap();
    stage.reboot();
    let journal = stage.journal();
    let made = boot::reapply(&mut stage.machine(), &journal).unwrap();
    assert_eq!(made.len(), 4, "module, two settings, pool");
    assert!(made.iter().all(|made| made.result.is_ok()), "{made:?}");
    assert_eq!(stage.snapshot().settings[1], "always [madvise] never\n");
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    let after = stage.snapshot();
    assert_eq!((after.settings, after.stored, after.unit), (before.settings, before.stored, false));
    assert_eq!(after.pages, "0", "what this boot began with");
}

#[test]
fn a_power_loss_in_the_middle_leaves_only_what_is_durable_to_take_back() {
    for point in ["1:module-vhost_net:made", "4:pool-node1-2048kB:done-written", "6:define-web1:made"] {
        let mut stage = stage();
        let before = stage.snapshot();
        cure_all(&mut stage, all(), &Faults::failing_at(point)).unwrap_err();
        stage.reboot();
        stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
        let after = stage.snapshot();
        assert_eq!((after.stored, after.settings, after.unit), (before.stored, before.settings, false), "{point}");
    }
}

#[test]
fn interrupts_are_not_found_by_their_number_in_another_boot() {
    const IRQ: &str = "/proc/irq/30/smp_affinity_list";
    let mut stage = stage();
    stage.kernel.set(IRQ, "0-7\n");
    let cures = vec![finding("a-host", Scope::Host, &[Cure::kernel_file(IRQ, "0-3")])];
    let plan = planned(&mut stage, cures.clone());
    assert_eq!(plan.changes.len(), 1, "no boot unit");
    assert!(plan.lifetimes()[0].contains("renumbers the interrupts"), "{:?}", plan.lifetimes());
    cure_all(&mut stage, cures, &Faults::none()).unwrap();
    assert_eq!(stage.kernel.files.borrow()[IRQ], "0-3\n");
    stage.reboot();
    stage.kernel.set(IRQ, "5\n");
    let journal = stage.journal();
    assert!(boot::reapply(&mut stage.machine(), &journal).unwrap().is_empty());
    let transaction = journal.transactions().unwrap().remove(0);
    let verification = held(&mut stage.machine(), &transaction, std::slice::from_ref(&transaction)).unwrap();
    assert_eq!((verification.mismatches(), verification.untold()), (0, 1), "{verification}");
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    assert_eq!(stage.kernel.files.borrow()[IRQ], "5\n", "another interrupt's");
}

#[test]
fn a_setting_whose_file_is_gone_holds_up_no_rollback_and_another_devices_is_left() {
    const IRQ: &str = "/proc/irq/30/smp_affinity_list";
    for (now, words) in [(None, "is gone now"), (Some("5\n"), "left as it is")] {
        let mut stage = stage();
        stage.kernel.set(IRQ, "0-7\n");
        let cures = [balancing("0"), Cure::kernel_file(IRQ, "0-3")];
        cure_all(&mut stage, vec![finding("a-host", Scope::Host, &cures)], &Faults::none()).unwrap();
        match now {
            Some(text) => stage.kernel.set(IRQ, text),
            None => drop(stage.kernel.files.borrow_mut().remove(IRQ)),
        }
        let notes = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap().notes.join("\n");
        assert!(notes.contains(words), "{notes}");
        assert_eq!(stage.kernel.files.borrow().get(IRQ).map(String::as_str), now);
        assert_eq!(stage.kernel.files.borrow()[BALANCING], "1\n");
    }
}

#[test]
fn of_two_transactions_on_one_setting_each_keeps_the_value_before_it() {
    let set = |stage: &mut Stage, value: &str| {
        cure_all(stage, vec![finding("a-host", Scope::Host, &[balancing(value)])], &Faults::none()).unwrap()
    };
    let value = |stage: &Stage| stage.kernel.files.borrow()[BALANCING].trim().to_owned();
    // The unit was killed between the first one's record and its write.
    let mut stage = stage();
    set(&mut stage, "2");
    set(&mut stage, "0");
    stage.reboot();
    let journal = stage.journal();
    let killed = Record::Reapplying { step: 1, boot_id: stage.boot_id.clone(), old: "1".to_owned() };
    journal.resume(&journal.lock().unwrap(), 1).unwrap().append(&killed).unwrap();
    assert_eq!(boot::reapply(&mut stage.machine(), &journal).unwrap().len(), 2);
    assert_eq!(value(&stage), "0");
    for back in ["2", "1"] {
        stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
        assert_eq!(value(&stage), back);
    }
    // The unit was not run in this boot before somebody set another value.
    let mut stage = super::fix::stage();
    set(&mut stage, "2");
    stage.reboot();
    set(&mut stage, "0");
    let journal = stage.journal();
    assert_eq!(boot::reapply(&mut stage.machine(), &journal).unwrap().len(), 0);
    assert_eq!(value(&stage), "0");
}

#[test]
fn a_module_that_something_else_loaded_stays() {
    let mut stage = stage();
    cure_all(&mut stage, vec![finding("a-host", Scope::Host, &[module()])], &Faults::none()).unwrap();
    let used = stage.snapshot().settings[2].replace("vhost_net 36864 0 -", "vhost_net 36864 2 -");
    stage.kernel.set("/proc/modules", &used);
    let notes = stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap().notes.join("\n");
    assert!(notes.contains("in use now"), "{notes}");
    assert!(stage.snapshot().settings[2].contains("vhost_net"));
    // After a reboot somebody else may have been first.
    let mut stage = super::fix::stage();
    cure_all(&mut stage, vec![finding("a-host", Scope::Host, &[module()])], &Faults::none()).unwrap();
    stage.reboot();
    stage.kernel.load_module("vhost_net").unwrap();
    let journal = stage.journal();
    boot::reapply(&mut stage.machine(), &journal).unwrap();
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    assert!(stage.snapshot().settings[2].contains("vhost_net"));
}

#[test]
fn what_cannot_be_live_says_what_it_takes() {
    let argument = Cure::KernelArgument { name: "nohz_full".to_owned(), value: Some("2-7".to_owned()) };
    let parameter =
        Cure::ModuleParameter { module: "kvm_intel".to_owned(), parameter: "ept".to_owned(), value: "1".to_owned() };
    let findings = vec![
        finding("a-host", Scope::Host, std::slice::from_ref(&argument)),
        finding("b-choice", Scope::Host, &[parameter]),
        finding("c-stored", domain_scope(Which::Both), &[]),
        finding("d-pin", Scope::Host, &[argument, balancing("0")]),
    ];
    let plan = planned(&mut stage(), findings);
    let Treatment::NotLive(what) = &plan.treated[0].treatment else { panic!("{plan:?}") };
    assert!(what[0].contains("add `nohz_full=2-7` to the kernel command line"), "{what:?}");
    assert!(matches!(&plan.treated[1].treatment, Treatment::NotLive(what) if what[0].contains("reload")));
    assert_eq!(plan.treated[2].treatment, Treatment::NoCure);
    assert_eq!(plan.treated[3].treatment, Treatment::Now, "what can be done at once is done");
    assert_eq!(plan.list().objects.len(), 1);
    assert_eq!(plan.list().objects[0].cures, [balancing("0")], "and only that is journalled");
}

#[test]
fn rules_that_want_different_things_get_neither() {
    let cached = Cure::attribute("devices/disk[target/@dev='vda']/driver", "cache", "writeback");
    let findings = vec![
        finding("a-host", Scope::Host, &[balancing("0")]),
        finding("b-choice", Scope::Host, &[balancing("1")]),
        finding("c-stored", domain_scope(Which::Both), &[cache_none()]),
        finding("d-pin", domain_scope(Which::Both), &[cached]),
        finding("e-other", domain_scope(Which::Both), &[pin("3")]),
    ];
    let plan = planned(&mut stage(), findings);
    assert!(refusal(&plan, 0).contains("b-choice wants `1`") && refusal(&plan, 1).contains("a-host wants `0`"));
    assert!(refusal(&plan, 2).contains("`writeback`") && refusal(&plan, 3).contains("`none`"));
    assert_eq!(plan.treated[4].treatment, Treatment::Now, "others are done");
    // The same twice is no conflict.
    let twice =
        vec![finding("a-host", Scope::Host, &[balancing("0")]), finding("b-choice", Scope::Host, &[balancing("0")])];
    assert_eq!(planned(&mut stage(), twice).changes.len(), 2, "one setting, and the boot unit");
    // An element that one removes and another needs.
    let gone = Cure::no_element("devices/disk[target/@dev='vda']/driver");
    let findings = vec![
        finding("c-stored", domain_scope(Which::Both), &[cache_none()]),
        finding("d-pin", domain_scope(Which::Both), &[gone]),
    ];
    let plan = planned(&mut stage(), findings);
    assert!(plan.treated[0].treatment.is_taken(), "{:?}", plan.treated[0].treatment);
    assert!(refusal(&plan, 1).contains("undo each other"), "{}", refusal(&plan, 1));
}

#[test]
fn a_cure_that_would_break_another_rule_is_refused() {
    let pins = |cpu: &str| Cure::attribute("cputune/vcpupin[@vcpu='0']", "cpuset", cpu);
    // PU 4096 is on no host.
    let findings = vec![
        finding("c-stored", domain_scope(Which::Both), &[pins("4096")]),
        finding("d-pin", domain_scope(Which::Both), &[cache_none()]),
    ];
    let mut stage = stage();
    let plan = planned(&mut stage, findings);
    assert!(refusal(&plan, 0).contains("would break pin-on-offline-cpu"), "{}", refusal(&plan, 0));
    assert_eq!(plan.treated[1].treatment, Treatment::NextStart);
    let [Change::DefineDomain { new_xml, .. }] = plan.changes.as_slice() else { panic!("{:?}", plan.changes) };
    assert!(new_xml.contains("cache='none'") && !new_xml.contains("vcpupin"));
}

#[test]
fn what_is_in_the_way_of_one_cure_keeps_no_other_back() {
    let findings = || {
        vec![
            finding("a-host", Scope::Host, &[balancing("0")]),
            finding("c-stored", domain_scope(Which::Both), &[cache_none()]),
        ]
    };
    let mut stage = stage();
    stage.hypervisor = {
        let mut fake = Fake::new("").with_domain(&xml(""));
        fake.set_managed_save("web1", true);
        fake
    };
    let plan = planned(&mut stage, findings());
    assert!(refusal(&plan, 1).contains("managed save image"), "{}", refusal(&plan, 1));
    assert_eq!(plan.treated[0].treatment, Treatment::Now);
    let missing = vec![
        finding("a-host", Scope::Host, &[Cure::kernel_file("/proc/sys/kernel/absent", "0")]),
        finding("b-choice", Scope::Host, &[pool(100_000)]),
        finding("d-pin", domain_scope(Which::Both), &[Cure::LivePin { thread: Thread::Vcpu(7), cpus: cpus("1") }]),
        finding(
            "e-other",
            domain_scope(Which::Both),
            &[Cure::attribute("devices/disk[target/@dev='vdz']/driver", "a", "b")],
        ),
        finding("f-other", Scope::Host, &[balancing("0")]),
    ];
    let plan = planned(&mut super::fix::stage(), missing);
    assert!(refusal(&plan, 0).contains("does not exist on this kernel"));
    assert!(refusal(&plan, 1).contains("MiB of that node are free"), "{}", refusal(&plan, 1));
    assert!(refusal(&plan, 2).contains("vCPU 7 of `web1` is not running"), "{}", refusal(&plan, 2));
    assert!(refusal(&plan, 3).contains("no `devices/disk[target/@dev='vdz']/driver`"), "{}", refusal(&plan, 3));
    assert_eq!(plan.treated[4].treatment, Treatment::Now);
}

#[test]
fn without_root_or_beside_another_transaction_nothing_is_done() {
    let mut stage = stage();
    stage.root = false;
    let error = cure_all(&mut stage, all(), &Faults::none()).unwrap_err().to_string();
    assert!(error.contains("run this as root"), "{error}");
    stage.root = true;
    cure_all(&mut stage, all(), &Faults::failing_at("end:before-commit")).unwrap_err();
    let error = cure_all(&mut stage, all(), &Faults::none()).unwrap_err();
    assert!(matches!(error, ChangeError::Unfinished { transaction: 1, .. }), "{error}");
}

#[test]
fn a_machine_that_changed_after_the_question_is_left_alone() {
    let mut stage = stage();
    let agreed = planned(&mut stage, all());
    stage.kernel.set(BALANCING, "2\n");
    let again = planned(&mut stage, all());
    let journal = stage.journal();
    let job = CureJob {
        journal: &journal,
        plan: &agreed,
        plan_again: &mut |_| Ok(again.clone()),
        read_back: &mut |_| (0, ()),
        faults: &Faults::none(),
        say: &mut |_| {},
    };
    let error = cure(&mut stage.machine(), job).unwrap_err().to_string();
    assert!(error.contains("the machine changed after these changes were shown"), "{error}");
    assert!(journal.transactions().unwrap().is_empty());
}

#[test]
fn a_failure_takes_all_cures_back() {
    let mut stage = stage();
    stage.kernel.most_pages = 17;
    let before = stage.snapshot();
    let error = cure_all(&mut stage, all(), &Faults::none()).unwrap_err().to_string();
    assert!(error.contains("gave 17 of 20 pages") && error.contains("rolled back"), "{error}");
    assert_eq!(stage.snapshot(), before);
}

#[test]
fn cures_are_looked_at_again_later() {
    let mut stage = stage();
    cure_all(&mut stage, all(), &Faults::none()).unwrap();
    stage.kernel.affinity.borrow_mut().insert(PinTarget::Emulator, cpus("3"));
    let transaction = stage.journal().transactions().unwrap().remove(0);
    assert_eq!(transaction.state, State::Committed { mismatches: 0 });
    let verification = held(&mut stage.machine(), &transaction, std::slice::from_ref(&transaction)).unwrap();
    assert_eq!(
        (verification.mismatches(), verification.untold(), verification.checks.len()),
        (0, 0, 6),
        "{verification}"
    );
    // Somebody turns everything back, in the way the kernel and libvirt show it.
    stage.kernel.set(THP, "[always] madvise never\n");
    stage.kernel.set("/proc/modules", "");
    stage.kernel.set(&format!("{POOL}/nr_hugepages"), "16\n");
    stage.kernel.affinity.borrow_mut().insert(PinTarget::Emulator, cpus("0-3"));
    let edited = stage.snapshot().stored.replace("cache='none'", "cache='writeback'");
    stage.hypervisor.define(&edited).unwrap();
    let verification = held(&mut stage.machine(), &transaction, std::slice::from_ref(&transaction)).unwrap();
    assert_eq!(verification.mismatches(), 5, "{verification}");
    let stored = verification.checks.iter().find(|check| check.kind == CheckKind::StoredDefinition).unwrap();
    assert_eq!(stored.found.as_deref(), Some("without the fix of c-stored"));
    // A guest that was restarted has its pins from its definition.
    stage.reboot();
    let verification = held(&mut stage.machine(), &transaction, std::slice::from_ref(&transaction)).unwrap();
    let pin = verification.checks.iter().find(|check| check.kind == CheckKind::Emulator).unwrap();
    assert!(matches!(pin.outcome, Outcome::CannotTell { .. }), "{pin:?}");
}

#[test]
fn what_a_later_fix_sets_again_is_no_longer_the_earlier_ones() {
    let mut stage = stage();
    for pages in [20, 24] {
        cure_all(&mut stage, vec![finding("a-host", Scope::Host, &[pool(pages)])], &Faults::none()).unwrap();
    }
    let all = stage.journal().transactions().unwrap();
    let alone = held(&mut stage.machine(), &all[0], &all[..1]).unwrap();
    assert_eq!(alone.mismatches(), 1, "{alone}");
    assert!(held(&mut stage.machine(), &all[0], &all).is_none(), "all that it changed was changed again");
    let last = held(&mut stage.machine(), &all[1], &all).unwrap();
    assert_eq!((last.mismatches(), last.checks.len()), (0, 1), "{last}");
}

#[test]
fn what_a_later_definition_has_otherwise_was_decided_anew_and_is_no_longer_the_earlier_fixs() {
    let mut stage = stage();
    let emulator = |pus: &str| {
        finding("d-pin", domain_scope(Which::Defined), &[Cure::attribute("cputune/emulatorpin", "cpuset", pus)])
    };
    let cache = finding("c-stored", domain_scope(Which::Defined), &[cache_none()]);
    for findings in [vec![emulator("3"), cache], vec![emulator("2")], vec![emulator("3")]] {
        cure_all(&mut stage, findings, &Faults::none()).unwrap();
    }
    let all = stage.journal().transactions().unwrap();
    let seen = |stage: &mut Stage, which: usize, of: usize| {
        let found = held(&mut stage.machine(), &all[which], &all[..of])?;
        Some((found.mismatches(), found.checks[0].found.clone().unwrap()))
    };
    assert_eq!(seen(&mut stage, 0, 3), Some((0, "as cured".to_owned())), "the last has both");
    assert_eq!(seen(&mut stage, 1, 3), None, "all that it set was set again");
    // The same with a definition that has the emulator thread elsewhere.
    let elsewhere = stage.snapshot().stored.replace("<emulatorpin cpuset='3'/>", "<emulatorpin cpuset='2'/>");
    stage.hypervisor.define(&elsewhere).unwrap();
    assert_eq!(seen(&mut stage, 0, 2), Some((0, "as cured".to_owned())), "the second decided on the emulator thread");
    let undone = stage.snapshot().stored.replace("cache='none'", "cache='writeback'");
    stage.hypervisor.define(&undone).unwrap();
    assert_eq!(seen(&mut stage, 0, 2), Some((1, "without the fix of c-stored".to_owned())));
}

#[test]
fn a_pin_is_not_set_again_by_another_fix_of_its_guest() {
    let mut stage = stage();
    cure_all(&mut stage, all(), &Faults::none()).unwrap();
    cure_all(&mut stage, vec![finding("a-host", Scope::Host, &[pool(24)])], &Faults::none()).unwrap();
    let all = stage.journal().transactions().unwrap();
    let mut later = all[1].clone();
    let of_the_guest = |step: &&crate::journal::Step| matches!(step.change, Change::DefineDomain { .. });
    later.steps.extend(all[0].steps.iter().find(of_the_guest).cloned());
    let found = held(&mut stage.machine(), &all[0], &[all[0].clone(), later]).unwrap();
    let has = |kind| found.checks.iter().any(|check| check.kind == kind);
    assert!(has(CheckKind::Emulator) && has(CheckKind::StoredDefinition) && !has(CheckKind::Pool), "{found}");
}

#[test]
fn journals_of_plans_written_before_there_were_cures_still_load() {
    let mut stage = Stage::new();
    stage.apply(&plan_file(), &with_restart(), &Faults::none()).unwrap();
    let path = stage.journal().state_directory().join("journal/0001.jsonl");
    let text = nearmetal_host::files::read_to_string(&path).unwrap();
    let header: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    // What version 0.1.0 wrote: these fields and no other.
    let fields: Vec<&str> = header.as_object().unwrap().keys().map(String::as_str).collect();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["boot_id", "host", "nearmetal", "plan", "record", "schema", "started", "transaction"]);
    let transaction = stage.journal().transactions().unwrap().remove(0);
    assert_eq!(transaction.header.purpose, Purpose::Plan(Box::new(plan_file_of(&transaction))));
    assert!(transaction.plan_of("web1").is_some() && transaction.plan_of("db").is_none());
    // Cures come after it, and the plan is still the domain's plan.
    cure_all(&mut stage, vec![finding("a-host", Scope::Host, &[balancing("0")])], &Faults::none()).unwrap();
    assert_eq!(stage.journal().plan_in_force("web1").unwrap(), transaction.plan_of("web1").cloned());
    assert!(held(&mut stage.machine(), &transaction, std::slice::from_ref(&transaction)).is_none());
    stage.rollback(&RollbackOptions::default(), &Faults::none()).unwrap();
    stage.rollback(&back_with_restart(), &Faults::none()).unwrap();
    assert_eq!(stage.snapshot(), Stage::new().snapshot());
}

fn plan_file_of(transaction: &crate::journal::Transaction) -> PlanFile {
    PlanFile { created: transaction.header.purpose.plan().unwrap().created.clone(), ..plan_file() }
}

#[test]
fn edits_as_data_survive_the_journal() {
    let edits = [
        DefinitionEdit::Ensure { at: "memoryBacking/locked".to_owned() },
        DefinitionEdit::Remove { at: "devices/sound".to_owned() },
        DefinitionEdit::SetText { at: "iothreads".to_owned(), text: "1".to_owned() },
    ];
    let cures: Vec<Cure> = edits.into_iter().map(Cure::Definition).chain([pool(20), pin("3"), module()]).collect();
    let mut stage = stage();
    let findings = vec![finding("c-stored", domain_scope(Which::Both), &cures)];
    cure_all(&mut stage, findings, &Faults::none()).unwrap();
    let transaction = stage.journal().transactions().unwrap().remove(0);
    assert_eq!(transaction.header.purpose.cures().unwrap().objects[0].cures, cures);
}
