//! Taking a transaction back, from its journal alone.
//!
//! The order is not simply the reverse: a guest must be off before its pool can shrink, and its old definition must be
//! stored before it is started again. So: stop the guests that run in the new form, restore definitions, pools and
//! settings, start the guests that ran before.
//!
//! Every step looks at what is before it changes anything, and is recorded when done: a rollback that is killed is
//! simply run again.

use std::time::Duration;

use crate::boot_unit::UNIT_NAME;
use crate::change::{Change, functions_words, pool_words};
use crate::faults::Faults;
use crate::guests_to_stop::{Running, guests};
use crate::journal::{Journal, Record, State, Step, Transaction, WriterLock};
use crate::machine::Machine;
use crate::perform::{shut_down, start};
use crate::shared::Needed;
use crate::{ChangeError, devices, timestamp, undo};

/// What is taken back, and how.
#[derive(Debug, Clone)]
pub struct RollbackOptions {
    /// Which transaction; `None` for the unfinished one, or else the last one in force.
    pub transaction: Option<u32>,
    /// Guests may be shut down and started again.
    pub restart: bool,
    /// Guests that run in the new form stay so until they stop by themselves.
    pub keep_running: bool,
    /// How long a guest may take to shut down.
    pub shutdown_timeout: Duration,
}

impl Default for RollbackOptions {
    fn default() -> Self {
        Self { transaction: None, restart: false, keep_running: false, shutdown_timeout: Duration::from_secs(120) }
    }
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolledBack {
    /// The transaction.
    pub transaction: u32,
    /// One sentence per change, in the order in which they were taken back.
    pub notes: Vec<String>,
    /// One sentence for each thing that is not as it was before: a guest that keeps running with the new definition, as was asked for, or
    /// ran before the machine restarted; a device of an earlier transaction in force that this boot has not made again.
    pub left: Vec<String>,
}

/// Takes a transaction back.
pub fn rollback(
    machine: &mut Machine<'_>,
    journal: &Journal,
    options: &RollbackOptions,
    faults: &Faults,
    say: &mut dyn FnMut(&str),
) -> Result<RolledBack, ChangeError> {
    if !machine.surroundings.is_root {
        return Err(ChangeError::Preconditions { problems: vec!["run this as root".to_owned()] });
    }
    let lock = journal.lock()?;
    rollback_locked(machine, journal, &lock, options, faults, say)
}

/// Leaves an unfinished transaction as it is.
pub fn forget(journal: &Journal) -> Result<u32, ChangeError> {
    let lock = journal.lock()?;
    let unfinished = journal
        .unfinished()?
        .ok_or_else(|| ChangeError::NothingToRollBack("there is no unfinished transaction to forget".to_owned()))?;
    let mut writer = journal.resume(&lock, unfinished.number())?;
    writer.append(&Record::Forgotten { at: timestamp::now() })?;
    Ok(unfinished.number())
}

/// The fault points of a rollback, in order.
pub fn rollback_fault_points(
    machine: &mut Machine<'_>,
    journal: &Journal,
    options: &RollbackOptions,
) -> Result<Vec<String>, ChangeError> {
    let all = journal.transactions()?;
    let transaction = choose(&all, options.transaction)?;
    let guests = guests(machine, transaction)?;
    let actions = actions(transaction, &guests, options);
    let of_action =
        actions.iter().flat_map(|action| ["before", "made", "recorded"].map(|at| format!("{}:{at}", action.label())));
    let (start, end) = (["undo:before-start", "undo:started"], ["undo:before-end", "undo:ended"]);
    Ok(start.map(str::to_owned).into_iter().chain(of_action).chain(end.map(str::to_owned)).collect())
}

/// What a rollback would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The transaction.
    pub transaction: u32,
    /// Guests that it would shut down, or that would have to stop by themselves.
    pub must_stop: Vec<String>,
    /// What would be done, in its order, in words.
    pub actions: Vec<String>,
}

/// What [`rollback`] would do now; nothing is changed.
///
/// # Errors
/// Those of [`rollback`] before it changes anything, but for guests that would have to stop: they are in the answer.
pub fn preview(
    machine: &mut Machine<'_>,
    journal: &Journal,
    options: &RollbackOptions,
) -> Result<Preview, ChangeError> {
    let all = journal.transactions()?;
    let transaction = choose(&all, options.transaction)?;
    check_later(machine, &all, transaction)?;
    check_users(machine, transaction)?;
    let guests = guests(machine, transaction)?;
    let words = |action: Action<'_>| match action {
        Action::Stop(domain) => Some(format!("shut down `{domain}`, which runs with what will be undone")),
        // Whether guests run is what the other two see to.
        Action::Undo(step) if is_state(step) => None,
        Action::Undo(step) => Some(format!("undo: {}", step.change)),
        Action::Start(domain) => Some(format!("start `{domain}`")),
    };
    Ok(Preview {
        transaction: transaction.number(),
        must_stop: guests.iter().filter(|guest| guest.must_stop).map(|guest| guest.domain.clone()).collect(),
        actions: actions(transaction, &guests, options).into_iter().filter_map(words).collect(),
    })
}

