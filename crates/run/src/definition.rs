//! The guest's definition: what its flavour says, placed, with its disks opened for it.

use std::path::PathBuf;

use nearmetal_change::{compose_with_new, shaped_by_class};
use nearmetal_domain::{
    DomainXml, Firmware, Function, ImageFormat, NewDisk, NewDiskSource, NewDomain, NewInterface, NewInterfaceSource,
    PassedBacking,
};
use nearmetal_host::Host;
use nearmetal_hypervisor::PassedFile;

use crate::RunError;
use crate::flavour::{Boot, Flavour, Network};
use crate::slice::{Chosen, target};

/// Group of the file that the guest writes to.
const DELTA: &str = "delta";
/// Group of the file with the user data.
const SEED: &str = "seed";

/// What a guest boots without a boot loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The kernel's path.
    pub kernel: PathBuf,
    /// Its initial RAM disk.
    pub initrd: Option<PathBuf>,
    /// Its command line.
    pub command_line: String,
}

/// A guest's disk, its files open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Where the delta is opened.
    pub delta: String,
    /// The base image and what it is based on: what each is called, its format, and where it is opened.
    pub layers: Vec<(PathBuf, &'static str, String)>,
}

/// A definition, and the files that its sources name by their groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Domain XML.
    pub xml: String,
    /// Files to hand over.
    pub files: Vec<PassedFile>,
    /// Target name of the disk with the user data, if there is one.
    pub seed: Option<String>,
}

