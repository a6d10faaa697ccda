//! Where the planner's answer and the domains' definitions meet: each definition is edited to say what its placement
//! says, and the difference is sorted into what can be done at once and what waits for a start.

use nearmetal_domain::{DomainXml, GuestSystem, NewDomain};
use nearmetal_host::Host;
use nearmetal_place::{Placement, Plan, WorkloadClass};
use nearmetal_units::Bytes;

use super::edit::{edit, functions};
use super::parts::parts;
use super::{DomainChange, HostIdentity, PLAN_SCHEMA, PlanFile};
use crate::{ChangeError, timestamp};

/// A domain as found.
#[derive(Debug, Clone)]
pub struct DomainInput {
    /// Its name.
    pub name: String,
    /// Its stored definition.
    pub inactive_xml: String,
    /// The definition in force, if it runs.
    pub live_xml: Option<String>,
}

/// What a guest that is placed starts from.
#[derive(Debug, Clone)]
pub enum Starting {
    /// A domain that exists, and the vCPUs and memory it shall have.
    Existing(DomainInput, u32, Bytes),
    /// One that does not exist yet, from plain data.
    New(Box<NewDomain>),
    /// One that does not exist yet, from a definition with name, UUID and size in it already.
    Template(DomainXml),
}

/// Turns a placement of each domain into new definitions. Domains the planner blocked are left out: the plan says why.
pub fn compose(host: &Host, plan: &Plan, domains: &[DomainInput]) -> Result<PlanFile, ChangeError> {
    compose_with_new(host, plan, domains, &[])
}

/// The same where some of the guests placed do not exist yet. Functions a placement gives to a new domain replace those it
/// names itself.
///
/// # Errors
/// A guest placed that is in neither list or in both, a definition that cannot be read, a placement that contradicts it.
pub fn compose_with_new(
    host: &Host,
    plan: &Plan,
    domains: &[DomainInput],
    new: &[NewDomain],
) -> Result<PlanFile, ChangeError> {
    let changes = plan.placements.iter().map(|placement| {
        if let Some(new) = new.iter().find(|new| new.name == placement.guest) {
            if domains.iter().any(|domain| domain.name == placement.guest) {
                let problem = "it is given both as an existing domain and as a new one".to_owned();
                return Err(ChangeError::Compose { domain: placement.guest.clone(), problem });
            }
            return new_domain(placement, new);
        }
        let domain = domains.iter().find(|domain| domain.name == placement.guest).ok_or_else(|| {
            let problem = "the planner placed it, but its definition was not given".to_owned();
            ChangeError::Compose { domain: placement.guest.clone(), problem }
        })?;
        domain_change(host, placement, domain)
    });
    Ok(PlanFile {
        schema: PLAN_SCHEMA.to_owned(),
        created: timestamp::now(),
        nearmetal: env!("CARGO_PKG_VERSION").to_owned(),
        host: HostIdentity::of(host),
        domains: changes.collect::<Result<_, _>>()?,
        plan: plan.clone(),
        left: Vec::new(),
    })
}

/// The same with a beginning for each placement, in its order.
///
/// # Errors
/// As many beginnings as placements are missing, a definition that cannot be read, a placement that contradicts it.
pub fn compose_from(host: &Host, plan: &Plan, starting: &[Starting]) -> Result<PlanFile, ChangeError> {
    let mut domains = Vec::new();
    for (placement, start) in plan.placements.iter().zip(starting) {
        domains.push(match start {
            Starting::Existing(domain, vcpus, memory) => resized(host, placement, domain, Some((*vcpus, *memory)))?,
            Starting::New(new) => new_domain(placement, new)?,
            Starting::Template(xml) => from_template(placement, xml)?,
        });
    }
    let schema = PLAN_SCHEMA.to_owned();
    let (created, nearmetal) = (timestamp::now(), env!("CARGO_PKG_VERSION").to_owned());
    let file = PlanFile {
        schema,
        created,
        nearmetal,
        host: HostIdentity::of(host),
        domains,
        plan: plan.clone(),
        left: Vec::new(),
    };
    let problem = |problem| ChangeError::Compose { domain: file.host.hostname.clone(), problem };
    file.check().map_err(problem)?;
    Ok(file)
}

