//! From a plan to the changes it takes on this machine, and everything that is in their way.
//!
//! Nothing is written here. All problems are collected before any is reported: a user who has to mend three things
//! should not learn of them one at a time.

use std::collections::BTreeMap;

use nearmetal_domain::DomainXml;
use nearmetal_hypervisor::{Definition, DomainState};
use nearmetal_place::Placement;

use crate::boot_unit;
use crate::change::Change;
use crate::found::{look_at, same};
use crate::instance::Instance;
use crate::kernel::{available_bytes, persistent_pages};
use crate::machine::Machine;
use crate::pins::PinTarget;
use crate::plan_file::{DomainChange, PlanFile, parts};
use crate::shared::Seen;
use crate::verify::rules_broken;
use crate::{ApplyOptions, ChangeError, after_start, new_domain, passed_functions, qemu_hook};

/// The changes in the order in which they are made.
///
/// Pools grow first, while guests still run: a pool that cannot grow then costs no downtime. Definitions come before
/// shutdowns for the same reason. Pools that shrink, and pools that need the memory of the guests themselves, wait until
/// those are off.
pub(crate) fn expand(
    machine: &mut Machine<'_>,
    plan: &PlanFile,
    options: &ApplyOptions,
    state: &std::path::Path,
) -> Result<Vec<Change>, ChangeError> {
    plan.check_host(&machine.host)?;
    let mut problems = Vec::new();
    let pools = pool_changes(machine, plan, options, &mut problems)?;
    let mut definitions = Vec::new();
    let mut instances = Vec::new();
    let mut restarts = Vec::new();
    for domain in &plan.domains {
        let placement = plan.placement(&domain.name).ok_or_else(|| ChangeError::Compose {
            domain: domain.name.clone(),
            problem: "its placement is missing".to_owned(),
        })?;
        if domain.is_new() {
            if let Some(found) = new_domain::made_before(machine, state, domain)? {
                if found.instance.is_some() {
                    instances.extend(live_pins(machine, domain, placement, found.instance)?);
                    instances.extend(after_start_now(machine, domain, placement, found.instance)?);
                } else if options.start {
                    instances.push(Change::StartDomain { domain: domain.name.clone() });
                }
            } else if new_domain::may_be_made(machine, domain, &mut problems)? {
                check_devices(machine, &domain.name, &domain.xml_after, &mut problems);
                definitions.push(Change::NewDomain {
                    domain: domain.name.clone(),
                    uuid: domain.uuid.clone(),
                    xml: domain.xml_after.clone(),
                });
                if options.start {
                    instances.push(Change::StartDomain { domain: domain.name.clone() });
                }
            }
            continue;
        }
        let Some(found) = look_at(machine, &domain.name, Some(&domain.uuid), &mut problems)? else { continue };
        if !same(&found.xml, &domain.xml_before) && !same(&found.xml, &domain.xml_after) {
            let name = &domain.name;
            problems.push(format!("the definition of `{name}` changed after this was planned: plan again"));
        }
        if !same(&found.xml, &domain.xml_after) {
            definitions.push(Change::DefineDomain {
                domain: domain.name.clone(),
                uuid: domain.uuid.clone(),
                old_xml: found.xml.clone(),
                new_xml: domain.xml_after.clone(),
                instance: found.instance,
            });
        }
        check_devices(machine, &domain.name, &domain.xml_after, &mut problems);
        let waiting = match found.instance {
            // Who allows a restart of a guest that runs as planned wants one: some of what drifts is in no definition.
            // And a definition that is not the planned one yet was in force for nobody.
            Some(_) if options.restart || !same(&found.xml, &domain.xml_after) => {
                domain.needs_restart.iter().map(|part| part.what.clone()).collect()
            }
            Some(_) => waits_for_restart(machine, domain),
            None => Vec::new(),
        };
        if !waiting.is_empty() && !options.live_only {
            if !options.restart {
                let parts = waiting;
                restarts.push(format!("`{}` is running, and only a restart changes {}", domain.name, parts.join(", ")));
            } else if found.state != DomainState::Running {
                problems.push(format!(
                    "`{}` is {} and cannot shut down: resume it or stop it first",
                    domain.name, found.state
                ));
            }
            instances.push(Change::ShutdownDomain { domain: domain.name.clone(), instance: found.instance });
            instances.push(Change::StartDomain { domain: domain.name.clone() });
        } else if found.instance.is_some() {
            instances.extend(live_pins(machine, domain, placement, found.instance)?);
            instances.extend(after_start_now(machine, domain, placement, found.instance)?);
        } else if options.start {
            instances.push(Change::StartDomain { domain: domain.name.clone() });
        }
    }
    if plan.needs_hook() {
        let version = machine.hypervisor.versions()?.libvirt;
        problems.extend(qemu_hook::too_old(&version));
    }
    if !problems.is_empty() {
        return Err(ChangeError::Preconditions { problems });
    }
    if !restarts.is_empty() {
        let live_possible = plan.domains.iter().any(|domain| !domain.live_now.is_empty());
        return Err(ChangeError::RestartNeeded { reasons: restarts, live_possible });
    }
    // Shut all down before any starts: guests of one plan may trade places.
    let (starts, others): (Vec<_>, Vec<_>) =
        instances.into_iter().partition(|change| matches!(change, Change::StartDomain { .. }));
    let boot_unit = boot_unit_change(machine, !plan.plan.pools.is_empty(), state)?.into_iter().collect();
    let hook = hook_change(machine, plan.needs_hook(), state)?.into_iter().collect();
    Ok([pools.now, boot_unit, hook, definitions, others, pools.when_off, starts].concat())
}

