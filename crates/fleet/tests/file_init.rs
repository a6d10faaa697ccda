//! Fleet files written from domains: what is written is what is read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_fleet::file::*;
use nearmetal_fleet::{CpuSharing, GuestNuma, Locality};
use nearmetal_place::WorkloadClass;
use nearmetal_units::{Bytes, PageSize, PciAddress};
use proptest::prelude::*;

fn domain(name: &str, uuid: &str) -> FoundDomain {
    FoundDomain {
        name: name.to_owned(),
        uuid: Some(uuid.to_owned()),
        vcpus: 4,
        memory: Bytes::from_mib(4096),
        page_size: None,
        class: WorkloadClass::General,
        class_reason: "guessed".to_owned(),
        bound: false,
        numa: GuestNuma::Hidden,
        runs: true,
        disks: Vec::new(),
        nics: Vec::new(),
        functions: Vec::new(),
        remarks: Vec::new(),
    }
}

fn found(name: &str, domains: Vec<FoundDomain>) -> FoundHost {
    let reach = HostReach::Ssh { destination: name.to_owned(), command: None };
    FoundHost { name: name.to_owned(), reach, pus: Some(16), domains, remarks: Vec::new() }
}

const UUID: &str = "c7a5fdbd-edaf-9455-926a-d65c16db1809";
const OTHER: &str = "c7a5fdbd-edaf-9455-926a-d65c16db1810";

