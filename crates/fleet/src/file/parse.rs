//! From text to entries.

use std::collections::BTreeMap;

use toml::de::DeTable;

use super::entry::{FleetFile, HostEntry};
use super::error::{FileErrors, shown};
use super::keys::Table;
use super::section::{At, Notes, Section, nearest};
use super::vms::{Common, Read};
use super::{groups, hosts, keys, vms};
use crate::model::SpreadHosts;

/// Bytes of a fleet file at most: ten thousand VMs with all their keys are far below it.
const MOST_TEXT: usize = 16 << 20;
/// Priorities the planner tells apart.
const MOST_PRIORITIES: usize = crate::dense::PRIORITIES;
/// Hugepage sizes the planner tells apart.
const MOST_PAGE_SIZES: usize = crate::dense::PAGE_CLASSES - 1;

impl FleetFile {
    /// Reads a fleet file. `origin`: its name, for messages.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with line and column.
    pub fn parse(origin: &str, text: &str) -> Result<Self, FileErrors> {
        let too_long = "split the fleet into several files, or use `count` for VMs that are alike";
        read_text(origin, text, (MOST_TEXT, too_long), &keys::TABLES, read)
    }
}

/// Reads a file of such tables, the first of them the one at its top. `most`: how many bytes it may have, and what to do
/// about more.
///
/// # Errors
/// Everything that is wrong with it, in its form or noted by `read`, each with line and column.
pub fn read_text<T>(
    origin: &str,
    text: &str,
    most: (usize, &str),
    tables: &'static [&'static Table],
    read: impl FnOnce(&Section<'_>, &Notes) -> T,
) -> Result<T, FileErrors> {
    let notes = Notes::of(tables);
    let failed = |notes: &Notes| FileErrors::new(origin, text, notes.take());
    let (most, too_long) = most;
    let Some(top) = tables.first().filter(|_| text.len() <= most) else {
        notes.add(&(0..0), format!("the file has {} bytes; {most} at most", text.len()), too_long);
        return Err(failed(&notes));
    };
    let (root, errors) = DeTable::parse_recoverable(text);
    // What follows a mistake in the form of the text would be guesses.
    if !errors.is_empty() {
        errors.iter().for_each(|error| syntax(&notes, text, error));
        return Err(failed(&notes));
    }
    let file = read(&Section::new(&notes, text, top, root.get_ref(), 0..0, String::new()), &notes);
    let found = notes.take();
    if found.is_empty() { Ok(file) } else { Err(FileErrors::new(origin, text, found)) }
}

fn read(top: &Section<'_>, notes: &Notes) -> FleetFile {
    let spreads = [("fewest", SpreadHosts::Fewest), ("most", SpreadHosts::Most)];
    let spread = top.word("spread", &spreads).map_or(SpreadHosts::Fewest, |spread| spread.value);
    let defaults = top.table("defaults", &keys::DEFAULTS).map(|section| {
        let common = Common::read(&section);
        section.finish();
        common
    });
    let host_sections = top.tables("host", &keys::HOST);
    if host_sections.is_empty() && !top.has("host") {
        let help = "add one; for this machine: [[host]] with name = \"here\" and local = true";
        notes.add(&(0..0), "the file has no [[host]]", help);
    }
    let hosts = hosts::read(&host_sections, notes);
    let read = vms::read(&top.tables("vm", &keys::VM), &defaults.unwrap_or_default(), notes);
    let mut vms = vms::expand(&read, hosts.len(), notes);
    groups::read(&top.tables("group", &keys::GROUP), &read, &mut vms);
    top.finish();
    select(&read, &hosts, notes);
    limits(&read, notes);
    FleetFile { spread, hosts: hosts.into_iter().map(|host| host.value).collect(), vms }
}

