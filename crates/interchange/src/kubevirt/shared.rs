//! Names of what manifests refer to. All manifests of an export may be applied to one namespace: each thing has a name of its own there.

use std::collections::BTreeMap;

use crate::names::Taken;

/// The longest DNS label.
const MOST: usize = 63;

/// Names given so far.
#[derive(Debug, Default)]
pub(super) struct Shared {
    claims: Taken,
    definitions: Taken,
    /// Names of NetworkAttachmentDefinitions, by kind and name of the network.
    networks: BTreeMap<(String, String), String>,
}

impl Shared {
    /// The PersistentVolumeClaim of a VM's disk, by their names.
    pub(super) fn claim(&mut self, vm: &str, disk: &str) -> String {
        // Room for the name of the disk, and for a number behind it.
        let vm: String = vm.chars().take(60 - disk.len().min(40)).collect();
        self.claims.free(format!("{vm}-{disk}"), MOST)
    }

    /// The NetworkAttachmentDefinition of a network of a kind: the same for whoever is on it, and for no other network. `label` is a DNS
    /// label near to its name.
    pub(super) fn network(&mut self, kind: &str, name: &str, label: String) -> String {
        let free = || self.definitions.free(label, MOST);
        self.networks.entry((kind.to_owned(), name.to_owned())).or_insert_with(free).clone()
    }
}
