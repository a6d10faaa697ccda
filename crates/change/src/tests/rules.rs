//! The doctor's rules on definitions made for new domains: placed by the planner, they have nothing wrong.

use nearmetal_domain::{
    DiskBus, DomainXml, ImageFormat, NewDisk, NewDiskSource, NewDomain, NewInterface, NewInterfaceSource,
};
use nearmetal_host::Host;
use nearmetal_host::synthetic::{Numbering, Synthetic};
use nearmetal_place::{
    DevicePlacement, DiskRequest, FunctionKind, GuestRequest, Occupied, Placement, Policy, WorkloadClass,
};
use nearmetal_rules::{Domain, Input, RULES, Settings, examine};
use nearmetal_units::{Bytes, PageSize};

use crate::*;

const UUID: &str = "0f5a1c8e-3a4b-4f55-9d0e-7b1f8a3c2d10";
/// Two packages of 8 cores with 2 PUs each, pools, and a NIC with two virtual functions on vfio-pci.
fn host() -> Host {
    let machine = Synthetic::new().packages(2).cores_per_node(8).threads(2).numbering(Numbering::Split);
    let machine = machine.memory_per_node(Bytes::from_mib(64 << 10)).pool(PageSize::HUGE_2M, 8192);
    let mut host = machine.nvme(0).network(0, 4, 2).build();
    for device in host.pci_devices.iter_mut().filter(|device| device.physical_function.is_some()) {
        device.driver = Some("vfio-pci".to_owned());
    }
    host
}

fn request(class: WorkloadClass) -> GuestRequest {
    GuestRequest {
        name: "new".to_owned(),
        uuid: UUID.to_owned(),
        vcpus: 4,
        memory: Bytes::from_mib(4096),
        class,
        disks: vec![DiskRequest {
            target: "vda".to_owned(),
            source: Some("/dev/nvme0n1".to_owned()),
            block_device: Some("nvme0n1".to_owned()),
            is_block: true,
            is_virtio_blk: true,
            is_read_only: false,
        }],
        networks: Vec::new(),
        passthrough: Vec::new(),
        shows: Default::default(),
    }
}

fn new(class: WorkloadClass, one_to_one: bool) -> NewDomain {
    let queues = (class == WorkloadClass::Throughput).then_some(4);
    let source = NewInterfaceSource::Bridge("br0".to_owned());
    let new = NewDomain {
        disks: vec![NewDisk { source: NewDiskSource::Block("/dev/nvme0n1".to_owned()), bus: DiskBus::Virtio }],
        interfaces: vec![NewInterface { source, mac: None, backend: None, queues }],
        ..NewDomain::new("new", UUID, 4, Bytes::from_mib(4096))
    };
    shaped_by_class(new, class, one_to_one)
}

/// As the planner places it; guests of the classes that pay for it get a virtual function.
fn placed(host: &Host, class: WorkloadClass) -> Placement {
    let planned = nearmetal_place::plan(host, &Occupied::default(), &[request(class)], &Policy::default());
    let mut placement = planned.plan.placements.first().unwrap().clone();
    let pu = |index: usize| placement.vcpus.get(index).and_then(|pin| pin.cpus.first());
    let siblings = pu(0).and_then(|first| host.processor(first)?.siblings.clone());
    placement.threads_per_core = siblings.filter(|set| pu(1).is_some_and(|pu| set.contains(pu))).map(|_| 2);
    if matches!(class, WorkloadClass::Latency | WorkloadClass::Passthrough) {
        let function = host.pci_devices.iter().find(|device| device.physical_function.is_some()).unwrap();
        placement.devices = vec![DevicePlacement {
            function: function.address,
            kind: FunctionKind::NetworkVirtual { mac: None, vlan: None },
            cell: None,
            node: function.node,
        }];
    }
    placement
}

/// What rules of definitions find: (rule, what of it).
fn findings(host: &Host, xml: &str, class: WorkloadClass) -> Vec<String> {
    let facts = DomainXml::parse(xml).unwrap().facts().unwrap();
    let domains = [Domain::new(Some(facts), None, Some(class)).unwrap()];
    let settings = Settings::default();
    let result = examine(&Input { host: Some(host), domains: &domains, settings: &settings }, RULES);
    let of_definitions = |id: &str| {
        let layer = RULES.iter().find(|rule| rule.id == id).map(|rule| rule.layer.as_str());
        layer.is_some_and(|layer| layer.starts_with("domain-") || layer == "numa")
    };
    let found = result.findings.into_iter().filter(|finding| of_definitions(&finding.rule));
    found.map(|finding| format!("{}: {:?}", finding.rule, finding.objects)).collect()
}

#[test]
fn a_placed_new_domain_has_nothing_against_its_definition() {
    let host = host();
    for class in WorkloadClass::ALL {
        let placement = placed(&host, class);
        let plan = nearmetal_place::Plan { placements: vec![placement.clone()], ..Default::default() };
        let file = compose_with_new(&host, &plan, &[], &[new(class, !placement.is_floating())]).unwrap();
        let found = findings(&host, &file.domains[0].xml_after, class);
        assert!(found.is_empty(), "{class:?}: {found:#?}\n{}", file.domains[0].xml_after);
    }
}

#[test]
fn an_image_that_grows_gives_back_what_the_guest_discards() {
    let host = host();
    let source = NewDiskSource::File { path: "/images/a.qcow2".to_owned(), format: ImageFormat::Qcow2 };
    let general = WorkloadClass::General;
    let image = NewDomain { disks: vec![NewDisk { source, bus: DiskBus::Scsi }], ..new(general, false) };
    let found = findings(&host, image.to_xml().unwrap().as_str(), general);
    assert!(found.iter().all(|text| !text.starts_with("disk-discard") && !text.starts_with("disk-bus")), "{found:?}");
}
