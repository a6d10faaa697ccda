//! How tenants reach what they work on.

use nearmetal_hypervisor::{DomainState, HypervisorError};
use nearmetal_results::Arm;
use nearmetal_units::{CpuSet, NodeSet};

use super::{Session, SplitMix, Step, Tenant};
use crate::appliance::PROBE_IN_GUEST;
use crate::error::MeasureError;

/// The PUs of a process on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Pus {
    /// Those of the tenant's slice.
    #[default]
    OfTheSlice,
    /// All there are.
    All,
    /// These, with memory of these nodes.
    These(CpuSet, NodeSet),
}

/// Where one tenant works in one arm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seat {
    /// The domain it is in; `None`: on the host.
    pub guest: Option<String>,
    /// The block device it works on, as that side calls it; empty where there is none.
    pub device: String,
    /// Path of the probe in the guest.
    pub probe: String,
    /// The words before everything else: `ip netns exec NAME` on the host, a binding to a cell in a guest.
    pub around: Vec<String>,
    /// The guest that answers what a process on the host asks: it is resumed for as long as that takes.
    pub asks: Option<String>,
    /// On the host: the PUs it is confined to.
    pub on: Pus,
}

impl Seat {
    /// On the host, with this device.
    pub(crate) fn bare(device: &str) -> Self {
        Self { device: device.to_owned(), ..Self::default() }
    }

    /// In a clone, with the device as its kernel calls it.
    pub(crate) fn guest(name: &str, device: &str) -> Self {
        Self {
            guest: Some(name.to_owned()),
            device: device.to_owned(),
            probe: PROBE_IN_GUEST.to_owned(),
            ..Self::default()
        }
    }

    /// The guest that takes part: the one it is in, or the one it asks.
    pub(crate) fn takes_part(&self) -> Option<&str> {
        self.guest.as_deref().or(self.asks.as_deref())
    }
}

/// How the tenants of each arm get to what they work on. Guests that are there are paused before and after every call.
pub(crate) trait Path {
    /// Makes the machine what a step needs.
    ///
    /// # Errors
    /// The machine does not become that.
    fn turn_to(&mut self, _: &Step, _: &mut Session<'_>) -> Result<(), MeasureError> {
        Ok(())
    }

    /// Where a tenant works in an arm.
    fn seat(&self, arm: usize, tenant: usize) -> Seat;

    /// Who stands for so many tenants, where one program works on all that they would have.
    fn single(&self, _count: usize) -> Option<Tenant> {
        None
    }

    /// Boots the guests of these arms afresh.
    ///
    /// # Errors
    /// One does not come up.
    fn refresh(&mut self, _: &[usize], _: &mut Session<'_>) -> Result<(), MeasureError> {
        Ok(())
    }

    /// Starts the guests of a step again after one of them died, where that is possible; says whether it did.
    ///
    /// # Errors
    /// One does not come up.
    fn revive(&mut self, _: &Step, _: &mut Session<'_>) -> Result<bool, MeasureError> {
        Ok(false)
    }

    /// Fills in what was read back of arms whose guests are booted for their turn.
    fn read_back(&self, _: &mut [Arm]) {}

    /// Puts the arms of a round in the order they run: at random, unless some share what has to be made first. `last` is the
    /// arm that ran last; nothing else of what is there counts, so that a measurement goes on in the same order.
    fn arrange(&self, arms: &mut Vec<usize>, _last: Option<usize>, random: &mut SplitMix) {
        random.shuffle(arms);
    }
}

/// A clone that stands for an arm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guest {
    /// Clone's domain name.
    pub name: String,
    /// Its XML.
    pub xml: String,
    /// The device it measures, as the guest names it.
    pub device: String,
}

/// The path where every guest arm has a clone of its own that stays up, and bare metal a device of its own.
pub(crate) struct Clones {
    /// By arm; `None`: bare metal.
    pub guests: Vec<Option<Guest>>,
    /// What bare metal works on.
    pub bare: String,
}

impl Clones {
    /// Boots the clones of these arms one after the other and leaves each paused, its agent having answered. Side by side
    /// saved a demo 20 s of ten minutes, and the lab's kernel panicked under it, once in eight measurements.
    pub(crate) fn boot(&self, arms: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        arms.iter().filter_map(|arm| self.guest(*arm)).try_for_each(|guest| session.boot_paused(guest))
    }

    /// The clone of an arm.
    pub(crate) fn guest(&self, arm: usize) -> Option<&Guest> {
        self.guests.get(arm)?.as_ref()
    }
}

impl Path for Clones {
    fn seat(&self, arm: usize, _: usize) -> Seat {
        match self.guest(arm) {
            Some(guest) => Seat::guest(&guest.name, &guest.device),
            None => Seat::bare(&self.bare),
        }
    }

    fn refresh(&mut self, arms: &[usize], session: &mut Session<'_>) -> Result<(), MeasureError> {
        for guest in self.guests.iter().flatten() {
            session.end(&guest.name)?;
        }
        self.boot(arms, session)
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        match self.guest(step.arm) {
            Some(guest) => restart_if_dead(guest, session),
            None => Ok(false),
        }
    }
}

/// Starts a clone again whose agent does not answer; says whether it did.
pub(crate) fn restart_if_dead(guest: &Guest, session: &mut Session<'_>) -> Result<bool, MeasureError> {
    if session.answers(&guest.name)? {
        return Ok(false);
    }
    session.note(format!("the clone `{}` stopped answering and was started again", guest.name));
    session.end(&guest.name)?;
    session.boot_paused(guest)?;
    Ok(true)
}

/// Whether an error says that there is no such domain.
pub(super) fn is_gone(error: &HypervisorError) -> bool {
    matches!(error, HypervisorError::NoSuchDomain { .. })
}

/// Whether a domain can be resumed and suspended.
pub(super) fn is_there(state: DomainState) -> bool {
    matches!(state, DomainState::Running | DomainState::Paused)
}
