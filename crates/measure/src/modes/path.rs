//! How each mode's processes get to their memory: guests are booted for their turn.

use nearmetal_domain::DomainXml;
use nearmetal_host::ThreadRole;
use nearmetal_results::{Arm, Slice};

use super::mode::{Made, Mode, definition, vcpus};
use super::{ModesRequest, NodePart, together};
use crate::appliance::{Appliance, PROBE_IN_GUEST};
use crate::clones::clone_name;
use crate::engine::{Guest, Path, Seat, Session, Step, Tenant, restart_if_dead};
use crate::error::MeasureError;
use crate::record::record;

/// See the module.
pub(super) struct ModesPath<'r> {
    request: &'r ModesRequest,
    /// The mode of each arm.
    modes: Vec<Mode>,
    appliance: Appliance,
    /// Name and UUID of every guest, by arm and place.
    guests: Vec<Vec<(String, String)>>,
    /// Those that are up, each paused.
    up: Vec<Guest>,
    /// What was read back of each arm, at the most nodes it was booted for, and their number.
    read: Vec<Option<(usize, Arm)>>,
    /// All parts as one slice.
    all: Slice,
}

impl<'r> ModesPath<'r> {
    /// Names all guests there will be, so that they are ended whatever happens.
    pub(super) fn new(request: &'r ModesRequest, all: Slice, session: &mut Session<'_>) -> Result<Self, MeasureError> {
        let appliance = Appliance::with_probe(&request.conditions)?;
        let modes = request.measured();
        let mut guests = Vec::new();
        for mode in modes.iter().copied() {
            let mut of_mode = Vec::new();
            for number in 0..mode.guests(request.parts.len()) {
                let arm = mode.name().id;
                let arm = if mode == Mode::PerNode { format!("{arm}-{number}") } else { arm };
                of_mode.push((clone_name(&request.guest, &arm), session.new_uuid()?));
            }
            guests.push(of_mode);
        }
        session.will_clone(guests.iter().flatten().map(|(name, _)| name.clone()))?;
        let read = vec![None; modes.len()];
        Ok(Self { request, modes, appliance, guests, up: Vec::new(), read, all })
    }

    /// The guests of an arm over so many parts.
    fn guests_of(&self, arm: usize, count: usize, session: &Session<'_>) -> Result<Vec<Guest>, MeasureError> {
        let mode = self.modes[arm];
        let parts = &self.request.parts[..count];
        let places = 0..mode.guests(count);
        let guest = |place: usize| {
            let (name, uuid) = &self.guests[arm][place];
            let parts = if mode == Mode::PerNode { &parts[place..=place] } else { parts };
            let (xml, memory) = (self.request.xml.as_str(), self.request.memory);
            let made = Made { xml, name, uuid, appliance: &self.appliance, parts, memory };
            let xml = definition(mode, &made, &session.host);
            let xml = xml.map_err(|source| MeasureError::Xml { arm: mode.name().id, source })?;
            Ok(Guest { name: name.clone(), xml, device: String::new() })
        };
        places.map(guest).collect()
    }
}

impl Path for ModesPath<'_> {
    /// Two samples of an arm must differ by as much as those of two arms do, and where a guest that floats lands is the luck
    /// of its boot: so all are booted afresh for every sample.
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        for guest in self.up.drain(..) {
            session.end(&guest.name)?;
        }
        let mode = self.modes[step.arm];
        for guest in self.guests_of(step.arm, step.count, session)? {
            // Before the boot: one that fails half way must be ended too.
            self.up.push(guest.clone());
            session.boot_paused(&guest)?;
            runs_as_asked(&guest, session)?;
        }
        if self.read[step.arm].as_ref().is_none_or(|(count, _)| *count < step.count) {
            let first = self.up.first().map(|guest| guest.name.as_str());
            let arm = record(session, &mode.name(), mode.description(), "", first, &self.all)?;
            self.read[step.arm] = Some((step.count, arm));
        }
        Ok(())
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        let mode = self.modes[arm];
        let of_mode = &self.guests[arm];
        let Some((name, _)) = of_mode.get(if mode == Mode::PerNode { tenant } else { 0 }) else {
            return Seat::bare("");
        };
        let mut seat = Seat::guest(name, "");
        // One program over all cells is bound to none.
        if mode == Mode::Cells && !self.request.single {
            let cpus = vcpus(&self.request.parts, tenant).to_string();
            let bind = [PROBE_IN_GUEST, "bind", "--cpus", &cpus, "--nodes", &tenant.to_string(), "--"];
            seat.around = bind.map(str::to_owned).to_vec();
        }
        seat
    }

    fn single(&self, count: usize) -> Option<Tenant> {
        let workload = self.request.over(count).filter(|_| self.request.single)?;
        let parts = &self.request.parts[..count];
        let slices: Vec<Slice> = parts.iter().map(NodePart::slice).collect();
        let tenant = Tenant::new(&self.request.guest, together(&slices));
        Some(Tenant { load: Some(workload), ..tenant })
    }

    fn revive(&mut self, _: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let mut was_dead = false;
        for guest in &self.up {
            was_dead |= restart_if_dead(guest, session)?;
        }
        Ok(was_dead)
    }

    fn read_back(&self, arms: &mut [Arm]) {
        for (arm, read) in arms.iter_mut().zip(&self.read) {
            if let Some((_, read)) = read {
                arm.clone_from(read);
            }
        }
    }
}

/// Reads back from the kernel that every vCPU may run where its definition says, and nowhere else.
fn runs_as_asked(guest: &Guest, session: &mut Session<'_>) -> Result<(), MeasureError> {
    let facts = DomainXml::parse(&guest.xml).and_then(|xml| xml.facts());
    let facts = facts.map_err(|source| MeasureError::Xml { arm: guest.name.clone(), source })?;
    if facts.vcpu_pins.is_empty() {
        return Ok(());
    }
    let process = nearmetal_host::guests::find(session.fs, facts.uuid.as_deref().unwrap_or_default());
    let threads = process.ok().flatten().map(|process| process.threads).unwrap_or_default();
    for (vcpu, asked) in &facts.vcpu_pins {
        let thread = threads.iter().find(|thread| thread.role == ThreadRole::Vcpu(*vcpu));
        let allowed = thread.and_then(|thread| thread.affinity.as_ref());
        if allowed != Some(asked) {
            let allowed = allowed.map_or_else(|| "unknown PUs".to_owned(), |cpus| format!("PUs {cpus}"));
            return Err(MeasureError::Unfit(format!(
                "vCPU {vcpu} of the clone `{}` may run on {allowed}, and PU {asked} was asked for: look whether a cgroup or \
                 another program confines it",
                guest.name
            )));
        }
    }
    Ok(())
}
