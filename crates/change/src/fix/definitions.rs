//! All edits of one domain's stored definition as one new definition, if that is better for every rule.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_domain::{DomainFacts, DomainXml};
use nearmetal_rules::{Domain, Examination, Input, RULES, Scope, Which, examine};

use super::item::{Findings, Item};
use crate::ChangeError;
use crate::change::Change;
use crate::found::{Found, look_at};
use crate::machine::Machine;
use crate::steps::check_devices;

/// One domain that is edited.
struct Edited {
    found: Found,
    before: DomainXml,
    /// Numbers of the items whose edits it has.
    items: Vec<usize>,
    after: DomainXml,
}

/// A finding by what it is about: rule, domain, definition, object.
type Key = (String, String, Which, String);

/// The new definitions; refuses what cannot be edited and what would bring another finding.
pub(super) fn changes(
    machine: &mut Machine<'_>,
    found: Findings<'_>,
    items: &mut [Item],
) -> Result<Vec<Change>, ChangeError> {
    let mut of_domain: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate().filter(|(_, item)| item.open && item.edits().next().is_some()) {
        match &item.treated.scope {
            Scope::Domain { name, .. } => of_domain.entry(name.clone()).or_default().push(index),
            Scope::Host => {}
        }
    }
    let mut edited: BTreeMap<String, Edited> = BTreeMap::new();
    let mut suspects: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, members) in of_domain {
        let mut problems = Vec::new();
        let looked = look_at(machine, &name, None, &mut problems)?;
        let read = looked.map(|found| (DomainXml::parse(&found.xml), found));
        match read {
            Some((Ok(before), found)) if problems.is_empty() => {
                let start = Edited { found, after: before.clone(), before, items: Vec::new() };
                match together(machine, &name, &start.before, items, &members) {
                    Ok(after) => drop(edited.insert(name, Edited { after, items: members, ..start })),
                    Err(_) => {
                        suspects.insert(name.clone(), members);
                        edited.insert(name, start);
                    }
                }
            }
            read => {
                let unreadable = read.and_then(|(read, _)| read.err()).map(|error| error.to_string());
                problems.extend(unreadable);
                members.into_iter().for_each(|index| items[index].refuse(problems.join("; ")));
            }
        }
    }
    if edited.is_empty() {
        return Ok(Vec::new());
    }
    let baseline = keys(found.examination);
    let mut domains: Vec<Domain> = found.input.domains.to_vec();
    set_facts(&mut domains, &edited);
    let after = keys(&look(found.input, &domains));
    if worse(&baseline, &after, items, &edited).is_some() {
        // Rare, and then slow but sure: from the definitions as they are, one rule of one domain after the other.
        for (name, one) in &mut edited {
            suspects.entry(name.clone()).or_default().append(&mut one.items);
            one.after = one.before.clone();
        }
        domains = found.input.domains.to_vec();
    }
    for (name, members) in suspects {
        one_by_one(machine, found.input, &baseline, &name, &members, items, &mut edited, &mut domains);
    }
    let mut changes = Vec::new();
    for (name, one) in edited {
        for index in &one.items {
            let edits: Vec<_> = items[*index].edits().cloned().collect();
            items[*index].redefines = edits.iter().any(|edit| one.before.clone().edit(edit).unwrap_or(false));
        }
        if one.after != one.before {
            changes.push(Change::DefineDomain {
                domain: name,
                uuid: one.found.uuid,
                old_xml: one.found.xml,
                new_xml: one.after.to_string(),
                instance: one.found.instance,
            });
        }
    }
    Ok(changes)
}

