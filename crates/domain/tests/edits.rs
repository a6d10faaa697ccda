//! Edits that are data: made where libvirt would write it, once, and nothing else moves.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::FIXTURES;
use nearmetal_domain::{DefinitionEdit, DiffKind, DomainError, DomainXml, diff};
use proptest::prelude::*;

fn attribute(at: &str, name: &str, value: &str) -> DefinitionEdit {
    DefinitionEdit::SetAttribute { at: at.into(), name: name.into(), value: value.into() }
}

fn no_attribute(at: &str, name: &str) -> DefinitionEdit {
    DefinitionEdit::RemoveAttribute { at: at.into(), name: name.into() }
}

fn text(at: &str, text: &str) -> DefinitionEdit {
    DefinitionEdit::SetText { at: at.into(), text: text.into() }
}

fn ensure(at: &str) -> DefinitionEdit {
    DefinitionEdit::Ensure { at: at.into() }
}

fn remove(at: &str) -> DefinitionEdit {
    DefinitionEdit::Remove { at: at.into() }
}

const SMALL: &str = "<domain type='kvm'>
  <name>a</name>
  <memory unit='GiB'>1</memory>
  <vcpu>2</vcpu>
  <os><type>hvm</type></os>
  <features>
    <acpi/>
  </features>
  <devices>
    <disk type='block' device='disk'>
      <source dev='/dev/sda'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <!-- the network -->
    <memballoon model='virtio'/>
  </devices>
</domain>
";

#[test]
fn an_element_is_made_with_what_libvirts_schema_asks_of_it() {
    for (edit, wanted) in [
        (ensure("clock"), "<clock offset='utc'/>"),
        (attribute("clock", "offset", "localtime"), "<clock offset='localtime'/>"),
        (attribute("clock[@offset='variable']", "adjustment", "0"), "<clock offset='variable' adjustment='0'/>"),
    ] {
        let mut xml = DomainXml::parse(SMALL).unwrap();
        xml.edit(&edit).unwrap();
        assert!(xml.as_str().contains(wanted), "{}", xml.as_str());
    }
}

#[test]
fn what_is_missing_stands_where_libvirt_prints_it() {
    let edits = [
        attribute("cputune/vcpupin[@vcpu='1']", "cpuset", "5"),
        attribute("cputune/vcpupin[@vcpu='0']", "cpuset", "4"),
        attribute("cputune/emulatorpin", "cpuset", "2-3"),
        ensure("memoryBacking/nosharepages"),
        attribute("memoryBacking/hugepages/page", "size", "1048576"),
        attribute("memoryBacking/hugepages/page", "unit", "KiB"),
        attribute("features/kvm/hint-dedicated", "state", "on"),
        attribute("clock/timer[@name='hpet']", "present", "no"),
        attribute("devices/disk[target/@dev='vda']/driver", "cache", "none"),
        attribute("devices/disk[target/@dev='vda']/driver", "name", "qe'mu"),
        text("iothreads", "1"),
        attribute("devices/memballoon", "model", "none"),
        no_attribute("devices/memballoon", "autodeflate"),
        remove("features/acpi"),
        remove("devices/sound"),
    ];
    let mut xml = DomainXml::parse(SMALL).unwrap();
    for edit in &edits {
        xml.edit(edit).unwrap();
    }
    let wanted = "<domain type='kvm'>
  <name>a</name>
  <memory unit='GiB'>1</memory>
  <memoryBacking>
    <hugepages>
      <page size='1048576' unit='KiB'/>
    </hugepages>
    <nosharepages/>
  </memoryBacking>
  <vcpu>2</vcpu>
  <iothreads>1</iothreads>
  <cputune>
    <vcpupin vcpu='1' cpuset='5'/>
    <vcpupin vcpu='0' cpuset='4'/>
    <emulatorpin cpuset='2-3'/>
  </cputune>
  <os><type>hvm</type></os>
  <features>
    <kvm>
      <hint-dedicated state='on'/>
    </kvm>
  </features>
  <clock offset='utc'>
    <timer name='hpet' present='no'/>
  </clock>
  <devices>
    <disk type='block' device='disk'>
      <driver cache='none' name='qe&apos;mu'/>
      <source dev='/dev/sda'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <!-- the network -->
    <memballoon model='none'/>
  </devices>
</domain>
";
    assert_eq!(xml.as_str(), wanted);
    for edit in &edits {
        assert!(!xml.edit(edit).unwrap(), "{edit:?} again");
    }
}

#[test]
fn what_cannot_be_made_is_an_error_and_nothing_changes() {
    let table = [
        (attribute("devices/disk[target/@dev='vdz']/driver", "cache", "none"), "no `devices/disk[target/@dev='vdz']"),
        (attribute("vcpu", "a b", "1"), "ASCII"),
        (attribute("vcpu", "xmlns", "urn:x"), "ASCII"),
        (attribute("vcpu", "q:a", "1"), "ASCII"),
        (attribute("vcpu", "", "1"), "ASCII"),
        (attribute("vcpu", "a", "\u{1}"), "not well-formed"),
        (attribute("", "a", "1"), "ASCII"),
        (attribute("devices/disk[", "a", "1"), "ASCII"),
        (attribute("cputune/vcpupin[@vcpu='1']", "vcpu", "2"), "would not be found again"),
        (no_attribute("vcpu", "a='1' b"), "ASCII"),
        (text("devices", "gone"), "has others in it"),
        (text("title", "\u{0}"), "not well-formed"),
        (ensure("devices/disk[target/@dev='vdb']"), "known by something inside it"),
        (remove("devices/*"), "ASCII"),
        (remove("devices/disk[target/@dev=\"x"), "quotes"),
    ];
    for (edit, message) in table {
        let mut xml = DomainXml::parse(SMALL).unwrap();
        let answer = xml.edit(&edit);
        assert!(answer.as_ref().is_err_and(|error| error.to_string().contains(message)), "{edit:?}: {answer:?}");
        assert_eq!(xml.as_str(), SMALL, "{edit:?}");
    }
    // Not there is what removing is for.
    let mut xml = DomainXml::parse(SMALL).unwrap();
    for edit in [remove("devices/disk[target/@dev='vdz']"), remove("a/b/c"), no_attribute("a/b", "c")] {
        assert!(!xml.edit(&edit).unwrap(), "{edit:?}");
    }
}

