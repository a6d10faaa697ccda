//! Several guests at once, each with a drive of its own by PCI passthrough, against their bare slices at once with the same
//! drives.
//!
//! The guests stay up. Before the slices have their turn each guest lets go of its function and the host's driver takes it;
//! before the guests have theirs it is plugged in again. Who has it is read back at each turn.

use std::collections::BTreeMap;

use nearmetal_change::devices::Card;
use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::{Definition, Hypervisor};
use nearmetal_place::Placement;
use nearmetal_units::PciAddress;

use super::nvme::Namespace;
use super::plug::{PLUG_PATIENCE, element_of, in_the_guest, on_the_host, read_back, to_host, to_vfio, unplug};
use super::{clone_with, device_title, may_be_taken, taken};
use crate::appliance::Appliance;
use crate::bench::{Event, new_uuid, slice};
use crate::clones::clone_name;
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::record::record;
use crate::results::{ArmKind, Slice};
use crate::together::{
    Drives, MemberInfo, OnDrives, Ready, Running, Side, TogetherLoad, TogetherResults, TogetherTerms, Turn, apart,
    lab_caveat, make_room, pause_all,
};
use crate::workload::FioJob;

/// One guest.
#[derive(Debug, Clone)]
pub struct FunctionMember {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: its slice.
    pub placement: Placement,
    /// Its XML as planned.
    pub xml_planned: String,
    /// The drive it has for itself, or a virtual function of one.
    pub function: PciAddress,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct FunctionTogetherRequest {
    /// The guests, in the order in which they join.
    pub members: Vec<FunctionMember>,
    /// The namespace that is written to on each (its NSID); `None`: the only one there is.
    pub namespace: Option<u32>,
    /// What each runs.
    pub job: FioJob,
    /// How.
    pub terms: TogetherTerms,
}

/// Runs the experiment and puts everything back, whatever came of it.
///
/// # Errors
/// Slices that share PUs; a function that cannot be given away, is no NVMe drive, is named twice or holds data; a guest that
/// does not let go of its function; or several samples in a row that fail.
pub fn bench_functions_together(
    request: &FunctionTogetherRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    apart(request.members.iter().map(|member| (member.guest.as_str(), &member.placement)))?;
    for (number, member) in request.members.iter().enumerate() {
        if let Some(other) = request.members[..number].iter().find(|other| other.function == member.function) {
            let (one, other, function) = (&member.guest, &other.guest, member.function);
            return Err(MeasureError::Unfit(format!("`{other}` and `{one}` have the same function, {function}")));
        }
    }
    leaving_nothing(&request.terms.conditions.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
        measure(request, fs, host, hypervisor, leftovers, tell)
    })
}

/// Who has a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Host,
    Guest,
    /// On its way: a step failed.
    Nobody,
}

/// One function on its way to and fro.
struct Own {
    card: Card,
    namespace: Namespace,
    clone: String,
    /// Its element in the live XML of the clone.
    element: String,
    holder: Holder,
    /// Its block device where it is; empty if that is not known.
    device: String,
}

impl Own {
    /// The host has it. The clone is paused before and after.
    fn give_to_host(&mut self, fs: &HostFs, hypervisor: &mut dyn Hypervisor) -> Result<(), MeasureError> {
        match self.holder {
            Holder::Host => return Ok(()),
            Holder::Guest => {
                if !unplug(hypervisor, &self.clone, self.card.function, &self.element)? {
                    // It runs, and would disturb the next sample.
                    let _ = hypervisor.suspend(&self.clone);
                    let seconds = PLUG_PATIENCE.as_secs();
                    return Err(MeasureError::Unfit(format!(
                        "`{}` did not let go of {} within {seconds} s",
                        self.clone, self.card.function
                    )));
                }
                self.holder = Holder::Nobody;
            }
            Holder::Nobody => {}
        }
        to_host(fs, &self.card)?;
        self.device = on_the_host(fs, &self.card, &self.namespace)?;
        self.holder = Holder::Host;
        Ok(())
    }

    /// The clone has it, and has found its namespace. It is paused before and after.
    fn give_to_guest(&mut self, fs: &HostFs, hypervisor: &mut dyn Hypervisor) -> Result<(), MeasureError> {
        if self.holder == Holder::Guest && !self.device.is_empty() {
            return Ok(());
        }
        self.device.clear();
        if self.holder == Holder::Host {
            self.holder = Holder::Nobody;
        }
        let wrap = |source| MeasureError::Hypervisor { arm: self.clone.clone(), source };
        if self.holder == Holder::Nobody {
            to_vfio(fs, &self.card)?;
        }
        hypervisor.resume(&self.clone).map_err(wrap)?;
        let plugged = match self.holder {
            Holder::Guest => Ok(()),
            Holder::Host | Holder::Nobody => hypervisor.attach_device(&self.clone, &self.element).map_err(wrap),
        };
        let found = plugged.and_then(|()| {
            // Also where the guest does not find it: it has it, and must let go before the host's driver takes it.
            self.holder = Holder::Guest;
            in_the_guest(hypervisor, &self.clone, self.card.function, &self.namespace)
        });
        hypervisor.suspend(&self.clone).map_err(wrap)?;
        self.device = found?;
        Ok(())
    }
}

