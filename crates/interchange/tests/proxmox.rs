//! Configurations for Proxmox VE. Its own schema is Perl of its own packages, which no registry has: the forms below are
//! those of `man qm.conf`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use nearmetal_interchange::{Engine, Exported, Options, export};
use nearmetal_units::{CpuSet, NodeSet, PciAddress};

fn exported(plan: &nearmetal_change::AnyPlan) -> Exported {
    export(plan, Engine::Proxmox, &Options::default()).unwrap()
}

#[test]
fn a_guest_of_each_kind_is_written_as_in_the_golden() {
    let exported = exported(&host_plan());
    golden("proxmox.txt", &whole(&exported));
}

/// The options of a property string after its first part.
fn options(value: &str) -> BTreeMap<&str, &str> {
    value.split(',').filter_map(|part| part.split_once('=')).collect()
}

fn is_number(text: &str, range: std::ops::RangeInclusive<u64>) -> bool {
    text.parse().is_ok_and(|number| range.contains(&number))
}

/// Whether `man qm.conf` has this key with a value of this form.
fn is_known(key: &str, value: &str) -> bool {
    let ranges = |text: &str| text.replace(';', ",");
    let plain = key.trim_end_matches(|c: char| c.is_ascii_digit());
    let index = &key[plain.len()..];
    let known = options(value);
    let only = |names: &[&str]| known.keys().all(|name| names.contains(name));
    match (plain, index) {
        ("name", "") => value.split('.').all(|label| {
            let inside = |c: char| c.is_ascii_alphanumeric() || c == '-';
            !label.is_empty() && label.len() <= 63 && label.chars().all(inside) && !label.starts_with('-')
        }),
        ("sockets" | "cores", "") => is_number(value, 1..=8192),
        ("memory", "") => is_number(value, 16..=u64::MAX),
        ("balloon", "") => value == "0",
        ("numa", "") => value == "1",
        ("cpu", "") => value == "host",
        ("machine", "") => value == "q35",
        ("bios", "") => value == "ovmf",
        ("hugepages", "") => ["2", "1024", "any"].contains(&value),
        ("scsihw", "") => value == "virtio-scsi-single",
        ("affinity", "") => value.parse::<CpuSet>().is_ok_and(|set| !set.is_empty()),
        ("hookscript", "") => value.strip_prefix("local:snippets/").is_some_and(|name| name.ends_with(".sh")),
        ("smbios", "1") => value.strip_prefix("uuid=").is_some_and(|uuid| uuid.len() == 36),
        ("boot", "") => value.starts_with("order="),
        ("numa", _) => {
            is_number(index, 0..=7)
                && only(&["cpus", "hostnodes", "memory", "policy"])
                && ranges(known["cpus"]).parse::<CpuSet>().is_ok()
                && ranges(known["hostnodes"]).parse::<NodeSet>().is_ok()
                && is_number(known["memory"], 1..=u64::MAX)
                && known["policy"] == "bind"
        }
        ("virtio" | "scsi" | "sata", _) => {
            is_number(index, 0..=30)
                && value.starts_with('/')
                && only(&["aio", "cache", "iothread", "format", "media", "ro"])
                && known.get("aio").is_none_or(|aio| ["native", "threads", "io_uring"].contains(aio))
        }
        ("net", _) => {
            is_number(index, 0..=31)
                && only(&["virtio", "e1000", "e1000e", "rtl8139", "vmxnet3", "bridge", "queues"])
                && known.get("queues").is_none_or(|queues| is_number(queues, 1..=64))
        }
        ("hostpci", _) => is_number(index, 0..=15) && value.split(',').next().unwrap().parse::<PciAddress>().is_ok(),
        _ => false,
    }
}

#[test]
fn every_line_is_one_that_proxmox_has() {
    for (_, plan) in plans() {
        for file in exported(&plan).files.iter().filter(|file| file.path.ends_with(".conf")) {
            let mut keys = BTreeSet::new();
            for line in file.text.lines().filter(|line| !line.starts_with('#')) {
                let (key, value) = line.split_once(": ").unwrap();
                assert!(is_known(key, value), "{}: {line}", file.path);
                assert!(keys.insert(key), "{}: {key} twice", file.path);
            }
        }
    }
}

/// Proxmox refuses to start a VM with `hugepages` and more than one host node in a `numaN` (PVE::QemuServer::Memory).
#[test]
fn huge_pages_of_several_nodes_at_once_are_listed_and_not_written() {
    let (new, mut placement) = pinned("web1", 1, &[2, 3], "4", 0);
    placement.memory.nodes = set("0-1");
    assert!(placement.memory.page_size.is_some(), "the guest of this test has huge pages");
    let exported = exported(&nearmetal_change::AnyPlan::Host(Box::new(common::plan("kvm7", vec![(new, placement)]))));
    assert!(!exported.files.iter().any(|file| file.text.contains("\nhugepages:")), "{:?}", exported.files);
    let line = exported.limits.iter().find(|limit| limit.what == "page size").unwrap().line();
    assert!(line.contains("on nodes 0-1") && line.contains("plan it with guest cells"), "{line}");
}

