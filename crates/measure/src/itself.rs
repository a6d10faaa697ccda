//! The guest itself in the definitions of several arms: it is shut down and started for each of its turns. What libvirt keeps of it
//! stays as it is, so its next ordinary start is one as before.

use std::collections::BTreeSet;
use std::time::Duration;

use nearmetal_change::Journal;
use nearmetal_domain::{DomainError, DomainXml, first_difference};
use nearmetal_hypervisor::{Definition, DomainState, DomainSummary, Hypervisor, HypervisorError, ShutdownMode, agent};
use nearmetal_load::{At, CommandJob, Load};
use nearmetal_place::Placement;
use nearmetal_results::{Arm, Slice};
use nearmetal_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::clones::{asks_for_huge_pages, in_its_cells};
use crate::engine::{Path, Seat, Session, Step, failed, slice_of};
use crate::error::MeasureError;
use crate::leftovers::resume;
use crate::record::record;
use crate::stand::Way;

/// How long a user's guest may take to shut down, and from power-on to an agent that answers: services stop and start meanwhile.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(180);
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// How long the agent of a guest that runs may take.
const ANSWER: Duration = Duration::from_secs(60);
/// How often a guest is started in the end.
const START_TRIES: u32 = 3;
const SECOND: Duration = Duration::from_secs(1);

/// A guest that was taken to be shut down and started, and how it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// Domain.
    pub guest: String,
    /// Its UUID: another domain may have its name later.
    pub uuid: String,
    /// libvirt's number of the instance that ran; `None`: it was off.
    pub ran: Option<u32>,
    /// Whether that instance was asked to shut down.
    pub asked: bool,
}

/// A guest that runs in the definition of one arm after the other.
pub(crate) struct Itself {
    guest: String,
    /// As libvirt keeps it, and the arms were made from.
    found: String,
    placement: Placement,
    definitions: Vec<String>,
    /// What each arm really is.
    pub arms: Vec<Arm>,
    /// Where the plan by rule puts it.
    pub slice: Slice,
    /// How long the command took when it was tried.
    pub tried: Duration,
    /// The arm it was started as last.
    last: Option<usize>,
}

impl Itself {
    /// Takes the guest, and starts it once in every way to see what each really is. The command is tried in the first of them.
    ///
    /// # Errors
    /// It has no stored definition, or a saved memory, or another definition than `found`; it has no agent that runs commands; it does not
    /// shut down, or does not come up in one of the ways; the command fails.
    pub(crate) fn set_up(
        ways: &[Way],
        (guest, found): (&str, &str),
        placement: &Placement,
        command: &CommandJob,
        session: &mut Session<'_>,
    ) -> Result<Self, MeasureError> {
        let runs = take(guest, session)?;
        session.without_fio();
        let slice = slice_of(placement, "", Bytes::ZERO);
        session.stay_off(std::slice::from_ref(&slice))?;
        let marked = |way: &Way| {
            let xml = way.xml.as_deref().unwrap_or_default();
            marked(xml, &way.name.id).map_err(|source| MeasureError::Xml { arm: way.name.id.clone(), source })
        };
        let mut this = Self {
            guest: guest.to_owned(),
            found: found.to_owned(),
            placement: placement.clone(),
            definitions: ways.iter().map(marked).collect::<Result<_, _>>()?,
            arms: Vec::new(),
            slice,
            tried: Duration::ZERO,
            last: None,
        };
        this.is_as_found(session)?;
        if runs {
            session.stage("shutting the VM down");
            session.leftovers.taken.iter_mut().for_each(|taken| taken.asked = true);
            session.leftovers.save()?;
            shut_down(
                session.hypervisor,
                guest,
                "It has been asked, so it may still go off: start it then (`virsh start`). Nothing else was changed",
            )?;
        }
        session.stage("starting the VM in every way");
        for (place, way) in ways.iter().enumerate() {
            this.bring_up(place, session)?;
            let arm = record(session, &way.name, &way.description, "", Some(guest), &this.slice)?;
            this.arms.push(arm);
            if place == 0 {
                session.stage("trying the command");
                let began = session.hypervisor.now();
                let words = command.command(&At::probe(""), 0);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                command.read(&session.ask_paused(guest, &words, command.limit())?)?;
                this.tried = session.hypervisor.now().duration_since(began);
            }
        }
        Ok(this)
    }

