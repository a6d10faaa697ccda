//! A guest with a drive of its own, against bare metal with the same drive.
//!
//! Both sides have the same function of the same drive, one after the other: bound to the host's nvme driver with the
//! workload confined to the guest's PUs and nodes, and handed to the clone by VFIO: plugged into the running clone and out
//! again, or with a boot for each sample where the guest does not let go. Which driver has it, and how its DMA is translated, is read
//! back at every turn; what it was is written down before the first and put back after the last.

mod nvme;
mod path;
mod plug;

use nearmetal_change::devices::Card;
use nearmetal_domain::{DomainXml, Function};
use nearmetal_host::ledger;
use nearmetal_load::Workload;
use nearmetal_place::Placement;
use nearmetal_results::{ArmName, PLANNED, Results};
use nearmetal_units::{Bytes, PciAddress};
use serde::{Deserialize, Serialize};

use crate::appliance::Appliance;
use crate::clones::{clone_name, make_own};
use crate::conditions::Conditions;
use crate::engine::{Fresh, Guest, Session, Tenant, slice_of};
use crate::error::MeasureError;
use crate::finish::{Experiment, Request, lab_caveat};
use crate::leftovers::FunctionBefore;
use crate::matrix::fill;
use crate::pairing::Pairing;
use crate::record::record;
use nvme::Namespace;
pub(crate) use path::{DrivePath, Own};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveRequest {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: the slice.
    pub placement: Placement,
    /// Its XML as planned.
    pub xml_planned: String,
    /// The function both sides measure: a whole drive or a virtual function of one.
    pub function: PciAddress,
    /// The namespace that is written to (its NSID); `None`: the only one there is.
    pub namespace: Option<u32>,
    /// What to run.
    pub pairing: Pairing,
    /// Under what.
    pub conditions: Conditions,
}

/// The function that a definition hands through, if it is one alone.
///
/// # Errors
/// None or several, or a definition that cannot be read.
pub fn function_of(xml: &str, guest: &str) -> Result<PciAddress, MeasureError> {
    let facts = facts(xml, guest)?;
    match facts.hostdevs.as_slice() {
        [only] => Ok(*only),
        [] => Err(MeasureError::Asked(format!(
            "`{guest}` is given no PCI function: name one (`nearmetal bench drive {guest} 0000:3a:00.1`), `nearmetal device list` shows them"
        ))),
        several => Err(MeasureError::Asked(format!(
            "`{guest}` is given several PCI functions: name one of them (`nearmetal bench drive {guest} ADDRESS`): {}",
            several.iter().map(PciAddress::to_string).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn facts(xml: &str, guest: &str) -> Result<nearmetal_domain::DomainFacts, MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: guest.to_owned(), source };
    DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap)
}

impl Request for DriveRequest {
    type Outcome = Results;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.guest.clone()]
    }

    /// Runs the comparison and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The function cannot be given away, is no NVMe drive, its namespace holds data or is also reached another way; or a run
    /// fails four times in a row.
    fn measure(&self, session: &mut Session<'_>) -> Result<Results, MeasureError> {
        measure(self, session)
    }
}

fn measure(request: &DriveRequest, session: &mut Session<'_>) -> Result<Results, MeasureError> {
    let function = request.function;
    if request.placement.is_floating() {
        return Err(MeasureError::Unfit(format!(
            "the plan pins nothing of `{}`, so there is no slice to compare it with",
            request.guest
        )));
    }
    may_be_taken(function, session)?;
    session.pause_original(&request.guest)?;
    session.stage("taking the function");
    let (card, namespace) = taken(function, request.namespace, span_of(&request.pairing.paired), session)?;
    let device = device_title(&card, &namespace);
    let slice = slice_of(&request.placement, &device, namespace.size);
    session.stay_off(std::slice::from_ref(&slice))?;
    session.stage("sizing hugepage pools");
    session.grow_pools(&request.placement, 1)?;
    let appliance = Appliance::with_probe(&request.conditions)?;
    let uuid = session.new_uuid()?;
    let guest = clone_with(&request.xml_planned, &request.guest, function, &uuid, &appliance)?;
    session.will_clone([guest.name.clone()])?;

    session.stage("booting the clone");
    let (name, region) = (guest.name.clone(), format!("namespace {}", namespace.id));
    let mut own = Own::new(card, namespace, guest);
    let names = [ArmName::bare_slice(), ArmName::planned()];
    let bare = "the host itself, bound to the vCPUs' PUs and the guest's node by system calls";
    own.give_to_guest(session)?;
    let mut planned = record(session, &names[1], "the domain as planned", &region, Some(&name), &slice)?;
    planned.placement.push(own.words(session));
    own.give_to_host(session)?;
    let mut on_the_host = record(session, &names[0], bare, &region, None, &slice)?;
    on_the_host.placement.push(own.words(session));

    let mut design = request.pairing.design(&names, vec![1], &[], Fresh::No, session);
    let mut path = DrivePath(vec![own]);
    let turns = format!("host and guest took turns on {function}: bound to nvme, or handed to the clone by VFIO");
    let mut experiment = Experiment {
        experiment: "drive",
        quick: true,
        arms: vec![on_the_host, planned],
        tenants: vec![Tenant::new(&request.guest, slice)],
        least_overlap: None,
        caveats: std::iter::once(turns).chain(lab_caveat(&request.conditions.environment)).collect(),
        workloads: request.pairing.all().cloned().collect(),
        facts: Vec::new(),
        path: &mut path,
    };
    let runs = experiment.runs(&mut design, session)?;
    experiment.document(runs, session)
}

