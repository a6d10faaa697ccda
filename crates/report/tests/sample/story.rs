//! An invented job: slices, reasons, checks.

use nearmetal_report::view::{
    CheckOutcome, CheckRow, DiffKind, DiffLine, Fact, LongText, NodePages, PlanView, PoolRow, ReasonRow, RollbackView,
    SliceDevice, SliceRole, SliceThread, SliceView, StageSeconds,
};
use nearmetal_units::PageSize;

fn thread(role: SliceRole, number: Option<u32>, cpus: &str, floating: bool) -> SliceThread {
    SliceThread { role, number, cpus: cpus.parse().unwrap(), floating }
}

fn device() -> SliceDevice {
    SliceDevice { name: "nvme0n1".to_owned(), pci: None, node: Some(2), purpose: "disk vda".to_owned() }
}

pub fn slice_before() -> SliceView {
    SliceView {
        threads: vec![thread(SliceRole::Vcpu, Some(0), "", true), thread(SliceRole::Emulator, None, "", true)],
        pages: Some(
            [(0, 91_000), (1, 60_144), (3, 111_000)]
                .map(|(node, pages)| NodePages { node, size: PageSize::SMALL, pages })
                .to_vec(),
        ),
        devices: vec![device()],
        ..SliceView::default()
    }
}

pub fn slice_after() -> SliceView {
    SliceView {
        threads: vec![
            thread(SliceRole::Vcpu, Some(0), "4", false),
            thread(SliceRole::Emulator, None, "0", false),
            thread(SliceRole::Iothread, Some(1), "5", false),
        ],
        nodes: "2".parse().unwrap(),
        strict: true,
        page_size: Some(PageSize::HUGE_2M),
        pages: Some(vec![NodePages { node: 2, size: PageSize::HUGE_2M, pages: 512 }]),
        devices: vec![device()],
    }
}

/// Eight vCPUs on sibling pairs of one node.
pub fn wide_threads() -> Vec<SliceThread> {
    let mut threads: Vec<_> = (0..8)
        .map(|number| {
            let pu = 72 + number / 2 + if number % 2 == 1 { 128 } else { 0 };
            thread(SliceRole::Vcpu, Some(number), &pu.to_string(), false)
        })
        .collect();
    threads.push(thread(SliceRole::Emulator, None, "76", false));
    threads.push(thread(SliceRole::Iothread, Some(1), "204", false));
    threads.push(thread(SliceRole::Vhost, None, "77", false));
    threads
}

pub fn plan() -> PlanView {
    let reason = |subject: &str, choice: &str, because: &str, source: Option<&str>| ReasonRow {
        subject: subject.to_owned(),
        choice: choice.to_owned(),
        because: because.to_owned(),
        source: source.map(str::to_owned),
    };
    PlanView {
        reasons: vec![
            reason(
                "node",
                "node 2",
                "The drive nvme0n1 hangs on node 2 (PCI 0000:21:00.0), and the node has 1 GiB to give.",
                Some("Linux, Documentation/admin-guide/mm/numaperf.rst"),
            ),
            reason(
                "vcpu pins",
                "vCPU 0 on PU 4",
                "Node 2 has PUs 4 and 5, no siblings; one is the vCPU's alone.",
                None,
            ),
            reason(
                "emulator",
                "PU 0",
                "The main loop would take turns with the vCPU on its PU; PU 0 is the first outside the slice.",
                Some("libvirt, formatdomain: cputune/emulatorpin"),
            ),
            reason(
                "iothread",
                "iothread 1 on PU 5",
                "One virtio disk; the other PU of the drive's node is free.",
                None,
            ),
            reason(
                "memory",
                "strict on node 2",
                "An allocation that does not fit must fail rather than go elsewhere.",
                None,
            ),
            reason("hugepages", "512 pages of 2 MiB", "1 GiB of guest memory; the node has 1.1 GiB free.", None),
            reason(
                "disk vda",
                "cache=none io=io_uring iothread=1",
                "A whole block device gains nothing from the host's page cache; the kernel lets QEMU use io_uring.",
                Some("QEMU, docs/devel/multiple-iothreads.rst"),
            ),
        ],
        pools: vec![PoolRow { node: 2, size: PageSize::HUGE_2M, before: 0, after: 512 }],
    }
}

