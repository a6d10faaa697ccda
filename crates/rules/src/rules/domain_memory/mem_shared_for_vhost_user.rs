//! vhost-user/virtiofs guests use shared memfd or hugetlbfs memory.

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::{Subject, interface_name};

pub(crate) const RULE: Rule = Rule {
    id: "mem-shared-for-vhost-user",
    layer: Layer::DomainMemory,
    title: "vhost-user/virtiofs guests use shared memfd or hugetlbfs memory",
    severity: Severity::Fault,
    classes: &ALL,
    reads: &[
        "domain <memoryBacking><source type='memfd'/><access mode='shared'/>",
        "<filesystem type='mount'><driver type='virtiofs'>",
    ],
    good: "share true when any vhost-user/virtiofs device exists; false otherwise",
    applies: "vhost-user, virtiofs",
    not_applies: "others (shared shmem follows shmem_enabled, not THP enabled)",
    effect: "prerequisite; shmem THP off by default can lose huge pages: use hugepages",
    evidence: Evidence::B,
    sources: &["lv-dom", "ovs-vhu", "k-thp"],
    fix: Fix {
        live: None,
        persistent: "virsh edit",
        needs: &[Need::VmRestart],
        undo: "tmpfs-like accounting; undo private",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let facts = subject.facts;
    let interfaces = facts.interfaces.iter().filter(|interface| interface.kind == "vhostuser").map(interface_name);
    let disks = facts.disks.iter().filter(|disk| disk.kind == "vhostuser").map(|disk| format!("disk {}", disk.target));
    let folders = subject.peripherals("filesystem").filter(|folder| folder.driver.as_deref() == Some("virtiofs"));
    let users: Vec<String> = interfaces.chain(disks).chain(folders.map(|_| "virtiofs folder".to_owned())).collect();
    if users.is_empty() {
        return Outcome::NotApplicable;
    }
    let whole = facts.memory_policy.access.as_deref() == Some("shared");
    let shared = match facts.cells.as_slice() {
        [] => whole,
        cells => cells.iter().all(|cell| cell.access.as_deref().map_or(whole, |access| access == "shared")),
    };
    if shared {
        return Outcome::Clean;
    }
    let mut cures = vec![Cure::attribute("memoryBacking/access", "mode", "shared")];
    // Pages of a pool can be shared as they are, anonymous ones cannot.
    if !subject.uses_hugetlb() && matches!(facts.memory_policy.source.as_deref(), None | Some("anonymous")) {
        cures.push(Cure::attribute("memoryBacking/source", "type", "memfd"));
    }
    // A cell's own word counts more than the whole domain's.
    let private = facts.cells.iter().filter(|cell| cell.access.as_deref().is_some_and(|access| access != "shared"));
    cures.extend(
        private.map(|cell| Cure::attribute(format!("cpu/numa/cell[@id='{}']", cell.id), "memAccess", "shared")),
    );
    let object = |user| Object::new(user, "guest memory is private", "<access mode='shared'/>");
    Outcome::of(users.into_iter().map(|user| object(user).cured_by_all(cures.clone())).collect())
}
