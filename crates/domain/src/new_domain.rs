//! A definition for a VM that does not exist yet, from plain data: what it needs, and no device nobody asked for.
//!
//! What a placement decides (pins, nodes, page size, caches and engines of disks, guest cells) is not in here: the
//! setters write it, as into any other definition.

use nearmetal_units::{Bytes, MacAddress, VlanId};

use crate::document::DomainXml;
use crate::element::functions::Function;
use crate::element::metadata::NAMESPACE;
use crate::error::DomainError;
use crate::fragment::{Fragment, Layout};

/// Enlightenments Windows is fit for, in libvirt's order (docs of QEMU, "Hyper-V Enlightenments"). `avic` is not among
/// them: QEMU refuses it on processors without that help.
const ENLIGHTENMENTS: [&str; 8] =
    ["relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "stimer", "frequencies"];
/// Enlightenments that libvirt prints behind those.
const LATER_ENLIGHTENMENTS: [&str; 2] = ["tlbflush", "ipi"];
/// Attempts before a guest waiting for a lock tells the hypervisor; Windows' and libvirt's customary value.
const SPINLOCK_RETRIES: u32 = 8191;
/// Letters of target names: `vda` to `vdz`.
const LETTERS: usize = 26;

/// A VM that does not exist yet: x86-64, machine type q35, KVM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDomain {
    /// Name, unique on its host.
    pub name: String,
    /// UUID. Given, not made up: the same data is the same definition.
    pub uuid: String,
    /// A line about it for people.
    pub title: Option<String>,
    /// Workload class, written into `<metadata>` as `nearmetal class` does.
    pub class: Option<String>,
    /// Virtual CPUs, all of them there from the start.
    pub vcpus: u32,
    /// Memory, in whole KiB.
    pub memory: Bytes,
    /// Whether the host may merge its pages with equal ones of other guests (KSM).
    pub share_pages: bool,
    /// What it boots with.
    pub firmware: Firmware,
    /// What it is to run.
    pub system: GuestSystem,
    /// Whether the guest is told that it never waits for a PU: only where each vCPU has one of its own.
    pub hint_dedicated: bool,
    /// Whether the guest sees a time stamp counter that never changes its rate. Such a guest is not migrated.
    pub invariant_tsc: bool,
    /// Whether the guest gives memory it does not use back to the host; without it there is no balloon at all.
    pub free_page_reporting: bool,
    /// Disks in their order; the first is booted from.
    pub disks: Vec<NewDisk>,
    /// Interfaces in their order; virtual functions are among `functions`.
    pub interfaces: Vec<NewInterface>,
    /// PCI functions handed through.
    pub functions: Vec<Function>,
}

/// What a VM boots with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Firmware {
    /// SeaBIOS.
    #[default]
    Bios,
    /// UEFI; libvirt chooses the image and keeps the variables in a file of its own.
    Efi,
}

/// What a VM is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestSystem {
    /// Linux, or another system with drivers for virtio and a clock in UTC.
    #[default]
    Linux,
    /// Windows: Hyper-V's enlightenments and a clock in local time.
    Windows,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDisk {
    /// Where it lies.
    pub source: NewDiskSource,
    /// How the guest drives it.
    pub bus: DiskBus,
}

/// Where a new disk lies. It must be there: nothing here makes an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewDiskSource {
    /// A block device, by its path.
    Block(String),
    /// An image, by its path.
    File {
        /// Path.
        path: String,
        /// Format.
        format: ImageFormat,
    },
    /// A volume of one of libvirt's pools.
    Volume {
        /// Pool.
        pool: String,
        /// Volume.
        volume: String,
        /// Format.
        format: ImageFormat,
    },
}

/// Format of an image. Given, not guessed: a guest could write what looks like another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// The disk, byte for byte.
    Raw,
    /// QEMU's own.
    Qcow2,
}

/// How a guest drives a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskBus {
    /// virtio-blk.
    #[default]
    Virtio,
    /// virtio-scsi.
    Scsi,
}

/// A virtio network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInterface {
    /// What it hangs on.
    pub source: NewInterfaceSource,
    /// Hardware address; `None`: libvirt makes one up when it stores the definition.
    pub mac: Option<MacAddress>,
    /// Who moves its packets; `None` is libvirt's choice: the kernel where it can.
    pub backend: Option<NetworkBackend>,
    /// Pairs of queues; `None` for one.
    pub queues: Option<u32>,
}

