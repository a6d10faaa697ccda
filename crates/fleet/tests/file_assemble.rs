//! A fleet file and running guests, brought together and planned.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_fleet::file::{AssembleErrors, Assembled, FleetFile, KnownHost, Stay, assemble};
use nearmetal_fleet::{Arrival, FleetPlan, Options, VmPlacement, check, plan, steps};
use nearmetal_host::ledger::{self, OpenDevices};
use nearmetal_host::synthetic::Synthetic;
use nearmetal_host::{GuestProcess, Host, Residency, Thread, ThreadRole};
use nearmetal_units::{Bytes, CpuSet, PageSize, PciAddress};
use proptest::prelude::*;

const GIB: u64 = 1 << 18;

/// A guest of 4 GiB whose vCPUs may run on these PUs each, with its memory on these nodes, in GiB.
fn guest(pid: u32, name: &str, vcpus: &[&str], memory: &[(u32, u64)]) -> GuestProcess {
    let vcpu = |(number, set): (u32, &&str)| Thread {
        id: pid + 1 + number,
        name: format!("CPU {number}/KVM"),
        role: ThreadRole::Vcpu(number),
        affinity: Some(set.parse().unwrap()),
        scheduling: None,
    };
    GuestProcess {
        pid,
        name: Some(name.to_owned()),
        uuid: Some(format!("00000000-0000-0000-0000-{pid:012}")),
        memory: Some(Bytes::from_mib(4096)),
        threads: (0u32..).zip(vcpus).map(vcpu).collect(),
        residency: vec![Residency {
            start: 0,
            page_size: PageSize::SMALL,
            length: Bytes::from_mib(4096),
            guest_memory: true,
            pages: memory.iter().map(|(node, gib)| (*node, gib * GIB)).collect(),
            policy: "default".to_owned(),
            file: None,
        }],
        ..GuestProcess::default()
    }
}

/// Two nodes of four cores of two PUs (0 to 7, 8 to 15), 16 GiB each.
fn machine() -> Synthetic {
    Synthetic::new().packages(2).cores_per_node(4).threads(2).memory_per_node(Bytes::from_mib(16 << 10))
}

fn brought(text: &str, hosts: &[(&str, Host)], open: &[OpenDevices]) -> Result<Assembled, AssembleErrors> {
    let file = FleetFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let ledgers: Vec<_> = hosts.iter().map(|(_, host)| ledger::of(host, open)).collect();
    let known: Vec<_> =
        hosts.iter().zip(&ledgers).map(|((name, host), ledger)| KnownHost { name, host, ledger }).collect();
    assemble(&file, &known)
}

fn planned(assembled: &Assembled) -> FleetPlan {
    let options = Options { seed: 3, steps: 300, budget: None, arrival: Arrival::Batch };
    let plan = plan(&assembled.fleet, &options).unwrap();
    assert_eq!(check(&assembled.fleet, &plan), []);
    let way = steps(&assembled.fleet, &plan).unwrap();
    // Reasons and helpers' PUs are the plan's own; where a VM is, and on what, must be the same.
    let place = |placement: &VmPlacement| (placement.vm.clone(), placement.host.clone(), placement.cells.clone());
    let reached: Vec<_> = way.after(&assembled.fleet, way.steps.len()).iter().map(place).collect();
    assert_eq!(reached, plan.placements.iter().map(place).collect::<Vec<_>>(), "the steps lead to the plan");
    plan
}

fn file(vms: &str) -> String {
    format!("[[host]]\nname = \"a\"\nlocal = true\n[defaults]\nvcpus = 2\nmemory = \"4 GiB\"\n{vms}")
}

fn vm(name: &str, more: &str) -> String {
    format!("[[vm]]\nname = \"{name}\"\n{more}\n")
}

#[test]
fn a_bound_vm_keeps_its_pus_even_those_of_the_hosts_own_core() {
    let host = machine().guest(guest(100, "db", &["0", "1"], &[(0, 4)])).build();
    let assembled = brought(&file(&(vm("db", "") + &vm("new", ""))), &[("a", host)], &[]).unwrap();
    assert_eq!(assembled.running[0].stay, Stay::Exactly);
    let plan = planned(&assembled);
    assert_eq!(plan.placements[0].cells[0].pus, [0, 1]);
    let new: CpuSet = plan.placements[1].cells[0].pus.iter().copied().collect();
    assert!(!new.contains(0) && !new.contains(1));
    assert_eq!(assembled.assumed, Vec::<String>::new());
}

