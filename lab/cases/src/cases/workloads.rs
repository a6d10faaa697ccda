//! Workloads beyond the random job: each on bare metal and in clones, with every figure it is there for.

use std::time::Duration;

use anyhow::ensure;
use nearmetal_lab::machine::Count;
use nearmetal_measure::{
    AS_FOUND, BARE_SLICE, Estimate, FileStep, Outcome, PLANNED, Purpose, Results, VIRT_INSTALL, Workload, compare,
};

use super::{Case, Verdict, alone, shared_long};
use crate::context::{Bench, Boot};

/// A JVM warms up for a minute in each sample, and a database fills its tables.
const LIMIT: Duration = Duration::from_secs(3600);
const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("workload/iozone-set-on-ext4-and-xfs", file_systems),
        shared_long("workload/sequential-with-processor-time", sequential),
        shared_long("workload/zstd-on-all-vcpus", zstd),
        shared_long("workload/each-decision-of-a-plan-has-an-arm", decisions),
        alone("workload/java-in-clones-and-on-the-slice", java),
        alone("workload/database-in-huge-pages-and-pinned", database),
    ]
}

/// Runs a short bench and gives its runs; nothing may be left of it.
fn run(bench: &Bench, command: &str, arguments: &str) -> anyhow::Result<Results> {
    bench.applied()?;
    bench.sh_within(LIMIT, &format!(
        "nearmetal bench {command} web1 --quick --pause --no-memory --no-single-shots --scratch {SCRATCH} -o /root/work.json {arguments}"
    ))?;
    ensure!(bench.sh("virsh list --name")?.trim() == "web1", "clones are left");
    ensure!(
        bench.sh(&format!("wipefs --noheadings {SCRATCH}; grep /mnt /proc/mounts; true"))?.is_empty(),
        "it left traces"
    );
    Ok(serde_json::from_str(&bench.document("/root/work.json", "web1")?)?)
}

/// Whether an arm has a metric of every run that measured a workload; exits by reason and accesses to memory are counted in runs of their own, which
/// have nothing else.
fn has(results: &Results, arm: &str, metric: &str, of: impl Fn(&Workload) -> bool) -> anyhow::Result<()> {
    let own = results.runs.iter().filter(|run| run.arm == arm && of(&run.workload));
    let own: Vec<_> = own.filter(|run| !matches!(run.purpose, Purpose::ExitReasons | Purpose::Accesses)).collect();
    ensure!(!own.is_empty(), "{arm} did not run it");
    for run in own {
        if let Outcome::Failed { why } = &run.outcome {
            anyhow::bail!("{arm}, {}: {why}", run.workload.label());
        }
        ensure!(run.value(metric).is_some(), "{arm}, {}: no {metric}", run.workload.label());
    }
    Ok(())
}

fn file_systems(bench: &Bench) -> anyhow::Result<Verdict> {
    let results = run(bench, "slice", "--workload iozone --pairs 2 --span 32MiB")?;
    for arm in [BARE_SLICE, AS_FOUND, PLANNED, VIRT_INSTALL] {
        for name in ["ext4", "xfs"] {
            let of =
                |workload: &Workload| matches!(workload, Workload::FileSystem(job) if job.file_system.name() == name);
            for step in FileStep::ALL {
                has(&results, arm, &format!("iops.{}", step.name()), of)?;
            }
        }
    }
    Ok(Verdict::Holds(format!("lab: {} runs of seven steps", results.runs.len())))
}

fn sequential(bench: &Bench) -> anyhow::Result<Verdict> {
    let results = run(bench, "slice", "--workload sequential --block-size 64KiB --pairs 2 --seconds 2")?;
    for arm in [BARE_SLICE, PLANNED] {
        for percent in [100, 0] {
            let of = |workload: &Workload| matches!(workload, Workload::Fio(job) if job.read_percent == percent);
            has(&results, arm, "cpu", of)?;
            has(&results, arm, "cpu.host", of)?;
        }
    }
    Ok(Verdict::Holds(format!("lab: {} runs with fio's and the host's processor time", results.runs.len())))
}

fn zstd(bench: &Bench) -> anyhow::Result<Verdict> {
    let results = run(bench, "slice", "--workload zstd --pairs 2 --seconds 4")?;
    for arm in [BARE_SLICE, AS_FOUND, PLANNED, VIRT_INSTALL] {
        for metric in ["bandwidth", "bandwidth.decompression"] {
            has(&results, arm, metric, |_| true)?;
        }
    }
    Ok(Verdict::Holds(format!("lab: {} runs of compression and decompression", results.runs.len())))
}

