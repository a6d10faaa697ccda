//! Every setter on one small domain: `fixtures/domains/setters/NAME.before.xml` becomes `NAME.after.xml`, and setting
//! the same again changes no byte. With UPDATE_GOLDENS set the after-files are written; read their difference.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_domain::{
    Cell, DiskBus, DiskCache, DiskIo, DiskSource, DomainError, DomainXml, DriverOptions, Function, ImageFormat,
    InterfaceOptions, NetworkBackend, NetworkFunction, NewDisk, NewDiskSource, NewInterface, NewInterfaceSource, diff,
    render_diff,
};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize, VlanId};

type Setter = fn(&mut DomainXml) -> Result<bool, DomainError>;

macro_rules! golden {
    ($($name:ident => $setter:expr;)*) => {
        $(#[test]
        fn $name() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/domains/setters/");
            let before = include_str!(concat!("../../../fixtures/domains/setters/", stringify!($name), ".before.xml"));
            check(before, $setter, &format!("{folder}{}.after.xml", stringify!($name)));
        })*
    };
}

#[allow(clippy::disallowed_methods, reason = "goldens are plain files of this repository")]
fn check(before: &str, setter: Setter, golden: &str) {
    let mut xml = DomainXml::parse(before).unwrap();
    assert!(setter(&mut xml).unwrap(), "the text changes");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::write(golden, xml.as_str()).unwrap();
    }
    let wanted = std::fs::read_to_string(golden).unwrap();
    assert_eq!(xml.as_str(), wanted, "\n{}", render_diff(&diff(&wanted, xml.as_str()), "golden", "found"));
    assert!(!setter(&mut xml).unwrap(), "the second time nothing changes");
    assert_eq!(xml.as_str(), wanted);
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn planned() -> DriverOptions {
    DriverOptions {
        cache: Some(DiskCache::None),
        io: Some(DiskIo::IoUring),
        iothread: Some(1),
        iothreads: None,
        main_loop: false,
        queues: Some(4),
    }
}

fn interface(xml: &mut DomainXml, backend: NetworkBackend, queues: u32) -> Result<bool, DomainError> {
    let options = InterfaceOptions { backend, queues, offloads_off: backend == NetworkBackend::Vhost };
    xml.set_interface_driver("52:54:00:AA:00:01".parse().unwrap(), &options)
}

fn two_cells() -> Vec<Cell> {
    let cell = |vcpus, node, distances: [u32; 2]| Cell {
        vcpus: cpus(vcpus),
        memory: Bytes::from_mib(4096),
        nodes: nodes(node),
        distances: distances.to_vec(),
    };
    vec![cell("0-3", "2", [10, 21]), cell("4-7", "3", [21, 10])]
}

/// The disk that is there, one that is not, and two interfaces of one network where there is one.
fn missing(xml: &mut DomainXml) -> Result<bool, DomainError> {
    let disk = |path: &str| NewDisk { source: NewDiskSource::Block(path.into()), bus: DiskBus::Virtio };
    let log = NewDiskSource::File { path: "/images/log.qcow2".into(), format: ImageFormat::Qcow2 };
    let disks = [disk("/dev/vg/web"), NewDisk { source: log, bus: DiskBus::Virtio }];
    let on = |source| NewInterface { source, mac: None, backend: None, queues: None };
    let vlan = Some(VlanId::try_from(7).unwrap());
    let pooled = || on(NewInterfaceSource::FunctionPool("vfs".into(), vlan));
    xml.add_missing_devices(&disks, &[on(NewInterfaceSource::Network("default".into())), pooled(), pooled()])
}

/// A whole function on cell 1, two virtual functions of a NIC on cell 0.
fn functions() -> Vec<Function> {
    let network = |mac: Option<&str>, vlan: Option<u16>| {
        let vlan = vlan.map(|vlan| VlanId::try_from(vlan).unwrap());
        Some(NetworkFunction { mac: mac.map(|mac| mac.parse().unwrap()), vlan })
    };
    let function = |address: &str, network, cell| Function { address: address.parse().unwrap(), network, cell };
    vec![
        function("3b:00.0", None, Some(1)),
        function("3b:02.1", network(Some("52:54:00:aa:00:01"), Some(100)), Some(0)),
        function("3b:02.2", network(None, None), Some(0)),
        function("c1:00.0", None, None),
    ]
}

