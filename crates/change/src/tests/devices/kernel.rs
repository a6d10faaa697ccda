//! A kernel in memory with a network card and an NVMe drive that can have virtual functions, `ip` and `nvme` beside it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use nearmetal_units::{CpuSet, PciAddress};

use crate::devices::NetworkSettings;
use crate::pins::PinTarget;
use crate::*;

pub(super) const CARD: &str = "0000:01:00.0";
pub(super) const DRIVE: &str = "0000:02:00.0";
const PCI: &str = "/sys/bus/pci/devices";

/// Everything that can change, and so everything a rollback has to restore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Inside {
    pub(super) files: BTreeMap<String, String>,
    pub(super) links: BTreeMap<String, String>,
    pub(super) rows: Vec<NetworkSettings>,
    /// Queues, interrupts and state of the drive's secondary controllers.
    pub(super) dealt: [(u32, u32, bool); 4],
}

#[derive(Debug, Default)]
pub(super) struct DeviceKernel {
    pub(super) inside: RefCell<Inside>,
    pub(super) held: RefCell<BTreeSet<String>>,
    /// Commands whose text contains this fail.
    pub(super) failing: RefCell<Option<String>>,
    /// Programs that were run to change something.
    pub(super) runs: RefCell<Vec<String>>,
}

pub(super) fn virtual_function(card: &str, number: usize) -> String {
    let card: PciAddress = card.parse().unwrap();
    PciAddress { function: number as u8 + 1, ..card }.to_string()
}

impl DeviceKernel {
    pub(super) fn new() -> Self {
        let kernel = Self::default();
        {
            let mut inside = kernel.inside.borrow_mut();
            for (function, device, total, driver) in [(CARD, "0x10c9", "7", "igb"), (DRIVE, "0x0010", "4", "nvme")] {
                let root = format!("{PCI}/{function}");
                let vendor = if function == CARD { "0x8086" } else { "0x1b36" };
                let files = [
                    ("vendor", vendor),
                    ("device", device),
                    ("sriov_totalvfs", total),
                    ("sriov_numvfs", "0"),
                    ("sriov_drivers_autoprobe", "1"),
                    ("driver_override", "(null)"),
                ];
                for (name, text) in files {
                    inside.files.insert(format!("{root}/{name}"), format!("{text}\n"));
                }
                inside.links.insert(format!("{root}/driver"), driver.to_owned());
                inside.links.insert(format!("{root}/iommu_group"), if function == CARD { "1" } else { "9" }.to_owned());
            }
            inside.files.insert(format!("{PCI}/{CARD}/net/eth0/flags"), "0x1002\n".to_owned());
            inside.files.insert("/sys/class/net/eth0/operstate".to_owned(), "down\n".to_owned());
            inside.files.insert(format!("{PCI}/{DRIVE}/nvme/nvme0/dev"), "240:0\n".to_owned());
            for driver in ["igb", "igbvf", "nvme"] {
                inside.files.insert(format!("/sys/bus/pci/drivers/{driver}/bind"), String::new());
            }
            inside.files.insert("/proc/modules".to_owned(), "kvm 1363968 1 kvm_amd, Live 0x0\n".to_owned());
        }
        kernel
    }

    pub(super) fn set(&self, path: &str, text: &str) {
        self.inside.borrow_mut().files.insert(path.to_owned(), format!("{text}\n"));
    }

    pub(super) fn value(&self, path: &str) -> String {
        self.inside.borrow().files[path].trim().to_owned()
    }

    pub(super) fn driver(&self, function: &str) -> Option<String> {
        self.inside.borrow().links.get(&format!("{PCI}/{function}/driver")).cloned()
    }

    /// A guest has it, by libvirt's doing.
    pub(super) fn lend(&self, function: &str) {
        if !self.inside.borrow().files.contains_key("/sys/bus/pci/drivers/vfio-pci/bind") {
            self.load_module("vfio-pci").unwrap();
        }
        self.set(&format!("{PCI}/{function}/driver_override"), "vfio-pci");
        let mut inside = self.inside.borrow_mut();
        inside.links.insert(format!("{PCI}/{function}/driver"), "vfio-pci".to_owned());
        let group = inside.links[&format!("{PCI}/{function}/iommu_group")].clone();
        self.held.borrow_mut().insert(format!("/dev/vfio/{group}"));
    }

