//! Guest cells, topology and passed functions on every fixture: what is set is read back, once, beside all that is there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::FIXTURES;
use nearmetal_domain::{Cell, DomainError, DomainXml, Function, NetworkFunction};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PciAddress, VlanId};
use proptest::prelude::*;

/// A function, VLAN and address of a network one, and the cell it is on.
type AnyFunction = (PciAddress, Option<(Option<u16>, bool)>, Option<prop::sample::Index>);

/// What a plan writes of a wide guest with devices.
#[derive(Debug, Clone)]
struct Wanted {
    /// Host node and a weight of each cell.
    cells: Vec<(u32, u32)>,
    distances: bool,
    functions: Vec<AnyFunction>,
}

fn address() -> impl Strategy<Value = PciAddress> {
    let domain = prop_oneof![9 => Just(0u32), 1 => Just(0x10000)];
    (domain, 0u8..8, 0u8..4, 0u8..2).prop_map(|(domain, bus, device, function)| PciAddress {
        domain,
        bus,
        device,
        function,
    })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let network = prop::option::of((prop::option::of(1u16..=4094), any::<bool>()));
    let function = (address(), network, prop::option::of(any::<prop::sample::Index>()));
    let cells = prop::collection::vec((0u32..8, 1u32..4), 1..5);
    (cells, any::<bool>(), prop::collection::vec(function, 0..6)).prop_map(|(cells, distances, mut functions)| {
        functions.sort_by_key(|(address, ..)| *address);
        functions.dedup_by_key(|(address, ..)| *address);
        Wanted { cells, distances, functions }
    })
}

/// The cells for a domain of this size: as many as there are vCPUs at most, the last takes what is left.
fn cells(wanted: &Wanted, vcpus: u32, memory: Bytes) -> Vec<Cell> {
    let count = wanted.cells.len().min(vcpus as usize);
    let (share, each) = (vcpus / count as u32, memory.kib() / count as u64);
    let one = |(number, (node, weight)): (usize, &(u32, u32))| {
        let (first, last) = (number as u32 * share, number + 1 == count);
        let end = if last { vcpus } else { first + share };
        let kib = if last { memory.kib() - each * (count as u64 - 1) } else { each };
        let distance = |to: usize| if to == number { 10 } else { 10 + weight };
        Cell {
            vcpus: (first..end).collect::<CpuSet>(),
            memory: Bytes::from_kib(kib),
            nodes: NodeSet::one(*node),
            distances: if wanted.distances { (0..count).map(distance).collect() } else { Vec::new() },
        }
    };
    wanted.cells[..count].iter().enumerate().map(one).collect()
}

fn functions(wanted: &Wanted, cells: usize) -> Vec<Function> {
    let one = |(address, network, cell): &AnyFunction| {
        let network = network.map(|(vlan, mac)| NetworkFunction {
            mac: mac.then(|| "52:54:00:12:34:56".parse().unwrap()),
            vlan: vlan.map(|vlan| VlanId::try_from(vlan).unwrap()),
        });
        Function { address: *address, network, cell: cell.map(|cell| cell.index(cells) as u32) }
    };
    wanted.functions.iter().map(one).collect()
}

fn apply(xml: &mut DomainXml, wanted: &Wanted) -> Result<bool, DomainError> {
    let facts = xml.facts()?;
    let cells = cells(wanted, facts.vcpus.maximum, facts.memory);
    let mut changed = xml.set_topology(1, facts.vcpus.maximum, 1)?;
    changed |= xml.set_cells(&cells)?;
    changed |= xml.set_functions(&functions(wanted, cells.len()))?;
    Ok(changed)
}

fn check(xml: &DomainXml, wanted: &Wanted) -> Result<(), TestCaseError> {
    let facts = xml.facts().unwrap();
    let cells = cells(wanted, facts.vcpus.maximum, facts.memory);
    prop_assert_eq!(facts.cells.len(), cells.len());
    let tune = facts.numatune.unwrap();
    prop_assert_eq!(tune.cells.len(), cells.len());
    for (number, cell) in cells.iter().enumerate() {
        let found = &facts.cells[number];
        prop_assert_eq!((&found.vcpus, found.memory), (&cell.vcpus, cell.memory));
        let distances: Vec<u32> = found.distances.iter().map(|(_, distance)| *distance).collect();
        prop_assert_eq!(&distances, &cell.distances);
        let policy = tune.cells.iter().find(|policy| policy.cell == number as u32).unwrap();
        prop_assert_eq!((policy.mode.as_deref(), policy.nodes.as_ref()), (Some("strict"), Some(&cell.nodes)));
    }
    let topology = facts.cpu.topology.unwrap();
    prop_assert_eq!((topology.vcpus(), topology.sockets, topology.threads), (facts.vcpus.maximum.into(), 1, 1));
    for function in functions(wanted, cells.len()) {
        let found: Vec<_> = facts.functions.iter().filter(|found| found.address == function.address).collect();
        prop_assert_eq!(found.len(), 1, "{} once", function.address);
        prop_assert!(found[0].managed);
        prop_assert_eq!(found[0].interface, function.network.is_some());
        if facts.boot.is_q35() && function.cell.is_some() {
            prop_assert_eq!(found[0].cell, function.cell);
        }
        if let Some(vlan) = function.network.and_then(|network| network.vlan) {
            prop_assert_eq!(&found[0].vlans, &vec![u32::from(u16::from(vlan))]);
        }
    }
    // Controllers have numbers of their own, and nothing stands on a bus that is not there.
    let pci: Vec<u32> = facts
        .peripherals
        .iter()
        .filter(|device| device.element == "controller" && device.kind.as_deref() == Some("pci"))
        .filter_map(|device| device.index)
        .collect();
    let mut unique = pci.clone();
    unique.sort_unstable();
    unique.dedup();
    prop_assert_eq!(unique.len(), pci.len());
    Ok(())
}

