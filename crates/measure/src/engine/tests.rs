//! Compositions on a hypervisor in memory: loads, paths and designs that never met in an experiment do work together, and
//! give back what they took wherever they die.

mod clones;
mod rounds;
mod samples;
mod session;

use std::sync::{Arc, Mutex};

use nearmetal_host::{Entry, HostFs, MemoryTree};
use nearmetal_hypervisor::{Effect, Fake, Hypervisor, HypervisorError};
use nearmetal_load::{FioJob, Workload};
use nearmetal_results::{ArmName, Environment, Run, Slice, Store};
use nearmetal_stats::{Race, doubling_looks};
use nearmetal_units::{Bytes, CpuSet, NodeSet};
use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};

use super::*;
use crate::barrier::{lead, now};
use crate::conditions::Conditions;
use crate::error::MeasureError;
use crate::finish::{Request, in_a_session};
use crate::leftovers::Leftovers;
use crate::program::scripted;

const ORIGINAL: &str = "web1";

/// What is composed: how many tenants, and which design.
#[derive(Debug, Clone, Copy, Serialize)]
struct Composition {
    tenants: usize,
    design: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
enum Kind {
    /// Pairs whose guests are booted afresh before every round.
    Pairs,
    Scaling,
    Race,
}

impl Composition {
    const ALL: [Self; 5] = [
        Self { tenants: 1, design: Kind::Pairs },
        Self { tenants: 3, design: Kind::Pairs },
        Self { tenants: 1, design: Kind::Scaling },
        Self { tenants: 3, design: Kind::Scaling },
        Self { tenants: 1, design: Kind::Race },
    ];

    fn design(self) -> Box<dyn Design> {
        let workload: Workload = FioJob::first_seed(Bytes::from_kib(4), 3, 1).into();
        match self.design {
            Kind::Pairs => Box::new(Pairs::new(Plan {
                arms: arms(),
                counts: vec![1],
                ceiling: None,
                whole_or_nothing: false,
                paired: vec![workload],
                rounds: 3,
                resolve: None,
                same_arm: vec![0],
                same_arm_pairs: 2,
                single_shot: vec![],
                fresh: Fresh::Round,
                reasons: false,
                accesses: 0,
                offers: false,
                accesses_in: Vec::new(),
                seed: 7,
            })),
            Kind::Scaling => Box::new(Pairs::new(Plan {
                arms: arms(),
                counts: (1..=self.tenants).collect(),
                paired: vec![workload],
                rounds: 2,
                resolve: None,
                same_arm: vec![1],
                same_arm_pairs: 2,
                single_shot: vec![],
                ceiling: None,
                fresh: Fresh::No,
                whole_or_nothing: true,
                reasons: false,
                accesses: 0,
                offers: false,
                accesses_in: Vec::new(),
                seed: 7,
            })),
            Kind::Race => {
                let race = Race::new(&[true, true], 0, 0.05, &doubling_looks(2, 2)).unwrap();
                let running = arms().into_iter().enumerate().map(|(place, arm)| (place, arm.id)).collect();
                Box::new(Racing::new(race, running, workload, 1e6, 7))
            }
        }
    }
}

fn arms() -> Vec<ArmName> {
    vec![ArmName::bare_slice(), ArmName::planned()]
}

/// A path that none of the experiments has: clones of all tenants, booted for the arm that has them.
struct TestPath(Vec<Guest>);

impl Path for TestPath {
    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        match arm {
            0 => Seat::bare("/dev/x"),
            _ => Seat::guest(&self.0[tenant].name, &self.0[tenant].device),
        }
    }

    fn refresh(&mut self, _: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.0.iter().try_for_each(|guest| session.end(&guest.name).and_then(|()| session.boot_paused(guest)))
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let guests = if step.arm == 0 { &[][..] } else { &self.0[..step.count] };
        guests.iter().try_fold(false, |any, guest| Ok(restart_if_dead(guest, session)? || any))
    }
}

/// A composition, asked for.
#[derive(Serialize)]
struct Composed {
    composition: Composition,
    conditions: Conditions,
}

impl Request for Composed {
    type Outcome = Vec<Run>;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![ORIGINAL.to_owned()]
    }

    fn measure(&self, session: &mut Session<'_>) -> Result<Vec<Run>, MeasureError> {
        let names: Vec<String> = (0..self.composition.tenants).map(|tenant| format!("nearmetal-{tenant}")).collect();
        let guest = |name: &String| Guest { name: name.clone(), xml: domain(name), device: "/dev/vdb".into() };
        let mut path = TestPath(names.iter().map(guest).collect());
        let tenants = names.iter().map(|name| Tenant::new(name, slice())).collect();
        let journal = nearmetal_change::Journal::at(&self.conditions.state);
        let second = journal.lock_to_measure();
        assert!(
            matches!(second, Err(nearmetal_change::ChangeError::Busy { .. })),
            "whoever watches could not see that this measures"
        );
        session.pause_original(ORIGINAL)?;
        session.will_clone(names)?;
        path.refresh(&[1], session)?;
        let mut subject = Subject { arms: arms(), tenants, path: &mut path, least_overlap: 0.8 };
        carry_out(self.composition.design().as_mut(), &mut subject, session)
    }
}