#[test]
fn what_a_vm_of_the_fleet_holds_is_free_and_what_others_hold_is_not() {
    let ours = guest(100, "db", &["2", "3"], &[(0, 4)]);
    let others = guest(200, "other", &["4", "5"], &[(0, 4)]);
    let host = machine().guest(ours).guest(others).build();
    let assembled = brought(&file(&vm("db", "movable = true")), &[("a", host)], &[]).unwrap();
    let free: Vec<u32> = assembled.fleet.hosts[0].nodes[0].cores.iter().flat_map(|core| core.free.clone()).collect();
    assert_eq!(free, [2, 3, 6, 7]);
    // The synthetic machine's memory is all free before what the guest holds is added; 5 % are the host's.
    assert_eq!(assembled.running[0].stay, Stay::Movable);
}

#[test]
fn a_vm_that_floats_inside_a_node_keeps_the_node_and_one_that_floats_everywhere_the_host() {
    let inside = guest(100, "inside", &["8-15", "8-15"], &[(1, 1)]);
    let free = guest(200, "free", &["0-15", "0-15"], &[(0, 2), (1, 2)]);
    let host = machine().guest(inside).guest(free).build();
    let assembled = brought(&file(&(vm("inside", "") + &vm("free", ""))), &[("a", host)], &[]).unwrap();
    let stays: Vec<Stay> = assembled.running.iter().map(|run| run.stay).collect();
    assert_eq!(stays, [Stay::OnItsNodes, Stay::OnItsHost]);
    let current = assembled.fleet.vms[0].current.as_ref().unwrap();
    assert_eq!(
        (current.cells[0].node, current.cells[0].memory),
        (1, Bytes::from_mib(4096)),
        "what is not there yet too"
    );
    assert_eq!(
        assembled.assumed,
        ["free stays on a, and its place there is chosen anew: its vCPUs float over several nodes"]
    );
    let plan = planned(&assembled);
    assert_eq!(plan.placements[0].cells[0].node, 1);
    assert_eq!(plan.placements[1].host, "a");
}

#[test]
fn a_vm_that_is_not_as_the_file_says_is_placed_anew_on_its_host() {
    for (more, reason) in [
        ("vcpus = 3", "it runs with 2 vCPUs, the file says 3"),
        ("memory = \"6 GiB\"", "it runs with 4 GiB of memory, the file says 6 GiB"),
        ("page-size = \"2 MiB\"", "its memory is in the kernel's own pages, the file says otherwise"),
        ("[[vm.nic]]\nkind = \"vf\"", "the file asks for a device it does not hold now"),
    ] {
        let host = machine().network(0, 4, 4).guest(guest(100, "db", &["2", "3"], &[(0, 4)])).build();
        let assembled = brought(&file(&vm("db", more)), &[("a", host)], &[]).unwrap();
        assert_eq!(assembled.running[0].stay, Stay::OnItsHost);
        assert_eq!(assembled.assumed, [format!("db stays on a, and its place there is chosen anew: {reason}")]);
        planned(&assembled);
    }
}

#[test]
fn a_vm_that_sees_its_nodes_keeps_them_only_where_each_can_be_a_cell() {
    for (numa, stay) in [("hidden", Stay::Exactly), ("mirror", Stay::OnItsHost)] {
        let host = machine().guest(guest(100, "db", &["2", "3"], &[(0, 3), (1, 1)])).build();
        let assembled = brought(&file(&vm("db", &format!("numa = \"{numa}\""))), &[("a", host)], &[]).unwrap();
        assert_eq!(assembled.running[0].stay, stay, "{:?}", assembled.assumed);
        let cells = planned(&assembled).placements.remove(0).cells;
        assert_eq!(cells.len(), if stay == Stay::Exactly { 2 } else { 1 });
    }
}

#[test]
fn memory_that_others_were_promised_and_have_not_touched_is_named() {
    let ours = guest(100, "db", &["2", "3"], &[(0, 1)]);
    let others = guest(200, "other", &["4", "5"], &[(0, 1)]);
    let host = machine().guest(ours).guest(others).build();
    let assembled = brought(&file(&vm("db", "")), &[("a", host)], &[]).unwrap();
    assert_eq!(
        assembled.fleet.hosts[0].unknown,
        ["memory that guests outside the fleet were promised and have not touched yet counts as free: other 3 GiB"]
    );
}

