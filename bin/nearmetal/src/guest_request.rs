//! What a planner has to know of a domain: its definition's facts, in the planner's words.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nearmetal_domain::{CellFacts, DiskFacts, DomainFacts, InterfaceFacts};
use nearmetal_host::Host;
use nearmetal_place::{DiskRequest, GuestRequest, NetworkRequest, Shown, ShownCell, WorkloadClass};

/// In place of a UUID that libvirt has not given yet.
const NO_UUID: &str = "00000000-0000-0000-0000-000000000000";

/// The machine a definition's paths are on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paths<'a> {
    /// It.
    pub(crate) host: &'a Host,
    /// Whether it is this one: links and file systems of other machines cannot be looked at.
    pub(crate) here: bool,
}

/// The request that a definition's facts come to.
pub(crate) fn guest_request(facts: DomainFacts, class: WorkloadClass, paths: &Paths<'_>) -> GuestRequest {
    GuestRequest {
        // A file that libvirt has not seen yet has none. Such a plan shows what would be done; apply refuses it.
        uuid: facts.uuid.clone().unwrap_or_else(|| NO_UUID.to_owned()),
        vcpus: facts.vcpus.maximum,
        memory: facts.memory,
        class,
        disks: facts.disks.iter().map(|disk| disk_request(paths, disk)).collect(),
        networks: facts.interfaces.iter().filter_map(network_request).collect(),
        passthrough: facts.hostdevs.clone(),
        shows: shown(&facts),
        name: facts.name,
    }
}

fn shown(facts: &DomainFacts) -> Shown {
    let policies = || facts.numatune.iter().flat_map(|policy| &policy.cells);
    let is_strict = |cell: u32| {
        let own = policies().find(|policy| policy.cell == cell);
        own.is_some_and(|policy| policy.mode.as_deref().is_none_or(|mode| mode == "strict"))
    };
    let cell = |cell: &CellFacts| ShownCell {
        vcpus: cell.vcpus.clone(),
        memory: cell.memory,
        // Another policy than strict binds nothing.
        node: facts.node_of_cell(cell.id).filter(|_| is_strict(cell.id)),
    };
    Shown {
        cells: facts.cells.iter().map(cell).collect(),
        threads: facts.cpu.topology.as_ref().map_or(1, |topology| topology.threads),
    }
}

fn disk_request(paths: &Paths<'_>, disk: &DiskFacts) -> DiskRequest {
    let is_block = disk.kind == "block";
    let path = disk.source.as_deref().filter(|_| is_block || disk.kind == "file").map(Path::new);
    DiskRequest {
        target: disk.target.clone(),
        source: path.map(|path| path.display().to_string()),
        block_device: path.and_then(|path| if is_block { device_at(paths, path) } else { device_below(paths, path) }),
        is_block,
        is_virtio_blk: disk.is_virtio_blk(),
        is_read_only: disk.readonly || disk.device != "disk",
    }
}

/// The block device a path names, links (/dev/disk/by-id/…) followed where this is the machine they are on.
fn device_at(paths: &Paths<'_>, path: &Path) -> Option<String> {
    let real = if paths.here { path.canonicalize().unwrap_or_else(|_| path.to_owned()) } else { path.to_owned() };
    let name = real.strip_prefix("/dev").ok()?.to_str()?.to_owned();
    paths.host.block_device(&name).map(|device| device.name.clone())
}

/// The block device of the file system a file lies on.
fn device_below(paths: &Paths<'_>, path: &Path) -> Option<String> {
    let device = paths.here.then(|| std::fs::metadata(path).ok())??.dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    paths.host.block_devices.iter().find(|found| found.number.as_ref() == Some(&number)).map(|found| found.name.clone())
}

fn network_request(interface: &InterfaceFacts) -> Option<NetworkRequest> {
    // A function handed through is among the host devices already.
    if interface.kind == "hostdev" {
        return None;
    }
    Some(NetworkRequest {
        mac: interface.mac.clone().unwrap_or_default(),
        host_interface: interface.source.clone().filter(|_| matches!(interface.kind.as_str(), "bridge" | "direct")),
        uses_vhost: interface.is_virtio_tap() && interface.driver_name.as_deref() != Some("qemu"),
    })
}

#[cfg(test)]
mod tests {
    use nearmetal_domain::DomainXml;

    use super::*;

    #[test]
    fn a_cell_is_bound_by_a_strict_policy_alone() {
        let bound = |mode: &str| {
            let xml = format!(
                "<domain type='kvm'><name>a</name><memory unit='MiB'>2048</memory><vcpu>2</vcpu>
                <numatune><memnode cellid='0'{mode} nodeset='1'/></numatune>
                <cpu><numa><cell id='0' cpus='0' memory='1024' unit='MiB'/><cell id='1' cpus='1' memory='1024' unit='MiB'/></numa></cpu>
                </domain>"
            );
            let facts = DomainXml::parse(&xml).unwrap().facts().unwrap();
            shown(&facts).cells.iter().map(|cell| cell.node).collect::<Vec<_>>()
        };
        assert_eq!(bound(""), [Some(1), None], "strict is libvirt's default");
        assert_eq!(bound(" mode='strict'"), [Some(1), None]);
        assert_eq!(bound(" mode='preferred'"), [None, None]);
    }
}