fn domain_change(host: &Host, placement: &Placement, domain: &DomainInput) -> Result<DomainChange, ChangeError> {
    resized(host, placement, domain, None)
}

fn from_template(placement: &Placement, template: &DomainXml) -> Result<DomainChange, ChangeError> {
    let mut xml = template.clone();
    edit(&mut xml, placement)
        .map_err(|error| ChangeError::Compose { domain: placement.guest.clone(), problem: error.to_string() })?;
    Ok(DomainChange {
        name: placement.guest.clone(),
        uuid: placement.uuid.clone(),
        xml_before: String::new(),
        xml_after: xml.to_string(),
        needs_restart: Vec::new(),
        live_now: Vec::new(),
        ..DomainChange::default()
    })
}

fn resized(
    host: &Host,
    placement: &Placement,
    domain: &DomainInput,
    size: Option<(u32, Bytes)>,
) -> Result<DomainChange, ChangeError> {
    let failed = |problem: String| ChangeError::Compose { domain: domain.name.clone(), problem };
    let parse = |text: &str| DomainXml::parse(text).map_err(|error| failed(error.to_string()));
    let mut xml = parse(&domain.inactive_xml)?;
    let found = xml.facts().map_err(|error| failed(error.to_string()))?;
    // vCPUs that wait to be plugged in are the owner's business while the number is the same.
    if let Some((vcpus, memory)) = size.filter(|size| *size != (found.vcpus.maximum, found.memory)) {
        xml.set_size(vcpus, memory).map_err(|error| failed(error.to_string()))?;
    }
    edit(&mut xml, placement).map_err(|error| failed(error.to_string()))?;
    let facts = |xml: &DomainXml| xml.facts().map_err(|error| failed(error.to_string()));
    // What a running guest does is in its live definition: the stored one may have been edited since it started.
    let now = facts(&parse(domain.live_xml.as_deref().unwrap_or(&domain.inactive_xml))?)?;
    let after = facts(&xml)?;
    let (needs_restart, live_now) = parts(&now, &after, &host.online());
    Ok(DomainChange {
        name: domain.name.clone(),
        uuid: placement.uuid.clone(),
        xml_before: domain.inactive_xml.clone(),
        xml_after: xml.to_string(),
        needs_restart,
        live_now,
        ..DomainChange::default()
    })
}

fn new_domain(placement: &Placement, new: &NewDomain) -> Result<DomainChange, ChangeError> {
    let failed = |problem: String| ChangeError::Compose { domain: new.name.clone(), problem };
    if !new.uuid.eq_ignore_ascii_case(&placement.uuid) {
        return Err(failed(format!("its UUID is {}, but the placement has {}", new.uuid, placement.uuid)));
    }
    let mut new = new.clone();
    if !placement.devices.is_empty() {
        // Before the text is made: such a guest is not migrated, and its definition says so. It has no cells yet.
        new.functions = functions(placement);
        new.functions.iter_mut().for_each(|function| function.cell = None);
    }
    let mut xml = new.to_xml().map_err(|error| failed(error.to_string()))?;
    edit(&mut xml, placement).map_err(|error| failed(error.to_string()))?;
    Ok(DomainChange {
        name: new.name,
        uuid: placement.uuid.clone(),
        xml_before: String::new(),
        xml_after: xml.to_string(),
        needs_restart: Vec::new(),
        live_now: Vec::new(),
        ..DomainChange::default()
    })
}

/// Gives a new domain what the rules ask of every definition of a class. `one_to_one`: whether each vCPU has a PU of its
/// own.
pub fn shaped_by_class(new: NewDomain, class: WorkloadClass, one_to_one: bool) -> NewDomain {
    let density = class == WorkloadClass::Density;
    let latency = class == WorkloadClass::Latency;
    NewDomain {
        class: Some(class.word().to_owned()),
        system: if class == WorkloadClass::Windows { GuestSystem::Windows } else { new.system },
        share_pages: density,
        free_page_reporting: density,
        hint_dedicated: latency && one_to_one,
        invariant_tsc: latency,
        ..new
    }
}