/// The functions of all members.
struct Functions(Vec<Own>);

impl Drives for Functions {
    fn turn_to(&mut self, turn: &mut Turn<'_>) -> Result<(), MeasureError> {
        self.0.iter_mut().take(turn.count).try_for_each(|own| match turn.side {
            Side::Bare => own.give_to_host(turn.fs, turn.hypervisor),
            Side::Guests => own.give_to_guest(turn.fs, turn.hypervisor),
        })
    }

    fn device(&self, _: Side, number: usize) -> &str {
        self.0.get(number).map_or("", |own| own.device.as_str())
    }
}

fn measure(
    request: &FunctionTogetherRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    let conditions = &request.terms.conditions;
    request.members.iter().try_for_each(|member| may_be_taken(member.function, fs, host))?;
    let guests = request.members.iter().map(|member| (member.guest.as_str(), &member.placement));
    pause_all(guests.clone(), &request.terms, hypervisor, leftovers)?;
    tell(Event::Stage("taking the functions"));
    let mut functions = Vec::new();
    for member in &request.members {
        functions.push(taken(member.function, request.namespace, request.job.span, fs, leftovers, tell)?);
    }
    let slice_of = |(member, (card, namespace)): (&FunctionMember, &(Card, Namespace))| {
        slice(&member.placement, &device_title(card, namespace), namespace.size)
    };
    let slices: Vec<Slice> = request.members.iter().zip(&functions).map(slice_of).collect();
    make_room(guests, &slices, fs, host, leftovers, tell)?;
    let work = conditions.state.join("bench");
    let appliance = Appliance::with_probe(&conditions.appliance, &conditions.probe, &work)?;
    leftovers.clones = request.members.iter().map(|member| clone_name(&member.guest, ArmKind::Planned)).collect();
    leftovers.save()?;

    let versions = hypervisor.versions().ok();
    let mut caveats: Vec<String> = lab_caveat(&conditions.environment).into_iter().collect();
    caveats.push(
        "guests stay up between samples; host and guest took turns on each drive: bound to nvme, or handed over by VFIO"
            .to_owned(),
    );
    let (mut members, mut infos, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for ((member, (card, namespace)), slice) in request.members.iter().zip(functions).zip(slices) {
        tell(Event::Stage(&format!("booting the clone of {}", member.guest)));
        to_vfio(fs, &card)?;
        let (clone, uuid) = (clone_name(&member.guest, ArmKind::Planned), new_uuid(fs)?);
        let xml = clone_with(&member.xml_planned, &member.guest, &clone, card.function, &uuid, &appliance)?;
        let guest = GuestArm { name: clone.clone(), xml, device: String::new() };
        let (guests, bare) =
            (BTreeMap::from([(ArmKind::Planned, guest.clone())]), format!("/dev/{}", namespace.device));
        let mut machine = Machine::of_clones(&mut *hypervisor, fs, conditions, &slice, &bare, guests);
        machine.boot_one(ArmKind::Planned, &guest)?;
        let mut placement = record(&mut machine, ArmKind::Planned, &slice.device)?.placement;
        caveats.append(&mut machine.notes);
        let wrap = |source| MeasureError::Hypervisor { arm: clone.clone(), source };
        let live = hypervisor.domain_xml(&clone, Definition::Live).map_err(wrap)?;
        let element = element_of(&live, card.function)
            .map_err(|source| MeasureError::Xml { arm: clone.clone(), source })?
            .ok_or_else(|| MeasureError::Unfit(format!("`{clone}` was not given {}", card.function)))?;
        let device = in_the_guest(hypervisor, &clone, card.function, &namespace)?;
        hypervisor.suspend(&clone).map_err(wrap)?;
        placement.push(format!("{}, the guest sees {device}", read_back(fs, card.function)));
        infos.push(MemberInfo { guest: member.guest.clone(), slice: slice.clone(), placement });
        members.push(Running { guest: member.guest.clone(), clone: clone.clone(), uuid, slice });
        all.push(Own { card, namespace, clone, element, holder: Holder::Guest, device });
    }
    let mut load = OnDrives { job: request.job.clone(), drives: Functions(all) };
    let ready = Ready { terms: &request.terms, members, infos, load: &mut load, versions, caveats };
    ready.measured(TogetherLoad::Function { job: request.job.clone() }, fs, host, hypervisor, tell)
}