pub fn diff() -> Vec<DiffLine> {
    let text = "
 <domain type='kvm'>
   <name>web1</name>
   <memory unit='KiB'>1048576</memory>
+  <memoryBacking>
+    <hugepages><page size='2048' unit='KiB' nodeset='0'/></hugepages>
+  </memoryBacking>
   <vcpu placement='static'>1</vcpu>
+  <iothreads>1</iothreads>
+  <cputune>
+    <vcpupin vcpu='0' cpuset='4'/>
+    <emulatorpin cpuset='0'/>
+    <iothreadpin iothread='1' cpuset='5'/>
+  </cputune>
+  <numatune><memory mode='strict' nodeset='2'/></numatune>
@18 unchanged lines
     <disk type='block' device='disk'>
-      <driver name='qemu' type='raw'/>
+      <driver name='qemu' type='raw' cache='none' io='io_uring' iothread='1' queues='1'/>
       <source dev='/dev/nvme0n1'/>
       <target dev='vda' bus='virtio'/>";
    let line = |line: &str| {
        let (sign, text) = line.split_at(1);
        let kind = match sign {
            "+" => DiffKind::Added,
            "-" => DiffKind::Removed,
            "@" => DiffKind::Gap,
            _ => DiffKind::Context,
        };
        DiffLine { kind, text: text.to_owned() }
    };
    text.lines().filter(|text| !text.is_empty()).map(line).collect()
}

fn ok(subject: &str, value: &str, detail: &str) -> CheckRow {
    CheckRow {
        subject: subject.to_owned(),
        planned: value.to_owned(),
        found: Some(value.to_owned()),
        outcome: CheckOutcome::Ok,
        detail: Some(detail.to_owned()),
    }
}

pub fn verification() -> Vec<CheckRow> {
    vec![
        ok("vCPU 0 (thread 1412)", "PU 4", "/proc/1409/task/1412/status, Cpus_allowed_list"),
        ok("emulator thread (1409)", "PU 0", "/proc/1409/status, Cpus_allowed_list"),
        ok("iothread 1 (thread 1414)", "PU 5", "/proc/1409/task/1414/status, Cpus_allowed_list"),
        ok("guest memory", "512 pages of 2 MiB on node 2", "/proc/1409/numa_maps, 1 GiB mapping, N2=512"),
        ok("memory policy", "bind:2", "/proc/1409/numa_maps"),
        ok("hugepage pool, node 2, 2 MiB", "512 persistent pages", "nr_hugepages 512 minus surplus_hugepages 0"),
        ok("disk vda, cache mode", "O_DIRECT", "/proc/1409/fdinfo/21, flags"),
        ok("disk vda, engine", "io_uring", "/proc/1409/fdinfo/19: CqTail advanced by 4,113 under load"),
    ]
}

pub fn guest_view() -> Vec<CheckRow> {
    vec![
        ok("PUs", "1", "numactl -H"),
        ok("memory nodes", "1", "numactl -H"),
        ok("queues of vda", "1", "/sys/block/vda/mq"),
    ]
}

pub fn rolled_back() -> RollbackView {
    let rows = vec![
        ok("inactive XML", "as before, after libvirt's own canonicalisation", "virsh dumpxml --inactive"),
        ok("running state", "running", "virsh domstate"),
        ok("hugepage pool, node 2, 2 MiB", "0 persistent pages", "nr_hugepages 0 minus surplus_hugepages 0"),
    ];
    RollbackView { ok: true, rows }
}

pub fn provenance() -> Vec<Fact> {
    let fact = |(key, value): (&str, Option<&str>)| Fact { key: key.to_owned(), value: value.map(str::to_owned) };
    [
        ("host kernel", Some("6.12.48+deb13-amd64")),
        ("guest kernel", Some("6.12.48+deb13-cloud-amd64")),
        ("QEMU", Some("10.0.3 (Debian 1:10.0.3+ds-0+deb13u1)")),
        ("libvirt", Some("11.3.0")),
        ("fio", Some("3.39")),
        ("boot id", Some("0a4b1a2c-6a3b-49b2-9d3f-6f3d52cb9a71")),
        ("order of pairs", Some("coin, seed 17")),
        ("microcode", None),
    ]
    .map(fact)
    .to_vec()
}

pub fn texts() -> Vec<LongText> {
    let text = |title: &str, text: &str| LongText { title: title.to_owned(), text: text.to_owned() };
    vec![
        text("Domain XML, as planned", "<domain type='kvm'>\n  <name>web1</name>\n  …\n</domain>"),
        text("QEMU command line", "/usr/bin/qemu-system-x86_64 -name guest=web1,debug-threads=on -S …"),
        text(
            "fio job",
            "[global]\nioengine=libaio\ndirect=1\niodepth=32\nrw=randrw\nrwmixread=50\nbs=4k\ntime_based=1\nruntime=5",
        ),
    ]
}

pub fn stages() -> Vec<StageSeconds> {
    [
        ("boot the lab", 41.0),
        ("inspect", 1.2),
        ("plan", 0.1),
        ("apply, guest restarted", 22.4),
        ("read back", 3.3),
        ("measure", 312.0),
        ("roll back", 19.8),
    ]
    .map(|(name, seconds)| StageSeconds { name: name.to_owned(), seconds })
    .to_vec()
}

pub fn caveats() -> Vec<String> {
    [
        "The lab's clock is emulated: its figures compare arms with one another and say nothing about hardware.",
        "Guests stayed up between pairs, so the placement of one boot is shared by all of them.",
        "Two A/A pairs give a wide noise floor; `nearmetal bench` takes more.",
    ]
    .map(str::to_owned)
    .to_vec()
}
