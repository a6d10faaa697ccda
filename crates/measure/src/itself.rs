//! The guest itself in the definitions of several arms: it is shut down and started for each of its turns. What libvirt keeps of it
//! stays as it is, so whatever happens its next ordinary start is one as before.

use std::time::Duration;

use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_hypervisor::{Definition, DomainState, Hypervisor, HypervisorError, ShutdownMode, agent};
use nearmetal_place::Placement;
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::engine::{Path, Seat, Session, Step, failed, slice_of};
use crate::error::MeasureError;
use crate::record::record;
use crate::results::{Arm, Slice};
use crate::stand::Way;

/// How long a user's guest may take to shut down, and from power-on to an agent that answers: services stop and start meanwhile.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(180);
const BOOT_LIMIT: Duration = Duration::from_secs(300);

/// A guest that was taken to be shut down and started, and how it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Domain.
    pub guest: String,
    /// Its UUID: another domain may have its name later.
    pub uuid: String,
    /// Whether it ran.
    pub ran: bool,
}

/// A guest that runs in the definition of one arm after the other.
pub(crate) struct Itself {
    guest: String,
    definitions: Vec<String>,
    /// What each arm really is.
    pub arms: Vec<Arm>,
    /// Where the plan by rule puts it.
    pub slice: Slice,
    /// The arm it was started as last.
    last: Option<usize>,
}

impl Itself {
    /// Takes the guest, and starts it once in every way to see what each really is.
    ///
    /// # Errors
    /// It has no stored definition, or a saved memory; it does not shut down, or does not come up in one of the ways.
    pub(crate) fn set_up(
        ways: Vec<Way>,
        guest: &str,
        placement: &Placement,
        session: &mut Session<'_>,
    ) -> Result<Self, MeasureError> {
        take(guest, session)?;
        session.without_fio();
        session.stage("shutting the VM down");
        shut_down(session.hypervisor, guest)?;
        session.stage("sizing hugepage pools");
        session.grow_pools(placement, 1)?;
        let slice = slice_of(placement, "", Bytes::ZERO);
        session.stay_off(std::slice::from_ref(&slice))?;
        let marked = |way: &Way| {
            let xml = way.xml.as_deref().unwrap_or_default();
            marked(xml, &way.name.id).map_err(|source| MeasureError::Xml { arm: way.name.id.clone(), source })
        };
        let definitions = ways.iter().map(marked).collect::<Result<_, _>>()?;
        let mut this = Self { guest: guest.to_owned(), definitions, arms: Vec::new(), slice, last: None };
        session.stage("starting the VM in every way");
        for (place, way) in ways.iter().enumerate() {
            this.bring_up(place, session)?;
            let arm = record(session, &way.name, &way.description, "", Some(guest), &this.slice)?;
            this.arms.push(arm);
        }
        Ok(this)
    }

    /// Starts it as an arm, even if it runs as that: two samples of an arm must differ by as much as two of different arms do.
    fn bring_up(&mut self, arm: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        session.goes_on()?;
        shut_down(session.hypervisor, &self.guest)?;
        self.last = Some(arm);
        let wrap = || failed(&self.guest);
        session.hypervisor.create_transient(&self.definitions[arm], false).map_err(wrap())?;
        agent::wait(session.hypervisor, &self.guest, BOOT_LIMIT).map_err(wrap())?;
        session.hypervisor.suspend(&self.guest).map_err(wrap())
    }

    /// What the arm runs, once, in the guest as it is now: its words.
    pub(crate) fn try_once(
        &self,
        words: &[String],
        limit: Duration,
        session: &mut Session<'_>,
    ) -> Result<String, MeasureError> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        session.ask_paused(&self.guest, &words, limit)
    }
}

impl Path for Itself {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.bring_up(step.arm, session)
    }

    fn seat(&self, _: usize, _: usize) -> Seat {
        Seat::guest(&self.guest, "")
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        if self.last == Some(step.arm) && session.answers(&self.guest)? {
            return Ok(false);
        }
        session.note(format!("`{}` stopped answering and was started again", self.guest));
        Ok(true)
    }
}

/// Writes down that the guest is taken.
fn take(guest: &str, session: &mut Session<'_>) -> Result<(), MeasureError> {
    let summary = session.hypervisor.domain(guest).map_err(failed(guest))?;
    let unfit = |why: &str| Err(MeasureError::Unfit(format!("`{guest}` cannot be started as each plan has it: {why}")));
    if !summary.persistent {
        return unfit(
            "libvirt keeps no definition of it, so once shut down it would be gone; define it first (`virsh define`)",
        );
    }
    if summary.managed_save {
        return unfit("libvirt keeps its saved memory, and its next start goes on from there; start it, then tune it");
    }
    if !matches!(summary.state, DomainState::Running | DomainState::ShutOff) {
        return unfit(&format!("it is {}; have it run or shut it down", summary.state));
    }
    let ran = summary.state == DomainState::Running;
    session.leftovers.taken.push(Taken { guest: guest.to_owned(), uuid: summary.uuid, ran });
    session.leftovers.save()
}

/// A definition that says whose turn it is.
fn marked(xml: &str, arm: &str) -> Result<String, DomainError> {
    let mut xml = DomainXml::parse(xml)?;
    xml.set_turn(arm)?;
    Ok(xml.as_str().to_owned())
}

/// Shuts a guest down, if it is up. It is never powered off: it may hold what its user has not written yet.
fn shut_down(hypervisor: &mut dyn Hypervisor, guest: &str) -> Result<(), MeasureError> {
    let state = hypervisor.domain(guest).map_err(failed(guest))?.state;
    if state.is_off() {
        return Ok(());
    }
    // A paused one hears nothing.
    if state == DomainState::Paused {
        hypervisor.resume(guest).map_err(failed(guest))?;
    }
    hypervisor.shutdown(guest, ShutdownMode::AgentThenAcpi, SHUTDOWN_LIMIT).map_err(|source| match source {
        HypervisorError::Timeout { .. } => MeasureError::Unfit(format!(
            "`{guest}` did not shut down within {} s. nearmetal does not power it off, since it may hold data that are not written; \
             shut it down and run `nearmetal rollback`. Its own definition is unchanged",
            SHUTDOWN_LIMIT.as_secs()
        )),
        other => failed(guest)(other),
    })
}

/// Gives a guest back: what was started for a turn is shut down, and runs again by its own definition if it ran before.
pub(crate) fn give_back(hypervisor: &mut dyn Hypervisor, taken: &Taken) -> Result<(), MeasureError> {
    let guest = &taken.guest;
    let summary = match hypervisor.domain(guest) {
        Ok(summary) => summary,
        Err(HypervisorError::NoSuchDomain { .. }) => return Ok(()),
        Err(error) => return Err(failed(guest)(error)),
    };
    if !summary.uuid.eq_ignore_ascii_case(&taken.uuid) {
        return Ok(());
    }
    if !summary.state.is_off() {
        let live = hypervisor.domain_xml(guest, Definition::Live).map_err(failed(guest))?;
        let turn = DomainXml::parse(&live).and_then(|xml| xml.turn());
        // Somebody has started it meanwhile, or it was never shut down.
        if turn.map_err(|source| MeasureError::Xml { arm: guest.clone(), source })?.is_none() {
            return Ok(());
        }
        shut_down(hypervisor, guest)?;
    }
    match taken.ran {
        true => hypervisor.start(guest, false).map_err(failed(guest)),
        false => Ok(()),
    }
}
