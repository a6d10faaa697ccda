//! What nearmetal does not know stays as it was, byte for byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::FIXTURES;
use nearmetal_domain::{DiffKind, first_difference, render_diff, same_after_canonicalisation};
use nearmetal_domain::{
    DiskCache, DiskIo, DiskSource, DomainError, DomainXml, DriverOptions, InterfaceOptions, NetworkBackend, OFFLOADS,
    diff,
};
use nearmetal_units::{CpuSet, NodeSet, PageSize};
use proptest::prelude::*;

/// What a plan writes.
#[derive(Debug, Clone)]
struct Wanted {
    pins: Vec<(u32, CpuSet)>,
    emulator: CpuSet,
    iothreads: Vec<CpuSet>,
    nodes: NodeSet,
    size: PageSize,
    options: DriverOptions,
}

fn set() -> impl Strategy<Value = CpuSet> {
    prop::collection::btree_set(0u32..300, 1..5).prop_map(|members| members.into_iter().collect())
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let pins = prop::collection::vec(set(), 0..9).prop_map(|sets| (0u32..).zip(sets).collect());
    let nodes = prop::collection::btree_set(0u32..8, 1..3).prop_map(|members| members.into_iter().collect());
    let size = prop_oneof![Just(PageSize::HUGE_2M), Just(PageSize::HUGE_1G)];
    let cache = prop_oneof![Just(DiskCache::None), Just(DiskCache::Directsync)];
    let io = prop_oneof![Just(DiskIo::Native), Just(DiskIo::IoUring), Just(DiskIo::Threads)];
    let iothreads = prop::collection::vec(set(), 1..4);
    (pins, set(), iothreads, nodes, size, (cache, io), any::<bool>(), 1u32..20).prop_map(
        |(pins, emulator, iothreads, nodes, size, (cache, io), share, queues)| Wanted {
            pins,
            emulator,
            iothreads,
            nodes,
            size,
            options: DriverOptions {
                cache: Some(cache),
                io: Some(io),
                iothread: (!share).then_some(1),
                iothreads: share.then_some(2),
                main_loop: false,
                queues: Some(queues),
            },
        },
    )
}

fn network(wanted: &Wanted) -> InterfaceOptions {
    InterfaceOptions {
        backend: if wanted.nodes.contains(0) { NetworkBackend::Qemu } else { NetworkBackend::Vhost },
        queues: wanted.options.queues.unwrap_or(1),
        offloads_off: wanted.size == PageSize::HUGE_2M,
    }
}

fn apply(xml: &mut DomainXml, wanted: &Wanted) -> Result<bool, DomainError> {
    let mut changed = xml.set_vcpu_placement_static()?;
    changed |= xml.set_vcpu_pins(&wanted.pins)?;
    changed |= xml.set_emulator_pin(&wanted.emulator)?;
    changed |= xml.set_iothreads(&wanted.iothreads)?;
    changed |= xml.set_numatune_strict(&wanted.nodes)?;
    changed |= xml.set_hugepages(wanted.size)?;
    for disk in xml.facts()?.disks.iter().filter(|disk| disk.is_virtio_blk()) {
        changed |= xml.set_disk_driver(&disk.target, &wanted.options)?;
    }
    for interface in xml.facts()?.interfaces.iter().filter(|interface| interface.is_virtio_tap()) {
        if let Some(mac) = interface.mac.as_ref().and_then(|mac| mac.parse().ok()) {
            changed |= xml.set_interface_driver(mac, &network(wanted))?;
        }
    }
    Ok(changed)
}

/// Elements, comments and instructions a setter has no business with.
fn stranger() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{3,8}".prop_map(|name| format!("<x-{name}/>")),
        ("[a-z]{3,8}", "[ -%'-;=-~]{0,20}")
            .prop_map(|(name, text)| format!("<x-{name} b = \"1\"   a='2'>{text}</x-{name}>")),
        "[a-z <>&]{0,20}".prop_map(|text| format!("<!-- {text} -->")),
        "[a-z <>&]{0,20}".prop_map(|text| format!("<x-data><![CDATA[{text}]]>&lt;&#65;</x-data>")),
        "[a-z]{3,8}".prop_map(|text| format!("<q:{text} xmlns:q=\"urn:{text}\"><q:cputune/><vcpu/></q:{text}>")),
        "[a-z ]{0,20}".prop_map(|text| format!("<?pi {text}?>")),
    ]
}

