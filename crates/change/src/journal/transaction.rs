//! A transaction as its records tell it.

use crate::change::Change;
use crate::journal::record::{Header, Record};
use crate::plan_file::PlanFile;

/// One transaction, read from its file.
#[derive(Debug, Clone, PartialEq)]
pub struct Transaction {
    /// Which, when, of what.
    pub header: Header,
    /// Its changes in the order in which they were begun.
    pub steps: Vec<Step>,
    /// How far it came.
    pub state: State,
    /// If taking back has begun: the boot in which it last did, and the guests that are to run when it ends.
    pub rollback: Option<(String, Vec<String>)>,
    /// The last boot in which it was undone, in part at least, with guests left running that run with it.
    pub guests_kept_in: Option<String>,
}

/// One change and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Number, from 1.
    pub number: u32,
    /// The change with its old value.
    pub change: Change,
    /// Whether a change that cannot be taken back at once had begun.
    pub begun: bool,
    /// Whether it was made and read back.
    pub done: bool,
    /// For a definition: what libvirt made of it.
    pub found: Option<String>,
    /// For a new domain: whether the file its UEFI variables will be in was not there when it was defined.
    pub fresh_nvram: bool,
    /// Whether it was taken back.
    pub undone: bool,
    /// The boot in which it was last made.
    pub boot_id: String,
    /// Whether the boot unit made it then, or began to.
    pub made_again: bool,
}

/// How far a transaction came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It began and neither ended nor was taken back.
    Unfinished,
    /// All its changes are in force; so many checks of the read-back disagreed.
    Committed {
        /// Mismatches.
        mismatches: usize,
    },
    /// Taking back began and did not end.
    RollingBack,
    /// The former state was restored.
    RolledBack,
    /// The user gave it up.
    Forgotten,
}

impl Transaction {
    /// From the records of one file; `None` without a header, which means that nothing was changed.
    pub fn from_records(records: Vec<Record>) -> Option<Result<Self, String>> {
        let mut records = records.into_iter();
        let header = match records.next()? {
            Record::Header(header) => *header,
            _ => return Some(Err("its first record is not a header".to_owned())),
        };
        let mut transaction =
            Self { header, steps: Vec::new(), state: State::Unfinished, rollback: None, guests_kept_in: None };
        for record in records {
            if let Err(problem) = transaction.take(record) {
                return Some(Err(problem));
            }
        }
        Some(Ok(transaction))
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        match record {
            Record::Header(_) => return Err("it has a second header".to_owned()),
            Record::Intent { step, change } => {
                let boot_id = self.header.boot_id.clone();
                self.steps.push(Step {
                    number: step,
                    change,
                    begun: false,
                    done: false,
                    found: None,
                    fresh_nvram: false,
                    undone: false,
                    boot_id,
                    made_again: false,
                });
            }
            Record::Begun { step } => self.step(step)?.begun = true,
            Record::Done { step, found, fresh_nvram } => {
                let step = self.step(step)?;
                step.done = true;
                step.found = found;
                step.fresh_nvram = fresh_nvram;
            }
            Record::Reapplying { step, boot_id, old } => self.step(step)?.reapplied(boot_id, &old)?,
            Record::Undone { step, .. } => self.step(step)?.undone = true,
            Record::Committed { mismatches, .. } => self.state = State::Committed { mismatches },
            Record::RollbackStarted { boot_id, running, keep_running, .. } => {
                self.state = State::RollingBack;
                if keep_running {
                    self.guests_kept_in = Some(boot_id.clone());
                }
                self.rollback = Some((boot_id, running));
            }
            Record::RolledBack { .. } => self.state = State::RolledBack,
            Record::Forgotten { .. } => self.state = State::Forgotten,
        }
        Ok(())
    }

    fn step(&mut self, number: u32) -> Result<&mut Step, String> {
        self.steps
            .iter_mut()
            .find(|step| step.number == number)
            .ok_or_else(|| format!("it mentions change {number}, which never began"))
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.header.transaction
    }

    /// Whether it has to be rolled back or given up before anything else may change.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Unfinished | State::RollingBack)
    }

    /// Whether its changes are in force, wholly or in part.
    pub fn is_in_force(&self) -> bool {
        matches!(self.state, State::Committed { .. } | State::Unfinished | State::RollingBack)
    }

    /// Whether all its changes were made and none was taken back.
    pub fn is_committed(&self) -> bool {
        matches!(self.state, State::Committed { .. })
    }

    /// Its plan, if it is one that concerns this domain.
    pub fn plan_of(&self, domain: &str) -> Option<&PlanFile> {
        self.header.purpose.plan().filter(|plan| plan.domains.iter().any(|change| change.name == domain))
    }
}

impl Step {
    fn reapplied(&mut self, boot: String, value: &str) -> Result<(), String> {
        self.boot_id = boot;
        self.made_again = true;
        match &mut self.change {
            Change::HugepagePool { old, .. } => {
                *old = value.parse().map_err(|_| format!("`{value}` is not a count of pages"))?;
            }
            Change::SysfsValue { old, .. } => *old = value.to_owned(),
            Change::LoadModule { loaded, .. } => *loaded = value == "loaded",
            Change::VirtualFunctions { old, .. } => **old = json(value)?,
            Change::Driver { old, .. } => *old = json(value)?,
            other => return Err(format!("cannot make `{other}` again at boot")),
        }
        Ok(())
    }
}

fn json<T: serde::de::DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| format!("`{value}` is not a device state: {error}"))
}

/// What later transactions in force, of `all`, have changed.
pub(crate) fn changed_later<'a>(transaction: &Transaction, all: &'a [Transaction]) -> Vec<&'a Change> {
    steps_later(transaction, all).into_iter().map(|step| &step.change).collect()
}

/// The steps of later transactions in force, of `all`, as far as they are made and not undone; the newest last.
pub(crate) fn steps_later<'a>(transaction: &Transaction, all: &'a [Transaction]) -> Vec<&'a Step> {
    let later = all.iter().filter(|other| other.number() > transaction.number() && other.is_in_force());
    later.flat_map(|other| &other.steps).filter(|step| step.done && !step.undone).collect()
}
