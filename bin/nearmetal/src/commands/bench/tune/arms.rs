//! The plans that race: composed by the planner itself, a factor at a time and in a fraction of all.

use std::collections::BTreeMap;

use nearmetal_change::{Beside, ChangeError, DomainInput, PlanFile, compose, follow_rules};
use nearmetal_domain::DomainXml;
use nearmetal_host::Host;
use nearmetal_measure::TuneArm;
use nearmetal_place::{Choices, GuestRequest, Measured, MeasuredGuest, Occupied, Pins, Placement, Policy};
use nearmetal_results::{AloneFactor, LeftOut, PLANNED, TuneFactor};
use nearmetal_rules::Domain;
use nearmetal_stats::Fraction;
use nearmetal_units::{CpuSet, NodeSet};

use super::factors::{FACTORS, Factor, Situation, Turn, disk_of, engines, other_engine, standing_left_out};
use crate::commands::plan::{Found, for_the_rules, request};
use crate::guest_profile::Denied;

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
    /// Whether the VM itself runs a command.
    is_itself: bool,
}

/// Factors that are always crossed: of the first four, all combinations differ.
pub(super) const CROSSED: usize = 4;

/// What races, and each plan as a file.
pub(super) struct Arms {
    pub(super) factors: Vec<TuneFactor>,
    /// Factors that are not in the fraction, for want of time.
    pub(super) alone: Vec<AloneFactor>,
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
    /// The machine as it is, and a domain of libvirt's. `is_itself`: it will run a command itself, with its own interfaces.
    pub(super) fn of(host: Host, found: Found, is_itself: bool) -> Result<Option<Self>, ChangeError> {
        let Found { inputs, neighbours, versions, denied } = found;
        let Some(input) = inputs.first().cloned() else { return Ok(None) };
        let request = request(None, &host, &input)?;
        let occupied = Occupied::from_guests(&host, &[request.uuid.as_str()]);
        let (told, beside) = for_the_rules(None, true, host.clone(), &inputs, versions)?;
        Ok(Some(Self { host, told, occupied, request, input, beside, neighbours, denied, is_itself }))
    }