/// What fio says on either side: the guests do nine tenths.
fn fio(rate: u32) -> String {
    let began = now() / 1_000_000;
    let half = |rate: u32| json!({"iops": rate, "bw_bytes": rate * 4096, "total_ios": rate * 3});
    json!({"jobs": [{"error": 0, "job_start": began, "job_runtime": 60_000, "read": half(rate), "write": half(0)}]})
        .to_string()
}

/// A load that was started.
#[derive(Debug)]
struct Told {
    words: Vec<String>,
    /// ns since 1970.
    at: i128,
}

impl Told {
    /// The moment it waits for, in ns since 1970; `None`: it begins at once.
    fn moment(&self) -> Option<i128> {
        let option = self.words.iter().position(|word| word == "--nanoseconds")?;
        Some(self.words[option + 1].parse().unwrap())
    }

    fn seed(&self) -> u64 {
        self.words.iter().find_map(|word| word.strip_prefix("--randseed=")).unwrap().parse().unwrap()
    }
}

/// One machine: a running original, a kernel, and programs that were run in guests.
struct Machine {
    fake: Fake,
    fs: HostFs,
    state: tempfile::TempDir,
    executed: Arc<Mutex<u32>>,
    /// Every load, on either side, in the order in which they were started.
    told: Arc<Mutex<Vec<Told>>>,
}

impl Machine {
    fn new() -> Self {
        Self::with_files(&[])
    }

    /// Its kernel has these files, too.
    fn with_files(files: &[(&str, &str)]) -> Self {
        let mut tree = MemoryTree::new();
        let always = [
            ("/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000000\n"),
            ("/proc/sys/kernel/osrelease", "6.12.41\n"),
        ];
        for (path, text) in always.iter().chain(files) {
            tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
        }
        let mut fake = Fake::new("").with_running_domain(&domain(ORIGINAL));
        let executed = Arc::new(Mutex::new(0));
        let count = Arc::clone(&executed);
        let told: Arc<Mutex<Vec<Told>>> = Arc::default();
        let tell = |told: &Mutex<Vec<Told>>, words: Vec<String>| {
            // fio, and the program that walks memory.
            if words.iter().any(|word| word.contains("output-format") || word == "work") {
                told.lock().unwrap().push(Told { words, at: now() });
            }
        };
        let (in_guests, on_the_host) = (Arc::clone(&told), Arc::clone(&told));
        fake.on_agent(move |_, command| {
            Ok(match command["execute"].as_str().unwrap() {
                "guest-get-time" => json!(now() as i64),
                "guest-exec" => {
                    *count.lock().unwrap() += u32::from(command.to_string().contains("output-format"));
                    let arguments = &command["arguments"];
                    let rest: Vec<String> = serde_json::from_value(arguments["arg"].clone()).unwrap();
                    let program = arguments["path"].as_str().unwrap().to_owned();
                    tell(&in_guests, std::iter::once(program).chain(rest).collect());
                    json!({"pid": 77})
                }
                "guest-exec-status" => json!({"exited": true, "exitcode": 0, "out-data": base64(&fio(900))}),
                _ => json!({}),
            })
        });
        scripted::play(move |words, _| {
            tell(&on_the_host, words.to_vec());
            Ok(fio(1000))
        });
        Self { fake, fs: HostFs::of_tree(tree, "a machine"), state: tempfile::tempdir().unwrap(), executed, told }
    }

    fn store(&self) -> Store {
        Store::open(&self.state.path().join("results.sqlite")).unwrap()
    }

    fn conditions(&self) -> Conditions {
        Conditions {
            seed: 7,
            appliance: "/appliance".into(),
            probe: "/probe".into(),
            state: self.state.path().to_owned(),
            guest_files: "".into(),
            loads: None,
            kit: None,
            environment: Environment::Lab { machine: "quad".into() },
            pause: true,
            store: Some(self.state.path().join("results.sqlite")),
            plan: None,
            resume: None,
            stop: crate::Stop::default(),
        }
    }

    fn measure(&mut self, composition: Composition, resume: Option<i64>) -> Result<Vec<Run>, MeasureError> {
        let conditions = Conditions { resume, ..self.conditions() };
        let site = Site { fs: &self.fs, hypervisor: &mut self.fake, tell: &mut |_| {} };
        in_a_session("test", &Composed { composition, conditions }, site)
    }

