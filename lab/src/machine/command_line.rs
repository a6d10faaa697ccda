//! QEMU's arguments for a machine. Pure: the same machine and boot give the same arguments.
//!
//! Paths are those inside the image's tree, where QEMU runs: `/lab/image`, `/lab/state`, `/lab/disks`, `/lab/cables`.

use super::{Accelerator, CableEnd, Count, Machine, Network, Nvme};
use crate::image::With;

/// Hardware address of the management interface, by which the lab's initramfs knows it.
pub const MANAGEMENT_ADDRESS: &str = "52:54:00:6c:61:62";

/// The state directory, as QEMU sees it.
const STATE: &str = "/lab/state";
/// The plugin's file in it.
pub(crate) const PLUGIN: &str = "counter.so";
/// The counters' file in it.
pub(crate) const COUNTERS: &str = "counters";
/// Under which name the constants of its modelled time are handed to the machine (QEMU docs/specs/fw_cfg.rst).
const TIME_MODEL: &str = "opt/org.nearmetal/time_model";

/// What differs from boot to boot of the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boot {
    /// Name of the lab.
    pub name: String,
    /// Name of the machine, which the lab shows in its firmware's tables: figures taken in it are known as a lab's.
    pub machine: String,
    /// Random identity of this QEMU (a UUID), by which it is told from any other process.
    pub token: String,
    /// Port on 127.0.0.1 that leads to the lab's SSH server.
    pub ssh_port: u16,
    /// Whether the disks outlive the lab, so that what the guest flushes must reach the host's disk.
    pub durable: bool,
    /// Rate of the host's time stamp counter in kHz, which emulated processors hand through; `None` if unknown.
    pub counter_khz: Option<u32>,
    /// Whether the initramfs is the one in the state directory, with what an earlier boot found out, not the image's.
    pub seeded: bool,
    /// Images beside its disks that it only reads, of which there are links among them.
    pub extras: Vec<Extra>,
    /// Kernel arguments after those of the machine.
    pub append: Vec<String>,
}

/// An image that a lab has as a disk beside its own, and only reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extra {
    /// The programs of real loads, and what it has beside.
    Loads(Option<With>),
    /// The packages over its operating system.
    Layer,
}

impl Extra {
    /// The serial number of its disk.
    pub fn serial(self) -> &'static str {
        match self {
            Self::Loads(None) => "loads",
            Self::Loads(Some(With::Postgresql)) => "loads-postgresql",
            Self::Layer => "layer",
        }
    }

    /// Its file among a lab's disks, and in the cache.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Loads(_) => "loads.erofs",
            Self::Layer => "layer.erofs",
        }
    }
}

/// Kernel arguments every lab has. System call filters guard nothing here and take seconds to set up.
const KERNEL_ARGUMENTS: [&str; 5] = ["console=ttyS0", "quiet", "rw", "audit=0", "SYSTEMD_SECCOMP=0"];

/// Ticks of a Debian kernel's timer each second (CONFIG_HZ).
const HZ: u32 = 250;

/// Kernel arguments about time under emulation.
///
/// Emulated processors share one counter, which the kernel cannot know: without `tsc=reliable` it reads an emulated timer.
/// Its rate is handed in, and with it `lpj`, since calibrating either fails on a busy host.
fn clock_arguments(counter_khz: Option<u32>) -> Vec<String> {
    let Some(khz) = counter_khz else { return Vec::new() };
    let loops_per_jiffy = u64::from(khz) * 1000 / u64::from(HZ);
    vec!["tsc=reliable".to_owned(), format!("tsc_early_khz={khz}"), format!("lpj={loops_per_jiffy}")]
}

