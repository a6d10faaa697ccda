//! Host and guest take turns on a function.

use nearmetal_change::devices::Card;
use nearmetal_hypervisor::{Definition, DomainState};

use super::nvme::Namespace;
use super::plug::{PLUG_PATIENCE, element_of, in_the_guest, on_the_host, read_back, to_host, to_vfio, unplug};
use crate::error::MeasureError;
use crate::executor::Machine;
use crate::experiment::{Executor, Measured};
use crate::record::record;
use crate::results::{Arm, ArmKind};
use crate::schedule::Step;

/// The clone and the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clone {
    /// It does not run.
    Off,
    /// It runs, paused, without the function.
    Without,
    /// It runs, paused, with the function.
    With,
}

/// The executor of both sides.
///
/// The clone is booted with the function once; from then on it is unplugged and plugged in again while the clone runs. A
/// guest that does not let go is booted for each of its samples instead, which a note says.
pub(super) struct Turns<'a> {
    machine: Machine<'a>,
    card: Card,
    namespace: Namespace,
    records: Vec<Arm>,
    clone: Clone,
    /// The function's element in the live XML of the clone, once it was booted; `None`: it is booted for each sample.
    element: Option<String>,
    can_plug: bool,
}

impl<'a> Turns<'a> {
    pub(super) fn new(machine: Machine<'a>, card: Card, namespace: Namespace) -> Self {
        Self { machine, card, namespace, records: Vec::new(), clone: Clone::Off, element: None, can_plug: true }
    }

    /// What each side was, bare metal first, and what a reader must know.
    pub(super) fn into_records(mut self) -> (Vec<Arm>, Vec<String>) {
        self.records.sort_by_key(|arm| arm.kind);
        (self.records, self.machine.notes)
    }

    /// Once for each side: what it is, with what was read back.
    fn note(&mut self, arm: ArmKind, line: String) -> Result<(), MeasureError> {
        if self.records.iter().any(|record| record.kind == arm) {
            return Ok(());
        }
        let mut made = record(&mut self.machine, arm, &format!("namespace {}", self.namespace.id))?;
        made.placement.push(line);
        self.records.push(made);
        Ok(())
    }

    /// Bare metal's turn: the guest lets go, and the namespace is the one it was.
    fn bare(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        self.take_from_guest()?;
        to_host(self.machine.fs, &self.card)?;
        let device = on_the_host(self.machine.fs, &self.card, &self.namespace)?;
        let line = format!("{}, the host sees {device}", read_back(self.machine.fs, self.card.function));
        self.machine.bare_device = device;
        self.note(ArmKind::BareSlice, line)?;
        self.machine.run(step)
    }

    /// The guest's turn: the function is plugged into the clone, which finds it.
    fn guest(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        let arm = step.arm;
        let Some(guest) = self.machine.guests.get(&arm).cloned() else {
            return Err(MeasureError::Unfit(format!("arm `{}` has no guest", arm.id())));
        };
        let wrap = |source| MeasureError::Hypervisor { arm: arm.id().to_owned(), source };
        let mut fresh = false;
        if self.clone == Clone::With {
            self.machine.hypervisor.resume(&guest.name).map_err(wrap)?;
        } else {
            to_vfio(self.machine.fs, &self.card)?;
            match self.element.clone().filter(|_| self.clone == Clone::Without) {
                Some(element) => {
                    self.machine.hypervisor.resume(&guest.name).map_err(wrap)?;
                    self.machine.hypervisor.attach_device(&guest.name, &element).map_err(wrap)?;
                }
                None => {
                    self.end()?;
                    self.machine.boot_one(arm, &guest)?;
                    fresh = true;
                    let xml = self.machine.hypervisor.domain_xml(&guest.name, Definition::Live).map_err(wrap)?;
                    self.element = element_of(&xml, self.card.function)
                        .map_err(|source| MeasureError::Xml { arm: arm.id().to_owned(), source })?;
                }
            }
            self.clone = Clone::With;
        }
        let device = in_the_guest(self.machine.hypervisor, &guest.name, self.card.function, &self.namespace)?;
        let line = format!("{}, the guest sees {device}", read_back(self.machine.fs, self.card.function));
        self.machine.guests.entry(arm).and_modify(|guest| guest.device = device);
        self.note(arm, line)?;
        // As the executor expects it between samples.
        self.machine.hypervisor.suspend(&guest.name).map_err(wrap)?;
        if fresh {
            // A guest that has just booted still starts its services and touches its memory for the first time.
            self.machine.run(step)?;
        }
        let measured = self.machine.run(step)?;
        match self.machine.hypervisor.domain(&guest.name).map_err(wrap)?.state {
            DomainState::Paused => Ok(measured),
            // The executor pauses it after its run; anything else means that it died, and its figures with it.
            state => Err(MeasureError::Unfit(format!("the clone was {state} after its run, and not paused"))),
        }
    }

    /// Ends the clone.
    fn end(&mut self) -> Result<(), MeasureError> {
        self.machine.end_all()?;
        self.clone = Clone::Off;
        Ok(())
    }

    /// Takes the function from the clone: unplugged if it lets go, else the clone is ended.
    fn take_from_guest(&mut self) -> Result<(), MeasureError> {
        if self.clone != Clone::With {
            return Ok(());
        }
        if let (true, Some(element)) = (self.can_plug, self.element.clone()) {
            if self.unplugged(&element)? {
                self.clone = Clone::Without;
                return Ok(());
            }
            self.can_plug = false;
            let seconds = PLUG_PATIENCE.as_secs();
            self.machine.notes.push(format!(
                "the guest did not let go of {} within {seconds} s: from then on its clone was booted for each of its samples",
                self.card.function
            ));
        }
        self.end()
    }

    /// Whether the guest let go in time.
    fn unplugged(&mut self, element: &str) -> Result<bool, MeasureError> {
        match self.machine.guests.values().next() {
            Some(guest) => unplug(self.machine.hypervisor, &guest.name, self.card.function, element),
            None => Ok(false),
        }
    }
}

impl Executor for Turns<'_> {
    fn run(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        if step.arm == ArmKind::BareSlice {
            return self.bare(step);
        }
        let result = self.guest(step);
        if result.is_err() {
            // Whatever state it is in: the next turn begins with a new one.
            self.end()?;
        }
        result
    }

    fn refresh(&mut self, _arms: &[ArmKind]) -> Result<(), MeasureError> {
        // The function changes sides; the clone stays up.
        Ok(())
    }
}
