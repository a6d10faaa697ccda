//! What running guests own already.

use nearmetal_host::{GuestProcess, Host, Thread, ThreadRole};
use nearmetal_units::{CpuSet, PageSize};
use serde::{Deserialize, Serialize};

use crate::request::{GuestRequest, WorkloadClass};

/// A helper thread that may run on more PUs than this moves aside by itself: it holds none of them.
const HELPER_LIMIT: usize = 2;

/// PUs and memory other guests own, and memory the guests of the plan give back when they restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Occupied {
    /// Guests with PUs of their own.
    pub owners: Vec<Owner>,
    /// Guests that run anywhere: they own no PU and may disturb any.
    pub floating: Vec<String>,
    /// Pages the guests of the plan hold now.
    pub returning: Vec<Returning>,
    /// Guests of the plan whose pages could not be read, with the reason: what they hold is missing in `returning`.
    #[serde(default)]
    pub unread: Vec<String>,
}

/// A guest with PUs of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Domain name, or `pid N`.
    pub guest: String,
    /// PUs of its vCPUs.
    pub vcpus: CpuSet,
    /// PUs its emulator, iothreads and vhost threads are pinned to.
    pub helpers: CpuSet,
}

/// Pages a guest of the plan holds on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returning {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// How many.
    pub pages: u64,
}

impl Occupied {
    /// From the QEMU processes of the host. Guests whose UUID is in `except` are being planned: what they hold is free.
    ///
    /// A PU is owned if a vCPU thread may run on it and not on the whole machine.
    pub fn from_guests<S: AsRef<str>>(host: &Host, except: &[S]) -> Self {
        Self::but_for(host, |uuid| except.iter().any(|other| other.as_ref() == uuid).then_some(true))
    }

    /// The same around guests that are to be placed. One of the class density gives back its PUs alone: no plan decides
    /// about its memory, so it starts again with the pages that its definition asks for.
    pub fn around(host: &Host, guests: &[GuestRequest]) -> Self {
        Self::but_for(host, |uuid| {
            let planned = guests.iter().find(|guest| guest.uuid == uuid)?;
            Some(planned.class != WorkloadClass::Density)
        })
    }

    /// `planned`: by the UUID of a guest that is being planned, whether its pages come back, too.
    fn but_for(host: &Host, planned: impl Fn(&str) -> Option<bool>) -> Self {
        let mut occupied = Self::default();
        let online = host.online();
        for guest in &host.guests {
            let name = guest.name.clone().unwrap_or_else(|| format!("pid {}", guest.pid));
            if let Some(pages_return) = guest.uuid.as_deref().and_then(&planned) {
                if pages_return {
                    occupied.returning.extend(held(guest));
                    occupied.unread.extend(guest.residency_error.as_ref().map(|error| format!("{name}: {error}")));
                }
                continue;
            }
            let vcpus = pinned(guest, &online, |thread| matches!(thread.role, ThreadRole::Vcpu(_)), usize::MAX);
            if vcpus.is_empty() {
                occupied.floating.push(name);
                continue;
            }
            let is_helper = |thread: &Thread| {
                matches!(thread.role, ThreadRole::Emulator | ThreadRole::Iothread(_) | ThreadRole::Vhost)
            };
            let helpers = pinned(guest, &online, is_helper, HELPER_LIMIT);
            occupied.owners.push(Owner { guest: name, vcpus, helpers });
        }
        occupied
    }

    /// The pools of a host as they are once the guests of the plan have given back what they hold: no rule is to find too few free
    /// pages because a guest that is planned again has them.
    pub fn give_back(&self, host: &mut Host) {
        for own in &self.returning {
            let node = host.nodes.iter_mut().find(|node| node.index == own.node);
            let pool = node.and_then(|node| node.pools.iter_mut().find(|pool| pool.size == own.size));
            if let Some(pool) = pool {
                pool.free = pool.free.saturating_add(own.pages).min(pool.total);
            }
        }
    }

    /// PUs of all vCPUs.
    pub fn vcpus(&self) -> CpuSet {
        self.owners.iter().fold(CpuSet::new(), |all, owner| all.union(&owner.vcpus))
    }

    /// PUs of all helper threads.
    pub fn helpers(&self) -> CpuSet {
        self.owners.iter().fold(CpuSet::new(), |all, owner| all.union(&owner.helpers))
    }

    /// Pages of one size the guests of the plan hold on a node.
    pub(crate) fn returning(&self, node: u32, size: PageSize) -> u64 {
        let here = self.returning.iter().filter(|held| held.node == node && held.size == size);
        here.fold(0, |sum, held| sum.saturating_add(held.pages))
    }
}

/// PUs the chosen threads are held to: by an affinity narrower than the machine, and of at most `limit` PUs.
fn pinned(guest: &GuestProcess, online: &CpuSet, chosen: impl Fn(&Thread) -> bool, limit: usize) -> CpuSet {
    let sets = guest.threads.iter().filter(|thread| chosen(thread)).filter_map(|thread| thread.affinity.as_ref());
    let narrow = sets.filter(|set| !online.is_subset(set) && set.len() <= limit);
    narrow.fold(CpuSet::new(), |all, set| all.union(&set.intersection(online)))
}

fn held(guest: &GuestProcess) -> impl Iterator<Item = Returning> + '_ {
    guest.residency.iter().flat_map(|mapping| {
        mapping.pages.iter().map(|(node, pages)| Returning { node: *node, size: mapping.page_size, pages: *pages })
    })
}