#[test]
fn functions_of_one_iommu_group_go_to_one_vm() {
    let mut host = machine().network(0, 4, 4).build();
    let vfs: Vec<PciAddress> = host.pci_devices[1..].iter().map(|device| device.address).collect();
    host.pci_devices[2].iommu_group = host.pci_devices[1].iommu_group;
    let any = |count: u32| vm("any", &format!("count = {count}\n[[vm.nic]]\nkind = \"vf\""));
    let plan = planned(&brought(&file(&any(4)), &[("a", host.clone())], &[]).unwrap());
    assert_eq!((plan.placements.len(), plan.refusals.len()), (3, 1));
    let [one, other] = [vfs[0], vfs[1]].map(|function| format!("[[vm.device]]\nfunction = \"{function}\"\n"));
    let text = file(&(any(2) + &vm("both", &(one + &other))));
    let plan = planned(&brought(&text, &[("a", host)], &[]).unwrap());
    assert_eq!(plan.refusals, []);
    let both = plan.placements.iter().find(|placement| placement.vm == "both").unwrap();
    assert_eq!(both.devices.iter().flat_map(|grant| grant.functions.clone()).collect::<Vec<_>>(), vfs[..2]);
}

#[test]
fn functions_that_a_guest_may_hold_are_nobodys_and_a_vms_own_stay_its_own() {
    let ours = guest(100, "db", &["2", "3"], &[(0, 4)]);
    let mut host = machine().network(0, 4, 4).guest(ours).guest(guest(200, "other", &["4", "5"], &[(0, 4)])).build();
    for device in &mut host.pci_devices[1..3] {
        device.driver = Some("vfio-pci".to_owned());
    }
    let group = host.pci_devices[1].iommu_group.unwrap();
    let text = file(&(vm("db", "[[vm.nic]]\nkind = \"vf\"") + &vm("new", "count = 3\n[[vm.nic]]\nkind = \"vf\"")));
    let db = OpenDevices { pid: 100, files: Some(vec![format!("/dev/vfio/{group}")]) };
    let open = [db, OpenDevices { pid: 200, files: None }];
    let assembled = brought(&text, &[("a", host.clone())], &open).unwrap();
    assert_eq!(assembled.running[0].stay, Stay::Exactly);
    let plan = planned(&assembled);
    assert_eq!((plan.placements.len(), plan.refusals.len()), (3, 1));
    let assembled = brought(&text, &[("a", host)], &[100, 200].map(|pid| OpenDevices { pid, files: None })).unwrap();
    let why = "db stays on a, and its place there is chosen anew: which devices it holds could not be read";
    assert_eq!(assembled.assumed, [why]);
}

#[test]
fn functions_a_vm_holds_stay_its_own_and_are_given_to_nobody_else() {
    let mut host = machine().network(0, 4, 4).guest(guest(100, "db", &["2", "3"], &[(0, 4)])).build();
    let vfs: Vec<PciAddress> = host
        .pci_devices
        .iter()
        .filter(|device| device.physical_function.is_some())
        .map(|device| device.address)
        .collect();
    let mut groups = Vec::new();
    for device in host.pci_devices.iter_mut().filter(|device| vfs[..1].contains(&device.address)) {
        device.driver = Some("vfio-pci".to_owned());
        groups.push(format!("/dev/vfio/{}", device.iommu_group.unwrap()));
    }
    let open = [OpenDevices { pid: 100, files: Some(groups) }];
    let text = file(&(vm("db", "[[vm.nic]]\nkind = \"vf\"") + &vm("new", "count = 3\n[[vm.nic]]\nkind = \"vf\"")));
    let assembled = brought(&text, &[("a", host)], &open).unwrap();
    assert_eq!(assembled.running[0].stay, Stay::Exactly);
    let plan = planned(&assembled);
    assert_eq!(plan.placements[0].devices[0].functions, vfs[..1]);
    assert_eq!(plan.placements.len(), 4);
}

