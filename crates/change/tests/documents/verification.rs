//! An invented verification in which every field has a value somewhere, and every choice each of its words.

use nearmetal_change::verify::{
    Check, CheckKind, GuestDisk, GuestFunction, GuestNode, GuestView, Outcome, VERIFICATION_SCHEMA, Verification,
};
use nearmetal_units::{Bytes, CpuSet, PageSize};

pub(super) const KINDS: [CheckKind; 29] = [
    CheckKind::Running,
    CheckKind::Vcpu,
    CheckKind::Emulator,
    CheckKind::Iothread,
    CheckKind::Vhost,
    CheckKind::Worker,
    CheckKind::Helper,
    CheckKind::Scheduling,
    CheckKind::ProcessorTime,
    CheckKind::Balloon,
    CheckKind::Throttle,
    CheckKind::Cell,
    CheckKind::Function,
    CheckKind::Interrupt,
    CheckKind::Hook,
    CheckKind::BootUnit,
    CheckKind::Queue,
    CheckKind::Memory,
    CheckKind::Touched,
    CheckKind::Pool,
    CheckKind::DiskCache,
    CheckKind::DiskEngine,
    CheckKind::Network,
    CheckKind::StoredDefinition,
    CheckKind::LiveDefinition,
    CheckKind::Guest,
    CheckKind::Setting,
    CheckKind::Module,
    CheckKind::Device,
];

pub(super) fn full() -> Verification {
    let check = |(number, kind): (usize, CheckKind)| Check {
        subject: "test".into(),
        kind,
        planned: "test".into(),
        found: Some("test".into()),
        outcome: [Outcome::Ok, Outcome::Mismatch, Outcome::CannotTell { why: "test".into() }][number % 3].clone(),
        place: Some("/proc".into()),
    };
    let disk = GuestDisk { name: "vda".into(), queues: Some(1), size: Some(Bytes::from_mib(1)), node: Some(0) };
    let function = GuestFunction {
        address: "0000:01:00.0".parse().unwrap(),
        id: (0x8086, 0x10ed),
        driver: Some("igbvf".into()),
        node: Some(0),
    };
    Verification {
        schema: VERIFICATION_SCHEMA.into(),
        guest: "web1".into(),
        taken: "2026-01-01T00:00:00Z".into(),
        checks: KINDS.into_iter().enumerate().map(check).collect(),
        guest_view: Some(GuestView {
            nodes: vec![GuestNode { index: 0, cpus: CpuSet::one(0), memory: Some(Bytes::from_mib(512)) }],
            disks: vec![disk],
            functions: vec![function],
            page_sizes: vec![PageSize::HUGE_2M],
            transparent_hugepage: Some("always".into()),
            source: "nearmetal-probe".into(),
        }),
    }
}
