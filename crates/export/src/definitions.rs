//! New definitions of domains, and what is different in them.

use std::collections::BTreeSet;

use nearmetal_domain::{DomainXml, diff, render_diff};

use crate::collect::Collected;
use crate::plain::file_name;
use crate::{ExportFile, Input};

/// Two files for each domain whose definition changes: the whole new one, and the difference.
pub(crate) fn files(input: &Input<'_>, collected: &mut Collected) -> Vec<ExportFile> {
    let mut files = Vec::new();
    let mut taken = BTreeSet::new();
    for (domain, edits) in std::mem::take(&mut collected.edits) {
        let Some(before) = input.definitions.get(&domain) else { continue };
        let mut xml = match DomainXml::parse(before) {
            Ok(xml) => xml,
            Err(error) => {
                collected.skipped.push(format!("{domain}: {error}"));
                continue;
            }
        };
        for (edit, rule) in edits {
            if let Err(error) = xml.edit(&edit) {
                collected.skipped.push(format!("{domain}: {edit} ({rule}): {error}"));
            }
        }
        let (before, after) = (ended(before), ended(&xml.to_string()));
        if before == after {
            collected
                .notes
                .push(format!("{domain}: its stored definition is right already: in force at its next start"));
            continue;
        }
        let name = free_name(&domain, &mut taken);
        let patch = render_diff(&diff(&before, &after), &format!("a/{name}.xml"), &format!("b/{name}.xml"));
        for (ending, text) in [("xml", after), ("diff", patch)] {
            files.push(ExportFile { private: true, ..ExportFile::new(format!("domains/{name}.{ending}"), text) });
        }
    }
    files
}

/// With a line break at its end, which `patch` needs.
fn ended(text: &str) -> String {
    if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

fn free_name(domain: &str, taken: &mut BTreeSet<String>) -> String {
    let name = file_name(domain);
    let mut free = name.clone();
    let mut number = 2;
    while !taken.insert(free.clone()) {
        free = format!("{name}-{number}");
        number += 1;
    }
    free
}