    /// What the next measurement, or `nearmetal rollback`, does after one that was killed.
    fn take_back(&mut self) {
        if let Some(old) = Leftovers::load(self.state.path(), &self.fs).unwrap() {
            old.clean_up(&self.fs, &mut self.fake).unwrap();
        }
    }

    /// Only the original is there, and it runs.
    fn is_as_before(&mut self) -> bool {
        let domains = self.fake.domains().unwrap();
        let original = domains.iter().find(|domain| domain.name == ORIGINAL);
        domains.len() == 1 && original.is_some_and(|domain| domain.state == nearmetal_hypervisor::DomainState::Running)
    }
}

/// Does this in a session on that machine.
fn in_session<T>(
    machine: &mut Machine,
    experiment: impl FnOnce(&mut Session<'_>) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    let conditions = machine.conditions();
    let site = Site { fs: &machine.fs, hypervisor: &mut machine.fake, tell: &mut |_| {} };
    Session::run(&conditions, site, experiment)
}

fn domain(name: &str) -> String {
    format!("<domain type='kvm'><name>{name}</name></domain>")
}

fn slice() -> Slice {
    Slice {
        cpus: CpuSet::one(1),
        nodes: NodeSet::one(0),
        page_size: None,
        device: "/dev/x".into(),
        region: Bytes::from_mib(1),
        cpus_on_top: CpuSet::new(),
    }
}

fn base64(text: &str) -> Value {
    use base64::Engine as _;
    Value::String(base64::engine::general_purpose::STANDARD.encode(text))
}

/// What a run was, without when.
fn order(runs: &[Run]) -> Vec<(u32, u32, String, usize, u64)> {
    runs.iter().map(|run| (run.round, run.position, run.arm.clone(), run.count, run.seed)).collect()
}

fn broken() -> HypervisorError {
    HypervisorError::HelperMissing { path: "x".into(), reason: "the connection is gone".into() }
}

#[test]
fn every_composition_measures_all_it_designed_and_leaves_nothing() {
    for composition in Composition::ALL {
        let mut machine = Machine::new();
        let runs = machine.measure(composition, None).unwrap();
        assert!(runs.iter().all(|run| run.failure().is_none()), "{composition:?}: {:?}", runs[0].failure());
        let rate = |run: &Run| run.value("iops").unwrap().value;
        for run in &runs {
            let each = if run.arm == "planned" { 900.0 } else { 1000.0 };
            assert_eq!(rate(run), each * run.count as f64, "the rates of all tenants add up: {composition:?}");
            assert_eq!(run.together.as_ref().map_or(1, |together| together.parts.len()), run.count);
        }
        assert!(machine.is_as_before(), "{composition:?}: {:?}", machine.fake);
    }
}

#[test]
fn the_right_to_measure_is_given_back_whatever_came_of_the_measurement() {
    let composition = Composition::ALL[0];
    let mut machine = Machine::new();
    machine.measure(composition, None).unwrap();
    let journal = nearmetal_change::Journal::at(machine.state.path());
    drop(journal.lock_to_measure().unwrap());
    machine.fake.fail_when(Effect::Nothing, broken(), |_, _| true);
    machine.measure(composition, None).unwrap_err();
    let measuring = journal.lock_to_measure().unwrap();
    machine.fake.clear_faults();
    let refused = machine.measure(composition, None).unwrap_err().to_string();
    assert!(refused.contains(&format!("process {} measures right now", std::process::id())), "{refused}");
    drop(measuring);
}

#[test]
fn tenants_of_a_sample_begin_at_one_moment_and_a_single_one_waits_for_nobody() {
    let mut machine = Machine::new();
    let runs = machine.measure(Composition { tenants: 3, design: Kind::Scaling }, None).unwrap();
    let told = machine.told.lock().unwrap();
    let mut rest = &told[..];
    for run in &runs {
        let (own, others) = rest.split_at(run.count);
        rest = others;
        let seeds: Vec<u64> = own.iter().map(Told::seed).collect();
        assert_eq!(
            seeds,
            (run.seed..run.seed + run.count as u64).collect::<Vec<_>>(),
            "no two ask for the same blocks"
        );
        let moments: Vec<i128> = own.iter().filter_map(Told::moment).collect();
        if run.count == 1 {
            assert!(moments.is_empty(), "{own:?}");
            continue;
        }
        assert_eq!(moments.len(), run.count, "{own:?}");
        // Clocks of guests are known to half of the time that an answer takes, which is little here.
        let (second, lead) = (1_000_000_000, lead(run.count).as_nanos() as i128);
        assert!(moments.iter().all(|moment| (moment - moments[0]).abs() < second), "{own:?}");
        let early = |told: &Told, moment: i128| told.at < moment && moment < told.at + lead + second;
        assert!(own.iter().zip(&moments).all(|(told, moment)| early(told, *moment)), "{own:?}");
    }
    assert!(rest.is_empty() && runs.iter().any(|run| run.count == 3), "{rest:?}");
}

#[test]
fn a_clone_that_hangs_at_its_first_boot_is_booted_again() {
    let composition = Composition { tenants: 1, design: Kind::Scaling };
    let expected = order(&Machine::new().measure(composition, None).unwrap());
    let mut machine = Machine::new();
    let silent = HypervisorError::AgentNotResponding { name: "nearmetal-0".into(), reason: "it hangs".into() };
    let mut boots = 0;
    machine.fake.fail_when(Effect::Nothing, silent, move |_, request| {
        boots += u32::from(request.action() == "create");
        boots < 2 && request.action() == "ask the guest agent of"
    });
    let runs = machine.measure(composition, None).unwrap();
    assert_eq!(order(&runs), expected);
    assert!(runs.iter().all(|run| run.failure().is_none()), "it had measured nothing yet, so nothing failed");
    assert!(machine.is_as_before());
}

#[test]
fn a_clone_that_cannot_be_ended_ends_the_measurement_unless_it_is_gone() {
    let composition = Composition::ALL[0];
    for is_there in [false, true] {
        let mut machine = Machine::new();
        let mut boots = 0;
        // Before the first boot there is none, and libvirt may say anything of it.
        machine.fake.fail_when(Effect::Nothing, broken(), move |_, request| {
            boots += u32::from(request.action() == "create");
            (boots > 0) == is_there && request.action() == "destroy"
        });
        let came = machine.measure(composition, None);
        match is_there {
            false => assert!(came.is_ok(), "{came:?}"),
            true => {
                let error = chain(&came.unwrap_err());
                assert!(error.contains("`nearmetal-0`") && error.contains("the connection is gone"), "{error}");
            }
        }
        machine.fake.clear_faults();
        machine.take_back();
        assert!(machine.is_as_before());
    }
}

/// A guest whose agent fails at one request is no verdict on its arm: its step is tried again, in every composition.
#[test]
fn a_step_that_fails_once_is_tried_again_and_its_run_stays_beside_the_other() {
    for composition in Composition::ALL {
        let expected = order(&Machine::new().measure(composition, None).unwrap());
        let mut machine = Machine::new();
        let mut seen = 0;
        machine.fake.fail_when(Effect::Nothing, broken(), move |_, request| {
            let starts = format!("{request:?}").contains("output-format");
            seen += u32::from(starts);
            starts && seen == 2
        });
        let runs = machine.measure(composition, None).unwrap();
        let failed: Vec<&Run> = runs.iter().filter(|run| run.failure().is_some()).collect();
        assert_eq!(failed.len(), 1, "{composition:?}");
        let good: Vec<Run> = runs.iter().filter(|run| run.failure().is_none()).cloned().collect();
        assert_eq!(order(&good), expected, "{composition:?}");
        assert!(machine.is_as_before(), "{composition:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// libvirt goes away at any request, for good, as it does for a process that is killed there: nothing is put back
    /// by the process itself. The record of what it took is enough to do so, and the measurement goes on where it was.
    #[test]
    fn one_that_dies_anywhere_leaves_nothing_and_goes_on_with_the_same_order(which in 0usize..5, part in 0.0f64..1.0) {
        let composition = Composition::ALL[which];
        let mut whole = Machine::new();
        let expected = order(&whole.measure(composition, None).unwrap());
        let (calls, programs) = (whole.fake.calls().len(), *whole.executed.lock().unwrap());

        let mut machine = Machine::new();
        let last = 2 + (part * (calls - 2) as f64) as usize;
        machine.fake.fail_when(Effect::Nothing, broken(), move |number, _| number >= last);
        prop_assert!(machine.measure(composition, None).is_err());
        machine.fake.clear_faults();
        machine.take_back();
        prop_assert!(machine.is_as_before(), "died at {} of {}: {:?}", last, calls, machine.fake);

        let begun = machine.store().entries(None).unwrap();
        let Some(entry) = begun.first() else { return Ok(()) };
        let before = *machine.executed.lock().unwrap();
        let runs = machine.measure(composition, Some(entry.id)).unwrap();
        // A step may be there twice, failed and tried again, and none is left out or was never designed.
        let made = order(&runs);
        prop_assert!(made.iter().all(|step| expected.contains(step)), "{:?} and {:?}", made, expected);
        prop_assert!(expected.iter().all(|step| made.contains(step)), "{:?} and {:?}", made, expected);
        let again = *machine.executed.lock().unwrap() - before;
        prop_assert!(again <= programs, "{} programs in guests, {} for all of it", again, programs);
        prop_assert!(machine.is_as_before());
    }
}