/// Puts strangers behind the end of tags of a text that is laid out in lines.
fn strewn(text: &str, strangers: &[(prop::sample::Index, String)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let places: Vec<usize> = (0..lines.len())
        .filter(|index| {
            let line = lines[*index].trim();
            // Behind a closed element or an opened container, and not inside comments or tags over several lines.
            (line.ends_with("/>") || line.starts_with("</") || line == "<devices>" || line == "<cputune>")
                && !line.starts_with("</domain>")
                && line.starts_with('<')
        })
        .collect();
    for (place, stranger) in strangers {
        let line = places[place.index(places.len())];
        lines[line].push_str(&format!("\n   {stranger}"));
    }
    lines.join("\n")
}

fn check(xml: &DomainXml, wanted: &Wanted) -> Result<(), TestCaseError> {
    let facts = xml.facts().unwrap();
    prop_assert_eq!(&facts.vcpu_pins, &wanted.pins);
    prop_assert_eq!(facts.emulator_pin.as_ref(), Some(&wanted.emulator));
    for (id, set) in (1u32..).zip(&wanted.iothreads) {
        prop_assert!(facts.iothreads.ids.contains(&id));
        prop_assert!(facts.iothreads.pins.contains(&(id, set.clone())));
    }
    prop_assert_eq!(facts.iothreads.pins.len(), facts.iothreads.ids.len(), "every iothread has a pin");
    let tune = facts.numatune.unwrap();
    prop_assert_eq!((tune.mode.as_deref(), tune.nodes.as_ref()), (Some("strict"), Some(&wanted.nodes)));
    prop_assert!(tune.placement.is_none_or(|placement| placement == "static"));
    let pages = facts.hugepages.unwrap();
    prop_assert_eq!((pages.len(), pages[0].size, pages[0].cells.is_none()), (1, wanted.size, true));
    prop_assert!(facts.vcpus.placement.is_none_or(|placement| placement == "static"));
    for disk in facts.disks.iter().filter(|disk| disk.is_virtio_blk()) {
        prop_assert_eq!(disk.driver.cache.as_deref(), wanted.options.cache.map(DiskCache::as_str));
        prop_assert_eq!(disk.driver.io.as_deref(), wanted.options.io.map(DiskIo::as_str));
        prop_assert_eq!((disk.driver.iothread, disk.driver.queues), (wanted.options.iothread, wanted.options.queues));
        let shared: Vec<u32> = (1..=wanted.options.iothreads.unwrap_or(0)).collect();
        prop_assert_eq!(&disk.driver.iothread_mapping, &shared);
    }
    let network = network(wanted);
    for interface in facts.interfaces.iter().filter(|interface| interface.is_virtio_tap() && interface.mac.is_some()) {
        prop_assert_eq!(interface.driver_name.as_deref(), Some(network.backend.as_str()));
        prop_assert_eq!(interface.queues, Some(network.queues).filter(|queues| *queues > 1));
        let off = |name: &String| interface.offloads_off.iter().any(|found| found == name);
        let all = OFFLOADS.iter().flat_map(|(side, names)| names.iter().map(move |name| format!("{side}/{name}")));
        prop_assert!(!network.offloads_off || all.into_iter().all(|name| off(&name)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn what_is_set_is_read_back_and_setting_it_again_changes_nothing(fixture in 0..FIXTURES.len(), wanted in wanted()) {
        let mut xml = DomainXml::parse(FIXTURES[fixture].1).unwrap();
        apply(&mut xml, &wanted).unwrap();
        check(&xml, &wanted)?;
        let text = xml.as_str().to_owned();
        prop_assert!(!apply(&mut xml, &wanted).unwrap());
        prop_assert_eq!(xml.as_str(), text);
    }

    #[test]
    fn strangers_survive_in_their_order(
        fixture in 0..5usize,
        strangers in prop::collection::vec((any::<prop::sample::Index>(), stranger()), 1..8),
        wanted in wanted(),
        carriage_returns: bool,
    ) {
        let mut text = strewn(FIXTURES[fixture].1, &strangers);
        if carriage_returns {
            text = text.replace('\n', "\r\n");
        }
        // A comment may hold `--`, which XML forbids: not a stranger, a fault.
        let Ok(mut xml) = DomainXml::parse(&text) else { return Ok(()) };
        apply(&mut xml, &wanted).unwrap();
        check(&xml, &wanted)?;
        // A pin, policy or page that goes may take nothing else along, except what stands inside it.
        let mut rest = xml.as_str();
        for line in text.lines().filter(|line| is_strange(line)) {
            if inside_removed(&text, line) {
                continue;
            }
            let place = rest.find(line.trim());
            prop_assert!(place.is_some(), "{line:?} is gone from\n{rest}");
            rest = &rest[place.unwrap_or(0)..];
        }
        let newlines = xml.as_str().matches('\n').count();
        prop_assert!(!carriage_returns || xml.as_str().matches("\r\n").count() == newlines);
    }

    #[test]
    fn lines_that_stay_are_the_same_lines(fixture in 0..FIXTURES.len(), wanted in wanted()) {
        let before = FIXTURES[fixture].1;
        let mut xml = DomainXml::parse(before).unwrap();
        apply(&mut xml, &wanted).unwrap();
        // Only lines about what was set may go or come.
        if before.contains('\n') {
            let touched = [
                "vcpu", "emulatorpin", "cputune", "iothread", "numatune", "memory", "memnode", "hugepages", "page", "driver", "<host ",
                "<guest ",
            ];
            for line in diff(before, xml.as_str()) {
                let changed = matches!(line.kind, DiffKind::Removed | DiffKind::Added);
                // A comment behind a pin that went stays alone on its line.
                let moved = line.kind == DiffKind::Added && before.contains(line.text.trim());
                prop_assert!(!changed || moved || touched.iter().any(|word| line.text.contains(word)), "{line:?}");
            }
        }
    }
}

fn is_strange(line: &str) -> bool {
    line.starts_with("   <x-")
        || line.starts_with("   <!-- ")
        || line.starts_with("   <q:")
        || line.starts_with("   <?pi")
}

/// Whether a stranger stands in an element setters replace as a whole: a mapping of queues to iothreads.
fn inside_removed(text: &str, line: &str) -> bool {
    let place = text.find(line).unwrap_or(0);
    let end = text.rfind("</iothreads>").unwrap_or(0);
    let start = text[..end].rfind("<iothreads>").unwrap_or(usize::MAX);
    (start..end).contains(&place)
}

#[test]
fn the_difference_is_short_and_reads_like_diff() {
    let mut xml = common::domain("hand-written-minimal");
    let options = DriverOptions { cache: Some(DiskCache::None), ..DriverOptions::default() };
    xml.set_disk_driver("vda", &options).unwrap();
    let lines = diff(common::text("hand-written-minimal"), xml.as_str());
    let expected = "--- found\n+++ planned\n@@ -8,6 +8,7 @@\n   <devices>\n     <!-- the whole drive, no driver options: QEMU takes \
                    writeback and threads -->\n     <disk type='block' device='disk'>\n+      <driver name='qemu' type='raw' \
                    cache='none'/>\n       <source dev='/dev/nvme0n1'/>\n       <target dev='vda' bus='virtio'/>\n     </disk>\n";
    assert_eq!(render_diff(&lines, "found", "planned"), expected);
    assert_eq!(
        lines.iter().filter(|line| line.kind == DiffKind::Added).map(|line| line.after).collect::<Vec<_>>(),
        [Some(11)]
    );
    assert!(diff("a\n", "a\n").is_empty() && render_diff(&[], "a", "b").is_empty());
}

#[test]
fn layout_is_no_difference_and_content_is() {
    let one =
        DomainXml::parse("<domain type='kvm' id='3'><name>a</name><devices><disk/><disk x='1'/></devices></domain>")
            .unwrap();
    let same = "<?xml version='1.0'?>\n<domain id=\"3\" type=\"kvm\">\n\n <!-- c --><name>\n a\n</name>\n<devices><disk></disk>\n<disk x='&#49;'/></devices>\n</domain>\n";
    assert!(same_after_canonicalisation(&one, &DomainXml::parse(same).unwrap()).unwrap());
    let table = [
        ("<domain type='kvm' id='3'><name>b</name><devices><disk/><disk x='1'/></devices></domain>", "domain/name"),
        ("<domain type='kvm'><name>a</name><devices><disk/><disk x='1'/></devices></domain>", "domain"),
        (
            "<domain type='kvm' id='3'><name>a</name><devices><disk/><disk x='2'/></devices></domain>",
            "domain/devices/disk[2]",
        ),
        ("<domain type='kvm' id='3'><name>a</name><devices><disk/></devices></domain>", "domain/devices"),
        ("<domain type='kvm' id='3'><uuid/><devices><disk/><disk x='1'/></devices></domain>", "domain/name"),
    ];
    for (text, path) in table {
        let found = first_difference(&one, &DomainXml::parse(text).unwrap()).unwrap();
        assert_eq!(found.map(|difference| difference.path).as_deref(), Some(path), "{text}");
    }
}

#[test]
fn a_byte_order_mark_stays() {
    let text = "\u{feff}<domain type='kvm'>\n  <name>a</name>\n</domain>\n";
    let mut xml = DomainXml::parse(text).unwrap();
    xml.set_name("b").unwrap();
    assert_eq!(xml.as_str(), text.replace(">a<", ">b<"));
}

#[test]
fn a_value_written_another_way_is_the_same_value() {
    let text = "<domain type='kvm'><devices><disk><driver cache='&#110;one' queues=\"4\"/><target dev='vda'/></disk></devices></domain>";
    let mut xml = DomainXml::parse(text).unwrap();
    let options = DriverOptions { cache: Some(DiskCache::None), queues: Some(4), ..DriverOptions::default() };
    assert!(!xml.set_disk_driver("vda", &options).unwrap());
    assert_eq!(xml.as_str(), text);
}

#[test]
fn tags_in_comments_and_data_are_not_tags() {
    let tags = "<a b='".repeat(200);
    let text =
        format!("<domain type='kvm'><!-- {tags} --><x><![CDATA[{tags} ]]></x><?pi {tags} ?><name>a</name></domain>");
    let mut xml = DomainXml::parse(&text).unwrap();
    xml.set_name("b").unwrap();
    assert_eq!(xml.as_str(), text.replace(">a</name>", ">b</name>"));
}

proptest! {
    #[test]
    fn any_text_that_xml_can_carry_is_read_back(fixture in 0..FIXTURES.len(), path in "/[ -~äß€\t\n]{1,40}") {
        let mut xml = DomainXml::parse(FIXTURES[fixture].1).unwrap();
        let target = xml.facts().unwrap().disks[0].target.clone();
        xml.replace_disk_source(&target, &DiskSource::File(path.clone())).unwrap();
        prop_assert!(!xml.replace_disk_source(&target, &DiskSource::File(path.clone())).unwrap());
        let line = path.trim_end().replace(['\t', '\n'], " ");
        xml.set_direct_boot("/boot/kernel", None, &line).unwrap();
        let facts = xml.facts().unwrap();
        prop_assert_eq!(facts.disks[0].source.as_deref(), Some(path.as_str()));
        prop_assert_eq!(facts.boot.command_line.as_deref(), Some(line.as_str()));
    }
}