/// Makes the definition of a guest that is placed. `seed`: where the disk with its user data is opened.
///
/// # Errors
/// The placement contradicts it, or a path is one that XML has no place for.
pub fn define(
    host: &Host,
    flavour: &Flavour,
    chosen: &Chosen,
    kernel: Option<&Kernel>,
    disk: Option<&Disk>,
    seed: Option<&str>,
) -> Result<Definition, RunError> {
    let placement = chosen.placement();
    let mut new = NewDomain::new(&placement.guest, &placement.uuid, flavour.vcpus, flavour.memory);
    new.title = Some(format!("nearmetal run {}", flavour.name));
    if let Boot::Disk(firmware) = flavour.boot {
        new.firmware = firmware;
    }
    debug_assert!(kernel.is_none() || new.firmware == Firmware::Bios);
    // The file has no name. libvirt writes what stands here into messages and opens nothing by it.
    let named = |group: &str| format!("/nearmetal/{}/{group}", placement.guest);
    if disk.is_some() {
        let source = NewDiskSource::File { path: named(DELTA), format: ImageFormat::Qcow2 };
        new.disks.push(NewDisk { source, bus: flavour.bus });
    }
    let source = match &flavour.network {
        Network::None | Network::Function(_) => None,
        Network::User => Some(NewInterfaceSource::User),
        Network::Bridge(bridge) => Some(NewInterfaceSource::Bridge(bridge.clone())),
    };
    new.interfaces.extend(source.map(|source| NewInterface { source, mac: None, backend: None, queues: None }));
    // libvirt takes it from its driver, and gives it back.
    new.functions.extend(chosen.function.map(|address| Function { address, network: None, cell: None }));
    let new = shaped_by_class(new, flavour.class, true);
    let composed = compose_with_new(host, &chosen.planned.plan, &[], &[new])?;
    let xml = composed.domains.first().map(|domain| domain.xml_after.as_str()).unwrap_or_default();
    let mut xml = DomainXml::parse(xml)?;
    if let Some(Kernel { kernel, initrd, command_line }) = kernel {
        let initrd = initrd.as_ref().map(|path| path.display().to_string());
        xml.set_direct_boot(&kernel.display().to_string(), initrd.as_deref(), command_line)?;
    }
    let mut files = Vec::new();
    if let Some(disk) = disk {
        files.push(PassedFile { group: DELTA.to_owned(), path: disk.delta.clone(), writable: true });
        let mut backing = Vec::new();
        for (number, (path, format, opened)) in disk.layers.iter().enumerate() {
            let group = format!("base{number}");
            files.push(PassedFile { group: group.clone(), path: opened.clone(), writable: false });
            backing.push(PassedBacking { path: path.display().to_string(), format, group });
        }
        xml.pass_disk(target(flavour), DELTA, &backing)?;
    }
    let target = seed.map(|_| xml.add_passed_disk(&named(SEED), SEED)).transpose()?;
    files.extend(seed.map(|path| PassedFile { group: SEED.to_owned(), path: path.to_owned(), writable: false }));
    Ok(Definition { xml: xml.to_string(), files, seed: target })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flavour::Flavours;
    use crate::given::Given;
    use crate::slice::Choice;
    use nearmetal_host::synthetic::Synthetic;
    use nearmetal_host::{assignable, ledger};
    use nearmetal_units::Bytes;

    fn definition(keys: &str, kernel: Option<&Kernel>, disk: Option<&Disk>, seed: Option<&str>) -> Definition {
        let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 2\nmemory = \"1 GiB\"\n{keys}\n");
        let flavours = Flavours::parse("test", &text).unwrap();
        let flavour = &flavours.all()[0];
        let machine = Synthetic::new().packages(2).cores_per_node(4).memory_per_node(Bytes::from_mib(8192));
        let host = machine.network(1, 7, 2).build();
        let functions = &assignable::examine(&host, &ledger::of(&host, &[]))[..];
        let given = Given { cpus: host.online(), nodes: "0-1".parse().unwrap(), memory: Vec::new() };
        let (name, uuid) = ("run-job-1", "11111111-2222-4333-8444-555555555555");
        let has_disk = disk.is_some();
        let (given, beside) = (&given, Bytes::ZERO);
        let choice = Choice { flavour, name, uuid, host: &host, given, others: &[], functions, has_disk, beside };
        define(&host, flavour, &choice.choose().unwrap(), kernel, disk, seed).unwrap()
    }

    #[test]
    fn every_file_of_the_disk_is_handed_over_open_and_the_chain_ends_where_we_say() {
        let disk = Disk {
            delta: "/proc/7/fd/3".to_owned(),
            layers: vec![
                ("/images/aa".into(), "qcow2", "/proc/7/fd/4".to_owned()),
                ("/images/bb".into(), "raw", "/proc/7/fd/5".to_owned()),
            ],
        };
        let made = definition("network = \"user\"", None, Some(&disk), None);
        let plain: String = made.xml.split_whitespace().collect::<Vec<_>>().join(" ").replace("> <", "><");
        let chain = "fdgroup='delta'/><backingStore type='file'><format type='qcow2'/><source file='/images/aa' \
                     fdgroup='base0'/><backingStore type='file'><format type='raw'/><source file='/images/bb' \
                     fdgroup='base1'/><backingStore/></backingStore></backingStore>";
        assert!(plain.contains(chain), "{}", made.xml);
        let files: Vec<_> = made.files.iter().map(|file| (file.group.as_str(), file.writable)).collect();
        assert_eq!(files, [("delta", true), ("base0", false), ("base1", false)]);
        let facts = DomainXml::parse(&made.xml).unwrap().facts().unwrap();
        assert_eq!((facts.vcpu_pins.len(), facts.disks.len(), facts.interfaces.len()), (2, 1, 1));
        assert!(facts.numatune.is_some() && facts.has_agent_channel);
    }

    #[test]
    fn a_guest_without_a_disk_boots_the_kernel_it_is_given() {
        let kernel =
            Kernel { kernel: "/boot/k".into(), initrd: Some("/boot/i".into()), command_line: "quiet".to_owned() };
        let made = definition("boot = \"appliance\"", Some(&kernel), None, None);
        let facts = DomainXml::parse(&made.xml).unwrap().facts().unwrap();
        assert_eq!((facts.boot.kernel.as_deref(), facts.boot.initrd.as_deref()), (Some("/boot/k"), Some("/boot/i")));
        assert!(facts.disks.is_empty() && made.files.is_empty() && facts.interfaces.is_empty());
    }

    #[test]
    fn a_function_is_taken_from_its_driver_and_given_back_by_libvirt_and_is_all_of_the_network() {
        let made = definition("boot = \"appliance\"\nfunction = \"eth0\"", None, None, None);
        let facts = DomainXml::parse(&made.xml).unwrap().facts().unwrap();
        let [function] = facts.functions.as_slice() else { panic!("{}", made.xml) };
        assert!(
            function.managed && !function.interface && function.address.to_string().ends_with(":00.1"),
            "{function:?}"
        );
        assert!(facts.interfaces.is_empty() && facts.numatune.is_some());
        // Nobody takes such a guest elsewhere.
        assert!(made.xml.contains("migratable='off'") || made.xml.contains("migratable=\"off\""), "{}", made.xml);
    }

    #[test]
    fn user_data_are_a_disk_more_that_is_only_read_past_the_page_cache() {
        let delta = "/proc/7/fd/3".to_owned();
        let disk = Disk { delta, layers: vec![("/images/aa".into(), "raw", "/proc/7/fd/4".to_owned())] };
        for (bus, has_disk, name) in [("virtio", true, "vdb"), ("scsi", true, "vda"), ("virtio", false, "vda")] {
            let disk = Some(&disk).filter(|_| has_disk);
            let kernel = Kernel { kernel: "/boot/k".into(), initrd: None, command_line: "quiet".to_owned() };
            let keys = format!("bus = \"{bus}\"\nboot = \"kernel\"\nkernel = \"/boot/k\"");
            let made = definition(&keys, Some(&kernel), disk, Some("/proc/7/fd/9"));
            assert_eq!(made.seed.as_deref(), Some(name));
            let facts = DomainXml::parse(&made.xml).unwrap().facts().unwrap();
            let seed = facts.disks.last().unwrap();
            assert_eq!((seed.target.as_str(), seed.readonly), (name, true));
            assert_eq!((seed.driver.format.as_deref(), seed.driver.cache.as_deref()), (Some("raw"), Some("none")));
            assert_eq!(facts.disks.len(), 1 + usize::from(has_disk));
            let passed = made.files.last().unwrap();
            assert_eq!((passed.group.as_str(), passed.path.as_str(), passed.writable), ("seed", "/proc/7/fd/9", false));
            let source = "<source file='/nearmetal/run-job-1/seed' fdgroup='seed'/>";
            let plain = made.xml.replace('"', "'");
            assert!(plain.contains(source), "{}", made.xml);
        }
    }
}
