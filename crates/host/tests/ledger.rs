//! Who owns what, on synthetic hosts with guests.
#![allow(clippy::unwrap_used, reason = "a set that cannot be parsed is a failed test")]

use nearmetal_host::ledger::{self, Conflict, Ledger, OpenDevices};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{Entry, GuestProcess, Host, HostFs, Interrupt, MemoryTree, Residency, Thread, ThreadRole};
use nearmetal_units::{Bytes, PageSize};

/// A guest with its vCPUs on those PUs, its emulator thread on another, and 1 GiB on a node.
fn guest(name: &str, pid: u32, vcpus: &[&str], emulator: &str, node: u32) -> GuestProcess {
    let thread = |id: u32, role, cpus: &str| Thread {
        id,
        name: String::new(),
        role,
        affinity: Some(cpus.parse().unwrap()),
        scheduling: None,
    };
    let mut threads = vec![thread(pid, ThreadRole::Emulator, emulator)];
    let numbered = (0..).zip(vcpus);
    threads.extend(numbered.map(|(number, cpus)| thread(pid + 1 + number, ThreadRole::Vcpu(number), cpus)));
    GuestProcess {
        pid,
        start_time: Some(1),
        name: Some(name.to_owned()),
        uuid: None,
        memory: Some(Bytes::from_mib(1024)),
        threads,
        residency: vec![Residency {
            start: 0,
            page_size: PageSize::HUGE_2M,
            length: Bytes::from_mib(1024),
            guest_memory: true,
            pages: vec![(node, 512)],
            policy: format!("bind:{node}"),
            file: None,
        }],
        ..GuestProcess::default()
    }
}

/// Two nodes of two cores with two PUs: node 0 has PUs 0-3, node 1 has 4-7; siblings are neighbours.
fn host(guests: Vec<GuestProcess>) -> Host {
    let mut host = Synthetic::new().packages(2).threads(2).nvme(1).network(0, 2, 1).build();
    host.guests = guests;
    host
}

fn conflicts(host: &Host) -> Vec<String> {
    ledger::of(host, &[]).conflicts.iter().map(ToString::to_string).collect()
}

#[test]
fn guests_apart_have_no_conflict() {
    let host = host(vec![guest("db", 100, &["2", "3"], "0", 0), guest("web", 200, &["4", "5"], "0-1", 1)]);
    let ledger = ledger::of(&host, &[]);
    assert_eq!(ledger.conflicts, []);
    assert_eq!(ledger.free.to_string(), "0-1,6-7");
    assert_eq!(ledger.on(2).map(|claim| claim.owner.name.as_str()).collect::<Vec<_>>(), ["db"]);
    let expected = "\
WHO MAY RUN WHERE
guest  threads          bound to PUs
db     2 vCPUs          2 3
db     emulator thread  0
web    2 vCPUs          4 5
web    emulator thread  0-1

WHOSE MEMORY IS WHERE
guest  node  memory
db        0   1 GiB
web       1   1 GiB
PUs without a bound vCPU: 0-1,6-7
";
    assert_eq!(ledger::render(&ledger), expected, "\n{}", ledger::render(&ledger));
}

#[test]
fn each_conflict_is_found_and_nothing_else() {
    let sound = || guest("db", 100, &["2", "3"], "0", 0);
    let with = |other| conflicts(&host(vec![sound(), other]));
    assert_eq!(
        with(guest("web", 200, &["3"], "0", 0)),
        ["PU 3: vCPUs of db and web are bound to it"],
        "the core is not named once more"
    );
    assert_eq!(with(guest("web", 200, &["4", "4"], "0", 1)), ["PU 4: vCPUs 0, 1 of web share it"]);
    let half = host(vec![guest("db", 100, &["2"], "0", 0), guest("web", 200, &["3"], "0", 0)]);
    assert_eq!(conflicts(&half), ["core of PUs 2-3: db and web share it"]);
    assert_eq!(
        with(guest("web", 200, &["4"], "2", 1)),
        ["emulator thread of web may run on PUs 2 alone, where vCPUs of db are"]
    );
    assert_eq!(with(guest("web", 200, &["4"], "2,6", 1)), [""; 0], "it has a PU of its own");
    assert_eq!(with(guest("web", 200, &["4"], "6", 0)), ["web: 1 GiB of its memory are on node 0, its vCPUs on 1"]);
    assert_eq!(with(guest("web", 200, &["0-7"], "0-7", 0)), [""; 0], "who floats owns nothing");
}

