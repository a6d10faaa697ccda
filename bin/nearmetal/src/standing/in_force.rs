//! What the journal has in force, for the overview and for whoever is about to remove nearmetal.

use nearmetal_change::journal::{AtWork, Purpose, Transaction, Work};
use nearmetal_change::{ChangeError, Journal, boot_id};
use nearmetal_host::HostFs;

use crate::job::outputs::TransactionOutput;
use crate::refusal::is_closed;

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
    let (all, writer) = match with_writer(journal, files) {
        Ok(found) => found,
        Err(error) => return InForce::Unknown(why(&error, journal)),
    };
    if let Some(open) = all.iter().rev().find(|transaction| transaction.is_unfinished()) {
        let of: fn(u32, String) -> InForce = if writer.is_some() { InForce::UnderWay } else { InForce::Unfinished };
        return of(open.number(), open.header.started.clone());
    }
    let transactions = all.iter().filter(|transaction| transaction.is_in_force()).count();
    InForce::Changes { transactions, planned: planned(&all) }
}

/// The domains that plans in force are of, sorted.
pub(crate) fn planned(all: &[Transaction]) -> Vec<String> {
    let held = all.iter().filter(|transaction| transaction.is_in_force());
    let plans = held.filter_map(|transaction| transaction.header.purpose.plan());
    let mut names: Vec<String> = plans.flat_map(|plan| &plan.domains).map(|domain| domain.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn why(error: &ChangeError, journal: &Journal) -> String {
    match is_closed(error) {
        true => format!("only root may read the journal in {}", journal.state_directory().display()),
        false => error.to_string(),
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
pub(crate) fn with_writer(
    journal: &Journal,
    files: &HostFs,
) -> Result<(Vec<Transaction>, Option<AtWork>), ChangeError> {
    let all = journal.transactions()?;
    let Some(open) = all.iter().rev().find(|transaction| transaction.is_unfinished()) else { return Ok((all, None)) };
    // What applies pools again at boot is at work too, but not on what an earlier boot left.
    let begun_in = open.rollback.as_ref().map_or(&open.header.boot_id, |(boot_id, _)| boot_id);
    let is_of_this_boot = boot_id(files).is_ok_and(|boot_id| boot_id == *begun_in);
    // Who measures makes no transaction.
    let changes = |at_work: &AtWork| at_work.work == Work::Changing && is_of_this_boot;
    let writer = journal.at_work(files).ok().flatten().filter(changes);
    // Once more: what ended between the two has ended.
    Ok((journal.transactions()?, writer))
}

/// A transaction for programs. `writer`: who is at work.
pub(crate) fn listed(transaction: &Transaction, writer: Option<AtWork>) -> TransactionOutput {
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
        at_work: transaction.is_unfinished() && writer.is_some(),
    }
}

/// A transaction in one line: `4  2026-11-24T22:51:43Z  plan of db, web1`. `writer`: who is at work.
pub(crate) fn line(transaction: &Transaction, writer: Option<AtWork>) -> String {
    let word = if transaction.rollback.is_some() { "being undone" } else { "under way" };
    let end = match (transaction.is_unfinished(), writer) {
        (false, _) => String::new(),
        (true, None) => "  unfinished: it was interrupted".to_owned(),
        (true, Some(AtWork { pid: Some(pid), .. })) => format!("  {word} (process {pid})"),
        (true, Some(_)) => format!("  {word}"),
    };
    format!("{}  {}  {}{end}", transaction.number(), transaction.header.started, purpose(transaction))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use nearmetal_host::{Entry, MemoryTree, files};

    use super::*;

    const NOW: &str = "11111111-0000-4000-8000-000000000000";
    const EARLIER: &str = "00000000-0000-4000-8000-000000000000";

    /// A kernel of this boot, whose list of locks has these processes at the journal's.
    fn kernel(state: &std::path::Path, pids: &[u32]) -> HostFs {
        let inode = state.join("lock").metadata().unwrap().ino();
        let locks: String =
            pids.iter().map(|pid| format!("1: FLOCK  ADVISORY  WRITE {pid} fe:01:{inode} 0 EOF\n")).collect();
        let mut tree = MemoryTree::new();
        for (path, text) in [("/proc/locks", locks), ("/proc/sys/kernel/random/boot_id", format!("{NOW}\n"))] {
            tree.put(path, Entry::File(text.into())).unwrap();
        }
        HostFs::of_tree(tree, "locks")
    }

    /// A journal with one transaction that did not end, begun in this boot; `more`: its further records.
    fn journal(boot_id: &str, more: &str) -> (tempfile::TempDir, Journal) {
        let directory = tempfile::tempdir().unwrap();
        let header = serde_json::json!({
            "record": "header", "schema": "nearmetal.journal/1", "transaction": 4, "started": "2026-01-01T00:00:00Z",
            "boot_id": boot_id, "nearmetal": "0.1.0", "host": {"hostname": "a", "fingerprint": "0"},
            "devices": {"schema": "nearmetal.devices/1", "task": "2 virtual functions"},
        });
        files::create_dir_all(&directory.path().join("journal")).unwrap();
        files::write(&directory.path().join("journal/0004.jsonl"), format!("{header}\n{more}")).unwrap();
        files::write(&directory.path().join("lock"), "4711\n").unwrap();
        let journal = Journal::at(directory.path());
        (directory, journal)
    }

    fn end(boot_id: &str, more: &str, pids: &[u32]) -> String {
        let (directory, journal) = journal(boot_id, more);
        let files = kernel(directory.path(), pids);
        let (all, writer) = with_writer(&journal, &files).unwrap();
        assert_eq!(listed(&all[0], writer).at_work, writer.is_some());
        let expected = if writer.is_some() { InForce::UnderWay } else { InForce::Unfinished };
        assert_eq!(in_force(&journal, &files), expected(4, "2026-01-01T00:00:00Z".to_owned()));
        line(&all[0], writer).split_once("2 virtual functions").unwrap().1.to_owned()
    }

    #[test]
    fn who_has_the_lock_is_at_work_on_what_was_begun_in_this_boot() {
        assert_eq!(end(NOW, "", &[4711]), "  under way (process 4711)");
        assert_eq!(end(NOW, "", &[0]), "  under way", "a process of another PID namespace");
        assert_eq!(end(NOW, "", &[]), "  unfinished: it was interrupted");
        // What applies pools again at boot has the lock, too.
        assert_eq!(end(EARLIER, "", &[4711]), "  unfinished: it was interrupted");
        let back = format!("{{\"record\":\"rollback-started\",\"at\":\"\",\"boot_id\":\"{NOW}\",\"running\":[]}}\n");
        assert_eq!(end(EARLIER, &back, &[4711]), "  being undone (process 4711)");
    }
}
