//! What an experiment changes on the host, written down before it is changed, so that a killed one can be cleaned up.

use std::path::{Path, PathBuf};

use nearmetal_change::{POOL_PATIENCE, resize_pool};
use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::{DomainState, Hypervisor, HypervisorError};
use nearmetal_units::PageSize;
use serde::{Deserialize, Serialize};

use crate::bench::Event;
use crate::error::MeasureError;
use crate::matrix::remove_volume_group;

/// Changes to take back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Leftovers {
    /// Boot in which they were made: pools and clones of another boot are gone by themselves.
    pub boot_id: String,
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
    /// Volume groups made to measure on; they outlive a reboot.
    #[serde(default)]
    pub volume_groups: Vec<String>,
    /// Schedulers of drives before they were changed: path of the setting, and the word in force.
    #[serde(default)]
    pub schedulers: Vec<(String, String)>,
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

/// Path of the THP setting.
pub(crate) const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

impl Leftovers {
    /// An empty record for this boot, at `STATE/bench.json`.
    pub(crate) fn new(state: &Path, host: &Host) -> Self {
        let boot_id = host.system.boot_id.clone().unwrap_or_default();
        Self { boot_id, path: state.join("bench.json"), ..Self::default() }
    }

    /// What an interrupted experiment left, if any.
    pub(crate) fn load(state: &Path) -> Result<Option<Self>, MeasureError> {
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
        Ok(Some(record))
    }

    /// Writes the record; called before each change it announces.
    pub(crate) fn save(&self) -> Result<(), MeasureError> {
        if let Some(parent) = self.path.parent() {
            files::create_dir_all(parent)?;
        }
        files::write_atomic(&self.path, serde_json::to_string_pretty(self).unwrap_or_default())?;
        Ok(())
    }

    /// Ends clones, restores pools, THP and schedulers, removes what was made to measure on, resumes what was paused, removes the record. Safe to repeat.
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
                    Err(error) => return Err(wrap(clone)(error)),
                }
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
            for domain in &self.paused {
                if hypervisor.domain(domain).map_err(wrap(domain))?.state == DomainState::Paused {
                    hypervisor.resume(domain).map_err(wrap(domain))?;
                }
            }
        }
        for group in &self.volume_groups {
            remove_volume_group(group)?;
        }
        for directory in self.directories.iter().filter(|directory| directory.exists()) {
            files::remove_dir_all(directory)?;
        }
        files::remove(&self.path)?;
        Ok(())
    }
}

/// Runs an experiment, first cleaning up what an interrupted one left, and afterwards what this one changed, whatever
/// came of it. The experiment's own error comes before one of cleaning up.
pub(crate) fn leaving_nothing<T>(
    state: &Path,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
    experiment: impl FnOnce(
        &Host,
        &mut dyn Hypervisor,
        &mut Leftovers,
        &mut dyn FnMut(Event<'_>),
    ) -> Result<T, MeasureError>,
) -> Result<T, MeasureError> {
    if let Some(old) = Leftovers::load(state)? {
        tell(Event::Stage("cleaning up what an interrupted run left"));
        old.clean_up(fs, hypervisor)?;
    }
    let host = Host::read(fs);
    let mut leftovers = Leftovers::new(state, &host);
    let result = experiment(&host, hypervisor, &mut leftovers, tell);
    tell(Event::Stage("putting everything back"));
    let cleaned = leftovers.clean_up(fs, hypervisor);
    let result = result?;
    cleaned?;
    Ok(result)
}

/// Writes a kernel setting.
pub(crate) fn write(fs: &HostFs, path: &str, value: &str) -> Result<(), MeasureError> {
    fs.write(path, value)
        .map_err(|source| MeasureError::KernelWrite { what: format!("cannot set `{path}` to `{value}`"), source })
}
