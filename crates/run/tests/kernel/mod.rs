//! A kernel in memory with one pool and one virtual function, and a moment at which the process dies.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use nearmetal_change::{ChangeError, Kernel, PinTarget};
use nearmetal_host::Host;
use nearmetal_run::function::Lent;
use nearmetal_run::reservation::Desk;
use nearmetal_units::{CpuSet, PciAddress};

pub(crate) const POOL: &str = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB";
const FUNCTION: &str = "0000:39:10.0";
const ROOT: &str = "/sys/bus/pci/devices/0000:39:10.0";
/// Driver and override of the function before a run, and while a guest has it.
pub(crate) const DRIVER: (Option<&str>, &str) = (Some("igbvf"), "(null)");
pub(crate) const TAKEN: (Option<&str>, &str) = (Some("vfio-pci"), "(null)");

/// A kernel whose pool has 16 pages, and so many to give.
pub(crate) struct Played {
    files: RefCell<BTreeMap<String, String>>,
    driver: Cell<Option<&'static str>>,
    most: u64,
    /// Writes so far.
    pub(crate) writes: Cell<u32>,
    /// The write at which the process dies, from 1, and whether the kernel has done it by then.
    pub(crate) dies: Cell<Option<(u32, bool)>>,
    /// Whether a process has the function open.
    pub(crate) held: Cell<bool>,
    /// The guest that has it open, as far as one can be seen.
    pub(crate) holder: Cell<Option<&'static str>>,
    /// Whether the guest's QEMU is still there.
    pub(crate) lives: Cell<bool>,
}

/// The function, as it was before a run.
pub(crate) fn lent() -> Lent {
    let (function, id) = (FUNCTION.parse().unwrap(), "0x8086:0x10ca".to_owned());
    Lent { function, id, driver: DRIVER.0.map(str::to_owned), only: None }
}

/// What nearmetal was told to keep for guests.
pub(crate) fn nothing_set_aside() -> BTreeSet<PciAddress> {
    BTreeSet::new()
}

impl Played {
    pub(crate) fn new(most: u64) -> Self {
        let pool =
            [("nr_hugepages", "16"), ("surplus_hugepages", "0")].map(|(name, value)| (format!("{POOL}/{name}"), value));
        let own = [("vendor", "0x8086"), ("device", "0x10ca"), ("driver_override", "(null)")];
        let own = own.map(|(name, value)| (format!("{ROOT}/{name}"), value));
        let files = pool.into_iter().chain(own).map(|(path, value)| (path, value.to_owned())).collect();
        Self {
            files: RefCell::new(files),
            driver: Cell::new(DRIVER.0),
            most,
            writes: Cell::new(0),
            dies: Cell::new(None),
            held: Cell::new(false),
            holder: Cell::new(None),
            lives: Cell::new(false),
        }
    }

    pub(crate) fn pages(&self) -> u64 {
        self.files.borrow()[&format!("{POOL}/nr_hugepages")].parse().unwrap()
    }

    /// Driver and override of the function.
    pub(crate) fn driver(&self) -> (Option<&'static str>, &'static str) {
        let only = self.files.borrow()[&format!("{ROOT}/driver_override")].clone();
        (self.driver.get(), ["(null)", "igbvf", "vfio-pci"].into_iter().find(|known| *known == only).unwrap())
    }

    /// Somebody else binds the function, libvirt or its owner.
    pub(crate) fn bind(&self, driver: &'static str) {
        self.driver.set(Some(driver));
    }

    /// The card's owner removes its virtual functions.
    pub(crate) fn remove(&self) {
        self.files.borrow_mut().retain(|path, _| !path.starts_with(ROOT));
        self.driver.set(None);
    }

    fn set(&self, path: &str, value: &str) {
        let only = format!("{ROOT}/driver_override");
        if path.starts_with(POOL) {
            let pages = value.parse::<u64>().unwrap().min(self.most);
            self.files.borrow_mut().insert(path.to_owned(), pages.to_string());
        } else if path == only {
            let value = if value.trim().is_empty() { "(null)" } else { value };
            self.files.borrow_mut().insert(only, value.to_owned());
        } else if path.ends_with("/unbind") {
            assert!(!self.held.get(), "a function is taken from a guest");
            self.driver.set(None);
        } else if path == "/sys/bus/pci/drivers_probe" && self.driver.get().is_none() {
            let kept = self.driver().1;
            self.driver.set(Some(if kept == "(null)" { "igbvf" } else { kept }));
        }
    }
}

impl Kernel for Played {
    fn read(&self, path: &str) -> Result<Option<String>, ChangeError> {
        Ok(self.files.borrow().get(path).cloned())
    }

    fn write(&self, path: &str, value: &str) -> Result<(), ChangeError> {
        self.writes.set(self.writes.get() + 1);
        let dies = self.dies.get().map(|(left, done)| (left - 1, done));
        self.dies.set(dies.filter(|(left, _)| *left > 0));
        assert!(dies != Some((0, false)), "killed before a write");
        self.set(path, value);
        assert!(dies != Some((0, true)), "killed behind a write");
        Ok(())
    }

    fn affinity(&self, _: &str, _: PinTarget) -> Result<Option<CpuSet>, ChangeError> {
        Ok(self.lives.get().then(CpuSet::new))
    }

    fn load_module(&self, _: &str) -> Result<(), ChangeError> {
        Ok(())
    }

    fn unload_module(&self, _: &str) -> Result<(), ChangeError> {
        Ok(())
    }

    fn inventory(&self) -> Host {
        Host::default()
    }

    fn guest_memory(&self, _: &str, _: u32) -> Result<u64, ChangeError> {
        Ok(0)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, ChangeError> {
        Ok(if path.starts_with("/sys/bus/pci/drivers/") { vec!["bind".to_owned()] } else { Vec::new() })
    }

    fn link_name(&self, path: &str) -> Result<Option<String>, ChangeError> {
        let there = self.files.borrow().contains_key(&format!("{ROOT}/vendor"));
        Ok(match path.strip_prefix(ROOT).filter(|_| there) {
            Some("/driver") => self.driver.get().map(str::to_owned),
            Some("/iommu_group") => Some("12".to_owned()),
            _ => None,
        })
    }

    fn is_held(&self, path: &str) -> Result<bool, ChangeError> {
        Ok(path == "/dev/vfio/12" && self.held.get())
    }

    fn holder(&self, _: PciAddress, paths: &[String]) -> Result<Option<String>, ChangeError> {
        let seen = self.holder.get().filter(|_| paths.contains(&"/dev/vfio/12".to_owned()));
        Ok(seen.map(str::to_owned))
    }
}

/// Where runs play: a directory of reservations, and the machine.
pub(crate) struct Stage {
    pub(crate) desk: Desk,
    pub(crate) kernel: Played,
    pub(crate) _directory: tempfile::TempDir,
}

impl Stage {
    /// With a pool that has so many pages at most.
    pub(crate) fn of(most: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { desk: Desk::at(directory.path().join("runs")), kernel: Played::new(most), _directory: directory }
    }
}
