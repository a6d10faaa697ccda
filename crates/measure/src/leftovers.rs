//! What an experiment changes on the host, written down before it is changed, so that a killed one can be cleaned up.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nearmetal_change::devices::{Card, DriverState};
use nearmetal_change::{POOL_PATIENCE, resize_pool};
use nearmetal_cost::stop_counting;
use nearmetal_host::{Host, HostFs, files, guests};
use nearmetal_hypervisor::{DomainState, Hypervisor, HypervisorError};
use nearmetal_load::LoadError;
use nearmetal_units::PageSize;
use serde::{Deserialize, Serialize};

use crate::engine::failed;
use crate::error::MeasureError;
use crate::itself::{Taken, end_turn, run_again};
use crate::matrix::remove_volume_group;
use crate::mounts::unmount_counters;
use crate::net::NetBefore;
use crate::scratch;

/// The file in the state directory.
const RECORD: &str = "bench.json";

/// Changes to take back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Leftovers {
    /// Boot in which they were made: pools and clones of another boot are gone by themselves.
    pub boot_id: String,
    /// The process that measures, and when it started (ticks since boot): while it lives, these are no leftovers.
    #[serde(default)]
    pub owner: Option<(u32, u64)>,
    /// Pools and their persistent pages before.
    pub pools: Vec<PoolBefore>,
    /// THP mode before, if it was changed.
    pub transparent_hugepage: Option<String>,
    /// Clones.
    pub clones: Vec<String>,
    /// Domains that were running and were paused.
    pub paused: Vec<String>,
    /// Guests that are shut down and started for their turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<Taken>,
    /// Directories of files made to measure on; they outlive a reboot.
    #[serde(default)]
    pub directories: Vec<PathBuf>,
    /// The network as it was before arms of a network matrix were made.
    #[serde(default)]
    pub network: Option<NetBefore>,
    /// PCI functions that changed their driver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionBefore>,
    /// Volume groups made to measure on; they outlive a reboot.
    #[serde(default)]
    pub volume_groups: Vec<String>,
    /// Devices that were divided.
    #[serde(default)]
    pub scratch: Vec<String>,
    /// Schedulers of drives before they were changed: path of the setting, and the word in force.
    #[serde(default)]
    pub schedulers: Vec<(String, String)>,
    /// Where file systems of counters were mounted to measure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// Whether the kernel was told to count exits by reason.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_exits: bool,
    #[serde(skip)]
    path: PathBuf,
}

/// A pool before it was grown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolBefore {
    /// Node.
    pub node: u32,
    /// Page size.
    pub size: PageSize,
    /// Persistent pages before.
    pub pages: u64,
}

/// A function before host and guest took turns on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FunctionBefore {
    /// What it is.
    pub card: Card,
    /// What drove it.
    pub driver: DriverState,
}

/// Path of the THP setting.
pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

impl Leftovers {
    /// An empty record for this boot, at `STATE/bench.json`.
    pub(crate) fn new(state: &Path, host: &Host) -> Self {
        let boot_id = host.system.boot_id.clone().unwrap_or_default();
        Self { boot_id, path: state.join(RECORD), ..Self::default() }
    }

    /// What an interrupted experiment left, if any.
    ///
    /// # Errors
    /// The record cannot be read, or its experiment is still running.
    pub(crate) fn load(state: &Path, fs: &HostFs) -> Result<Option<Self>, MeasureError> {
        let path = state.join(RECORD);
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_to_string(&path)?;
        let mut record: Self = serde_json::from_str(&text).map_err(|error| LoadError::Unreadable {
            what: format!("`{}`", path.display()),
            why: error.to_string(),
            text: text.chars().take(200).collect(),
        })?;
        record.path = path;
        match record.owner {
            Some((pid, start)) if guests::is_alive(fs, pid, start) => Err(MeasureError::Unfit(format!(
                "process {pid} measures right now, and there is room for one: wait for it, or end it"
            ))),
            _ => Ok(Some(record)),
        }
    }

    /// Writes the record; called before each change it announces.
    pub(crate) fn save(&self) -> Result<(), MeasureError> {
        if let Some(parent) = self.path.parent() {
            files::create_dir_all(parent)?;
        }
        files::write_atomic(&self.path, serde_json::to_string_pretty(self).unwrap_or_default())?;
        Ok(())
    }

