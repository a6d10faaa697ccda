//! Commands that leave libvirt's own vocabulary: to the guest agent, and to QEMU's monitor.

use std::time::Duration;

use nearmetal_hypervisor::protocol::{Reply, ShutdownSignal};
use nearmetal_hypervisor::{DomainState, HypervisorError};
use serde_json::Value;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

use crate::domains;
use crate::failure::{Context, code};

/// libvirt's limit for one string (`REMOTE_STRING_MAX`): a longer command never leaves this process.
const LONGEST_MONITOR_COMMAND: usize = 4 << 20;

/// A longer command does not fit the send buffer of the agent's socket (212,992 bytes by default, of which the kernel
/// takes a part for itself). libvirt never sends the rest, and the agent is lost for every later command too.
const LONGEST_AGENT_COMMAND: usize = 192 << 10;

pub(crate) fn shutdown(
    domain: &Domain,
    signal: ShutdownSignal,
    context: Context<'_>,
) -> Result<Reply, HypervisorError> {
    let result = match signal {
        ShutdownSignal::Acpi => {
            domain.shutdown_flags(sys::VIR_DOMAIN_SHUTDOWN_ACPI_POWER_BTN).map_err(|error| context.failed(&error))
        }
        ShutdownSignal::Agent => domain
            .shutdown_flags(sys::VIR_DOMAIN_SHUTDOWN_GUEST_AGENT)
            .map_err(|error| context.agent_failed(&error, "guest-shutdown")),
    };
    result.map(|_| Reply::Done)
}

pub(crate) fn command(
    domain: &Domain,
    command: &Value,
    timeout: Duration,
    context: Context<'_>,
) -> Result<Reply, HypervisorError> {
    let text = short_enough(command, LONGEST_AGENT_COMMAND, context)?;
    let name = name_of(command, "execute");
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let seconds = i32::try_from(seconds).unwrap_or(i32::MAX).max(1);
    let reply = match domain.qemu_agent_command(&text, seconds, 0) {
        Ok(reply) => reply,
        Err(error) => return Err(not_running(domain, &error, context).unwrap_or(context.agent_failed(&error, &name))),
    };
    let unexpected =
        |reason: String| HypervisorError::AgentReply { name: context.name.to_owned(), command: name.clone(), reason };
    let reply: Value = serde_json::from_str(&reply).map_err(|error| unexpected(error.to_string()))?;
    match reply {
        Value::Object(mut fields) => match (fields.remove("return"), fields.remove("error")) {
            (Some(value), _) => Ok(Reply::Value(value)),
            (None, Some(error)) => Err(HypervisorError::AgentCommandFailed {
                name: context.name.to_owned(),
                command: name,
                message: text_of(&error, "desc"),
            }),
            (None, None) => Err(unexpected("there is neither `return` nor `error` in it".into())),
        },
        _ => Err(unexpected("it is not a JSON object".into())),
    }
}

/// libvirt says "domain is not running" of a paused one too, which sends people looking in the wrong place.
fn not_running(domain: &Domain, error: &Error, context: Context<'_>) -> Option<HypervisorError> {
    if code(error) != sys::VIR_ERR_OPERATION_INVALID {
        return None;
    }
    let state = domains::state(domain).ok().filter(|state| *state != DomainState::Running)?;
    Some(HypervisorError::agent_needs_running(context.name, state))
}

pub(crate) fn monitor(domain: &Domain, command: &Value, context: Context<'_>) -> Result<Reply, HypervisorError> {
    let text = short_enough(command, LONGEST_MONITOR_COMMAND, context)?;
    let reply = domain.qemu_monitor_command(&text, 0).map_err(|error| context.failed(&error))?;
    let refused = |class: String, message: String| HypervisorError::MonitorCommandFailed {
        name: context.name.to_owned(),
        command: name_of(command, "execute"),
        class,
        message,
    };
    let reply: Value =
        serde_json::from_str(&reply).map_err(|error| refused("unreadable reply".into(), error.to_string()))?;
    match (reply.get("return"), reply.get("error")) {
        (Some(value), _) => Ok(Reply::Value(value.clone())),
        (None, Some(error)) => Err(refused(text_of(error, "class"), text_of(error, "desc"))),
        (None, None) => Err(refused("unreadable reply".into(), "there is neither `return` nor `error` in it".into())),
    }
}

fn short_enough(command: &Value, limit: usize, context: Context<'_>) -> Result<String, HypervisorError> {
    let text = command.to_string();
    if text.len() <= limit {
        return Ok(text);
    }
    Err(context.invalid(format!("the command is {} bytes long, and {limit} is the limit", text.len())))
}

fn name_of(command: &Value, field: &str) -> String {
    command.get(field).and_then(Value::as_str).unwrap_or("a command without a name").to_owned()
}

fn text_of(error: &Value, field: &str) -> String {
    error.get(field).and_then(Value::as_str).map_or_else(|| error.to_string(), str::to_owned)
}
