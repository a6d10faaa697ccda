//! `[[group]]`: who must be together, and who apart.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::VmEntry;
use super::error::shown;
use super::hosts::{name_of, with_name};
use super::section::{At, Section, nearest};
use super::vms::Read;
use crate::model::{GroupRule, Scope, Together};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Together,
    Apart,
    ByLabel,
}

/// A group understood: its VMs by position.
struct Group<'s, 't> {
    section: &'s Section<'t>,
    name: At<String>,
    scope: Scope,
    rule: Rule,
    /// VM and label.
    members: Vec<(usize, u32)>,
}

/// Reads all groups, and gives their rules to the VMs.
pub(super) fn read(sections: &[Section<'_>], read: &[Read], vms: &mut [VmEntry]) {
    let mut names = BTreeSet::new();
    let sections: Vec<(Option<At<String>>, Section<'_>)> = sections
        .iter()
        .map(|section| {
            let name = name_of(section);
            let owned = with_name(section, "group", name.as_ref());
            (name, owned)
        })
        .collect();
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, entry) in vms.iter().enumerate() {
        by_name.entry(entry.vm.name.clone()).or_default().push(at);
        if let Some((base, _)) = &entry.copy {
            by_name.entry(base.clone()).or_default().push(at);
        }
    }
    let mut groups = Vec::new();
    for (name, section) in &sections {
        let fresh = name.as_ref().is_none_or(|name| names.insert(name.value.clone()));
        if let Some(name) = name.as_ref().filter(|_| !fresh) {
            section.wrong(&name.span, "another group has this name already", "names of groups are unique: rename one");
        }
        groups.extend(group(section, name.clone(), &by_name, read));
    }
    contradictions(&groups, vms);
    for group in &groups {
        for (vm, label) in &group.members {
            let rule = match group.rule {
                Rule::Together => Together::Together,
                Rule::Apart => Together::Apart,
                Rule::ByLabel => Together::ApartFromOtherLabels(*label),
            };
            vms[*vm].vm.groups.push(GroupRule { group: group.name.value.clone(), scope: group.scope, rule });
        }
    }
}

fn group<'s, 't>(
    section: &'s Section<'t>,
    name: Option<At<String>>,
    by_name: &BTreeMap<String, Vec<usize>>,
    read: &[Read],
) -> Option<Group<'s, 't>> {
    let scopes = [("host", Scope::Host), ("node", Scope::Node), ("failure-domain", Scope::FailureDomain)];
    let scope = section.word("scope", &scopes).map_or(Scope::Host, |scope| scope.value);
    let rules = [("together", Rule::Together), ("apart", Rule::Apart), ("apart-by-label", Rule::ByLabel)];
    let rule = section.word("rule", &rules);
    let members = section.strings("members");
    let labels = section.lists("labels");
    section.finish();
    if !section.has("rule") {
        let help = "add rule = \"apart\", \"together\" or \"apart-by-label\"";
        section.wrong(&section.place("name"), "`rule` is missing", help);
    }
    let (rule, name) = (rule?, name?);
    let labelled: Vec<(u32, Vec<At<String>>)> = match rule.value {
        Rule::ByLabel if section.has("members") => {
            let help = "list the VMs by label instead: labels = { red = [\"…\"], blue = [\"…\"] }";
            section.wrong(&section.place("members"), "the rule apart-by-label takes no `members`", help);
            return None;
        }
        Rule::ByLabel => {
            if labels.len() < 2 {
                let place = if section.has("labels") { "labels" } else { "rule" };
                let help = "it keeps VMs of different labels apart: labels = { red = [\"…\"], blue = [\"…\"] }";
                section.wrong(&section.place(place), "apart-by-label with fewer than two labels", help);
                return None;
            }
            (0u32..).zip(labels).map(|(number, (_, members))| (number, members)).collect()
        }
        _ if section.has("labels") => {
            let help = "labels are for the rule apart-by-label: list the VMs in `members`";
            section.wrong(&section.place("labels"), "this rule takes no `labels`", help);
            return None;
        }
        _ => {
            if !section.has("members") {
                section.wrong(&section.place("name"), "`members` is missing", "add members = [\"…\", \"…\"]");
            }
            vec![(0, members?.value)]
        }
    };
    let mut found: BTreeMap<usize, u32> = BTreeMap::new();
    let mut sound = true;
    for (label, names) in &labelled {
        for member in names {
            let Some(vms) = by_name.get(&member.value) else {
                // A VM that is wrong itself is no unknown name.
                if !read.iter().any(|vm| vm.name.value == member.value) {
                    unknown(section, member, read, by_name);
                }
                sound = false;
                continue;
            };
            for vm in vms {
                if found.insert(*vm, *label).is_some() {
                    let message = format!("\"{}\" is in the group twice", shown(&member.value));
                    section.wrong(&member.span, message, "name each VM once");
                    sound = false;
                    break;
                }
            }
        }
    }
    if found.len() < 2 && sound {
        let place = if section.has("members") { "members" } else { "labels" };
        let what = match found.len() {
            0 => "nobody is in it",
            _ => "nobody else is in it",
        };
        section.wrong(&section.place(place), what, "a group has two VMs at least: name more, or take it away");
        return None;
    }
    Some(Group { section, name, scope, rule: rule.value, members: found.into_iter().collect() })
}

fn unknown(section: &Section<'_>, member: &At<String>, read: &[Read], by_name: &BTreeMap<String, Vec<usize>>) {
    let counted = read.iter().find(|vm| vm.is_counted() && member.value.starts_with(&format!("{}-", vm.name.value)));
    let help = match (counted, nearest(&member.value, by_name.keys().map(String::as_str))) {
        (Some(vm), _) => format!("`count` of {} makes fewer; \"{}\" stands for all of them", vm.whose, vm.name.value),
        (None, Some(near)) => format!("did you mean \"{near}\"?"),
        (None, None) => {
            let names: Vec<&str> = read.iter().map(|vm| vm.name.value.as_str()).collect();
            format!("VMs of this file: {}", shown(&names.join(", ")))
        }
    };
    section.wrong(&member.span, format!("there is no VM \"{}\"", shown(&member.value)), help);
}

/// How wide a scope is: who shares a node shares a host too.
fn width(scope: Scope) -> u8 {
    match scope {
        Scope::Node => 0,
        Scope::Host => 1,
        Scope::FailureDomain => 2,
    }
}

/// Pairs that one group puts together and another one apart, and pairs whose `on` says otherwise.
fn contradictions(groups: &[Group<'_, '_>], vms: &[VmEntry]) {
    for together in groups.iter().filter(|group| group.rule == Rule::Together) {
        let inside: BTreeSet<usize> = together.members.iter().map(|(vm, _)| *vm).collect();
        for apart in
            groups.iter().filter(|group| group.rule != Rule::Together && width(group.scope) >= width(together.scope))
        {
            let mut both = apart.members.iter().filter(|(vm, _)| inside.contains(vm));
            let Some(first) = both.next() else { continue };
            let Some(second) = both.find(|other| apart.rule == Rule::Apart || other.1 != first.1) else { continue };
            let message = format!(
                "\"{}\" and \"{}\" must be apart, and group `{}` puts them together",
                shown(&vms[first.0].vm.name),
                shown(&vms[second.0].vm.name),
                shown(&together.name.value)
            );
            apart.section.wrong(&apart.name.span, message, "take one of the two VMs out of one of the groups");
        }
        if width(together.scope) > width(Scope::Host) {
            continue;
        }
        let mut fixed = together.members.iter().filter_map(|(vm, _)| Some((*vm, vms[*vm].on.as_ref()?)));
        if let Some((first, on)) = fixed.next() {
            if let Some((second, other)) = fixed.find(|(_, other)| *other != on) {
                let message = format!(
                    "\"{}\" stays on \"{on}\" and \"{}\" on \"{other}\": they cannot be together",
                    shown(&vms[first].vm.name),
                    shown(&vms[second].vm.name)
                );
                together.section.wrong(&together.name.span, message, "take one of them out of the group");
            }
        }
    }
}