    fn number_of(&self, function: &str) -> Option<(&'static str, usize)> {
        let found = |card: &'static str, most: usize| {
            (0..most).find(|number| virtual_function(card, *number) == function).map(|number| (card, number))
        };
        found(CARD, 7).or_else(|| found(DRIVE, 4))
    }

    fn set_count(&self, card: &str, count: usize) -> Result<(), ChangeError> {
        let numbers = format!("{PCI}/{card}/sriov_numvfs");
        if count > 0 && self.value(&numbers) != "0" {
            return Err(ChangeError::Kernel("the kernel refuses to go from one count to another".to_owned()));
        }
        let mut inside = self.inside.borrow_mut();
        for number in 0..7 {
            let root = format!("{PCI}/{}/", virtual_function(card, number));
            inside.files.retain(|path, _| !path.starts_with(&root));
            inside.links.retain(|path, _| !path.starts_with(&root));
            inside.links.remove(&format!("{PCI}/{card}/virtfn{number}"));
        }
        match card {
            CARD => inside.rows = vec![fresh(); count],
            _ => inside.dealt = Default::default(),
        }
        inside.files.insert(numbers, format!("{count}\n"));
        drop(inside);
        for number in 0..count {
            let function = virtual_function(card, number);
            let root = format!("{PCI}/{function}");
            let (vendor, device, group) =
                if card == CARD { ("0x8086", "0x10ca", 11) } else { ("0x1b36", "0x0010", 21) };
            let (vendor, device) = (format!("{vendor}\n"), format!("{device}\n"));
            let mut inside = self.inside.borrow_mut();
            inside.files.insert(format!("{root}/vendor"), vendor);
            inside.files.insert(format!("{root}/device"), device);
            inside.files.insert(format!("{root}/driver_override"), "(null)\n".to_owned());
            inside.links.insert(format!("{root}/iommu_group"), (group + number).to_string());
            inside.links.insert(format!("{root}/physfn"), card.to_owned());
            inside.links.insert(format!("{PCI}/{card}/virtfn{number}"), function.clone());
            drop(inside);
            self.probe(&function);
        }
        Ok(())
    }

    /// drivers/pci/pci-driver.c, `pci_device_can_probe`.
    fn probe(&self, function: &str) {
        let only = self.value(&format!("{PCI}/{function}/driver_override"));
        let only = (only != "(null)").then_some(only);
        let own = self.number_of(function);
        let alone = own.is_some_and(|(card, _)| self.value(&format!("{PCI}/{card}/sriov_drivers_autoprobe")) == "0");
        if self.driver(function).is_some() || (alone && only.is_none()) {
            return;
        }
        let default = match own {
            Some((CARD, _)) => "igbvf",
            // Without queues the drive's functions do not answer.
            Some((_, number)) if only.is_none() && !self.inside.borrow().dealt[number].2 => return,
            Some(_) => "nvme",
            None if function == CARD => "igb",
            None => "nvme",
        };
        let driver = only.unwrap_or_else(|| default.to_owned());
        if self.inside.borrow().files.contains_key(&format!("/sys/bus/pci/drivers/{driver}/bind")) {
            self.inside.borrow_mut().links.insert(format!("{PCI}/{function}/driver"), driver);
        }
    }

    fn ip(&self, arguments: &[&str]) -> Result<String, ChangeError> {
        let mut inside = self.inside.borrow_mut();
        let ["link", "set", "dev", "eth0", "vf", number, setting, value, rest @ ..] = arguments else {
            return Ok(show(&inside.rows));
        };
        self.runs.borrow_mut().push(format!("ip {}", arguments.join(" ")));
        let row = &mut inside.rows[number.parse::<usize>().unwrap()];
        match *setting {
            "mac" => row.mac = Some((*value).to_owned()),
            "vlan" => row.vlan.as_mut().unwrap().id = value.parse().unwrap(),
            "spoofchk" => row.spoof_check = Some(*value == "on"),
            "trust" => row.trust = Some(*value == "on"),
            "max_tx_rate" => row.rate.as_mut().unwrap().max = value.parse().unwrap(),
            "state" => row.link_state = Some((*value).to_owned()),
            other => panic!("ip knows no {other} {rest:?}"),
        }
        Ok(String::new())
    }

    fn nvme(&self, arguments: &[&str]) -> Result<String, ChangeError> {
        let mut inside = self.inside.borrow_mut();
        match arguments {
            ["primary-ctrl-caps", ..] => Ok(r#"{"vqfrt":8,"vqrfap":0,"vqfrsm":2,"vqgran":1,
                "vifrt":4,"virfap":0,"vifrsm":2,"vigran":1}"#
                .to_owned()),
            ["list-secondary", ..] => {
                let entries = inside.dealt.iter().enumerate().map(|(number, (queues, interrupts, online))| {
                    serde_json::json!({"secondary-controller-identifier": number + 1, "virtual-function-number": number + 1,
                        "secondary-controller-state": u32::from(*online), "num-virtual-queues": queues,
                        "num-virtual-interrupts": interrupts})
                });
                Ok(serde_json::json!({"num": 4, "secondary-controllers": entries.collect::<Vec<_>>()}).to_string())
            }
            ["virt-mgmt", "/dev/nvme0", id, rest @ ..] => {
                self.runs.borrow_mut().push(format!("nvme {}", arguments.join(" ")));
                let number: usize = id.strip_prefix("--cntlid=").unwrap().parse().unwrap();
                let entry = &mut inside.dealt[number - 1];
                match rest {
                    ["--act=9"] => entry.2 = entry.0 >= 2 && entry.1 >= 1,
                    ["--act=7"] => entry.2 = false,
                    ["--rt=0", count, "--act=8"] => entry.0 = count[5..].parse().unwrap(),
                    ["--rt=1", count, "--act=8"] => entry.1 = count[5..].parse().unwrap(),
                    other => panic!("nvme knows no {other:?}"),
                }
                Ok("success".to_owned())
            }
            other => panic!("nvme knows no {other:?}"),
        }
    }
}