/// What the parser of TOML says, in a few more words.
fn syntax(notes: &Notes, text: &str, error: &toml::de::Error) {
    let span = error.span().unwrap_or(0..0);
    let said = shown(error.message().lines().next().unwrap_or_default());
    let there = text.get(span.clone()).unwrap_or_default();
    let form = "a line is KEY = VALUE, [TABLE] or [[TABLE]]; texts stand in quotes";
    let at_control = text
        .get(span.start..)
        .and_then(|rest| rest.chars().next())
        .is_some_and(|character| character.is_control() && !matches!(character, '\n' | '\r'));
    let (message, help) = if said.contains("duplicate key") {
        let help = "take one of them away; a second VM or host has its own [[vm]] or [[host]]";
        (format!("`{}` stands twice in one table", shown(there)), help)
    } else if at_control {
        ("a control character is in the text".to_owned(), "take it away, or write the line anew")
    } else if said.contains("quoted") && there.trim().is_empty() {
        ("nothing stands after the `=`".to_owned(), "write the value there, or take the line away")
    } else if said.contains("quoted") {
        (format!("`{}` is a text without quotes", shown(there)), "texts stand in quotes: name = \"web\"")
    } else if said.contains("basic string") || said.contains("literal string") {
        (format!("the text does not end on its line ({said})"), "texts begin and end with a quote: name = \"web\"")
    } else {
        (format!("this is not TOML: {said}"), form)
    };
    notes.add(&span, message, help);
}

/// Names and labels of selectors against the hosts there are.
fn select(read: &[Read], hosts: &[At<HostEntry>], notes: &Notes) {
    let known = || hosts.iter().map(|host| host.value.name.as_str());
    let unknown = |whose: &str, name: &At<String>| {
        let help = match nearest(&name.value, known()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("hosts of this file: {}", shown(&known().collect::<Vec<_>>().join(", "))),
        };
        notes.add(&name.span, format!("{whose}: there is no host \"{}\"", shown(&name.value)), help);
    };
    // Defaults are said once, not for each VM.
    let mut seen = std::collections::BTreeSet::new();
    for vm in read {
        let whose = &vm.whose;
        if let Some(on) = &vm.on {
            if !known().any(|name| name == on.value) {
                unknown(whose, on);
                continue;
            }
        }
        let Some(selector) = &vm.common.hosts else { continue };
        let strange: Vec<_> = selector.names.iter().filter(|name| !known().any(|own| own == name.value)).collect();
        for name in &strange {
            if seen.insert(name.span.start) {
                unknown(whose, name);
            }
        }
        if !strange.is_empty() || hosts.is_empty() {
            continue;
        }
        let suits = |host: &HostEntry| {
            (selector.names.is_empty() || selector.names.iter().any(|name| name.value == host.name))
                && selector.labels.iter().all(|(key, value)| host.labels.get(&key.value) == Some(&value.value))
        };
        let suiting: Vec<&str> =
            hosts.iter().map(|host| &host.value).filter(|host| suits(host)).map(|host| host.name.as_str()).collect();
        match &vm.on {
            _ if suiting.is_empty() => {
                let labels: Vec<String> = selector
                    .labels
                    .iter()
                    .map(|(key, value)| format!("{} = \"{}\"", shown(&key.value), shown(&value.value)))
                    .collect();
                if seen.insert(selector.span.start) {
                    let help =
                        format!("give one of the hosts the labels {}, or leave some out here", labels.join(", "));
                    notes.add(&selector.span, format!("{whose}: `hosts` suits no host"), help);
                }
            }
            Some(on) if !suiting.contains(&on.value.as_str()) => {
                let message = format!("{whose}: `on` is \"{}\", which `hosts` rules out", on.value);
                notes.add(&on.span, message, "take `hosts` away, or let it include that host");
            }
            _ => {}
        }
    }
}

/// What the planner can tell apart.
fn limits(read: &[Read], notes: &Notes) {
    let mut priorities: BTreeMap<i64, ()> = BTreeMap::new();
    let mut sizes: BTreeMap<nearmetal_units::PageSize, ()> = BTreeMap::new();
    for vm in read {
        let whose = &vm.whose;
        if let Some(priority) = &vm.common.priority {
            let fresh = priorities.insert(priority.value, ()).is_none();
            if fresh && priorities.len() == MOST_PRIORITIES + 1 {
                let help = "give VMs of about the same weight the same priority";
                let message =
                    format!("{whose}: one priority more than the {MOST_PRIORITIES} different ones a fleet may have");
                notes.add(&priority.span, message, help);
            }
        }
        if let Some(At { value: Some(size), span }) = &vm.common.page_size {
            let fresh = sizes.insert(*size, ()).is_none();
            if fresh && sizes.len() == MOST_PAGE_SIZES + 1 {
                let message =
                    format!("{whose}: one page size more than the {MOST_PAGE_SIZES} different ones a fleet may have");
                notes.add(span, message, "use the sizes your hosts have pools of; x86-64 has 2 MiB and 1 GiB");
            }
        }
    }
}
