//! Changes that were refused: in which words, and with which exit code; and libvirt where it is missing.

use nearmetal_change::journal::{AtWork, Work};
use nearmetal_change::{ChangeError, Journal};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::protocol::{Reply, Request};
use nearmetal_hypervisor::{HypervisorError, Transport};
use nearmetal_measure::leftovers_since;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Says why a change was refused, and with which exit code.
pub(crate) fn refuse(printer: &mut Printer, error: &ChangeError) -> ExitStatus {
    printer.important(&format!("error: {}", chain(error)));
    if is_closed(error) && !is_wrong_use(error) {
        printer.important("only root may read what nearmetal has changed here: run this as root");
    }
    if is_wrong_use(error) { ExitStatus::WrongUse } else { ExitStatus::Refused }
}

/// The same of what begins beside others: a change that another nearmetal is making is no change that was interrupted, and the way out of
/// that would be the wrong one.
pub(crate) fn refuse_beside(printer: &mut Printer, error: ChangeError, journal: &Journal) -> ExitStatus {
    refuse(printer, &journal.who_is_at_it(error, &HostFs::live()))
}

/// Refuses a change beside a measurement, and where one that was killed has left something: what it has borrowed goes back as it was
/// found, pools and PUs and the VM that is tuned, whatever was made of that meanwhile.
pub(crate) fn refuse_beside_a_measurement(journal: &Journal, files: &HostFs) -> Result<(), ChangeError> {
    let problem = match journal.at_work(files)? {
        Some(at_work @ AtWork { work: Work::Measuring, pid }) if pid != Some(std::process::id()) => {
            format!(
                "{at_work}, and it will put pools and PUs back as it found them: wait until it ends, then try again"
            )
        }
        // Before what a measurement has is looked at: that of one that lives cannot be told from what a killed one left.
        Some(at_work @ AtWork { work: Work::Changing, pid }) if pid != Some(std::process::id()) => {
            return Err(at_work.busy());
        }
        _ => return refuse_after_a_measurement(journal),
    };
    Err(ChangeError::Preconditions { problems: vec![problem] })
}

/// Refuses a change where a measurement that was killed has left something.
fn refuse_after_a_measurement(journal: &Journal) -> Result<(), ChangeError> {
    if leftovers_since(journal.state_directory()).is_none() {
        return Ok(());
    }
    let problem =
        "an interrupted measurement has left something behind: run `nearmetal rollback` to put it back, then try again";
    Err(ChangeError::Preconditions { problems: vec![problem.to_owned()] })
}

/// The same of a dry run, which other users than root may make, too: they are told nothing of locks that they may not look at.
pub(crate) fn refuse_dry_run_beside_a_measurement(journal: &Journal, files: &HostFs) -> Result<(), ChangeError> {
    match refuse_beside_a_measurement(journal, files) {
        Err(error) if is_closed(&error) => refuse_after_a_measurement(journal),
        other => other,
    }
}

/// Whether an error is about what the user named, and not about this machine.
pub(crate) fn is_wrong_use(error: &ChangeError) -> bool {
    match error {
        ChangeError::PlanUnreadable { .. }
        | ChangeError::NothingToRollBack(_)
        | ChangeError::Hypervisor(HypervisorError::NoSuchDomain { .. }) => true,
        ChangeError::File(error) => error.action == "read",
        _ => false,
    }
}

/// Whether this user may not read what it is about.
pub(crate) fn is_closed(error: &ChangeError) -> bool {
    matches!(error, ChangeError::File(file) if file.source.kind() == std::io::ErrorKind::PermissionDenied)
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

/// What stands for libvirt where it cannot be asked: changes that need it fail, the others do not.
pub(crate) struct NoLibvirt {
    /// Why.
    pub reason: String,
}

impl Transport for NoLibvirt {
    fn call(&mut self, _request: Request) -> Result<Reply, HypervisorError> {
        Err(HypervisorError::Protocol { reason: self.reason.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use nearmetal_host::{Entry, MemoryTree, files};

    use super::*;

    /// A kernel in which process 4711 has the lock on a file.
    fn kernel(inode: u64) -> HostFs {
        let mut tree = MemoryTree::new();
        let line = format!("1: FLOCK  ADVISORY  WRITE 4711 fe:01:{inode} 0 EOF\n");
        tree.put("/proc/locks", Entry::File(line.into())).unwrap();
        HostFs::of_tree(tree, "locks")
    }

    #[test]
    fn no_change_begins_beside_another_nearmetal_or_what_a_measurement_has_left() {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::at(directory.path().to_owned());
        refuse_beside_a_measurement(&journal, &kernel(0)).unwrap();
        let beside = |lock: &str| {
            let lock = directory.path().join(lock);
            files::write(&lock, "4711\n").unwrap();
            let refused = refuse_beside_a_measurement(&journal, &kernel(lock.metadata().unwrap().ino()));
            files::remove(&lock).unwrap();
            refused.unwrap_err()
        };
        let said = beside("measuring").to_string();
        assert!(said.contains("process 4711") && said.contains("wait until it ends"), "{said}");
        assert!(matches!(beside("lock"), ChangeError::Busy { holder } if holder == "4711"));
        files::write(&directory.path().join("bench.json"), "{}").unwrap();
        let said = refuse_beside_a_measurement(&journal, &kernel(0)).unwrap_err().to_string();
        assert!(said.contains("run `nearmetal rollback` to put it back"), "{said}");
    }
}
