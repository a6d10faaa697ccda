//! From libvirt's errors to ours. Numbers decide where libvirt has a number; its English texts only where it has none.

use nearmetal_hypervisor::HypervisorError;
use virt::error::Error;
use virt::sys;

/// What was being done, for messages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) action: &'a str,
    pub(crate) name: &'a str,
}

pub(crate) fn code(error: &Error) -> sys::virErrorNumber {
    error.code().to_raw()
}

/// Whether this user may not do it, while another may.
pub(crate) fn is_permission(error: &Error) -> bool {
    match code(error) {
        sys::VIR_ERR_OPERATION_DENIED
        | sys::VIR_ERR_ACCESS_DENIED
        | sys::VIR_ERR_AUTH_FAILED
        | sys::VIR_ERR_AUTH_CANCELLED
        | sys::VIR_ERR_AUTH_UNAVAILABLE => true,
        // What opening the socket without being root or in its group says.
        sys::VIR_ERR_SYSTEM_ERROR => error.message().ends_with("Permission denied"),
        _ => false,
    }
}

impl Context<'_> {
    pub(crate) fn invalid(&self, reason: impl Into<String>) -> HypervisorError {
        HypervisorError::InvalidRequest { action: self.action.into(), name: self.name.into(), reason: reason.into() }
    }

    /// Any error but those of the guest agent.
    pub(crate) fn failed(&self, error: &Error) -> HypervisorError {
        let (action, name) = (self.action.to_owned(), self.name.to_owned());
        let message = error.message().to_owned();
        if is_permission(error) {
            return HypervisorError::NotPermitted { action, name, reason: message };
        }
        HypervisorError::Refused {
            action,
            name,
            domain: error.domain().to_raw().into(),
            code: code(error).into(),
            message,
        }
    }

    /// An error of a request that goes through the guest agent.
    pub(crate) fn agent_failed(&self, error: &Error, command: &str) -> HypervisorError {
        let name = self.name.to_owned();
        let message = error.message();
        match code(error) {
            // With this number libvirt also says that the guest's architecture or driver has no agent: no channel
            // in either case.
            sys::VIR_ERR_ARGUMENT_UNSUPPORTED if message.contains("agent") => {
                HypervisorError::AgentNotConfigured { name }
            }
            sys::VIR_ERR_AGENT_UNRESPONSIVE | sys::VIR_ERR_AGENT_UNSYNCED | sys::VIR_ERR_AGENT_COMMAND_TIMEOUT => {
                HypervisorError::AgentNotResponding { name, reason: message.to_owned() }
            }
            sys::VIR_ERR_AGENT_COMMAND_FAILED => self.agent_refused(command, message),
            // The daemon could not encode the agent's reply for us, and says no more than that.
            sys::VIR_ERR_RPC if message.contains("encode") => HypervisorError::AgentReply {
                name,
                command: command.into(),
                reason: format!(
                    "it is larger than the 4 MiB libvirt passes on ({message}); have it written to a file and read that"
                ),
            },
            // Before libvirt had a number of its own for it.
            sys::VIR_ERR_INTERNAL_ERROR if message.contains("agent command") => self.agent_refused(command, message),
            _ => self.failed(error),
        }
    }

    fn agent_refused(&self, command: &str, message: &str) -> HypervisorError {
        // `internal error: unable to execute QEMU agent command 'guest-exec': …`: what the agent said is at the end.
        let own = message.split_once(&format!("'{command}': ")).map_or(message, |(_, rest)| rest);
        HypervisorError::AgentCommandFailed { name: self.name.into(), command: command.into(), message: own.into() }
    }
}
