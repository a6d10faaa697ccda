//! A fleet file and the hosts as they are now, made into what the planner is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nearmetal_host::ledger::Ledger;
use nearmetal_host::{GuestProcess, Host};
use serde::Serialize;

use super::entry::{FleetFile, VmEntry};
use super::now;
use super::running::{self, Stay};
use crate::model::{DeviceSelector, Fleet, FleetHost};

/// A host of the file as it was read.
#[derive(Debug, Clone, Copy)]
pub struct KnownHost<'a> {
    /// Its name in the file.
    pub name: &'a str,
    /// Its model.
    pub host: &'a Host,
    /// Who owns what there.
    pub ledger: &'a Ledger,
}

/// The question for the planner.
#[derive(Debug, Clone, PartialEq)]
pub struct Assembled {
    /// VMs and hosts in the file's order; what VMs of the fleet hold now counts as free, and is their `current` place.
    pub fleet: Fleet,
    /// VMs of the fleet that run now, in the file's order.
    pub running: Vec<RunningVm>,
    /// What was taken as said here, in sentences.
    pub assumed: Vec<String>,
}

/// A VM of the fleet that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunningVm {
    /// Its name in the file.
    pub vm: String,
    /// The host it runs on.
    pub host: String,
    /// Its QEMU process there.
    pub pid: u32,
    /// Its UUID, where its command line tells.
    pub uuid: Option<String>,
    /// What of its place a plan keeps.
    pub stay: Stay,
}

/// Everything that keeps a file and its hosts from being planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssembleErrors(pub Vec<AssembleError>);

impl fmt::Display for AssembleErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for AssembleErrors {}

/// Why a file does not go with the hosts as they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AssembleError {
    /// A host was not read.
    #[error("host `{host}` is in the fleet file and was not read: read it, or take it out of the file")]
    NotRead {
        /// The host.
        host: String,
    },
    /// Domains of that name run on several hosts.
    #[error("VM `{vm}` may be the domain of that name on any of {}: say which by `uuid` or `on`", .hosts.join(", "))]
    Several {
        /// The VM.
        vm: String,
        /// The hosts.
        hosts: Vec<String>,
    },
    /// It runs elsewhere.
    #[error(
        "VM `{vm}` is said to be on `{on}`, and a domain of that name runs on `{host}`: correct `on`, or give the `uuid` of \
         the one that is meant"
    )]
    Elsewhere {
        /// The VM.
        vm: String,
        /// Where the file has it.
        on: String,
        /// Where it runs.
        host: String,
    },
    /// It runs where it may not be, and may not be moved.
    #[error("VM `{vm}` runs on `{host}`, which its `hosts` rules out: write movable = true, or let `hosts` include it")]
    RuledOut {
        /// The VM.
        vm: String,
        /// The host.
        host: String,
    },
    /// Two VMs of the file are one domain.
    #[error("VMs `{one}` and `{other}` are the same domain on `{host}`: take one of them out of the file")]
    SameGuest {
        /// The first.
        one: String,
        /// The second.
        other: String,
        /// The host.
        host: String,
    },
}

