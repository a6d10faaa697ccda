//! Filling a [`Host`] from [`HostFs`]: one module for each kind of thing.

mod block;
mod caches;
mod groups;
mod network;
mod nodes;
mod pci;
mod processors;
mod system;

pub use block::{DiskCounters, disk_counters};

use crate::facts::Facts;
use crate::{Host, HostFs, guests};

impl Host {
    /// Reads a whole host. Never fails: what cannot be understood is in [`Host::unreadable`], what this user may not
    /// read in [`Host::denied`], and what is not there is `None`.
    pub fn read(fs: &HostFs) -> Self {
        let mut facts = Facts::new(fs);
        let system = system::read(&mut facts);
        let listing = processors::list(&mut facts);
        let nodes = nodes::read(&mut facts, &listing.online);
        let mut processors = processors::read(&mut facts, &listing, &nodes);
        let cores = processors::cores(&processors);
        let caches = caches::read(&mut facts, &mut processors, &listing.online);
        let groups = groups::read(&mut facts, &processors, &listing.online);
        let pci_devices = pci::read(&mut facts, &nodes);
        let block_devices = block::read(&mut facts, &pci_devices);
        let network_interfaces = network::read(&mut facts, &pci_devices);
        let guests = guests::read_all(&mut facts);
        facts.denied.sort_unstable();
        facts.denied.dedup();
        Self {
            source: fs.describe().to_owned(),
            system,
            processors,
            cores,
            packages: groups.packages,
            dies: groups.dies,
            clusters: groups.clusters,
            books: groups.books,
            drawers: groups.drawers,
            caches,
            nodes,
            pci_devices,
            block_devices,
            network_interfaces,
            guests,
            unreadable: facts.unreadable,
            denied: facts.denied,
        }
    }
}