/// What a new interface hangs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewInterfaceSource {
    /// One of libvirt's networks.
    Network(String),
    /// A bridge of the host.
    Bridge(String),
    /// An interface of the host, through macvtap in its mode `bridge`.
    Macvtap(String),
    /// A network inside QEMU alone: the guest reaches what its host's user reaches, and nobody reaches it.
    User,
    /// One of libvirt's networks that deals virtual functions (`<forward mode='hostdev'>`), and the VLAN of the one dealt.
    FunctionPool(String, Option<VlanId>),
}

/// Who moves the packets of a tap interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkBackend {
    /// The kernel's vhost workers.
    Vhost,
    /// QEMU itself.
    Qemu,
}

impl NewDomain {
    /// A VM without disks and interfaces: BIOS, Linux, nothing shared, no balloon.
    pub fn new(name: impl Into<String>, uuid: impl Into<String>, vcpus: u32, memory: Bytes) -> Self {
        Self {
            name: name.into(),
            uuid: uuid.into(),
            title: None,
            class: None,
            vcpus,
            memory,
            share_pages: false,
            firmware: Firmware::default(),
            system: GuestSystem::default(),
            hint_dedicated: false,
            invariant_tsc: false,
            free_page_reporting: false,
            disks: Vec::new(),
            interfaces: Vec::new(),
            functions: Vec::new(),
        }
    }

    /// The definition, as libvirt would lay it out. The same data gives the same text.
    ///
    /// # Errors
    /// A name or UUID libvirt refuses, no vCPU, no memory or part of a KiB, an empty or relative path, more than 26 disks
    /// of one bus, zero queues, a cell for a function (the definition has none yet), or a character XML has no place for.
    pub fn to_xml(&self) -> Result<DomainXml, DomainError> {
        self.check()?;
        let layout = Layout { newline: "\n", indent: String::new(), step: "  ".to_owned() };
        let mut xml = DomainXml::parse(&format!("{}\n", self.fragment().print(Some(&layout))))?;
        // Both are written already: this is their check.
        xml.set_name(&self.name)?;
        xml.set_uuid(&self.uuid)?;
        xml.set_functions(&self.functions)?;
        Ok(xml)
    }

    fn check(&self) -> Result<(), DomainError> {
        let wrong = |what, value: &str, rule| Err(DomainError::argument(what, value, rule));
        if self.vcpus == 0 {
            return wrong("the number of vCPUs", "0", "at least 1");
        }
        if self.memory == Bytes::ZERO || self.memory.get() % 1024 != 0 {
            return wrong("the memory", &self.memory.to_string(), "libvirt counts it in whole KiB, one at least");
        }
        for line in self.title.iter().chain(&self.class) {
            if line.trim().is_empty() || line.chars().any(char::is_control) {
                return wrong("a title or class", line, "one line, and not an empty one");
            }
        }
        for disk in &self.disks {
            match &disk.source {
                NewDiskSource::Block(path) | NewDiskSource::File { path, .. } if !path.starts_with('/') => {
                    return wrong("the path of a disk", path, "it begins with `/`");
                }
                NewDiskSource::Volume { pool, volume, .. } if pool.is_empty() || volume.is_empty() => {
                    return wrong("the volume of a disk", &format!("{pool}/{volume}"), "a pool and a volume in it");
                }
                _ => {}
            }
        }
        for bus in [DiskBus::Virtio, DiskBus::Scsi] {
            let count = self.disks.iter().filter(|disk| disk.bus == bus).count();
            if count > LETTERS {
                return wrong("the number of disks of one bus", &count.to_string(), "at most 26");
            }
        }
        for interface in &self.interfaces {
            let name = match &interface.source {
                NewInterfaceSource::Network(name)
                | NewInterfaceSource::Bridge(name)
                | NewInterfaceSource::Macvtap(name)
                | NewInterfaceSource::FunctionPool(name, _) => name,
                NewInterfaceSource::User => "user",
            };
            if name.is_empty() || interface.queues == Some(0) {
                return wrong("an interface", name, "it hangs on something, and has one queue at least");
            }
        }
        Ok(())
    }

