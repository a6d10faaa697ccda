//! One change to a sound host, and the obstacle it makes.

use super::*;
use crate::ledger::{DeviceUse, OpenDevices};
use crate::synthetic::Synthetic;
use crate::{BlockDevice, GuestProcess, Mount, NetworkInterface, SwapArea, ledger};

/// eth0 with two VFs on node 1, nvme0n1 on node 0; every function can be reset, no interface is up.
fn host() -> Host {
    let mut host = Synthetic::new().packages(2).nvme(0).network(1, 7, 2).build();
    for device in &mut host.pci_devices {
        device.resets = Some(vec!["flr".to_owned()]);
    }
    host.network_interfaces[0].state = Some("down".to_owned());
    host
}

fn look(host: &Host) -> Vec<Assignable> {
    examine(host, &ledger::of(host, &[]))
}

/// Reasons of the first function of this kind that is not virtual.
fn reasons(host: &Host, kind: &str) -> Vec<Obstacle> {
    look(host).into_iter().find(|one| one.kind == kind && one.virtual_of.is_none()).unwrap().obstacles
}

fn mount(point: &str, source: &str, number: Option<&str>) -> Option<Vec<Mount>> {
    let number = number.map(str::to_owned);
    let (point, kind, source) = (point.to_owned(), "ext4".to_owned(), source.to_owned());
    Some(vec![Mount { point, kind, source, number, options: Vec::new() }])
}

fn stacked(host: &mut Host) {
    host.block_devices[0].holders = vec!["dm-0".to_owned()];
    let parts = vec!["nvme0n1".to_owned()];
    let mapped_name = Some("vg0-root".to_owned());
    host.block_devices.push(BlockDevice { name: "dm-0".to_owned(), parts, mapped_name, ..BlockDevice::default() });
}

#[test]
fn a_function_nobody_uses_is_free_and_a_card_with_virtual_functions_is_not() {
    let found = look(&host());
    let seen: Vec<_> = found.iter().map(|one| (one.node, one.kind.as_str(), one.is_free())).collect();
    let (drive, card) = ((Some(0), "nvme", true), (Some(1), "network", false));
    assert_eq!(seen, [drive, card, (Some(1), "network", true), (Some(1), "network", true)]);
    assert_eq!(found[1].obstacles, [Obstacle::HasVirtualFunctions { count: 2 }]);
    assert_eq!(found[1].virtual_functions, Some(VirtualFunctions { total: 7, made: 2, used: 0 }));
    assert_eq!(found[3].virtual_of, Some((found[1].function, 1)));
    assert_eq!((found[0].names.join(" "), found[1].names.join(" ")), ("nvme0n1".to_owned(), "eth0".to_owned()));
}

#[test]
fn without_an_iommu_nothing_is_free() {
    let mut host = Synthetic::new().without_iommu().nvme(0).build();
    assert_eq!(reasons(&host, "nvme"), [Obstacle::NoIommu]);
    host.pci_devices[0].iommu_group = Some(3);
    assert_eq!(reasons(&host, "nvme"), []);
}

#[test]
fn a_group_is_shared_with_what_the_host_drives_and_not_with_bridges_or_parked_functions() {
    let mut host = host();
    let group = host.pci_devices[0].iommu_group.unwrap();
    let mut other = |class, driver: Option<&str>, number| {
        let address = crate::PciDevice::default().address;
        host.pci_devices.push(crate::PciDevice {
            address: PciAddress { bus: 0x80, device: number, ..address },
            class: Some(class),
            driver: driver.map(str::to_owned),
            iommu_group: Some(group),
            ..crate::PciDevice::default()
        });
    };
    other(0x06_0400, Some("pcieport"), 0);
    other(0x0c_0330, None, 1);
    other(0x0c_0330, Some("vfio-pci"), 2);
    assert_eq!(reasons(&host, "nvme"), []);
    host.pci_devices.last_mut().unwrap().driver = Some("xhci_hcd".to_owned());
    let found = reasons(&host, "nvme");
    let [Obstacle::GroupShared { group: own, with }] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((*own, with.len(), with[0].driver.as_deref()), (group, 1, Some("xhci_hcd")));
    assert!(found[0].to_string().contains("shared with 0000:80:02.0 (xhci_hcd)"), "{}", found[0]);
    assert_eq!(look(&host)[0].group_members.len(), 3);
}

#[test]
fn drives_in_use_are_named_with_what_uses_them() {
    let of = |change: &dyn Fn(&mut Host)| {
        let mut host = host();
        change(&mut host);
        reasons(&host, "nvme")
    };
    let root = |device: &str| vec![Obstacle::Mounted { device: device.to_owned(), point: "/".to_owned() }];
    assert_eq!(of(&|host| host.mounts = mount("/", "/dev/nvme0n1", None)), root("nvme0n1"));
    assert_eq!(of(&|host| host.mounts = mount("/", "/dev/root", Some("259:0"))), root("nvme0n1"));
    assert_eq!(of(&|host| host.mounts = mount("/", "/dev/sda", Some("8:0"))), []);
    let partition = BlockDevice {
        name: "nvme0n1p2".to_owned(),
        partition_of: Some("nvme0n1".to_owned()),
        number: Some("259:9".to_owned()),
        ..BlockDevice::default()
    };
    let with_partition = |host: &mut Host| {
        host.block_devices.push(partition.clone());
        host.mounts = mount("/", "/dev/x", Some("259:9"));
    };
    assert_eq!(of(&with_partition), root("nvme0n1p2"));
    let volume = |host: &mut Host| {
        stacked(host);
        host.mounts = mount("/", "/dev/mapper/vg0-root", None);
    };
    assert_eq!(of(&volume), root("dm-0"));
    let swap = |host: &mut Host| {
        let (size, used) = Default::default();
        host.system.swap = Some(vec![SwapArea { name: "/dev/nvme0n1".to_owned(), size, used }]);
    };
    assert_eq!(of(&swap), [Obstacle::Swap { device: "nvme0n1".to_owned() }]);
    let (device, holder) = ("nvme0n1".to_owned(), "dm-0".to_owned());
    assert_eq!(of(&stacked), [Obstacle::Stacked { device, holder }]);
}

