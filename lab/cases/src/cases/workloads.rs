//! Workloads beyond the random job: each on bare metal and in clones, with every figure it is there for.

use std::time::Duration;

use anyhow::ensure;
use nearmetal_lab::image::With;
use nearmetal_lab::machine::Count;
use nearmetal_load::{FileStep, Workload};
use nearmetal_results::{BARE_SLICE, Estimate, Outcome, PLANNED, Purpose, Results, Run, compare};

use super::{Case, Verdict, alone, long_in, shared_long};
use crate::context::{Bench, Boot};
use crate::labs::Labs;

/// A JVM warms up for a minute in each sample, and a database fills its tables.
const LIMIT: Duration = Duration::from_secs(5400);
const SCRATCH: &str = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_nvme0_2";

pub(super) fn cases() -> Vec<Case> {
    vec![
        shared_long("workload/iozone-set-on-ext4-and-xfs", file_systems),
        shared_long("workload/each-decision-of-a-plan-has-an-arm", decisions),
        shared_long("workload/in-small-and-huge-pages-floating-and-pinned", pages),
        long_in(Labs::Loads, "workload/jvms-in-clones-and-on-the-slice", jvms),
        alone("workload/servers-in-clones-and-on-the-slice", servers),
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
pub(super) fn has(results: &Results, arm: &str, metric: &str, of: impl Fn(&Workload) -> bool) -> anyhow::Result<()> {
    let own = results.runs.iter().filter(|run| run.arm == arm && of(&run.workload));
    let own: Vec<_> = own.filter(|run| !matches!(run.purpose, Purpose::ExitReasons | Purpose::Accesses)).collect();
    ensure!(!own.is_empty(), "{arm} did not run it");
    for run in own {
        match &run.outcome {
            Outcome::Failed { why } => anyhow::bail!("{arm}, {}: {why}", run.workload.label()),
            Outcome::Measured { notes, .. } => {
                ensure!(run.value(metric).is_some(), "{arm}, {}: no {metric}; {notes:?}", run.workload.label());
            }
        }
    }
    Ok(())
}

/// One sample of an arm at least has a metric.
pub(super) fn has_once(
    results: &Results,
    arm: &str,
    metric: &str,
    of: impl Fn(&Workload) -> bool,
) -> anyhow::Result<()> {
    let own: Vec<_> = results.runs.iter().filter(|run| run.arm == arm && of(&run.workload)).collect();
    ensure!(own.iter().any(|run| run.value(metric).is_some()), "{arm}: no sample has {metric}: {own:?}");
    Ok(())
}

/// What the planned guest does to each other arm in a metric of its pairs.
fn of_planned(results: &Results, metric: &str) -> anyhow::Result<String> {
    let of = compare(results)?.into_iter().filter(|one| one.metric == metric && one.subject.id == PLANNED);
    let words = of.map(|one| match one.estimate {
        Estimate::Paired { ratio, .. } => format!("{ratio} {}", one.reference.title),
        Estimate::SingleShot { ratio } => format!("{ratio:.2}× {}", one.reference.title),
    });
    Ok(words.collect::<Vec<_>>().join(", "))
}

fn file_systems(bench: &Bench) -> anyhow::Result<Verdict> {
    let results =
        run(bench, "slice", "--workload iozone --arm planned --no-reasons --pairs 1 --span 32MiB --same-arm-pairs 0")?;
    for arm in [BARE_SLICE, PLANNED] {
        for name in ["ext4", "xfs"] {
            let of =
                |workload: &Workload| matches!(workload, Workload::FileSystem(job) if job.file_system.name() == name);
            for step in FileStep::ALL {
                has(&results, arm, &format!("iops.{}", step.name()), of)?;
            }
        }
    }
    // The scratch space may be a directory: bare metal's file system is in a file there, and its loop device goes with the mount.
    let file = "/root/nearmetal-file-system";
    let told = bench.sh(&format!(
        "truncate -s 320M {file} && for kind in ext4 xfs; do nearmetal-probe file-system --device {file} --kind $kind -- \\
             sh -c 'df --output=fstype . | tail -n 1; losetup --associated {file}' || exit 1; done; udevadm settle; losetup --associated {file}; rm {file}"
    ))?;
    let told: Vec<&str> = told.lines().collect();
    let is_loop = |line: &&str| line.starts_with("/dev/loop") && line.contains(file);
    ensure!(told.len() == 4 && told[0] == "ext4" && told[2] == "xfs", "{told:?}");
    ensure!(is_loop(&told[1]) && is_loop(&told[3]), "{told:?}");
    Ok(Verdict::Holds(format!("lab: {} runs of seven steps", results.runs.len())))
}

/// What the machine gives to those who ask for large pages.
const LARGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// JVMs of the loads image on every side, in the same clones. One asks for large pages: its score and what each transaction executes, in
/// large pages where they were asked for, and none of it without the image. The machine gives no large pages until bare metal has had its
/// first JVM: that sample fails with its reason, has no figure of small ones, and is measured once more. The other is a stand-in for a
/// licensed kit: its score, and that no sample passes for SPEC's. A directory without a kit is refused before anything is begun, and the
/// image of a kit is packed once.
fn jvms(bench: &Bench) -> anyhow::Result<Verdict> {
    bench.applied()?;
    let (image, kit) = ("/dev/disk/by-id/virtio-loads", "/root/kit");
    bench.sh(&format!(
        "rm -rf {kit}; mount -t erofs -o ro {image} /mnt && cp -R /mnt/usr/lib/nearmetal/kits/2005 {kit}; umount /mnt; ls {kit}/jbb.jar"
    ))?;
    let refused = "nearmetal bench slice web1 --workload specjbb --kit /etc --scratch /dev/null 2>&1; [ $? = 2 ]";
    ensure!(bench.sh(refused)?.contains("jbb.jar"), "a directory without a kit was not refused in words");
    // Those of clones are other machines' processes: what is seen here is bare metal's. The next JVM comes at once, so it is the first one's
    // own processes whose end is waited for.
    bench.sh(&format!(
        "sed 's/.*\\[//; s/\\].*//' {LARGE_PAGES} > /run/large-pages; echo never > {LARGE_PAGES}
         setsid sh -c 'until first=$(pgrep -f \"[w]arehouses.Main\"); do sleep 0.5; done
             for one in $first; do while kill -0 $one; do sleep 0.2; done; done
             cat /run/large-pages > {LARGE_PAGES}' >/dev/null 2>&1 </dev/null & echo $! > /run/giver.pid"
    ))?;
    let arguments = format!(
        "--workload jvm-large-pages --workload specjbb --kit {kit} --arm planned --no-reasons --pairs 1 --seconds 4 --start 50 --same-arm-pairs 0 --no-accesses"
    );
    let measured = run(bench, "slice", &arguments);
    bench.sh(&format!("kill -- -$(cat /run/giver.pid) 2>/dev/null; cat /run/large-pages > {LARGE_PAGES}"))?;
    let results = measured?;
    let starved = |run: &&Run| run.failure().is_some_and(|why| why.contains("it asked for large pages"));
    let starved: Vec<&Run> = results.runs.iter().filter(starved).collect();
    ensure!(
        matches!(starved[..], [run] if run.arm == BARE_SLICE),
        "{} samples got no large pages: {:?}",
        starved.len(),
        results.runs.iter().filter_map(Run::failure).collect::<Vec<_>>()
    );
    let why = starved[0].failure().unwrap_or_default();
    for arm in [BARE_SLICE, PLANNED] {
        for metric in ["score", "work.instructions"] {
            let of_pairs = |run: &&Run| run.arm == arm && run.purpose == Purpose::Pair;
            let pairs = results.runs.iter().filter(|run| of_pairs(run) && matches!(run.workload, Workload::Jvm(_)));
            let with = pairs.filter(|run| run.value(metric).is_some()).count();
            ensure!(with == 1, "{arm}: {with} runs of its pair have {metric}");
        }
        let of_kit = |workload: &Workload| matches!(workload, Workload::SpecJbb(_));
        has(&results, arm, "score", of_kit)?;
        let own = results.runs.iter().filter(|run| run.arm == arm && of_kit(&run.workload));
        let notes: Vec<&str> = own.flat_map(|run| run.notes().iter().map(String::as_str)).collect();
        ensure!(notes.iter().any(|note| note.contains("not a compliant run")), "{arm}: {notes:?}");
    }
    let hash = results.provenance.get("loads image").map(String::as_str).unwrap_or_default();
    let own = bench.sh(&format!("sha256sum {image}"))?;
    let own = own.split_whitespace().next().unwrap_or_default();
    ensure!(hash == format!("sha256:{own}"), "the image's hash is `{hash}`, and sha256sum says {own}");
    let packed = bench.sh("ls /var/cache/nearmetal/kits/*.ext4")?;
    ensure!(packed.lines().count() == 1, "kits are packed: {packed}");
    let ratio = of_planned(&results, "work.instructions")?;
    Ok(Verdict::Holds(format!("lab: instructions for each transaction of the planned guest: {ratio}; {why}")))
}

/// Servers of the loads image on every side, in the same clones: MariaDB with its times at parts of bare metal's rate, PostgreSQL from an
/// image that has it beside, and nginx; of each its rate, and what each transaction or request executes.
fn servers() -> anyhow::Result<Verdict> {
    let with = Some(With::Postgresql);
    let boot = Boot { count: Some(Count::Work), loads: true, loads_with: with, ..Boot::default() };
    let bench = Bench::up("cases-servers", &boot)?;
    let loads = "--workload oltp --workload pgbench --workload web --arm planned --no-reasons";
    // Half of bare metal's rate may be three transactions a second here, and of a dozen nobody knows whether it kept up.
    let result = run(&bench, "slice", &format!("{loads} --pairs 1 --seconds 8 --same-arm-pairs 0 --no-accesses"));
    bench.lab.down()?;
    let results = result?;
    let closed = |workload: &Workload| matches!(workload, Workload::Oltp(job) if job.offered.is_empty());
    let offered = |workload: &Workload| matches!(workload, Workload::Oltp(job) if !job.offered.is_empty());
    for arm in [BARE_SLICE, PLANNED] {
        for metric in ["transactions", "work.instructions"] {
            has(&results, arm, metric, closed)?;
        }
        has(&results, arm, "transactions.at-50", offered)?;
        for metric in ["transactions", "latency.average", "work.instructions"] {
            has(&results, arm, metric, |workload| matches!(workload, Workload::Pgbench(_)))?;
        }
        for metric in ["requests", "bandwidth", "work.instructions", "service.p50"] {
            has(&results, arm, metric, |workload| matches!(workload, Workload::Web(_)))?;
        }
    }
    // Emulated latencies say nothing; that there is one where bare metal is offered half of its own rate does.
    has(&results, BARE_SLICE, "latency.p50.at-50", offered)?;
    for (command, words) in [
        ("oltp command", "innodb_flush_log_at_trx_commit = 1"),
        ("pgbench command", "synchronous_commit = on"),
        ("web command", "/usr/lib/nearmetal/web/load"),
    ] {
        let told = results.provenance.get(command).map(String::as_str).unwrap_or_default();
        ensure!(told.contains(words), "{command}: {told}");
    }
    let (databases, web) = (of_planned(&results, "transactions")?, of_planned(&results, "requests")?);
    Ok(Verdict::Holds(format!("lab: transactions of the planned guest: {databases}; requests: {web}")))
}

/// Small and huge pages, floating and pinned: what each clone's memory was in, and that the machine's own setting comes back.
fn pages(bench: &Bench) -> anyhow::Result<Verdict> {
    let setting = format!("cat {LARGE_PAGES}");
    let before = bench.sh(&setting)?;
    let results =
        run(bench, "pages", "--workload zstd --pairs 1 --seconds 1 --same-arm-pairs 0 --no-accesses --no-reasons")?;
    for arm in [BARE_SLICE, "small-pages", "huge-pages", "pinned", PLANNED] {
        has(&results, arm, "bandwidth", |_| true)?;
    }
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
    ensure!(bench.sh(&setting)? == before, "the setting of transparent huge pages was not put back");
    Ok(Verdict::Holds(format!("lab: {} samples; {}", results.runs.len(), memory(PLANNED))))
}

fn decisions(bench: &Bench) -> anyhow::Result<Verdict> {
    let results = run(bench, "decisions", "--pairs 1 --seconds 1 --same-arm-pairs 0 --no-reasons")?;
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
    let worth = of_planned(&results, "iops")?;
    Ok(Verdict::Holds(format!("lab: planned does {worth}")))
}
