//! A machine in memory: a kernel with hugepage pools, a hypervisor that is a fake, a state directory that is real.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use nearmetal_hypervisor::{Definition, Fake, Hypervisor};
use nearmetal_place::{CacheMode, DiskEngine, DiskPlacement, MemoryPlacement, Placement, Plan, PoolChange, VcpuPin};
use nearmetal_units::{CpuSet, PageSize};

use crate::pins::PinTarget;
use crate::verify::{VERIFICATION_SCHEMA, Verification};
use crate::*;

pub(super) const POOL: &str = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB";
pub(super) const BALANCING: &str = "/proc/sys/kernel/numa_balancing";
pub(super) const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
pub(super) const UUID: &str = "11111111-2222-3333-4444-555555555555";

pub(crate) fn xml(options: &str) -> String {
    format!(
        "<domain type='kvm'>
  <name>web1</name>
  <uuid>{UUID}</uuid>
  <memory unit='KiB'>524288</memory>
  <currentMemory unit='KiB'>524288</currentMemory>
  <vcpu placement='static'>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <devices>
    <disk type='block' device='disk'>
      <driver name='qemu' type='raw'{options}/>
      <source dev='/dev/nvme0n1'/>
      <target dev='vda' bus='virtio'/>
    </disk>
  </devices>
</domain>
"
    )
}

/// A kernel that has only the files a change touches, and so many pages to give.
#[derive(Debug)]
pub(crate) struct MemoryKernel {
    pub(super) files: RefCell<BTreeMap<String, String>>,
    pub(super) most_pages: u64,
    pub(super) affinity: RefCell<BTreeMap<PinTarget, CpuSet>>,
    pub(super) inventory: nearmetal_host::Host,
    /// vhost workers of the one guest.
    pub(super) workers: RefCell<BTreeMap<u32, CpuSet>>,
    /// When the one guest's QEMU was started.
    pub(super) started: Cell<u64>,
}

impl Default for MemoryKernel {
    fn default() -> Self {
        let files = [
            (format!("{POOL}/nr_hugepages"), "16\n"),
            (format!("{POOL}/surplus_hugepages"), "0\n"),
            (
                "/sys/devices/system/node/node1/meminfo".to_owned(),
                "Node 1 MemTotal: 2097152 kB\nNode 1 MemFree: 1048576 kB\n",
            ),
            ("/proc/sys/kernel/random/boot_id".to_owned(), "boot-one\n"),
            ("/proc/sys/vm/compact_memory".to_owned(), ""),
            (BALANCING.to_owned(), "1\n"),
            (THP.to_owned(), "[always] madvise never\n"),
            ("/proc/modules".to_owned(), "kvm 1363968 1 kvm_amd, Live 0x0000000000000000\n"),
        ];
        Self {
            files: RefCell::new(files.into_iter().map(|(path, text)| (path, text.to_owned())).collect()),
            most_pages: 4096,
            affinity: RefCell::default(),
            inventory: host(),
            workers: RefCell::default(),
            started: Cell::new(4_200),
        }
    }
}

impl MemoryKernel {
    pub(crate) fn set(&self, path: &str, text: &str) {
        self.files.borrow_mut().insert(path.to_owned(), text.to_owned());
    }

    pub(super) fn pages(&self) -> String {
        self.files.borrow()[&format!("{POOL}/nr_hugepages")].trim().to_owned()
    }
}

impl Kernel for MemoryKernel {
    fn read(&self, path: &str) -> Result<Option<String>, ChangeError> {
        Ok(self.files.borrow().get(path).cloned())
    }

