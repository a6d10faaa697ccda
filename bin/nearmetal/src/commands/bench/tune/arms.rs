//! The plans that race: composed by the planner itself, a factor at a time and in a fraction of all.

use std::collections::BTreeMap;

use nearmetal_change::{Beside, ChangeError, DomainInput, PlanFile, compose, follow_rules};
use nearmetal_host::Host;
use nearmetal_measure::{LeftOut, PLANNED, TuneArm, TuneFactor};
use nearmetal_place::{Choices, DiskEngine, GuestRequest, Measured, MeasuredGuest, Occupied, Pins, Placement, Policy};
use nearmetal_rules::Domain;
use nearmetal_stats::Fraction;

use crate::commands::plan::{Found, for_the_rules, request};
use crate::guest_profile::Denied;

/// The words of the factors, as `--without` takes them, and what each decides.
pub(super) const FACTORS: [(&str, &str); 4] = [
    ("pages", "huge pages of a pool, or the kernel's own"),
    ("pins", "a PU for each vCPU, the PUs of its node for all, or floating"),
    ("engine", "io_uring, Linux AIO or threads, with cache none"),
    ("iothread", "an iothread with a PU of its own, or QEMU's main loop"),
];

/// One VM on this machine, as the planner is asked for it.
pub(super) struct Ground {
    host: Host,
    told: Host,
    occupied: Occupied,
    request: GuestRequest,
    input: DomainInput,
    beside: BTreeMap<String, Beside>,
    neighbours: Vec<Domain>,
    denied: Option<Denied>,
}

/// Turns choices to a factor's other level; the engine is that of the machine.
type Turn = fn(&mut Choices, Option<DiskEngine>);

/// What races, and each plan as a file.
pub(super) struct Arms {
    pub(super) factors: Vec<TuneFactor>,
    pub(super) arms: Vec<TuneArm>,
    pub(super) plans: Vec<PlanFile>,
    pub(super) left_out: Vec<LeftOut>,
}

impl Arms {
    /// Where the rules put the VM.
    pub(super) fn placement(&self, guest: &str) -> Option<&Placement> {
        self.plans.first()?.placement(guest)
    }
}

impl Ground {
    /// The machine as it is, and a domain of libvirt's.
    pub(super) fn of(host: Host, found: Found) -> Result<Option<Self>, ChangeError> {
        let Found { inputs, neighbours, versions, denied } = found;
        let Some(input) = inputs.first().cloned() else { return Ok(None) };
        let request = request(None, &host, &input)?;
        let occupied = Occupied::from_guests(&host, &[request.uuid.as_str()]);
        let (told, beside) = for_the_rules(None, true, host.clone(), &inputs, versions)?;
        Ok(Some(Self { host, told, occupied, request, input, beside, neighbours, denied }))
    }

    /// The plan with these choices, or by rule. `Ok(Err(why))` where the planner has none.
    fn plan(&self, choices: Option<Choices>) -> Result<Result<PlanFile, String>, ChangeError> {
        let disk = disk_of(&self.request).unwrap_or_default();
        let guests = choices.map(|choices| MeasuredGuest {
            guest: self.request.name.clone(),
            choices,
            disk: disk.clone(),
            because: "an arm of `nearmetal tune`, which measured it against the others on this machine".to_owned(),
        });
        let measured = Measured { guests: guests.into_iter().collect(), ..Measured::default() };
        let mut requests = [self.request.clone()];
        measured.expect_in(&mut requests);
        let policy = Policy::default();
        let mut planned = nearmetal_place::plan_tuned(&self.host, &self.occupied, &requests, &policy, &measured.guests);
        if let Some(denied) = &self.denied {
            denied.block(&mut planned.plan);
        }
        if let Some(blocked) = planned.plan.blocked.first() {
            return Ok(Err(format!("{}: {}", blocked.problem, blocked.remedy)));
        }
        nearmetal_place::use_measured(&self.host, &mut planned.plan, &measured);
        let mut file = compose(&self.host, &planned.plan, std::slice::from_ref(&self.input))?;
        follow_rules(&mut file, &self.told, &self.beside, &self.neighbours)?;
        Ok(Ok(file))
    }

