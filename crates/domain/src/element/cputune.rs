//! `<cputune>`: pins of vCPUs, of the emulator thread and of iothreads.

use std::collections::BTreeMap;

use nearmetal_units::CpuSet;
use roxmltree::{Document, Node};

use crate::document::DomainXml;
use crate::edit::Edits;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

/// vCPU pins by vCPU number.
pub(crate) fn vcpu_pins(document: &Document<'_>) -> Result<BTreeMap<u32, CpuSet>, DomainError> {
    pins(document, "vcpupin", "vcpu")
}

/// Iothread pins by iothread number.
pub(crate) fn iothread_pins(document: &Document<'_>) -> Result<BTreeMap<u32, CpuSet>, DomainError> {
    pins(document, "iothreadpin", "iothread")
}

/// PUs of the emulator thread.
pub(crate) fn emulator_pin(document: &Document<'_>) -> Result<Option<CpuSet>, DomainError> {
    match tree::find_all(document, &["cputune", "emulatorpin"]).first() {
        Some(node) => tree::cpu_set(*node, "cpuset"),
        None => Ok(None),
    }
}

fn pins(document: &Document<'_>, element: &str, key: &str) -> Result<BTreeMap<u32, CpuSet>, DomainError> {
    let mut pins = BTreeMap::new();
    for node in tree::find_all(document, &["cputune", element]) {
        let missing =
            |name: &str| DomainError::Missing { position: tree::position(node), what: format!("{element}/@{name}") };
        let number: u32 = tree::number(node, key)?.ok_or_else(|| missing(key))?;
        let cpus = tree::cpu_set(node, "cpuset")?.ok_or_else(|| missing("cpuset"))?;
        if pins.insert(number, cpus).is_some() {
            return Err(tree::bad_value(
                node,
                &format!("{element}/@{key}"),
                &number.to_string(),
                "it is pinned already above",
            ));
        }
    }
    Ok(pins)
}

impl DomainXml {
    /// Pins exactly these vCPUs: pins of others are removed, an empty list removes all.
    ///
    /// # Errors
    /// An empty CPU set, or one vCPU twice.
    pub fn set_vcpu_pins(&mut self, pins: &[(u32, CpuSet)]) -> Result<bool, DomainError> {
        let pins = checked(pins, "a vCPU pin")?;
        self.rewrite(|document, edits| set_pins(document, edits, &VCPU, &pins))
    }

    /// Pins the emulator thread, and with it all threads of QEMU that have no pin of their own. An empty set removes
    /// the pin.
    pub fn set_emulator_pin(&mut self, cpus: &CpuSet) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let present = tree::find_all(document, &["cputune", "emulatorpin"]);
            match present.split_first() {
                _ if cpus.is_empty() => present.into_iter().for_each(|node| edits.remove(node)),
                Some((first, others)) => {
                    set_cpuset(edits, *first, cpus);
                    others.iter().for_each(|node| edits.remove(*node));
                }
                None => {
                    let pin = Fragment::new("emulatorpin").attribute("cpuset", cpus);
                    insert(document, edits, vec![pin], "emulatorpin");
                }
            }
            Ok(())
        })
    }

    /// Lets every thread float again: removes the pins of vCPUs, emulator and iothreads, and `<cputune>` if nothing
    /// else stands in it.
    pub fn remove_pins(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for cputune in tree::find_all(document, &["cputune"]) {
                let is_pin = |node: &Node<'_, '_>| {
                    crate::edit::is_plain(*node)
                        && ["vcpupin", "emulatorpin", "iothreadpin"].contains(&node.tag_name().name())
                };
                let (gone, kept): (Vec<_>, Vec<_>) =
                    cputune.children().filter(|node| !node.is_text()).partition(|node| is_pin(node));
                match (gone.is_empty(), kept.is_empty()) {
                    (true, _) => {}
                    (false, true) => edits.remove(cputune),
                    (false, false) => gone.into_iter().for_each(|node| edits.remove(node)),
                }
            }
            Ok(())
        })
    }
}

/// How one kind of pin is written.
pub(crate) struct PinKind {
    element: &'static str,
    key: &'static str,
}

const VCPU: PinKind = PinKind { element: "vcpupin", key: "vcpu" };
pub(crate) const IOTHREAD: PinKind = PinKind { element: "iothreadpin", key: "iothread" };

/// Refuses what libvirt would refuse.
pub(crate) fn checked(pins: &[(u32, CpuSet)], what: &'static str) -> Result<BTreeMap<u32, CpuSet>, DomainError> {
    let mut map = BTreeMap::new();
    for (number, cpus) in pins {
        if cpus.is_empty() {
            return Err(DomainError::argument(what, "", "a thread needs at least one PU"));
        }
        if map.insert(*number, cpus.clone()).is_some() {
            return Err(DomainError::argument(what, &number.to_string(), "the list has it twice"));
        }
    }
    Ok(map)
}

/// Makes the pins of one kind exactly these.
pub(crate) fn set_pins(
    document: &Document<'_>,
    edits: &mut Edits<'_>,
    kind: &PinKind,
    pins: &BTreeMap<u32, CpuSet>,
) -> Result<(), DomainError> {
    let mut missing = pins.clone();
    let mut last = None;
    for node in tree::find_all(document, &["cputune", kind.element]) {
        // A pin whose number cannot be read belongs to no thread of the plan: it goes like any other stray pin.
        let number = tree::number::<u32>(node, kind.key).ok().flatten();
        match number.and_then(|number| missing.remove(&number)) {
            Some(cpus) => set_cpuset(edits, node, &cpus),
            None => edits.remove(node),
        }
        last = Some(node);
    }
    let new: Vec<Fragment> = missing
        .iter()
        .map(|(number, cpus)| Fragment::new(kind.element).attribute(kind.key, number).attribute("cpuset", cpus))
        .collect();
    match last {
        Some(last) => new.iter().for_each(|pin| edits.insert_after(last, pin)),
        None => insert(document, edits, new, kind.element),
    }
    Ok(())
}

/// Writes a CPU set unless the one there means the same.
fn set_cpuset(edits: &mut Edits<'_>, node: Node<'_, '_>, cpus: &CpuSet) {
    let same = node
        .attribute("cpuset")
        .and_then(|text| tree::parse_set(text).ok())
        .is_some_and(|there: CpuSet| there == *cpus);
    if !same {
        edits.set_attribute(node, "cpuset", &cpus.to_string());
    }
}

/// Puts new pins into `<cputune>` where libvirt prints them, making it where there is none.
fn insert(document: &Document<'_>, edits: &mut Edits<'_>, pins: Vec<Fragment>, element: &str) {
    if pins.is_empty() {
        return;
    }
    let behind = |parent, name| order::before(parent, name).unwrap_or_default();
    match tree::find(document, &["cputune"]) {
        Some(cputune) => edits.insert_all_behind(cputune, behind("cputune", element), &pins),
        None => {
            let cputune = Fragment::new("cputune").children(pins);
            edits.insert_behind(document.root_element(), behind("domain", "cputune"), &cputune);
        }
    }
}
