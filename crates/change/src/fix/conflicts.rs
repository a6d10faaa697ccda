//! Two rules that want different things at one place: neither is done, and both are told.

use std::collections::BTreeMap;

use nearmetal_domain::DefinitionEdit;
use nearmetal_rules::{Cure, Scope};

use super::item::Item;

/// Refuses objects whose cures set one place to different values.
pub(super) fn refuse(items: &mut [Item]) {
    let mut wanted: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate().filter(|(_, item)| item.open) {
        for cure in &item.treated.object.cures {
            if let Some((place, value)) = place_and_value(&item.treated.scope, cure) {
                wanted.entry(place).or_default().push((value, index));
            }
        }
    }
    for (place, values) in
        wanted.into_iter().filter(|(_, values)| values.iter().any(|(value, _)| *value != values[0].0))
    {
        for (value, index) in &values {
            if let Some((other, at)) = values.iter().find(|(other, _)| other != value) {
                let rule = items[*at].treated.rule.clone();
                items[*index].refuse(format!(
                    "it wants `{value}` for {place}, but {rule} wants `{other}`: choose one and name its rule"
                ));
            }
        }
    }
}

/// What a cure sets, in words, and to what; `None` for one that cannot be done live.
fn place_and_value(scope: &Scope, cure: &Cure) -> Option<(String, String)> {
    let domain = match scope {
        Scope::Domain { name, .. } => format!(" of `{name}`"),
        Scope::Host => String::new(),
    };
    Some(match cure {
        Cure::KernelFile { path, value } => (format!("`{path}`"), value.clone()),
        Cure::HugepagePool { node, size, pages } => {
            (format!("the pool of {size} pages on node {node}"), pages.to_string())
        }
        Cure::LoadModule { module } => (format!("the module {module}"), "loaded".to_owned()),
        Cure::LivePin { thread, cpus } => (format!("the running {thread}{domain}"), cpus.to_string()),
        Cure::Definition(edit) => {
            let (place, value) = match edit {
                DefinitionEdit::SetAttribute { at, name, value } => (format!("{at}/@{name}"), value.clone()),
                DefinitionEdit::RemoveAttribute { at, name } => (format!("{at}/@{name}"), "nothing".to_owned()),
                DefinitionEdit::SetText { at, text } => (format!("the text of {at}"), text.clone()),
                DefinitionEdit::Ensure { at } => (at.clone(), "there".to_owned()),
                DefinitionEdit::Remove { at } => (at.clone(), "removed".to_owned()),
            };
            (format!("`{place}`{domain}"), value)
        }
        Cure::KernelArgument { .. } | Cure::NoKernelArgument { .. } | Cure::ModuleParameter { .. } => return None,
    })
}
