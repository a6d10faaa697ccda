//! Changes that were refused: in which words, and with which exit code; and libvirt where it is missing.

use nearmetal_change::{ChangeError, Journal};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::protocol::{Reply, Request};
use nearmetal_hypervisor::{HypervisorError, Transport};

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