#[test]
fn what_an_edit_may_not_know_stays() {
    let strange = SMALL.replace("<acpi/>", "<x:acpi xmlns:x='urn:x'/><!-- <acpi/> --><acpi/>");
    let mut xml = DomainXml::parse(&strange).unwrap();
    assert!(xml.edit(&remove("features/acpi")).unwrap());
    assert!(xml.as_str().contains("<x:acpi xmlns:x='urn:x'/><!-- <acpi/> -->"));
    let lines = strange.replace('\n', "\r\n");
    let mut xml = DomainXml::parse(&lines).unwrap();
    assert!(xml.edit(&ensure("memoryBacking/locked")).unwrap());
    assert_eq!(xml.as_str().matches("\r\n").count(), xml.as_str().matches('\n').count());
}

/// Places that rules name, and the words lines of theirs have in them.
const PLACES: [&str; 11] = [
    "cputune/vcpupin[@vcpu='3']",
    "cputune/emulatorpin",
    "memoryBacking/hugepages/page",
    "memoryBacking/allocation",
    "features/kvm/hint-dedicated",
    "features/hyperv/spinlocks",
    "clock/timer[@name='hpet']",
    "cpu/topology",
    "numatune/memory",
    "devices/memballoon",
    "vcpu",
];

fn edit() -> impl Strategy<Value = DefinitionEdit> {
    let place = (0..PLACES.len()).prop_map(|index| PLACES[index].to_owned());
    let value = "[ -~äß€\t\n]{0,20}";
    prop_oneof![
        (place.clone(), "[a-wyz][a-z]{0,8}", value).prop_map(|(at, name, value)| {
            // An attribute the place asks for has the value it asks for.
            let name = if at.contains(&format!("@{name}=")) { "other".to_owned() } else { name };
            DefinitionEdit::SetAttribute { at, name, value }
        }),
        (place.clone(), "[a-wyz][a-z]{0,8}").prop_map(|(at, name)| DefinitionEdit::RemoveAttribute { at, name }),
        place.clone().prop_map(|at| DefinitionEdit::Ensure { at }),
        place.prop_map(|at| DefinitionEdit::Remove { at }),
        "[ -~äß€]{0,20}".prop_map(|text| DefinitionEdit::SetText { at: "title".to_owned(), text }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn an_edit_made_twice_is_an_edit_made_once(fixture in 0..FIXTURES.len(), edits in prop::collection::vec(edit(), 1..6)) {
        let mut xml = DomainXml::parse(FIXTURES[fixture].1).unwrap();
        for edit in &edits {
            xml.edit(edit).unwrap();
            let once = xml.clone();
            prop_assert!(!xml.edit(edit).unwrap(), "{edit:?}");
            prop_assert_eq!(&xml, &once);
        }
    }

    #[test]
    fn lines_an_edit_does_not_name_are_the_same_lines(fixture in 0..FIXTURES.len(), edit in edit()) {
        let before = FIXTURES[fixture].1;
        let mut xml = DomainXml::parse(before).unwrap();
        xml.edit(&edit).unwrap();
        if before.contains('\n') {
            let words: Vec<String> = match &edit {
                DefinitionEdit::SetText { .. } => vec!["title".to_owned()],
                DefinitionEdit::SetAttribute { at, .. } | DefinitionEdit::RemoveAttribute { at, .. }
                | DefinitionEdit::Ensure { at } | DefinitionEdit::Remove { at } => {
                    at.split(['/', '[']).map(str::to_owned).collect()
                }
            };
            // An element that goes takes what is inside it along.
            let removes = matches!(edit, DefinitionEdit::Remove { .. });
            for line in diff(before, xml.as_str()) {
                let changed = line.kind == DiffKind::Added || (line.kind == DiffKind::Removed && !removes);
                prop_assert!(!changed || words.iter().any(|word| line.text.contains(word)), "{edit:?}: {line:?}");
            }
        }
    }

    #[test]
    fn no_place_name_or_value_panics(
        fixture in 0..FIXTURES.len(),
        at in "(devices|disk|/|\\[|\\]|@|=|'|\"|target|dev|vda|a|<|>|&|\\PC){0,12}",
        name in "([a-z]|=|'| |<|:|\\PC){0,6}",
        value in "\\PC{0,12}",
    ) {
        let edits = [attribute(&at, &name, &value), no_attribute(&at, &name), text(&at, &value), ensure(&at), remove(&at)];
        for edit in edits {
            let mut xml = DomainXml::parse(FIXTURES[fixture].1).unwrap();
            let before = xml.clone();
            match xml.edit(&edit) {
                Ok(_) => prop_assert!(DomainXml::parse(xml.as_str()).is_ok()),
                Err(DomainError::NoSuchPlace { .. } | DomainError::BadArgument { .. } | DomainError::Malformed { .. }) => {
                    prop_assert_eq!(xml, before);
                }
                Err(other) => prop_assert!(false, "{edit:?}: {other}"),
            }
        }
    }
}
