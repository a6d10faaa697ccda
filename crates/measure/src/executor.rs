//! Runs on the machine itself: bare metal confined to the slice, and guests through their agents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Hypervisor, HypervisorError, agent};

use crate::appliance::PROBE_IN_GUEST;
use crate::conditions::Conditions;
use crate::cost::{Each, Middle, Target, watched};
use crate::error::MeasureError;
use crate::experiment::{Executor, Measured};
use crate::metric::Metric;
use crate::results::{ArmKind, Slice};
use crate::schedule::Step;
use crate::workload::Workload;
use crate::{file_set, fio, host_cpu, memory, program};

/// How long a clone may take from power-on to an agent that answers.
const BOOT_LIMIT: Duration = Duration::from_secs(90);
/// How often a clone is booted before it counts as one that does not come up.
const BOOTS: u32 = 2;
/// What a run may take beyond its own seconds: starting fio, flushing, an emulated machine.
pub(crate) const SLACK: Duration = Duration::from_secs(60);

/// Seconds the set over a file system may take: it runs to its end, however slow the drive.
pub(crate) const FILE_SET_LIMIT: u64 = 1800;

/// A guest arm: the clone that stands for it.
#[derive(Debug, Clone)]
pub(crate) struct GuestArm {
    /// Clone's domain name.
    pub name: String,
    /// Its XML.
    pub xml: String,
    /// The device it measures, as the guest names it.
    pub device: String,
}

/// The executor of a real machine.
pub(crate) struct Machine<'a> {
    /// libvirt.
    pub hypervisor: &'a mut dyn Hypervisor,
    /// The kernel.
    pub fs: &'a HostFs,
    /// The probe on the host.
    pub probe: PathBuf,
    /// The probe in the guests.
    pub probe_in_guest: String,
    /// The slice.
    pub slice: Slice,
    /// The bare arm's region.
    pub bare_device: String,
    /// Guest arms.
    pub guests: BTreeMap<ArmKind, GuestArm>,
    /// What a reader of the figures must know of how they came about.
    pub notes: Vec<String>,
    /// Whether the guests' fio was compared with the host's, or need not be.
    pub fio_compared: bool,
}

impl<'a> Machine<'a> {
    /// A machine whose guests are clones with the appliance in them. Without a `bare_device` no fio runs.
    pub(crate) fn of_clones(
        hypervisor: &'a mut dyn Hypervisor,
        fs: &'a HostFs,
        conditions: &Conditions,
        slice: &Slice,
        bare_device: &str,
        guests: BTreeMap<ArmKind, GuestArm>,
    ) -> Self {
        Self {
            hypervisor,
            fs,
            probe: conditions.probe.clone(),
            probe_in_guest: PROBE_IN_GUEST.to_owned(),
            slice: slice.clone(),
            bare_device: bare_device.to_owned(),
            guests,
            notes: Vec::new(),
            fio_compared: bare_device.is_empty(),
        }
    }

    fn failed(arm: &str) -> impl FnOnce(HypervisorError) -> MeasureError {
        let arm = arm.to_owned();
        move |source| MeasureError::Hypervisor { arm, source }
    }

    /// Boots the clones of these arms one after the other and leaves each paused, its agent having answered.
    pub(crate) fn boot(&mut self, arms: &[ArmKind]) -> Result<(), MeasureError> {
        for arm in arms {
            let Some(guest) = self.guests.get(arm).cloned() else { continue };
            self.boot_one(*arm, &guest)?;
            self.hypervisor.suspend(&guest.name).map_err(Self::failed(arm.id()))?;
        }
        Ok(())
    }

