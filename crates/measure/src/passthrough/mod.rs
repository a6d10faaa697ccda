//! A guest with a drive of its own, against bare metal with the same drive.
//!
//! Both sides have the same function of the same drive, one after the other: bound to the host's nvme driver with the
//! workload confined to the guest's PUs and nodes, and handed to the clone by VFIO: plugged into the running clone and out
//! again, or with a boot for each sample where the guest does not let go. Which driver has it, and how its DMA is translated, is read
//! back at every turn; what it was is written down before the first and put back after the last.

mod nvme;
mod plug;
mod several;
mod turns;

use std::collections::BTreeMap;

use nearmetal_change::devices::Card;
use nearmetal_domain::{DomainXml, Function};
use nearmetal_host::{Host, HostFs, ledger};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use nearmetal_units::{Bytes, PciAddress};

use crate::appliance::Appliance;
use crate::bench::{Event, grow_pools, new_uuid, pause_original, slice, stay_off};
use crate::clones::{clone_name, make_own};
use crate::conditions::Conditions;
use crate::cost::exit_reasons;
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::experiment::perform;
use crate::leftovers::{FunctionBefore, Leftovers, leaving_nothing};
use crate::matrix::fill;
use crate::record::provenance;
use crate::results::{ArmKind, Environment, Results, SCHEMA};
use crate::schedule::{Design, schedule};
use crate::workload::Workload;
use nvme::Namespace;
pub use several::{FunctionMember, FunctionTogetherRequest, bench_functions_together};
use turns::Turns;

/// What to measure.
#[derive(Debug, Clone)]
pub struct FunctionRequest {
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
    /// What to run, in the arms bare slice and planned.
    pub design: Design,
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
        [] => Err(MeasureError::Unfit(format!(
            "`{guest}` is given no PCI function: name one (`nearmetal bench drive {guest} 0000:3a:00.1`), `nearmetal device list` shows them"
        ))),
        several => Err(MeasureError::Unfit(format!(
            "`{guest}` is given several PCI functions: name one of them (`nearmetal bench drive {guest} ADDRESS`): {}",
            several.iter().map(PciAddress::to_string).collect::<Vec<_>>().join(", ")
        ))),
    }
}

fn facts(xml: &str, guest: &str) -> Result<nearmetal_domain::DomainFacts, MeasureError> {
    let wrap = |source| MeasureError::Xml { arm: guest.to_owned(), source };
    DomainXml::parse(xml).and_then(|xml| xml.facts()).map_err(wrap)
}

/// Runs the comparison and puts everything back, whatever came of it.
///
/// # Errors
/// The function cannot be given away, is no NVMe drive, its namespace holds data or is also reached another way; or a run
/// fails four times in a row.
pub fn bench_function(
    request: &FunctionRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Results, MeasureError> {
    leaving_nothing(&request.conditions.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
        measure(request, fs, host, hypervisor, leftovers, tell)
    })
}

fn measure(
    request: &FunctionRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Results, MeasureError> {
    let function = request.function;
    if request.placement.is_floating() {
        return Err(MeasureError::Unfit(format!(
            "the plan pins nothing of `{}`, so that there is no slice to compare it with",
            request.guest
        )));
    }
    may_be_taken(function, fs, host)?;
    pause_original(&request.guest, request.conditions.pause, hypervisor, leftovers)?;
    tell(Event::Stage("taking the function"));
    let (card, namespace) = taken(function, request.namespace, span_of(&request.design), fs, leftovers, tell)?;
    let slice = slice(&request.placement, &device_title(&card, &namespace), namespace.size);
    stay_off(host, &slice)?;
    tell(Event::Stage("sizing hugepage pools"));
    grow_pools(&request.placement, 1, host, fs, leftovers)?;
    let work = request.conditions.state.join("bench");
    let appliance = Appliance::with_probe(&request.conditions.appliance, &request.conditions.probe, &work)?;
    let name = clone_name(&request.guest, ArmKind::Planned);
    let xml = clone_with(&request.xml_planned, &request.guest, &name, function, &new_uuid(fs)?, &appliance)?;
    leftovers.clones = vec![name.clone()];
    leftovers.save()?;

    let versions = hypervisor.versions().ok();
    let guests = BTreeMap::from([(ArmKind::Planned, GuestArm { name, xml, device: String::new() })]);
    let bare = format!("/dev/{}", namespace.device);
    let machine = Machine::of_clones(hypervisor, fs, &request.conditions, &slice, &bare, guests);
    let mut turns = Turns::new(machine, card, namespace);
    let steps = schedule(&request.design, request.conditions.seed);
    let total = steps.len();
    let mut runs = perform(&steps, false, &mut turns, &mut |index, step| tell(Event::Step { index, total, step }))?;
    tell(Event::Stage("exits by reason"));
    let next = runs.last().map_or(0, |run| run.round + 1);
    let (more, untold) = exit_reasons(fs, &request.design, request.conditions.seed, next, &mut turns, leftovers);
    runs.extend(more);
    let (records, notes) = turns.into_records();
    let mut caveats =
        vec![format!("host and guest took turns on {function}: bound to nvme, or handed to the clone by VFIO")];
    if let Environment::Lab { machine } = &request.conditions.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
        ));
    }
    Ok(Results {
        schema: SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.conditions.environment.clone(),
        quick: true,
        seed: request.conditions.seed,
        guest: request.guest.clone(),
        caveats: [caveats, notes, untold].concat(),
        slice,
        arms: records,
        runs,
        provenance: provenance(host, versions.as_ref(), request.conditions.seed, &request.design),
    })
}

