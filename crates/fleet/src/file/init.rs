//! A fleet file written from domains that exist, for people to go on from.

use std::collections::BTreeSet;
use std::fmt::Write;

use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize, PciAddress};

use super::entry::{DiskBus, DiskEntry, DiskFormat, DiskSource, FleetFile, HostReach, NicAttach, NicEntry, NicKind};
use super::error::shown;
use crate::model::{GuestNuma, Locality};

/// A host and the domains it has.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundHost {
    /// Its name.
    pub name: String,
    /// How it is read again.
    pub reach: HostReach,
    /// Its online PUs; `None` where nobody told.
    pub pus: Option<u32>,
    /// Its domains.
    pub domains: Vec<FoundDomain>,
    /// What could not be read, in sentences: they become comments.
    pub remarks: Vec<String>,
}

/// A domain as libvirt has it.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundDomain {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory at most.
    pub memory: Bytes,
    /// Hugepages behind it; `None` for the kernel's own pages.
    pub page_size: Option<PageSize>,
    /// What it is for.
    pub class: WorkloadClass,
    /// Where the class is from, in words.
    pub class_reason: String,
    /// Whether each vCPU is bound to a PU of its own.
    pub bound: bool,
    /// NUMA as its guest sees it.
    pub numa: GuestNuma,
    /// Whether it runs now.
    pub runs: bool,
    /// Disks that a fleet file can name.
    pub disks: Vec<DiskEntry>,
    /// Interfaces that a fleet file can name.
    pub nics: Vec<NicEntry>,
    /// Functions handed through.
    pub functions: Vec<PciAddress>,
    /// What of it a fleet file cannot say, in sentences: they become comments.
    pub remarks: Vec<String>,
}

const HEAD: &str = "\
# The VMs of this fleet, as libvirt has them now, and the hosts they are on.
# Nothing is changed by this file alone: `nearmetal fleet check FILE` says what is understood,
# `nearmetal fleet example` shows what else can be said.
#
# A VM with `on` is defined on that host and stays there: what its definition has is not repeated
# here, but for what it must be near.

spread = \"fewest\"
";

/// Writes a fleet file. It parses: what a fleet file cannot hold stands in it as a comment, with the reason. Hosts need
/// names and ways to be reached that a fleet file takes. Pure.
pub fn init(hosts: &[FoundHost]) -> String {
    let mut blocks = vec![HEAD.to_owned()];
    let mut names = BTreeSet::new();
    let mut uuids = BTreeSet::new();
    for host in hosts {
        blocks.push(host_block(host));
        let all: u64 = host.domains.iter().map(|domain| u64::from(domain.vcpus)).sum();
        // More vCPUs than PUs: those that float share what there is.
        let ratio = host.pus.filter(|pus| *pus > 0 && all > u64::from(*pus)).map(|pus| all as f64 / f64::from(pus));
        let mut disks = BTreeSet::new();
        for domain in &host.domains {
            let uuid = domain.uuid.as_ref().map(|uuid| uuid.to_ascii_lowercase());
            let uuid = uuid.filter(|uuid| uuids.insert(uuid.clone()));
            let mut name = domain.name.clone();
            if uuid.is_some() && names.contains(&name) {
                name = format!("{name}@{}", host.name);
            }
            names.insert(name.clone());
            blocks.push(vm_block(host, domain, &name, uuid.as_deref(), ratio, &mut disks));
        }
    }
    sound(blocks)
}

