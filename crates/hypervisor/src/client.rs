//! [`Hypervisor`] on top of anything that answers requests.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_units::CpuSet;
use serde_json::Value;

use crate::protocol::{Reply, Request, ShutdownSignal};
use crate::{
    Definition, DomainState, DomainSummary, Hypervisor, HypervisorError, Nvram, PassedFile, Scope, ShutdownMode,
    Versions,
};

/// How often the state is read while a guest shuts down.
const POLL: Duration = Duration::from_millis(200);

/// A guest that is still booting, or that asks a person first, loses a press of the power button: it is repeated.
const PRESS_AGAIN: Duration = Duration::from_secs(15);

/// One request in, one reply out.
pub trait Transport {
    /// Has the request carried out.
    fn call(&mut self, request: Request) -> Result<Reply, HypervisorError>;

    /// The time, for whoever waits. See [`Hypervisor::now`].
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Waits. See [`Hypervisor::pause`].
    fn pause(&mut self, time: Duration) {
        sleep(time);
    }
}

fn unexpected(reply: &Reply, wanted: &str) -> HypervisorError {
    let kind = match reply {
        Reply::Done => "done",
        Reply::Versions(_) => "versions",
        Reply::Xml(_) => "XML",
        Reply::Domains(_) => "a list of domains",
        Reply::Domain(_) => "a domain",
        Reply::Documents(_) => "a list of documents",
        Reply::Value(_) => "a value",
    };
    HypervisorError::Protocol { reason: format!("the answer is {kind} where {wanted} was asked for") }
}

fn done(transport: &mut impl Transport, request: Request) -> Result<(), HypervisorError> {
    match transport.call(request)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other, "nothing")),
    }
}

fn xml(transport: &mut impl Transport, request: Request) -> Result<String, HypervisorError> {
    match transport.call(request)? {
        Reply::Xml(text) => Ok(text),
        other => Err(unexpected(&other, "XML")),
    }
}

fn summary(transport: &mut impl Transport, request: Request) -> Result<DomainSummary, HypervisorError> {
    match transport.call(request)? {
        Reply::Domain(domain) => Ok(domain),
        other => Err(unexpected(&other, "a domain")),
    }
}

fn value(transport: &mut impl Transport, request: Request) -> Result<Value, HypervisorError> {
    match transport.call(request)? {
        Reply::Value(value) => Ok(value),
        other => Err(unexpected(&other, "a value")),
    }
}

fn pin(transport: &mut impl Transport, scope: Scope, request: Request) -> Result<(), HypervisorError> {
    // Both flags off would mean "whichever applies" to libvirt: a choice nobody made.
    if !scope.live && !scope.config { Ok(()) } else { done(transport, request) }
}

impl<T: Transport> Hypervisor for T {
    fn now(&self) -> Instant {
        Transport::now(self)
    }

    fn pause(&mut self, time: Duration) {
        Transport::pause(self, time);
    }

    fn versions(&mut self) -> Result<Versions, HypervisorError> {
        match self.call(Request::Versions)? {
            Reply::Versions(versions) => Ok(versions),
            other => Err(unexpected(&other, "versions")),
        }
    }

    fn capabilities(&mut self) -> Result<String, HypervisorError> {
        xml(self, Request::Capabilities)
    }

    fn node_devices(&mut self) -> Result<Vec<String>, HypervisorError> {
        match self.call(Request::NodeDevices)? {
            Reply::Documents(documents) => Ok(documents),
            other => Err(unexpected(&other, "a list of documents")),
        }
    }

    fn domains(&mut self) -> Result<Vec<DomainSummary>, HypervisorError> {
        match self.call(Request::Domains)? {
            Reply::Domains(domains) => Ok(domains),
            other => Err(unexpected(&other, "a list of domains")),
        }
    }

    fn domain(&mut self, name: &str) -> Result<DomainSummary, HypervisorError> {
        summary(self, Request::Domain { name: name.to_owned() })
    }

    fn domain_xml(&mut self, name: &str, which: Definition) -> Result<String, HypervisorError> {
        xml(self, Request::DomainXml { name: name.to_owned(), which })
    }

    fn define(&mut self, xml: &str) -> Result<DomainSummary, HypervisorError> {
        summary(self, Request::Define { xml: xml.to_owned() })
    }

    fn undefine(&mut self, name: &str, nvram: Nvram) -> Result<(), HypervisorError> {
        done(self, Request::Undefine { name: name.to_owned(), nvram })
    }

    fn start(&mut self, name: &str, paused: bool) -> Result<(), HypervisorError> {
        done(self, Request::Start { name: name.to_owned(), paused })
    }

    fn create_transient(&mut self, xml: &str, paused: bool) -> Result<DomainSummary, HypervisorError> {
        summary(self, Request::CreateTransient { xml: xml.to_owned(), paused })
    }

    fn create_tied(&mut self, xml: &str, files: &[PassedFile]) -> Result<DomainSummary, HypervisorError> {
        summary(self, Request::CreateTied { xml: xml.to_owned(), files: files.to_vec() })
    }

    fn shutdown(&mut self, name: &str, how: ShutdownMode, timeout: Duration) -> Result<(), HypervisorError> {
        shut_down(self, name, how, timeout)
    }

    fn destroy(&mut self, name: &str) -> Result<(), HypervisorError> {
        done(self, Request::Destroy { name: name.to_owned() })
    }

    fn suspend(&mut self, name: &str) -> Result<(), HypervisorError> {
        done(self, Request::Suspend { name: name.to_owned() })
    }

