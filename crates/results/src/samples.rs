//! Invented documents for tests.

use std::collections::BTreeMap;

use nearmetal_load::{FioJob, Metric, Unit, Workload};
use nearmetal_units::{Bytes, CpuSet, NodeSet, PageSize};

use crate::arm::ArmName;
use crate::results::{Arm, Environment, Outcome, Purpose, Results, Run, SCHEMA, Slice, Tenant};

/// Three rounds of two arms, A/A pairs, a single shot and a failure: invented values for tests.
pub fn sample_results() -> Results {
    let job = |size| Workload::Fio(FioJob::first_seed(Bytes::new(size), 5, 1));
    let run = |round, position, purpose, arm: &ArmName, workload, value: Option<f64>| Run {
        round,
        position,
        purpose,
        arm: arm.id.clone(),
        count: 1,
        workload,
        seed: 1,
        started: "2026-01-01T00:00:00Z".into(),
        seconds: 6.0,
        outcome: match value.and_then(|value| Metric::new("iops", Unit::Iops, value)) {
            Some(metric) => Outcome::Measured { metrics: vec![metric], notes: vec![] },
            None => Outcome::Failed { why: "agent timed out".into() },
        },
        together: None,
    };
    let (bare, planned) = (&ArmName::bare_slice(), &ArmName::planned());
    let mut runs = Vec::new();
    for (round, (left, right)) in [(1000.0, 500.0), (1100.0, 540.0), (900.0, 460.0)].into_iter().enumerate() {
        runs.push(run(round as u32, 0, Purpose::Pair, bare, job(4096), Some(left)));
        runs.push(run(round as u32, 1, Purpose::Pair, planned, job(4096), Some(right)));
    }
    for (round, values) in [(3, [1000.0, 1010.0]), (4, [1000.0, 985.0])] {
        for (position, value) in values.into_iter().enumerate() {
            runs.push(run(round, position as u32, Purpose::SameArm, bare, job(4096), Some(value)));
        }
    }
    runs.push(run(5, 0, Purpose::SingleShot, bare, job(512), Some(2000.0)));
    runs.push(run(5, 1, Purpose::SingleShot, planned, job(512), Some(800.0)));
    runs.push(run(6, 0, Purpose::SingleShot, bare, job(8192), Some(700.0)));
    runs.push(run(6, 1, Purpose::SingleShot, planned, job(8192), None));
    let arm = |name: &ArmName| Arm {
        name: name.clone(),
        description: "test".into(),
        region: "/dev/x1".into(),
        xml: None,
        command_line: None,
        placement: vec![],
    };
    let slice = Slice {
        cpus: CpuSet::one(2),
        nodes: NodeSet::one(1),
        page_size: Some(PageSize::HUGE_2M),
        device: "/dev/nvme0n2".into(),
        region: Bytes::from_mib(512),
        cpus_on_top: CpuSet::one(3),
    };
    Results {
        schema: SCHEMA.into(),
        experiment: "slice".into(),
        created: "2026-01-01T00:00:00Z".into(),
        version: "0".into(),
        environment: Environment::Lab { machine: "quad".into() },
        quick: true,
        seed: 1,
        tenants: vec![Tenant { guest: "web1".into(), slice, placement: vec![], load: None }],
        least_overlap: None,
        arms: vec![arm(bare), arm(planned)],
        runs,
        caveats: vec![],
        provenance: BTreeMap::new(),
        tune: None,
        tiles: None,
    }
}
