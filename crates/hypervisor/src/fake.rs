//! A hypervisor in memory, for tests of everything above this crate.
//!
//! It keeps the two definitions of each domain, moves states and tells events as libvirt does, refuses what libvirt refuses,
//! records every request, and fails where it is told to. Nobody waits for it: its clock goes on by what was
//! to be waited. It does not rewrite XML as libvirt does (no addresses are filled in), except for a UUID where there is none
//! and the `id` of a running instance.

mod domain;
mod events;
#[cfg(test)]
mod tests;
mod xml;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::protocol::{Reply, Request};
use crate::{DomainEvent, DomainState, EventKind, HypervisorError, PauseReason, Transport, Versions};
use domain::FakeDomain;
pub use domain::PinTarget;

type Answer = Box<dyn FnMut(&str, &Value) -> Result<Value, HypervisorError> + Send>;
type Condition = Box<dyn FnMut(usize, &Request) -> bool + Send>;

/// Whether a request that is made to fail has done its work before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was done.
    Nothing,
    /// It was done, and the answer was lost: what a broken connection looks like.
    Done,
}

struct Fault {
    condition: Condition,
    effect: Effect,
    error: HypervisorError,
}

/// See the module's own text.
pub struct Fake {
    capabilities: String,
    node_devices: Vec<String>,
    versions: Versions,
    domains: BTreeMap<String, FakeDomain>,
    calls: Vec<Request>,
    events: VecDeque<DomainEvent>,
    faults: Vec<Fault>,
    agent: Option<Answer>,
    monitor: Option<Answer>,
    next_id: u32,
    /// How long was waited, by those who asked for it.
    waited: Duration,
}