    /// The plan with these choices, or by rule. `Ok(Err(why))` where the planner has none.
    fn plan(&self, choices: Option<Choices>) -> Result<Result<PlanFile, String>, ChangeError> {
        let disk = disk_of(&self.request).unwrap_or_default();
        let guests = choices.map(|choices| MeasuredGuest {
            guest: self.request.name.clone(),
            choices,
            disk: disk.clone(),
            has_raced_queues: true,
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

    /// The two levels of a factor, or why it has but one here. `rule`: definition and nodes of the plan by rule.
    fn levels(
        &self,
        factor: &Factor,
        without: &[String],
        here: &Situation<'_>,
        (rule_xml, rule_nodes): (&str, &NodeSet),
    ) -> Result<Result<[String; 2], String>, ChangeError> {
        if without.iter().any(|word| word == factor.id) {
            return Ok(Err("--without".to_owned()));
        }
        let levels = match (factor.levels)(here) {
            Ok(levels) => levels,
            Err(why) => return Ok(Err(why)),
        };
        let file = match self.plan(Some((factor.turn)(here.by_rule, here)))? {
            Ok(file) => file,
            Err(why) => return Ok(Err(why)),
        };
        let Some(placement) = file.placement(&self.request.name) else {
            return Ok(Err("the planner did not place it".to_owned()));
        };
        if xml_of(&file) == rule_xml {
            // The planner says of what was asked for and is not there why that is so.
            let said = placement.reasons.iter().find(|reason| Some(reason.subject.as_str()) == factor.subject);
            let same = "its two levels are the same on this machine";
            return Ok(Err(said.map_or(same, |reason| reason.because.as_str()).to_owned()));
        }
        let nodes = nodes_of(&self.host, placement);
        Ok(match nodes == *rule_nodes {
            true => Ok(levels),
            false => Err(format!(
                "it takes nodes {nodes}, and the plan by rule nodes {rule_nodes}: what differs would be the nodes"
            )),
        })
    }

    /// Every plan that is to race. `without`: words of factors that are left out. `crossed`: how many factors go into the fraction,
    /// the first ones; of those beyond, and of nested ones, the other level races alone, with all else as by rule.
    ///
    /// # Errors
    /// In words why there is nothing to tune; a definition that cannot be composed.
    pub(super) fn arms(&self, without: &[String], crossed: usize) -> Result<Result<Arms, String>, ChangeError> {
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
        let by_rule =
            Choices::new(Pins::Pu, placement.memory.page_size.is_some(), Some(disk.engine), disk.iothread.is_some());
        let (rule_xml, mut left_out) = (xml_of(&rule).to_owned(), standing_left_out());
        let mut leave = |what: &str, why: String| left_out.push(LeftOut { what: what.to_owned(), why });
        let other = other_engine(&self.host, &self.request, disk.engine);
        let malformed = |problem: String| ChangeError::Compose { domain: self.request.name.clone(), problem };
        let xml = DomainXml::parse(&rule_xml).map_err(|error| malformed(error.to_string()))?;
        let facts = xml.facts().map_err(|error| malformed(error.to_string()))?;
        let here = Situation {
            host: &self.told,
            by_rule,
            other,
            has_cells: !placement.cells.is_empty(),
            request: &self.request,
            facts: &facts,
            is_itself: self.is_itself,
        };
        let nodes = nodes_of(&self.host, placement);
        // Each factor alone first: one that the planner refuses, or that changes nothing, is none.
        let mut factors: Vec<(TuneFactor, Turn)> = Vec::new();
        let mut nested = factors.clone();
        for factor in &FACTORS {
            match self.levels(factor, without, &here, (&rule_xml, &nodes))? {
                Ok(levels) => {
                    let list = if factor.is_nested { &mut nested } else { &mut factors };
                    list.push((TuneFactor { id: factor.id.to_owned(), levels }, factor.turn));
                }
                Err(why) => leave(factor.id, why),
            }
        }
        let mut alone = factors.split_off(crossed.min(factors.len()));
        alone.append(&mut nested);
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
            let turned = factors.iter().zip(levels).filter(|(_, is_other)| **is_other);
            let choices = turned.fold(by_rule, |choices, ((_, turn), _)| turn(choices, &here));
            match self.plan(Some(choices))? {
                Err(why) => return Ok(Err(format!("{} does not fit: {why}", choices.words()))),
                Ok(file) => {
                    // Two runs of one definition, or on other nodes, would say of the factors what is not theirs.
                    let xml = xml_of(&file).to_owned();
                    let is_new = arms.iter().all(|arm| arm.xml != xml);
                    let is_there =
                        file.placement(&self.request.name).is_some_and(|own| nodes_of(&self.host, own) == nodes);
                    if crossed > CROSSED && !(is_new && is_there) {
                        return self.arms(without, CROSSED);
                    }
                    arms.push(arm(choices, xml, Some(levels.clone())));
                    plans.push(file);
                }
            }
        }
        // Factors and levels beyond the fraction, each with everything else as by rule.
        let mut beside: Vec<Choices> = alone.iter().map(|(_, turn)| turn(by_rule, &here)).collect();
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
                    arms.push(arm(choices, xml_of(&file).to_owned(), None));
                    plans.push(file);
                }
            }
        }
        let of = |(factor, turn): (TuneFactor, Turn)| AloneFactor { factor, arm: turn(by_rule, &here).to_string() };
        let alone = alone.into_iter().map(of).collect();
        Ok(Ok(Arms { factors: factors.into_iter().map(|(factor, _)| factor).collect(), alone, arms, plans, left_out }))
    }
}

/// The domain as a plan has it.
fn xml_of(file: &PlanFile) -> &str {
    file.domains.first().map_or("", |change| change.xml_after.as_str())
}

/// Nodes that a guest's threads and memory are on.
fn nodes_of(host: &Host, placement: &Placement) -> NodeSet {
    let cpus = placement.vcpus.iter().fold(CpuSet::new(), |all, pin| all.union(&pin.cpus));
    let with_vcpus = host.nodes.iter().filter(|node| !node.cpus.is_disjoint(&cpus)).map(|node| node.index);
    with_vcpus.chain(placement.memory.nodes.iter()).collect()
}

fn arm(choices: Choices, xml: String, levels: Option<Vec<bool>>) -> TuneArm {
    let title = choices.words();
    TuneArm { id: choices.to_string(), description: format!("planned with {title}"), title, xml, levels }
}
