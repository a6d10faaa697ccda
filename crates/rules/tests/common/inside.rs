//! The clean insides of the example's guests, and the images of their disks.

use std::collections::BTreeMap;

use nearmetal_domain::DomainFacts;
use nearmetal_host::images::{Image, ImageChain};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{BlockDevice, Host, NetworkInterface, PciDevice, ProcessorTime, Setting, Sysctl, TunedProfile};
use nearmetal_units::{Bytes, PciAddress};

/// A Linux guest with a processor for each vCPU, the disk and the interface of its definition.
pub(crate) fn of(facts: &DomainFacts) -> Host {
    let mut guest = Synthetic::new().cores_per_node(facts.vcpus.current).build();
    guest.system.sysctls = vec![Sysctl { name: "kernel.nmi_watchdog".to_owned(), value: 0 }];
    let function = |slot: u32, id| PciDevice {
        address: address(slot),
        vendor: Some(0x1af4),
        device: Some(id),
        driver: Some("virtio-pci".to_owned()),
        ..PciDevice::default()
    };
    let (disk, card) = (function(3, 0x1042), function(4, 0x1041));
    let queues = |given: Option<u32>| Some(given.unwrap_or(1).min(facts.vcpus.current));
    guest.block_devices = vec![
        BlockDevice {
            name: "vda".to_owned(),
            pci: Some(disk.address),
            scheduler: Some("none".to_owned()),
            queues: queues(facts.disks.first().and_then(|disk| disk.driver.queues)),
            ..BlockDevice::default()
        },
        BlockDevice {
            name: "vda1".to_owned(),
            partition_of: Some("vda".to_owned()),
            size: Some(Bytes::from_mib(1024)),
            start: Some(Bytes::from_mib(1)),
            ..BlockDevice::default()
        },
    ];
    guest.network_interfaces = vec![NetworkInterface {
        name: "eth0".to_owned(),
        pci: Some(card.address),
        driver: Some("virtio_net".to_owned()),
        mac: facts.interfaces.first().and_then(|interface| interface.mac.clone()),
        receive_queues: queues(facts.interfaces.first().and_then(|interface| interface.queues)),
        ..NetworkInterface::default()
    }];
    guest.pci_devices = vec![disk, card];
    let system = &mut guest.system;
    system.clocksource = Some("kvm-clock".to_owned());
    (system.idle_driver, system.idle_governor) = (Some("haltpoll".to_owned()), Some("haltpoll".to_owned()));
    system.module_parameters =
        vec![Setting { name: "haltpoll.guest_halt_poll_ns".to_owned(), value: "200000".to_owned() }];
    system.tuned = Some(TunedProfile::Active("virtual-guest".to_owned()));
    system.processor_time = Some(ProcessorTime { total: 100_000, idle: 50_000, stolen: 100 });
    system.isolated = Some("1".parse().unwrap());
    system.nohz_full = system.isolated.clone();
    guest
}

fn address(slot: u32) -> PciAddress {
    format!("0000:00:{slot:02x}.0").parse().unwrap()
}

/// Images of all disks.
pub(crate) fn images() -> BTreeMap<String, Result<ImageChain, String>> {
    let raw = |name: &str| Image {
        name: name.to_owned(),
        format: "raw".to_owned(),
        virtual_size: Bytes::from_mib(100 << 10),
        allocated: Some(Bytes::from_mib(100 << 10)),
        ..Image::default()
    };
    let qcow2 = |name: &str| Image {
        format: "qcow2".to_owned(),
        allocated: Some(Bytes::from_mib(10 << 10)),
        cluster: Some(Bytes::from_kib(64)),
        compat: Some("1.1".to_owned()),
        extended_l2: Some(false),
        corrupt: Some(false),
        ..raw(name)
    };
    let mut overlay = qcow2("/images/vdi.qcow2");
    (overlay.backing, overlay.extended_l2) = (Some("/images/golden.qcow2".to_owned()), Some(true));
    let alone = |top: Image| ImageChain { top, below: Vec::new() };
    let chains = [
        alone(raw("/dev/nvme0n1")),
        alone(raw("/dev/vg/rt")),
        alone(raw("/dev/vg/hpc")),
        alone(raw("/images/gpu.raw")),
        alone(raw("/images/nfv.raw")),
        alone(qcow2("/images/web.qcow2")),
        alone(qcow2("/images/win.qcow2")),
        ImageChain { top: overlay, below: vec![qcow2("/images/golden.qcow2")] },
    ];
    chains.into_iter().map(|chain| (chain.top.name.clone(), Ok(chain))).collect()
}
