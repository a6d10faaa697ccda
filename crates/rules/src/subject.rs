//! One definition of one domain, as a rule sees it.

use std::collections::{BTreeMap, BTreeSet};

use nearmetal_domain::{DiskFacts, DomainFacts, HugepageFacts, InterfaceFacts, PeripheralFacts};
use nearmetal_host::images::ImageChain;
use nearmetal_host::{GuestProcess, Host, ThreadRole};
use nearmetal_place::WorkloadClass;
use nearmetal_units::{CpuSet, NodeSet, PageSize};

use crate::context::Context;
use crate::cure::{Cure, Thread};
use crate::finding::{Outcome, Which};
use crate::input::Domain;

/// One definition of one domain.
#[derive(Debug)]
pub struct Subject<'a> {
    /// Everything else.
    pub context: &'a Context<'a>,
    /// The domain it is a definition of.
    pub domain: &'a Domain,
    /// What the definition says.
    pub facts: &'a DomainFacts,
    /// Its class.
    pub class: WorkloadClass,
    /// Which definition this is.
    pub which: Which,
    /// Its process, in the running view alone.
    pub process: Option<&'a GuestProcess>,
    /// PUs each vCPU may run on: what the kernel shows for a running one, else the pins. A vCPU without a pin is not
    /// in there, nor one that may run everywhere.
    pub vcpus: BTreeMap<u32, CpuSet>,
}

impl<'a> Subject<'a> {
    /// A definition.
    pub fn new(context: &'a Context<'a>, domain: &'a Domain, facts: &'a DomainFacts, which: Which) -> Self {
        let process = (which == Which::Running).then(|| context.process(&facts.name)).flatten();
        let seen: BTreeMap<u32, CpuSet> = process
            .into_iter()
            .flat_map(|process| &process.threads)
            .filter_map(|thread| match (&thread.role, &thread.affinity) {
                (ThreadRole::Vcpu(number), Some(cpus)) => Some((*number, cpus.clone())),
                _ => None,
            })
            .collect();
        let mut vcpus = if seen.is_empty() { facts.vcpu_pins.iter().cloned().collect() } else { seen };
        if !context.online.is_empty() {
            vcpus.retain(|_, cpus| !context.online.is_subset(cpus));
        }
        Self { context, domain, facts, class: domain.class, which, process, vcpus }
    }

