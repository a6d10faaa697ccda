//! The readers of what programs print, for `examples/fuzz.rs`. No interface.

use nearmetal_host::fuzzing::Target;
use nearmetal_units::Bytes;

use crate::tile::{Role, Scale};
use crate::{
    CommandJob, FileJob, FileStep, FileSystem, FioJob, JavaPages, JvmJob, Kit, KitEdition, KitHash, MemoryBandwidth,
    MemoryJob, MemoryLatency, NetJob, NetTest, OltpJob, Pattern, PgbenchJob, ProbePages, ServedJob, Shape, SpecJbbJob,
    TileSize, WebJob, Window, WorkJob, Workload, missing_file_system, zstd,
};

/// Every load with something that its program printed.
pub fn targets() -> Vec<Target> {
    let mut all: Vec<Target> = loads().into_iter().map(|(name, workload, said)| target(name, workload, said)).collect();
    all.push(Target {
        name: "file systems that a side has",
        seed: br#"{"result":{"usable":["ext4"],"missing":["xfs: there is no mkfs.xfs"]}}"#.to_vec(),
        run: Box::new(|bytes| {
            if let Ok(text) = std::str::from_utf8(bytes) {
                drop(missing_file_system(text, FileSystem::Xfs));
            }
        }),
    });
    all
}

/// Whatever it printed, figures that are read are sound ones.
fn target(name: &'static str, workload: Workload, said: String) -> Target {
    if let Err(error) = workload.load().read(&said) {
        panic!("the input for {name} is to be understood before it is damaged: {error}");
    }
    let run = move |bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let load = workload.load();
        if let Ok(measured) = load.read(text) {
            for metric in &measured.metrics {
                assert_eq!(metric.sound(), Ok(()));
            }
        }
        if let Ok(window) = workload.window(text, 0.5) {
            assert!(window.began.is_finite() && window.ended.is_finite(), "{window:?}");
        }
        let part = Window { began: 15_000.0, ended: 16_000.0 };
        assert!(load.done(text, part, 0.5).is_none_or(|done| done.is_finite() && done >= 0.0));
    };
    Target { name, seed: said.into_bytes(), run: Box::new(run) }
}

fn loads() -> Vec<(&'static str, Workload, String)> {
    let shape = Shape::of_a_lab();
    let kit = |edition| SpecJbbJob::of(&Shape { kit: Some(Kit { edition, hash: KitHash([7; 8]) }), ..shape });
    let pgbench = PgbenchJob {
        buffers: Bytes::from_mib(128),
        scale: 1,
        clients: 4,
        threads: 2,
        prepare: 60,
        ramp: 2,
        seconds: 4,
    };
    let memory = MemoryJob { size: Bytes::from_mib(64), pages: ProbePages::Transparent, pattern: Pattern::Groups };
    let net = |test| NetJob { test, peer: [192, 0, 2, 1].into(), seconds: 3 };
    let mut all: Vec<(&'static str, Workload, String)> = vec![
        ("fio", FioJob::first_seed(Bytes::from_kib(4), 5, 1).into(), FIO.to_owned()),
        (
            "the file set",
            FileJob::fourth_seed(FileSystem::Xfs, Bytes::from_kib(64), Bytes::from_mib(64)).into(),
            format!("fio: note\n{{\"jobs\":[{}]}}", FileStep::ALL.map(|step| file_step(step.name())).join(",")),
        ),
        ("zstd", zstd::ZstdJob { seconds: 6, threads: 2 }.into(), ZSTD.to_owned()),
        ("work in memory", WorkJob { threads: 2, each: Bytes::from_mib(16), seconds: 5 }.into(), WORK.to_owned()),
        ("memory latency", MemoryLatency(memory.clone()).into(), LATENCY.to_owned()),
        ("memory bandwidth", MemoryBandwidth(memory).into(), BANDWIDTH.to_owned()),
        (
            "warehouses in Java",
            JvmJob::of(&shape, JavaPages::OfTheMachine).into(),
            include_str!("jvm/said.txt").to_owned(),
        ),
        ("a kit of 2005", kit(KitEdition::Of2005).into(), KIT.to_owned()),
        ("a kit of 2015", kit(KitEdition::Of2015).into(), kit_of_2015()),
        ("pgbench", pgbench.into(), include_str!("pgbench/said.txt").to_owned()),
        ("a web server under wrk", WebJob::small().into(), include_str!("web/said.txt").to_owned()),
        ("netperf's round trips", net(NetTest::TcpRr).into(), NETPERF_RR.to_owned()),
        ("netperf's stream", net(NetTest::TcpStream).into(), NETPERF_STREAM.to_owned()),
        ("sockperf", net(NetTest::SockperfUdp).into(), include_str!("net/sockperf/udp.txt").to_owned()),
        (
            "a timed command",
            CommandJob { command: "make".to_owned(), limit: 600 }.into(),
            "nearmetal-timed 100.25 112.25\n".to_owned(),
        ),
    ];
    let offered = [(50, 40), (90, 80)].map(|(percent, rate)| crate::oltp::Offered { percent, rate });
    let oltp = OltpJob { seconds: 3, ramp: 1, offered: offered.to_vec(), ..OltpJob::small() };
    all.push(("sysbench", oltp.into(), include_str!("oltp/said.txt").to_owned()));
    let size = TileSize { tile: 2, scale: Scale::ONE, seconds: 10, ramp: 2, emulated: false };
    for (name, role, host, said) in [
        ("a tile's file server", Role::Infra, 2, include_str!("served/infra.json")),
        ("a tile's web server", Role::Web, 3, include_str!("served/web.json")),
        ("a tile's mail server", Role::Mail, 4, include_str!("served/mail.json")),
        ("a tile's application", Role::App, 5, include_str!("served/app.json")),
        ("a tile's database", Role::Db, 6, include_str!("served/db.json")),
        ("a tile's idle guest", Role::Idle, 7, include_str!("served/idle.json")),
    ] {
        all.push((name, ServedJob::of(role, [10, 99, 0, host].into(), &size).into(), said.to_owned()));
    }
    all
}

