//! The list for people, by node.

use std::collections::BTreeMap;

use super::Assignable;
use crate::text::{Table, or_dash, shown};

/// One table a node, and under it the reason of each function that cannot be given away.
pub fn render(found: &[Assignable]) -> String {
    if found.is_empty() {
        return "no PCI function that guests are given (storage, network, display, accelerators) is there\n".to_owned();
    }
    let mut nodes: BTreeMap<(bool, Option<u32>), Vec<&Assignable>> = BTreeMap::new();
    for one in found {
        nodes.entry((one.node.is_none(), one.node)).or_default().push(one);
    }
    let parts: Vec<String> = nodes.iter().map(|((_, node), all)| of_node(*node, all)).collect();
    parts.join("\n")
}

fn of_node(node: Option<u32>, all: &[&Assignable]) -> String {
    let title = match node {
        Some(node) => format!("NODE {node}"),
        None => "NODE UNKNOWN (the firmware gives no affinity)".to_owned(),
    };
    let columns = ["function", "kind", "name", "driver", ">IOMMU group", "DMA", "VFs", "resets", "link", "give away"];
    let mut table = Table::new(&title, &columns);
    for one in all {
        let mut name = one.function.to_string();
        if let Some((_, number)) = one.virtual_of {
            name = format!("  VF {number} {name}");
        }
        let group = match one.group_members.len() {
            0 => or_dash(one.group),
            others => format!("{} (+{others})", or_dash(one.group)),
        };
        let vfs = one.virtual_functions.map(|own| match own.used {
            0 => format!("{} of {}", own.made, own.total),
            used => format!("{} of {}, {used} used", own.made, own.total),
        });
        let resets = match one.resets.as_deref() {
            Some([]) => "none".to_owned(),
            Some(ways) => ways.join(" "),
            None => "?".to_owned(),
        };
        table.row(vec![
            name,
            one.kind.clone(),
            if one.names.is_empty() { "-".to_owned() } else { one.names.join(" ") },
            or_dash(one.driver.as_ref()),
            group,
            if one.group.is_none() { "-".to_owned() } else { shown(one.dma_domain.as_ref()) },
            or_dash(vfs),
            resets,
            or_dash(one.link.as_ref().map(crate::text::link)),
            verdict(one),
        ]);
    }
    let mut text = table.render();
    for one in all {
        for obstacle in &one.obstacles {
            text.push_str(&format!("{}: {obstacle}\n", one.function));
        }
    }
    text
}

fn verdict(one: &Assignable) -> String {
    match (&one.guest, one.obstacles.is_empty()) {
        (Some(owner), _) => format!("has it: {}", owner.name),
        (None, true) => "yes".to_owned(),
        (None, false) => "no".to_owned(),
    }
}