    /// What the guest shows of itself.
    ///
    /// # Errors
    /// The answer of every rule about it where nobody looked.
    pub fn inside(&self) -> Result<&'a Host, Outcome> {
        self.domain.inside.as_ref().ok_or_else(|| {
            Outcome::unknown(format!(
                "the inside of {} (--guest-capture, or --guests with its agent)",
                self.domain.name
            ))
        })
    }

    /// Disks the guest may write that are image files or block devices, each with what `qemu-img` says of its image.
    ///
    /// # Errors
    /// An image `qemu-img` says nothing of: what is missing, in words.
    pub fn images(&self) -> impl Iterator<Item = (&'a DiskFacts, Result<&'a ImageChain, String>)> + use<'a> {
        let images = &self.domain.images;
        let stored = |disk: &&DiskFacts| matches!(disk.kind.as_str(), "file" | "block");
        self.disks().filter(stored).filter_map(move |disk| {
            let source = disk.source.as_deref()?;
            let chain = match images.get(source) {
                Some(Ok(chain)) => Ok(chain),
                Some(Err(missing)) => Err(missing.clone()),
                None => Err(format!("{source} (--image-info)")),
            };
            Some((disk, chain))
        })
    }

    /// Judges each image there is something to judge of; `judge` gives `None` where the rule says nothing of it.
    pub fn judge_images(
        &self,
        applies: impl Fn(&DiskFacts) -> bool,
        judge: impl Fn(&DiskFacts, &ImageChain) -> Option<Outcome>,
    ) -> Outcome {
        let (mut objects, mut missing, mut clean) = (Vec::new(), Vec::new(), false);
        for (disk, chain) in self.images().filter(|(disk, _)| applies(disk)) {
            match chain.map(|chain| judge(disk, chain)) {
                Ok(Some(Outcome::Broken(found))) => objects.extend(found),
                Ok(Some(Outcome::CannotTell(paths))) => missing.extend(paths),
                Ok(Some(Outcome::Clean)) => clean = true,
                Ok(Some(Outcome::NotApplicable) | None) => {}
                Err(path) => missing.push(path),
            }
        }
        missing.dedup();
        match (objects.is_empty(), missing.is_empty()) {
            (false, _) => Outcome::Broken(objects),
            (true, false) => Outcome::CannotTell(missing),
            (true, true) if clean => Outcome::Clean,
            (true, true) => Outcome::NotApplicable,
        }
    }

    /// The PU of each vCPU that has one of its own to run on.
    pub fn single_pins(&self) -> BTreeMap<u32, u32> {
        self.vcpus
            .iter()
            .filter(|(_, cpus)| cpus.len() == 1)
            .filter_map(|(vcpu, cpus)| Some((*vcpu, cpus.first()?)))
            .collect()
    }

    /// Whether each vCPU it starts with has one PU of its own, no two the same.
    pub fn is_pinned_one_to_one(&self) -> bool {
        let pins = self.single_pins();
        let distinct: CpuSet = pins.values().copied().collect();
        (0..self.facts.vcpus.current).all(|vcpu| pins.contains_key(&vcpu)) && distinct.len() == pins.len()
    }

    /// PUs of all pinned vCPUs.
    pub fn vcpu_cpus(&self) -> CpuSet {
        self.vcpus.values().fold(CpuSet::new(), |all, cpus| all.union(cpus))
    }

    /// Nodes of the PUs of all pinned vCPUs.
    pub fn vcpu_nodes(&self, host: &Host) -> NodeSet {
        nodes_of(host, &self.vcpu_cpus())
    }

    /// Where its emulator and iothreads can run: online PUs of its vCPUs' nodes that are no vCPU's own, of any domain,
    /// and that are not to be kept quiet. `None` where there is none, or too little is known to choose.
    pub(crate) fn housekeeping_cpus(&self) -> Option<CpuSet> {
        let (host, quiet) = (self.context.host?, self.context.quiet.as_ref()?);
        let nodes = self.vcpu_nodes(host);
        let near = host.nodes.iter().filter(|node| nodes.contains(node.index));
        let near = near.fold(CpuSet::new(), |all, node| all.union(&node.cpus));
        let owned: CpuSet = self.context.owners.keys().copied().collect();
        let free = near.intersection(&self.context.online).difference(&owned).difference(quiet);
        Some(free.difference(&self.vcpu_cpus())).filter(|cpus| !cpus.is_empty())
    }

    /// What its stored definition says, where there is one: someone may have changed what is in force.
    pub(crate) fn stored_or_own(&self) -> &'a DomainFacts {
        let domain = self.context.domains.iter().find(|domain| domain.name == self.facts.name);
        domain.and_then(|domain| domain.defined.as_ref()).unwrap_or(self.facts)
    }

    /// Where the stored definition pins a thread, if that is better than where it runs: on PUs that no vCPU of it has.
    fn stored_pin(&self, thread: Thread) -> Option<CpuSet> {
        let stored = self.context.domains.iter().find(|domain| domain.name == self.facts.name)?.defined.as_ref()?;
        let of = |facts: &DomainFacts| match thread {
            Thread::Vcpu(number) => pin_of(&facts.vcpu_pins, number),
            Thread::Emulator => facts.emulator_pin.clone(),
            Thread::Iothread(number) => pin_of(&facts.iothreads.pins, number),
        };
        let pin = of(stored).filter(|pin| of(self.facts).as_ref() != Some(pin))?.intersection(&self.context.online);
        Some(pin).filter(|pin| !pin.is_empty() && pin.is_disjoint(&self.vcpu_cpus()))
    }

    /// Moves threads to [`housekeeping_cpus`](Self::housekeeping_cpus): those that start next time, and those that run
    /// unless their stored definition has a better place.
    pub(crate) fn move_aside(&self, thread: Thread) -> Option<Cure> {
        let stored = if self.which == Which::Running { self.stored_pin(thread) } else { None };
        let cpus = stored.or_else(|| self.housekeeping_cpus())?;
        Some(match (self.which, thread) {
            (Which::Running, _) => Cure::LivePin { thread, cpus },
            (_, Thread::Vcpu(number)) => {
                Cure::attribute(format!("cputune/vcpupin[@vcpu='{number}']"), "cpuset", cpus.to_string())
            }
            (_, Thread::Emulator) => Cure::attribute("cputune/emulatorpin", "cpuset", cpus.to_string()),
            (_, Thread::Iothread(number)) => {
                Cure::attribute(format!("cputune/iothreadpin[@iothread='{number}']"), "cpuset", cpus.to_string())
            }
        })
    }

    /// Nodes its memory comes from by its definition; `None` where that is left open.
    pub fn memory_nodes(&self) -> Option<NodeSet> {
        let tune = self.facts.numatune.as_ref()?;
        let cells = tune.cells.iter().filter_map(|cell| cell.nodes.clone());
        cells.chain(tune.nodes.clone()).reduce(|all, nodes| all.union(&nodes))
    }

    /// Whether its CPUs are x86; without an architecture libvirt takes the host's, which is x86 nearly always.
    pub fn is_x86(&self) -> bool {
        matches!(self.facts.boot.architecture.as_deref(), None | Some("x86_64" | "i686"))
    }

    /// Whether its vCPUs are real and not emulated or of libvirt's test driver.
    pub fn is_kvm(&self) -> bool {
        self.facts.kind == "kvm"
    }

    /// Hard disks the guest may write.
    pub fn disks(&self) -> impl Iterator<Item = &'a DiskFacts> + use<'a> {
        self.facts.disks.iter().filter(|disk| disk.device == "disk" && !disk.readonly)
    }

    /// Whether a disk is a file that was seen not to open past the page cache: with cache='none' its guest does not start.
    pub(crate) fn refuses_direct(&self, disk: &DiskFacts) -> bool {
        self.context.host.zip(disk.source.as_deref()).is_some_and(|(host, path)| host.refuses_direct(path))
    }

    /// The SCSI controller a disk hangs on; libvirt deals seven disks to each where none is named.
    pub fn scsi_controllers(&self) -> impl Iterator<Item = &'a PeripheralFacts> + use<'a> {
        self.peripherals("controller").filter(|device| device.kind.as_deref() == Some("scsi"))
    }

    /// Devices of one element.
    pub fn peripherals(&self, element: &'static str) -> impl Iterator<Item = &'a PeripheralFacts> + use<'a> {
        self.facts.peripherals.iter().filter(move |device| device.element == element)
    }

    /// virtio interfaces whose packets pass the host's kernel.
    pub fn tap_interfaces(&self) -> impl Iterator<Item = &'a InterfaceFacts> + use<'a> {
        self.facts.interfaces.iter().filter(|interface| interface.is_virtio_tap())
    }

    /// Whether its memory comes from hugepage pools.
    pub fn uses_hugetlb(&self) -> bool {
        uses_hugetlb(self.facts)
    }
}