/// The fixtures, each also as a machine of type q35.
fn texts() -> Vec<String> {
    let q35 = |text: &str| {
        let (before, rest) = text.split_once("machine=").unwrap_or((text, ""));
        let quote = rest.chars().next().unwrap_or('\'');
        let after = rest.get(1..).and_then(|rest| rest.split_once(quote)).map_or("", |(_, after)| after);
        if rest.is_empty() { text.to_owned() } else { format!("{before}machine={quote}q35{quote}{after}") }
    };
    FIXTURES.iter().flat_map(|(_, text)| [(*text).to_owned(), q35(text)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_set_is_read_back_and_setting_it_again_changes_nothing(
        fixture in 0..FIXTURES.len() * 2,
        wanted in wanted(),
    ) {
        let mut xml = DomainXml::parse(&texts()[fixture]).unwrap();
        apply(&mut xml, &wanted).unwrap();
        check(&xml, &wanted)?;
        let text = xml.as_str().to_owned();
        prop_assert!(!apply(&mut xml, &wanted).unwrap(), "{text}");
        prop_assert_eq!(xml.as_str(), text);
    }

    #[test]
    fn a_second_plan_leaves_nothing_of_the_first(
        fixture in 0..FIXTURES.len() * 2,
        first in wanted(),
        second in wanted(),
    ) {
        let text = &texts()[fixture];
        let (mut over, mut fresh) = (DomainXml::parse(text).unwrap(), DomainXml::parse(text).unwrap());
        apply(&mut over, &first).unwrap();
        apply(&mut over, &second).unwrap();
        apply(&mut fresh, &second).unwrap();
        check(&over, &second)?;
        let (over_facts, fresh_facts) = (over.facts().unwrap(), fresh.facts().unwrap());
        let sorted = |facts: &nearmetal_domain::DomainFacts| {
            let mut all: Vec<_> = facts.functions.iter().map(|function| (function.address, function.cell)).collect();
            all.sort_unstable();
            all
        };
        let own: Vec<_> = DomainXml::parse(text).unwrap().facts().unwrap().functions;
        let ours = |facts: &nearmetal_domain::DomainFacts| {
            sorted(facts).into_iter().filter(|(address, _)| own.iter().all(|own| own.address != *address)).collect::<Vec<_>>()
        };
        prop_assert_eq!(ours(&over_facts), ours(&fresh_facts));
        prop_assert_eq!(over_facts.cells, fresh_facts.cells);
        let aliases = |xml: &DomainXml| xml.as_str().matches("ua-nearmetal-").count();
        prop_assert!(aliases(&over) <= aliases(&fresh) + 2 * own.len());
    }

    #[test]
    fn taking_all_functions_away_leaves_the_text_as_it_was(fixture in 0..FIXTURES.len() * 2, wanted in wanted()) {
        let text = &texts()[fixture];
        let mut xml = DomainXml::parse(text).unwrap();
        let before = xml.facts().unwrap();
        // None of those that are there: they would be changed, and stay.
        let here = |address: &PciAddress| before.hostdevs.contains(address);
        let wanted = functions(&wanted, before.cells.len().max(1))
            .into_iter()
            .filter(|function| !here(&function.address))
            .map(|function| Function { cell: function.cell.filter(|_| !before.cells.is_empty()), ..function })
            .collect::<Vec<_>>();
        xml.set_functions(&wanted).unwrap();
        xml.set_functions(&[]).unwrap();
        // An element that had nothing in it is written with two tags afterwards.
        prop_assert_eq!(xml.as_str(), text.as_str());
    }
}

#[test]
fn cells_that_do_not_add_up_are_refused_and_nothing_changes() {
    let cell = |vcpus: &str, mib: u64, distances: &[u32]| Cell {
        vcpus: vcpus.parse().unwrap(),
        memory: Bytes::from_mib(mib),
        nodes: NodeSet::one(0),
        distances: distances.to_vec(),
    };
    let mut xml = common::domain("guest-cells");
    let text = xml.as_str().to_owned();
    let table = [
        (vec![], "at least one"),
        (vec![cell("0-3", 4096, &[]), cell("4-6", 4096, &[])], "all vCPUs"),
        (vec![cell("0-3", 4096, &[]), cell("4-8", 4096, &[])], "all vCPUs"),
        (vec![cell("0-3", 4096, &[]), cell("3-7", 4096, &[])], "in one of them"),
        (vec![cell("0-3", 4096, &[]), cell("4-7", 4095, &[])], "memory of the domain"),
        (vec![cell("0-7", 0, &[])], "vCPUs, memory"),
        (vec![cell("0-3", 4096, &[10, 20]), cell("4-7", 4096, &[])], "a distance to each"),
        (vec![cell("0-3", 4096, &[10, 10]), cell("4-7", 4096, &[20, 10])], "10 is local"),
        (vec![cell("0-3", 4096, &[11, 20]), cell("4-7", 4096, &[20, 10])], "10 is local"),
        (vec![cell("0-3", 4096, &[10, 256]), cell("4-7", 4096, &[20, 10])], "10 is local"),
    ];
    for (cells, says) in table {
        let error = xml.set_cells(&cells).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
        assert_eq!(xml.as_str(), text);
    }
    assert!(xml.set_topology(2, 4, 2).unwrap_err().to_string().contains("8 vCPUs"));
    let lost = Function { address: "3b:00.0".parse().unwrap(), network: None, cell: Some(2) };
    assert!(xml.set_functions(std::slice::from_ref(&lost)).unwrap_err().to_string().contains("3b:00.0"));
    let twice = Function { cell: None, ..lost };
    assert!(xml.set_functions(&[twice.clone(), twice]).unwrap_err().to_string().contains("once"));
    assert_eq!(xml.as_str(), text);
}

#[test]
fn memory_that_is_plugged_in_is_no_cells() {
    let text = "<domain type='kvm'><name>a</name><memory unit='GiB'>3</memory><vcpu>2</vcpu><devices><memory model='dimm'>\
                <target><size unit='GiB'>1</size></target></memory></devices></domain>";
    let cell = Cell {
        vcpus: "0-1".parse().unwrap(),
        memory: Bytes::from_mib(2048),
        nodes: NodeSet::one(0),
        distances: Vec::new(),
    };
    DomainXml::parse(text).unwrap().set_cells(std::slice::from_ref(&cell)).unwrap();
    let all = Cell { memory: Bytes::from_mib(3072), ..cell };
    assert!(DomainXml::parse(text).unwrap().set_cells(&[all]).is_err());
}

#[test]
fn a_machine_without_room_for_buses_says_so() {
    let slots: String = (1..=0x19)
        .map(|slot| format!("<sound model='ac97'><address type='pci' bus='0' slot='{slot:#x}' function='0'/></sound>"))
        .collect();
    let text = |inside: &str| {
        format!(
            "<domain type='kvm'><name>a</name><memory>1024</memory><os><type machine='q35'>hvm</type></os><cpu><numa><cell \
             cpus='0' memory='1024'/></numa></cpu><devices>{inside}</devices></domain>"
        )
    };
    let function = Function { address: "3b:00.0".parse().unwrap(), network: None, cell: Some(0) };
    let refused = |inside: &str| {
        DomainXml::parse(&text(inside)).unwrap().set_functions(std::slice::from_ref(&function)).unwrap_err().to_string()
    };
    assert!(refused(&slots).contains("no free slot"));
    let low = "<controller type='pci' index='1' model='pcie-expander-bus'><target busNr='2'/></controller>";
    assert!(refused(low).contains("no room"));
    let many = "<controller type='pci' index='4000000000' model='pcie-root-port'/>";
    assert!(refused(many).contains("no room"));
}

#[test]
fn the_element_of_a_function_is_its_text_as_written() {
    let text = "<domain type='kvm'><name>a</name><memory>1</memory><vcpu>1</vcpu><devices>\
        <hostdev mode='subsystem' type='pci' managed='no'><source><address domain='0' bus='0x3a' slot='0' function='1'/></source></hostdev>\
        <hostdev mode='subsystem' type='pci'><source><address domain='0' bus='0x3b' slot='0' function='0'/></source></hostdev>\
        </devices></domain>";
    let xml = DomainXml::parse(text).unwrap();
    let element = xml.function_element("0000:3a:00.1".parse().unwrap()).unwrap().unwrap();
    assert!(element.starts_with("<hostdev ") && element.ends_with("</hostdev>") && element.contains("bus='0x3a'"));
    assert_eq!(text.matches(element.as_str()).count(), 1);
    assert_eq!(xml.function_element("0000:3a:00.2".parse().unwrap()).unwrap(), None);
}
