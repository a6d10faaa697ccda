//! KubeVirt: a `VirtualMachine` (`kubevirt.io/v1`) for each VM, one file each.
//!
//! Fields as in `kubevirt.io/api/core/v1` (VirtualMachineSpec, DomainSpec). Kubernetes decides which PUs and which functions a
//! VM gets: the manifest says what they must be like, the annotations keep what the plan says, and the limits say how the
//! kubelet comes near it. Files are JSON, which is YAML: no text in them can be read as anything but a text.

mod devices;
mod limits;
mod shared;

use serde_json::{Map, Value, json};

use crate::guests::{Guest, Host};
use crate::names::{Taken, dns_label, file_name, is_label_value};
use crate::{Exported, Limit};
use shared::Shared;

/// Labels and annotations of ours; a prefix of a key is a DNS name.
const PREFIX: &str = "nearmetal";
/// A VM's name becomes the value of labels: no longer than those.
const LONGEST_NAME: usize = 63;

/// The manifests.
pub(crate) fn export(hosts: &[Host<'_>]) -> Exported {
    let mut exported = Exported::default();
    let (mut names, mut directories) = (Taken::default(), Taken::default());
    let mut shared = Shared::default();
    for host in hosts {
        let directory = directories.free(file_name(host.name, "host"), 100);
        for guest in &host.guests {
            let name = names.free(dns_label(guest.name, "vm"), LONGEST_NAME);
            let (manifest, limits) = manifest(guest, &name, &mut shared);
            let text = serde_json::to_string_pretty(&manifest).unwrap_or_default() + "\n";
            exported.add(format!("{directory}/{name}.json"), text);
            exported.limits.extend(limits);
        }
        exported.limits.extend(limits::of_host(host));
    }
    exported
}

/// One manifest, and what it cannot say.
fn manifest(guest: &Guest<'_>, name: &str, shared: &mut Shared) -> (Value, Vec<Limit>) {
    let mut limits = limits::of_guest(guest, name);
    let devices = devices::devices(guest, name, shared, &mut limits);
    let mut domain = Map::new();
    domain.insert("cpu".to_owned(), cpu(guest, &mut limits));
    domain.insert("memory".to_owned(), memory(guest, &mut limits));
    domain.insert("machine".to_owned(), json!({ "type": "q35" }));
    if guest.is_uefi() {
        domain.insert("firmware".to_owned(), json!({ "bootloader": { "efi": { "secureBoot": false } } }));
    }
    // A thread for each disk that asks for one; without any, the thread all disks share.
    match guest.placement.iothreads.len() {
        0 => {}
        1 => _ = domain.insert("ioThreadsPolicy".to_owned(), json!("shared")),
        _ => _ = domain.insert("ioThreadsPolicy".to_owned(), json!("auto")),
    }
    domain.insert("devices".to_owned(), devices.devices);
    let mut labels = Map::new();
    labels.insert("app.kubernetes.io/managed-by".to_owned(), json!(PREFIX));
    labels.insert("kubevirt.io/domain".to_owned(), json!(name));
    if let Some(class) = guest.facts.class.as_ref().filter(|class| is_label_value(class)) {
        labels.insert(format!("{PREFIX}/class"), json!(class));
    }
    let mut spec = Map::new();
    spec.insert("domain".to_owned(), Value::Object(domain));
    spec.insert("networks".to_owned(), devices.networks);
    spec.insert("volumes".to_owned(), devices.volumes);
    if is_label_value(guest.host) {
        spec.insert("nodeSelector".to_owned(), json!({ "kubernetes.io/hostname": guest.host }));
    }
    let manifest = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": name, "labels": labels, "annotations": annotations(guest) },
        "spec": {
            // Nothing starts because it was applied.
            "runStrategy": "Halted",
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    });
    (manifest, limits)
}

/// What the plan says and no field can: for people, and for whoever compares.
fn annotations(guest: &Guest<'_>) -> Value {
    let mut notes = Map::new();
    let mut note = |key: &str, value: String| {
        if !value.is_empty() {
            notes.insert(format!("{PREFIX}/{key}"), json!(value));
        }
    };
    note("domain", guest.name.to_owned());
    note("uuid", guest.placement.uuid.clone());
    note("vcpu-pins", guest.pins_text());
    note("emulator-pus", guest.placement.emulator.to_string());
    note("iothread-pus", guest.placement.iothreads.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    note("memory-nodes", guest.nodes().to_string());
    Value::Object(notes)
}

fn cpu(guest: &Guest<'_>, limits: &mut Vec<Limit>) -> Value {
    let (sockets, cores, threads) = guest.topology();
    let mut cpu = Map::new();
    for (key, count) in [("sockets", sockets), ("cores", cores), ("threads", threads)] {
        cpu.insert(key.to_owned(), json!(count));
    }
    match (guest.facts.cpu.mode.as_deref(), &guest.facts.cpu.model) {
        (Some("host-passthrough" | "maximum"), _) => _ = cpu.insert("model".to_owned(), json!("host-passthrough")),
        (Some("host-model") | None, None) => _ = cpu.insert("model".to_owned(), json!("host-model")),
        (_, Some(model)) if is_label_value(model) => _ = cpu.insert("model".to_owned(), json!(model)),
        (mode, _) => limits.push(Limit::of(
            guest,
            "CPU model",
            mode.unwrap_or("custom"),
            "KubeVirt has no such mode",
            "set `domain.cpu.model` to a name of `kubectl get node -L cpu-model.node.kubevirt.io`",
        )),
    }
    let features = guest.facts.cpu.features.iter().filter(|(name, policy)| is_label_value(name) && is_policy(policy));
    let features: Vec<Value> = features.map(|(name, policy)| json!({ "name": name, "policy": policy })).collect();
    if !features.is_empty() {
        cpu.insert("features".to_owned(), json!(features));
    }
    if guest.is_one_to_one() {
        cpu.insert("dedicatedCpuPlacement".to_owned(), json!(true));
        if guest.placement.emulator.is_disjoint(&guest.vcpu_pus()) && !guest.placement.emulator.is_empty() {
            cpu.insert("isolateEmulatorThread".to_owned(), json!(true));
        }
        if guest.placement.memory.page_size.is_some() {
            cpu.insert("numa".to_owned(), json!({ "guestMappingPassthrough": {} }));
        }
    }
    Value::Object(cpu)
}

/// Policies of KubeVirt's webhook, which are libvirt's own.
fn is_policy(policy: &str) -> bool {
    ["force", "require", "optional", "disable", "forbid"].contains(&policy)
}

fn memory(guest: &Guest<'_>, limits: &mut Vec<Limit>) -> Value {
    let memory = guest.facts.memory;
    let mut object = Map::new();
    object.insert("guest".to_owned(), json!(quantity(memory.get())));
    if let Some(size) = guest.placement.memory.page_size {
        let bytes = size.bytes().get();
        object.insert("hugepages".to_owned(), json!({ "pageSize": quantity(bytes) }));
        if memory.get() % bytes != 0 {
            limits.push(Limit::of(
                guest,
                "memory",
                memory,
                "KubeVirt takes whole hugepages only",
                &format!("make it a multiple of {}", size.bytes()),
            ));
        }
    }
    Value::Object(object)
}

/// An amount of bytes as a Kubernetes quantity, exactly: `4Gi`, `1536Mi`, `1025`.
fn quantity(bytes: u64) -> String {
    let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes > 0 && bytes % (1 << shift) == 0);
    unit.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}
