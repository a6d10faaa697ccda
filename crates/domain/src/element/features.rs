//! `<features>`: what the hypervisor tells the guest about itself.

use std::collections::BTreeMap;

use roxmltree::Document;
use serde::{Deserialize, Serialize};

use crate::edit::is_plain;
use crate::tree;

/// Hyper-V and KVM features as written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeatureFacts {
    /// `<hyperv>`; `None` without it.
    pub hyperv: Option<HypervFacts>,
    /// Children of `<kvm>` (`hidden`, `hint-dedicated`, …) with their state, `on` or `off`.
    pub kvm: BTreeMap<String, String>,
    /// `on` or `off` of `<pmu>`: the virtual performance counters; `None` where QEMU decides.
    #[serde(default)]
    pub pmu: Option<String>,
}

/// Hyper-V enlightenments.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HypervFacts {
    /// `custom` or `passthrough`; `None` where it is not written, which is `custom`.
    pub mode: Option<String>,
    /// Enlightenments by name with their state, `on` or `off`.
    pub states: BTreeMap<String, String>,
}

impl HypervFacts {
    /// Whether the guest gets this enlightenment.
    pub fn has(&self, name: &str) -> bool {
        self.mode.as_deref() == Some("passthrough") || self.states.get(name).is_some_and(|state| state == "on")
    }
}

impl FeatureFacts {
    /// The state of a child of `<kvm>`.
    pub fn kvm_state(&self, name: &str) -> Option<&str> {
        self.kvm.get(name).map(String::as_str)
    }
}

pub(crate) fn read(document: &Document<'_>) -> FeatureFacts {
    let states = |path: &[&str]| -> Option<BTreeMap<String, String>> {
        let parent = tree::find(document, path)?;
        let children = parent.children().filter(|node| is_plain(*node));
        Some(
            children
                .filter_map(|node| Some((node.tag_name().name().to_owned(), tree::attribute(node, "state")?)))
                .collect(),
        )
    };
    let hyperv = tree::find(document, &["features", "hyperv"]).map(|node| HypervFacts {
        mode: tree::attribute(node, "mode"),
        states: states(&["features", "hyperv"]).unwrap_or_default(),
    });
    let pmu = tree::find(document, &["features", "pmu"]);
    FeatureFacts {
        hyperv,
        kvm: states(&["features", "kvm"]).unwrap_or_default(),
        // libvirt reads `<pmu/>` as on.
        pmu: pmu.map(|pmu| tree::attribute(pmu, "state").unwrap_or_else(|| "on".to_owned())),
    }
}
