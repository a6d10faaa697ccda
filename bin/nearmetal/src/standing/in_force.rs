//! What the journal has in force, for the overview and for whoever is about to remove nearmetal.

use nearmetal_change::journal::{AtWork, Work};
use nearmetal_change::journal::{Purpose, Transaction};
use nearmetal_change::{ChangeError, Journal};
use nearmetal_host::HostFs;

use crate::job::outputs::TransactionOutput;

/// What was changed here and not undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InForce {
    /// This user may not read the journal, or it is damaged: why.
    Unknown(String),
    /// A change is being made: its number, and when it began.
    UnderWay(u32, String),
    /// A change was killed: its number, and when it began.
    Unfinished(u32, String),
    /// So many transactions are in force; these domains have plans, sorted.
    Changes {
        /// Transactions, plans among them; 0: nothing is in force.
        transactions: usize,
        /// Domains with a plan in force.
        planned: Vec<String>,
    },
}

/// Asks the journal, and the kernel who is at work.
pub(crate) fn in_force(journal: &Journal, files: &HostFs) -> InForce {
    let (all, maker) = match with_maker(journal, files) {
        Ok(found) => found,
        Err(error) => return InForce::Unknown(why(&error, journal)),
    };
    if let Some(open) = all.iter().rev().find(|transaction| transaction.is_unfinished()) {
        let of: fn(u32, String) -> InForce = if maker.is_some() { InForce::UnderWay } else { InForce::Unfinished };
        return of(open.number(), open.header.started.clone());
    }
    let held: Vec<&Transaction> = all.iter().filter(|transaction| transaction.is_in_force()).collect();
    let plans = held.iter().filter_map(|transaction| transaction.header.purpose.plan());
    let mut planned: Vec<String> = plans.flat_map(|plan| &plan.domains).map(|domain| domain.name.clone()).collect();
    planned.sort();
    planned.dedup();
    InForce::Changes { transactions: held.len(), planned }
}

fn why(error: &ChangeError, journal: &Journal) -> String {
    match error {
        ChangeError::File(file) if file.source.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("only root may read the journal in {}", journal.state_directory().display())
        }
        other => other.to_string(),
    }
}

/// What a transaction is for, in words: `plan of db, web1`.
fn purpose(transaction: &Transaction) -> String {
    match &transaction.header.purpose {
        Purpose::Plan(plan) => {
            let names: Vec<&str> = plan.domains.iter().map(|domain| domain.name.as_str()).collect();
            format!("plan of {}", names.join(", "))
        }
        Purpose::Cures(cures) => {
            let mut rules: Vec<&str> = cures.objects.iter().map(|object| object.rule.as_str()).collect();
            rules.sort_unstable();
            rules.dedup();
            format!("doctor --fix: {}", rules.join(", "))
        }
        Purpose::Devices(devices) => format!("devices: {}", devices.task),
    }
}

/// All transactions, and the nearmetal that is at work on the one without an end; `None`: there is none, or it was interrupted.
///
/// # Errors
/// The journal cannot be read. Where only who is at work cannot be, nobody is known to be.
pub(crate) fn with_maker(journal: &Journal, files: &HostFs) -> Result<(Vec<Transaction>, Option<AtWork>), ChangeError> {
    let all = journal.transactions()?;
    let Some(open) = all.iter().rev().find(|transaction| transaction.is_unfinished()) else { return Ok((all, None)) };
    // What applies pools again at boot is at work too, but not on what an earlier boot left.
    let begun_in = open.rollback.as_ref().map_or(&open.header.boot_id, |(boot_id, _)| boot_id);
    let is_of_this_boot = files.read(BOOT_ID).is_ok_and(|boot_id| boot_id.trim() == begun_in);
    // Who measures makes no transaction.
    let changes = |at_work: &AtWork| at_work.work == Work::Changing && is_of_this_boot;
    let maker = journal.at_work(files).ok().flatten().filter(changes);
    // Once more: what ended between the two has ended.
    Ok((journal.transactions()?, maker))
}

/// proc(5).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A transaction for programs. `maker`: who is at work.
pub(crate) fn listed(transaction: &Transaction, maker: Option<AtWork>) -> TransactionOutput {
    let kind = match &transaction.header.purpose {
        Purpose::Plan(_) => "plan",
        Purpose::Cures(_) => "fixes",
        Purpose::Devices(_) => "devices",
    };
    let domains = transaction.header.purpose.plan().into_iter().flat_map(|plan| &plan.domains);
    TransactionOutput {
        number: transaction.number(),
        started: transaction.header.started.clone(),
        kind: kind.to_owned(),
        what: purpose(transaction),
        domains: domains.map(|domain| domain.name.clone()).collect(),
        unfinished: transaction.is_unfinished(),
        being_made: transaction.is_unfinished() && maker.is_some(),
    }
}

/// A transaction in one line: `4  2026-11-24T22:51:43Z  plan of db, web1`. `maker`: who is at work.
pub(crate) fn line(transaction: &Transaction, maker: Option<AtWork>) -> String {
    let word = if transaction.rollback.is_some() { "being undone" } else { "under way" };
    let end = match (transaction.is_unfinished(), maker) {
        (false, _) => String::new(),
        (true, None) => "  unfinished: it was interrupted".to_owned(),
        (true, Some(AtWork { pid: Some(pid), .. })) => format!("  {word} (process {pid})"),
        (true, Some(_)) => format!("  {word}"),
    };
    format!("{}  {}  {}{end}", transaction.number(), transaction.header.started, purpose(transaction))
}
