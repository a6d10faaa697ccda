//! Domains of [`super::Fake`] and what requests do to them.

use std::collections::BTreeMap;

use nearmetal_units::CpuSet;

use super::{Fake, xml};
use crate::protocol::{Reply, Request, ShutdownSignal};
use crate::{Definition, DomainState, DomainSummary, HypervisorError, PauseReason, Scope};

/// libvirt's number for "not in this state" (`VIR_ERR_OPERATION_INVALID`), and of its QEMU driver (`VIR_FROM_QEMU`).
const OPERATION_INVALID: i64 = 55;
const FROM_QEMU: i64 = 10;

/// What a pin is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinTarget {
    /// One vCPU.
    Vcpu(u32),
    /// The emulator threads.
    Emulator,
    /// One iothread.
    Iothread(u32),
}

#[derive(Debug, Clone)]
pub(super) struct FakeDomain {
    uuid: String,
    inactive: Option<String>,
    live: Option<String>,
    pub(super) state: DomainState,
    /// Why it is paused, where a test says so; somebody asked for it otherwise.
    pub(super) pause: Option<PauseReason>,
    autostart: bool,
    pub(super) managed_save: bool,
    id: Option<u32>,
    pub(super) shutdown: Option<u32>,
    looks_left: Option<u32>,
    /// Whether it ends with the connection.
    pub(super) tied: bool,
    pub(super) live_pins: BTreeMap<PinTarget, CpuSet>,
    pub(super) config_pins: BTreeMap<PinTarget, CpuSet>,
}

impl FakeDomain {
    fn new(uuid: String) -> Self {
        Self {
            uuid,
            inactive: None,
            live: None,
            state: DomainState::ShutOff,
            pause: None,
            autostart: false,
            managed_save: false,
            id: None,
            shutdown: Some(0),
            looks_left: None,
            tied: false,
            live_pins: BTreeMap::new(),
            config_pins: BTreeMap::new(),
        }
    }

    pub(super) fn stop(&mut self) {
        (self.state, self.pause) = (DomainState::ShutOff, None);
        (self.live, self.id, self.looks_left, self.tied) = (None, None, None, false);
        self.live_pins.clear();
    }

    pub(super) fn instance(&self) -> Option<u32> {
        self.id
    }

    /// One look at the state moves a shutdown on.
    fn look(&mut self) {
        match self.looks_left {
            Some(0) => self.stop(),
            Some(left) => self.looks_left = Some(left - 1),
            None => {}
        }
    }

    fn summary(&self, name: &str) -> DomainSummary {
        DomainSummary {
            name: name.to_owned(),
            uuid: self.uuid.clone(),
            state: self.state,
            pause: (self.state == DomainState::Paused).then(|| self.pause.unwrap_or(PauseReason::User)),
            persistent: self.inactive.is_some(),
            autostart: self.autostart,
            managed_save: self.managed_save,
            id: self.id,
        }
    }
}

fn invalid(request: &Request, message: &str) -> HypervisorError {
    HypervisorError::Refused {
        action: request.action().into(),
        name: request.subject(),
        domain: FROM_QEMU,
        code: OPERATION_INVALID,
        message: format!("Requested operation is not valid: {message}"),
    }
}

impl Fake {
    pub(super) fn store(&mut self, text: &str) -> Result<String, HypervisorError> {
        let name = self.entry(text)?;
        if let Some(domain) = self.domains.get_mut(&name) {
            domain.inactive = Some(completed(text, &domain.uuid));
            domain.config_pins.clear();
        }
        Ok(name)
    }

    /// The domain the XML is about, made if there is none; one of the same name and another UUID is refused.
    fn entry(&mut self, text: &str) -> Result<String, HypervisorError> {
        let identity = xml::identity(text)?;
        let known = self.domains.get(&identity.name).map(|domain| domain.uuid.clone());
        let uuid = identity.uuid.or_else(|| known.clone()).unwrap_or_else(|| xml::uuid_for(&identity.name));
        if known.as_ref().is_some_and(|known| *known != uuid) {
            return Err(HypervisorError::Refused {
                action: "define".into(),
                name: identity.name,
                domain: 20,
                code: 9,
                message: format!("operation failed: domain already exists with uuid {}", known.unwrap_or_default()),
            });
        }
        self.domains.entry(identity.name.clone()).or_insert_with(|| FakeDomain::new(uuid));
        Ok(identity.name)
    }