#[test]
fn a_namespace_that_another_controller_leads_to_outlives_this_one() {
    let mut host = host();
    host.mounts = mount("/", "/dev/nvme0n1", None);
    let own = host.pci_devices[0].address;
    host.block_devices[0].paths = vec![own, PciAddress { bus: 0x77, ..own }];
    assert_eq!(reasons(&host, "nvme"), []);
    // Its own virtual functions vanish with it.
    host.block_devices[0].paths = vec![own, PciAddress { function: 1, ..own }];
    host.pci_devices[0].sriov =
        Some(crate::SriovState { total_vfs: 4, vfs: 1, functions: vec![PciAddress { function: 1, ..own }] });
    assert!(matches!(reasons(&host, "nvme")[0], Obstacle::Mounted { .. }));
}

#[test]
fn interfaces_in_use_are_named_with_what_uses_them() {
    let mut host = host();
    host.pci_devices.retain(|device| device.physical_function.is_none());
    host.pci_devices[1].sriov = None;
    let name = || "eth0".to_owned();
    assert_eq!(reasons(&host, "network"), []);
    host.network_interfaces[0].state = Some("up".to_owned());
    assert_eq!(reasons(&host, "network"), [Obstacle::InterfaceUp { interface: name() }]);
    host.network_interfaces[0].default_route = Some(true);
    assert_eq!(reasons(&host, "network"), [Obstacle::DefaultRoute { interface: name(), through: None }]);
    host.network_interfaces[0].default_route = Some(false);
    host.network_interfaces[0].master = Some("bond0".to_owned());
    assert_eq!(reasons(&host, "network"), [Obstacle::Member { interface: name(), master: "bond0".to_owned() }]);
    let above = |name: &str, master: Option<&str>, default_route| NetworkInterface {
        name: name.to_owned(),
        master: master.map(str::to_owned),
        default_route,
        ..NetworkInterface::default()
    };
    host.network_interfaces.push(above("bond0", Some("br0"), Some(false)));
    host.network_interfaces.push(above("br0", Some("bond0"), Some(true)));
    let through = Some("br0".to_owned());
    assert_eq!(reasons(&host, "network"), [Obstacle::DefaultRoute { interface: name(), through }]);
}

#[test]
fn consoles_and_functions_without_a_reset_stay() {
    let mut host = host();
    host.pci_devices[0].console = Some(true);
    assert_eq!(reasons(&host, "nvme"), [Obstacle::Console]);
    host.pci_devices[0].console = Some(false);
    for none in [None, Some(Vec::new())] {
        host.pci_devices[0].resets = none;
        assert_eq!(reasons(&host, "nvme"), [Obstacle::NoReset], "others tell");
        assert_eq!(look(&host)[0].resets, Some(Vec::new()));
    }
    host.pci_devices.iter_mut().for_each(|device| device.resets = None);
    assert_eq!(
        (reasons(&host, "nvme"), look(&host)[0].resets.clone()),
        (Vec::new(), None),
        "an old kernel tells nothing"
    );
}

#[test]
fn what_a_guest_has_is_counted_and_is_no_obstacle() {
    let mut host = host();
    host.guests = vec![GuestProcess { pid: 77, name: Some("web1".to_owned()), ..GuestProcess::default() }];
    host.pci_devices[2].driver = Some("vfio-pci".to_owned());
    let group = host.pci_devices[2].iommu_group.unwrap();
    let open = OpenDevices { pid: 77, files: Some(vec![format!("/dev/vfio/{group}"), "/dev/nvme0n1".to_owned()]) };
    let ledger = ledger::of(&host, &[open]);
    let found = examine(&host, &ledger);
    assert_eq!((found[2].guest.as_ref().map(|owner| owner.name.as_str()), found[2].is_free()), (Some("web1"), false));
    assert_eq!(found[1].virtual_functions.map(|own| own.used), Some(1));
    let (device, guest) = ("nvme0n1".to_owned(), "web1".to_owned());
    assert_eq!(found[0].obstacles, [Obstacle::Disk { device, guest }]);
    let text = render(&found);
    assert!(text.contains("has it: web1") && text.contains("2 of 7, 1 used") && text.contains("NODE 1"), "{text}");
    // A disk is open, not handed through.
    let disk: Vec<&DeviceUse> = ledger.devices.iter().filter(|one| one.by == "open").collect();
    assert_eq!((disk.len(), guest_of(&ledger, host.pci_devices[0].address)), (1, None));
}
