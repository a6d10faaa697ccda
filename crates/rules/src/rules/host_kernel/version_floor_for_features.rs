//! QEMU, libvirt and kernel are new enough for what the domain uses.

use std::collections::BTreeSet;

use nearmetal_domain::DomainFacts;

use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "version-floor-for-features",
    layer: Layer::HostKernel,
    title: "QEMU, libvirt and kernel are new enough for what the domain uses",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &[
        "versions of libvirt and QEMU, from libvirt",
        "/proc/sys/kernel/osrelease",
        "domain <disk><driver iothreads, io>, <allocation threads>, <hyperv><avic>",
    ],
    good: "iothread virtqueue mapping: QEMU>=9.0 + libvirt>=10.0; io_uring: QEMU>=5.0, libvirt>=6.3, kernel>=5.13 (LXD cut-off), not QEMU 7.1.0 with iothreads; prealloc threads: libvirt>=8.2; hyperv avic: libvirt>=8.10/QEMU>=6.2",
    applies: "domains that use one of these",
    not_applies: "-",
    effect: "unquantified",
    evidence: Evidence::B,
    sources: &["lv-dom", "lv-iotmap", "lxd-uring", "obs-uring", "pve-qm", "pve-pci"],
    fix: Fix {
        live: None,
        persistent: "distribution upgrade",
        needs: &[Need::VmRestart, Need::HostReboot],
        undo: "upgrade risk",
    },
    check: Check::Domain(check),
};

/// Major, minor, micro.
pub(crate) type Version = (u32, u32, u32);

/// What a part of a definition needs: the program, its least version.
struct Floor {
    what: String,
    program: &'static str,
    least: Version,
}

/// Hangs with io_uring in an iothread.
const HANGS: Version = (7, 1, 0);

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(host) = subject.context.host else { return Outcome::no_host() };

    let floors = floors(subject.facts);
    if floors.is_empty() {
        return Outcome::NotApplicable;
    }
    let mut objects = Vec::new();
    let mut unknown = BTreeSet::new();
    for Floor { what, program, least } in floors {
        let (text, missing) = match program {
            "Linux" => (&host.system.kernel, "/proc/sys/kernel/osrelease"),
            "QEMU" => (&host.system.qemu_version, "the version of QEMU (from libvirt, on the machine itself)"),
            _ => (&host.system.libvirt_version, "the version of libvirt (from libvirt itself, on the machine)"),
        };
        let Some((text, version)) = text.as_deref().and_then(|text| Some((text, version(text)?))) else {
            unknown.insert(missing.to_owned());
            continue;
        };
        if version < least {
            objects.push(Object::new(what, format!("{program} is {text}"), format!("{}.{}", least.0, least.1)));
        } else if program == "QEMU" && version == HANGS && what.ends_with("io_uring in an iothread") {
            objects.push(Object::new(what, format!("QEMU {text} hangs with it"), "another version of QEMU"));
        }
    }
    if objects.is_empty() && !unknown.is_empty() {
        return Outcome::CannotTell(unknown.into_iter().collect());
    }
    Outcome::of(objects)
}

fn floors(facts: &DomainFacts) -> Vec<Floor> {
    let mut floors = Vec::new();
    let mut needs = |what: &str, all: &[(&'static str, Version)]| {
        floors.extend(all.iter().map(|(program, least)| Floor { what: what.to_owned(), program, least: *least }));
    };
    for disk in &facts.disks {
        let (target, driver) = (&disk.target, &disk.driver);
        let in_iothread = driver.iothread.is_some() || !driver.iothread_mapping.is_empty();
        if !driver.iothread_mapping.is_empty() {
            needs(&format!("disk {target}: several iothreads"), &[("QEMU", (9, 0, 0)), ("libvirt", (10, 0, 0))]);
        }
        if driver.io.as_deref() == Some("io_uring") {
            let what = format!("disk {target}: io_uring{}", if in_iothread { " in an iothread" } else { "" });
            needs(&what, &[("QEMU", (5, 0, 0)), ("libvirt", (6, 3, 0)), ("Linux", (5, 13, 0))]);
        }
    }
    if facts.memory_policy.allocation_threads.is_some() {
        needs("memory: threads that allocate it", &[("libvirt", (8, 2, 0))]);
    }
    if facts.features.hyperv.as_ref().is_some_and(|hyperv| hyperv.states.get("avic").is_some_and(|state| state == "on"))
    {
        needs("Hyper-V enlightenment avic", &[("QEMU", (6, 2, 0)), ("libvirt", (8, 10, 0))]);
    }
    floors
}

/// `9.2.1` and `6.12.0-9-amd64`; a part that is missing is 0.
pub(crate) fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split(['.', '-', '+', '~']).map(|part| part.parse::<u32>().ok());
    let major = numbers.next()??;
    let mut next = || numbers.next().flatten().unwrap_or(0);
    Some((major, next(), next()))
}