/// A JVM of the loads image on every side: its score and what each transaction executes, in large pages where they were asked
/// for, and none of it without the image.
fn java() -> anyhow::Result<Verdict> {
    let up = Bench::up("java", &Boot { loads: true, count: Some(Count::Work), ..Boot::default() })?;
    let bench = &up;
    let results = run(bench, "slice", "--workload jvm-large-pages --pairs 2 --seconds 5 --same-arm-pairs 0")?;
    for arm in [BARE_SLICE, AS_FOUND, PLANNED, VIRT_INSTALL] {
        for metric in ["score", "work.instructions"] {
            has(&results, arm, metric, |_| true)?;
        }
    }
    let hash = results.provenance.get("loads image").map(String::as_str).unwrap_or_default();
    let own = bench.sh("sha256sum /dev/disk/by-id/virtio-loads")?;
    let own = own.split_whitespace().next().unwrap_or_default();
    ensure!(hash == format!("sha256:{own}"), "the image's hash is `{hash}`, and sha256sum says {own}");
    let ratio = compare(&results)?.into_iter().find_map(|one| match one.estimate {
        Estimate::Paired { ratio, .. } if one.metric == "work.instructions" && one.subject.id == PLANNED => {
            Some(format!("{ratio} {}", one.reference.title))
        }
        _ => None,
    });

    // A machine that gives no large pages: a failed sample of that arm, with its reason, and never a figure of small ones.
    bench.sh("echo never > /sys/kernel/mm/transparent_hugepage/enabled")?;
    let starved = "nearmetal bench slice web1 --quick --pause --no-memory --workload jvm-large-pages --pairs 2 --seconds 5 \
                   --same-arm-pairs 0 -o /root/starved.json";
    let said = bench.ends_with(1, &format!("{starved} --scratch {SCRATCH}"))?;
    ensure!(said.contains("it asked for large pages"), "{said}");
    let starved: Results = serde_json::from_str(&bench.sh("cat /root/starved.json")?)?;
    let of_bare = starved.runs.iter().filter(|run| run.arm == BARE_SLICE && run.purpose == Purpose::Pair);
    ensure!(of_bare.clone().count() > 0 && of_bare.clone().all(|run| run.failure().is_some()), "{said}");
    up.lab.down()?;
    Ok(Verdict::Holds(format!(
        "lab: instructions for each transaction of the planned guest: {}",
        ratio.unwrap_or_default()
    )))
}

/// A database of the loads image in small and huge pages, floating and pinned: its rate, its times at parts of bare metal's, and
/// what each clone's memory was in.
fn database() -> anyhow::Result<Verdict> {
    let up = Bench::up("database", &Boot { loads: true, count: Some(Count::Work), ..Boot::default() })?;
    let bench = &up;
    let setting = "cat /sys/kernel/mm/transparent_hugepage/enabled";
    let before = bench.sh(setting)?;
    let results = run(bench, "pages", "--workload oltp --pairs 2 --seconds 10 --same-arm-pairs 0")?;
    let closed = |workload: &Workload| matches!(workload, Workload::Oltp(job) if job.offered.is_empty());
    let offered = |workload: &Workload| matches!(workload, Workload::Oltp(job) if !job.offered.is_empty());
    for arm in [BARE_SLICE, "small-pages", "huge-pages", "pinned", PLANNED] {
        has(&results, arm, "transactions", closed)?;
        has(&results, arm, "work.instructions", closed)?;
        has(&results, arm, "transactions.at-50", offered)?;
    }
    // Emulated latencies say nothing; that there is one where bare metal is offered half of its own rate does.
    has(&results, BARE_SLICE, "latency.p50.at-50", offered)?;
    let memory = |id: &str| {
        let lines = results.arm(id).map(|arm| arm.placement.as_slice()).unwrap_or_default();
        lines.iter().find(|line| line.starts_with("memory: ")).cloned().unwrap_or_default()
    };
    for id in ["small-pages", "pinned"] {
        ensure!(memory(id).starts_with("memory: 0 B of "), "{id}: `{}`", memory(id));
    }
    for id in ["huge-pages", PLANNED] {
        ensure!(!memory(id).is_empty() && !memory(id).starts_with("memory: 0 B of "), "{id}: `{}`", memory(id));
    }
    ensure!(bench.sh(setting)? == before, "the setting of transparent huge pages was not put back");
    let provenance = results.provenance.get("oltp command").map(String::as_str).unwrap_or_default();
    ensure!(provenance.contains("innodb_flush_log_at_trx_commit = 1"), "{provenance}");
    let worth = compare(&results)?.into_iter().filter_map(|one| match one.estimate {
        Estimate::Paired { ratio, .. } if one.metric == "transactions" && one.subject.id == PLANNED => {
            Some(format!("{ratio} {}", one.reference.title))
        }
        _ => None,
    });
    let worth = worth.collect::<Vec<_>>().join(", ");
    up.lab.down()?;
    Ok(Verdict::Holds(format!("lab: transactions of the planned guest: {worth}")))
}

fn decisions(bench: &Bench) -> anyhow::Result<Verdict> {
    let results = run(bench, "decisions", "--pairs 2 --seconds 3 --same-arm-pairs 0")?;
    // The guest as found has none of what the plan decides, so each decision has an arm.
    let without =
        ["without-pins", "without-node", "without-huge-pages", "without-iothread", "without-cache-and-engine"];
    for arm in [BARE_SLICE, PLANNED].into_iter().chain(without) {
        has(&results, arm, "iops", |_| true)?;
    }
    let placed = |id: &str| results.arm(id).map(|arm| arm.placement.join("; ")).unwrap_or_default();
    ensure!(placed("without-pins").contains("PUs 0-11"), "{}", placed("without-pins"));
    ensure!(!placed("without-node").contains("PUs 0-11"), "{}", placed("without-node"));
    let huge =
        |id: &str| results.arm(id).and_then(|arm| arm.xml.as_deref()).is_some_and(|xml| xml.contains("<hugepages>"));
    ensure!(huge(PLANNED) && !huge("without-huge-pages"), "huge pages are not what the arms say");
    let worth = compare(&results)?.into_iter().filter_map(|one| match one.estimate {
        Estimate::Paired { ratio, .. } if one.metric == "iops" && one.subject.id == PLANNED => {
            Some(format!("{ratio} {}", one.reference.title))
        }
        _ => None,
    });
    Ok(Verdict::Holds(format!("lab: planned does {}", worth.collect::<Vec<_>>().join(", "))))
}