/// Brings the file together with its hosts. VMs of the file that run are known by UUID where the file gives one, else by
/// name; what they hold is free for the fleet. Domains that are not in the file keep what they hold. Pure.
///
/// # Errors
/// All contradictions between file and hosts.
pub fn assemble(file: &FleetFile, known: &[KnownHost<'_>]) -> Result<Assembled, AssembleErrors> {
    let mut errors = Vec::new();
    let mut hosts = Vec::new();
    for entry in &file.hosts {
        match known.iter().find(|known| known.name == entry.name) {
            Some(known) => hosts.push((entry, known)),
            None => errors.push(AssembleError::NotRead { host: entry.name.clone() }),
        }
    }
    let runs = matched(file, &hosts.iter().map(|(_, known)| *known).collect::<Vec<_>>(), &mut errors);
    if !errors.is_empty() {
        return Err(AssembleErrors(errors));
    }
    let mut assumed = Vec::new();
    let mut assembled: Vec<FleetHost> = Vec::new();
    for (entry, known) in &hosts {
        let ours: BTreeSet<u32> =
            runs.values().filter(|(host, _)| host.name == known.name).map(|(_, guest)| guest.pid).collect();
        let mut host = now::supply(known, &ours, &entry.reserve, &file.vms);
        host.labels.clone_from(&entry.labels);
        host.failure_domain.clone_from(&entry.failure_domain);
        let demands = file.vms.iter().flat_map(|vm| &vm.vm.devices);
        for demand in demands {
            match &demand.selector {
                DeviceSelector::Function(address) => _ = host.set_apart(*address),
                DeviceSelector::Shared { name } => now::share_partition(known.host, &mut host, name),
                _ => {}
            }
        }
        assembled.push(host);
    }
    let mut vms: Vec<_> = file.vms.iter().map(|entry| entry.vm.clone()).collect();
    let mut running = Vec::new();
    for (at, (_, known)) in hosts.iter().enumerate() {
        let there: Vec<(usize, &GuestProcess)> = runs
            .iter()
            .filter(|(_, (host, _))| host.name == known.name)
            .map(|(vm, (_, guest))| (*vm, *guest))
            .collect();
        let stays = running::settle(known, &mut assembled[at], &mut vms, &there, &mut assumed);
        for ((vm, guest), stay) in there.iter().zip(stays) {
            let (name, host) = (vms[*vm].name.clone(), known.name.to_owned());
            running.push((*vm, RunningVm { vm: name, host, pid: guest.pid, uuid: guest.uuid.clone(), stay }));
        }
    }
    running.sort_by_key(|(vm, _)| *vm);
    for (vm, run) in &running {
        let (asked, host) = (&vms[*vm], assembled.iter().find(|host| host.name == run.host));
        if !asked.movable && host.is_some_and(|host| !asked.hosts.admits(host)) {
            errors.push(AssembleError::RuledOut { vm: asked.name.clone(), host: run.host.clone() });
        }
    }
    if !errors.is_empty() {
        return Err(AssembleErrors(errors));
    }
    let fleet = Fleet { vms, hosts: assembled, spread: file.spread };
    Ok(Assembled { fleet, running: running.into_iter().map(|(_, run)| run).collect(), assumed })
}

/// Running VMs of the file, by position: host and process.
type Runs<'a> = BTreeMap<usize, (&'a KnownHost<'a>, &'a GuestProcess)>;

fn matched<'a>(file: &FleetFile, hosts: &[&'a KnownHost<'a>], errors: &mut Vec<AssembleError>) -> Runs<'a> {
    let mut by_name: BTreeMap<&str, Vec<(&'a KnownHost<'a>, &'a GuestProcess)>> = BTreeMap::new();
    let mut by_uuid: BTreeMap<String, (&'a KnownHost<'a>, &'a GuestProcess)> = BTreeMap::new();
    for known in hosts {
        for guest in &known.host.guests {
            if let Some(name) = &guest.name {
                by_name.entry(name).or_default().push((known, guest));
            }
            if let Some(uuid) = &guest.uuid {
                by_uuid.insert(uuid.to_ascii_lowercase(), (known, guest));
            }
        }
    }
    let mut runs = Runs::new();
    let mut taken: BTreeMap<(&str, u32), &str> = BTreeMap::new();
    for (at, entry) in file.vms.iter().enumerate() {
        let name = entry.vm.name.as_str();
        let found = match &entry.uuid {
            Some(uuid) => by_uuid.get(uuid).copied(),
            None => one_of(entry, by_name.get(name).map_or(&[], Vec::as_slice), errors),
        };
        let Some((host, guest)) = found else { continue };
        if let Some(on) = entry.on.as_ref().filter(|on| *on != host.name) {
            let (vm, on, host) = (name.to_owned(), on.clone(), host.name.to_owned());
            errors.push(AssembleError::Elsewhere { vm, on, host });
            continue;
        }
        if let Some(other) = taken.insert((host.name, guest.pid), name) {
            let (one, other, host) = (other.to_owned(), name.to_owned(), host.name.to_owned());
            errors.push(AssembleError::SameGuest { one, other, host });
            continue;
        }
        runs.insert(at, (host, guest));
    }
    runs
}

fn one_of<'a>(
    entry: &VmEntry,
    found: &[(&'a KnownHost<'a>, &'a GuestProcess)],
    errors: &mut Vec<AssembleError>,
) -> Option<(&'a KnownHost<'a>, &'a GuestProcess)> {
    let there = |on: &String| found.iter().find(|(host, _)| host.name == on.as_str());
    match (found, entry.on.as_ref().and_then(there)) {
        (_, Some(found)) => Some(*found),
        ([], None) => None,
        ([one], None) => Some(*one),
        (several, None) => {
            let hosts = several.iter().map(|(host, _)| host.name.to_owned()).collect();
            errors.push(AssembleError::Several { vm: entry.vm.name.clone(), hosts });
            None
        }
    }
}
