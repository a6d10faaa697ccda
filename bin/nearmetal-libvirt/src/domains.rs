//! Finding and describing domains.

use nearmetal_hypervisor::{Definition, DomainState, DomainSummary, HypervisorError, Nvram, PauseReason};
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::Error;
use virt::sys;

use crate::failure::{Context, code};

pub(crate) fn find(connect: &Connect, name: &str, context: Context<'_>) -> Result<Domain, HypervisorError> {
    Domain::lookup_by_name(connect, name).map_err(|error| {
        if code(&error) != sys::VIR_ERR_NO_DOMAIN {
            return context.failed(&error);
        }
        // If the list cannot be had, that the name is unknown is still the better message.
        let mut existing: Vec<String> = connect
            .list_all_domains(0)
            .map(|domains| domains.iter().filter_map(|domain| domain.get_name().ok()).collect())
            .unwrap_or_default();
        existing.sort();
        HypervisorError::NoSuchDomain { name: name.to_owned(), existing }
    })
}

pub(crate) fn list(connect: &Connect) -> Result<Vec<DomainSummary>, Error> {
    let mut summaries = Vec::new();
    for domain in connect.list_all_domains(0)? {
        match summary(&domain) {
            Ok(summary) => summaries.push(summary),
            // It was there when the list was made.
            Err(error) if code(&error) == sys::VIR_ERR_NO_DOMAIN => {}
            Err(error) => return Err(error),
        }
    }
    summaries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(summaries)
}

pub(crate) fn state(domain: &Domain) -> Result<DomainState, Error> {
    Ok(state_and_pause(domain)?.0)
}

fn state_and_pause(domain: &Domain) -> Result<(DomainState, Option<PauseReason>), Error> {
    let (state, reason) = domain.get_state()?;
    let state = known_state(state);
    Ok((state, (state == DomainState::Paused).then(|| pause_reason(reason))))
}

fn pause_reason(reason: i32) -> PauseReason {
    match sys::virDomainPausedReason::try_from(reason) {
        Ok(sys::VIR_DOMAIN_PAUSED_USER) => PauseReason::User,
        Ok(sys::VIR_DOMAIN_PAUSED_MIGRATION) => PauseReason::Migration,
        Ok(sys::VIR_DOMAIN_PAUSED_SAVE) => PauseReason::Save,
        Ok(sys::VIR_DOMAIN_PAUSED_DUMP) => PauseReason::Dump,
        Ok(sys::VIR_DOMAIN_PAUSED_IOERROR) => PauseReason::IoError,
        Ok(sys::VIR_DOMAIN_PAUSED_WATCHDOG) => PauseReason::Watchdog,
        Ok(sys::VIR_DOMAIN_PAUSED_FROM_SNAPSHOT) => PauseReason::FromSnapshot,
        Ok(sys::VIR_DOMAIN_PAUSED_SHUTTING_DOWN) => PauseReason::ShuttingDown,
        Ok(sys::VIR_DOMAIN_PAUSED_SNAPSHOT) => PauseReason::Snapshot,
        Ok(sys::VIR_DOMAIN_PAUSED_CRASHED) => PauseReason::Crashed,
        Ok(sys::VIR_DOMAIN_PAUSED_STARTING_UP) => PauseReason::StartingUp,
        Ok(sys::VIR_DOMAIN_PAUSED_POSTCOPY) => PauseReason::Postcopy,
        Ok(sys::VIR_DOMAIN_PAUSED_POSTCOPY_FAILED) => PauseReason::PostcopyFailed,
        Ok(sys::VIR_DOMAIN_PAUSED_API_ERROR) => PauseReason::ApiError,
        _ => PauseReason::Unknown,
    }
}

fn known_state(state: sys::virDomainState) -> DomainState {
    match state {
        sys::VIR_DOMAIN_RUNNING => DomainState::Running,
        sys::VIR_DOMAIN_BLOCKED => DomainState::Blocked,
        sys::VIR_DOMAIN_PAUSED => DomainState::Paused,
        sys::VIR_DOMAIN_SHUTDOWN => DomainState::ShuttingDown,
        sys::VIR_DOMAIN_SHUTOFF => DomainState::ShutOff,
        sys::VIR_DOMAIN_CRASHED => DomainState::Crashed,
        sys::VIR_DOMAIN_PMSUSPENDED => DomainState::GuestSuspended,
        _ => DomainState::Unknown,
    }
}

pub(crate) fn summary(domain: &Domain) -> Result<DomainSummary, Error> {
    let (state, pause) = state_and_pause(domain)?;
    Ok(DomainSummary {
        name: domain.get_name()?,
        uuid: domain.get_uuid_string()?,
        state,
        pause,
        persistent: domain.is_persistent()?,
        // libvirt answers this for transient domains too, with false.
        autostart: domain.get_autostart()?,
        // A driver that cannot save has nothing saved.
        managed_save: domain.has_managed_save(0).unwrap_or(false),
        id: domain.get_id(),
    })
}

pub(crate) fn xml_flags(which: Definition, read_only: bool) -> sys::virDomainXMLFlags {
    match which {
        // Without the secrets, defining the text again would remove them. Never VIR_DOMAIN_XML_MIGRATABLE: it leaves
        // out what older libvirts do not know.
        Definition::Inactive if read_only => sys::VIR_DOMAIN_XML_INACTIVE,
        Definition::Inactive => sys::VIR_DOMAIN_XML_INACTIVE | sys::VIR_DOMAIN_XML_SECURE,
        Definition::Live => 0,
    }
}

pub(crate) fn start_flags(paused: bool) -> sys::virDomainCreateFlags {
    if paused { sys::VIR_DOMAIN_START_PAUSED } else { 0 }
}

pub(crate) fn undefine(domain: &Domain, nvram: Nvram) -> Result<(), Error> {
    let flags = match nvram {
        Nvram::Keep => sys::VIR_DOMAIN_UNDEFINE_KEEP_NVRAM,
        Nvram::Remove => sys::VIR_DOMAIN_UNDEFINE_NVRAM,
    };
    match domain.undefine_flags(flags) {
        // Drivers without NVRAM do not know the flag.
        Err(error) if code(&error) == sys::VIR_ERR_INVALID_ARG => domain.undefine(),
        result => result,
    }
}
