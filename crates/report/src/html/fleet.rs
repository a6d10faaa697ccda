//! The page of a fleet's plan.

use minijinja::Value;
use serde_json::{Value as Json, json};

use super::{PageError, cleaned, environment, safe, style};
use crate::fleet::{HOSTS_DRAWN, OVERVIEW_ABOVE};
use crate::svg::{Surface, fleet_overview_svg, host_figure, left_out};
use crate::text::{clean, count, grouped};
use crate::view::fleet::{Alike, FleetView, alike_refused, reasons};

/// Rows of a table: a page of ten thousand is slow to open, and nobody reads them there.
const ROWS: usize = 500;
/// Refused VMs that each get a row of their own.
const REFUSED_ALONE: usize = 40;

/// The plan as one HTML page.
pub(crate) fn fleet_page(view: &FleetView, groups: &[Alike], title: &str, created: &str) -> Result<String, PageError> {
    let mut environment = environment();
    environment.add_template("fleet", include_str!("fleet.html"))?;
    environment.add_template("macros", include_str!("macros.html"))?;
    let shown = &groups[..groups.len().min(HOSTS_DRAWN)];
    let hosts: Vec<Value> = shown
        .iter()
        .enumerate()
        .map(|(number, group)| {
            let others = group.hosts.len() - 1;
            let alike = if others > 0 { format!(" and {} alike", count(others, "host")) } else { String::new() };
            let caption = clean(&format!("{}{alike}", group.sheet.name));
            minijinja::context! { caption, picture => safe(host_figure(group, number)) }
        })
        .collect();
    let overview = (view.hosts.len() > OVERVIEW_ABOVE).then(|| safe(fleet_overview_svg(view, Surface::Page)));
    let page = cleaned(page(view, title, created));
    let left_out = (groups.len() > shown.len()).then(|| left_out(groups, shown));
    let context = minijinja::context! {
        page => Value::from_serialize(&page), style => safe(style()), hosts, overview, left_out
    };
    Ok(environment.get_template("fleet")?.render(context)?)
}

/// Everything the template shows but pictures, as text.
fn page(view: &FleetView, title: &str, created: &str) -> Json {
    let totals = &view.totals;
    let rest = |all: usize| if all > ROWS { Json::from(grouped((all - ROWS) as f64)) } else { Json::Null };
    let placed: Vec<Json> = view
        .placed
        .iter()
        .take(ROWS)
        .map(|vm| {
            json!({
                "vm": vm.vm, "host": vm.host, "nodes": vm.nodes, "pus": vm.pus, "memory": vm.memory,
                "devices": vm.devices, "from": vm.from, "why": vm.reasons.join("; "), "second": vm.second,
            })
        })
        .collect();
    // A few are told one by one; of many only those that differ.
    let alike = match view.refused.len() > REFUSED_ALONE {
        true => alike_refused(&view.refused),
        false => view.refused.iter().map(|vm| (vm, 0)).collect(),
    };
    let refused: Vec<Json> = alike
        .iter()
        .take(ROWS)
        .map(|(vm, others)| {
            let remedy = vm.remedy.as_ref().map(|(host, change)| json!({"host": host, "change": change}));
            let others = if *others > 0 { Json::from(grouped(*others as f64)) } else { Json::Null };
            json!({"vm": vm.vm, "others": others, "asks": vm.asks, "reason": vm.reason, "remedy": remedy})
        })
        .collect();
    let counted: Vec<Json> = match view.refused.len() > REFUSED_ALONE {
        true => reasons(&view.refused)
            .into_iter()
            .map(|row| json!({"reason": row.reason, "vms": count(row.vms, "VM")}))
            .collect(),
        false => Vec::new(),
    };
    let pools: Vec<Json> = view
        .pools
        .iter()
        .take(ROWS)
        .map(|pool| {
            let pages = format!("{} more {} pages", grouped(pool.add as f64), pool.size);
            json!({"host": pool.host, "node": pool.node, "pages": pages})
        })
        .collect();
    let levels: Vec<Json> = view
        .levels
        .iter()
        .map(|level| {
            json!({
                "words": level.words, "value": level.value, "bound": level.bound, "verdict": level.verdict,
                "sign": if level.proven { "✓" } else { "?" }, "tone": if level.proven { "good" } else { "unsure" },
            })
        })
        .collect();
    // Many nodes are worth a row only where something is stranded.
    let whole = view.nodes.len() <= ROWS;
    let chosen: Vec<_> = if whole { view.nodes.iter().map(|node| (node, 0)).collect() } else { view.stranded() };
    let nodes: Vec<Json> = chosen
        .iter()
        .take(ROWS)
        .map(|(node, others)| {
            let others = if *others > 0 { format!(" and {} alike", count(*others, "node")) } else { String::new() };
            json!({
                "others": others, "host": node.host, "node": node.node, "pus": format!("{} of {}", node.free_pus, node.pus),
                "cores": node.free_cores, "l3": node.largest_l3, "pages": node.pages, "stranded": node.stranded,
                "memory": format!("{} of {}", node.free_memory, node.memory),
            })
        })
        .collect();
    let floating: Vec<Json> = view
        .floating
        .iter()
        .map(|row| {
            let names = row.vms.iter().take(ROWS).cloned().collect::<Vec<_>>().join(", ");
            json!({"reason": row.reason, "vms": names, "rest": rest(row.vms.len())})
        })
        .collect();
    let proven = view.levels.iter().filter(|level| level.proven).count();
    let all_placed = totals.placed == totals.vms;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "title": title,
        "created": created,
        "headline": view.headline,
        "status": [
            fact("VMs placed", &of(totals.placed, totals.vms), if all_placed { "good" } else { "bad" }),
            fact("vCPUs placed", &of(totals.vcpus_placed as usize, totals.vcpus as usize), ""),
            fact("hosts in use", &of(totals.hosts_used, totals.hosts), ""),
            fact("levels proven best", &of(proven, view.levels.len()), if proven == view.levels.len() { "good" } else { "unsure" }),
            fact("left", &format!("{}, {}", count(totals.free_pus as usize, "PU"), totals.free_memory), ""),
        ],
        "placed": placed, "placed_rest": rest(view.placed.len()),
        "refused": refused, "refused_rest": rest(alike.len()), "refused_counted": counted,
        "pools": pools, "pools_rest": rest(view.pools.len()),
        "levels": levels,
        "nodes": nodes, "nodes_rest": rest(chosen.len()), "nodes_whole": whole,
        "floating": floating,
        "search": view.search,
        "assumptions": view.assumptions.iter().take(ROWS).collect::<Vec<_>>(),
        "assumptions_rest": rest(view.assumptions.len()),
    })
}

fn of(part: usize, all: usize) -> String {
    format!("{} of {}", grouped(part as f64), grouped(all as f64))
}

fn fact(name: &str, value: &str, tone: &str) -> Json {
    json!({"name": name, "value": value, "tone": tone})
}