    /// Ends clones, restores pools, THP and schedulers, removes what was made or mounted to measure, wipes what was divided,
    /// resumes what was paused, removes the record. Safe to repeat.
    ///
    /// # Errors
    /// The first of all that could not be taken back. Everything else was; the record stays for the next try.
    pub(crate) fn clean_up(self, fs: &HostFs, hypervisor: &mut dyn Hypervisor) -> Result<(), MeasureError> {
        let same_boot = nearmetal_change::boot_id(fs).is_ok_and(|id| id == self.boot_id.trim());
        let mut tried = Vec::new();
        // A turn that libvirt saved with its host goes on in the next boot.
        let mut ended = Vec::new();
        for taken in &self.taken {
            let end = end_turn(hypervisor, taken, same_boot);
            // In another boot those that are off are the boot's business.
            ended.extend(end.as_ref().is_ok_and(|was_in_a_turn| same_boot || *was_in_a_turn).then_some(taken));
            tried.push(end.map(drop));
        }
        if same_boot {
            self.undo_in_this_boot(fs, hypervisor, &mut tried);
        }
        // With the pools as before; and whatever became of these: somebody waits for them.
        tried.extend(ended.iter().map(|taken| run_again(hypervisor, taken)));
        tried.extend(self.volume_groups.iter().map(|group| remove_volume_group(group)));
        // The clones held the regions open, so they come last.
        tried.extend(self.scratch.iter().map(|device| scratch::wipe(device)));
        let directories = self.directories.iter().filter(|directory| directory.exists());
        tried.extend(directories.map(|directory| Ok(files::remove_dir_all(directory)?)));
        tried.into_iter().collect::<Result<(), _>>()?;
        Ok(files::remove(&self.path)?)
    }

    /// What is gone by itself with the boot. What came of each is told in `tried`.
    fn undo_in_this_boot(
        &self,
        fs: &HostFs,
        hypervisor: &mut dyn Hypervisor,
        tried: &mut Vec<Result<(), MeasureError>>,
    ) {
        tried.extend(self.clones.iter().map(|clone| end_clone(hypervisor, clone)));
        tried.extend(self.network.iter().map(|network| network.restore(fs)));
        // A clone that was just ended may have had it, so this comes after the clones.
        let hand_back = |function: &FunctionBefore| {
            Ok(nearmetal_change::devices::hand_to(fs, &function.card, &function.driver).map(drop)?)
        };
        tried.extend(self.functions.iter().map(hand_back));
        let shrink =
            |pool: &PoolBefore| Ok(resize_pool(fs, pool.node, pool.size, pool.pages, POOL_PATIENCE).map(drop)?);
        tried.extend(self.pools.iter().map(shrink));
        tried.extend(self.transparent_hugepage.iter().map(|mode| write(fs, THP, mode)));
        tried.extend(self.schedulers.iter().map(|(setting, scheduler)| write(fs, setting, scheduler)));
        if self.counts_exits {
            tried.push(stop_counting(fs).map_err(MeasureError::from));
        }
        tried.push(unmount_counters(fs, &self.mounts));
        // Last, so that they do not run beside clones or without their functions; and whatever became of these: somebody waits
        // for them.
        tried.extend(self.paused.iter().map(|domain| resume(hypervisor, domain)));
    }
}

/// Ends a clone, if it is there: it is nearmetal's own, without state worth keeping.
pub(crate) fn end_clone(hypervisor: &mut dyn Hypervisor, clone: &str) -> Result<(), MeasureError> {
    match hypervisor.destroy(clone) {
        Ok(()) | Err(HypervisorError::NoSuchDomain { .. }) => Ok(()),
        // libvirt itself ends what a process made that is gone, maybe between our look and our word.
        Err(_) if matches!(hypervisor.domain(clone), Err(HypervisorError::NoSuchDomain { .. })) => Ok(()),
        Err(error) => Err(failed(clone)(error)),
    }
}