/// Whether a domain's memory comes from hugepage pools. libvirt takes a page of the system's own size for ordinary
/// memory.
pub(crate) fn uses_hugetlb(facts: &DomainFacts) -> bool {
    let ordinary = |pages: &[HugepageFacts]| !pages.is_empty() && pages.iter().all(|page| page.size <= PageSize::SMALL);
    facts.hugepages.as_deref().is_some_and(|pages| !ordinary(pages))
}

/// The size of the pages that a domain takes from pools; `None` where it takes none.
pub(crate) fn pool_page(facts: &DomainFacts) -> Option<PageSize> {
    let pages = facts.hugepages.as_deref().filter(|_| uses_hugetlb(facts))?;
    Some(pages.first().map_or(PageSize::HUGE_2M, |page| page.size))
}

/// Nodes of these PUs.
pub(crate) fn nodes_of(host: &Host, cpus: &CpuSet) -> NodeSet {
    host.nodes.iter().filter(|node| !node.cpus.is_disjoint(cpus)).map(|node| node.index).collect()
}

/// The pin of that number.
fn pin_of(pins: &[(u32, CpuSet)], number: u32) -> Option<CpuSet> {
    pins.iter().find(|(known, _)| *known == number).map(|(_, cpus)| cpus.clone())
}

/// The place of a child of a disk in a definition.
pub(crate) fn of_disk(disk: &DiskFacts, child: &str) -> Option<String> {
    Some(format!("devices/disk[target/@dev={}]/{child}", quoted(&disk.target)?))
}

/// The place of a child of an interface in a definition; `None` for one without an address to know it by.
pub(crate) fn of_interface(interface: &InterfaceFacts, child: &str) -> Option<String> {
    Some(format!("devices/interface[mac/@address={}]/{child}", quoted(interface.mac.as_deref()?)?))
}

/// A value as XPath quotes it, which has no escapes.
fn quoted(value: &str) -> Option<String> {
    let quote = ['\'', '"'].into_iter().find(|quote| !value.contains(*quote))?;
    Some(format!("{quote}{value}{quote}"))
}

/// How an interface is called in a finding: by its MAC address, else by its source.
pub(crate) fn interface_name(interface: &InterfaceFacts) -> String {
    let name = interface.mac.as_deref().or(interface.source.as_deref()).unwrap_or("without address");
    format!("interface {name}")
}

/// Family and version of a machine type of upstream QEMU: `pc-q35-7.2` is (`q35`, 7, 2). Distributions' own numbers
/// (`pc-q35-rhel9.4.0`, `pc-q35-noble`) say nothing about QEMU's version.
pub(crate) fn machine_version(machine: &str) -> Option<(&str, u32, u32)> {
    let (family, version) = machine.strip_prefix("pc-")?.rsplit_once('-')?;
    let (major, minor) = version.split_once('.')?;
    Some((family, major.parse().ok()?, minor.parse().ok()?))
}

/// Names for a message: three of them, and how many more.
pub(crate) fn some_of(names: &BTreeSet<&str>) -> String {
    const SHOWN: usize = 3;
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    let more = names.len().saturating_sub(SHOWN);
    if more > 0 { format!("{} and {more} more", shown.join(", ")) } else { shown.join(", ") }
}
