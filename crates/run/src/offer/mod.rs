//! What a host offers to a batch system: flavours, PUs, nodes, images and functions, as data.
//!
//! Pure: from what was read. What could not be read is `None` and has a sentence in [`Offer::unknown`]; nothing here fails, since an
//! engine that hears half of an offer places jobs that cannot run, and one that hears none places none.

mod words;

use nearmetal_host::Host;
use nearmetal_host::assignable::Assignable;
use nearmetal_image::{FindError, Store, StoredImage};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize, PciAddress};
use serde::Serialize;
use std::collections::BTreeMap;

use crate::flavour::{Boot, Flavour, Flavours};
use crate::function::Lent;
use crate::given::Given;
use crate::needs::in_a_session;
use crate::promised::without_guests_of;
use crate::reservation::Reservation;
use crate::slice::Choice;

/// The schema of the document.
pub const SCHEMA: &str = "nearmetal.offer/1";
/// Guests of one flavour that are counted at most: each is a plan.
pub const MOST: u32 = 256;

/// What was read of a host; `None` for what could not be.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The machine.
    pub host: &'a Host,
    /// What this process was given of it.
    pub given: Option<&'a Given>,
    /// What runs have.
    pub runs: Option<&'a [Reservation]>,
    /// The flavours file.
    pub flavours: Option<&'a Flavours>,
    /// The store of images, by whose rule a name means one.
    pub store: &'a Store,
    /// What it has.
    pub images: Option<&'a [StoredImage]>,
    /// By a flavour's name, what its guests need beside PUs, memory, an image and a function, and this host does not have.
    pub lacks: &'a BTreeMap<String, String>,
    /// Functions that guests could be given.
    pub functions: &'a [Assignable],
}

/// What a host offers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offer {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Name of the host.
    pub host: Option<String>,
    /// PUs that were given to whoever asked, and are online.
    pub cpus: Option<CpuSet>,
    /// Those of them that no run has.
    pub free_cpus: Option<CpuSet>,
    /// Nodes that were given.
    pub nodes: Vec<OfferedNode>,
    /// Flavours, in the file's order.
    pub flavours: Option<Vec<OfferedFlavour>>,
    /// Images of the store.
    pub images: Option<Vec<OfferedImage>>,
    /// Functions that a guest can have now.
    pub functions: Vec<OfferedFunction>,
    /// A sentence for each thing that could not be told.
    pub unknown: Vec<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfferedNode {
    /// Number.
    pub node: u32,
    /// Its PUs among those given.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory: Option<Bytes>,
    /// What is free of it.
    pub memory_free: Option<Bytes>,
}

/// A flavour, and how many guests of it there can be.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfferedFlavour {
    /// Its name.
    pub name: String,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Guest memory.
    pub memory: Bytes,
    /// Size of its hugepages; `None` for the kernel's own pages.
    pub page_size: Option<PageSize>,
    /// Its image, as the file has it.
    pub image: Option<String>,
    /// Whether users without root can have it (session mode); else only root can.
    pub session: bool,
    /// Group whose members can have it from the service (`--mode system`).
    pub open_to: Option<String>,
    /// Guests of it that fit at once beside no run, [`MOST`] at most. It does not change while runs come and go.
    pub fit: Option<u32>,
    /// Guests of it that fit beside the runs there are.
    pub fit_now: Option<u32>,
    /// Why none fits.
    pub problem: Option<String>,
}

/// An image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfferedImage {
    /// Its hash.
    pub image: String,
    /// Its readable name.
    pub name: Option<String>,
}

/// A PCI function that a guest can have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfferedFunction {
    /// Its address.
    pub function: PciAddress,
    /// `network`, `nvme`, `storage`, `display`, …
    pub kind: String,
    /// Its node; `None` where the firmware gave none.
    pub node: Option<u32>,
    /// Whether it is a virtual function.
    pub is_virtual: bool,
}

impl Offer {
    /// Of what was read. `unknown`: a sentence for each source that is `None`.
    pub fn of(sources: &Sources<'_>, unknown: Vec<String>) -> Self {
        let (host, given) = (sources.host, sources.given);
        let cpus = given.map(|given| given.cpus.intersection(&host.online()));
        let taken = sources.runs.map(|runs| runs.iter().fold(CpuSet::new(), |all, run| all.union(&run.cpus)));
        let free_cpus = cpus.as_ref().zip(taken).map(|(cpus, taken)| cpus.difference(&taken));
        let all_nodes = || host.nodes.iter().map(|node| node.index).collect::<NodeSet>();
        let nodes = given.map_or_else(all_nodes, |given| given.nodes.clone());
        let node = |node: &nearmetal_host::NumaNode| OfferedNode {
            node: node.index,
            cpus: cpus.as_ref().map_or_else(|| node.cpus.clone(), |cpus| node.cpus.intersection(cpus)),
            memory: node.memory_total,
            memory_free: node.memory_free,
        };
        Self {
            schema: SCHEMA,
            host: host.system.hostname.clone(),
            nodes: host.nodes.iter().filter(|one| nodes.contains(one.index)).map(node).collect(),
            flavours: sources.flavours.map(|flavours| flavours.all().iter().map(|one| flavour(one, sources)).collect()),
            images: sources.images.map(|images| images.iter().map(image).collect()),
            functions: sources.functions.iter().filter(|one| one.is_free()).map(function).collect(),
            cpus,
            free_cpus,
            unknown,
        }
    }
}

