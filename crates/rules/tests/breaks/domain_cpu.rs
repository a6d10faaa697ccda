//! CPUs of domains.

use nearmetal_host::{CpuQuota, Scheduling, SchedulingPolicy, ThreadRole};

use nearmetal_units::CpuSet;

use crate::Break;

pub(crate) const BREAKS: [Break; 33] = [
    Break {
        rule: "cpu-host-passthrough",
        change: |example| {
            example.replace(
                "web",
                r#"  <cpu mode='host-passthrough' migratable='on'/>
"#,
                r#""#,
            )
        },
        expected: &["cpu-host-passthrough web: CPU model"],
    },
    Break {
        rule: "cpu-host-passthrough",
        change: |example| {
            example.replace(
                "web",
                r#"<cpu mode='host-passthrough' migratable='on'/>"#,
                r#"<cpu mode='custom'><model>qemu64</model></cpu>"#,
            )
        },
        expected: &["cpu-host-passthrough web: CPU model"],
    },
    Break {
        rule: "cpu-topology-honest",
        change: |example| example.replace("db", r#"cores='2' threads='2'"#, r#"cores='4' threads='1'"#),
        expected: &["cpu-topology-honest db: CPU topology"],
    },
    Break {
        rule: "cpu-topology-honest",
        change: |example| {
            example.replace("db", "vcpu='1' cpuset='17'", "vcpu='1' cpuset='2'");
            example.replace("db", "vcpu='2' cpuset='2'", "vcpu='2' cpuset='17'");
            let threads = &mut example.process("db").threads;
            threads[1].affinity = Some(CpuSet::one(2));
            threads[2].affinity = Some(CpuSet::one(17));
        },
        expected: &["cpu-topology-honest db: vCPUs 0 and 1", "cpu-topology-honest db: vCPUs 2 and 3"],
    },
    Break {
        rule: "cpu-topology-honest",
        change: |example| example.replace("win", r#"<topology sockets='1' dies='1' cores='4' threads='1'/>"#, r#""#),
        expected: &["cpu-topology-honest win (defined): CPU topology"],
    },
    Break {
        rule: "vcpu-pin-1to1",
        change: |example| {
            example.replace("rt", "vcpu='1' cpuset='5'", "vcpu='1' cpuset='6-7'");
            example.process("rt").threads[1].affinity = Some("6-7".parse().unwrap());
        },
        expected: &[
            "vcpu-pin-1to1 rt: vCPU 1",
            "kvm-hint-dedicated rt: kvm hint-dedicated",
            "rt-throttle-off-for-fifo-vcpus host: kernel.sched_rt_runtime_us",
        ],
    },
    Break {
        rule: "vcpu-pin-1to1",
        change: |example| {
            example.process("rt").threads[1].affinity = Some("6-7".parse().unwrap());
        },
        expected: &[
            "kvm-hint-dedicated rt (running): kvm hint-dedicated",
            "pins-as-defined rt (running): vCPU 1",
            "vcpu-pin-1to1 rt (running): vCPU 1",
            "rt-throttle-off-for-fifo-vcpus host: kernel.sched_rt_runtime_us",
        ],
    },
    Break {
        rule: "vcpu-pin-sibling-pairs",
        change: |example| {
            example.replace("rt", "vcpu='1' cpuset='5'", "vcpu='1' cpuset='21'");
            example.replace("db", "vcpu='3' cpuset='18'", "vcpu='3' cpuset='5'");
            example.process("rt").threads[1].affinity = Some(CpuSet::one(21));
            example.process("db").threads[3].affinity = Some(CpuSet::one(5));
        },
        expected: &[
            "vcpu-pin-sibling-pairs db: vCPU 3",
            "vcpu-pin-sibling-pairs rt: vCPU 1",
            "cpu-topology-honest db: vCPUs 2 and 3",
        ],
    },
    Break {
        rule: "pins-as-defined",
        change: |example| {
            let mut emulator = example.process("db").threads[0].clone();
            (emulator.role, emulator.affinity) = (ThreadRole::Emulator, Some("3".parse().unwrap()));
            example.process("db").threads.push(emulator);
        },
        expected: &["pins-as-defined db (running): emulator thread"],
    },
    Break {
        rule: "threads-scheduled-as-defined",
        change: |example| {
            let idle = Scheduling { policy: SchedulingPolicy::Idle, ..Scheduling::DEFAULT };
            example.process("db").threads[1].scheduling = Some(idle);
        },
        expected: &["threads-scheduled-as-defined db (running): vCPU 1 (thread 1002)"],
    },
    Break {
        rule: "threads-scheduled-as-defined",
        change: |example| {
            let vhost = example.process("web").threads.last_mut().unwrap();
            vhost.scheduling = Some(Scheduling { nice: 10, ..Scheduling::DEFAULT });
        },
        expected: &["threads-scheduled-as-defined web (running): vhost worker `` (thread 3100)"],
    },
    Break {
        rule: "cpu-time-as-defined",
        change: |example| {
            let half = CpuQuota::Limited { quota: 50_000, period: 100_000 };
            example.process("db").time_groups[0].quota = Some(half);
        },
        expected: &["cpu-time-as-defined db (running): quota of control group `vcpu0`"],
    },
    Break {
        rule: "cpu-time-as-defined",
        change: |example| example.process("web").time_groups.last_mut().unwrap().weight = Some(1),
        expected: &["cpu-time-as-defined web (running): weight of control group `machine-qemu-3000.scope`"],
    },
    Break {
        rule: "emulator-pin-separate",
        change: |example| {
            example.replace(
                "db",
                r#"    <emulatorpin cpuset='0,16'/>
"#,
                r#""#,
            )
        },
        expected: &["emulator-pin-separate db: emulator thread"],
    },
    Break {
        rule: "emulator-pin-separate",
        change: |example| example.replace("db", r#"<emulatorpin cpuset='0,16'/>"#, r#"<emulatorpin cpuset='0-1'/>"#),
        expected: &["emulator-pin-separate db: emulator thread"],
    },
    Break {
        rule: "emulator-pin-separate",
        change: |example| example.replace("db", r#"<emulatorpin cpuset='0,16'/>"#, r#"<emulatorpin cpuset='8'/>"#),
        expected: &["emulator-pin-separate db: emulator thread"],
    },
    Break {
        rule: "iothread-pin",
        change: |example| {
            example.replace(
                "db",
                r#"    <iothreadpin iothread='1' cpuset='3'/>
"#,
                r#""#,
            )
        },
        expected: &["iothread-pin db: iothread 1"],
    },
    Break {
        rule: "vcpu-no-cfs-quota",
        change: |example| example.replace("db", r#"<cputune>"#, r#"<cputune><quota>50000</quota>"#),
        // The kernel of the example still gives all the time there is.
        expected: &[
            "vcpu-no-cfs-quota db: <quota>",
            "cpu-time-as-defined db (running): quota of control group `vcpu0`",
            "cpu-time-as-defined db (running): quota of control group `vcpu1`",
            "cpu-time-as-defined db (running): quota of control group `vcpu2`",
            "cpu-time-as-defined db (running): quota of control group `vcpu3`",
        ],
    },
    Break {
        rule: "vcpu-right-size",
        change: |example| example.replace("vdi", r#"<vcpu>2</vcpu>"#, r#"<vcpu>40</vcpu>"#),
        expected: &["vcpu-right-size vdi (defined): vCPUs"],
    },
    Break {
        rule: "kvm-hint-dedicated",
        change: |example| example.replace("web", r#"<acpi/>"#, r#"<acpi/><kvm><hint-dedicated state='on'/></kvm>"#),
        expected: &["kvm-hint-dedicated web: kvm hint-dedicated"],
    },
    Break {
        rule: "kvm-hint-dedicated",
        change: |example| example.replace("rt", r#"<hint-dedicated state='on'/>"#, r#"<hint-dedicated state='off'/>"#),
        expected: &["kvm-hint-dedicated rt: kvm hint-dedicated"],
    },
    Break {
        rule: "hyperv-enlightenments",
        change: |example| {
            example.replace(
                "win",
                r#"      <synic state='on'/>
"#,
                r#""#,
            )
        },
        expected: &["hyperv-enlightenments win (defined): Hyper-V enlightenments"],
    },
    Break {
        rule: "hyperv-enlightenments",
        change: |example| example.replace("win", r#"<timer name='hypervclock' present='yes'/>"#, r#""#),
        expected: &["hyperv-enlightenments win (defined): timer hypervclock"],
    },
    Break {
        rule: "timers-hpet-off",
        change: |example| example.replace("web", r#"<timer name='hpet' present='no'/>"#, r#""#),
        expected: &["timers-hpet-off web: timer hpet"],
    },
    Break {
        rule: "tsc-invariant-when-static",
        change: |example| example.replace("rt", r#"<feature policy='require' name='invtsc'/>"#, r#""#),
        expected: &["tsc-invariant-when-static rt: CPU feature invtsc"],
    },
    Break {
        rule: "vcpusched-fifo-rt",
        change: |example| {
            example.replace("db", r#"<cputune>"#, r#"<cputune><vcpusched vcpus='0' scheduler='rr' priority='1'/>"#)
        },
        expected: &[
            "vcpusched-fifo-rt db: vcpu scheduler",
            // The kernel of the example goes on as before.
            "threads-scheduled-as-defined db (running): vCPU 0 (thread 1001)",
            "rt-throttle-off-for-fifo-vcpus host: kernel.sched_rt_runtime_us",
        ],
    },
    Break {
        rule: "vcpusched-fifo-rt",
        change: |example| example.replace("rt", r#"priority='1'"#, r#"priority='99'"#),
        expected: &[
            "vcpusched-fifo-rt rt: vcpu scheduler",
            "threads-scheduled-as-defined rt (running): vCPU 0 (thread 2001)",
            "threads-scheduled-as-defined rt (running): vCPU 1 (thread 2002)",
        ],
    },
    Break {
        rule: "machine-type-current-q35",
        change: |example| example.replace("win", r#"pc-q35-9.2"#, r#"pc-i440fx-9.2"#),
        expected: &["machine-type-current-q35 win (defined): machine type"],
    },
    Break {
        rule: "kvm-pv-features-kept",
        change: |example| example.replace("gpu", r#"<acpi/>"#, r#"<acpi/><kvm><hidden state='on'/></kvm>"#),
        expected: &["kvm-pv-features-kept gpu (defined): kvm hidden"],
    },
    Break {
        rule: "unused-emulated-devices-removed",
        change: |example| example.replace("db", r#"<devices>"#, r#"<devices><input type='tablet' bus='usb'/>"#),
        expected: &["unused-emulated-devices-removed db: USB tablet"],
    },
    Break {
        rule: "two-domains-on-one-pu",
        change: |example| {
            example.replace("db", "vcpu='3' cpuset='18'", "vcpu='3' cpuset='5'");
            example.replace("db", "vcpu='2' cpuset='2'", "vcpu='2' cpuset='21'");
            let threads = &mut example.process("db").threads;
            threads[2].affinity = Some(CpuSet::one(21));
            threads[3].affinity = Some(CpuSet::one(5));
        },
        expected: &[
            "two-domains-on-one-pu db: vCPU 3",
            "two-domains-on-one-pu rt: vCPU 1",
            "vcpu-pin-sibling-pairs db: vCPU 2",
            "vcpu-pin-sibling-pairs rt: vCPU 1",
            "kvm-hint-dedicated rt: kvm hint-dedicated",
        ],
    },
    Break {
        rule: "pin-on-offline-cpu",
        change: |example| {
            example.host.processors[3].online = false;
        },
        expected: &["pin-on-offline-cpu db: iothread 1", "pin-on-offline-cpu rt: iothread 1"],
    },
    Break {
        rule: "guest-l3-wider-than-host",
        change: |example| {
            example.replace("win", "<vcpu>4</vcpu>", "<vcpu>20</vcpu>");
            example.replace("win", "cores='4' threads='1'/>", "cores='20' threads='1'/><cache mode='passthrough'/>");
        },
        expected: &[
            "guest-l3-wider-than-host win (defined): guest's last-level cache",
            "cpu-cache-passthrough win (defined): guest's last-level cache",
        ],
    },
];
