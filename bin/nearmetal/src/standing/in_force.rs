//! What the journal has in force, for the overview and for whoever is about to remove nearmetal.

use nearmetal_change::journal::{Purpose, Transaction};
use nearmetal_change::{ChangeError, Journal};

use crate::job::outputs::TransactionOutput;

/// What was changed here and not undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InForce {
    /// This user may not read the journal, or it is damaged: why.
    Unknown(String),
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

/// Asks the journal.
pub(crate) fn in_force(journal: &Journal) -> InForce {
    let all = match journal.transactions() {
        Ok(all) => all,
        Err(error) => return InForce::Unknown(why(&error, journal)),
    };
    if let Some(open) = all.iter().rev().find(|transaction| transaction.is_unfinished()) {
        return InForce::Unfinished(open.number(), open.header.started.clone());
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
        Purpose::Cures(_) => "doctor --fix".to_owned(),
        Purpose::Devices(devices) => format!("devices: {}", devices.task),
    }
}

/// A transaction for programs.
pub(crate) fn listed(transaction: &Transaction) -> TransactionOutput {
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
    }
}

/// A transaction in one line: `4  2026-11-24T22:51:43Z  plan of db, web1`.
pub(crate) fn line(transaction: &Transaction) -> String {
    let purpose = purpose(transaction);
    let unfinished = if transaction.is_unfinished() { "  unfinished" } else { "" };
    format!("{}  {}  {purpose}{unfinished}", transaction.number(), transaction.header.started)
}
