//! Kernel vhost-net is available to QEMU.

use nearmetal_host::ThreadRole;

use crate::cure::Cure;
use crate::finding::{Object, Outcome};
use crate::rule::{Check, Evidence, Fix, Layer, Need, Rule, Severity};
use crate::rules::ALL;
use crate::subject::Subject;

pub(crate) const RULE: Rule = Rule {
    id: "net-vhost-module",
    layer: Layer::Net,
    title: "Kernel vhost-net is available to QEMU",
    severity: Severity::Loss,
    classes: &ALL,
    reads: &["/proc/PID/task/*/comm", "/proc/*/comm of kernel threads", "domain <interface>"],
    good: "present, and each virtio NIC on tap has a vhost worker",
    applies: "tap-backed virtio NICs",
    not_applies: "vhost-user, SR-IOV, SLIRP/passt",
    effect: "unquantified in the sources read",
    evidence: Evidence::B,
    sources: &["lv-dom", "own"],
    fix: Fix {
        live: Some("modprobe vhost_net"),
        persistent: "/etc/modules-load.d/vhost.conf",
        needs: &[Need::Live, Need::VmRestart],
        undo: "none; undo rmmod",
    },
    check: Check::Domain(check),
};

fn check(subject: &Subject<'_>) -> Outcome {
    let Some(process) = subject.process else { return Outcome::NotApplicable };
    let wanted = subject.tap_interfaces().filter(|interface| interface.driver_name.as_deref() != Some("qemu")).count();
    let workers = process.threads_of(&ThreadRole::Vhost).count();
    let found = format!("{workers} vhost workers for {wanted} virtio interfaces");
    Outcome::one((wanted > 0 && workers == 0).then(|| {
        Object::new("vhost", found, "vhost_net loaded before the guest starts")
            .cured_by(Cure::LoadModule { module: "vhost_net".to_owned() })
    }))
}
