//! Invented figures.

use nearmetal_report::view::{
    ArmRole, ArmView, Bounds, ComparisonView, CostFigure, CostLine, ExtraPus, LiftLine, MemoryRow, MemorySide,
    MemoryTable, Metric, NoiseFloorView, SampleSeries, SliceRole,
};
use nearmetal_units::{Bytes, PageSize};

const SIZES: [(u64, &str); 5] = [(512, "512"), (1024, "1k"), (2048, "2k"), (4096, "4k"), (8192, "8k")];

pub fn metrics() -> Vec<Metric> {
    let iops = |(size, name): (u64, &str)| Metric {
        id: format!("fio-randrw-{name}-iops"),
        label: format!("{} random 50/50 read+write", Bytes::new(size)),
        unit: "IOPS".to_owned(),
        higher_is_better: true,
        request_size: Some(Bytes::new(size)),
    };
    let mut metrics: Vec<_> = SIZES.into_iter().map(iops).collect();
    metrics.push(Metric {
        id: "fio-randrw-4k-p99".to_owned(),
        label: "4 KiB random 50/50, 99th percentile of read latency".to_owned(),
        unit: "µs".to_owned(),
        higher_is_better: false,
        request_size: Some(Bytes::new(4096)),
    });
    metrics
}

pub fn arms() -> Vec<ArmView> {
    let arm = |id: &str, name: &str, role, description: &str, configuration: &[&str], extra_pus| ArmView {
        id: id.to_owned(),
        name: name.to_owned(),
        description: description.to_owned(),
        role,
        configuration: configuration.iter().map(|line| (*line).to_owned()).collect(),
        extra_pus,
    };
    let pus = |role, cpus: &str| ExtraPus { role, cpus: cpus.parse().unwrap() };
    vec![
        arm("bare", "bare metal", ArmRole::Bare, "The slice without a guest.", &["PU 4, node 2, /dev/nvme0n1"], vec![]),
        arm(
            "as-found",
            "as found",
            ArmRole::AsFound,
            "What hand-written XML and the Terraform and Vagrant providers leave.",
            &["cache=writeback io=threads (QEMU's defaults)", "no pins, memory from any node"],
            vec![],
        ),
        arm(
            "virt-install",
            "virt-install",
            ArmRole::Other,
            "The same disk as virt-install writes it.",
            &["cache=none io=native", "no pins, memory from any node"],
            vec![],
        ),
        arm(
            "planned",
            "as planned",
            ArmRole::Planned,
            "As nearmetal placed it.",
            &["cache=none io=io_uring iothread=1", "vCPU 0 on PU 4, 2 MiB pages of node 2"],
            vec![pus(SliceRole::Emulator, "0"), pus(SliceRole::Iothread, "5")],
        ),
    ]
}

pub fn comparisons() -> Vec<ComparisonView> {
    let paired = |metric: &str, subject: &str, reference: &str, values: (f64, f64), ends: (f64, f64), verdict: &str| {
        let ratio = values.0 / values.1;
        let spread = [0.97, 1.03, 1.0, 1.05, 0.95, 1.01];
        ComparisonView {
            metric: metric.to_owned(),
            subject: subject.to_owned(),
            reference: reference.to_owned(),
            n: 6,
            subject_value: Some(values.0),
            reference_value: Some(values.1),
            ratio: Some(ratio),
            interval: Some(Bounds { low: ends.0, high: ends.1 }),
            confidence: 0.95,
            method: "Student's t on log-ratios".to_owned(),
            bootstrap: Some(Bounds { low: ends.0 + 0.01, high: ends.1 - 0.01 }),
            pair_ratios: spread.map(|factor| ratio * factor).to_vec(),
            verdict: verdict.to_owned(),
            single_shot: false,
        }
    };
    let single = |metric: &str, subject: &str, value: f64, reference: f64| ComparisonView {
        n: 1,
        interval: None,
        bootstrap: None,
        pair_ratios: vec![value / reference],
        verdict: String::new(),
        single_shot: true,
        ..paired(metric, subject, "bare", (value, reference), (0.0, 0.0), "")
    };
    let (iops, p99) = ("fio-randrw-4k-iops", "fio-randrw-4k-p99");
    let mut rows = vec![
        paired(iops, "as-found", "bare", (2377.0, 6602.0), (0.33, 0.39), "36 % of bare metal; beyond the noise floor"),
        paired(
            iops,
            "virt-install",
            "bare",
            (3550.0, 6598.0),
            (0.51, 0.57),
            "54 % of bare metal; beyond the noise floor",
        ),
        paired(iops, "planned", "bare", (4092.0, 6605.0), (0.58, 0.66), "62 % of bare metal; beyond the noise floor"),
        paired(
            iops,
            "planned",
            "as-found",
            (4092.0, 2377.0),
            (1.58, 1.87),
            "1.72 times as found; the lower end is above 1.2",
        ),
        paired(
            iops,
            "planned",
            "virt-install",
            (4092.0, 3550.0),
            (1.07, 1.24),
            "Faster than virt-install beyond the noise floor",
        ),
        paired(p99, "as-found", "bare", (24100.0, 9350.0), (2.31, 2.87), "Slower; beyond the noise floor"),
        paired(p99, "planned", "bare", (13900.0, 9350.0), (1.38, 1.60), "Slower; beyond the noise floor"),
    ];
    for (name, found, planned, bare) in [
        ("512", 2410.0, 4230.0, 6890.0),
        ("1k", 2395.0, 4190.0, 6850.0),
        ("2k", 2401.0, 4160.0, 6720.0),
        ("8k", 2190.0, 3730.0, 5980.0),
    ] {
        rows.push(single(&format!("fio-randrw-{name}-iops"), "as-found", found, bare));
        rows.push(single(&format!("fio-randrw-{name}-iops"), "planned", planned, bare));
    }
    rows
}