/// What of a plan the guest that runs has not: all that needed a restart when it was planned, less what has come into force since.
pub(crate) fn waits_for_restart(machine: &mut Machine<'_>, domain: &DomainChange) -> Vec<String> {
    let planned = domain.needs_restart.iter().map(|part| part.what.clone()).collect();
    if domain.needs_restart.is_empty() {
        return planned;
    }
    let facts = |xml: &str| DomainXml::parse(xml).and_then(|xml| xml.facts()).ok();
    let live = machine.hypervisor.domain_xml(&domain.name, Definition::Live).ok();
    let (Some(live), Some(after)) = (live.and_then(|xml| facts(&xml)), facts(&domain.xml_after)) else {
        return planned;
    };
    let host = machine.kernel.inventory();
    let (parts, _) = parts(&live, &after, &host.online());
    let broken = rules_broken(domain, &host, &live);
    parts.into_iter().map(|part| part.what).chain(broken).collect()
}

#[derive(Default)]
struct PoolChanges {
    now: Vec<Change>,
    when_off: Vec<Change>,
}

fn pool_changes(
    machine: &Machine<'_>,
    plan: &PlanFile,
    options: &ApplyOptions,
    problems: &mut Vec<String>,
) -> Result<PoolChanges, ChangeError> {
    let mut changes = PoolChanges::default();
    // Pools of several sizes on one node share its memory.
    let mut growing: BTreeMap<u32, (u64, Vec<Change>)> = BTreeMap::new();
    for pool in &plan.plan.pools {
        let now = persistent_pages(machine.kernel, pool.node, pool.size)?;
        let change = Change::HugepagePool { node: pool.node, size: pool.size, old: now, new: pool.after };
        if now == pool.after {
            continue;
        }
        if now != pool.before {
            problems.push(format!(
                "the pool of {} pages on node {} has {now} pages, but had {} when this was planned: plan again",
                pool.size, pool.node, pool.before
            ));
        } else if pool.after > now {
            let (bytes, list) = growing.entry(pool.node).or_default();
            *bytes += (pool.after - now).saturating_mul(pool.size.bytes().get());
            list.push(change);
        } else {
            changes.when_off.push(change);
        }
    }
    for (node, (bytes, list)) in growing {
        let available = available_bytes(machine.kernel, node)?;
        if bytes <= available {
            changes.now.extend(list);
            continue;
        }
        let mut returning = 0;
        if options.restart && !options.live_only {
            for domain in plan.domains.iter().filter(|domain| !domain.needs_restart.is_empty()) {
                returning += machine.kernel.guest_memory(&domain.uuid, node)?;
            }
        }
        if bytes <= available + returning {
            changes.when_off.extend(list);
            continue;
        }
        problems.push(format!(
            "the pools of node {node} must grow by {} MiB; {} MiB of that node are free or can be freed, and \
             restarting guests return {} MiB: stop what uses its memory, or plan for fewer guests",
            bytes >> 20,
            available >> 20,
            returning >> 20
        ));
    }
    Ok(changes)
}