fn image(image: &StoredImage) -> OfferedImage {
    OfferedImage { image: image.image.to_string(), name: image.name.clone() }
}

fn function(one: &Assignable) -> OfferedFunction {
    let (function, kind, node) = (one.function, one.kind.clone(), one.node);
    OfferedFunction { function, kind, node, is_virtual: one.virtual_of.is_some() }
}

fn flavour(flavour: &Flavour, sources: &Sources<'_>) -> OfferedFlavour {
    let mut offered = OfferedFlavour {
        name: flavour.name.clone(),
        vcpus: flavour.vcpus,
        memory: flavour.memory,
        page_size: flavour.page_size,
        image: flavour.image.clone(),
        session: in_a_session(flavour).is_ok(),
        open_to: flavour.open_to.clone(),
        fit: None,
        fit_now: None,
        problem: None,
    };
    let lacks = sources.lacks.get(&flavour.name).cloned();
    if let Some(problem) = lacks.or_else(|| missing_image(flavour, sources)) {
        (offered.fit, offered.fit_now, offered.problem) = (Some(0), Some(0), Some(problem));
        return offered;
    }
    let Some(given) = sources.given else { return offered };
    let runs = sources.runs.unwrap_or_default();
    let functions = without_runs(sources.functions, runs);
    let (fit, problem) = count(flavour, given, &without_guests_of(sources.host, runs), &functions, &[]);
    offered.fit = Some(fit);
    offered.problem = problem.filter(|_| fit == 0);
    if sources.runs.is_some() {
        let (now, problem) = count(flavour, given, sources.host, sources.functions, runs);
        offered.fit_now = Some(now);
        offered.problem = offered.problem.or(problem.filter(|_| now == 0));
    }
    offered
}

/// Why the image that a flavour names is not one to boot; a flavour without one, and a store that was not read, say nothing.
fn missing_image(flavour: &Flavour, sources: &Sources<'_>) -> Option<String> {
    let wanted = flavour.image.as_ref().filter(|_| flavour.boot != Boot::Appliance)?;
    match sources.store.find_among(sources.images?, wanted) {
        Ok(_) => None,
        Err(FindError::None { .. }) => {
            Some(format!("its image `{wanted}` is not in the store: `nearmetal image push` brings it"))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// The functions as they would be without these runs: nobody has those of their guests.
fn without_runs(functions: &[Assignable], runs: &[Reservation]) -> Vec<Assignable> {
    let without = |one: &Assignable| match runs.iter().any(|run| run.has(one.function)) {
        true => Assignable { guest: None, obstacles: Vec::new(), ..one.clone() },
        false => one.clone(),
    };
    functions.iter().map(without).collect()
}

/// How many fit one after the other, and why the next does not.
fn count(
    flavour: &Flavour,
    given: &Given,
    host: &Host,
    functions: &[Assignable],
    runs: &[Reservation],
) -> (u32, Option<String>) {
    let mut others = runs.to_vec();
    for number in 0..MOST {
        let (name, uuid) = (format!("offer-{number}"), format!("offer-{number}"));
        let choice = Choice {
            flavour,
            name: &name,
            uuid: &uuid,
            host,
            given,
            others: &others,
            functions,
            has_disk: flavour.image.is_some(),
            // What is asked for beside the guest's is the job's matter, and depends on its mode.
            beside: Bytes::ZERO,
        };
        match choice.choose() {
            Err(error) => return (number, Some(error.to_string())),
            Ok(chosen) => others.push(Reservation {
                cpus: chosen.cpus,
                memory: chosen.memory,
                limits: given.limit_files(),
                limit_groups: given.limit_groups(),
                page_size: flavour.page_size,
                functions: chosen.function.into_iter().map(Lent::nothing_known).collect(),
                ..Reservation::empty(&name, &uuid, &flavour.name)
            }),
        }
    }
    (MOST, None)
}

#[cfg(test)]
pub(crate) mod tests;
