//! The write-ahead journal: what was changed, from what to what, on the disk before it happens.
//!
//! `STATE/journal/0001.jsonl`, `0002.jsonl`, …: one file a transaction, one JSON object a line. Every line is synced
//! before the next step is taken, so after a crash the file tells all that can have happened. The last line may be torn
//! (a power loss while it was written): it is ignored, since what it announces had not begun.
//!
//! The journal is also the only memory of what is in force: the boot unit re-applies from it, verify finds its plan in
//! it.

mod lock;
mod record;
mod transaction;

pub use lock::{AtWork, Work, WriterLock};
pub use record::{Header, JOURNAL_SCHEMA, Purpose, Record};
pub use transaction::{State, Step, Transaction};
pub(crate) use transaction::{changed_later, steps_later};

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nearmetal_host::HostFs;
use nearmetal_host::files::{self, FileError};

use crate::plan_file::{HostIdentity, PlanFile};
use crate::{ChangeError, private_files, timestamp};

/// Where the state lies unless `--state` or `NEARMETAL_STATE` says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/nearmetal";

/// The journal of one machine.
#[derive(Debug, Clone)]
pub struct Journal {
    state: PathBuf,
}

impl Journal {
    /// The journal below a state directory; nothing is created until something is written.
    pub fn at(state: impl Into<PathBuf>) -> Self {
        Self { state: state.into() }
    }

    /// The state directory.
    pub fn state_directory(&self) -> &Path {
        &self.state
    }

    fn directory(&self) -> PathBuf {
        self.state.join("journal")
    }

    fn path(&self, transaction: u32) -> PathBuf {
        self.directory().join(format!("{transaction:04}.jsonl"))
    }

    /// The right to write; one process has it at a time.
    pub fn lock(&self) -> Result<WriterLock, ChangeError> {
        private_files::create_directory(&self.state)?;
        private_files::create_directory(&self.directory())?;
        WriterLock::take(&self.lock_path())
    }

    fn lock_path(&self) -> PathBuf {
        self.state.join("lock")
    }

    /// The right to measure on this machine; one process has it at a time. Whoever only looks leaves guests alone
    /// meanwhile; `apply`, `doctor --fix` and `device` refuse, and `rollback` does once the measurement has borrowed something.
    ///
    /// # Errors
    /// Another measures ([`ChangeError::Busy`]), or the state directory cannot be written to.
    pub fn lock_to_measure(&self) -> Result<WriterLock, ChangeError> {
        private_files::create_directory(&self.state)?;
        WriterLock::take(&self.measuring_path())
    }

    fn measuring_path(&self) -> PathBuf {
        self.state.join("measuring")
    }

    /// The nearmetal that is changing this machine now or measures on it, if one is. Does not take the lock for a moment to
    /// find out, which would turn away who wants it in that moment.
    ///
    /// # Errors
    /// The kernel's list of locks, or the file of a lock, cannot be read.
    pub fn at_work(&self, files: &HostFs) -> Result<Option<AtWork>, ChangeError> {
        for (path, work) in [(self.lock_path(), Work::Changing), (self.measuring_path(), Work::Measuring)] {
            if let Some(pid) = lock::holder(&path, files)? {
                return Ok(Some(AtWork { work, pid }));
            }
        }
        Ok(None)
    }

    /// All transactions, oldest first.
    pub fn transactions(&self) -> Result<Vec<Transaction>, ChangeError> {
        let directory = self.directory();
        // Closed to others: for them "there is none" would be a guess.
        let there = directory.try_exists();
        let there = there.map_err(|source| FileError { action: "look into", path: directory.clone(), source })?;
        if !there {
            return Ok(Vec::new());
        }
        let mut transactions = Vec::new();
        for path in files::list(&directory)? {
            if path.extension().is_some_and(|extension| extension == "jsonl") {
                transactions.extend(read(&path)?.transaction);
            }
        }
        transactions.sort_by_key(Transaction::number);
        Ok(transactions)
    }

    /// The transaction that has to be dealt with before anything else is changed.
    pub fn unfinished(&self) -> Result<Option<Transaction>, ChangeError> {
        Ok(self.transactions()?.into_iter().rev().find(Transaction::is_unfinished))
    }

    /// The same error, unless the transaction that has not ended is being made at this moment: then who makes it.
    pub fn who_is_at_it(&self, error: ChangeError, files: &HostFs) -> ChangeError {
        let is_open = matches!(error, ChangeError::Unfinished { .. });
        match is_open.then(|| self.at_work(files).ok().flatten()).flatten() {
            Some(at_work @ AtWork { work: Work::Changing, pid }) if pid != Some(std::process::id()) => at_work.busy(),
            _ => error,
        }
    }

    /// The last plan in force that concerns a domain.
    pub fn plan_in_force(&self, domain: &str) -> Result<Option<PlanFile>, ChangeError> {
        Ok(plan_in_force(&self.transactions()?, domain).cloned())
    }