#[test]
fn devices_and_interrupts_far_from_their_guest_are_named() {
    let mut host = host(vec![guest("db", 100, &["2", "3"], "0", 0)]);
    host.pci_devices[0].driver = Some("vfio-pci".to_owned());
    let group = host.pci_devices[0].iommu_group.unwrap();
    let open = |files: &[String]| [OpenDevices { pid: 100, files: Some(files.to_vec()) }];
    let ledger = ledger::of(&host, &open(&[format!("/dev/vfio/{group}"), "/dev/vfio/vfio".to_owned()]));
    let [Conflict::DeviceElsewhere { device, node, owner, .. }] = &ledger.conflicts[..] else {
        panic!("{:?}", ledger.conflicts)
    };
    assert_eq!((device.as_str(), *node, owner.name.as_str()), ("0000:01:00.0", 1, "db"));
    // The same drive through its block device.
    let ledger = ledger::of(&host, &open(&["/dev/nvme0n1".to_owned(), "/dev/nvme0n1".to_owned()]));
    let held: Vec<_> = ledger.devices.iter().map(|device| (device.name.as_str(), device.owner.is_some())).collect();
    assert_eq!(held, [("0000:01:00.0", false), ("nvme0n1", true)], "once, and a function set aside for nobody");

    host.interrupts = vec![Interrupt {
        number: 40,
        device: Some(host.pci_devices[1].address),
        actions: vec!["eth0-TxRx-0".to_owned()],
        affinity: Some("0-7".parse().unwrap()),
        effective: Some("3".parse().unwrap()),
    }];
    assert!(conflicts(&host).contains(&"PUs 3 have vCPUs bound to them and take 1 interrupts of the host".to_owned()));
}

#[test]
fn what_may_not_be_seen_is_said() {
    let mut host = host(vec![guest("db", 100, &["2"], "0", 0)]);
    host.guests[0].threads[1].affinity = None;
    host.guests[0].residency.clear();
    host.guests[0].residency_error = Some("denied".to_owned());
    let ledger = ledger::of(&host, &[OpenDevices { pid: 100, files: None }]);
    assert_eq!(ledger.unknown, ["affinity of thread 101 of db", "pages of db: denied", "open devices of db"]);
    assert!(ledger::render(&ledger).contains("NOT KNOWN TO THIS USER"));
}

#[test]
fn a_guest_whose_devices_may_not_be_seen_may_hold_what_is_bound_to_vfio() {
    let mut host = host(vec![guest("db", 100, &["2"], "0", 0)]);
    host.pci_devices[0].driver = Some("vfio-pci".to_owned());
    let may_be_held = |files: Option<Vec<String>>| {
        let ledger = ledger::of(&host, &[OpenDevices { pid: 100, files }]);
        [0, 1].map(|at| ledger.may_be_held(host.pci_devices[at].address))
    };
    assert_eq!(may_be_held(None), [true, false]);
    assert_eq!(may_be_held(Some(Vec::new())), [false, false], "set aside for nobody");
}

#[test]
fn a_function_is_its_guests_by_whichever_file_of_vfio_it_was_opened() {
    let mut host = host(vec![guest("db", 100, &["2"], "0", 0)]);
    host.pci_devices[0].driver = Some("vfio-pci".to_owned());
    let (function, group) = (host.pci_devices[0].address, host.pci_devices[0].iommu_group.unwrap());
    let with = |target: &str, own: &str| -> Ledger {
        let mut tree = MemoryTree::new();
        let file = |text: &str| Entry::File(text.as_bytes().to_vec());
        tree.put("/proc/100/fd/7", Entry::Link(target.to_owned())).unwrap();
        tree.put("/proc/100/fdinfo/7", file("flags:\t02\n")).unwrap();
        tree.put(&format!("/sys/bus/pci/devices/{function}/vfio-dev/{own}/dev"), file("511:3\n")).unwrap();
        ledger::read(&HostFs::of_tree(tree, "test"), &host)
    };
    for file in [group.to_string(), format!("noiommu-{group}"), "devices/vfio3".to_owned()] {
        let ledger = with(&format!("/dev/vfio/{file}"), "vfio3");
        assert_eq!(ledger.held_by(100).collect::<Vec<_>>(), [function], "{file}");
        assert!(ledger.unknown.is_empty() && ledger.unseen.is_empty(), "{file}");
    }
    let other = with("/dev/vfio/devices/vfio3", "vfio4");
    assert_eq!(other.unknown, ["which function db has by /dev/vfio/devices/vfio3"]);
    assert!(other.held_by(100).next().is_none() && other.may_be_held(function));
}