/// Refuses a function that cannot be given away now, with the reason.
pub(crate) fn may_be_taken(function: PciAddress, session: &Session<'_>) -> Result<(), MeasureError> {
    let ledger = ledger::read(session.fs, &session.host);
    let problems = nearmetal_change::devices::in_the_way(session.fs, &session.host, &ledger, function)?;
    if problems.is_empty() { Ok(()) } else { Err(MeasureError::Unfit(problems.join("; "))) }
}

/// Takes a function: what it was is written down, the host's driver has it, and `span` of its namespace has been written.
pub(crate) fn taken(
    function: PciAddress,
    wanted: Option<u32>,
    span: Option<Bytes>,
    session: &mut Session<'_>,
) -> Result<(Card, Namespace), MeasureError> {
    let (card, before) = nearmetal_change::devices::function_now(session.fs, function)?;
    session.leftovers.functions.push(FunctionBefore { card: card.clone(), driver: before });
    session.leftovers.save()?;
    plug::to_host(session.fs, &card)?;
    let namespace = Namespace::find(session.fs, function, wanted)?;
    namespace.must_be_empty(session.fs)?;
    if let Some(span) = span {
        if span > namespace.size {
            return Err(MeasureError::Asked(format!(
                "namespace {} of {function} is {}, and {span} of it are to be worked on",
                namespace.id, namespace.size
            )));
        }
        // Blocks that were never written are read without the drive's medium.
        session.stage("writing what is read later");
        fill(&format!("/dev/{}", namespace.device), Bytes::ZERO, span)?;
    }
    Ok((card, namespace))
}

/// What a slice calls the function's namespace.
pub(crate) fn device_title(card: &Card, namespace: &Namespace) -> String {
    format!("{} namespace {} (/dev/{})", card.function, namespace.id, namespace.device)
}

/// The most that a job works on; `None`: all of the namespace.
fn span_of(workloads: &[Workload]) -> Option<Bytes> {
    let span = |workload: &Workload| match workload {
        Workload::Fio(job) => job.span,
        _ => None,
    };
    workloads.iter().filter_map(span).max()
}

/// The clone: as planned, without disks, with this one function, on the guest cell the plan shows it on.
pub(crate) fn clone_with(
    xml: &str,
    guest: &str,
    function: PciAddress,
    uuid: &str,
    appliance: &Appliance,
) -> Result<Guest, MeasureError> {
    let name = clone_name(guest, PLANNED);
    let cell = facts(xml, guest)?.functions.iter().find(|own| own.address == function).and_then(|own| own.cell);
    let edit = || {
        let mut clone = make_own(xml, &name, uuid, appliance)?;
        for disk in clone.facts()?.disks {
            clone.remove_disk(&disk.target)?;
        }
        clone.set_functions(&[Function { address: function, network: None, cell }])?;
        let xml = clone.as_str().to_owned();
        // Who takes turns binds the drivers, and libvirt must not do it at the same time.
        let Some(element) = clone.function_element(function)? else { return Ok(xml) };
        Ok(xml.replace(&element, &element.replace("managed='yes'", "managed='no'")))
    };
    let xml = edit().map_err(|source| MeasureError::Xml { arm: PLANNED.to_owned(), source })?;
    Ok(Guest { name, xml, device: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINED: &str = "<domain type='kvm'>
  <name>db</name>
  <uuid>11111111-1111-1111-1111-111111111111</uuid>
  <memory unit='MiB'>384</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <disk type='block' device='disk'><source dev='/dev/sda'/><target dev='vda' bus='virtio'/></disk>
    <hostdev mode='subsystem' type='pci' managed='no'><source><address domain='0x0000' bus='0x3a' slot='0x00' function='0x1'/></source></hostdev>
    <hostdev mode='subsystem' type='pci'><source><address domain='0x0000' bus='0x3b' slot='0x00' function='0x0'/></source></hostdev>
  </devices>
</domain>
";

    #[test]
    fn the_clone_has_this_function_and_no_disk() {
        let appliance =
            Appliance { kernel: "/a/vmlinuz".into(), initramfs: "/a/initramfs".into(), loads: None, kit: None };
        let function: PciAddress = "0000:3a:00.1".parse().unwrap();
        let uuid = "22222222-2222-2222-2222-222222222222";
        let xml = clone_with(DEFINED, "db", function, uuid, &appliance).unwrap().xml;
        let facts = facts(&xml, "db").unwrap();
        assert_eq!((facts.disks.len(), facts.hostdevs), (0, vec![function]));
        assert!(facts.functions.iter().all(|own| !own.managed), "libvirt would rebind it behind our back: {xml}");
        assert_eq!((facts.name.as_str(), facts.uuid.as_deref()), ("db-nearmetal-planned", Some(uuid)));
    }

    #[test]
    fn one_function_is_found_and_several_are_named() {
        let error = function_of(DEFINED, "db").unwrap_err().to_string();
        assert!(error.contains("0000:3a:00.1") && error.contains("0000:3b:00.0"), "{error}");
        let none = "<domain type='kvm'><name>x</name><memory>1</memory><vcpu>1</vcpu><devices/></domain>";
        assert!(function_of(none, "x").unwrap_err().to_string().contains("`nearmetal bench drive x 0000:3a:00.1`"));
    }
}
