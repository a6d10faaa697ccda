use nearmetal_domain::DomainXml;
use nearmetal_host::{Mount, SwapArea};

use super::*;

/// One drive on node 0 and a NIC with two virtual functions on node 1.
fn host() -> Host {
    nearmetal_host::synthetic::Synthetic::new().packages(2).cores_per_node(2).nvme(0).network(1, 4, 2).build()
}

fn facts(addresses: &[PciAddress]) -> DomainFacts {
    let hostdev = |address: &PciAddress| {
        format!(
            "<hostdev mode='subsystem' type='pci' managed='yes'><source><address domain='{:#x}' bus='{:#x}' slot='{:#x}' \
             function='{:#x}'/></source></hostdev>",
            address.domain, address.bus, address.device, address.function
        )
    };
    let devices: String = addresses.iter().map(hostdev).collect();
    let text = format!("<domain type='kvm'><name>g</name><memory>1024</memory><devices>{devices}</devices></domain>");
    DomainXml::parse(&text).unwrap().facts().unwrap()
}

fn drive(host: &Host) -> PciAddress {
    host.block_devices[0].pci.unwrap()
}

fn virtual_function(host: &Host) -> PciAddress {
    host.pci_devices.iter().find(|device| device.physical_function.is_some()).unwrap().address
}

fn physical_function(host: &Host) -> PciAddress {
    host.pci_devices.iter().find(|device| device.sriov.is_some()).unwrap().address
}

fn found(host: &Host, routes: &[&str], address: PciAddress) -> String {
    let routes = routes.iter().map(|name| (*name).to_owned()).collect();
    problems(host, &routes, &facts(&[address])).join("\n")
}

#[test]
fn a_function_nobody_else_uses_has_no_problem() {
    let host = host();
    for address in [drive(&host), virtual_function(&host)] {
        assert_eq!(found(&host, &["lo"], address), "");
    }
}

#[test]
fn a_function_that_is_not_there_is_named() {
    let said = found(&host(), &[], "0000:ff:1f.7".parse().unwrap());
    assert!(said.contains("0000:ff:1f.7") && said.contains("this machine lacks"), "{said}");
}

#[test]
fn a_group_that_the_host_shares_is_not_opened() {
    let mut host = host();
    let (address, other) = (virtual_function(&host), drive(&host));
    let group = host.pci_devices.iter().find(|device| device.address == address).unwrap().iommu_group;
    let neighbour = host.pci_devices.iter_mut().find(|device| device.address == other).unwrap();
    neighbour.iommu_group = group;
    neighbour.driver = Some("nvme".to_owned());
    let said = found(&host, &[], address);
    assert!(said.contains(&other.to_string()) && said.contains("driver nvme"), "{said}");
    // All of it goes through: then it is whole.
    assert_eq!(problems(&host, &BTreeSet::new(), &facts(&[address, other])), Vec::<String>::new());
    host.pci_devices.iter_mut().find(|device| device.address == other).unwrap().driver = Some("vfio-pci".to_owned());
    assert_eq!(found(&host, &[], address), "");
}

#[test]
fn without_an_iommu_nothing_is_handed_through() {
    let mut host = host();
    let address = drive(&host);
    host.pci_devices.iter_mut().for_each(|device| device.iommu_group = None);
    assert!(found(&host, &[], address).contains("no IOMMU group"));
}

#[test]
fn the_hosts_own_drive_stays_with_it() {
    let mut host = host();
    let (address, name) = (drive(&host), host.block_devices[0].name.clone());
    let mount = |source: String, point: &str| Mount {
        point: point.to_owned(),
        kind: "ext4".to_owned(),
        source,
        number: None,
        options: Vec::new(),
    };
    // Root on a logical volume on a partition of it.
    let device = |name: &str| BlockDevice { name: name.to_owned(), ..BlockDevice::default() };
    host.block_devices.push(BlockDevice { partition_of: Some(name.clone()), ..device("part2") });
    host.block_devices.push(BlockDevice {
        parts: vec!["part2".to_owned()],
        mapped_name: Some("vg-root".to_owned()),
        ..device("dm-0")
    });
    host.mounts = Some(vec![mount("/dev/sdz1".to_owned(), "/boot"), mount("/dev/mapper/vg-root".to_owned(), "/")]);
    let said = found(&host, &[], address);
    assert!(said.contains("/ is mounted from it") && !said.contains("/boot"), "{said}");
    host.mounts = Some(Vec::new());
    host.system.swap = Some(vec![SwapArea {
        name: "/dev/part2".to_owned(),
        size: nearmetal_units::Bytes::from_mib(1),
        used: nearmetal_units::Bytes::ZERO,
    }]);
    assert!(found(&host, &[], address).contains("swap"));
}

#[test]
fn the_way_out_stays_with_the_host_over_bridges_and_for_all_functions_of_a_card() {
    let mut host = host();
    let card = physical_function(&host);
    let own = host.network_interfaces.iter().position(|interface| interface.pci == Some(card)).unwrap();
    let name = host.network_interfaces[own].name.clone();
    assert!(found(&host, &[&name], card).contains(&name));
    host.network_interfaces[own].master = Some("br0".to_owned());
    host.network_interfaces.push(nearmetal_host::NetworkInterface {
        name: "br0".to_owned(),
        ..nearmetal_host::NetworkInterface::default()
    });
    assert!(found(&host, &["br0"], card).contains("uses br0"));
    assert_eq!(found(&host, &["br0"], virtual_function(&host)), "", "a virtual function is not the card");
    // A circle of masters ends.
    host.network_interfaces.last_mut().unwrap().master = Some(name);
    assert_eq!(found(&host, &["wlan0"], card), "");
}

#[test]
fn default_routes_are_read_as_the_kernel_writes_them() {
    use crate::tests::stage::MemoryKernel;
    let kernel = MemoryKernel::default();
    assert!(default_routes(&kernel).is_empty(), "no file, no route");
    kernel.set(
        "/proc/net/route",
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
         eth0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
         eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
         eth2\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0\n",
    );
    kernel.set(
        "/proc/net/ipv6_route",
        "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 \
         00000001 00000000 00000003 bond0\n\
         00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff \
         00000001 00000000 00200200 lo\njunk\n",
    );
    assert_eq!(default_routes(&kernel).into_iter().collect::<Vec<_>>(), ["bond0", "eth0"]);
}