impl fmt::Debug for Fake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Fake")
            .field("domains", &self.domains)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Fake {
    /// Without domains; `capabilities` is what `virsh capabilities` prints.
    pub fn new(capabilities: &str) -> Self {
        Self {
            capabilities: capabilities.to_owned(),
            node_devices: Vec::new(),
            versions: Versions {
                libvirt: "9.0.0".into(),
                hypervisor: "7.2.0".into(),
                hypervisor_kind: "QEMU".into(),
                uri: "fake:///system".into(),
            },
            domains: BTreeMap::new(),
            calls: Vec::new(),
            events: VecDeque::new(),
            faults: Vec::new(),
            agent: None,
            monitor: None,
            next_id: 1,
            waited: Duration::ZERO,
        }
    }

    /// Adds a stored domain that is off.
    ///
    /// # Panics
    /// If the XML has no name: the test is wrong.
    pub fn with_domain(mut self, xml: &str) -> Self {
        if let Err(error) = self.store(xml) {
            panic!("{error}");
        }
        self
    }

    /// Adds a stored domain that runs.
    ///
    /// # Panics
    /// If the XML has no name: the test is wrong.
    pub fn with_running_domain(mut self, xml: &str) -> Self {
        let started = self.store(xml).and_then(|name| self.activate(&name, DomainState::Running));
        if let Err(error) = started {
            panic!("{error}");
        }
        self
    }

    /// Says other versions.
    pub fn with_versions(mut self, versions: Versions) -> Self {
        self.versions = versions;
        self
    }

    /// Every request so far, in order, failed ones included.
    pub fn calls(&self) -> &[Request] {
        &self.calls
    }

    /// The requests that can change something, in order, failed ones included.
    pub fn changes(&self) -> Vec<&Request> {
        self.calls.iter().filter(|request| request.is_change()).collect()
    }

    /// Forgets the recorded requests; counting starts anew.
    pub fn forget_calls(&mut self) {
        self.calls.clear();
    }

    /// Makes the `number`th request (counted from 1, as [`Fake::calls`] records them) fail.
    pub fn fail_at(&mut self, number: usize, effect: Effect, error: HypervisorError) {
        self.fail_when(effect, error, move |count, _| count == number);
    }

    /// Makes every request fail for which the condition holds; it is given the request's number, from 1.
    pub fn fail_when(
        &mut self,
        effect: Effect,
        error: HypervisorError,
        condition: impl FnMut(usize, &Request) -> bool + Send + 'static,
    ) {
        self.faults.push(Fault { condition: Box::new(condition), effect, error });
    }

    /// Lets nothing fail any more.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Answers agent commands; without it every guest is without an agent.
    pub fn on_agent(&mut self, answer: impl FnMut(&str, &Value) -> Result<Value, HypervisorError> + Send + 'static) {
        self.agent = Some(Box::new(answer));
    }

    /// Answers monitor commands.
    pub fn on_monitor(&mut self, answer: impl FnMut(&str, &Value) -> Result<Value, HypervisorError> + Send + 'static) {
        self.monitor = Some(Box::new(answer));
    }

    /// After a shutdown signal, the domain is still seen running this many times; `None`: it ignores the signal.
    pub fn set_shutdown(&mut self, name: &str, looks: Option<u32>) {
        if let Some(domain) = self.domains.get_mut(name) {
            domain.shutdown = looks;
        }
    }

    /// Puts a domain into a state from outside, as a crash or an administrator would.
    pub fn set_state(&mut self, name: &str, state: DomainState) {
        let before = self.states();
        if let Some(domain) = self.domains.get_mut(name) {
            domain.state = state;
            if state.is_off() {
                domain.stop();
            }
        }
        self.tell_states(&before);
    }

    /// Has libvirt pause a running domain for a reason of its own: a save, a migration, a failed disk.
    pub fn pause_for(&mut self, name: &str, reason: PauseReason) {
        if let Some(domain) = self.domains.get_mut(name) {
            domain.pause = Some(reason);
        }
        self.set_state(name, DomainState::Paused);
    }

    /// The guest restarts itself, in the process it has.
    pub fn reboot(&mut self, name: &str) {
        self.tell(name, EventKind::Rebooted);
    }

    /// What happened and was not asked for yet, in order: what libvirt tells those who follow its events.
    pub fn take_events(&mut self) -> Vec<DomainEvent> {
        self.events.drain(..).collect()
    }

    /// Gives a domain a managed save image, or takes it.
    pub fn set_managed_save(&mut self, name: &str, saved: bool) {
        if let Some(domain) = self.domains.get_mut(name) {
            domain.managed_save = saved;
        }
    }

    /// The connection ends, as when its program is killed: so does what was tied to it.
    pub fn end_connection(&mut self) {
        self.domains.values_mut().filter(|domain| domain.tied).for_each(FakeDomain::stop);
        self.forget_stopped();
    }

    /// The pins of the running instance set by requests (not those of its XML).
    pub fn live_pins(&self, name: &str) -> BTreeMap<PinTarget, nearmetal_units::CpuSet> {
        self.domains.get(name).map(|domain| domain.live_pins.clone()).unwrap_or_default()
    }

    /// The pins of the stored definition set by requests (not those of its XML).
    pub fn config_pins(&self, name: &str) -> BTreeMap<PinTarget, nearmetal_units::CpuSet> {
        self.domains.get(name).map(|domain| domain.config_pins.clone()).unwrap_or_default()
    }
}

impl Transport for Fake {
    fn call(&mut self, request: Request) -> Result<Reply, HypervisorError> {
        self.calls.push(request.clone());
        let count = self.calls.len();
        let fault = self
            .faults
            .iter_mut()
            .find_map(|fault| (fault.condition)(count, &request).then(|| (fault.effect, fault.error.clone())));
        match fault {
            Some((Effect::Nothing, error)) => Err(error),
            Some((Effect::Done, error)) => {
                let _ = self.told(request);
                Err(error)
            }
            None => self.told(request),
        }
    }

    fn now(&self) -> Instant {
        Instant::now() + self.waited
    }

    fn pause(&mut self, time: Duration) {
        self.waited += time;
    }
}