#[test]
fn a_function_by_its_address_goes_to_the_vm_that_names_it() {
    let host = machine().network(0, 4, 4).build();
    let last = host.pci_devices.iter().rfind(|device| device.physical_function.is_some()).unwrap().address;
    let text = file(
        &(vm("any", "count = 3\n[[vm.nic]]\nkind = \"vf\"")
            + &vm("this", &format!("[[vm.device]]\nfunction = \"{last}\""))
            + &vm("late", "priority = -1\n[[vm.device]]\nfunction = \"0000:ff:00.0\"")),
    );
    let plan = planned(&brought(&text, &[("a", host)], &[]).unwrap());
    let this = plan.placements.iter().find(|placement| placement.vm == "this").unwrap();
    assert_eq!(this.devices[0].functions, [last]);
    assert_eq!(plan.refusals[0].vm, "late");
    assert_eq!(plan.refusals[0].remedy.as_ref().unwrap().change, "0000:ff:00.0 to be free");
}

#[test]
fn file_and_hosts_that_contradict_each_other_are_refused() {
    let with = |name: &str, pid| machine().guest(guest(pid, name, &["2", "3"], &[(0, 4)])).build();
    let two = "[[host]]\nname = \"a\"\nlocal = true\n[[host]]\nname = \"b\"\nssh = \"b\"\nlabels = { x = \"y\" }\n\
               [defaults]\nvcpus = 2\nmemory = \"4 GiB\"\n";
    let said = |vms: &str, a: Host, b: Host| {
        brought(&format!("{two}{vms}"), &[("a", a), ("b", b)], &[]).unwrap_err().to_string()
    };
    assert_eq!(
        said(&vm("db", ""), with("db", 1), with("db", 2)),
        "VM `db` may be the domain of that name on any of a, b: say which by `uuid` or `on`"
    );
    assert!(said(&vm("db", "on = \"b\""), with("db", 1), with("x", 2)).starts_with("VM `db` is said to be on `b`"));
    assert!(said(&vm("db", "hosts = { labels = { x = \"y\" } }"), with("db", 1), with("x", 2)).contains("rules out"));
    let both = vm("one", "uuid = \"00000000-0000-0000-0000-000000000001\"") + &vm("db", "");
    assert!(said(&both, with("db", 1), with("x", 2)).contains("are the same domain on `a`"));
    let unread = brought(two, &[("a", with("db", 1))], &[]).unwrap_err().to_string();
    assert_eq!(unread, "host `b` is in the fleet file and was not read: read it, or take it out of the file");
}

type Run = (u32, u32, u32, u32, bool, bool);

/// Guests bound, floating in a node or everywhere, some of them in the file as they are, some otherwise.
fn any_case() -> impl Strategy<Value = (String, Host)> {
    let one = (0u32..5, 0u32..14, 0u32..4, 0u32..4, any::<bool>(), any::<bool>());
    (proptest::collection::vec(one, 1..6), 0u32..3).prop_map(|(runs, new)| {
        let (mut machine, mut vms) = (machine(), String::new());
        for (at, (kind, pu, memory, more, movable, ours)) in (1u32..).zip(runs as Vec<Run>) {
            let next = pu + 1 + more % 2;
            let sets = match kind {
                0 => ["0-15".to_owned(), "0-15".to_owned()],
                1 => ["8-15".to_owned(), "8-15".to_owned()],
                2 => [pu.to_string(), pu.to_string()],
                _ => [pu.to_string(), next.to_string()],
            };
            let nodes = [vec![(0, 4)], vec![(1, 1)], vec![(0, 1), (1, 2)], vec![]];
            let name = format!("vm{at}");
            machine = machine.guest(guest(at * 100, &name, &[&sets[0], &sets[1]], &nodes[memory as usize]));
            let rule = ["smt = \"isolate\"", "cpus = { shared = 2.0 }", "numa = 2", ""][more as usize];
            if ours {
                vms += &vm(&name, &format!("movable = {movable}\n{rule}"));
            }
        }
        (0..new).for_each(|at| vms += &vm(&format!("new{at}"), ""));
        (file(&vms), machine.build())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_plan_of_what_runs_breaks_a_rule_and_what_is_bound_stays((text, host) in any_case()) {
        let assembled = brought(&text, &[("a", host)], &[]).unwrap();
        let plan = planned(&assembled);
        for run in assembled.running.iter().filter(|run| run.stay == Stay::Exactly) {
            let vm = assembled.fleet.vms.iter().find(|vm| vm.name == run.vm).unwrap();
            let placed = plan.placements.iter().find(|placement| placement.vm == run.vm).unwrap();
            prop_assert_eq!(&vm.current.as_ref().unwrap().cells, &placed.cells);
        }
    }
}