    pub(super) fn activate(&mut self, name: &str, state: DomainState) -> Result<(), HypervisorError> {
        let id = self.next_id;
        let domain = self.find(name)?;
        domain.live = domain.inactive.as_ref().map(|text| xml::with_id(text, id));
        (domain.state, domain.id) = (state, Some(id));
        domain.live_pins = domain.config_pins.clone();
        self.next_id += 1;
        Ok(())
    }

    fn find(&mut self, name: &str) -> Result<&mut FakeDomain, HypervisorError> {
        let existing: Vec<String> = self.domains.keys().cloned().collect();
        self.domains.get_mut(name).ok_or_else(|| HypervisorError::NoSuchDomain { name: name.to_owned(), existing })
    }

    fn running(&mut self, name: &str, request: &Request) -> Result<&mut FakeDomain, HypervisorError> {
        let domain = self.find(name)?;
        if domain.state.is_off() { Err(invalid(request, "domain is not running")) } else { Ok(domain) }
    }

    /// A transient domain is gone with its running instance.
    pub(super) fn forget_stopped(&mut self) {
        self.domains.retain(|_, domain| domain.inactive.is_some() || domain.live.is_some());
    }

    pub(super) fn carry_out(&mut self, request: Request) -> Result<Reply, HypervisorError> {
        match &request {
            Request::Versions => return Ok(Reply::Versions(self.versions.clone())),
            Request::Events => return Ok(Reply::Done),
            Request::Capabilities => return Ok(Reply::Xml(self.capabilities.clone())),
            Request::NodeDevices => return Ok(Reply::Documents(self.node_devices.clone())),
            Request::Domains => {
                let list = self.domains.iter().map(|(name, domain)| domain.summary(name)).collect();
                return Ok(Reply::Domains(list));
            }
            Request::Domain { name } => {
                self.find(name)?.look();
                self.forget_stopped();
                return Ok(Reply::Domain(self.find(name)?.summary(name)));
            }
            Request::DomainXml { name, which } => {
                let domain = self.find(name)?;
                let (first, second) = match which {
                    Definition::Inactive => (&domain.inactive, &domain.live),
                    Definition::Live => (&domain.live, &domain.inactive),
                };
                return Ok(Reply::Xml(first.clone().or_else(|| second.clone()).unwrap_or_default()));
            }
            Request::Define { xml } => {
                let name = self.store(xml)?;
                return Ok(Reply::Domain(self.find(&name)?.summary(&name)));
            }
            Request::CreateTransient { xml, paused } => {
                return Ok(Reply::Domain(self.create(xml, started(*paused), &request)?));
            }
            Request::CreateTied { xml, files } => {
                if let Some(file) = files.iter().find(|file| !xml.contains(&format!("'{}'", file.group))) {
                    return Err(invalid(&request, &format!("no source names the file group {}", file.group)));
                }
                let mut summary = self.create(xml, DomainState::Running, &request)?;
                let domain = self.find(&summary.name)?;
                domain.tied = true;
                // libvirt stores it to give it the files, and then removes what is stored.
                (domain.inactive, summary.persistent) = (None, false);
                return Ok(Reply::Domain(summary));
            }
            Request::Agent { name, command, .. } => {
                let state = self.find(name)?.state;
                if state != DomainState::Running {
                    return Err(HypervisorError::agent_needs_running(name, state));
                }
                let Some(answer) = self.agent.as_mut() else {
                    return Err(HypervisorError::AgentNotConfigured { name: name.clone() });
                };
                return answer(name, command).map(Reply::Value);
            }
            Request::Monitor { name, command } => {
                self.running(name, &request)?;
                let Some(answer) = self.monitor.as_mut() else {
                    return Err(invalid(&request, "this test has no monitor"));
                };
                return answer(name, command).map(Reply::Value);
            }
            Request::Undefine { name, .. } => {
                let domain = self.find(name)?;
                domain.inactive = None;
                domain.autostart = false;
                self.forget_stopped();
            }
            Request::Start { name, paused } => {
                if !self.find(name)?.state.is_off() {
                    return Err(invalid(&request, "domain is already running"));
                }
                self.activate(name, started(*paused))?;
            }
            Request::Shutdown { name, signal } => {
                let without_agent = *signal == ShutdownSignal::Agent && self.agent.is_none();
                let domain = self.running(name, &request)?;
                if without_agent {
                    return Err(HypervisorError::AgentNotConfigured { name: name.clone() });
                }
                domain.looks_left = domain.shutdown;
            }
            Request::Destroy { name } => {
                self.running(name, &request)?.stop();
                self.forget_stopped();
            }
            Request::Suspend { name } => self.running(name, &request)?.state = DomainState::Paused,
            Request::Resume { name } => {
                let domain = self.running(name, &request)?;
                if domain.state == DomainState::Running {
                    return Err(invalid(&request, "domain is already running"));
                }
                (domain.state, domain.pause) = (DomainState::Running, None);
            }
            Request::PinVcpu { name, vcpu, cpus, scope } => {
                self.pin(name, PinTarget::Vcpu(*vcpu), cpus, *scope, &request)?;
            }
            Request::PinEmulator { name, cpus, scope } => {
                self.pin(name, PinTarget::Emulator, cpus, *scope, &request)?;
            }
            Request::PinIothread { name, id, cpus, scope } => {
                self.pin(name, PinTarget::Iothread(*id), cpus, *scope, &request)?;
            }
            Request::SetAutostart { name, autostart } => {
                let domain = self.find(name)?;
                if domain.inactive.is_none() {
                    return Err(invalid(&request, "cannot set autostart for transient domain"));
                }
                domain.autostart = *autostart;
            }
            // A guest that lets go at once: the element goes into the live XML, and out of it.
            Request::AttachDevice { name, xml } => {
                let live = &mut self.running(name, &request)?.live;
                let end = "</devices>";
                live.iter_mut().for_each(|text| *text = text.replacen(end, &format!("{xml}{end}"), 1));
            }
            Request::DetachDevice { name, xml } => {
                let live = self.running(name, &request)?.live.as_mut();
                match live.filter(|text| text.contains(xml.as_str())) {
                    Some(text) => *text = text.replacen(xml, "", 1),
                    None => return Err(invalid(&request, "no device matching the one that was named")),
                }
            }
            Request::SetMetadata { name, namespace, prefix, element, scope } => {
                let domain = if scope.live { self.running(name, &request)? } else { self.find(name)? };
                if scope.config && domain.inactive.is_none() {
                    return Err(invalid(&request, "transient domains do not have any persistent config"));
                }
                let element = element.as_deref();
                let set = |text: &mut String| *text = xml::with_metadata(text, namespace, prefix, element);
                domain.live.as_mut().filter(|_| scope.live).map(set);
                domain.inactive.as_mut().filter(|_| scope.config).map(set);
            }
        }
        Ok(Reply::Done)
    }