golden! {
    set_cells_new => |xml| xml.set_cells(&two_cells());
    set_cells_kept => |xml| xml.set_cells(&two_cells());
    set_topology_new => |xml| xml.set_topology(1, 4, 2);
    set_topology_kept => |xml| xml.set_topology(1, 4, 2);
    set_functions_new => |xml| xml.set_functions(&functions());
    set_functions_kept => |xml| xml.set_functions(&functions());
    set_functions_i440fx => |xml| xml.set_functions(&functions());
    set_name => |xml| xml.set_name("db & co");
    set_size => |xml| xml.set_size(8, nearmetal_units::Bytes::from_mib(4096));
    set_uuid => |xml| xml.set_uuid("4b1d6c52-6d6e-4f0c-8a38-0f4d6f2c9b11");
    remove_uuid => |xml| xml.remove_uuid();
    set_vcpu_placement_static => |xml| xml.set_vcpu_placement_static();
    set_vcpu_pins_new => |xml| xml.set_vcpu_pins(&[(0, cpus("4")), (1, cpus("20")), (2, cpus("5,21"))]);
    set_vcpu_pins_merged => |xml| xml.set_vcpu_pins(&[(0, cpus("4")), (1, cpus("5")), (2, cpus("21"))]);
    set_vcpu_pins_none => |xml| xml.set_vcpu_pins(&[]);
    set_emulator_pin => |xml| xml.set_emulator_pin(&cpus("2-3"));
    remove_pins => |xml| xml.remove_pins();
    set_iothreads_new => |xml| xml.set_iothreads(&[cpus("3"), cpus("19")]);
    set_iothreads_kept => |xml| xml.set_iothreads(&[cpus("3"), cpus("19")]);
    set_numatune_strict_new => |xml| xml.set_numatune_strict(&nodes("1"));
    set_numatune_strict_auto => |xml| xml.set_numatune_strict(&nodes("1"));
    set_numatune_strict_cells => |xml| xml.set_numatune_strict(&nodes("1"));
    set_hugepages_new => |xml| xml.set_hugepages(PageSize::HUGE_2M);
    set_hugepages_beside => |xml| xml.set_hugepages(PageSize::HUGE_1G);
    set_hugepages_several => |xml| xml.set_hugepages(PageSize::HUGE_2M);
    remove_hugepages => |xml| xml.remove_hugepages();
    set_disk_driver_new => |xml| xml.set_disk_driver("vda", &planned());
    set_disk_driver_kept => |xml| xml.set_disk_driver("vda", &planned());
    set_interface_driver_new => |xml| interface(xml, NetworkBackend::Vhost, 4);
    set_interface_driver_kept => |xml| interface(xml, NetworkBackend::Vhost, 4);
    set_interface_driver_one_queue => |xml| interface(xml, NetworkBackend::Qemu, 1);
    replace_disk_source => |xml| xml.replace_disk_source("vda", &DiskSource::Block("/dev/mapper/arm-1".into()));
    remove_disk => |xml| Ok(xml.remove_disk("vdb").unwrap_or(false));
    regenerate_mac_addresses => |xml| xml.regenerate_mac_addresses("clone");
    remove_mac_addresses => |xml| xml.remove_mac_addresses();
    remove_devices => |xml| xml.remove_devices(&["interface", "hostdev"]);
    remove_interfaces => |xml| xml.remove_interfaces(&["hostdev", "vhostuser"]);
    replace_consoles => |xml| xml.replace_consoles();
    set_direct_boot => |xml| xml.set_direct_boot("/boot/vmlinuz", Some("/boot/initrd"), "console=ttyS0 quiet");
    remove_nvram => |xml| xml.remove_nvram();
    add_missing_devices => missing;
    add_agent_channel => |xml| xml.add_agent_channel();
    remove_metadata => |xml| xml.remove_metadata();
}

#[test]
fn iothreads_that_share_queues_replace_the_one_and_leave_for_it() {
    let text = "<domain type='kvm'><name>a</name><memory>1024</memory><vcpu>4</vcpu><devices><disk><driver name='qemu' iothread='1' queues='4'/><target dev='vda' bus='virtio'/></disk></devices></domain>";
    let mut xml = DomainXml::parse(text).unwrap();
    let shared = DriverOptions { iothreads: Some(2), ..DriverOptions::default() };
    assert!(xml.set_disk_driver("vda", &shared).unwrap() && !xml.set_disk_driver("vda", &shared).unwrap());
    assert!(
        xml.as_str()
            .contains("<driver name='qemu' queues='4'><iothreads><iothread id='1'/><iothread id='2'/></iothreads>"),
        "{}",
        xml.as_str()
    );
    let driver = xml.facts().unwrap().disks[0].driver.clone();
    assert_eq!((driver.iothread, driver.iothread_mapping), (None, vec![1, 2]));
    // Queues that somebody dealt otherwise are not in turns.
    let dealt = xml.as_str().replace("<iothread id='2'/>", "<iothread id='2'><queue id='0'/></iothread>");
    let mut dealt = DomainXml::parse(&dealt).unwrap();
    assert!(dealt.set_disk_driver("vda", &shared).unwrap() && dealt.as_str() == xml.as_str());
    let one = DriverOptions { iothread: Some(1), ..DriverOptions::default() };
    assert!(xml.set_disk_driver("vda", &one).unwrap() && !xml.as_str().contains("<iothreads>"), "{}", xml.as_str());
    let both = DriverOptions { iothread: Some(1), ..shared };
    let error = xml.set_disk_driver("vda", &both).unwrap_err().to_string();
    assert!(error.contains("one iothread, or several"), "{error}");
}

#[test]
fn a_disk_of_the_main_loop_has_no_iothread_left() {
    let of = |driver: &str| {
        let text = format!(
            "<domain type='kvm'><name>a</name><memory>1024</memory><vcpu>4</vcpu><devices><disk>{driver}<target dev='vda' bus='virtio'/></disk></devices></domain>"
        );
        let mut xml = DomainXml::parse(&text).unwrap();
        let options = DriverOptions { main_loop: true, ..DriverOptions::default() };
        let changed = xml.set_disk_driver("vda", &options).unwrap();
        assert!(!xml.set_disk_driver("vda", &options).unwrap());
        (changed, xml.facts().unwrap().disks[0].driver.clone())
    };
    for driver in [
        "<driver iothread='1' queues='2'/>",
        "<driver><iothreads><iothread id='1'><queue id='0'/></iothread></iothreads></driver>",
    ] {
        let (changed, facts) = of(driver);
        assert!(changed && facts.iothread.is_none() && facts.iothread_mapping.is_empty(), "{facts:?}");
    }
    assert!(!of("<driver queues='2'/>").0);
}
