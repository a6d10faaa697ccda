//! A composed definition and the doctor's rules: what the rules of its class ask for and a program may choose is set, the
//! rest is listed with the reason. After `apply` the doctor then finds nothing in a definition that the plan does not name.
//!
//! The planner's own choices come first: a cure that would change one of them is left. A cure that would break another
//! rule is left, too; the same was decided for `nearmetal doctor --fix`.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_domain::{DefinitionEdit, DomainFacts, DomainXml};
use nearmetal_host::images::ImageChain;
use nearmetal_host::{Host, HugepagePool};
use nearmetal_place::{Placement, PoolChange, Reason, WorkloadClass};
use nearmetal_rules::{
    Check, Cure, Domain, Examination, Input, Object, RULES, Rule, Settings, Severity, examine, examine_those, rule,
    source,
};
use serde::{Deserialize, Serialize};

use super::{DomainChange, Part, PlanFile};
use crate::ChangeError;
use crate::verify::planned_otherwise;

/// What a rule asks of a definition, and the plan sets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Followed {
    /// Id of the rule.
    pub rule: String,
    /// What of the domain: `timer hpet`, `interface 52:54:00:00:00:01`, ….
    pub what: String,
    /// What was found.
    pub found: String,
    /// What it is with the plan.
    pub wanted: String,
}

/// What a rule asks for, and the plan leaves as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Left {
    /// Id of the rule.
    pub rule: String,
    /// What of the domain, or of the host.
    pub what: String,
    /// What it is like.
    pub found: String,
    /// What the rule asks for.
    pub wanted: String,
    /// Why the plan leaves it, and what would cure it.
    pub why: String,
}

/// What is known of a domain beside its definition.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// Its class, where it was given and is in no definition; else the rules take it from the definition, as the doctor
    /// does.
    pub class: Option<WorkloadClass>,
    /// Images of its disks, by their source.
    pub images: BTreeMap<String, Result<ImageChain, String>>,
}

/// A finding by what it is about: rule and object.
type Key = (String, String);

/// Objects that break rules.
type Findings = BTreeMap<Key, Object>;

/// Lets each definition of a plan follow the rules of its domain's class; what is known of domains is looked up by name.
/// `neighbours` are domains of the host that the plan leaves as they are.
///
/// Only rules that name a fault or a loss are followed: others ask for nothing.
///
/// # Errors
/// A definition of the plan that cannot be read.
pub fn follow_rules(
    file: &mut PlanFile,
    host: &Host,
    beside: &BTreeMap<String, Beside>,
    neighbours: &[Domain],
) -> Result<(), ChangeError> {
    let host = &with_pools(host, &file.plan.pools);
    let mut texts = Vec::new();
    let mut domains = Vec::new();
    for change in &file.domains {
        let failed = |problem: String| ChangeError::Compose { domain: change.name.clone(), problem };
        let xml = DomainXml::parse(&change.xml_after).map_err(|error| failed(error.to_string()))?;
        let facts = xml.facts().map_err(|error| failed(error.to_string()))?;
        let known = beside.get(&change.name);
        let mut domain = Domain::new(Some(facts), None, known.and_then(|known| known.class))
            .ok_or_else(|| failed("it has no definition".to_owned()))?;
        domain.images = known.map(|known| known.images.clone()).unwrap_or_default();
        texts.push(xml);
        domains.push(domain);
    }
    domains.extend_from_slice(neighbours);
    for index in 0..texts.len() {
        let placement = &file.plan.placements[index];
        let (followed, left) = one(host, placement, index, &mut texts, &mut domains);
        let reasons = followed.iter().map(|followed| reason(&followed.rule, &followed.what, &followed.wanted));
        file.plan.placements[index].reasons.extend(reasons.collect::<Vec<_>>());
        let change = &mut file.domains[index];
        record(change, texts[index].to_string(), &domains[index], followed, left);
    }
    domains.truncate(texts.len());
    file.left = of_host(host, domains, neighbours);
    Ok(())
}

/// The host with the pools as the plan will have them: no rule is to ask for pages that come with it.
fn with_pools(host: &Host, changes: &[PoolChange]) -> Host {
    let mut host = host.clone();
    for change in changes {
        let Some(node) = host.nodes.iter_mut().find(|node| node.index == change.node) else { continue };
        let more = change.after.saturating_sub(change.before);
        match node.pools.iter_mut().find(|pool| pool.size == change.size) {
            Some(pool) => (pool.total, pool.free) = (pool.total + more, pool.free + more),
            None => node.pools.push(HugepagePool { size: change.size, total: change.after, free: more, surplus: 0 }),
        }
    }
    host
}

fn record(change: &mut DomainChange, xml: String, domain: &Domain, followed: Vec<Followed>, left: Vec<Left>) {
    if !change.is_new() {
        change.needs_restart.extend(followed.iter().map(|followed| Part {
            what: followed.what.clone(),
            change: format!("{} -> {}", followed.found, followed.wanted),
            why: format!("rule {}: a definition comes into force when the guest starts", followed.rule),
        }));
    }
    change.xml_after = xml;
    change.class = Some(format!("{}: {}", domain.class.word(), domain.class_reason));
    (change.followed, change.left) = (followed, left);
}