    fn fragment(&self) -> Fragment {
        let element = Fragment::new;
        let memory = |name| element(name).attribute("unit", "KiB").text(self.memory.kib());
        let sharing = (!self.share_pages).then(|| element("memoryBacking").child(element("nosharepages")));
        let kind = element("type").attribute("arch", "x86_64").attribute("machine", "q35").text("hvm");
        let os = match self.firmware {
            Firmware::Bios => element("os"),
            Firmware::Efi => element("os").attribute("firmware", "efi"),
        };
        element("domain")
            .attribute("type", "kvm")
            .child(element("name").text(&self.name))
            .child(element("uuid").text(&self.uuid))
            .children(self.title.as_ref().map(|title| element("title").text(title)))
            .children(self.class.as_ref().map(|class| {
                let class = element("nearmetal:class").attribute("xmlns:nearmetal", NAMESPACE).text(class);
                element("metadata").child(class)
            }))
            .child(memory("memory"))
            .child(memory("currentMemory"))
            .children(sharing)
            .child(element("vcpu").attribute("placement", "static").text(self.vcpus))
            .child(os.child(kind).child(element("boot").attribute("dev", "hd")))
            .child(self.features())
            .child(self.cpu())
            .child(self.clock())
            .child(element("on_poweroff").text("destroy"))
            .child(element("on_reboot").text("restart"))
            .child(element("on_crash").text("destroy"))
            .child(self.devices())
    }

    fn features(&self) -> Fragment {
        let on = |name: &'static str| Fragment::new(name).attribute("state", "on");
        let mut features = Fragment::new("features").child(Fragment::new("acpi")).child(Fragment::new("apic"));
        if self.system == GuestSystem::Windows {
            let names = ENLIGHTENMENTS.into_iter().chain(LATER_ENLIGHTENMENTS);
            let each = names.map(|name| match name {
                "spinlocks" => on(name).attribute("retries", SPINLOCK_RETRIES),
                _ => on(name),
            });
            features = features.child(Fragment::new("hyperv").attribute("mode", "custom").children(each));
        }
        if self.hint_dedicated {
            features = features.child(Fragment::new("kvm").child(on("hint-dedicated")));
        }
        features
    }

    fn cpu(&self) -> Fragment {
        // What is handed through cannot go to another host, and neither can a counter of this one's rate.
        let migratable = self.functions.is_empty() && !self.invariant_tsc;
        let topology = Fragment::new("topology")
            .attribute("sockets", 1)
            .attribute("dies", 1)
            .attribute("cores", self.vcpus)
            .attribute("threads", 1);
        let counter = Fragment::new("feature").attribute("policy", "require").attribute("name", "invtsc");
        Fragment::new("cpu")
            .attribute("mode", "host-passthrough")
            .attribute("check", "none")
            .attribute("migratable", if migratable { "on" } else { "off" })
            .child(topology)
            .children(self.invariant_tsc.then_some(counter))
    }

    fn clock(&self) -> Fragment {
        let timer = |name: &'static str, attribute: &'static str, value: &str| {
            Fragment::new("timer").attribute("name", name).attribute(attribute, value)
        };
        let windows = self.system == GuestSystem::Windows;
        let native = timer("tsc", "present", "yes").attribute("mode", "native");
        Fragment::new("clock")
            .attribute("offset", if windows { "localtime" } else { "utc" })
            .child(timer("rtc", "tickpolicy", "catchup"))
            .child(timer("pit", "tickpolicy", "delay"))
            .child(timer("hpet", "present", "no"))
            .children(windows.then(|| timer("hypervclock", "present", "yes")))
            .children(self.invariant_tsc.then_some(native))
    }