    /// Every plan that is to race. `without`: words of factors that are left out.
    ///
    /// # Errors
    /// In words why there is nothing to tune; a definition that cannot be composed.
    pub(super) fn arms(&self, without: &[String]) -> Result<Result<Arms, String>, ChangeError> {
        let rule = match self.plan(None)? {
            Ok(plan) => plan,
            Err(why) => return Ok(Err(format!("it does not fit: {why}"))),
        };
        let Some(placement) = rule.placement(&self.request.name) else {
            return Ok(Err("the planner did not place it".to_owned()));
        };
        if placement.is_floating() {
            return Ok(Err("its class is density, so its plan decides nothing that could be tuned".to_owned()));
        }
        let target = disk_of(&self.request);
        let disk = placement.disks.iter().find(|disk| Some(&disk.target) == target.as_ref());
        let Some(disk) = disk else {
            return Ok(Err("it has no writable virtio disk with storage on this host to measure".to_owned()));
        };
        let by_rule = Choices {
            pins: Pins::Pu,
            huge: placement.memory.page_size.is_some(),
            engine: Some(disk.engine),
            iothread: disk.iothread.is_some(),
        };
        let xml_of = |file: &PlanFile| file.domains.first().map(|change| change.xml_after.clone()).unwrap_or_default();
        let (rule_xml, mut left_out) = (xml_of(&rule), standing_left_out());
        let mut leave = |what: &str, why: String| left_out.push(LeftOut { what: what.to_owned(), why });
        // Each factor alone first: one that the planner refuses, or that changes nothing, is none.
        let mut factors: Vec<(TuneFactor, Turn)> = Vec::new();
        let other = other_engine(&self.host, &self.request, disk.engine);
        for (id, levels, turn) in self.possible(by_rule, other) {
            if without.iter().any(|word| word == id) {
                leave(id, "--without".to_owned());
                continue;
            }
            let Some(levels) = levels else {
                leave(id, why_none(id, &self.host));
                continue;
            };
            let mut choices = by_rule;
            turn(&mut choices, other);
            match self.plan(Some(choices))? {
                Err(why) => leave(id, why),
                Ok(file) if xml_of(&file) == rule_xml => {
                    leave(id, "its two levels are the same on this machine".to_owned())
                }
                Ok(_) => factors.push((TuneFactor { id: id.to_owned(), levels }, turn)),
            }
        }
        let Ok(fraction) = Fraction::of(factors.len()) else { return Ok(Err("too many factors".to_owned())) };
        let mut arms = vec![TuneArm {
            id: PLANNED.to_owned(),
            title: format!("by rule: {}", by_rule.words()),
            description: "the domain as the rules plan it".to_owned(),
            xml: rule_xml,
            levels: Some(vec![false; factors.len()]),
        }];
        let mut plans = vec![rule];
        for levels in &fraction.runs()[1..] {
            let mut choices = by_rule;
            factors
                .iter()
                .zip(levels)
                .filter(|(_, is_other)| **is_other)
                .for_each(|((_, turn), _)| turn(&mut choices, other));
            match self.plan(Some(choices))? {
                Err(why) => return Ok(Err(format!("{} does not fit: {why}", choices.words()))),
                Ok(file) => {
                    arms.push(arm(choices, xml_of(&file), Some(levels.clone())));
                    plans.push(file);
                }
            }
        }
        // Levels beyond two, each with everything else as by rule.
        let mut beside = Vec::new();
        let has = |id: &str| !without.iter().any(|word| word == id);
        if has("pins") {
            beside.push(Choices::FLOAT);
        }
        if has("engine") {
            let engines = engines(&self.host, &self.request).into_iter();
            let third = engines.filter(|engine| Some(*engine) != by_rule.engine && Some(*engine) != other);
            beside.extend(third.map(|engine| Choices { engine: Some(engine), ..by_rule }));
        }
        for choices in beside {
            match self.plan(Some(choices))? {
                Err(why) => leave(&choices.words(), why),
                Ok(file) => {
                    arms.push(arm(choices, xml_of(&file), None));
                    plans.push(file);
                }
            }
        }
        Ok(Ok(Arms { factors: factors.into_iter().map(|(factor, _)| factor).collect(), arms, plans, left_out }))
    }