/// Adds the objects of one rule after the other to a domain's edits, as long as nothing gets worse.
#[allow(clippy::too_many_arguments, reason = "one call, and a struct of these would only name them twice")]
fn one_by_one(
    machine: &Machine<'_>,
    input: &Input<'_>,
    baseline: &BTreeSet<Key>,
    name: &str,
    members: &[usize],
    items: &mut [Item],
    edited: &mut BTreeMap<String, Edited>,
    domains: &mut Vec<Domain>,
) {
    let mut rules: Vec<(String, Vec<usize>)> = Vec::new();
    for index in members {
        let rule = &items[*index].treated.rule;
        match rules.iter_mut().find(|(known, _)| known == rule) {
            Some((_, list)) => list.push(*index),
            None => rules.push((rule.clone(), vec![*index])),
        }
    }
    for (_, group) in rules {
        let Some(one) = edited.get_mut(name) else { return };
        let (kept, kept_items) = (one.after.clone(), one.items.clone());
        let candidates: Vec<usize> = one.items.iter().chain(&group).copied().collect();
        let refused = match together(machine, name, &one.before, items, &candidates) {
            Err(why) => Some(why),
            Ok(after) => {
                (one.after, one.items) = (after, candidates);
                let mut with = domains.clone();
                set_facts(&mut with, edited);
                let why = worse(baseline, &keys(&look(input, &with)), items, edited);
                if why.is_none() {
                    *domains = with;
                }
                why
            }
        };
        if let (Some(why), Some(one)) = (refused, edited.get_mut(name)) {
            (one.after, one.items) = (kept, kept_items);
            group.iter().for_each(|index| items[*index].refuse(why.clone()));
        }
    }
}

/// A definition with the edits of these items; each must still hold when all are made.
fn together(
    machine: &Machine<'_>,
    name: &str,
    before: &DomainXml,
    items: &[Item],
    members: &[usize],
) -> Result<DomainXml, String> {
    let edits = || members.iter().flat_map(|index| items[*index].edits());
    let mut xml = before.clone();
    for edit in edits() {
        xml.edit(edit).map_err(|error| error.to_string())?;
    }
    let undone = |error: Option<nearmetal_domain::DomainError>| match error {
        Some(error) => error.to_string(),
        None => format!("two edits of `{name}` undo each other: name only one rule"),
    };
    for edit in edits() {
        match xml.clone().edit(edit) {
            Ok(false) => {}
            Ok(true) => return Err(undone(None)),
            Err(error) => return Err(undone(Some(error))),
        }
    }
    let mut problems = Vec::new();
    check_devices(machine, name, xml.as_str(), &mut problems);
    if problems.is_empty() { Ok(xml) } else { Err(problems.join("; ")) }
}

fn set_facts(domains: &mut [Domain], edited: &BTreeMap<String, Edited>) {
    for domain in domains {
        let facts: Option<DomainFacts> = edited.get(&domain.name).and_then(|one| one.after.facts().ok());
        if let (Some(facts), Some(defined)) = (facts, &mut domain.defined) {
            *defined = facts;
        }
    }
}

fn look(input: &Input<'_>, domains: &[Domain]) -> Examination {
    examine(&Input { domains, ..*input }, RULES)
}

fn keys(examination: &Examination) -> BTreeSet<Key> {
    let mut keys = BTreeSet::new();
    for finding in &examination.findings {
        for object in &finding.objects {
            let mut add = |domain: &str, which| {
                keys.insert((finding.rule.clone(), domain.to_owned(), which, object.what.clone()));
            };
            match &finding.scope {
                Scope::Host => add("", Which::Defined),
                // One finding about both is two, of which one may go.
                Scope::Domain { name, which: Which::Both } => {
                    add(name, Which::Running);
                    add(name, Which::Defined);
                }
                Scope::Domain { name, which } => add(name, *which),
            }
        }
    }
    keys
}

/// Why the edited definitions are no gain: a finding that was not there, or one that is still there.
fn worse(
    baseline: &BTreeSet<Key>,
    after: &BTreeSet<Key>,
    items: &[Item],
    edited: &BTreeMap<String, Edited>,
) -> Option<String> {
    if let Some((rule, domain, _, what)) = after.difference(baseline).next() {
        let place = if domain.is_empty() { "the host".to_owned() } else { format!("`{domain}`") };
        return Some(format!("its fix would break {rule} ({place}: {what}): you must decide"));
    }
    let mut edited = edited.iter().flat_map(|(name, one)| one.items.iter().map(move |index| (name, *index)));
    let still = edited.find(|(name, index)| {
        let treated = &items[*index].treated;
        after.contains(&(treated.rule.clone(), (*name).clone(), Which::Defined, treated.object.what.clone()))
    });
    still.map(|(name, index)| {
        let treated = &items[index].treated;
        format!(
            "even with this fix, `{name}` would still break {} ({}): it takes more",
            treated.rule, treated.object.what
        )
    })
}