#[test]
fn files_of_a_guest_have_every_planned_pu_and_no_other() {
    for (_, plan) in plans() {
        let exported = exported(&plan);
        for placement in parts(&plan).into_iter().flat_map(|part| &part.plan.placements) {
            let wanted = format!("smbios1: uuid={}\n", placement.uuid);
            let conf = exported.files.iter().find(|file| file.text.contains(&wanted) && file.path.ends_with(".conf"));
            let conf = conf.unwrap();
            let affinity = conf.text.lines().find_map(|line| line.strip_prefix("affinity: "));
            let sets = placement.iothreads.iter().chain(&placement.vhost);
            let helpers = sets.fold(placement.emulator.clone(), |all, set| all.union(set));
            let slice = placement.vcpus.iter().fold(helpers, |all, pin| all.union(&pin.cpus));
            assert_eq!(
                affinity.map(|set| set.parse::<CpuSet>().unwrap()).unwrap_or_default(),
                slice,
                "{}",
                placement.guest
            );
            let number = conf.path.rsplit('/').next().unwrap().strip_suffix(".conf").unwrap();
            let hook = exported.files.iter().find(|file| file.path.ends_with(&format!("nearmetal-{number}.sh")));
            assert_eq!(hook.is_some(), !placement.is_floating());
            let Some(hook) = hook else { continue };
            for pin in &placement.vcpus {
                let case = format!("'CPU {}/KVM') pus={} ", pin.vcpu, pin.cpus);
                assert!(hook.text.contains(&case), "{case}");
            }
            let sets = hook.text.split_whitespace().filter_map(|word| word.strip_prefix("pus="));
            for set in sets {
                assert!(set.parse::<CpuSet>().unwrap().is_subset(&slice), "{}: {set}", placement.guest);
            }
        }
    }
}

#[test]
fn hostile_names_are_in_comments_alone() {
    let exported = exported(&hostile_plan());
    for file in &exported.files {
        for line in file.text.lines().filter(|line| !line.starts_with('#')) {
            assert!(!line.contains("reboot") || line.starts_with("name: "), "{line}");
            assert!(line.is_ascii(), "{line}");
        }
    }
}

#[test]
fn numbers_are_those_given_and_else_the_lowest_that_are_free() {
    let options = Options { numbers: [("db".to_owned(), 100)].into(), ..Options::default() };
    let exported = export(&host_plan(), Engine::Proxmox, &options).unwrap();
    let paths: Vec<&str> = exported.files.iter().map(|file| file.path.as_str()).collect();
    assert!(paths.contains(&"kvm7/100.conf") && paths.contains(&"kvm7/101.conf") && paths.contains(&"kvm7/102.conf"));
    let db = exported.files.iter().find(|file| file.path == "kvm7/100.conf").unwrap();
    assert!(db.text.contains("name: db\n"));
    let table: [(&[(&str, u32)], &str); 3] = [
        (&[("other", 100)], "the plan has no VM `other`: it cannot have the number 100"),
        (&[("db", 99)], "`db` cannot have the number 99: Proxmox takes 100 to 999999999"),
        (&[("db", 200), ("tiny", 200)], "two VMs cannot have the number 200: give each its own"),
    ];
    for (numbers, says) in table {
        let numbers = numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        let options = Options { numbers, ..Options::default() };
        assert_eq!(export(&host_plan(), Engine::Proxmox, &options).unwrap_err().to_string(), says);
    }
}

#[test]
fn of_iothreads_that_share_a_disk_one_is_left_and_told() {
    let exported = exported(&tuned());
    assert!(whole(&exported).contains("iothread=1"), "{}", whole(&exported));
    let hook = exported.files.iter().find(|file| file.path == "alpha/nearmetal-100.sh").unwrap();
    assert!(hook.text.contains("\t\t\t0) pus=3 ;;\n\t\t\tesac"), "{}", hook.text);
    assert!(hook.text.contains("if [ \"$iothreads\" != 1 ]; then"), "{}", hook.text);
    let limits: Vec<String> = exported.limits.iter().map(|limit| limit.line()).collect();
    for what in ["halt polling", "iothreads 1 to 2 share its queues"] {
        assert!(limits.iter().any(|line| line.contains(what)), "{what}: {limits:?}");
    }
}
