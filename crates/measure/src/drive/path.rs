//! Host and guests take turns on PCI functions: each guest has one, and its bare slice the same one.
//!
//! A clone is booted with its function once; from then on the function is unplugged and plugged in again while the clone
//! runs. A guest that does not let go is booted for each of its turns instead, which a note says. Who has a function, and
//! how its DMA is translated, is read back at every turn.

use nearmetal_change::devices::Card;
use nearmetal_hypervisor::Definition;
use nearmetal_load::SLACK;

use super::nvme::Namespace;
use super::plug::{PLUG_PATIENCE, element_of, in_the_guest, on_the_host, read_back, to_host, to_vfio, unplug};
use crate::engine::{Guest, Path, Seat, Session, Step, failed};
use crate::error::MeasureError;

/// Who has a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Host,
    Guest,
    /// On its way: a step failed.
    Nobody,
}

/// One function on its way to and fro.
pub(crate) struct Own {
    pub(crate) card: Card,
    namespace: Namespace,
    guest: Guest,
    /// Whether the clone runs; paused.
    runs: bool,
    /// The function's element in the live XML of the clone, once it was booted.
    element: Option<String>,
    can_plug: bool,
    holder: Holder,
    /// Its block device where it is; empty if that is not known.
    device: String,
}

impl Own {
    pub(crate) fn new(card: Card, namespace: Namespace, guest: Guest) -> Self {
        let device = format!("/dev/{}", namespace.device);
        Self { card, namespace, guest, runs: false, element: None, can_plug: true, holder: Holder::Host, device }
    }

    /// Where the function is now, as read back.
    pub(crate) fn words(&self, session: &Session<'_>) -> String {
        let who = if self.holder == Holder::Guest { "the guest" } else { "the host" };
        format!("{}, {who} sees {}", read_back(session.fs, self.card.function), self.device)
    }

    /// The host has it.
    pub(crate) fn give_to_host(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        if self.holder == Holder::Guest {
            self.take_from_guest(session)?;
        }
        if self.holder != Holder::Host {
            to_host(session.fs, &self.card)?;
            self.holder = Holder::Host;
        }
        self.device = on_the_host(session.fs, &self.card, &self.namespace)?;
        Ok(())
    }

    /// Takes the function from the clone: unplugged if it lets go, else the clone is ended.
    fn take_from_guest(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let name = &self.guest.name;
        if let (true, Some(element)) = (self.can_plug, &self.element) {
            if unplug(session.hypervisor, name, self.card.function, element)? {
                self.holder = Holder::Nobody;
                return Ok(());
            }
            self.can_plug = false;
            let (function, seconds) = (self.card.function, PLUG_PATIENCE.as_secs());
            session.note(format!(
                "`{name}` did not let go of {function} within {seconds} s: from then on it was booted for each of its turns"
            ));
        }
        self.end(session)
    }

    /// Ends the clone: the function is nobody's.
    fn end(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        session.end(&self.guest.name)?;
        (self.runs, self.holder) = (false, Holder::Nobody);
        Ok(())
    }

    /// The clone has it, and has found its namespace. It is paused before and after.
    pub(crate) fn give_to_guest(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let name = self.guest.name.clone();
        if self.holder != Holder::Guest {
            self.device.clear();
            to_vfio(session.fs, &self.card)?;
            self.holder = Holder::Nobody;
        }
        let fresh = !self.runs;
        match (&self.element, self.runs) {
            (Some(element), true) => {
                session.hypervisor.resume(&name).map_err(failed(&name))?;
                if self.holder != Holder::Guest {
                    session.hypervisor.attach_device(&name, element).map_err(failed(&name))?;
                }
            }
            _ => {
                session.boot(&self.guest)?;
                self.runs = true;
                let xml = session.hypervisor.domain_xml(&name, Definition::Live).map_err(failed(&name))?;
                let element = element_of(&xml, self.card.function)
                    .map_err(|source| MeasureError::Xml { arm: name.clone(), source })?;
                let unfit = || MeasureError::Unfit(format!("`{name}` was not given {}", self.card.function));
                self.element = Some(element.ok_or_else(unfit)?);
            }
        }
        // Also where the guest does not find it: it has it, and must let go before the host's driver takes it.
        self.holder = Holder::Guest;
        let found = in_the_guest(session.hypervisor, &name, self.card.function, &self.namespace);
        if let (true, Ok(device)) = (fresh, &found) {
            // A guest that has just booted still starts its services and touches its memory for the first time.
            let input = format!("if={device}");
            session.ask(&name, &["dd", &input, "of=/dev/null", "bs=1M", "count=64", "iflag=direct"], SLACK)?;
        }
        session.hypervisor.suspend(&name).map_err(failed(&name))?;
        self.device = found?;
        Ok(())
    }
}

/// The functions of all tenants. Arm 0 is bare metal.
pub(crate) struct DrivePath(pub(crate) Vec<Own>);

impl Path for DrivePath {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.0.iter_mut().take(step.count).try_for_each(|own| match step.arm {
            0 => own.give_to_host(session),
            _ => own.give_to_guest(session),
        })
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        let Some(own) = self.0.get(tenant) else { return Seat::default() };
        match arm {
            0 => Seat::bare(&own.device),
            _ => Seat::guest(&own.guest.name, &own.device),
        }
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        if step.arm == 0 {
            return Ok(false);
        }
        let mut any = false;
        for own in self.0.iter_mut().take(step.count) {
            let name = &own.guest.name;
            if !session.answers(name)? {
                session.note(format!("the clone `{name}` stopped answering and was started again"));
            } else if own.holder == Holder::Guest && !own.device.is_empty() {
                // It has what it needs: what failed was the sample, and the record says so.
                continue;
            }
            // Whatever state its function is in: the next turn begins with a new clone.
            own.end(session)?;
            any = true;
        }
        Ok(any)
    }
}