    fn write(&self, path: &str, value: &str) -> Result<(), ChangeError> {
        let now = self.files.borrow().get(path).cloned().unwrap_or_default();
        let text = match value.parse::<u64>() {
            Ok(pages) if path.ends_with("nr_hugepages") => pages.min(self.most_pages).to_string(),
            // A file of choices shows all of them.
            _ if now.contains('[') => {
                let choices = now.replace(['[', ']'], "");
                choices
                    .split_whitespace()
                    .map(|word| if word == value { format!("[{word}]") } else { word.to_owned() })
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            _ => value.to_owned(),
        };
        self.set(path, &format!("{text}\n"));
        Ok(())
    }

    fn affinity(&self, _uuid: &str, target: PinTarget) -> Result<Option<CpuSet>, ChangeError> {
        Ok(self.affinity.borrow().get(&target).cloned())
    }

    fn load_module(&self, module: &str) -> Result<(), ChangeError> {
        let text = self.files.borrow()["/proc/modules"].clone();
        self.set("/proc/modules", &format!("{module} 36864 0 - Live 0x0000000000000000\n{text}"));
        Ok(())
    }

    fn unload_module(&self, module: &str) -> Result<(), ChangeError> {
        let text = self.files.borrow()["/proc/modules"].clone();
        let kept = text.lines().filter(|line| !line.starts_with(module)).map(|line| format!("{line}\n"));
        self.set("/proc/modules", &kept.collect::<String>());
        Ok(())
    }

    fn inventory(&self) -> nearmetal_host::Host {
        self.inventory.clone()
    }

    fn guest_memory(&self, _uuid: &str, _node: u32) -> Result<u64, ChangeError> {
        Ok(512 << 20)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, ChangeError> {
        let below = format!("{path}/");
        let files = self.files.borrow();
        Ok(files.keys().filter_map(|file| Some(file.strip_prefix(&below)?.split('/').next()?.to_owned())).collect())
    }

    fn guest(&self, uuid: &str) -> Result<Option<u32>, ChangeError> {
        Ok((uuid == UUID).then_some(4700))
    }

    fn started(&self, _pid: u32) -> Result<Option<u64>, ChangeError> {
        Ok(Some(self.started.get()))
    }

    fn vhost_workers(&self, _pid: u32) -> Result<Vec<(u32, CpuSet)>, ChangeError> {
        Ok(self.workers.borrow().iter().map(|(thread, cpus)| (*thread, cpus.clone())).collect())
    }

    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> Result<(), ChangeError> {
        self.workers.borrow_mut().insert(thread, cpus.clone());
        Ok(())
    }
}

/// The machine and what lies on its disk.
pub(super) struct Stage {
    pub(super) kernel: MemoryKernel,
    pub(super) hypervisor: Fake,
    pub(super) boot_id: String,
    pub(super) root: bool,
    pub(super) directory: tempfile::TempDir,
}

/// All that a rollback has to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) stored: String,
    pub(super) in_force: Option<String>,
    pub(super) pages: String,
    pub(super) unit: bool,
    /// Settings and modules.
    pub(super) settings: Vec<String>,
}

impl Stage {
    /// `web1` runs, as people have it.
    pub(super) fn new() -> Self {
        Self::with(Fake::new("").with_running_domain(&xml("")))
    }

    pub(super) fn with(hypervisor: Fake) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { kernel: MemoryKernel::default(), hypervisor, boot_id: "boot-one".to_owned(), root: true, directory }
    }

    pub(super) fn journal(&self) -> Journal {
        Journal::at(self.directory.path().join("state"))
    }

    pub(super) fn machine(&mut self) -> Machine<'_> {
        Machine {
            kernel: &self.kernel,
            hypervisor: &mut self.hypervisor,
            host: identity(),
            boot_id: self.boot_id.clone(),
            unit_directory: self.directory.path().join("units"),
            hook_directory: self.directory.path().join("hooks"),
            program: "/usr/bin/nearmetal".into(),
            patience: Duration::ZERO,
            surroundings: Surroundings { is_root: self.root, exists: |path| path != Path::new("/dev/absent") },
        }
    }

    pub(super) fn apply(
        &mut self,
        plan: &PlanFile,
        options: &ApplyOptions,
        faults: &Faults,
    ) -> Result<Applied, ChangeError> {
        let journal = self.journal();
        let (mut read_back, mut say) = (read_back(0), |_: &str| {});
        let job = Apply { journal: &journal, plan, options, faults, read_back: &mut read_back, say: &mut say };
        apply(&mut self.machine(), job)
    }

    pub(super) fn rollback(&mut self, options: &RollbackOptions, faults: &Faults) -> Result<RolledBack, ChangeError> {
        let journal = self.journal();
        rollback(&mut self.machine(), &journal, options, faults, &mut |_| {})
    }

    pub(super) fn snapshot(&mut self) -> Snapshot {
        let off = self.hypervisor.domain("web1").unwrap().state.is_off();
        let live = (!off).then(|| self.hypervisor.domain_xml("web1", Definition::Live).unwrap());
        Snapshot {
            stored: self.hypervisor.domain_xml("web1", Definition::Inactive).unwrap(),
            // The instance's number differs after a restart; the form is what counts.
            in_force: live.map(|xml| xml.split_once('>').map(|(_, rest)| rest.to_owned()).unwrap_or_default()),
            pages: self.kernel.pages(),
            settings: [BALANCING, THP, "/proc/modules"].map(|path| self.kernel.files.borrow()[path].clone()).to_vec(),
            unit: self.directory.path().join("units").join(UNIT_NAME).exists(),
        }
    }

    /// Power off and on: guests end, pools are empty, autostart is off.
    pub(super) fn reboot(&mut self) {
        self.boot_id.push_str("-next");
        self.hypervisor.set_state("web1", nearmetal_hypervisor::DomainState::ShutOff);
        let fresh = MemoryKernel::default();
        for path in [BALANCING, THP, "/proc/modules"] {
            self.kernel.set(path, &fresh.files.borrow()[path]);
        }
        self.kernel.set(&format!("{POOL}/nr_hugepages"), "0\n");
    }
}