    /// What tells whether the journal has changed since it was last read: its files with their lengths and times.
    ///
    /// # Errors
    /// The directory cannot be looked into.
    pub fn stamp(&self) -> Result<Vec<(PathBuf, u64, SystemTime)>, ChangeError> {
        let directory = self.directory();
        let there = directory.try_exists();
        if !there.map_err(|source| FileError { action: "look into", path: directory.clone(), source })? {
            return Ok(Vec::new());
        }
        let of = |path: PathBuf| -> Result<_, FileError> {
            let metadata = files::metadata(&path)?;
            let failed = |source| FileError { action: "look at", path: path.clone(), source };
            Ok((path.clone(), metadata.len(), metadata.modified().map_err(failed)?))
        };
        Ok(files::list(&directory)?.into_iter().map(of).collect::<Result<_, _>>()?)
    }

    /// The plan a domain is started by: as [`Journal::plan_in_force`], or that of the transaction which is starting it.
    pub fn plan_at_start(&self, domain: &str) -> Result<Option<PlanFile>, ChangeError> {
        let all = self.transactions()?;
        let mut own = all.iter().rev().filter(|one| one.is_committed() || one.state == State::Unfinished);
        Ok(own.find_map(|transaction| transaction.plan_of(domain)).cloned())
    }

    /// Begins a transaction. The lock is asked for so that nobody forgets to take it.
    pub fn begin(
        &self,
        _lock: &WriterLock,
        boot_id: &str,
        host: &HostIdentity,
        purpose: Purpose,
    ) -> Result<Writer, ChangeError> {
        // Numbers of files, not of transactions: a file whose header was torn keeps its number and is never reused.
        let last = files::list(&self.directory())?
            .iter()
            .filter_map(|path| path.file_stem()?.to_str()?.parse::<u32>().ok())
            .max()
            .unwrap_or(0);
        let transaction = last + 1;
        let mut writer = Writer::open(&self.path(transaction), transaction)?;
        writer.append(&Record::Header(Box::new(Header {
            schema: JOURNAL_SCHEMA.to_owned(),
            transaction,
            started: timestamp::now(),
            boot_id: boot_id.to_owned(),
            nearmetal: env!("CARGO_PKG_VERSION").to_owned(),
            host: host.clone(),
            purpose,
        })))?;
        Ok(writer)
    }

    /// Continues a transaction's file; a torn line at its end is cut off first.
    pub fn resume(&self, _lock: &WriterLock, transaction: u32) -> Result<Writer, ChangeError> {
        let path = self.path(transaction);
        let whole = read(&path)?.whole_bytes;
        let writer = Writer::open(&path, transaction)?;
        let failed = |source| FileError { action: "repair", path: path.clone(), source };
        writer.file.set_len(whole).and_then(|()| writer.file.sync_all()).map_err(failed)?;
        Ok(writer)
    }
}

/// The last plan in force that concerns a domain, of transactions in their order.
pub fn plan_in_force<'a>(all: &'a [Transaction], domain: &str) -> Option<&'a PlanFile> {
    let mut committed = all.iter().rev().filter(|transaction| transaction.is_committed());
    committed.find_map(|transaction| transaction.plan_of(domain))
}

/// Appends records to one transaction's file.
#[derive(Debug)]
pub struct Writer {
    file: std::fs::File,
    path: PathBuf,
    transaction: u32,
}

impl Writer {
    fn open(path: &Path, transaction: u32) -> Result<Self, ChangeError> {
        Ok(Self { file: private_files::append(path)?, path: path.to_owned(), transaction })
    }

    /// The transaction's number.
    pub fn transaction(&self) -> u32 {
        self.transaction
    }

    /// Appends a record; on the disk when this returns.
    pub fn append(&mut self, record: &Record) -> Result<(), ChangeError> {
        let failed = |source| FileError { action: "append to", path: self.path.clone(), source };
        let mut line = serde_json::to_string(record).map_err(|error| failed(error.into()))?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()).map_err(failed)?;
        Ok(())
    }
}

struct Contents {
    transaction: Option<Transaction>,
    /// Length of the lines that are whole.
    whole_bytes: u64,
}

fn read(path: &Path) -> Result<Contents, ChangeError> {
    let bytes = files::read(path)?;
    let damaged = |line: usize, problem: String| ChangeError::JournalDamaged { path: path.to_owned(), line, problem };
    let mut records = Vec::new();
    let mut whole = 0;
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let last = lines.clone().count();
    for (index, line) in lines.enumerate() {
        let parsed = serde_json::from_slice::<Record>(line);
        match parsed {
            Ok(record) if line.ends_with(b"\n") => {
                if let Record::Header(header) = &record {
                    if header.schema != JOURNAL_SCHEMA {
                        let problem =
                            format!("its schema is `{}`, but this version reads `{JOURNAL_SCHEMA}`", header.schema);
                        return Err(damaged(index + 1, problem));
                    }
                }
                records.push(record);
                whole += line.len() as u64;
            }
            // Torn: without its newline, or (on file systems that extend before they fill) with zeros in it.
            _ if index + 1 == last => {}
            Ok(_) => return Err(damaged(index + 1, "no newline at its end".to_owned())),
            Err(error) => return Err(damaged(index + 1, error.to_string())),
        }
    }
    let transaction = match Transaction::from_records(records) {
        None => None,
        Some(Ok(transaction)) => Some(transaction),
        Some(Err(problem)) => return Err(damaged(1, problem)),
    };
    Ok(Contents { transaction, whole_bytes: whole })
}