    /// The factors: word, the rule's level and the other one, and how choices are turned to that; no levels where the machine
    /// has but one.
    fn possible(&self, by_rule: Choices, other: Option<DiskEngine>) -> [(&'static str, Option<[String; 2]>, Turn); 4] {
        let words = |one: &str, two: &str| Some([one.to_owned(), two.to_owned()]);
        let engine = by_rule.engine.zip(other).map(|(rule, other)| [rule.name().to_owned(), other.name().to_owned()]);
        [
            ("pages", by_rule.huge.then(|| words("huge", "small")).flatten(), |choices, _| choices.huge = false),
            ("pins", words("a PU each", "the node's PUs"), |choices, _| choices.pins = Pins::Node),
            ("engine", engine, |choices, other| choices.engine = other),
            ("iothread", by_rule.iothread.then(|| words("iothread", "main loop")).flatten(), |choices, _| {
                choices.iothread = false;
            }),
        ]
    }
}

fn arm(choices: Choices, xml: String, levels: Option<Vec<bool>>) -> TuneArm {
    let title = choices.words();
    TuneArm { id: choices.to_string(), description: format!("planned with {title}"), title, xml, levels }
}

/// The disk that is measured: the first writable virtio disk.
fn disk_of(request: &GuestRequest) -> Option<String> {
    let disk = request.disks.iter().find(|disk| disk.is_virtio_blk && !disk.is_read_only);
    disk.map(|disk| disk.target.clone())
}

/// Engines that the kernel lets QEMU use, best first by rule.
fn engines(host: &Host, request: &GuestRequest) -> Vec<DiskEngine> {
    let mut engines = Vec::new();
    if host.system.io_uring_disabled.is_none_or(|value| value == 0) {
        engines.push(DiskEngine::IoUring);
    }
    let is_block =
        request.disks.iter().find(|disk| disk.is_virtio_blk && !disk.is_read_only).is_some_and(|disk| disk.is_block);
    // On a file that is not allocated yet, Linux AIO blocks: correctness of its speed is no matter of taste there.
    if is_block {
        engines.push(DiskEngine::Native);
    }
    engines.push(DiskEngine::Threads);
    engines
}

fn other_engine(host: &Host, request: &GuestRequest, rule: DiskEngine) -> Option<DiskEngine> {
    engines(host, request).into_iter().find(|engine| *engine != rule)
}

fn why_none(id: &str, host: &Host) -> String {
    match id {
        "pages" => "the rules plan no huge pages here: no node has a pool of 2 MiB pages with room".to_owned(),
        "engine" => format!(
            "one engine is left: io_uring_disabled is {}",
            host.system.io_uring_disabled.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
        ),
        _ => "the rules plan none here".to_owned(),
    }
}

/// What a plan could decide and no tune measures yet.
fn standing_left_out() -> Vec<LeftOut> {
    let one = |what: &str, why: &str| LeftOut { what: what.to_owned(), why: why.to_owned() };
    vec![
        one(
            "cache modes other than none",
            "the rules decide: a second copy in the host's memory; `bench disk race` measures them",
        ),
        one("halt polling", "a setting of the whole host, which no plan of one VM makes"),
        one("emulator PU, siblings, guest cells", "the planner composes one way of each"),
        one("network", "the load works on the disk; `bench net race` measures ways to the network"),
    ]
}