/// A read-back that finds so many mismatches.
pub(super) fn read_back(mismatches: usize) -> impl FnMut(&mut Machine<'_>, &PlanFile, &Placement) -> Verification {
    move |_, _, guest| {
        let check = verify::Check {
            subject: "vCPU 0".to_owned(),
            kind: verify::CheckKind::Vcpu,
            planned: "PUs 2".to_owned(),
            found: Some("PUs 3".to_owned()),
            outcome: verify::Outcome::Mismatch,
            place: None,
        };
        Verification {
            schema: VERIFICATION_SCHEMA.to_owned(),
            guest: guest.guest.clone(),
            taken: String::new(),
            checks: vec![check; mismatches],
            guest_view: None,
        }
    }
}

pub(super) fn identity() -> HostIdentity {
    HostIdentity { hostname: "quad".to_owned(), fingerprint: "ab".repeat(32) }
}

pub(super) fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

pub(crate) fn placement() -> Placement {
    Placement {
        guest: "web1".to_owned(),
        uuid: UUID.to_owned(),
        vcpus: vec![VcpuPin { vcpu: 0, cpus: cpus("2") }],
        emulator: cpus("3"),
        iothreads: vec![cpus("3")],
        memory: MemoryPlacement { nodes: "1".parse().unwrap(), page_size: Some(PageSize::HUGE_2M), pages: 256 },
        disks: vec![DiskPlacement {
            target: "vda".to_owned(),
            block_device: None,
            cache: CacheMode::None,
            engine: DiskEngine::IoUring,
            iothread: Some(1),
            iothreads: None,
            queues: Some(1),
        }],
        networks: Vec::new(),
        cells: Vec::new(),
        devices: Vec::new(),
        vhost: Vec::new(),
        interrupts: CpuSet::new(),
        threads_per_core: None,
        guest_polls: None,
        reasons: Vec::new(),
    }
}

pub(super) fn plan() -> Plan {
    let pool = PoolChange { node: 1, size: PageSize::HUGE_2M, before: 16, after: 272 };
    Plan { placements: vec![placement()], pools: vec![pool], ..Plan::default() }
}

/// The plan for `web1` as it is found.
pub(crate) fn plan_file() -> PlanFile {
    let input = DomainInput { name: "web1".to_owned(), inactive_xml: xml(""), live_xml: Some(xml("")) };
    PlanFile { host: identity(), ..compose(&host(), &plan(), &[input]).unwrap() }
}

pub(super) fn host() -> nearmetal_host::Host {
    nearmetal_host::synthetic::Synthetic::new().packages(4).cores_per_node(2).build()
}

pub(super) fn with_restart() -> ApplyOptions {
    ApplyOptions { restart: true, shutdown_timeout: Duration::from_secs(2), ..ApplyOptions::default() }
}

pub(super) fn back_with_restart() -> RollbackOptions {
    RollbackOptions { restart: true, shutdown_timeout: Duration::from_secs(2), ..RollbackOptions::default() }
}