    /// Boots a clone until its agent answers. One that hangs has measured nothing yet, so it is booted again and the
    /// report says so.
    pub(crate) fn boot_one(&mut self, arm: ArmKind, guest: &GuestArm) -> Result<(), MeasureError> {
        let mut boot = 1;
        loop {
            self.hypervisor.create_transient(&guest.xml, false).map_err(Self::failed(arm.id()))?;
            match agent::wait(self.hypervisor, &guest.name, BOOT_LIMIT) {
                Ok(()) => {
                    self.compare_fio(&guest.name);
                    return Ok(());
                }
                Err(HypervisorError::AgentNotResponding { .. }) if boot < BOOTS => {
                    let seconds = BOOT_LIMIT.as_secs();
                    self.notes.push(format!(
                        "the clone `{}` was booted again: its agent did not answer within {seconds} s",
                        guest.name
                    ));
                    self.hypervisor.destroy(&guest.name).map_err(Self::failed(arm.id()))?;
                    boot += 1;
                }
                Err(error) => return Err(Self::failed(arm.id())(error)),
            }
        }
    }

    /// Says if the clones' fio, which is the appliance's, is another than the host's.
    fn compare_fio(&mut self, clone: &str) {
        if std::mem::replace(&mut self.fio_compared, true) {
            return;
        }
        let version = |text: &str| text.trim().to_owned();
        let own = program::run(Command::new("fio").arg("--version")).map(|text| version(&text));
        let inside = agent::exec(self.hypervisor, clone, &["fio", "--version"], None, SLACK)
            .map(|output| version(&String::from_utf8_lossy(&output.stdout)));
        let (Ok(own), Ok(inside)) = (own, inside) else { return };
        if own != inside {
            self.notes.push(format!("the clones have {inside}, the host {own}: not the same program"));
        }
    }

    /// Boots one clone afresh.
    pub(crate) fn refresh_one(&mut self, arm: ArmKind) -> Result<(), MeasureError> {
        if let Some(guest) = self.guests.get(&arm).cloned() {
            self.hypervisor.destroy(&guest.name).map_err(Self::failed(arm.id()))?;
        }
        self.boot(&[arm])
    }

    /// Ends every clone that exists. These are nearmetal's own, without state worth keeping.
    pub(crate) fn end_all(&mut self) -> Result<(), MeasureError> {
        let existing = self.hypervisor.domains().map_err(Self::failed("all"))?;
        for guest in self.guests.values().cloned().collect::<Vec<_>>() {
            if existing.iter().any(|domain| domain.name == guest.name) {
                self.hypervisor.destroy(&guest.name).map_err(Self::failed(&guest.name))?;
            }
        }
        Ok(())
    }

    /// The QEMU process of an arm's clone; none of bare metal, or where it cannot be found.
    fn processes(&mut self, arm: ArmKind) -> Result<Vec<u32>, MeasureError> {
        let Some(guest) = self.guests.get(&arm).cloned() else { return Ok(Vec::new()) };
        let uuid = self.hypervisor.domain(&guest.name).map_err(Self::failed(arm.id()))?.uuid;
        Ok(nearmetal_host::guests::pid_of(self.fs, &uuid).ok().flatten().into_iter().collect())
    }

    /// Why an arm cannot have a file system; `None` if it can.
    pub(crate) fn missing(
        &mut self,
        arm: ArmKind,
        wanted: file_set::FileSystem,
    ) -> Result<Option<String>, MeasureError> {
        let command = |probe: &str| vec![probe.to_owned(), "file-systems".to_owned()];
        let output = match arm {
            ArmKind::BareSlice => self.bare(&command(&self.probe.display().to_string()))?,
            arm => self.guest(arm, &command(&self.probe_in_guest), SLACK)?,
        };
        Ok(file_set::missing(&output, wanted))
    }

    fn bare(&self, command: &[String]) -> Result<String, MeasureError> {
        let mut bound = Command::new(&self.probe);
        bound.args(["bind", "--cpus", &self.slice.cpus.to_string()]);
        bound.args(["--nodes", &self.slice.nodes.to_string(), "--"]).args(command);
        program::run(&mut bound)
    }