    fn resume(&mut self, name: &str) -> Result<(), HypervisorError> {
        done(self, Request::Resume { name: name.to_owned() })
    }

    fn pin_vcpu(&mut self, name: &str, vcpu: u32, cpus: &CpuSet, scope: Scope) -> Result<(), HypervisorError> {
        pin(self, scope, Request::PinVcpu { name: name.to_owned(), vcpu, cpus: cpus.clone(), scope })
    }

    fn pin_emulator(&mut self, name: &str, cpus: &CpuSet, scope: Scope) -> Result<(), HypervisorError> {
        pin(self, scope, Request::PinEmulator { name: name.to_owned(), cpus: cpus.clone(), scope })
    }

    fn pin_iothread(&mut self, name: &str, id: u32, cpus: &CpuSet, scope: Scope) -> Result<(), HypervisorError> {
        pin(self, scope, Request::PinIothread { name: name.to_owned(), id, cpus: cpus.clone(), scope })
    }

    fn set_autostart(&mut self, name: &str, autostart: bool) -> Result<(), HypervisorError> {
        done(self, Request::SetAutostart { name: name.to_owned(), autostart })
    }

    fn set_metadata(
        &mut self,
        name: &str,
        namespace: &str,
        prefix: &str,
        element: Option<&str>,
        scope: Scope,
    ) -> Result<(), HypervisorError> {
        let [name, namespace, prefix] = [name, namespace, prefix].map(str::to_owned);
        done(self, Request::SetMetadata { name, namespace, prefix, element: element.map(str::to_owned), scope })
    }

    fn attach_device(&mut self, name: &str, xml: &str) -> Result<(), HypervisorError> {
        done(self, Request::AttachDevice { name: name.to_owned(), xml: xml.to_owned() })
    }

    fn detach_device(&mut self, name: &str, xml: &str) -> Result<(), HypervisorError> {
        done(self, Request::DetachDevice { name: name.to_owned(), xml: xml.to_owned() })
    }

    fn agent(&mut self, name: &str, command: &Value, timeout: Duration) -> Result<Value, HypervisorError> {
        value(self, Request::Agent { name: name.to_owned(), command: command.clone(), timeout })
    }

    fn monitor(&mut self, name: &str, command: &Value) -> Result<Value, HypervisorError> {
        value(self, Request::Monitor { name: name.to_owned(), command: command.clone() })
    }
}

/// Whether the domain is off, or gone because it was transient.
fn is_off(transport: &mut impl Transport, name: &str) -> Result<Option<DomainState>, HypervisorError> {
    match summary(transport, Request::Domain { name: name.to_owned() }) {
        Ok(domain) if domain.state.is_off() => Ok(None),
        Ok(domain) => Ok(Some(domain.state)),
        Err(HypervisorError::NoSuchDomain { .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

fn shut_down(
    transport: &mut impl Transport,
    name: &str,
    how: ShutdownMode,
    timeout: Duration,
) -> Result<(), HypervisorError> {
    let started = transport.now();
    // Asked once outside the loop: here an unknown name is an error, later it means that a transient domain is gone.
    let state = summary(transport, Request::Domain { name: name.to_owned() })?.state;
    if state.is_off() {
        return Ok(());
    }
    if matches!(state, DomainState::Paused | DomainState::Crashed | DomainState::GuestSuspended) {
        return Err(HypervisorError::WrongState {
            action: "shut down".into(),
            name: name.into(),
            state,
            advice: "a guest whose vCPUs do not run cannot shut itself down: resume it first".into(),
        });
    }
    let mut signal = if how == ShutdownMode::Acpi { ShutdownSignal::Acpi } else { ShutdownSignal::Agent };
    let mut due = Some(started);
    let mut agent_took_it = false;
    loop {
        if how == ShutdownMode::AgentThenAcpi
            && signal == ShutdownSignal::Agent
            && agent_took_it
            && transport.now().duration_since(started) > timeout / 2
        {
            (signal, due) = (ShutdownSignal::Acpi, Some(transport.now()));
        }
        if due.is_some_and(|due| due <= transport.now()) {
            let sent = done(transport, Request::Shutdown { name: name.to_owned(), signal });
            // The guest may have gone off between the last look and this signal.
            if sent.is_err() && is_off(transport, name)?.is_none() {
                return Ok(());
            }
            match (sent, signal) {
                (Ok(()), ShutdownSignal::Acpi) => {
                    due = Some(transport.now() + PRESS_AGAIN);
                    // A guest that was booting may have its agent by then; if not, the button is next again.
                    if how == ShutdownMode::AgentThenAcpi && !agent_took_it {
                        signal = ShutdownSignal::Agent;
                    }
                }
                (Ok(()), ShutdownSignal::Agent) => (due, agent_took_it) = (None, true),
                (Err(error), ShutdownSignal::Agent)
                    if how == ShutdownMode::AgentThenAcpi && error.leaves_guest_untouched() =>
                {
                    (signal, due) = (ShutdownSignal::Acpi, Some(transport.now()));
                }
                (Err(error), _) => return Err(error),
            }
        }
        let Some(state) = is_off(transport, name)? else {
            return Ok(());
        };
        if transport.now().duration_since(started) >= timeout {
            return Err(HypervisorError::Timeout {
                action: "shut down".into(),
                name: name.into(),
                seconds: timeout.as_secs(),
                advice: format!(
                    "it is {state}, and was left so: look at its console, shut it down from inside, or give it longer"
                ),
            });
        }
        transport.pause(POLL.min(timeout.saturating_sub(transport.now().duration_since(started))));
    }
}
