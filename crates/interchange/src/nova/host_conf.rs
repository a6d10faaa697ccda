//! What goes into a host's `nova.conf`.

use std::fmt::Write;

use nearmetal_place::FunctionKind;
use nearmetal_units::CpuSet;
use serde_json::json;

use super::flavor::alias;
use crate::guests::Host;
use crate::names::one_line;

/// The text.
pub(super) fn conf(host: &Host<'_>) -> String {
    let none = CpuSet::new;
    let pinned = || host.guests.iter().filter(|guest| guest.is_one_to_one());
    let dedicated = pinned().fold(none(), |all, guest| all.union(&guest.vcpu_pus()));
    let shared = host.guests.iter().fold(none(), |all, guest| {
        let own = if guest.is_one_to_one() { none() } else { guest.vcpu_pus() };
        all.union(&guest.helper_pus()).union(&own)
    });
    // A PU is in one of both: Nova refuses to start else.
    let shared = shared.difference(&dedicated);
    let mut text = format!(
        "# nearmetal's plan of {}: merge it into its nova.conf, and restart nova-compute.\n",
        one_line(host.name)
    );
    text.push_str("[compute]\n");
    for (key, what, set) in [
        ("cpu_dedicated_set", "vCPUs with a PU of their own", &dedicated),
        ("cpu_shared_set", "emulator and other helper threads, and vCPUs that share", &shared),
    ] {
        if !set.is_empty() {
            let _ = writeln!(text, "# {what}\n{key} = {set}");
        }
    }
    let all = dedicated.union(&shared);
    if !all.is_empty() {
        let _ = writeln!(
            text,
            "# Nova before Train (20.0) has one list for both, under [DEFAULT]:\n# vcpu_pin_set = {all}"
        );
    }
    let mut devices = String::new();
    for guest in &host.guests {
        let own = guest.placement.devices.iter();
        let decided = own.filter(|device| !matches!(device.kind, FunctionKind::NetworkVirtual { .. }));
        for function in decided.map(|device| device.function).chain(guest.undecided_functions()) {
            let name = alias(function);
            let class = format!("CUSTOM_{}", name.replace('-', "_").to_ascii_uppercase());
            let address = function.to_string();
            let _ = writeln!(devices, "device_spec = {}", json!({ "address": address, "resource_class": class }));
            let _ = writeln!(devices, "alias = {}", json!({ "name": name, "resource_class": class }));
        }
    }
    if !devices.is_empty() {
        // An alias without ids is one that Placement knows (nova.pci.request, `_validate_required_ids`).
        text.push_str("\n# Each function by its address; the controllers' nova.conf needs the alias lines too, and\n");
        text.push_str(
            "# [filter_scheduler].\n[filter_scheduler]\npci_in_placement = true\n\n[pci]\nreport_in_placement = true\n",
        );
        text.push_str(&devices);
    }
    text
}
