//! Deep C-states are capped as the class needs.

use nearmetal_host::{IdleState, IdleStates};
use nearmetal_place::WorkloadClass;
use nearmetal_units::CpuSet;

use crate::context::Context;
use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;

pub(crate) const RULE: Rule = Rule {
    id: "cstate-latency-capped",
    layer: Layer::HostCpu,
    title: "Deep C-states are capped as the class needs",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &[
        "/dev/cpu_dma_latency",
        "/sys/devices/system/cpu/cpu*/cpuidle/state*/{name,latency,disable} of one PU each package and one isolated PU",
        "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us of the same PUs",
    ],
    good: "latency class: no state beyond state 1 whose exit takes more than `idle_exit_us`; OVS-DPDK guide: C3 and C6 disabled",
    applies: "low-latency network/storage, DPDK",
    not_applies: "density/power-sensitive hosts",
    effect: "unquantified by sources read (Red Hat: exit from deep states causes large delays)",
    evidence: Evidence::B,
    sources: &["t-vh", "t-lp", "rh-netlat", "ovs-dpdk", "onload"],
    fix: Fix {
        live: Some("hold /dev/cpu_dma_latency open (tuned force_latency); or echo 1 > cpuidle/stateN/disable"),
        persistent: "tuned latency-performance; intel_idle.max_cstate=1",
        needs: &[Need::Live, Need::HostReboot],
        undo: "removes single-core turbo headroom, more power; undo release the fd / disable=0",
    },
    check: Check::Host(check),
};

fn check(context: &Context<'_>) -> Outcome {
    let Some(host) = context.host else { return Outcome::no_host() };

    if !context.has_class(WorkloadClass::Latency) {
        return Outcome::NotApplicable;
    }
    let most = context.settings.idle_exit_us;
    let system = &host.system;
    if system.idle_latency_limit.is_some_and(|limit| limit <= most) || system.idle_driver.as_deref() == Some("none") {
        return Outcome::Clean;
    }
    if system.idle_states.is_empty() {
        return Outcome::unknown("/sys/devices/system/cpu/cpu0/cpuidle");
    }
    // Isolated PUs are for such guests: the others may rest as they like.
    let isolated = system.isolated.clone().unwrap_or_default().intersection(&context.online);
    let is_alone = |states: &&IdleStates| isolated.contains(states.cpu);
    let judged: Vec<&IdleStates> = match system.idle_states.iter().filter(is_alone).collect::<Vec<_>>() {
        alone if alone.is_empty() => system.idle_states.iter().collect(),
        alone => alone,
    };
    let mut objects = Vec::new();
    for states in judged {
        let limits = [system.idle_latency_limit, states.latency_limit];
        let limit = limits.into_iter().flatten().min().unwrap_or(u64::MAX);
        let deep: Vec<&IdleState> = states.states.iter().filter(|state| is_deep(state, most, limit)).collect();
        let Some(deepest) = deep.iter().max_by_key(|state| state.latency) else { continue };
        // Whether a program holds /dev/cpu_dma_latency open decides.
        if system.idle_latency_limit.is_none() {
            return Outcome::unknown("/dev/cpu_dma_latency");
        }
        let name = deepest.name.as_deref().unwrap_or("?");
        let found = format!("idle state {name}, {} µs to leave it", deepest.latency.unwrap_or(0));
        let object = Object::new(format!("PU {}", states.cpu), found, format!("at most {most} µs"));
        objects.push(
            cures(&isolated, states, &deep, system.idle_driver.as_deref()).into_iter().fold(object, Object::cured_by),
        );
    }
    Outcome::of(objects)
}

/// States 0 and 1 are left at once, whatever their figures.
fn is_deep(state: &IdleState, most: u64, limit: u64) -> bool {
    let latency = state.latency.unwrap_or(0);
    state.number > 1 && state.disabled != Some(true) && latency > most && latency <= limit
}

/// Isolated PUs are switched one by one, at once; a whole machine by its kernel's command line.
fn cures(isolated: &CpuSet, states: &IdleStates, deep: &[&IdleState], driver: Option<&str>) -> Vec<Cure> {
    if isolated.contains(states.cpu) {
        let files = isolated.iter().flat_map(|cpu| {
            deep.iter().map(move |state| {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{}/disable", state.number);
                Cure::kernel_file(path, "1")
            })
        });
        return files.collect();
    }
    let name = match driver {
        Some("intel_idle") => "intel_idle.max_cstate",
        Some("acpi_idle") => "processor.max_cstate",
        _ => return Vec::new(),
    };
    vec![Cure::KernelArgument { name: name.to_owned(), value: Some("1".to_owned()) }]
}