    fn create(&mut self, text: &str, state: DomainState, request: &Request) -> Result<DomainSummary, HypervisorError> {
        let known = xml::identity(text)?.name;
        if self.domains.get(&known).is_some_and(|domain| !domain.state.is_off()) {
            return Err(invalid(request, "domain is already active"));
        }
        let name = self.entry(text)?;
        // `activate` starts what is stored, so the transient XML stands there meanwhile.
        let domain = self.find(&name)?;
        let transient = completed(text, &domain.uuid);
        let persistent = domain.inactive.replace(transient);
        self.activate(&name, state)?;
        let domain = self.find(&name)?;
        domain.inactive = persistent;
        Ok(domain.summary(&name))
    }

    fn pin(
        &mut self,
        name: &str,
        target: PinTarget,
        cpus: &CpuSet,
        scope: Scope,
        request: &Request,
    ) -> Result<(), HypervisorError> {
        let domain = if scope.live { self.running(name, request)? } else { self.find(name)? };
        if cpus.is_empty() {
            return Err(invalid(request, "Empty cpu list for pinning"));
        }
        if scope.config && domain.inactive.is_none() {
            return Err(invalid(request, "transient domains do not have any persistent config"));
        }
        if scope.live {
            domain.live_pins.insert(target, cpus.clone());
        }
        if scope.config {
            domain.config_pins.insert(target, cpus.clone());
        }
        Ok(())
    }
}

fn started(paused: bool) -> DomainState {
    if paused { DomainState::Paused } else { DomainState::Running }
}

fn completed(text: &str, uuid: &str) -> String {
    if text.contains("<uuid>") { text.to_owned() } else { xml::with_uuid(text, uuid) }
}
