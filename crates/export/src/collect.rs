//! All cures of all findings, each setting once.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_domain::DefinitionEdit;
use nearmetal_rules::{Cure, Finding, Object, Scope, Severity, rule};
use nearmetal_units::PageSize;

use crate::Input;
use crate::plain::is_plain;
use crate::target::Target;

/// A value, and the rules that want it.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<V> {
    pub(crate) value: V,
    pub(crate) rules: BTreeSet<String>,
}

/// Settings by what they set.
pub(crate) type Settings<K, V> = BTreeMap<K, Wanted<V>>;

/// Everything that is to stay.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Kernel files.
    pub(crate) files: Settings<Target, String>,
    /// Persistent hugepages by node and size.
    pub(crate) pools: Settings<(u32, PageSize), u64>,
    /// Kernel arguments.
    pub(crate) arguments: Settings<String, Option<String>>,
    /// Kernel arguments that go.
    pub(crate) removed: Settings<String, ()>,
    /// Parameters of modules for the time they are loaded, by module and parameter.
    pub(crate) parameters: Settings<(String, String), String>,
    /// Modules to be loaded.
    pub(crate) modules: Settings<String, ()>,
    /// Edits of definitions by domain and what they are about, in the order they came.
    pub(crate) edits: BTreeMap<String, Vec<(DefinitionEdit, String)>>,
    /// Findings that nothing here covers: rule, object, why.
    pub(crate) uncovered: Vec<String>,
    /// Settings left out: what, why.
    pub(crate) skipped: Vec<String>,
    /// What one of the two forms lacks.
    pub(crate) notes: Vec<String>,
}

/// What became of a cure.
enum Fate {
    Kept,
    /// Only good until a reboot or until the guest stops, and why.
    Passing(&'static str),
    Skipped,
}

impl Collected {
    /// Collects.
    pub(crate) fn of(input: &Input<'_>) -> Self {
        let mut collected = Self::default();
        for finding in input.findings {
            for object in &finding.objects {
                collected.add(input, finding, object);
            }
        }
        collected
    }

    fn add(&mut self, input: &Input<'_>, finding: &Finding, object: &Object) {
        let mut why = reason(finding);
        let mut kept = false;
        for cure in &object.cures {
            match self.keep(input, finding, cure) {
                Fate::Kept => kept = true,
                Fate::Passing(reason) => why = format!("only while it runs: {reason}"),
                Fate::Skipped => why = "its settings are among those left out".to_owned(),
            }
        }
        if !kept {
            self.uncovered.push(format!("{} {}: {}: {why}", finding.rule, finding.place(), object.what));
        }
    }

    fn keep(&mut self, input: &Input<'_>, finding: &Finding, cure: &Cure) -> Fate {
        let id = &finding.rule;
        let words: Vec<&str> = match cure {
            Cure::KernelFile { path, value } => vec![path, value],
            Cure::KernelArgument { name, value } => {
                [Some(name), value.as_ref()].into_iter().flatten().map(String::as_str).collect()
            }
            Cure::NoKernelArgument { name } => vec![name],
            Cure::ModuleParameter { module, parameter, value } => vec![module, parameter, value],
            Cure::LoadModule { module } => vec![module],
            Cure::HugepagePool { .. } | Cure::Definition(_) | Cure::LivePin { .. } => Vec::new(),
        };
        if !words.iter().all(|word| is_plain(word)) {
            self.skipped.push(format!("{cure} ({id}): it has characters that would mean something else in a file"));
            return Fate::Skipped;
        }
        match cure {
            Cure::KernelFile { path, .. } if (input.is_missing)(path) => {
                self.skipped.push(format!("{path} ({id}): this host has no such file"));
                Fate::Skipped
            }
            Cure::KernelFile { path, value } => match Target::of(path) {
                Target::LiveOnly(why) => Fate::Passing(why),
                target => settle(&mut self.files, &mut self.skipped, (target, path), value.clone(), id),
            },
            Cure::HugepagePool { node, size, pages } => {
                // Each finding is about one guest that wants so many; more than it wants does it no harm.
                let most = self.pools.entry((*node, *size)).or_insert_with(|| Wanted::of(*pages));
                most.value = most.value.max(*pages);
                most.rules.insert(id.clone());
                Fate::Kept
            }
            Cure::KernelArgument { name, value } => {
                settle(&mut self.arguments, &mut self.skipped, (name.clone(), name), value.clone(), id)
            }
            Cure::NoKernelArgument { name } => {
                settle(&mut self.removed, &mut self.skipped, (name.clone(), name), (), id)
            }
            Cure::ModuleParameter { module, parameter, value } => {
                let name = format!("{module}.{parameter}");
                let key = (module.clone(), parameter.clone());
                settle(&mut self.parameters, &mut self.skipped, (key, &name), value.clone(), id)
            }
            Cure::LoadModule { module } => {
                settle(&mut self.modules, &mut self.skipped, (module.clone(), module), (), id)
            }
            Cure::Definition(edit) => self.keep_edit(input, finding, edit),
            Cure::LivePin { .. } => Fate::Passing("the threads are new at every start"),
        }
    }