/// The arguments of QEMU, program name excluded.
pub fn arguments(machine: &Machine, boot: &Boot) -> Vec<String> {
    let mut line = Line::default();
    base(&mut line, machine, boot);
    memory(&mut line, machine);
    line.add("-device", "intel-iommu,intremap=on,caching-mode=on");
    machine.count.into_iter().for_each(|count| counters(&mut line, machine, count));
    disks(&mut line, machine, boot);
    line.add("-netdev", format!("user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:{}-:22", boot.ssh_port));
    line.add("-device", format!("virtio-net-pci,netdev=management,mac={MANAGEMENT_ADDRESS},bus=pcie.0,romfile="));
    for node in 0..machine.nodes.len() as u32 {
        if !has_devices(machine, node) {
            continue;
        }
        // 24 bus numbers each are room for the virtual functions of several devices.
        let bus = 32 + 24 * node;
        line.add("-device", format!("pxb-pcie,id=pxb{node},bus_nr={bus},numa_node={node},bus=pcie.0"));
        for (index, network) in machine.networks.iter().enumerate().filter(|(_, device)| device.node == node) {
            self::network(&mut line, index, network);
        }
        for (index, drive) in machine.drives.iter().enumerate().filter(|(_, device)| device.node == node) {
            self::drive(&mut line, index, drive, boot);
        }
    }
    line.add("-fw_cfg", "name=opt/io.systemd.credentials/lab.ssh.host_key,file=/lab/state/host_key");
    line.add("-fw_cfg", "name=opt/io.systemd.credentials/lab.ssh.authorized_keys,file=/lab/state/key.pub");
    if let Some(model) = &machine.time_model {
        // A comma ends a value; `,,` stands for one.
        let model = serde_json::to_string(model).unwrap_or_default().replace(',', ",,");
        line.add("-fw_cfg", format!("name={TIME_MODEL},string={model}"));
    }
    line.add("-kernel", "/lab/image/vmlinux");
    line.add("-initrd", if boot.seeded { "/lab/state/initramfs.cpio" } else { "/lab/image/initramfs.cpio" });
    let emulated = machine.processors.accelerator == Accelerator::Tcg;
    let clock = clock_arguments(boot.counter_khz.filter(|_| emulated));
    let kernel = KERNEL_ARGUMENTS.into_iter().chain(machine.libvirt.arguments());
    let kernel = kernel.chain(clock.iter().map(String::as_str));
    let kernel = kernel.chain(machine.kernel_arguments.iter().map(String::as_str));
    let kernel = kernel.chain(boot.append.iter().map(String::as_str));
    line.add("-append", kernel.collect::<Vec<_>>().join(" "));
    line.0
}

#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn add(&mut self, option: &str, value: impl Into<String>) {
        self.0.push(option.to_owned());
        self.0.push(value.into());
    }
}

fn base(line: &mut Line, machine: &Machine, boot: &Boot) {
    let processors = &machine.processors;
    line.0.extend(["-nodefaults".to_owned(), "-no-user-config".to_owned()]);
    line.add("-name", format!("guest=nearmetal-lab-{}", boot.name));
    line.add("-uuid", boot.token.as_str());
    // A comma ends a value; `,,` stands for one.
    let product = boot.machine.replace(',', ",,");
    line.add("-smbios", format!("type=1,manufacturer=nearmetal lab,product={product}"));
    line.add("-machine", "q35,kernel-irqchip=split,sata=off,smbus=off,usb=off,hpet=off,i8042=off,vmport=off");
    line.add(
        "-accel",
        match processors.accelerator {
            Accelerator::Tcg => "tcg,thread=multi,tb-size=1024",
            Accelerator::Kvm => "kvm",
        },
    );
    line.add("-cpu", processors.model.as_str());
    line.add(
        "-smp",
        format!(
            "{},sockets={},cores={},threads={}",
            processors.count(),
            processors.sockets,
            processors.cores_per_socket,
            processors.threads_per_core
        ),
    );
    line.add("-display", "none");
    // A reset of this many emulated processors can hang QEMU; ending is reliable. Reboots are an end and a new start.
    line.add("-action", "reboot=shutdown");
    line.add(
        "-chardev",
        "socket,id=console,path=/lab/state/console.sock,server=on,wait=off,logfile=/lab/state/console.log,logappend=on",
    );
    line.add("-serial", "chardev:console");
    line.add("-qmp", "unix:/lab/state/qmp.sock,server=on,wait=off");
}

fn memory(line: &mut Line, machine: &Machine) {
    let mebibytes = |index: usize| machine.nodes[index].memory.kib() >> 10;
    let total: u64 = (0..machine.nodes.len()).map(mebibytes).sum();
    line.add("-m", format!("{total}M"));
    let share = machine.processors.count() as usize / machine.nodes.len();
    for index in 0..machine.nodes.len() {
        let (first, last) = (index * share, (index + 1) * share - 1);
        line.add("-object", format!("memory-backend-ram,id=memory{index},size={}M", mebibytes(index)));
        line.add("-numa", format!("node,nodeid={index},cpus={first}-{last},memdev=memory{index}"));
    }
    for (source, node) in machine.nodes.iter().enumerate() {
        for (target, distance) in node.distances.iter().enumerate().filter(|(target, _)| *target != source) {
            line.add("-numa", format!("dist,src={source},dst={target},val={distance}"));
        }
    }
}

