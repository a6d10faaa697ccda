//! Hostile and broken texts: a typed error with its place, never a panic, never more work than their length is worth.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use nearmetal_domain::{
    DiskCache, DiskIo, DiskSource, DomainError, DomainXml, DriverOptions, InterfaceOptions, NetworkBackend,
};
use nearmetal_units::{CpuSet, PageSize};
use proptest::prelude::*;

fn error(text: &str) -> String {
    match DomainXml::parse(text) {
        Ok(xml) => xml.facts().map(|facts| format!("accepted: {facts:?}")).unwrap_or_else(|error| error.to_string()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn broken_texts_are_refused_with_their_place() {
    let table = [
        ("", "not well-formed"),
        ("domain", "not well-formed"),
        ("<domain>", "not well-formed"),
        ("<domain type='kvm'></domian>", "line 1, column"),
        ("<domain>\n  <name>a</name>\n  <name", "line 3"),
        ("<domain a='1' a='2'/>", "not well-formed"),
        ("<domain a=1/>", "not well-formed"),
        ("<domain>&unknown;</domain>", "not well-formed"),
        ("<domain>&#0;</domain>", "not well-formed"),
        ("<domain/><domain/>", "not well-formed"),
        ("<x:domain/>", "not well-formed"),
        ("<network/>", "<network>, not <domain>"),
        ("<domain xmlns='urn:x'/>", "not <domain>"),
        ("<!DOCTYPE domain><domain/>", "line 1, column 1: a document type"),
        ("<!DOCTYPE d [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><domain>&a;</domain>", "a document type"),
        ("<domain/>", "line 1, column 1: <memory> is missing"),
        ("<domain type='kvm'><memory>1</memory></domain>", "<name> is missing"),
        ("<domain><name>a</name><memory>1</memory></domain>", "domain/@type is missing"),
        ("<domain type='kvm'><name>a</name></domain>", "<memory> is missing"),
    ];
    for (text, part) in table {
        assert!(error(text).contains(part), "{text}: {}", error(text));
    }
}

#[test]
fn values_without_meaning_are_named() {
    let inside = |part: &str| {
        let memory =
            if part.starts_with("<memory>") || part.starts_with("<memory ") { "" } else { "<memory>1024</memory>" };
        format!("<domain type='kvm'>\n<name>a</name>{memory}\n{part}</domain>")
    };
    let table = [
        ("<memory>much</memory>", "`much`"),
        ("<memory>-1</memory>", "`-1`"),
        ("<memory>1.5</memory>", "`1.5`"),
        ("<memory unit='MiBs'>1</memory>", "`MiBs`"),
        ("<memory unit='EiB'>99</memory>", "too large"),
        ("<memory>99999999999999999999999</memory>", "whole number"),
        ("<memory unit='b'>18446744073709551615</memory>", "too large"),
        ("<vcpu>0</vcpu>", "at least 1"),
        ("<vcpu current='3'>2</vcpu>", "`3 of 2`"),
        ("<vcpu>4294967296</vcpu>", "whole number"),
        ("<vcpu cpuset='0-99999999'>1</vcpu>", "line 3, column 1: vcpu/@cpuset is `0-99999999`"),
        ("<iothreads>100000</iothreads>", "at most 1024"),
        ("<cputune><vcpupin vcpu='0'/></cputune>", "vcpupin/@cpuset is missing"),
        ("<cputune><vcpupin cpuset='0'/></cputune>", "vcpupin/@vcpu is missing"),
        ("<cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='0' cpuset='1'/></cputune>", "pinned already"),
        ("<cputune><emulatorpin cpuset='^1-2'/></cputune>", "emulatorpin/@cpuset"),
        ("<numatune><memory nodeset='a'/></numatune>", "memory/@nodeset"),
        ("<numatune><memnode nodeset='0'/></numatune>", "memnode/@cellid is missing"),
        ("<memoryBacking><hugepages><page/></hugepages></memoryBacking>", "page/@size is missing"),
        ("<memoryBacking><hugepages><page size='3'/></hugepages></memoryBacking>", "page/@size"),
        ("<devices><disk/></devices>", "disk/target/@dev is missing"),
        ("<devices><disk><target dev='vda'/><driver queues='many'/></disk></devices>", "driver/@queues is `many`"),
        ("<devices><hostdev type='pci'><source><address bus='0x100'/></source></hostdev></devices>", "at most 255"),
        ("<devices><hostdev type='pci'><source><address bus='0x'/></source></hostdev></devices>", "address/@bus"),
        ("<cpu><numa><cell/></numa></cpu>", "cell/@memory is missing"),
    ];
    for (part, message) in table {
        let found = error(&inside(part));
        assert!(found.contains(message) && found.starts_with("line "), "{part}: {found}");
    }
}

#[test]
fn texts_made_to_cost_are_refused_at_once() {
    let deep = "<domain>".repeat(200_000);
    let scopes: String = (0..100_000).map(|index| format!("<a xmlns:n{index}='u{index}'>")).collect();
    let attributes: String = (0..100_000).map(|index| format!(" a{index}=''")).collect();
    let table = [
        (format!("<domain>{}", " ".repeat(5 << 20)), "more than the 4194304 libvirt accepts"),
        (deep, "more than 64 levels of nesting"),
        (format!("<domain>{scopes}"), "more than 64 "),
        (format!("<domain{attributes}/>"), "more than 128 attributes"),
        (format!("<domain>{}</domain>", "<a/>".repeat(300_000)), "more than 200000 nodes"),
        (format!("<domain>{}</domain>", "<a xmlns:x='u'/>".repeat(1000)), "more than 64 namespace declarations"),
        (format!("<domain a='{}", ">".repeat(3 << 20)), "not well-formed"),
        (format!("<domain><!--{}", "<".repeat(3 << 20)), "not well-formed"),
    ];
    for (text, message) in table {
        let start = Instant::now();
        let found = error(&text);
        assert!(found.contains(message), "{message}: {}", &found[..found.len().min(200)]);
        assert!(start.elapsed() < Duration::from_secs(10), "{message} took {:?}", start.elapsed());
    }
}

#[test]
fn setters_refuse_what_libvirt_would_refuse() {
    let mut xml = common::domain("virt-install");
    let before = xml.clone();
    let cached = DriverOptions { cache: Some(DiskCache::Writeback), ..DriverOptions::default() };
    let queues = DriverOptions { queues: Some(2), ..DriverOptions::default() };
    let none = DriverOptions { iothread: Some(0), ..DriverOptions::default() };
    let native = DriverOptions { io: Some(DiskIo::Native), ..DriverOptions::default() };
    let network = InterfaceOptions { backend: NetworkBackend::Vhost, queues: 2, offloads_off: true };
    let no_queues = InterfaceOptions { queues: 0, ..network };
    let (own, other) = ("52:54:00:7c:3a:90".parse().unwrap(), "52:54:00:00:00:00".parse().unwrap());
    let with = |from: &str, to: &str| DomainXml::parse(&before.as_str().replace(from, to)).unwrap();
    let mut emulated = with("<source network='default'/>\n      <model type='virtio'/>", "<source network='default'/>");
    let mut twice =
        with("</devices>", "<interface type='user'><mac address='52:54:00:7C:3A:90'/></interface></devices>");
    let answers: Vec<(Result<bool, DomainError>, &str)> = vec![
        (xml.set_name(""), "neither empty"),
        (xml.set_name("a/b"), "neither empty"),
        (xml.set_uuid("not one"), "32 hex digits"),
        (xml.set_vcpu_pins(&[(0, CpuSet::new())]), "at least one PU"),
        (xml.set_vcpu_pins(&[(0, CpuSet::one(1)), (0, CpuSet::one(2))]), "twice"),
        (xml.set_iothreads(&[CpuSet::new()]), "at least one PU"),
        (xml.set_iothreads(&vec![CpuSet::one(0); 2000]), "at most 1024"),
        (xml.set_disk_driver("vdz", &queues), "no disk has the target `vdz`; there are: vda, sda"),
        (xml.set_disk_driver("sda", &queues), "need bus='virtio'"),
        (xml.set_disk_driver("vda", &none), "count from 1"),
        (xml.set_disk_driver("vda", &cached), "QEMU needs none or directsync"),
        (xml.set_disk_driver("sda", &native), "QEMU needs none or directsync"),
        (xml.set_interface_driver(own, &no_queues), "count from 1"),
        (
            xml.set_interface_driver(other, &network),
            "no interface has the address `52:54:00:00:00:00`; there are: 52:54",
        ),
        (emulated.set_interface_driver(own, &network), "need a virtio model"),
        (twice.set_interface_driver(own, &network), "more than one interface"),
        (xml.replace_disk_source("vda", &DiskSource::File("relative".into())), "absolute path"),
        (xml.replace_disk_source("vda", &DiskSource::File("/a\u{1}b".into())), "not well-formed"),
        (xml.set_direct_boot("", None, ""), "path is needed"),
        (xml.set_direct_boot("/k", None, "a\u{0}b"), "not well-formed"),
        (xml.remove_disk("hda"), "no disk has the target"),
    ];
    for (answer, message) in answers {
        assert!(answer.as_ref().is_err_and(|error| error.to_string().contains(message)), "{message}: {answer:?}");
    }
    assert_eq!(xml, before, "a refused setter changes nothing");
}

/// Every reader and setter once; none may panic, and each leaves a domain.
fn use_all(mut xml: DomainXml) {
    let _ = xml.facts();
    let options = DriverOptions {
        cache: Some(DiskCache::None),
        io: Some(DiskIo::Native),
        iothread: Some(1),
        iothreads: None,
        main_loop: false,
        queues: Some(2),
    };
    let _ = xml.set_vcpu_placement_static();
    let _ = xml.set_vcpu_pins(&[(0, CpuSet::one(1)), (5, CpuSet::one(2))]);
    let _ = xml.set_emulator_pin(&CpuSet::one(3));
    let _ = xml.set_iothreads(&[CpuSet::one(4)]);
    let _ = xml.set_numatune_strict(&"0-1".parse().unwrap_or_default());
    let _ = xml.set_hugepages(PageSize::HUGE_2M);
    let _ = xml.set_disk_driver("vda", &options);
    let network = InterfaceOptions { backend: NetworkBackend::Qemu, queues: 3, offloads_off: true };
    for mac in xml.facts().map(|facts| facts.interfaces).unwrap_or_default().into_iter().filter_map(|found| found.mac) {
        let _ = mac.parse().map(|mac| xml.set_interface_driver(mac, &network));
    }
    let _ = xml.replace_disk_source("vda", &DiskSource::Block("/dev/sdz".into()));
    let _ = xml.set_name("clone");
    let _ = xml.set_uuid("4b1d6c52-6d6e-4f0c-8a38-0f4d6f2c9b11");
    let _ = xml.regenerate_mac_addresses("x");
    let _ = xml.add_agent_channel();
    let _ = xml.set_direct_boot("/k", Some("/i"), "c");
    let _ = xml.remove_pins();
    let _ = xml.remove_hugepages();
    let _ = xml.remove_devices(&["interface", "graphics"]);
    let _ = xml.remove_interfaces(&["hostdev"]);
    let _ = xml.replace_consoles();
    let _ = xml.remove_nvram();
    let _ = xml.remove_metadata();
    let _ = xml.remove_uuid();
    let _ = xml.facts();
    assert!(DomainXml::parse(xml.as_str()).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Bytes of a real domain changed, doubled, cut and swapped: most stay nearly XML, where parsers break.
    #[test]
    fn mutated_domains_never_panic(
        fixture in 0..common::FIXTURES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u8..5, any::<char>()), 1..8),
    ) {
        let mut chars: Vec<char> = common::FIXTURES[fixture].1.chars().collect();
        for (place, other, kind, c) in changes {
            let (place, other) = (place.index(chars.len()), other.index(chars.len()));
            match kind {
                0 => chars[place] = c,
                1 => chars.insert(place, ['<', '>', '\'', '"', '&', '/', '=', '\n'][other % 8]),
                2 => chars.swap(place, other),
                3 => {
                    chars.remove(place);
                }
                _ => {
                    let (low, high) = (place.min(other), place.max(other).min(place.min(other) + 60));
                    let piece: Vec<char> = chars[low..high].to_vec();
                    chars.splice(place..place, piece);
                }
            }
            if chars.is_empty() {
                break;
            }
        }
        let text: String = chars.into_iter().collect();
        if let Ok(xml) = DomainXml::parse(&text) {
            use_all(xml);
        }
    }

    #[test]
    fn no_text_panics(text in "(<|>|/|domain|'|\"|=|&|;|#| |!--|-->|\\[CDATA\\[|\\]\\]>|\\PC){0,60}") {
        let _ = DomainXml::parse(&text).map(use_all);
        let _ = DomainXml::parse(&format!("<domain>{text}</domain>")).map(use_all);
    }
}
