//! Which function a run gets, what is read back of it, and where it goes.

use super::*;
use crate::flavour::Flavours;
use crate::given::Given;
use crate::reservation::tests::reservation;
use crate::slice::Choice;
use nearmetal_host::ledger::Owner;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Entry, MemoryTree, assignable, ledger};
use nearmetal_units::Bytes;
use proptest::prelude::*;

const UUID: &str = "11111111-2222-4333-8444-555555555555";

fn flavour(port: &str) -> Flavour {
    let text = format!("[[flavour]]\nname = \"job\"\nvcpus = 1\nmemory = \"1 GiB\"\nfunction = \"{port}\"\n");
    Flavours::parse("test", &text).unwrap().all()[0].clone()
}

/// Two ports, `eth0` with `first` virtual functions and `eth1` with `second`.
fn functions(first: u32, second: u32) -> Vec<Assignable> {
    let host = Synthetic::new().packages(2).network(1, 7, first).network(0, 7, second).build();
    assignable::examine(&host, &ledger::of(&host, &[]))
}

/// Addresses of a port's functions, the lowest first.
fn of_port(functions: &[Assignable], port: &str) -> Vec<PciAddress> {
    let card = functions.iter().find(|one| one.names.contains(&port.to_owned())).unwrap().function;
    let mut own: Vec<_> = functions.iter().filter(|one| one.virtual_of.is_some_and(|of| of.0 == card)).collect();
    own.sort_by_key(|one| one.function);
    own.into_iter().map(|one| one.function).collect()
}

fn with(name: &str, function: PciAddress) -> Reservation {
    Reservation { functions: vec![Lent::nothing_known(function)], ..reservation(name, "1") }
}

#[test]
fn the_lowest_that_nobody_has_is_chosen_and_a_flavour_without_one_gets_none() {
    let all = functions(3, 2);
    let own = of_port(&all, "eth0");
    assert_eq!(choose(&flavour("eth0"), &all, &[]).unwrap(), Some(own[0]));
    assert_eq!(choose(&flavour("eth0"), &all, &[with("run-a", own[0])]).unwrap(), Some(own[1]));
    assert_eq!(choose(&flavour("eth1"), &all, &[with("run-a", own[0])]).unwrap(), Some(of_port(&all, "eth1")[0]));
    let none = Flavour { network: Network::User, ..flavour("eth0") };
    assert_eq!(choose(&none, &all, &[]).unwrap(), None);
}

#[test]
fn who_has_each_is_told_where_none_is_free() {
    let mut all = functions(4, 1);
    let own = of_port(&all, "eth0");
    let place = |number: usize| all.iter().position(|one| one.function == own[number]).unwrap();
    let [second, third, fourth] = [1, 2, 3].map(place);
    all[second].guest = Some(Owner { name: "db".to_owned(), pid: 70 });
    all[third].obstacles = vec![assignable::Obstacle::InterfaceUp { interface: "eth7".to_owned() }];
    // In one group with the second, which the guest has.
    all[fourth].group = all[second].group;
    let error = choose(&flavour("eth0"), &all, &[with("run-a", own[0])]).unwrap_err().to_string();
    for says in [
        "virtual function of the port `eth0` is free for the flavour `job`".to_owned(),
        format!("{}: the run `run-a` (process 7) has it", own[0]),
        format!("{}: the guest `db` has it", own[1]),
        format!("{}: `eth7` is up", own[2]),
        format!("{}: `db` has {}, which shares its IOMMU group", own[3], own[1]),
    ] {
        assert!(error.contains(&says), "{says}: {error}");
    }
    // Neither a card nor another card's function stands in.
    assert!(matches!(choose(&flavour("eth9"), &all, &[]), Err(RunError::NoFunction { .. })));
}

#[test]
fn a_guest_runs_on_the_node_of_its_function() {
    for node in [0, 1] {
        let machine = Synthetic::new().packages(2).cores_per_node(4).memory_per_node(Bytes::from_mib(8192));
        let host = &machine.network(node, 7, 1).build();
        let functions = &assignable::examine(host, &ledger::of(host, &[]))[..];
        let given = &Given { cpus: host.online(), nodes: "0-1".parse().unwrap(), memory: Vec::new() };
        let (name, uuid, others, has_disk, beside) = ("run-job-1", UUID, &[][..], false, Bytes::ZERO);
        let flavour = &flavour("eth0");
        let chosen = Choice { flavour, name, uuid, host, given, others, functions, has_disk, beside }.choose().unwrap();
        assert_eq!(chosen.placement().memory.nodes.to_string(), node.to_string());
        assert_eq!(chosen.function, Some(of_port(functions, "eth0")[0]));
    }
}

proptest! {
    #[test]
    fn no_two_runs_share_a_function_or_its_group_whoever_ends_and_no_free_one_is_overlooked(
        groups in prop::collection::vec(0u32..6, 7),
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), any::<prop::sample::Index>()), 1..40),
    ) {
        let mut all = functions(5, 2);
        let virtuals = all.iter_mut().filter(|one| one.virtual_of.is_some());
        virtuals.zip(&groups).for_each(|(one, group)| one.group = Some(100 + group));
        let group = |function| all.iter().find(|one| one.function == function).unwrap().group;
        let mut living: Vec<Reservation> = Vec::new();
        for (number, (second, end, which)) in steps.into_iter().enumerate() {
            if end && !living.is_empty() {
                living.remove(which.index(living.len()));
                continue;
            }
            let port = if second { "eth1" } else { "eth0" };
            let own = of_port(&all, port);
            let is_free = |function: &&PciAddress| {
                living.iter().all(|run| run.functions.iter().all(|lent| group(lent.function) != group(**function)))
            };
            let free = own.iter().find(is_free).copied();
            prop_assert_eq!(choose(&flavour(port), &all, &living).ok().flatten(), free);
            living.extend(free.map(|function| with(&format!("run-{number}"), function)));
        }
    }
}