/// The blocks one after the other; those that do not parse as comments.
fn sound(mut blocks: Vec<String>) -> String {
    // Each round comments one block out at least.
    for _ in 0..=blocks.len() {
        let text = blocks.join("\n");
        let Err(errors) = FleetFile::parse("", &text) else { return text };
        let mut first = 1;
        let mut changed = false;
        for block in &mut blocks {
            let lines = block.matches('\n').count() + 1;
            let problem = errors.problems.iter().find(|problem| (first..first + lines).contains(&problem.line));
            first += lines;
            if let Some(problem) =
                problem.filter(|_| block.lines().any(|line| !line.is_empty() && !line.starts_with('#')))
            {
                let said: String = block.lines().map(|line| format!("# {line}\n")).collect();
                *block = format!("# Left out: {} ({})\n{said}", problem.message, problem.help);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    blocks.join("\n")
}

fn host_block(host: &FoundHost) -> String {
    let mut text = format!("[[host]]\nname = {}\n", quoted(&host.name));
    match &host.reach {
        HostReach::Local => text.push_str("local = true\n"),
        HostReach::Ssh { destination, command } => {
            text.push_str(&format!("ssh = {}\n", quoted(destination)));
            if let Some(command) = command {
                text.push_str(&format!("ssh-command = {}\n", quoted(command)));
            }
        }
        HostReach::Libvirt(uri) => text.push_str(&format!("uri = {}\n", quoted(uri))),
        HostReach::Capture(path) => text.push_str(&format!("capture = {}\n", quoted(&path.display().to_string()))),
    }
    for remark in &host.remarks {
        text.push_str(&comment(remark));
    }
    if host.domains.is_empty() && host.remarks.is_empty() {
        text.push_str("# No domain is defined there.\n");
    }
    text
}

fn vm_block(
    host: &FoundHost,
    domain: &FoundDomain,
    name: &str,
    uuid: Option<&str>,
    ratio: Option<f64>,
    disks: &mut BTreeSet<DiskSource>,
) -> String {
    let mut text = String::new();
    if name != domain.name {
        text.push_str(&comment(&format!("Domain {} of {}: names are unique in a fleet.", domain.name, host.name)));
    }
    let mut line = |key: &str, value: String| _ = writeln!(text, "{key} = {value}");
    line("[[vm]]\nname", quoted(name));
    line("on", quoted(&host.name));
    if let Some(uuid) = uuid {
        line("uuid", quoted(uuid));
    }
    line("vcpus", domain.vcpus.to_string());
    line("memory", format!("\"{}\"", amount(domain.memory)));
    if let Some(size) = domain.page_size {
        line("page-size", format!("\"{}\"", amount(size.bytes())));
    }
    let reason = shown(&domain.class_reason);
    let why = if reason.is_empty() { reason } else { format!("  # {reason}") };
    line("class", format!("\"{}\"{why}", domain.class.word()));
    match ratio {
        Some(ratio) if !domain.bound => {
            let more = "  # the host has more vCPUs than PUs";
            // Rounded up, so that all of them find a place.
            line("cpus", format!("{{ shared = {:.1} }}{more}", ((ratio * 10.0).ceil() / 10.0).clamp(1.0, 100.0)));
        }
        _ => {}
    }
    match domain.numa {
        GuestNuma::Cells(cells) if cells > 1 => line("numa", cells.to_string()),
        GuestNuma::Mirror => line("numa", "\"mirror\"".to_owned()),
        _ => {}
    }
    if domain.runs {
        text.push_str("# movable = true             # a plan may move it from where it runs on this host\n");
    }
    for remark in &domain.remarks {
        text.push_str(&comment(remark));
    }
    for disk in &domain.disks {
        if disk.read_only || disks.insert(disk.source.clone()) {
            text.push_str(&disk_block(disk));
        } else {
            text.push_str(&comment("A disk that another VM writes to as well is left out."));
        }
    }
    domain.nics.iter().for_each(|nic| text.push_str(&nic_block(nic)));
    let functions: BTreeSet<PciAddress> = domain.functions.iter().copied().collect();
    for function in functions {
        text.push_str(&format!("\n[[vm.device]]\nfunction = \"{function}\"\n"));
    }
    text
}

fn disk_block(disk: &DiskEntry) -> String {
    let mut text = "\n[[vm.disk]]\n".to_owned();
    let mut line = |key: &str, value: String| _ = writeln!(text, "{key} = {value}");
    match &disk.source {
        DiskSource::Device(path) => line("device", quoted(&path.display().to_string())),
        DiskSource::File { path, format } => {
            line("file", quoted(&path.display().to_string()));
            let format = match format {
                DiskFormat::Qcow2 => "qcow2",
                DiskFormat::Raw => "raw",
            };
            line("format", quoted(format));
        }
        DiskSource::Volume { pool, volume } => {
            line("pool", quoted(pool));
            line("volume", quoted(volume));
        }
    }
    if disk.bus == DiskBus::Scsi {
        line("bus", quoted("scsi"));
    }
    if disk.read_only {
        line("read-only", "true".to_owned());
    }
    let own = matches!(&disk.source, DiskSource::Device(path)
        if disk.drive.as_ref().is_some_and(|drive| path.as_os_str() == format!("/dev/{drive}").as_str()));
    if let Some(drive) = disk.drive.as_ref().filter(|_| !own) {
        line("drive", quoted(drive));
    }
    if let Some(locality) = disk.locality.filter(|locality| *locality != Locality::Preferred) {
        line("locality", quoted(locality_name(locality)));
    }
    text
}

fn nic_block(nic: &NicEntry) -> String {
    let kind = match nic.kind {
        NicKind::Virtio => "virtio",
        NicKind::Vhost => "vhost",
        NicKind::Macvtap => "macvtap",
        NicKind::Vf => "vf",
    };
    let mut text = format!("\n[[vm.nic]]\nkind = \"{kind}\"\n");
    let mut line = |key: &str, value: String| _ = writeln!(text, "{key} = {value}");
    match &nic.attach {
        Some(NicAttach::Network(network)) => line("network", quoted(network)),
        Some(NicAttach::Bridge(bridge)) => line("bridge", quoted(bridge)),
        None => {}
    }
    if let Some(interface) = &nic.interface {
        line("interface", quoted(interface));
    }
    if let Some(mac) = &nic.mac {
        line("mac", quoted(mac));
    }
    if let Some(vlan) = nic.vlan {
        line("vlan", vlan.to_string());
    }
    if let Some(locality) = nic.locality.filter(|locality| *locality != Locality::Preferred) {
        line("locality", quoted(locality_name(locality)));
    }
    text
}

fn locality_name(locality: Locality) -> &'static str {
    match locality {
        Locality::Required => "required",
        Locality::Preferred => "preferred",
        Locality::Far => "far",
    }
}

/// A text as TOML has it, on one line.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            other if other.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(other))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// Exactly so many bytes, in the largest unit that divides them.
pub fn amount(bytes: Bytes) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| bytes.get() > 0 && bytes.get() % (1 << shift) == 0);
    unit.map_or_else(|| format!("{} B", bytes.get()), |(unit, shift)| format!("{} {unit}", bytes.get() >> shift))
}

fn comment(text: &str) -> String {
    let line: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    format!("# {line}\n")
}