/// The devices the new definition needs.
pub(crate) fn check_devices(machine: &Machine<'_>, name: &str, xml: &str, problems: &mut Vec<String>) {
    let facts = match DomainXml::parse(xml).and_then(|xml| xml.facts()) {
        Ok(facts) => facts,
        Err(error) => {
            problems.push(format!("cannot read the planned definition of `{name}`: {error}"));
            return;
        }
    };
    let exists = |path: &str| (machine.surroundings.exists)(std::path::Path::new(path));
    if facts.kind == "kvm" && !exists("/dev/kvm") {
        problems.push(format!(
            "`{name}` is a KVM guest, and this machine has no /dev/kvm: enable virtualization in the firmware and load \
             kvm_amd or kvm_intel"
        ));
    }
    for disk in facts.disks.iter().filter(|disk| matches!(disk.kind.as_str(), "block" | "file")) {
        if let Some(source) = disk.source.as_deref().filter(|source| !exists(source)) {
            problems.push(format!("the disk {} of `{name}` is {source}, which does not exist", disk.target));
        }
    }
    if !facts.functions.is_empty() {
        let (host, routes) = (machine.kernel.inventory(), passed_functions::default_routes(machine.kernel));
        problems.extend(passed_functions::problems(&host, &routes, &facts));
    }
}

/// The pins of a running guest that differ from the plan.
fn live_pins(
    machine: &Machine<'_>,
    domain: &DomainChange,
    placement: &Placement,
    instance: Option<Instance>,
) -> Result<Vec<Change>, ChangeError> {
    let vcpus = placement.vcpus.iter().map(|pin| (PinTarget::Vcpu(pin.vcpu), &pin.cpus));
    let facts = DomainXml::parse(&domain.xml_after).and_then(|xml| xml.facts());
    let iothreads = placement.iothreads.iter().zip(1..).map(|(cpus, number)| (PinTarget::Iothread(number), cpus));
    // Those that the plan did not decide on have pins in its definition all the same.
    let others = facts.iter().flat_map(|facts| &facts.iothreads.pins);
    let others = others.filter(|(number, _)| *number as usize > placement.iothreads.len());
    let iothreads = iothreads.chain(others.map(|(number, cpus)| (PinTarget::Iothread(*number), cpus)));
    let mut changes = Vec::new();
    for (target, cpus) in vcpus.chain([(PinTarget::Emulator, &placement.emulator)]).chain(iothreads) {
        // A thread that is not there has nothing to pin: an iothread that only the next start brings.
        let Some(old) = machine.kernel.affinity(&domain.uuid, target)? else { continue };
        if old != *cpus {
            changes.push(Change::LivePin { domain: domain.name.clone(), target, old, new: cpus.clone(), instance });
        }
    }
    Ok(changes)
}

/// What libvirt's qemu hook sets after a start, for a guest that runs and is not started again.
fn after_start_now(
    machine: &Machine<'_>,
    domain: &DomainChange,
    placement: &Placement,
    instance: Option<Instance>,
) -> Result<Option<Change>, ChangeError> {
    let Some(pid) = machine.kernel.guest(&domain.uuid)?.filter(|_| placement.needs_hook()) else { return Ok(None) };
    let functions = after_start::functions(domain, placement);
    let (old, new) = after_start::differences(machine.kernel, pid, placement, &functions)?;
    let (name, uuid) = (domain.name.clone(), domain.uuid.clone());
    Ok((!new.is_empty()).then_some(Change::AfterStart { domain: name, uuid, instance, old, new }))
}

/// libvirt's qemu hook, where a plan needs it and it is not installed in this form.
fn hook_change(machine: &Machine<'_>, needed: bool, state: &std::path::Path) -> Result<Option<Change>, ChangeError> {
    if !needed {
        return Ok(None);
    }
    let new = qemu_hook::text(&machine.program, state);
    let old = qemu_hook::installed(&machine.hook_directory)?;
    let runs = qemu_hook::seen(&machine.hook_directory)? == Seen::InForce;
    Ok((!runs || old.as_deref() != Some(new.as_str())).then_some(Change::QemuHook { old, new }))
}

/// The boot unit, where it is needed since something is lost at a reboot, and is not installed in this form; refuses where it is masked.
pub(crate) fn boot_unit_change(
    machine: &Machine<'_>,
    needed: bool,
    state: &std::path::Path,
) -> Result<Option<Change>, ChangeError> {
    if !needed {
        return Ok(None);
    }
    boot_unit::refuse_masked(&machine.unit_directory)?;
    let new = boot_unit::unit_text(&machine.program, state);
    let old = boot_unit::installed(machine)?;
    let runs = boot_unit::seen(&machine.unit_directory)? == Seen::InForce;
    Ok((!runs || old.as_deref() != Some(new.as_str())).then_some(Change::BootUnit { old, new }))
}