pub fn samples() -> Vec<SampleSeries> {
    let series = |arm: &str, middle: f64| SampleSeries {
        arm: arm.to_owned(),
        metric: "fio-randrw-4k-iops".to_owned(),
        unit: "IOPS".to_owned(),
        values: [0.98, 1.02, 1.0, 1.03, 0.96, 1.01].map(|factor| (middle * factor).round()).to_vec(),
    };
    vec![series("bare", 6602.0), series("as-found", 2377.0), series("virt-install", 3550.0), series("planned", 4092.0)]
}

pub fn noise_floors() -> Vec<NoiseFloorView> {
    let floor = |metric: &str, low, high| NoiseFloorView {
        metric: metric.to_owned(),
        n: 2,
        ratio: Some(1.01),
        bounds: Some(Bounds { low, high }),
    };
    vec![floor("fio-randrw-4k-iops", 0.97, 1.03), floor("fio-randrw-4k-p99", 0.92, 1.08)]
}

pub fn memory() -> MemoryTable {
    let row = |side, page, backing, median: Option<f64>| MemoryRow {
        side,
        pattern: "one load per page over 64 MiB".to_owned(),
        page,
        backing,
        median_ns: median,
        p99_ns: median.map(|median| median * 1.9),
        minimum_ns: median.map(|median| median * 0.9),
        bandwidth_mb_s: median.map(|median| 260_000.0 / median),
    };
    let (small, huge) = (PageSize::SMALL, PageSize::HUGE_2M);
    MemoryTable {
        label: Some("The lab's TLB is emulated: no target. Page size and node distance cannot show here.".to_owned()),
        rows: vec![
            row(MemorySide::Bare, small, None, Some(135.0)),
            row(MemorySide::Bare, huge, None, Some(119.0)),
            row(MemorySide::Guest, small, Some(small), Some(460.0)),
            row(MemorySide::Guest, small, Some(huge), Some(431.0)),
            row(MemorySide::Guest, huge, Some(small), Some(402.0)),
            row(MemorySide::Guest, huge, Some(huge), None),
        ],
    }
}

pub fn lifts() -> Vec<LiftLine> {
    vec![LiftLine {
        seen: "planned msr 0.610 of 1.130".to_owned(),
        what: "it ended interrupts and set timers by registers that trap: APICv keeps most of them in the guest"
            .to_owned(),
        rule: Some("kvm-apicv-avic-active".to_owned()),
    }]
}

pub fn costs() -> Vec<CostLine> {
    let workload = "4 KiB random 50/50 read/write, queue depth 32";
    let line = |arm: &str, group: &str, unit: &str, figures: &[(&str, f64)]| CostLine {
        workload: workload.to_owned(),
        arm: arm.to_owned(),
        group: group.to_owned(),
        figures: figures
            .iter()
            .map(|(name, value)| CostFigure { name: (*name).to_owned(), unit: unit.to_owned(), value: *value })
            .collect(),
    };
    vec![
        line("bare", "CPU time", "µs", &[("pus-of-the-slice", 21.4), ("other-pus", 0.6)]),
        line("planned", "CPU time", "µs", &[("vcpus", 60.2), ("iothreads", 31.7)]),
        line("planned", "exits by reason", "", &[("msr", 0.61), ("interrupt", 0.4), ("hlt", 0.12)]),
    ]
}