fn fresh() -> NetworkSettings {
    NetworkSettings {
        mac: Some("00:00:00:00:00:00".to_owned()),
        vlan: Some(Default::default()),
        spoof_check: Some(true),
        trust: Some(false),
        rate: Some(Default::default()),
        link_state: Some("auto".to_owned()),
    }
}

fn show(rows: &[NetworkSettings]) -> String {
    let rows = rows.iter().enumerate().map(|(number, row)| {
        let rate = row.rate.unwrap();
        serde_json::json!({"vf": number, "address": row.mac, "vlan_list": [{"vlan": row.vlan.unwrap().id}],
            "rate": {"max_tx": rate.max, "min_tx": rate.min}, "spoofchk": row.spoof_check, "trust": row.trust,
            "link_state": row.link_state})
    });
    serde_json::json!([{"ifname": "eth0", "vfinfo_list": rows.collect::<Vec<_>>()}]).to_string()
}

impl Kernel for DeviceKernel {
    fn read(&self, path: &str) -> Result<Option<String>, ChangeError> {
        Ok(self.inside.borrow().files.get(path).cloned())
    }

    fn write(&self, path: &str, value: &str) -> Result<(), ChangeError> {
        let failing = self.failing.borrow().as_ref().is_some_and(|failing| path.contains(failing));
        if failing {
            return Err(ChangeError::Kernel(format!("`{path}` cannot be written")));
        }
        if path == "/sys/bus/pci/drivers_probe" {
            self.probe(value);
            return Ok(());
        }
        if path.ends_with("/unbind") {
            assert!(self.inside.borrow_mut().links.remove(&format!("{PCI}/{value}/driver")).is_some(), "{value}");
            return Ok(());
        }
        if let Some(card) = path.strip_suffix("/sriov_numvfs").and_then(|path| path.rsplit('/').next()) {
            return self.set_count(card, value.parse().unwrap());
        }
        let value = if path.ends_with("/driver_override") && value == "\n" { "(null)" } else { value };
        assert!(self.inside.borrow().files.contains_key(path), "{path}");
        self.set(path, value);
        Ok(())
    }

    fn affinity(&self, _uuid: &str, _target: PinTarget) -> Result<Option<CpuSet>, ChangeError> {
        Ok(None)
    }

    fn inventory(&self) -> nearmetal_host::Host {
        nearmetal_host::Host::default()
    }

    fn load_module(&self, module: &str) -> Result<(), ChangeError> {
        let text = self.value("/proc/modules");
        self.set("/proc/modules", &format!("{} 16384 0 - Live 0x0\n{text}", module.replace('-', "_")));
        self.set(&format!("/sys/bus/pci/drivers/{module}/bind"), "");
        Ok(())
    }

    fn unload_module(&self, module: &str) -> Result<(), ChangeError> {
        let name = module.replace('-', "_");
        let text = self.value("/proc/modules");
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with(&name)).collect();
        self.set("/proc/modules", &kept.join("\n"));
        self.inside.borrow_mut().files.remove(&format!("/sys/bus/pci/drivers/{module}/bind"));
        Ok(())
    }

    fn guest_memory(&self, _uuid: &str, _node: u32) -> Result<u64, ChangeError> {
        Ok(0)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, ChangeError> {
        let below = format!("{path}/");
        let inside = self.inside.borrow();
        let names = inside.files.keys().filter_map(|file| file.strip_prefix(&below)?.split('/').next());
        // A driver lists what is bound to it.
        let driver = path.strip_prefix("/sys/bus/pci/drivers/");
        let bound = inside.links.iter().filter(|(_, target)| driver == Some(target.as_str()));
        let bound = bound.filter_map(|(link, _)| link.strip_prefix(PCI)?.strip_prefix('/')?.strip_suffix("/driver"));
        Ok(names.chain(bound).map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect())
    }

    fn link_name(&self, path: &str) -> Result<Option<String>, ChangeError> {
        Ok(self.inside.borrow().links.get(path).cloned())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ChangeError> {
        let command = format!("{program} {}", arguments.join(" "));
        if self.failing.borrow().as_ref().is_some_and(|failing| command.contains(failing)) {
            return Err(ChangeError::Kernel(format!("`{command}` failed")));
        }
        match program {
            "ip" => self.ip(arguments),
            "nvme" => self.nvme(arguments),
            other => panic!("there is no {other}"),
        }
    }

    fn is_held(&self, path: &str) -> Result<bool, ChangeError> {
        Ok(self.held.borrow().contains(path))
    }
}
