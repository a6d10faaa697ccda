//! `--what-if`: the fleet with a change, planned beside the fleet as it is.

use std::path::Path;

use anyhow::{Context, bail};
use nearmetal_fleet::file::FleetFile;
use nearmetal_fleet::{Fleet, Vm, WhatIf};
use nearmetal_host::files;

/// VMs one change may add: more is a fleet file of its own.
const MOST_COPIES: u32 = 10_000;

/// The fleet with every change made, one after the other.
///
/// # Errors
/// A change that is none, or that names what the fleet does not have; in words.
pub(crate) fn changed(fleet: &Fleet, changes: &[String]) -> anyhow::Result<Fleet> {
    let mut fleet = fleet.clone();
    for text in changes {
        for change in parse(text, &fleet).with_context(|| format!("--what-if {text}"))? {
            fleet = fleet.what_if(&change).with_context(|| format!("--what-if {text}"))?;
        }
    }
    Ok(fleet)
}

fn parse(text: &str, fleet: &Fleet) -> anyhow::Result<Vec<WhatIf>> {
    let (what, value) = text.split_once('=').unwrap_or((text, ""));
    match (what, value) {
        ("remove-host", name) if !name.is_empty() => Ok(vec![WhatIf::RemoveHost(name.to_owned())]),
        ("smt-off", "") => Ok(vec![WhatIf::SmtOff(None)]),
        ("smt-off", name) => Ok(vec![WhatIf::SmtOff(Some(name.to_owned()))]),
        ("add-vm", file) if file.ends_with(".toml") => from_file(Path::new(file)),
        ("add-vm", like) if !like.is_empty() => copies(like, fleet),
        _ => bail!("write remove-host=NAME, smt-off, smt-off=HOST, add-vm=NAME, add-vm=NAME*COUNT or add-vm=FILE.toml"),
    }
}

fn from_file(path: &Path) -> anyhow::Result<Vec<WhatIf>> {
    let file = FleetFile::parse(&path.display().to_string(), &files::read_to_string(path)?)?;
    Ok(file.vms.into_iter().map(|entry| WhatIf::AddVm(Box::new(entry.vm))).collect())
}

/// VMs like one the fleet has. Where that one runs says nothing about them.
fn copies(text: &str, fleet: &Fleet) -> anyhow::Result<Vec<WhatIf>> {
    // A VM's own name may have a `*` in it.
    let known = |name: &str| fleet.vms.iter().find(|vm| vm.name == name);
    let (like, count) = match (known(text), text.rsplit_once('*')) {
        (Some(vm), _) => (vm, 1),
        (None, Some((name, count))) => {
            let Some(vm) = known(name) else { bail!("the fleet has no VM `{name}`") };
            let count: u32 = count
                .parse()
                .ok()
                .filter(|count| (1..=MOST_COPIES).contains(count))
                .with_context(|| format!("`{count}` is not a number of VMs: write 1 to {MOST_COPIES}"))?;
            (vm, count)
        }
        (None, None) => bail!("the fleet has no VM `{text}`"),
    };
    let mut names: std::collections::BTreeSet<&str> = fleet.vms.iter().map(|vm| vm.name.as_str()).collect();
    let fresh = (1u64..).map(|number| format!("{}+{number}", like.name));
    let fresh: Vec<String> = fresh.filter(|name| !names.contains(name.as_str())).take(count as usize).collect();
    names.clear();
    Ok(fresh.into_iter().map(|name| WhatIf::AddVm(Box::new(Vm { name, current: None, ..like.clone() }))).collect())
}

#[cfg(test)]
mod tests {
    use nearmetal_units::Bytes;

    use super::*;

    fn fleet() -> Fleet {
        let vm = |name: &str| Vm::new(name, 2, Bytes::from_mib(1024));
        Fleet { vms: vec![vm("db"), vm("a*2")], ..Fleet::default() }
    }

    fn names(changes: &[&str]) -> Vec<String> {
        let changes: Vec<String> = changes.iter().map(|text| (*text).to_owned()).collect();
        changed(&fleet(), &changes).unwrap().vms.into_iter().map(|vm| vm.name).collect()
    }

    #[test]
    fn vms_are_added_like_others_under_new_names() {
        assert_eq!(names(&["add-vm=db"]), ["db", "a*2", "db+1"]);
        assert_eq!(names(&["add-vm=db*2", "add-vm=db"]), ["db", "a*2", "db+1", "db+2", "db+3"]);
        assert_eq!(names(&["add-vm=a*2"]), ["db", "a*2", "a*2+1"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for text in [
            "",
            "add-vm",
            "add-vm=",
            "add-vm=none",
            "add-vm=db*0",
            "add-vm=db*x",
            "remove-host",
            "remove-host=x",
            "smt-off=x",
            "more-memory=1",
        ] {
            assert!(changed(&fleet(), &[text.to_owned()]).is_err(), "{text}");
        }
    }
}