    /// Starts it as an arm, even if it runs as that: two samples of an arm must differ by as much as two of different arms do.
    fn bring_up(&mut self, arm: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        session.goes_on()?;
        shut_down(
            session.hypervisor,
            &self.guest,
            "It runs as an arm of this measurement: shut it down, and `nearmetal rollback` starts it as it was",
        )?;
        // A start now would leave that memory with a disk that has moved on.
        if session.hypervisor.domain(&self.guest).map_err(failed(&self.guest))?.managed_save {
            return Err(MeasureError::Ends(is_saved(&self.guest)));
        }
        // A disk may have a snapshot since: the arms would write below it.
        self.is_as_found(session)?;
        let definition = &self.definitions[arm];
        match asks_for_huge_pages(definition, &self.guest)? {
            true => {
                let own = in_its_cells(definition, &self.guest, &self.placement)?;
                session.grow_pools(own.as_ref().unwrap_or(&self.placement), 1)?;
            }
            // What a pool holds beyond what it had, an arm without it may need.
            false => session.pools_as_before()?,
        }
        self.last = Some(arm);
        let wrap = || failed(&self.guest);
        session.hypervisor.create_transient(definition, false).map_err(wrap())?;
        agent::wait(session.hypervisor, &self.guest, BOOT_LIMIT).map_err(wrap())?;
        session.hypervisor.suspend(&self.guest).map_err(wrap())
    }

    fn is_as_found(&self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let guest = &self.guest;
        let now = session.hypervisor.domain_xml(guest, Definition::Inactive).map_err(failed(guest))?;
        let other = DomainXml::parse(&self.found)
            .and_then(|found| first_difference(&found, &DomainXml::parse(&now)?))
            .map_err(|source| MeasureError::Xml { arm: guest.clone(), source })?;
        other.map_or(Ok(()), |other| {
            Err(MeasureError::Ends(format!(
                "the definition of `{guest}` is another than the arms were made from, first at {}: somebody has changed it since. Tune \
                 it anew",
                other.path
            )))
        })
    }
}

impl Path for Itself {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.bring_up(step.arm, session)
    }

    fn seat(&self, _: usize, _: usize) -> Seat {
        Seat::guest(&self.guest, "")
    }

    /// It is started for each sample anyhow.
    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        if self.last == Some(step.arm) && session.answers(&self.guest)? {
            return Ok(false);
        }
        session
            .note(format!("`{}` did not come up, or stopped answering, in a sample, which was made again", self.guest));
        Ok(true)
    }
}

/// Writes down that the guest is taken; says whether it runs.
fn take(guest: &str, session: &mut Session<'_>) -> Result<bool, MeasureError> {
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
    let runs = summary.state == DomainState::Running;
    if runs {
        let [live, stored] = [Definition::Live, Definition::Inactive]
            .map(|which| session.hypervisor.domain_xml(guest, which).map_err(failed(guest)));
        let lost = only_live(&live?, &stored?).map_err(|source| MeasureError::Xml { arm: guest.to_owned(), source })?;
        if !lost.is_empty() {
            return unfit(&format!(
                "{} only in the running VM, and would be gone; detach, or attach with --config as well",
                lost.join(", ")
            ));
        }
        // Before its users are cut off: whether there is an agent, and it may run commands. It may have been started a moment ago.
        agent::wait(session.hypervisor, guest, ANSWER).map_err(failed(guest))?;
        session.ask(guest, &["sh", "-c", "exit 0"], ANSWER)?;
    }
    let plan = Journal::at(&session.conditions.state).plan_at_start(guest)?;
    if plan.as_ref().and_then(|plan| plan.placement(guest)).is_some_and(Placement::needs_hook) {
        session.note(format!(
            "a plan of `{guest}` is in force, and libvirt's qemu hook sets its vhost workers and interrupts as that says in every arm"
        ));
    }
    let ran = summary.id.filter(|_| runs);
    session.leftovers.taken.push(Taken { guest: guest.to_owned(), uuid: summary.uuid, ran, asked: false });
    session.leftovers.save()?;
    Ok(runs)
}

/// Devices that the running guest has and its stored definition does not, in words.
fn only_live(live: &str, stored: &str) -> Result<Vec<String>, DomainError> {
    let devices = |text: &str| -> Result<BTreeSet<String>, DomainError> {
        let facts = DomainXml::parse(text)?.facts()?;
        let disks = facts.disks.iter().map(|disk| format!("disk {} is", disk.target));
        let cards = facts.interfaces.iter().filter_map(|card| Some(format!("interface {} is", card.mac.as_ref()?)));
        let functions = facts.hostdevs.iter().map(|address| format!("function {address} is"));
        Ok(disks.chain(cards).chain(functions).collect())
    };
    Ok(devices(live)?.difference(&devices(stored)?).cloned().collect())
}

/// A definition that says whose turn it is.
fn marked(xml: &str, arm: &str) -> Result<String, DomainError> {
    let mut xml = DomainXml::parse(xml)?;
    xml.set_turn(arm)?;
    Ok(xml.as_str().to_owned())
}