    fn guest(&mut self, arm: ArmKind, command: &[String], limit: Duration) -> Result<String, MeasureError> {
        let guest = self
            .guests
            .get(&arm)
            .cloned()
            .ok_or_else(|| MeasureError::Unfit(format!("arm `{}` has no guest", arm.id())))?;
        self.hypervisor.resume(&guest.name).map_err(Self::failed(arm.id()))?;
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = agent::exec(self.hypervisor, &guest.name, &words, None, limit);
        // Paused again whatever came of the run: the next arm must not share its PUs.
        self.hypervisor.suspend(&guest.name).map_err(Self::failed(arm.id()))?;
        let output = output.map_err(Self::failed(arm.id()))?;
        if output.status.is_success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let why = match words.trim() {
            "" => format!("{:?}", output.status),
            words => words.chars().take(400).collect(),
        };
        Err(MeasureError::WorkloadFailed { what: format!("{} in arm `{}`", command[0], arm.id()), why })
    }
}

/// Writes dirty pages and drops the page cache, so that no sample pays for or profits from the one before.
pub(crate) fn settle(fs: &HostFs) -> Result<(), MeasureError> {
    rustix::fs::sync();
    fs.write("/proc/sys/vm/drop_caches", "3").map_err(|source| MeasureError::KernelWrite {
        what: "cannot drop the page cache before a sample".into(),
        source,
    })
}

/// The rate of a run; 0 where it has none.
pub(crate) fn iops(metrics: &[Metric]) -> f64 {
    metrics.iter().find(|metric| metric.name == "iops").map_or(0.0, |metric| metric.value)
}

impl Executor for Machine<'_> {
    fn refresh(&mut self, arms: &[ArmKind]) -> Result<(), MeasureError> {
        self.end_all()?;
        self.boot(arms)
    }

    fn run(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        let bare = step.arm == ArmKind::BareSlice;
        let device = match self.guests.get(&step.arm) {
            Some(guest) => guest.device.clone(),
            None => self.bare_device.clone(),
        };
        let probe = if bare { self.probe.display().to_string() } else { self.probe_in_guest.clone() };
        let (command, seconds) = match &step.workload {
            Workload::Fio(job) => {
                let mut command = vec!["fio".to_owned()];
                command.extend(job.arguments(&device, step.seed));
                (command, u64::from(job.seconds + job.ramp_seconds))
            }
            Workload::FileSystem(job) => (job.command(&probe, &device, step.seed), FILE_SET_LIMIT),
            Workload::MemoryLatency(job) => (memory::latency_command(&probe, job), 30),
            Workload::MemoryBandwidth(job) => (memory::bandwidth_command(&probe, job), 30),
        };
        settle(self.fs)?;
        let limit = Duration::from_secs(seconds) + SLACK;
        let middle = match &step.workload {
            Workload::Fio(job) => Some(Middle::of(job)),
            _ => None,
        };
        let target = Target {
            guests: self.processes(step.arm)?,
            slice: self.slice.cpus.clone(),
            on_top: self.slice.cpus_on_top.clone(),
        };
        let (output, counted) = watched(self.fs, &target, middle, || {
            if bare { self.bare(&command) } else { self.guest(step.arm, &command, limit) }
        });
        let output = output?;
        match &step.workload {
            Workload::Fio(_) => {
                let mut metrics = fio::metrics(&output)?;
                let (costs, notes) = counted.costs(iops(&metrics), Each::Io);
                // Arms that are not pinned run anywhere.
                metrics.extend(host_cpu::of(&costs, matches!(step.arm, ArmKind::AsFound | ArmKind::VirtInstall)));
                metrics.extend(costs);
                Ok(Measured { metrics, notes })
            }
            Workload::FileSystem(_) => file_set::measured(&output),
            Workload::MemoryLatency(_) => memory::latency(&output),
            Workload::MemoryBandwidth(_) => memory::bandwidth(&output),
        }
    }
}