    fn devices(&self) -> Fragment {
        let element = Fragment::new;
        let of = |name: &'static str, kind: &str| element(name).attribute("type", kind);
        let scsi = self.disks.iter().any(|disk| disk.bus == DiskBus::Scsi);
        let scsi = scsi.then(|| of("controller", "scsi").attribute("index", 0).attribute("model", "virtio-scsi"));
        let port = of("target", "isa-serial").attribute("port", 0);
        let port = port.child(element("model").attribute("name", "isa-serial"));
        let agent = of("target", "virtio").attribute("name", "org.qemu.guest_agent.0");
        let balloon = if self.free_page_reporting {
            element("memballoon").attribute("model", "virtio").attribute("freePageReporting", "on")
        } else {
            element("memballoon").attribute("model", "none")
        };
        let random = element("backend").attribute("model", "random").text("/dev/urandom");
        element("devices")
            .children(self.disks.iter().enumerate().map(|(number, disk)| self.disk(number, disk)))
            // Without saying so, libvirt adds a USB controller.
            .child(of("controller", "usb").attribute("index", 0).attribute("model", "none"))
            .children(scsi)
            .children(self.interfaces.iter().map(interface_element))
            .child(of("serial", "pty").child(port))
            .child(of("console", "pty").child(of("target", "serial").attribute("port", 0)))
            .child(of("channel", "unix").child(agent))
            .child(balloon)
            .child(element("rng").attribute("model", "virtio").child(random))
    }

    fn disk(&self, number: usize, disk: &NewDisk) -> Fragment {
        let before = self.disks[..number].iter().filter(|other| other.bus == disk.bus).count();
        // At most 26 of a bus: checked.
        disk_element(disk, char::from(b'a' + (before % LETTERS) as u8))
    }
}

/// The element of a disk whose name ends in this letter.
pub(crate) fn disk_element(disk: &NewDisk, letter: char) -> Fragment {
    let (prefix, bus) = match disk.bus {
        DiskBus::Virtio => ("vd", "virtio"),
        DiskBus::Scsi => ("sd", "scsi"),
    };
    let source = Fragment::new("source");
    let (kind, format, source) = match &disk.source {
        NewDiskSource::Block(path) => ("block", ImageFormat::Raw, source.attribute("dev", path)),
        NewDiskSource::File { path, format } => ("file", *format, source.attribute("file", path)),
        NewDiskSource::Volume { pool, volume, format } => {
            ("volume", *format, source.attribute("pool", pool).attribute("volume", volume))
        }
    };
    let driver = Fragment::new("driver").attribute("name", "qemu");
    let driver = match format {
        ImageFormat::Raw => driver.attribute("type", "raw"),
        // What the guest discards shall not stay in an image that grows.
        ImageFormat::Qcow2 => driver.attribute("type", "qcow2").attribute("discard", "unmap"),
    };
    Fragment::new("disk")
        .attribute("type", kind)
        .attribute("device", "disk")
        .child(driver)
        .child(source)
        .child(Fragment::new("target").attribute("dev", format!("{prefix}{letter}")).attribute("bus", bus))
}

/// The element of an interface.
pub(crate) fn interface_element(interface: &NewInterface) -> Fragment {
    let source = Fragment::new("source");
    let user = interface.source == NewInterfaceSource::User;
    let (kind, source) = match &interface.source {
        NewInterfaceSource::User => ("user", source),
        NewInterfaceSource::Network(name) => ("network", source.attribute("network", name)),
        NewInterfaceSource::Bridge(name) => ("bridge", source.attribute("bridge", name)),
        NewInterfaceSource::Macvtap(device) => ("direct", source.attribute("dev", device).attribute("mode", "bridge")),
        NewInterfaceSource::FunctionPool(name, _) => ("network", source.attribute("network", name)),
    };
    if let NewInterfaceSource::FunctionPool(_, vlan) = &interface.source {
        let tag = vlan.map(|vlan| Fragment::new("vlan").child(Fragment::new("tag").attribute("id", vlan)));
        // The guest sees the function itself: it has neither model nor driver.
        return Fragment::new("interface")
            .attribute("type", kind)
            .children(interface.mac.map(|mac| Fragment::new("mac").attribute("address", mac)))
            .child(source)
            .children(tag);
    }
    let backend = interface.backend.map(NetworkBackend::as_str);
    let mut driver = Fragment::new("driver");
    if let Some(backend) = backend {
        driver = driver.attribute("name", backend);
    }
    if let Some(queues) = interface.queues {
        driver = driver.attribute("queues", queues);
    }
    let written = backend.is_some() || interface.queues.is_some();
    Fragment::new("interface")
        .attribute("type", kind)
        .children(interface.mac.map(|mac| Fragment::new("mac").attribute("address", mac)))
        .children((!user).then_some(source))
        .child(Fragment::new("model").attribute("type", "virtio"))
        .children(written.then_some(driver))
}
