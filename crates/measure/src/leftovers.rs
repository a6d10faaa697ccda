//! What an experiment changes on the host, written down before it is changed, so that a killed one can be cleaned up.

use std::path::{Path, PathBuf};

use nearmetal_change::devices::{Card, DriverState};
use nearmetal_change::{POOL_PATIENCE, resize_pool};
use nearmetal_host::{Host, HostFs, files, guests};
use nearmetal_hypervisor::{DomainState, Hypervisor, HypervisorError};
use nearmetal_units::PageSize;
use serde::{Deserialize, Serialize};

use crate::cost::{stop_counting, unmount_counters};
use crate::error::MeasureError;
use crate::matrix::remove_volume_group;
use crate::net::NetBefore;
use crate::scratch;

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
        Self { boot_id, path: state.join("bench.json"), ..Self::default() }
    }

    /// What an interrupted experiment left, if any.
    ///
    /// # Errors
    /// The record cannot be read, or its experiment is still running.
    pub(crate) fn load(state: &Path, fs: &HostFs) -> Result<Option<Self>, MeasureError> {
        let path = state.join("bench.json");
        if !path.exists() {
            return Ok(None);
        }
        let text = files::read_to_string(&path)?;
        let mut record: Self = serde_json::from_str(&text).map_err(|error| MeasureError::Unreadable {
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
    pub(crate) fn clean_up(self, fs: &HostFs, hypervisor: &mut dyn Hypervisor) -> Result<(), MeasureError> {
        let wrap = |arm: &str| {
            let arm = arm.to_owned();
            move |source| MeasureError::Hypervisor { arm, source }
        };
        let same_boot = fs.read("/proc/sys/kernel/random/boot_id").is_ok_and(|id| id.trim() == self.boot_id.trim());
        if same_boot {
            for clone in &self.clones {
                match hypervisor.destroy(clone) {
                    Ok(()) | Err(HypervisorError::NoSuchDomain { .. }) => {}
                    // libvirt itself ends what a process made that is gone, maybe between our look and our word.
                    Err(_) if matches!(hypervisor.domain(clone), Err(HypervisorError::NoSuchDomain { .. })) => {}
                    Err(error) => return Err(wrap(clone)(error)),
                }
            }
            if let Some(network) = &self.network {
                network.restore(fs)?;
            }
            // A clone that was just ended may have had it, so this comes after the clones.
            for function in &self.functions {
                nearmetal_change::devices::hand_to(fs, &function.card, &function.driver)?;
            }
            for pool in &self.pools {
                resize_pool(fs, pool.node, pool.size, pool.pages, POOL_PATIENCE)?;
            }
            if let Some(mode) = &self.transparent_hugepage {
                write(fs, THP, mode)?;
            }
            for (setting, scheduler) in &self.schedulers {
                write(fs, setting, scheduler)?;
            }
            if self.counts_exits {
                stop_counting(fs)?;
            }
            unmount_counters(fs, &self.mounts)?;
            for domain in &self.paused {
                if hypervisor.domain(domain).map_err(wrap(domain))?.state == DomainState::Paused {
                    hypervisor.resume(domain).map_err(wrap(domain))?;
                }
            }
        }
        for group in &self.volume_groups {
            remove_volume_group(group)?;
        }
        // The clones held the regions open, so they come last; all of them, whatever one of them says.
        let wiped: Vec<_> = self.scratch.iter().map(|device| scratch::wipe(device)).collect();
        for directory in self.directories.iter().filter(|directory| directory.exists()) {
            files::remove_dir_all(directory)?;
        }
        wiped.into_iter().collect::<Result<Vec<_>, _>>()?;
        files::remove(&self.path)?;
        Ok(())
    }
}

/// Takes back what an interrupted experiment left, if there is anything; says whether there was.
///
/// # Errors
/// The record cannot be read, or something cannot be taken back: it is then kept for the next try.
pub fn take_back_leftovers(
    state: &Path,
    fs: &HostFs,
    hypervisor: impl FnOnce() -> Result<Box<dyn Hypervisor>, HypervisorError>,
) -> Result<bool, MeasureError> {
    let Some(old) = Leftovers::load(state, fs)? else { return Ok(false) };
    let mut hypervisor = hypervisor().map_err(|source| MeasureError::Hypervisor { arm: "all".to_owned(), source })?;
    old.clean_up(fs, hypervisor.as_mut()).map(|()| true)
}

/// Writes a kernel setting.
pub(crate) fn write(fs: &HostFs, path: &str, value: &str) -> Result<(), MeasureError> {
    fs.write(path, value)
        .map_err(|source| MeasureError::KernelWrite { what: format!("cannot set `{path}` to `{value}`"), source })
}
