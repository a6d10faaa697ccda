//! Host and guest take turns on a function.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_change::devices::{BoundDriver, Card, DriverState, VFIO_PCI, hand_to};
use nearmetal_domain::{DomainError, DomainXml};
use nearmetal_host::HostFs;
use nearmetal_hypervisor::{Definition, DomainState, agent};
use nearmetal_units::PciAddress;

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

/// How long a guest may take to let go of the function, and to find it again.
const PLUG_PATIENCE: Duration = Duration::from_secs(30);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(300);

/// The clone and the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clone {
    /// It does not run.
    Off,
    /// It runs, paused, without the function.
    Without,
    /// It runs, paused, with the function.
    With,
}

/// The executor of both sides.
///
/// The clone is booted with the function once; from then on it is unplugged and plugged in again while the clone runs. A
/// guest that does not let go is booted for each of its samples instead, which a note says.
pub(super) struct Turns<'a> {
    machine: Machine<'a>,
    card: Card,
    namespace: Namespace,
    records: Vec<Arm>,
    clone: Clone,
    /// The function's element in the live XML of the clone, once it was booted; `None`: it is booted for each sample.
    element: Option<String>,
    can_plug: bool,
}

impl<'a> Turns<'a> {
    pub(super) fn new(machine: Machine<'a>, card: Card, namespace: Namespace) -> Self {
        Self { machine, card, namespace, records: Vec::new(), clone: Clone::Off, element: None, can_plug: true }
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
        // The group's own file tells the host's domain, also while VFIO has put the group into one of its own.
        let domain = match driver.as_str() {
            VFIO_PCI => format!("VFIO's own (the host's is {})", domain.trim()),
            _ => domain.trim().to_owned(),
        };
        format!("{}: driver {driver}, IOMMU group {group}, DMA domain {domain}", self.card.function)
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

    /// Bare metal's turn: the guest lets go, and the namespace is the one it was.
    fn bare(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        self.take_from_guest()?;
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

    /// The guest's turn: the function is plugged into the clone, which finds it.
    fn guest(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        let arm = step.arm;
        let Some(guest) = self.machine.guests.get(&arm).cloned() else {
            return Err(MeasureError::Unfit(format!("arm `{}` has no guest", arm.id())));
        };
        let wrap = |source| MeasureError::Hypervisor { arm: arm.id().to_owned(), source };
        let mut fresh = false;
        if self.clone == Clone::With {
            self.machine.hypervisor.resume(&guest.name).map_err(wrap)?;
        } else {
            hand_to(self.machine.fs, &self.card, &DriverState::only(VFIO_PCI))?;
            match self.element.clone().filter(|_| self.clone == Clone::Without) {
                Some(element) => {
                    self.machine.hypervisor.resume(&guest.name).map_err(wrap)?;
                    self.machine.hypervisor.attach_device(&guest.name, &element).map_err(wrap)?;
                }
                None => {
                    self.end()?;
                    self.machine.boot_one(arm, &guest)?;
                    fresh = true;
                    let xml = self.machine.hypervisor.domain_xml(&guest.name, Definition::Live).map_err(wrap)?;
                    self.element = element_of(&xml, self.card.function)
                        .map_err(|source| MeasureError::Xml { arm: arm.id().to_owned(), source })?;
                }
            }
            self.clone = Clone::With;
        }
        let device = self.device_in_guest(&guest.name)?;
        let line = format!("{}, the guest sees {device}", self.read_back());
        self.machine.guests.entry(arm).and_modify(|guest| guest.device = device);
        self.note(arm, line)?;
        // As the executor expects it between samples.
        self.machine.hypervisor.suspend(&guest.name).map_err(wrap)?;
        if fresh {
            // A guest that has just booted still starts its services and touches its memory for the first time.
            self.machine.run(step)?;
        }
        let measured = self.machine.run(step)?;
        match self.machine.hypervisor.domain(&guest.name).map_err(wrap)?.state {
            DomainState::Paused => Ok(measured),
            // The executor pauses it after its run; anything else means that it died, and its figures with it.
            state => Err(MeasureError::Unfit(format!("the clone was {state} after its run, and not paused"))),
        }
    }

    /// Ends the clone.
    fn end(&mut self) -> Result<(), MeasureError> {
        self.machine.end_all()?;
        self.clone = Clone::Off;
        Ok(())
    }

    /// Takes the function from the clone: unplugged if it lets go, else the clone is ended.
    fn take_from_guest(&mut self) -> Result<(), MeasureError> {
        if self.clone != Clone::With {
            return Ok(());
        }
        if let (true, Some(element)) = (self.can_plug, self.element.clone()) {
            if self.unplug(&element)? {
                self.clone = Clone::Without;
                return Ok(());
            }
            self.can_plug = false;
            let seconds = PLUG_PATIENCE.as_secs();
            self.machine.notes.push(format!(
                "the guest did not let go of {} within {seconds} s: from then on its clone was booted for each of its samples",
                self.card.function
            ));
        }
        self.end()
    }

    /// Whether the guest let go in time; it is paused again if it did.
    fn unplug(&mut self, element: &str) -> Result<bool, MeasureError> {
        let Some((arm, guest)) = self.machine.guests.iter().next().map(|(arm, guest)| (*arm, guest.clone())) else {
            return Ok(false);
        };
        let wrap = |source| MeasureError::Hypervisor { arm: arm.id().to_owned(), source };
        self.machine.hypervisor.resume(&guest.name).map_err(wrap)?;
        if self.machine.hypervisor.detach_device(&guest.name, element).is_err() {
            return Ok(false);
        }
        let deadline = Instant::now() + PLUG_PATIENCE;
        loop {
            let xml = self.machine.hypervisor.domain_xml(&guest.name, Definition::Live).map_err(wrap)?;
            if element_of(&xml, self.card.function).is_ok_and(|element| element.is_none()) {
                self.machine.hypervisor.suspend(&guest.name).map_err(wrap)?;
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(LOOK);
        }
    }

    /// The guest's block device of the namespace, once it has found it.
    fn device_in_guest(&mut self, name: &str) -> Result<String, MeasureError> {
        let deadline = Instant::now() + PLUG_PATIENCE;
        loop {
            let listed = self.ask(name, &["sh", "-c", LIST_IN_GUEST])?;
            if let Some(device) = device_in_guest(&listed, self.namespace.id) {
                return Ok(device);
            }
            if Instant::now() >= deadline {
                return Err(MeasureError::Unfit(format!(
                    "the guest does not see namespace {} of {}; it sees: {}",
                    self.namespace.id,
                    self.card.function,
                    listed.split_whitespace().collect::<Vec<_>>().join(", ")
                )));
            }
            sleep(LOOK);
        }
    }

    fn ask(&mut self, name: &str, command: &[&str]) -> Result<String, MeasureError> {
        let wrap = |source| MeasureError::Hypervisor { arm: name.to_owned(), source };
        let output = agent::exec(self.machine.hypervisor, name, command, None, PATIENCE).map_err(wrap)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The element that hands the function through; `None` where the guest does not have it.
fn element_of(xml: &str, function: PciAddress) -> Result<Option<String>, DomainError> {
    DomainXml::parse(xml)?.function_element(function)
}

impl Executor for Turns<'_> {
    fn run(&mut self, step: &Step) -> Result<Measured, MeasureError> {
        if step.arm == ArmKind::BareSlice {
            return self.bare(step);
        }
        let result = self.guest(step);
        if result.is_err() {
            // Whatever state it is in: the next turn begins with a new one.
            self.end()?;
        }
        result
    }

    fn refresh(&mut self, _arms: &[ArmKind]) -> Result<(), MeasureError> {
        // The function changes sides; the clone stays up.
        Ok(())
    }
}
