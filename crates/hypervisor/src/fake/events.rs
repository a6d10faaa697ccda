//! What [`Fake`] tells of its domains, as libvirt does.

use std::collections::BTreeMap;

use super::Fake;
use crate::protocol::{Reply, Request};
use crate::{DomainEvent, DomainState, EventKind, HypervisorError};

/// State and instance of each domain.
pub(super) type States = BTreeMap<String, (DomainState, Option<u32>)>;

impl Fake {
    pub(super) fn states(&self) -> States {
        self.domains.iter().map(|(name, domain)| (name.clone(), (domain.state, domain.instance()))).collect()
    }

    pub(super) fn tell(&mut self, domain: &str, kind: EventKind) {
        self.events.push_back(DomainEvent { domain: domain.to_owned(), kind });
    }

    /// Tells what became of the domains since.
    pub(super) fn tell_states(&mut self, before: &States) {
        let now = self.states();
        let names: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        for name in names {
            let off = (DomainState::ShutOff, None);
            let (old, new) = (*before.get(name).unwrap_or(&off), *now.get(name).unwrap_or(&off));
            if old == new {
                continue;
            }
            let runs = |state: DomainState| state == DomainState::Running;
            let kinds: &[EventKind] = match (old, new) {
                ((old, _), (new, _)) if !old.is_off() && new.is_off() => &[EventKind::Stopped],
                ((old, _), (new, _)) if old.is_off() && runs(new) => &[EventKind::Started, EventKind::Resumed],
                ((old, _), _) if old.is_off() => &[EventKind::Started],
                ((old, _), (new, _)) if !runs(old) && runs(new) => &[EventKind::Resumed],
                ((old, _), (new, _)) if runs(old) && !runs(new) => &[EventKind::Suspended],
                _ => &[],
            };
            kinds.iter().for_each(|kind| self.tell(name, *kind));
        }
    }

    /// Carries out a request, and tells what came of it.
    pub(super) fn told(&mut self, request: Request) -> Result<Reply, HypervisorError> {
        let before = self.states();
        let kind = match &request {
            Request::Define { .. } | Request::Undefine { .. } => Some(EventKind::Defined),
            Request::AttachDevice { .. } | Request::DetachDevice { .. } => Some(EventKind::DevicesChanged),
            Request::PinVcpu { scope, .. }
            | Request::PinEmulator { scope, .. }
            | Request::PinIothread { scope, .. } => scope.live.then_some(EventKind::Tuned),
            _ => None,
        };
        let name = request.domain().map(str::to_owned);
        let reply = self.carry_out(request)?;
        if let (Some(kind), Some(name)) = (kind, name) {
            self.tell(&name, kind);
        }
        self.tell_states(&before);
        Ok(reply)
    }
}
