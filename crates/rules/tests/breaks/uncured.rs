//! Rules none of whose findings a program cures, and why. A new rule has cures, or a line here. Rules of severity
//! `decide` never have any and are not listed.

const PLANNER: &str = "where vCPUs and memory go together is the planner's to say: `nearmetal plan`";
const GUEST: &str = "the guest needs a driver or a setting of its own first";
const HANDS: &str = "it takes firmware, a slot, or a cable";
const NETWORK: &str = "which network a guest belongs to is not in the definition";

/// Rule and reason.
pub(crate) const UNCURED: &[(&str, &str)] = &[
    ("cpu-topology-honest", PLANNER),
    ("disk-bus-virtio", GUEST),
    ("net-model-virtio", GUEST),
    ("net-not-user-mode", NETWORK),
    ("pcie-link-full", HANDS),
];
