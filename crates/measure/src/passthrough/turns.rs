//! Host and guest take turns on a function.

use std::time::Duration;

use nearmetal_change::devices::{BoundDriver, Card, DriverState, VFIO_PCI, hand_to};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{DomainState, agent};

use super::nvme::{LIST_IN_GUEST, Namespace, device_in_guest};
use crate::error::MeasureError;
use crate::executor::Machine;
use crate::experiment::{Executor, Measured};
use crate::record::record;
use crate::results::{Arm, ArmKind};
use crate::schedule::Step;

/// The host's driver of NVMe drives.
const NVME: &str = "nvme";
/// How long a small command in the guest may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Binds a function to the host's driver.
pub(super) fn to_host(fs: &HostFs, card: &Card) -> Result<(), MeasureError> {
    Ok(hand_to(fs, card, &DriverState { bound: BoundDriver::Named(NVME.to_owned()), only: None })?)
}

/// The executor of both sides.
pub(super) struct Turns<'a> {
    machine: Machine<'a>,
    card: Card,
    namespace: Namespace,
    records: Vec<Arm>,
}

impl<'a> Turns<'a> {
    pub(super) fn new(machine: Machine<'a>, card: Card, namespace: Namespace) -> Self {
        Self { machine, card, namespace, records: Vec::new() }
    }

    /// What each side was, bare metal first, and what a reader must know.
    pub(super) fn into_records(mut self) -> (Vec<Arm>, Vec<String>) {
        self.records.sort_by_key(|arm| arm.kind);
        (self.records, self.machine.notes)
    }

    /// The function as the kernel has it now: driver, IOMMU group, how its DMA is translated.
    fn read_back(&self) -> String {
        let directory = format!("/sys/bus/pci/devices/{}", self.card.function);
        let (fs, unknown) = (self.machine.fs, || "unknown".to_owned());
        let driver = fs.link_name(&format!("{directory}/driver")).unwrap_or_else(|_| unknown());
        let group = fs.link_name(&format!("{directory}/iommu_group")).unwrap_or_else(|_| unknown());
        let domain = fs.read(&format!("{directory}/iommu_group/type")).unwrap_or_else(|_| unknown());
        format!("{}: driver {driver}, IOMMU group {group}, DMA domain {}", self.card.function, domain.trim())
    }

    /// Once for each side: what it is, with what was read back.
    fn note(&mut self, arm: ArmKind, line: String) -> Result<(), MeasureError> {
        if self.records.iter().any(|record| record.kind == arm) {
            return Ok(());
        }
        let mut made = record(&mut self.machine, arm, &format!("namespace {}", self.namespace.id))?;
        made.placement.push(line);
        self.records.push(made);
        Ok(())
    }

    /// Bare metal's turn: the guest is ended, and the namespace is the one it was.
    fn bare(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        self.machine.end_all()?;
        to_host(self.machine.fs, &self.card)?;
        let found = Namespace::find(self.machine.fs, self.card.function, Some(self.namespace.id))?;
        // Kernels may give it another name each time; another size is another namespace.
        if found.size != self.namespace.size {
            return Err(MeasureError::Unfit(format!(
                "namespace {} of {} is {} now and was {}",
                found.id, self.card.function, found.size, self.namespace.size
            )));
        }
        self.machine.bare_device = format!("/dev/{}", found.device);
        let line = format!("{}, the host sees /dev/{}", self.read_back(), found.device);
        self.note(ArmKind::BareSlice, line)?;
        self.machine.run(step)
    }

    /// The guest's turn: a clone is booted with the function, and ended again.
    fn guest(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        let arm = step.arm;
        self.machine.end_all()?;
        hand_to(self.machine.fs, &self.card, &DriverState::only(VFIO_PCI))?;
        let Some(guest) = self.machine.guests.get(&arm).cloned() else {
            return Err(MeasureError::Unfit(format!("arm `{}` has no guest", arm.id())));
        };
        self.machine.boot_one(arm, &guest)?;
        let listed = self.ask(&guest.name, &["sh", "-c", LIST_IN_GUEST])?;
        let device = device_in_guest(&listed, self.namespace.id).ok_or_else(|| {
            MeasureError::Unfit(format!(
                "the guest does not see namespace {} of {}; it sees: {}",
                self.namespace.id,
                self.card.function,
                listed.split_whitespace().collect::<Vec<_>>().join(", ")
            ))
        })?;
        let line = format!("{}, the guest sees {device}", self.read_back());
        self.machine.guests.entry(arm).and_modify(|guest| guest.device = device);
        self.note(arm, line)?;
        // As the executor expects it between samples.
        let wrap = |source| MeasureError::Hypervisor { arm: arm.id().to_owned(), source };
        self.machine.hypervisor.suspend(&guest.name).map_err(wrap)?;
        let result = self.machine.run(step);
        let state = self.machine.hypervisor.domain(&guest.name).map(|domain| domain.state);
        self.machine.end_all()?;
        match (result, state) {
            // The executor pauses it after its run; anything else means that it died, and its figures with it.
            (Ok(_), Ok(state)) if state != DomainState::Paused => {
                Err(MeasureError::Unfit(format!("the clone was {state} after its run, and not paused")))
            }
            (result, _) => result,
        }
    }

    fn ask(&mut self, name: &str, command: &[&str]) -> Result<String, MeasureError> {
        let wrap = |source| MeasureError::Hypervisor { arm: name.to_owned(), source };
        let output = agent::exec(self.machine.hypervisor, name, command, None, PATIENCE).map_err(wrap)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Executor for Turns<'_> {
    fn run(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        if step.arm == ArmKind::BareSlice { self.bare(step) } else { self.guest(step) }
    }

    fn refresh(&mut self, _arms: &[ArmKind]) -> Result<(), MeasureError> {
        // Every sample of a guest is one of a fresh guest.
        Ok(())
    }
}