/// A machine with a function of this driver, in group 12, and one QEMU that has these files open.
fn machine(driver: Option<&str>, open: &[&str]) -> HostFs {
    let mut tree = MemoryTree::new();
    let mut put = |path: &str, entry| tree.put(path, entry).unwrap();
    let root = "/sys/bus/pci/devices/0000:39:10.0";
    for (name, text) in [("vendor", "0x8086"), ("device", "0x10ca"), ("driver_override", "(null)")] {
        put(&format!("{root}/{name}"), Entry::File(format!("{text}\n").into_bytes()));
    }
    put(&format!("{root}/iommu_group"), Entry::Link("../../../kernel/iommu_groups/12".to_owned()));
    put(&format!("{root}/vfio-dev/vfio3/dev"), Entry::File(b"511:3\n".to_vec()));
    if let Some(driver) = driver {
        put(&format!("{root}/driver"), Entry::Link(format!("../../../bus/pci/drivers/{driver}")));
    }
    let line = format!("qemu-system-x86_64\0-name\0guest=run-job-1\0-uuid\0{UUID}\0");
    put("/proc/70/cmdline", Entry::File(line.into_bytes()));
    for (fd, target) in open.iter().enumerate() {
        put(&format!("/proc/70/fd/{fd}"), Entry::Link((*target).to_owned()));
        put(&format!("/proc/70/fdinfo/{fd}"), Entry::File(b"pos:\t0\nflags:\t0100002\n".to_vec()));
    }
    HostFs::of_tree(tree, "test")
}

#[test]
fn a_function_that_qemu_does_not_have_behind_the_iommu_or_that_cannot_be_seen_is_a_difference() {
    let lent = [Lent::nothing_known("0000:39:10.0".parse().unwrap())];
    let look = |driver, open: &[&str]| read_back(&machine(driver, open), UUID, &lent);
    for open in [["/dev/null", "/dev/vfio/12"], ["/dev/null", "/dev/vfio/devices/vfio3"]] {
        look(Some("vfio-pci"), &open).unwrap();
        look(Some("mlx5_vfio_pci"), &open).unwrap();
    }
    for (driver, open, says) in [
        (Some("igbvf"), "/dev/vfio/12", "planned driver vfio-pci, found igbvf"),
        (None, "/dev/vfio/12", "planned driver vfio-pci, found no driver"),
        (Some("vfio-pci"), "/dev/vfio/13", "found that process 70 has not opened /dev/vfio/12"),
        (Some("vfio-pci"), "/dev/vfio/noiommu-12", "planned an IOMMU, found /dev/vfio/noiommu-12"),
    ] {
        let wrong = look(driver, &[open]).unwrap_err();
        assert!(wrong.len() == 1 && wrong[0].starts_with("PCI function 0000:39:10.0: "), "{wrong:?}");
        assert!(wrong[0].contains(says), "{wrong:?}");
    }
    // Nothing to be seen is no proof: no QEMU, no function, no descriptors.
    let unseen = read_back(&machine(Some("vfio-pci"), &["/dev/vfio/12"]), "another", &lent).unwrap_err();
    assert!(unseen.len() == 1 && unseen[0].contains("no QEMU process"), "{unseen:?}");
    let gone = [Lent::nothing_known("0000:39:10.2".parse().unwrap())];
    assert_eq!(read_back(&machine(Some("vfio-pci"), &["/dev/vfio/12"]), UUID, &gone).unwrap_err().len(), 2);
    assert!(look(Some("vfio-pci"), &[]).is_err());
    read_back(&machine(None, &[]), "another", &[]).unwrap();
}

#[test]
fn a_function_that_somebody_uses_whom_the_host_does_not_show_is_no_candidate() {
    let function: PciAddress = "0000:39:10.0".parse().unwrap();
    let used = |fs: &HostFs, set_aside: bool| user(fs, function, set_aside);
    // Its driver without an interface to be seen, VFIO that nobody here asked for, a process that is no guest.
    let said = used(&machine(Some("igbvf"), &[]), false).unwrap();
    assert!(said.contains("another network namespace"), "{said}");
    let said = used(&machine(Some("vfio-pci"), &[]), false).unwrap();
    assert!(said.contains("did not set it aside"), "{said}");
    assert_eq!((used(&machine(Some("vfio-pci"), &[]), true), used(&machine(None, &[]), false)), (None, None));
    let mut own = functions(1, 1);
    let place = own.iter().position(|one| one.virtual_of.is_some()).unwrap();
    own[place].function = function;
    note_users(&machine(Some("igbvf"), &[]), &mut own, &BTreeSet::new());
    assert!(matches!(own[place].obstacles.as_slice(), [Obstacle::Used { by }] if by.contains("igbvf")), "{own:?}");
}