#[test]
fn domains_of_one_name_on_two_hosts_are_told_apart() {
    let text = init(&[found("a", vec![domain("web", UUID)]), found("b", vec![domain("web", OTHER)])]);
    let file = FleetFile::parse("", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let names: Vec<&str> = file.vms.iter().map(|entry| entry.vm.name.as_str()).collect();
    assert_eq!(names, ["web", "web@b"]);
    assert!(text.contains("# Domain web of b: names are unique in a fleet."));
}

#[test]
fn what_a_fleet_file_cannot_hold_is_a_comment_with_the_reason() {
    let bad = FoundDomain { memory: Bytes::new(5), ..domain("tiny", OTHER) };
    let text = init(&[found("a", vec![bad, domain("web", UUID)])]);
    let file = FleetFile::parse("", &text).unwrap();
    assert_eq!(file.vms.len(), 1);
    assert!(text.contains("# Left out: VM `tiny`: `memory` is 5 B (give 1 MiB to 1024 TiB)\n# [[vm]]\n"), "{text}");
}

#[test]
fn where_vcpus_are_more_than_pus_those_that_float_share() {
    let bound = FoundDomain { bound: true, ..domain("bound", OTHER) };
    let wide = FoundDomain { vcpus: 60, ..domain("wide", UUID) };
    let file = FleetFile::parse("", &init(&[found("a", vec![bound, wide])])).unwrap();
    let cpus: Vec<CpuSharing> = file.vms.iter().map(|entry| entry.vm.cpus).collect();
    assert_eq!(cpus, [CpuSharing::Dedicated, CpuSharing::Shared { ratio_percent: 400 }]);
}

fn any_disk() -> impl Strategy<Value = DiskEntry> {
    let source = prop_oneof![
        "/dev/[a-z0-9\"\\\\]{1,8}".prop_map(|path| DiskSource::Device(path.into())),
        ("/[a-zä \"'#]{1,12}", any::<bool>()).prop_map(|(path, raw)| DiskSource::File {
            path: path.into(),
            format: if raw { DiskFormat::Raw } else { DiskFormat::Qcow2 },
        }),
        ("[a-z]{1,6}[ '\"]?", "[a-z.]{1,8}").prop_map(|(pool, volume)| DiskSource::Volume { pool, volume }),
    ];
    (source, any::<bool>(), any::<bool>(), 0u32..4).prop_map(|(source, scsi, read_only, near)| {
        let own = match &source {
            DiskSource::Device(path) => Some(path.strip_prefix("/dev").unwrap().display().to_string()),
            _ if near == 0 => None,
            _ => Some("nvme0n1".to_owned()),
        };
        let locality = [Locality::Preferred, Locality::Preferred, Locality::Required, Locality::Far][near as usize];
        let locality = own.as_ref().map(|_| locality);
        let bus = if scsi { DiskBus::Scsi } else { DiskBus::Virtio };
        DiskEntry { source, bus, read_only, drive: own, locality }
    })
}

fn any_nic() -> impl Strategy<Value = NicEntry> {
    let interface = proptest::option::of("[a-z]{2,4}[0-9]");
    (0u32..6, interface, proptest::option::of(1u16..4095), 0u32..3).prop_map(|(kind, interface, vlan, near)| {
        let (kind, attach) = match kind {
            0 => (NicKind::Virtio, Some(NicAttach::Network("the \"default\" one".to_owned()))),
            1 => (NicKind::Vhost, Some(NicAttach::Bridge("br0".to_owned()))),
            2 => (NicKind::Vf, None),
            // A network that deals the functions of a card.
            3 => (NicKind::Vf, Some(NicAttach::Network("vfs".to_owned()))),
            _ => (NicKind::Macvtap, None),
        };
        let named = kind == NicKind::Macvtap || (kind == NicKind::Vf && attach.is_some());
        let interface = if named { Some(interface.unwrap_or("eth0".to_owned())) } else { interface };
        let known = interface.is_some() || kind == NicKind::Vf;
        let locality = [Locality::Required, Locality::Preferred, Locality::Far][near as usize];
        NicEntry { kind, attach, interface, mac: None, vlan, locality: known.then_some(locality) }
    })
}

fn any_domain() -> impl Strategy<Value = FoundDomain> {
    let devices = (
        proptest::collection::vec(any_disk(), 0..3),
        proptest::collection::vec(any_nic(), 0..3),
        proptest::collection::btree_set(0u8..32, 0..3),
    );
    let plain = (1u32..300, 1u64..4096, 0u32..3, 0u32..6, 0u32..4);
    ("[a-zA-Zäж0-9\"'\\\\#=.\\[\\]][a-z \"#{}$-]{0,10}[a-z0-9]", "\\PC{0,20}", plain, any::<(bool, bool)>(), devices)
        .prop_map(|(name, said, (vcpus, memory, pages, class, cells), (bound, runs), (disks, nics, functions))| {
            let classes = [
                WorkloadClass::General,
                WorkloadClass::Density,
                WorkloadClass::Throughput,
                WorkloadClass::Latency,
                WorkloadClass::Windows,
                WorkloadClass::Passthrough,
            ];
            let function = |device| PciAddress { domain: 0, bus: 3, device, function: 0 };
            FoundDomain {
                vcpus,
                memory: Bytes::from_mib(memory << 10),
                page_size: [None, Some(PageSize::HUGE_2M), Some(PageSize::HUGE_1G)][pages as usize],
                class: classes[class as usize],
                class_reason: said.clone(),
                bound,
                numa: if cells > 1 && cells <= vcpus { GuestNuma::Cells(cells) } else { GuestNuma::Hidden },
                runs,
                disks,
                nics,
                functions: functions.into_iter().map(function).collect(),
                remarks: vec![said],
                ..domain(&name, UUID)
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn one_domain_is_read_as_it_was_written(found_domain in any_domain()) {
        let host = FoundHost { pus: None, ..found("a", vec![found_domain.clone()]) };
        let text = init(&[host]);
        let file = FleetFile::parse("", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        // One disk twice, or more cells than pages, is no fleet file's.
        if file.vms.is_empty() {
            prop_assert!(text.contains("# Left out: "), "{}", text);
            return Ok(());
        }
        let entry = &file.vms[0];
        let vm = &entry.vm;
        prop_assert_eq!(&vm.name, &found_domain.name);
        prop_assert_eq!(entry.uuid.as_deref(), Some(UUID));
        prop_assert_eq!((vm.vcpus, vm.memory, vm.page_size), (found_domain.vcpus, found_domain.memory, found_domain.page_size));
        prop_assert_eq!((vm.class, vm.numa), (found_domain.class, found_domain.numa));
        prop_assert_eq!(entry.on.as_deref(), Some("a"));
        prop_assert_eq!(&entry.nics, &found_domain.nics);
        let mut disks = found_domain.disks.clone();
        let mut seen = std::collections::BTreeSet::new();
        disks.retain(|disk| disk.read_only || seen.insert(disk.source.clone()));
        prop_assert_eq!(&entry.disks, &disks);
        prop_assert_eq!(entry.devices.len(), found_domain.functions.len());
    }

    #[test]
    fn whatever_is_found_the_file_is_read(domains in proptest::collection::vec(any_domain(), 0..6), more in any_domain()) {
        let text = init(&[found("a", domains), found("b", vec![more])]);
        let file = FleetFile::parse("", &text);
        prop_assert!(file.is_ok(), "{}\n{}", file.unwrap_err(), text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        _ = FleetFile::parse("", &text).map_err(|errors| errors.to_string());
    }
}