const KIT: &str = include_str!("specjbb/said.txt");

fn kit_of_2015() -> String {
    let own = KIT.split_once("said\n").map_or(KIT, |(own, _)| own);
    format!(
        "{own}said\nRUN RESULT: hbIR (max attempted) = 556, hbIR (settled) = 522, max-jOPS = 484, critical-jOPS = 63\n"
    )
}

fn file_step(name: &str) -> String {
    format!(
        r#"{{"jobname":"{name}","error":0,"read":{{"iops":9.5,"total_ios":90,"bw_bytes":1000}},"write":{{"iops":0,"total_ios":0,"bw_bytes":0}}}}"#
    )
}

const FIO: &str = r#"note: both iodepth >= 1 and synchronous I/O engine are selected
{"fio version":"fio-3.39","jobs":[{"error":0,"usr_cpu":10.0,"sys_cpu":15.0,"job_start":1795324708891,"job_runtime":5000,
"read":{"iops":1000.5,"bw_bytes":4096000,"total_ios":5000,"lat_ns":{"mean":2000.5,"percentile":{"50.000000":1500,"99.000000":9000}}},
"write":{"iops":1000.5,"bw_bytes":4096000,"total_ios":5000,"lat_ns":{"mean":2100.5,"percentile":{"50.000000":1600,"99.000000":9100}}}}]}"#;

const ZSTD: &str = "bench 1.5.4 : input 10000000 bytes, 3 seconds, 0 KB blocks
-1      3154228 (3.170) 433.60 MB/s 2286.8 MB/s  Synthetic 50%
";

const WORK: &str = r#"{"schema":"nearmetal-probe","schema_version":1,"command":"memory work",
"result":{"threads":2,"began_ms":1000.5,"ended_ms":6000.5,"loads":500,"loads_per_second":100.0}}"#;

const LATENCY: &str = r#"{"schema":"nearmetal-probe","schema_version":1,"command":"memory latency","result":
{"backing":{"asked":"thp","got":"thp"},"latency":{"unit":"ns","count":3,"median":110.5,"p99":140.0,"minimum":100.0,"values":[1]}}}"#;

const BANDWIDTH: &str = r#"{"schema":"nearmetal-probe","schema_version":1,"command":"memory bandwidth","result":
{"backing":[{"got":"4k"}],"kernels":[{"kernel":"read","bandwidth":{"median":1e10}},{"kernel":"copy","bandwidth":{"median":5e9}}]}}"#;

const NETPERF_RR: &str = "THROUGHPUT=2500.00\nTHROUGHPUT_UNITS=Trans/s\nELAPSED_TIME=3.00\nP50_LATENCY=380\nP90_LATENCY=500\n\
    P99_LATENCY=900\nBEGAN=1000000000000\nENDED=1003500000000\n";

const NETPERF_STREAM: &str = "THROUGHPUT=941.25\nTHROUGHPUT_UNITS=10^6bits/s\nELAPSED_TIME=3.00\nBEGAN=1000000000000\n\
    ENDED=1003500000000\n";
