//! The ledger as tables.

use std::collections::BTreeMap;

use nearmetal_units::CpuSet;

use super::conflicts::role_name;
use super::{Claim, Ledger};
use crate::ThreadRole;
use crate::text::{Table, shown};

/// Threads, memory, devices and conflicts; one sentence where nobody owns anything. Pure.
pub fn render(ledger: &Ledger) -> String {
    let sections =
        [claims(ledger), memory(ledger), devices(ledger), lines("CONFLICTS", conflicts(ledger)), unknown(ledger)];
    let mut text = sections.into_iter().filter(|section| !section.is_empty()).collect::<Vec<_>>().join("\n");
    if ledger.claims.is_empty() && ledger.floating.is_empty() {
        text = format!("no guest runs\n{text}");
    }
    text.push_str(&format!("PUs without a bound vCPU: {}\n", or_none(&ledger.free)));
    text
}

fn or_none(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

/// One row for each guest and kind of thread; vCPUs one by one in the list of PUs, in their order.
fn claims(ledger: &Ledger) -> String {
    let mut table = Table::new("WHO MAY RUN WHERE", &["guest", "threads", "bound to PUs"]);
    let mut rows: BTreeMap<(String, u32, String), Vec<&Claim>> = BTreeMap::new();
    for claim in &ledger.claims {
        let (order, kind) = match &claim.role {
            ThreadRole::Vcpu(_) => (0, "vCPUs".to_owned()),
            other => (1, role_name(other)),
        };
        rows.entry((claim.owner.name.clone(), order, kind)).or_default().push(claim);
    }
    for ((guest, _, kind), mut claims) in rows {
        claims.sort_by_key(|claim| (claim.role.clone(), claim.thread));
        let count = if claims.len() > 1 { format!("{} {kind}", claims.len()) } else { kind };
        let mut cpus: Vec<String> = claims.iter().map(|claim| claim.cpus.to_string()).collect();
        cpus.dedup();
        table.row(vec![guest, count, cpus.join(" ")]);
    }
    for (owner, count) in &ledger.floating {
        table.row(vec![owner.name.clone(), format!("{count} threads"), "any".to_owned()]);
    }
    table.render()
}

fn memory(ledger: &Ledger) -> String {
    let mut table = Table::new("WHOSE MEMORY IS WHERE", &["guest", ">node", ">memory"]);
    for use_of in &ledger.memory {
        table.row(vec![use_of.owner.name.clone(), use_of.node.to_string(), use_of.memory.to_string()]);
    }
    table.render()
}

fn devices(ledger: &Ledger) -> String {
    let mut table = Table::new("WHO HOLDS WHICH DEVICE", &["device", ">node", "held by", "guest"]);
    for device in &ledger.devices {
        let owner = device.owner.as_ref().map(|owner| owner.name.clone());
        table.row(vec![device.name.clone(), shown(device.node), device.by.clone(), shown(owner)]);
    }
    table.render()
}

fn conflicts(ledger: &Ledger) -> Vec<String> {
    ledger.conflicts.iter().map(ToString::to_string).collect()
}

fn unknown(ledger: &Ledger) -> String {
    lines("NOT KNOWN TO THIS USER", ledger.unknown.clone())
}

fn lines(title: &str, lines: Vec<String>) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines: Vec<String> = lines.into_iter().map(|line| format!("  {}\n", crate::text::printable(line))).collect();
    format!("{title}\n{}", lines.concat())
}