/// One thing a rollback does.
#[derive(Debug, Clone, Copy)]
enum Action<'a> {
    Stop(&'a str),
    Undo(&'a Step),
    Start(&'a str),
}

impl Action<'_> {
    fn label(self) -> String {
        match self {
            Self::Stop(domain) => format!("undo:stop-{domain}"),
            Self::Undo(step) => format!("undo:{}:{}", step.number, step.change.slug()),
            Self::Start(domain) => format!("undo:start-{domain}"),
        }
    }
}

fn is_state(step: &Step) -> bool {
    matches!(step.change, Change::StartDomain { .. } | Change::ShutdownDomain { .. })
}

/// What is to be done, in its order; what an earlier, interrupted rollback has done is left out.
fn actions<'a>(transaction: &'a Transaction, guests: &'a [Running], options: &RollbackOptions) -> Vec<Action<'a>> {
    let stop = guests.iter().filter(|guest| guest.must_stop && !options.keep_running);
    let start = guests.iter().filter(|guest| guest.runs_at_the_end);
    let (state, other): (Vec<&Step>, Vec<&Step>) =
        transaction.steps.iter().rev().filter(|step| !step.undone).partition(|step| is_state(step));
    let stop = stop.map(|guest| Action::Stop(guest.domain.as_str()));
    let start = start.map(|guest| Action::Start(guest.domain.as_str()));
    stop.chain(other.into_iter().map(Action::Undo)).chain(start).chain(state.into_iter().map(Action::Undo)).collect()
}

pub(crate) fn rollback_locked(
    machine: &mut Machine<'_>,
    journal: &Journal,
    lock: &WriterLock,
    options: &RollbackOptions,
    faults: &Faults,
    say: &mut dyn FnMut(&str),
) -> Result<RolledBack, ChangeError> {
    let all = journal.transactions()?;
    let transaction = choose(&all, options.transaction)?;
    check_later(machine, &all, transaction)?;
    check_users(machine, transaction)?;
    let guests = guests(machine, transaction)?;
    let stop: Vec<String> =
        guests.iter().filter(|guest| guest.must_stop).map(|guest| format!("`{}` runs", guest.domain)).collect();
    if !stop.is_empty() && !options.restart && !options.keep_running {
        return Err(ChangeError::RollbackNeedsRestart { guests: stop });
    }
    let running = guests.iter().filter(|guest| guest.runs_at_the_end).map(|guest| guest.domain.clone()).collect();
    let needed = Needed::by_others(&all, transaction);
    faults.point("undo:before-start")?;
    let mut writer = journal.resume(lock, transaction.number())?;
    let boot_id = machine.boot_id.clone();
    let keep_running = options.keep_running;
    writer.append(&Record::RollbackStarted { at: timestamp::now(), boot_id, running, keep_running })?;
    faults.point("undo:started")?;
    let mut notes = Vec::new();
    for action in actions(transaction, &guests, options) {
        let label = action.label();
        faults.point(format!("{label}:before"))?;
        let note = match action {
            Action::Stop(domain) => {
                say(&format!("shutting down `{domain}`"));
                shut_down(machine, domain, options.shutdown_timeout)?;
                String::new()
            }
            Action::Undo(step) => undo::undo(machine, journal, transaction, step, &needed)?,
            Action::Start(domain) => {
                start(machine, domain)?;
                format!("`{domain}` runs")
            }
        };
        faults.point(format!("{label}:made"))?;
        if let Action::Undo(step) = action {
            writer.append(&Record::Undone { step: step.number, note: note.clone() })?;
        }
        if !note.is_empty() {
            say(&note);
            notes.push(note);
        }
        faults.point(format!("{label}:recorded"))?;
    }
    notes.extend(needed.leave(machine, &all, transaction)?.into_iter().inspect(|note| say(note)));
    let lost = guests.iter().filter(|guest| guest.lost_at_reboot).map(|guest| {
        format!(
            "`{}` ran before the machine restarted; nearmetal does not start it (virsh start {})",
            guest.domain, guest.domain
        )
    });
    let kept = guests
        .iter()
        .filter(|guest| guest.must_stop && options.keep_running)
        .map(|guest| format!("`{}` keeps running, and gets its former definition when it next starts", guest.domain));
    let left: Vec<String> = lost.chain(kept).chain(wait_for_the_boot_unit(machine, &all, transaction)).collect();
    left.iter().for_each(|sentence| say(sentence));
    faults.point("undo:before-end")?;
    writer.append(&Record::RolledBack { at: timestamp::now() })?;
    faults.point("undo:ended")?;
    Ok(RolledBack { transaction: transaction.number(), notes, left })
}

/// Whether something of a transaction has to be made again at every boot.
pub(crate) fn is_lost_at_boot(transaction: &Transaction) -> bool {
    transaction.steps.iter().any(|step| step.change.is_made_again_at_boot())
}

fn choose(all: &[Transaction], wanted: Option<u32>) -> Result<&Transaction, ChangeError> {
    let nothing = |text: String| Err(ChangeError::NothingToRollBack(text));
    if let Some(number) = wanted {
        let known: Vec<String> = all.iter().map(|transaction| transaction.number().to_string()).collect();
        return match all.iter().find(|transaction| transaction.number() == number) {
            Some(transaction) if transaction.is_in_force() => Ok(transaction),
            Some(transaction) if transaction.state == State::Forgotten => {
                nothing(format!("transaction {number} was abandoned with --forget and can no longer be rolled back"))
            }
            Some(_) => nothing(format!("transaction {number} has already been rolled back")),
            None => nothing(format!("unknown transaction {number} (known: {})", known.join(", "))),
        };
    }
    let last = |wanted: &dyn Fn(&Transaction) -> bool| all.iter().rev().find(|transaction| wanted(transaction));
    last(&Transaction::is_unfinished).or_else(|| last(&Transaction::is_in_force)).map_or_else(
        || {
            nothing(
                "nothing to roll back: nothing that was applied on this machine is still in \
            force"
                    .to_owned(),
            )
        },
        Ok,
    )
}

/// Old values are right only in the order in which they were journalled, and what a later transaction stands on has to stay.
fn check_later(machine: &Machine<'_>, all: &[Transaction], transaction: &Transaction) -> Result<(), ChangeError> {
    let objects = |transaction: &Transaction| -> Vec<String> {
        let shared = |change: &Change| matches!(change, Change::BootUnit { .. } | Change::QemuHook { .. });
        let real = transaction.steps.iter().filter(|step| !shared(&step.change));
        real.map(|step| step.change.object()).collect()
    };
    let mine = objects(transaction);
    let takes_away = |change: &&Change| match change {
        Change::HugepagePool { old, new, .. } => old < new,
        change => matches!(change, Change::VirtualFunctions { .. }),
    };
    let steps = transaction.steps.iter().map(|step| &step.change);
    let taken: Vec<String> = steps.filter(takes_away).map(Change::object).collect();
    for later in all.iter().filter(|other| other.number() > transaction.number() && other.is_in_force()) {
        let same = objects(later).into_iter().find(|object| mine.contains(object));
        let object = match same {
            None if !taken.is_empty() => {
                stands_on(machine, all, later)?.into_iter().find(|object| taken.contains(object))
            }
            same => same,
        };
        if let Some(object) = object {
            return Err(ChangeError::LaterTransaction {
                transaction: transaction.number(),
                later: later.number(),
                object,
            });
        }
    }
    Ok(())
}

/// What a transaction uses and may not have changed itself, in the words of [`Change::object`]: pools that had pages enough for its
/// guests, and the functions of a card of which it has bound one.
fn stands_on(
    machine: &Machine<'_>,
    all: &[Transaction],
    transaction: &Transaction,
) -> Result<Vec<String>, ChangeError> {
    let placements = transaction.header.purpose.plan().into_iter().flat_map(|plan| &plan.plan.placements);
    let pools = placements.flat_map(|placement| {
        let memory = &placement.memory;
        memory.page_size.into_iter().flat_map(move |size| memory.nodes.iter().map(move |node| pool_words(node, size)))
    });
    let mut needed: Vec<String> = pools.collect();
    let bound = devices::set_aside(machine.kernel, all, &machine.boot_id);
    for step in &transaction.steps {
        if let Change::Driver { card, new, .. } = &step.change {
            let physical = devices::step::physical_function(machine.kernel, card.function)?;
            let is_bound = new.bound.is_vfio() && bound.contains(&card.function);
            needed.extend(physical.filter(|_| is_bound).map(functions_words));
        }
    }
    Ok(needed)
}

/// Refuses, before anything is undone, where that would take a function from whoever uses it.
fn check_users(machine: &Machine<'_>, transaction: &Transaction) -> Result<(), ChangeError> {
    let mut problems = Vec::new();
    for step in transaction.steps.iter().filter(|step| !step.undone && step.boot_id == machine.boot_id) {
        problems.extend(devices::step::users_in_the_way(machine.kernel, &step.change)?);
    }
    if problems.is_empty() { Ok(()) } else { Err(ChangeError::Preconditions { problems }) }
}

/// Devices of earlier transactions that this boot has not made again, since the one that is undone had the last word on them.
fn wait_for_the_boot_unit(machine: &Machine<'_>, all: &[Transaction], transaction: &Transaction) -> Vec<String> {
    let earlier = |change: &Change| {
        let object = change.object();
        let before = all.iter().rev().filter(|other| other.number() < transaction.number() && other.is_committed());
        before
            .flat_map(|other| other.steps.iter().map(move |step| (other.number(), step)))
            .find(|(_, step)| step.change.object() == object)
    };
    let devices = transaction.steps.iter().map(|step| &step.change).filter(|change| change.is_of_devices());
    let waits = devices
        .filter_map(earlier)
        .filter(|(_, step)| step.change.is_made_again_at_boot() && step.boot_id != machine.boot_id);
    waits
        .map(|(number, step)| {
            format!(
                "transaction {number} is in force again, and this boot has not made it: run `systemctl restart {UNIT_NAME}`, which \
                 will {}",
                step.change
            )
        })
        .collect()
}