/// Refuses a function that cannot be given away now, with the reason.
fn may_be_taken(function: PciAddress, fs: &HostFs, host: &Host) -> Result<(), MeasureError> {
    let problems = nearmetal_change::devices::in_the_way(fs, host, &ledger::read(fs, host), function)?;
    if problems.is_empty() { Ok(()) } else { Err(MeasureError::Unfit(problems.join("; "))) }
}

/// Takes a function: what it was is written down, the host's driver has it, and `span` of its namespace has been written.
fn taken(
    function: PciAddress,
    wanted: Option<u32>,
    span: Option<Bytes>,
    fs: &HostFs,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(Card, Namespace), MeasureError> {
    let (card, before) = nearmetal_change::devices::function_now(fs, function)?;
    leftovers.functions.push(FunctionBefore { card: card.clone(), driver: before });
    leftovers.save()?;
    plug::to_host(fs, &card)?;
    let namespace = Namespace::find(fs, function, wanted)?;
    namespace.must_be_empty(fs)?;
    if let Some(span) = span {
        if span > namespace.size {
            return Err(MeasureError::Unfit(format!(
                "namespace {} of {function} is {}, and {span} of it are to be worked on",
                namespace.id, namespace.size
            )));
        }
        // Blocks that were never written are read without the drive's medium.
        tell(Event::Stage("writing what is read later"));
        fill(&format!("/dev/{}", namespace.device), Bytes::ZERO, span)?;
    }
    Ok((card, namespace))
}

/// What a slice calls the function's namespace.
fn device_title(card: &Card, namespace: &Namespace) -> String {
    format!("{} namespace {} (/dev/{})", card.function, namespace.id, namespace.device)
}

/// The most that a job of the design works on; `None`: all of the namespace.
fn span_of(design: &Design) -> Option<Bytes> {
    let spans = design.paired.iter().filter_map(|workload| match workload {
        Workload::Fio(job) => job.span,
        Workload::FileSystem(_) | Workload::MemoryLatency(_) | Workload::MemoryBandwidth(_) => None,
    });
    spans.max()
}

/// The clone: as planned, without disks, with this one function, on the guest cell the plan shows it on.
fn clone_with(
    xml: &str,
    guest: &str,
    name: &str,
    function: PciAddress,
    uuid: &str,
    appliance: &Appliance,
) -> Result<String, MeasureError> {
    let cell = facts(xml, guest)?.functions.iter().find(|own| own.address == function).and_then(|own| own.cell);
    let edit = || {
        let mut clone = make_own(xml, name, uuid, appliance)?;
        for disk in clone.facts()?.disks {
            clone.remove_disk(&disk.target)?;
        }
        clone.set_functions(&[Function { address: function, network: None, cell }])?;
        let xml = clone.as_str().to_owned();
        // Who takes turns binds the drivers, and libvirt must not do it at the same time.
        let Some(element) = clone.function_element(function)? else { return Ok(xml) };
        Ok(xml.replace(&element, &element.replace("managed='yes'", "managed='no'")))
    };
    edit().map_err(|source| MeasureError::Xml { arm: ArmKind::Planned.id().to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANNED: &str = "<domain type='kvm'>
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
        let appliance = Appliance { kernel: "/a/vmlinuz".into(), initramfs: "/a/initramfs".into() };
        let function: PciAddress = "0000:3a:00.1".parse().unwrap();
        let uuid = "22222222-2222-2222-2222-222222222222";
        let xml = clone_with(PLANNED, "db", "db-clone", function, uuid, &appliance).unwrap();
        let facts = facts(&xml, "db").unwrap();
        assert_eq!((facts.disks.len(), facts.hostdevs), (0, vec![function]));
        assert!(facts.functions.iter().all(|own| !own.managed), "libvirt would rebind it behind our back: {xml}");
        assert_eq!((facts.name.as_str(), facts.uuid.as_deref()), ("db-clone", Some(uuid)));
    }

    #[test]
    fn one_function_is_found_and_several_are_named() {
        let error = function_of(PLANNED, "db").unwrap_err().to_string();
        assert!(error.contains("0000:3a:00.1") && error.contains("0000:3b:00.0"), "{error}");
        let none = "<domain type='kvm'><name>x</name><memory>1</memory><vcpu>1</vcpu><devices/></domain>";
        assert!(function_of(none, "x").unwrap_err().to_string().contains("`nearmetal bench drive x 0000:3a:00.1`"));
    }
}
