//! The slice in words, as found beside as placed: the same rows on a terminal and in a page.

use std::collections::BTreeMap;

use nearmetal_units::{CpuSet, PageSize};

use crate::view::{JobReport, SliceRole, SliceThread, SliceView};

/// One row.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(crate) struct SliceRow {
    /// What: `vCPUs`, `memory`, ….
    pub(crate) subject: String,
    /// As found.
    pub(crate) before: String,
    /// As placed.
    pub(crate) after: String,
}

/// All rows.
pub(crate) fn slice_rows(view: &JobReport) -> Vec<SliceRow> {
    let (before, after) = (&view.slice_before, &view.slice_after);
    let row = |subject: &str, say: &dyn Fn(&SliceView) -> String| SliceRow {
        subject: subject.to_owned(),
        before: say(before),
        after: say(after),
    };
    let mut rows = Vec::new();
    let roles = [
        (SliceRole::Vcpu, "vCPUs"),
        (SliceRole::Emulator, "emulator thread"),
        (SliceRole::Iothread, "iothreads"),
        (SliceRole::Vhost, "vhost workers"),
    ];
    for (role, name) in roles {
        if [before, after].iter().any(|slice| slice.threads.iter().any(|thread| thread.role == role)) {
            rows.push(row(name, &|slice| threads(slice, role)));
        }
    }
    rows.push(row("memory from", &|slice| match (slice.nodes.is_empty(), slice.strict) {
        (true, _) => "any node".to_owned(),
        (false, true) => format!("node {}, strictly", slice.nodes),
        (false, false) => format!("node {}", slice.nodes),
    }));
    rows.push(row("backed by", &|slice| match slice.page_size {
        Some(size) => format!("{size} pages"),
        None => "whatever the kernel gives".to_owned(),
    }));
    rows.push(row("pages", &pages));
    rows.push(row("devices", &|slice| {
        let device = |device: &crate::view::SliceDevice| {
            let node = device.node.map_or("node unknown".to_owned(), |node| format!("node {node}"));
            format!("{} as {} ({node})", device.name, device.purpose)
        };
        let devices: Vec<_> = slice.devices.iter().map(device).collect();
        if devices.is_empty() { "none".to_owned() } else { devices.join(", ") }
    }));
    rows
}

fn threads(slice: &SliceView, role: SliceRole) -> String {
    let threads: Vec<&SliceThread> = slice.threads.iter().filter(|thread| thread.role == role).collect();
    if threads.is_empty() {
        return "none".to_owned();
    }
    let floating: CpuSet =
        threads.iter().filter(|thread| thread.floating).flat_map(|thread| thread.cpus.iter()).collect();
    let mut parts = Vec::new();
    for thread in threads.iter().filter(|thread| !thread.floating) {
        match thread.number {
            Some(number) => parts.push(format!("{number} on PU {}", thread.cpus)),
            None => parts.push(format!("on PU {}", thread.cpus)),
        }
    }
    if threads.iter().any(|thread| thread.floating) {
        let over = if floating.is_empty() { "all PUs".to_owned() } else { format!("PUs {floating}") };
        parts.push(format!("floating over {over}"));
    }
    parts.join(", ")
}

fn pages(slice: &SliceView) -> String {
    let Some(pages) = &slice.pages else { return "unknown".to_owned() };
    let mut sizes: BTreeMap<PageSize, Vec<String>> = BTreeMap::new();
    for entry in pages.iter().filter(|entry| entry.pages > 0) {
        let amount = entry.size.bytes().times(entry.pages);
        sizes.entry(entry.size).or_default().push(format!("{amount} on node {}", entry.node));
    }
    if sizes.is_empty() {
        return "none yet".to_owned();
    }
    let part = |(size, parts): (&PageSize, &Vec<String>)| format!("{} ({size} pages)", parts.join(", "));
    sizes.iter().map(part).collect::<Vec<_>>().join("; ")
}
