//! Disks, interfaces and functions of a manifest.

use nearmetal_domain::{DiskFacts, InterfaceFacts};
use nearmetal_place::FunctionKind;
use nearmetal_units::PciAddress;
use serde_json::{Map, Value, json};

use super::shared::Shared;
use crate::Limit;
use crate::guests::Guest;
use crate::names::{Taken, dns_label, one_line};

/// What becomes of a guest's devices.
pub(super) struct Parts {
    pub(super) devices: Value,
    pub(super) networks: Value,
    pub(super) volumes: Value,
}

/// The devices of a guest; `vm` is its name in Kubernetes.
pub(super) fn devices(guest: &Guest<'_>, vm: &str, shared: &mut Shared, limits: &mut Vec<Limit>) -> Parts {
    let mut taken = Taken::default();
    let (mut disks, mut volumes) = (Vec::new(), Vec::new());
    let (mut interfaces, mut networks, mut host_devices) = (Vec::new(), Vec::new(), Vec::new());
    for disk in &guest.facts.disks {
        let name = taken.free(dns_label(&disk.target, "disk"), 40);
        let claim = shared.claim(vm, &name);
        if let Some(entry) = self::disk(guest, disk, &name, &claim, limits) {
            disks.push(entry);
            volumes.push(json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } }));
        }
    }
    for interface in guest.facts.interfaces.iter().filter(|interface| interface.kind != "hostdev") {
        let name = taken.free(format!("net{}", interfaces.len()), 40);
        if let Some((entry, network)) = self::interface(guest, interface, &name, shared, limits) {
            interfaces.push(entry);
            networks.push(network);
        }
    }
    for device in &guest.placement.devices {
        let place = device.node.map_or_else(|| "any".to_owned(), |node| node.to_string());
        let label = dns_label(&device.function.to_string(), "function");
        match &device.kind {
            FunctionKind::NetworkVirtual { mac, vlan } => {
                let name = taken.free(format!("vf-{label}"), 40);
                let network = format!("{place} {vlan:?}");
                let definition = shared.network("sriov", &network, format!("sriov-node-{place}"));
                let mut entry = json!({ "name": name, "sriov": {} });
                if let Some(mac) = mac {
                    entry["macAddress"] = json!(mac.to_string());
                }
                interfaces.push(entry);
                networks.push(json!({ "name": name, "multus": { "networkName": definition } }));
                let vlan = vlan.map_or_else(String::new, |vlan| format!(" and \"vlan\": {vlan}"));
                limits.push(Limit::of(
                    guest,
                    "virtual function",
                    device.function,
                    "the SR-IOV device plugin chooses one of its pool",
                    &format!(
                        "make the NetworkAttachmentDefinition `{definition}` of type sriov{vlan}, of a pool with the \
                         functions of that node"
                    ),
                ));
            }
            FunctionKind::Whole | FunctionKind::Virtual => {
                let name = taken.free(format!("pci-{label}"), 40);
                let resource = format!("nearmetal/pci-{label}");
                host_devices.push(json!({ "name": name, "deviceName": resource }));
                limits.push(by_resource(guest, device.function, &resource));
            }
        }
    }
    for function in guest.undecided_functions() {
        let label = dns_label(&function.to_string(), "function");
        let name = taken.free(format!("pci-{label}"), 40);
        let resource = format!("nearmetal/pci-{label}");
        host_devices.push(json!({ "name": name, "deviceName": resource }));
        limits.push(by_resource(guest, function, &resource));
    }
    let mut devices = Map::new();
    devices.insert("disks".to_owned(), json!(disks));
    devices.insert("interfaces".to_owned(), json!(interfaces));
    if interfaces.is_empty() {
        // Else KubeVirt adds one on the pod network.
        devices.insert("autoattachPodInterface".to_owned(), json!(false));
    }
    if !host_devices.is_empty() {
        devices.insert("hostDevices".to_owned(), json!(host_devices));
    }
    multiple_queues(guest, &mut devices, limits);
    if !guest.facts.peripherals.iter().any(|one| one.element == "memballoon" && one.model.as_deref() != Some("none")) {
        devices.insert("autoattachMemBalloon".to_owned(), json!(false));
    }
    Parts { devices: Value::Object(devices), networks: json!(networks), volumes: json!(volumes) }
}

fn by_resource(guest: &Guest<'_>, function: PciAddress, resource: &str) -> Limit {
    Limit::of(
        guest,
        "PCI function",
        function,
        "KubeVirt selects functions by their ids, and chooses among equal ones",
        &format!(
            "add {{\"pciVendorSelector\": \"VENDOR:DEVICE\", \"resourceName\": \"{resource}\"}} to \
             permittedHostDevices.pciHostDevices of the KubeVirt resource; `lspci -nn -s {function}` shows the ids"
        ),
    )
}