/// Shuts a guest down, if it is up. It is never powered off: it may hold what its user has not written yet. `then`: what
/// to know if it does not go down.
fn shut_down(hypervisor: &mut dyn Hypervisor, guest: &str, then: &str) -> Result<(), MeasureError> {
    let state = hypervisor.domain(guest).map_err(failed(guest))?.state;
    if state.is_off() {
        return Ok(());
    }
    // A paused one hears nothing.
    resume(hypervisor, guest)?;
    hypervisor.shutdown(guest, ShutdownMode::AgentThenAcpi, SHUTDOWN_LIMIT).map_err(|source| match source {
        HypervisorError::Timeout { .. } => MeasureError::Ends(format!(
            "`{guest}` did not shut down within {} s, and nearmetal does not power it off, since it may hold data that are not written. \
             {then}",
            SHUTDOWN_LIMIT.as_secs()
        )),
        other => failed(guest)(other),
    })
}

/// What is there of a guest that was taken; `None`: no such domain any more.
fn still(hypervisor: &mut dyn Hypervisor, taken: &Taken) -> Result<Option<DomainSummary>, MeasureError> {
    match hypervisor.domain(&taken.guest) {
        Ok(summary) => Ok(Some(summary).filter(|summary| summary.uuid.eq_ignore_ascii_case(&taken.uuid))),
        Err(HypervisorError::NoSuchDomain { .. }) => Ok(None),
        Err(error) => Err(failed(&taken.guest)(error)),
    }
}

/// The arm as which a guest runs; `None`: somebody has started it meanwhile, or it was never shut down.
fn turn_of(hypervisor: &mut dyn Hypervisor, guest: &str) -> Result<Option<String>, MeasureError> {
    let live = hypervisor.domain_xml(guest, Definition::Live).map_err(failed(guest))?;
    let turn = DomainXml::parse(&live).and_then(|xml| xml.turn());
    turn.map_err(|source| MeasureError::Xml { arm: guest.to_owned(), source })
}

/// What to know of a memory that libvirt saved.
fn is_saved(guest: &str) -> String {
    format!(
        "libvirt has saved the memory of `{guest}` meanwhile. If it is of a turn of the measurement (`virsh managedsave-dumpxml {guest}` shows \
         `nearmetal-turn`), drop it: `virsh managedsave-remove {guest}`. Otherwise start the VM. Then run `nearmetal rollback`"
    )
}

/// Ends the turn of a guest that was taken: what was started for one is shut down, and what was asked to shut down before the first, in
/// this boot, is waited for. Says whether it was in a turn.
pub(crate) fn end_turn(hypervisor: &mut dyn Hypervisor, taken: &Taken, same_boot: bool) -> Result<bool, MeasureError> {
    let guest = &taken.guest;
    let Some(summary) = still(hypervisor, taken)? else { return Ok(false) };
    if summary.state.is_off() {
        // Whoever shut this machine down saved what ran, and its next start would go on as that.
        return match summary.managed_save {
            true => Err(MeasureError::Unfit(is_saved(guest))),
            false => Ok(false),
        };
    }
    if turn_of(hypervisor, guest)?.is_some() {
        let then = "It runs as an arm of the measurement: shut it down, and run `nearmetal rollback` again";
        return shut_down(hypervisor, guest, then).map(|()| true);
    }
    // Numbers begin again with the boot.
    if !same_boot || !taken.asked || summary.id != taken.ran {
        return Ok(false);
    }
    let began = hypervisor.now();
    while hypervisor.now().duration_since(began) < SHUTDOWN_LIMIT {
        match still(hypervisor, taken)? {
            Some(now) if now.id == taken.ran && !now.state.is_off() => hypervisor.pause(SECOND),
            _ => break,
        }
    }
    Ok(false)
}

/// Starts a guest that ran before, unless somebody did. What a killed process had asked libvirt for may have come meanwhile: a turn
/// that began late is ended.
pub(crate) fn run_again(hypervisor: &mut dyn Hypervisor, taken: &Taken) -> Result<(), MeasureError> {
    let guest = &taken.guest;
    let mut refused = None;
    for _ in 0..START_TRIES {
        let Some(summary) = still(hypervisor, taken)? else { return Ok(()) };
        if summary.state.is_off() {
            if taken.ran.is_none() || summary.managed_save {
                return Ok(());
            }
            refused = hypervisor.start(guest, false).err();
            if refused.is_none() {
                return Ok(());
            }
        } else if turn_of(hypervisor, guest)?.is_some() {
            end_turn(hypervisor, taken, true)?;
        } else {
            return Ok(());
        }
    }
    match refused {
        Some(error) => Err(failed(guest)(error)),
        None => {
            Err(MeasureError::Unfit(format!("`{guest}` was started as an arm again and again: end what measures it")))
        }
    }
}