    fn keep_edit(&mut self, input: &Input<'_>, finding: &Finding, edit: &DefinitionEdit) -> Fate {
        let Scope::Domain { name, .. } = &finding.scope else { return Fate::Skipped };
        if !input.definitions.contains_key(name) {
            return Fate::Passing("the domain is transient, there is no stored definition");
        }
        let edits = self.edits.entry(name.clone()).or_default();
        match edits.iter().find(|(known, _)| about(known) == about(edit)) {
            None => edits.push((edit.clone(), finding.rule.clone())),
            Some((known, _)) if known == edit => {}
            Some((known, by)) => {
                self.skipped.push(format!("{name}: {edit} ({}): {by} wants {known}", finding.rule));
                return Fate::Skipped;
            }
        }
        Fate::Kept
    }
}

impl<V> Wanted<V> {
    fn of(value: V) -> Self {
        Self { value, rules: BTreeSet::new() }
    }

    /// The rules, for a comment.
    pub(crate) fn why(&self) -> String {
        self.rules.iter().cloned().collect::<Vec<_>>().join(", ")
    }
}

/// Adds a setting. One that is there with another value stays: its finding is at least as bad.
fn settle<K: Ord, V: PartialEq>(
    settings: &mut Settings<K, V>,
    skipped: &mut Vec<String>,
    (key, name): (K, &str),
    value: V,
    id: &str,
) -> Fate {
    match settings.get_mut(&key) {
        None => {
            settings.insert(key, Wanted { value, rules: BTreeSet::from([id.to_owned()]) });
        }
        Some(present) if present.value == value => {
            present.rules.insert(id.to_owned());
        }
        Some(present) => {
            skipped.push(format!("{name} as {id} wants it: {} wants another value", present.why()));
            return Fate::Skipped;
        }
    }
    Fate::Kept
}

/// What an edit decides: the same place twice would be decided twice.
fn about(edit: &DefinitionEdit) -> (&str, Option<&str>) {
    match edit {
        DefinitionEdit::SetAttribute { at, name, .. } | DefinitionEdit::RemoveAttribute { at, name } => {
            (at, Some(name))
        }
        DefinitionEdit::SetText { at, .. } | DefinitionEdit::Ensure { at } | DefinitionEdit::Remove { at } => {
            (at, None)
        }
    }
}

/// Why a finding has no cure.
fn reason(finding: &Finding) -> String {
    let by_hand = |fix: &str| format!("nothing a program should choose alone; by hand: {fix}");
    match rule(&finding.rule) {
        _ if finding.severity == Severity::Decide => "a person decides: it is a trade".to_owned(),
        Some(rule) => by_hand(rule.fix.persistent),
        None => by_hand("see the rule"),
    }
}