/// What is set and what is left of one domain; its text and facts are as the plan will have them.
fn one(
    host: &Host,
    placement: &Placement,
    index: usize,
    texts: &mut [DomainXml],
    domains: &mut [Domain],
) -> (Vec<Followed>, Vec<Left>) {
    let mut refused: BTreeMap<Key, String> = BTreeMap::new();
    let mut followed = Vec::new();
    let mut before = of_domain(host, domains, index);
    loop {
        let next = before.iter().find(|(key, _)| !refused.contains_key(*key));
        let Some((key, object)) = next.map(|(key, object)| (key.clone(), object.clone())) else { break };
        match cured(host, placement, index, texts, domains, &before, &key, &object) {
            Ok(after) => {
                followed.push(Followed { rule: key.0, what: object.what, found: object.found, wanted: object.wanted });
                // What was in the way may be gone. There is one finding less each time, so this ends.
                refused.clear();
                before = after;
            }
            Err(why) => drop(refused.insert(key, why)),
        }
    }
    let left = before.into_iter().map(|(key, object)| Left {
        why: refused.remove(&key).unwrap_or_default(),
        rule: key.0,
        what: object.what,
        found: object.found,
        wanted: object.wanted,
    });
    (followed, left.collect())
}

/// Makes the edits of one object, if that is better for every rule and leaves the planner's choices. Gives what rules find
/// then; where it is refused, nothing has changed.
#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
fn cured(
    host: &Host,
    placement: &Placement,
    index: usize,
    texts: &mut [DomainXml],
    domains: &mut [Domain],
    before: &Findings,
    key: &Key,
    object: &Object,
) -> Result<Findings, String> {
    let xml = edited(&texts[index], key, object)?;
    let facts = xml.facts().map_err(|error| error.to_string())?;
    let planned = |facts: Option<&DomainFacts>| -> BTreeSet<String> {
        facts.map(|facts| planned_otherwise(placement, facts)).into_iter().flatten().collect()
    };
    let known = planned(domains[index].defined.as_ref());
    if let Some(what) = planned(Some(&facts)).difference(&known).next() {
        return Err(format!("the plan decides {what} itself, with the reason it gives"));
    }
    let old = domains[index].defined.replace(facts);
    let after = of_domain(host, domains, index);
    let worse = after.keys().find(|found| !before.contains_key(*found));
    let problem = match worse {
        Some((rule, what)) => Some(format!("its cure would break {rule} ({what}): a person has to decide")),
        None if after.contains_key(key) => {
            Some("with its cure the rule would still be broken: it takes more".to_owned())
        }
        None => None,
    };
    if let Some(problem) = problem {
        domains[index].defined = old;
        return Err(problem);
    }
    texts[index] = xml;
    Ok(after)
}

/// The text with the edits that cure an object; each must still hold when all are made.
fn edited(text: &DomainXml, key: &Key, object: &Object) -> Result<DomainXml, String> {
    let edits = edits(key, object)?;
    let mut xml = text.clone();
    for edit in &edits {
        xml.edit(edit).map_err(|error| error.to_string())?;
    }
    for edit in &edits {
        if xml.clone().edit(edit).map_err(|error| error.to_string())? {
            return Err("its edits undo each other".to_owned());
        }
    }
    Ok(xml)
}

/// The edits that cure an object, or why no program makes them.
fn edits(key: &Key, object: &Object) -> Result<Vec<DefinitionEdit>, String> {
    if object.cures.is_empty() {
        let how = rule(&key.0).map_or("", |rule| rule.fix.persistent);
        return Err(format!("no program should choose this; by hand: {how}"));
    }
    let edit = |cure: &Cure| match cure {
        Cure::Definition(edit) => Ok(edit.clone()),
        _ => Err(elsewhere(&key.0)),
    };
    object.cures.iter().map(edit).collect()
}

fn elsewhere(rule: &str) -> String {
    format!("it is set on the host, for all its guests: nearmetal doctor --fix {rule}")
}

fn of_domain(host: &Host, domains: &[Domain], index: usize) -> Findings {
    let settings = Settings::default();
    let input = Input { host: Some(host), domains, settings: &settings };
    let rules = RULES.iter().filter(|rule| matches!(rule.check, Check::Domain(_)) && is_severe(rule));
    objects(examine_those(&input, rules, std::slice::from_ref(&domains[index].name)))
}

fn is_severe(rule: &Rule) -> bool {
    matches!(rule.severity, Severity::Fault | Severity::Loss)
}

fn objects(examination: Examination) -> Findings {
    let mut all = Findings::new();
    for finding in examination.findings {
        for object in finding.objects {
            all.insert((finding.rule.clone(), object.what.clone()), object);
        }
    }
    all
}

/// What of the host keeps guests of this plan from their speed once they run, and would not matter without them.
fn of_host(host: &Host, planned: Vec<Domain>, neighbours: &[Domain]) -> Vec<Left> {
    let settings = Settings::default();
    let look = |domains: &[Domain]| {
        let rules = RULES.iter().filter(|rule| matches!(rule.check, Check::Host(_)) && is_severe(rule));
        objects(examine(&Input { host: Some(host), domains, settings: &settings }, rules))
    };
    let without = look(neighbours);
    let running = planned.into_iter().map(|domain| Domain { running: domain.defined.clone(), ..domain });
    let all: Vec<Domain> = running.chain(neighbours.iter().cloned()).collect();
    let left = look(&all).into_iter().filter(|(key, _)| !without.contains_key(key)).map(|(key, object)| Left {
        why: edits(&key, &object).err().unwrap_or_else(|| elsewhere(&key.0)),
        rule: key.0,
        what: object.what,
        found: object.found,
        wanted: object.wanted,
    });
    left.collect()
}

fn reason(id: &str, what: &str, wanted: &str) -> Reason {
    let known = rule(id);
    let title = known.map_or("", |rule| rule.title);
    let first = known.and_then(|rule| source(rule.sources.first()?));
    Reason {
        subject: what.to_owned(),
        choice: wanted.to_owned(),
        because: format!("rule {id}: {title}"),
        source: first.map(|source| format!("{} ({})", source.title, source.site)),
    }
}