/// Resumes a domain that was paused, if it is still there and nobody else has done so: one that is just being started looks paused, and
/// what a killed process had asked for may still come.
pub(crate) fn resume(hypervisor: &mut dyn Hypervisor, domain: &str) -> Result<(), MeasureError> {
    let mut is_paused = || match hypervisor.domain(domain) {
        Ok(summary) => Ok(summary.state == DomainState::Paused),
        Err(HypervisorError::NoSuchDomain { .. }) => Ok(false),
        Err(error) => Err(failed(domain)(error)),
    };
    if !is_paused()? {
        return Ok(());
    }
    match hypervisor.resume(domain) {
        Ok(()) => Ok(()),
        Err(error) => match hypervisor.domain(domain) {
            Ok(summary) if summary.state != DomainState::Paused => Ok(()),
            _ => Err(failed(domain)(error)),
        },
    }
}

/// When an interrupted experiment last borrowed something, by the clock of the wall; `None`: nothing is left of any.
pub fn leftovers_since(state: &Path) -> Option<SystemTime> {
    state.join(RECORD).metadata().ok()?.modified().ok()
}

/// Takes back what an interrupted experiment left, if there is anything; says whether there was. Tells beforehand which guests are
/// shut down for it.
///
/// # Errors
/// The record cannot be read, or something cannot be taken back: it is then kept for the next try.
pub fn take_back_leftovers(
    state: &Path,
    fs: &HostFs,
    hypervisor: impl FnOnce() -> Result<Box<dyn Hypervisor>, HypervisorError>,
    tell: &mut dyn FnMut(&str),
) -> Result<bool, MeasureError> {
    let Some(old) = Leftovers::load(state, fs)? else { return Ok(false) };
    for taken in &old.taken {
        tell(&format!(
            "`{}` was taken by a measurement that was killed: if it runs as one of its arms, it is shut down, which takes minutes if \
             need be, and {}",
            taken.guest,
            if taken.ran.is_some() { "started as it was" } else { "left off, as it was" }
        ));
    }
    let mut hypervisor = hypervisor().map_err(|source| MeasureError::Hypervisor { arm: "all".to_owned(), source })?;
    old.clean_up(fs, hypervisor.as_mut()).map(|()| true)
}

/// Writes a kernel setting.
pub(crate) fn write(fs: &HostFs, path: &str, value: &str) -> Result<(), MeasureError> {
    fs.write(path, value)
        .map_err(|source| MeasureError::KernelWrite { what: format!("cannot set `{path}` to `{value}`"), source })
}

#[cfg(test)]
mod tests {
    use nearmetal_host::{Entry, MemoryTree};
    use nearmetal_hypervisor::Fake;

    use super::*;

    const BOOT: &str = "00000000-0000-4000-8000-000000000000";

    #[test]
    fn a_pool_that_stays_as_it_is_keeps_no_guest_paused() {
        let mut tree = MemoryTree::new();
        tree.put("/proc/sys/kernel/random/boot_id", Entry::File(BOOT.as_bytes().to_vec())).unwrap();
        let fs = HostFs::of_tree(tree, "a machine without pools");
        let domain = |name: &str| format!("<domain type='kvm'><name>{name}</name></domain>");
        let mut libvirt = Fake::new("<capabilities/>").with_running_domain(&domain("web1"));
        libvirt.suspend("web1").unwrap();
        let state = tempfile::tempdir().unwrap();
        let record = Leftovers {
            boot_id: BOOT.to_owned(),
            pools: vec![PoolBefore { node: 0, size: PageSize::HUGE_2M, pages: 5 }],
            // One was undefined meanwhile.
            paused: vec!["gone".to_owned(), "web1".to_owned()],
            path: state.path().join("bench.json"),
            ..Leftovers::default()
        };
        record.save().unwrap();
        assert!(matches!(record.clone().clean_up(&fs, &mut libvirt), Err(MeasureError::Change(_))));
        assert_eq!(libvirt.domain("web1").unwrap().state, DomainState::Running);
        assert!(record.path.exists(), "for the next try");
        let without = Leftovers { pools: Vec::new(), ..record.clone() };
        without.clean_up(&fs, &mut libvirt).unwrap();
        assert!(!record.path.exists());
    }
}
