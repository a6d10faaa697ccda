//! An invented plan in which every field has a value somewhere, and every choice each of its words.

use nearmetal_change::{DomainChange, Followed, HostIdentity, Left, PLAN_SCHEMA, Part, PlanFile};
use nearmetal_place::{
    Blocker, CacheMode, DevicePlacement, DiskEngine, DiskPlacement, FunctionKind, GuestCell, MemoryPlacement,
    NetworkBackend, NetworkPlacement, Placement, Plan, PoolChange, Reason, VcpuPin,
};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};

const UUID: &str = "11111111-2222-3333-4444-555555555555";

fn left() -> Vec<Left> {
    let text = || "test".to_owned();
    vec![Left { rule: text(), what: text(), found: text(), wanted: text(), why: text() }]
}

fn parts() -> Vec<Part> {
    vec![Part { what: "memory".into(), change: "test".into(), why: "test".into() }]
}

fn disk(target: &str, cache: CacheMode, engine: DiskEngine) -> DiskPlacement {
    let block_device = Some("nvme0n1".into());
    DiskPlacement {
        target: target.into(),
        block_device,
        cache,
        engine,
        iothread: Some(1),
        iothreads: None,
        queues: Some(2),
    }
}

fn network(mac: &str, backend: NetworkBackend) -> NetworkPlacement {
    NetworkPlacement { mac: mac.parse().unwrap(), backend, queues: 1, offloads_off: true }
}

fn device(function: &str, kind: FunctionKind) -> DevicePlacement {
    DevicePlacement { function: function.parse().unwrap(), kind, cell: Some(0), node: Some(1) }
}

fn placement() -> Placement {
    let network_virtual = FunctionKind::NetworkVirtual {
        mac: Some("52:54:00:00:00:03".parse().unwrap()),
        vlan: Some(serde_json::from_str("7").unwrap()),
    };
    Placement {
        guest: "web1".into(),
        uuid: UUID.into(),
        vcpus: vec![VcpuPin { vcpu: 0, cpus: CpuSet::one(2) }],
        emulator: CpuSet::one(3),
        iothreads: vec![CpuSet::one(3), CpuSet::one(3)],
        memory: MemoryPlacement { nodes: NodeSet::one(1), page_size: Some(PageSize::HUGE_2M), pages: 256 },
        disks: vec![
            disk("vda", CacheMode::None, DiskEngine::IoUring),
            DiskPlacement { iothread: None, iothreads: Some(2), ..disk("vdb", CacheMode::None, DiskEngine::Native) },
            disk("vdc", CacheMode::Writeback, DiskEngine::Threads),
        ],
        networks: vec![
            network("52:54:00:00:00:01", NetworkBackend::Vhost),
            network("52:54:00:00:00:02", NetworkBackend::Qemu),
        ],
        cells: vec![GuestCell { vcpus: CpuSet::one(0), memory: Bytes::from_mib(512), node: 1, distances: vec![10] }],
        devices: vec![
            device("0000:41:00.0", FunctionKind::Whole),
            device("0000:42:00.1", FunctionKind::Virtual),
            device("0000:43:00.1", network_virtual),
        ],
        vhost: vec![CpuSet::one(3)],
        interrupts: CpuSet::one(3),
        threads_per_core: Some(1),
        guest_polls: Some(true),
        reasons: vec![Reason {
            subject: "node".into(),
            choice: "node 1".into(),
            because: "test".into(),
            source: Some("test".into()),
        }],
    }
}

pub(super) fn full() -> PlanFile {
    let text = || "test".to_owned();
    PlanFile {
        schema: PLAN_SCHEMA.into(),
        created: "2026-01-01T00:00:00Z".into(),
        nearmetal: "0".into(),
        host: HostIdentity { hostname: "quad".into(), fingerprint: "0".into() },
        plan: Plan {
            placements: vec![placement()],
            pools: vec![PoolChange { node: 1, size: PageSize::HUGE_2M, before: 0, after: 256 }],
            blocked: vec![Blocker { guest: "web2".into(), problem: text(), remedy: text() }],
        },
        domains: vec![DomainChange {
            name: "web1".into(),
            uuid: UUID.into(),
            xml_before: "<domain/>".into(),
            xml_after: "<domain/>".into(),
            needs_restart: parts(),
            live_now: parts(),
            class: Some("latency".into()),
            followed: vec![Followed { rule: text(), what: text(), found: text(), wanted: text() }],
            left: left(),
        }],
        left: left(),
    }
}
