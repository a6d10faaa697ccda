//! Hosts that are alike and get the same, drawn once.

use super::sheet::HostSheet;

/// A sheet and the names of all hosts it stands for, its own first.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alike {
    pub(crate) sheet: HostSheet,
    pub(crate) hosts: Vec<String>,
}

/// Groups by all that is drawn but names, in the order of the first of each.
pub(crate) fn alike(sheets: impl Iterator<Item = HostSheet>) -> Vec<Alike> {
    let mut groups: Vec<(HostSheet, Alike)> = Vec::new();
    for sheet in sheets {
        let nameless = nameless(&sheet);
        match groups.iter_mut().find(|(known, _)| *known == nameless) {
            Some((_, group)) => group.hosts.push(sheet.name),
            None => groups.push((nameless, Alike { hosts: vec![sheet.name.clone()], sheet })),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The sheet without the names of hosts and owners. Devices keep theirs: `eth0` is no name of this host alone.
fn nameless(sheet: &HostSheet) -> HostSheet {
    let mut sheet = sheet.clone();
    sheet.name.clear();
    for owner in &mut sheet.owners {
        owner.name.clear();
        // Where a VM comes from or goes to is another host's name.
        let verb = owner.change.split(' ').next().unwrap_or_default().to_owned();
        owner.change = verb;
    }
    sheet
}