fn disk(guest: &Guest<'_>, disk: &DiskFacts, name: &str, claim: &str, limits: &mut Vec<Limit>) -> Option<Value> {
    let what = format!("disk {}", disk.target);
    let source = disk.source.clone().unwrap_or_else(|| "empty".to_owned());
    if !matches!(disk.device.as_str(), "disk" | "lun" | "cdrom") || disk.source.is_none() {
        let why = "KubeVirt has no empty drives and no floppies";
        limits.push(Limit::of(
            guest,
            &what,
            format!("{} {source}", disk.device),
            why,
            "attach a volume when it is used",
        ));
        return None;
    }
    limits.push(Limit::of(
        guest,
        &what,
        &source,
        "volumes in Kubernetes are claims, not paths of a host",
        &format!("make the PersistentVolumeClaim `{claim}` on a local volume of it, volumeMode Block for a device"),
    ));
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(name));
    let known = |bus: &&str| ["virtio", "scsi", "sata", "usb"].contains(bus);
    let bus = disk.bus.as_deref().filter(known).unwrap_or("virtio");
    if disk.device == "cdrom" {
        let bus = if bus == "virtio" { "sata" } else { bus };
        entry.insert("cdrom".to_owned(), json!({ "bus": bus }));
    } else {
        entry.insert(if disk.device == "lun" { "lun" } else { "disk" }.to_owned(), json!({ "bus": bus }));
    }
    match disk.driver.cache.as_deref() {
        Some(cache @ ("none" | "writeback" | "writethrough")) => _ = entry.insert("cache".to_owned(), json!(cache)),
        None => {}
        Some(other) => limits.push(Limit::of(
            guest,
            &what,
            format!("cache={other}"),
            "KubeVirt knows none, writeback and writethrough",
            "leave it to KubeVirt, which takes none where the volume can",
        )),
    }
    match disk.driver.io.as_deref() {
        Some(io @ ("native" | "threads")) => _ = entry.insert("io".to_owned(), json!(io)),
        None => {}
        Some(other) => limits.push(Limit::of(
            guest,
            &what,
            format!("io={other}"),
            "KubeVirt knows native and threads",
            "set it with a hook sidecar, or measure `native` with `nearmetal bench disk race`",
        )),
    }
    let has_iothread = disk.driver.iothread.is_some() || !disk.driver.iothread_mapping.is_empty();
    if has_iothread && disk.is_virtio_blk() && guest.placement.iothreads.len() > 1 {
        entry.insert("dedicatedIOThread".to_owned(), json!(true));
    }
    if let Some(serial) = disk.serial.as_ref().filter(|serial| serial.chars().all(|c| c.is_ascii_graphic())) {
        entry.insert("serial".to_owned(), json!(serial));
    }
    Some(Value::Object(entry))
}

/// An interface, and the network it is on.
fn interface(
    guest: &Guest<'_>,
    interface: &InterfaceFacts,
    name: &str,
    shared: &mut Shared,
    limits: &mut Vec<Limit>,
) -> Option<(Value, Value)> {
    let source = interface.source.clone().unwrap_or_default();
    let what = format!("interface {}", interface.mac.as_deref().unwrap_or(name));
    let mut entry = Map::new();
    entry.insert("name".to_owned(), json!(name));
    if let Some(mac) = &interface.mac {
        entry.insert("macAddress".to_owned(), json!(mac));
    }
    if let Some(model) = &interface.model {
        // `virtio-transitional` and its kin are a setting of the whole VM there.
        let model = if model.starts_with("virtio") { "virtio" } else { model };
        match model {
            "virtio" | "e1000" | "e1000e" | "ne2k_pci" | "pcnet" | "rtl8139" => {
                _ = entry.insert("model".to_owned(), json!(model));
            }
            other => limits.push(Limit::of(
                guest,
                &what,
                format!("model {other}"),
                "KubeVirt has no such model",
                "use virtio",
            )),
        }
    }
    if !interface.offloads_off.is_empty() {
        let planned = interface.offloads_off.join(" ");
        let (why, by_hand) = ("KubeVirt has no field for offloads", "turn them off inside the guest: `ethtool -K`");
        limits.push(Limit::of(guest, &what, format!("offloads off: {planned}"), why, by_hand));
    }
    match interface.kind.as_str() {
        "bridge" | "network" | "direct" => {
            let definition = shared.network(&interface.kind, &source, dns_label(&source, "network"));
            entry.insert("bridge".to_owned(), json!({}));
            limits.push(Limit::of(
                guest,
                &what,
                format!("{} {}", interface.kind, one_line(&source)),
                "networks in Kubernetes are NetworkAttachmentDefinitions, not names of a host",
                &format!("make the NetworkAttachmentDefinition `{definition}` in the VM's namespace"),
            ));
            Some((Value::Object(entry), json!({ "name": name, "multus": { "networkName": definition } })))
        }
        "user" => {
            entry.insert("masquerade".to_owned(), json!({}));
            Some((Value::Object(entry), json!({ "name": name, "pod": {} })))
        }
        other => {
            let (why, by_hand) = ("KubeVirt has no such interface", "use a bridge, or the pod network");
            limits.push(Limit::of(guest, &what, other, why, by_hand));
            None
        }
    }
}

/// Queues: KubeVirt gives as many as there are vCPUs, or one.
fn multiple_queues(guest: &Guest<'_>, devices: &mut Map<String, Value>, limits: &mut Vec<Limit>) {
    let vcpus = guest.facts.vcpus.maximum;
    let fixed = "KubeVirt gives a queue for each vCPU, or one";
    let by_hand = "nothing to do where that many do no harm; else take the field out";
    let disks =
        guest.facts.disks.iter().filter_map(|disk| Some((format!("disk {}", disk.target), disk.driver.queues?)));
    let nics =
        guest.facts.interfaces.iter().filter_map(|one| Some((format!("interface {}", one.mac.as_ref()?), one.queues?)));
    for (key, asked) in [("blockMultiQueue", disks.collect::<Vec<_>>()), ("networkInterfaceMultiqueue", nics.collect())]
    {
        if asked.iter().any(|(_, queues)| *queues > 1) {
            devices.insert(key.to_owned(), json!(true));
        }
        for (what, queues) in asked.iter().filter(|(_, queues)| *queues > 1 && *queues != vcpus) {
            limits.push(Limit::of(guest, what, format!("{queues} queues"), fixed, by_hand));
        }
    }
}