/// The plugin that counts, and the device whose memory is the page that it writes. `file` is QEMU's own word.
fn counters(line: &mut Line, machine: &Machine, count: Count) {
    let nodes: Vec<String> = machine.nodes.iter().map(|node| (node.memory.kib() >> 10).to_string()).collect();
    line.add(
        "-plugin",
        format!("file={STATE}/{PLUGIN},counters={STATE}/{COUNTERS},count={},nodes={}", count.id(), nodes.join(":")),
    );
    let size = nearmetal_counters::PAGE_BYTES;
    line.add("-object", format!("memory-backend-file,id=counters,mem-path={STATE}/{COUNTERS},size={size},share=on"));
    line.add("-device", "ivshmem-plain,memdev=counters,bus=pcie.0");
}

/// With an index of events a driver rings for its first request alone until the device has answered. QEMU (10.0.13) was seen not to have
/// heard that, and five requests waited for good. Without it each request rings.
const EACH_RINGS: &str = "event_idx=off";

fn disks(line: &mut Line, machine: &Machine, boot: &Boot) {
    for name in std::iter::once("root").chain(machine.disks.iter().map(|disk| disk.name.as_str())) {
        backing(line, name, boot);
        // On any other bus than pcie.0 virtio disks land on a node's bridge, which refuses them.
        line.add("-device", format!("virtio-blk-pci,drive={name},serial={name},bus=pcie.0,{EACH_RINGS}"));
    }
    for extra in &boot.extras {
        let (serial, file) = (extra.serial(), extra.file());
        line.add("-drive", format!("if=none,id={serial},file=/lab/disks/{file},format=raw,readonly=on"));
        line.add("-device", format!("virtio-blk-pci,drive={serial},serial={serial},bus=pcie.0,{EACH_RINGS}"));
    }
}

fn backing(line: &mut Line, name: &str, boot: &Boot) {
    // Flushes of disks that are thrown away anyway would only wear the host's.
    // Synced data of an NVMe namespace differed after a power loss once (cause unknown), so there every write goes through.
    let cache = match (boot.durable, name == "root") {
        (false, _) => "unsafe",
        (true, true) => "writeback",
        (true, false) => "writethrough",
    };
    line.add(
        "-drive",
        format!("if=none,id={name},file=/lab/disks/{name}.qcow2,format=qcow2,cache={cache},discard=unmap"),
    );
}

fn has_devices(machine: &Machine, node: u32) -> bool {
    machine.networks.iter().any(|device| device.node == node) || machine.drives.iter().any(|device| device.node == node)
}

fn network(line: &mut Line, index: usize, network: &Network) {
    let name = &network.name;
    line.add(
        "-netdev",
        match &network.cable {
            None => format!("hubport,id={name},hubid={index}"),
            Some(cable) => {
                let (near, far) = match cable.end {
                    CableEnd::A => ("a", "b"),
                    CableEnd::B => ("b", "a"),
                };
                let path = format!("/lab/cables/{}", cable.name);
                format!(
                    "dgram,id={name},local.type=unix,local.path={path}.{near},remote.type=unix,remote.path={path}.{far}"
                )
            }
        },
    );
    port(line, network.node, name, &format!("1{index}"));
    // The last byte stays free: virtual functions get addresses of their own from the driver.
    let end = network.cable.as_ref().map_or(0, |cable| u8::from(cable.end == CableEnd::B));
    line.add("-device", format!("igb,netdev={name},bus=port-{name},mac=52:54:00:01:{end:02x}:{index:02x}"));
}

fn drive(line: &mut Line, index: usize, drive: &Nvme, boot: &Boot) {
    let name = &drive.name;
    port(line, drive.node, name, &format!("2{index}"));
    line.add("-device", format!("nvme-subsys,id=subsystem-{name},nqn=nqn.2026-01.org.nearmetal:{name}"));
    let mut device = format!("nvme,id={name},serial={name},subsys=subsystem-{name},bus=port-{name}");
    if drive.virtual_functions > 0 {
        // Two queues and two interrupts for each function; 8 queues at least, for the drive itself takes from the same pool.
        let flexible = (2 * drive.virtual_functions).max(8);
        let (pairs, vectors) = (flexible + 8, flexible + 9);
        let functions = drive.virtual_functions;
        device += &format!(
            ",sriov_max_vfs={functions},sriov_vq_flexible={flexible},sriov_vi_flexible={flexible},\
             sriov_max_vq_per_vf=2,sriov_max_vi_per_vf=2,max_ioqpairs={pairs},msix_qsize={vectors}"
        );
    }
    line.add("-device", device);
    for number in 1..=drive.namespaces.len() {
        let disk = format!("{name}n{number}");
        backing(line, &disk, boot);
        line.add("-device", format!("nvme-ns,drive={disk},bus={name},nsid={number},shared=on"));
    }
}

fn port(line: &mut Line, node: u32, name: &str, chassis: &str) {
    line.add("-device", format!("pcie-root-port,id=port-{name},bus=pxb{node},chassis={chassis}"));
}
