//! Memory, disks and interfaces of domains.

use nearmetal_host::ThreadRole;
use nearmetal_units::CpuSet;

use crate::Break;

pub(crate) const BREAKS: [Break; 37] = [
    Break {
        rule: "mem-hugepages",
        change: |example| example.replace("rt", r#"<hugepages><page size='1' unit='GiB'/></hugepages>"#, r#""#),
        expected: &[
            "mem-hugepages rt: memory",
            "thp-defrag-policy host: transparent huge pages' defrag",
            "vfio-guest-hugepage-backed rt: memory",
        ],
    },
    Break {
        rule: "mem-nosharepages",
        change: |example| example.replace("db", r#"<nosharepages/>"#, r#""#),
        expected: &["mem-nosharepages db: memory"],
    },
    Break {
        rule: "mem-locked-with-hard-limit",
        change: |example| {
            example.replace(
                "rt",
                r#"<vcpu>2</vcpu>"#,
                r#"<vcpu>2</vcpu><memtune><hard_limit unit='MiB'>8300</hard_limit></memtune>"#,
            )
        },
        expected: &["mem-locked-with-hard-limit rt: <hard_limit>", "memlock-limit-for-vfio rt: <hard_limit>"],
    },
    Break {
        rule: "mem-allocation-immediate",
        change: |example| example.replace("rt", r#"<locked/>"#, r#"<allocation mode='ondemand'/>"#),
        expected: &["mem-allocation-immediate rt: memory"],
    },
    Break {
        rule: "mem-balloon-by-class",
        change: |example| example.replace("rt", r#"<memballoon model='none'/>"#, r#"<memballoon model='virtio'/>"#),
        expected: &["mem-balloon-by-class rt: balloon"],
    },
    Break {
        rule: "mem-balloon-by-class",
        change: |example| example.replace("vdi", r#" freePageReporting='on'"#, r#""#),
        expected: &["mem-balloon-by-class vdi (defined): balloon"],
    },
    Break {
        rule: "mem-balloon-by-class",
        change: |example| example.replace("db", r#"<vcpu>"#, r#"<currentMemory unit='GiB'>8</currentMemory><vcpu>"#),
        expected: &["mem-balloon-by-class db: balloon"],
    },
    Break {
        rule: "balloon-holds-memory",
        change: |example| {
            example.replace_in_force("web", "<vcpu>", "<currentMemory unit='GiB'>2</currentMemory><vcpu>")
        },
        expected: &["balloon-holds-memory web (running): balloon"],
    },
    Break {
        rule: "mem-shared-for-vhost-user",
        change: |example| example.replace("nfv", r#"<access mode='shared'/>"#, r#""#),
        expected: &[
            "mem-shared-for-vhost-user nfv (defined): disk vdb",
            "mem-shared-for-vhost-user nfv (defined): interface 52:54:00:00:00:08",
        ],
    },
    Break {
        rule: "disk-bus-virtio",
        change: |example| example.replace("web", r#"dev='vda' bus='virtio'"#, r#"dev='sda' bus='sata'"#),
        expected: &["disk-bus-virtio web: disk sda"],
    },
    Break {
        rule: "disk-cache-none",
        change: |example| example.replace("web", r#"type='qcow2'"#, r#"type='qcow2' cache='unsafe'"#),
        expected: &["disk-cache-none web: disk vda cache"],
    },
    Break {
        rule: "disk-io-native-or-uring",
        change: |example| example.replace("db", r#" io='native'"#, r#""#),
        expected: &["disk-io-native-or-uring db: disk vda io"],
    },
    Break {
        rule: "disk-io-native-or-uring",
        change: |example| example.replace("win", r#" cache='none'"#, r#""#),
        expected: &["disk-io-native-or-uring win (defined): disk vda io"],
    },
    Break {
        rule: "disk-io-native-or-uring",
        change: |example| {
            example.host.system.io_uring_disabled = Some(2);
        },
        expected: &["disk-io-native-or-uring gpu (defined): disk sda io"],
    },
    Break {
        rule: "disk-write-through-flushed",
        change: |example| {
            example.host.system.qemu_version = Some("10.0.13".to_owned());
            example.replace("db", r#" cache='none' io='native'"#, r#" cache='writethrough'"#);
        },
        expected: &["disk-cache-none db: disk vda cache", "disk-write-through-flushed db: disk vda cache"],
    },
    Break {
        rule: "disk-write-through-flushed",
        change: |example| {
            example.host.system.qemu_version = Some("10.1.0".to_owned());
            example.replace("gpu", "pc-q35-9.2", "pc-q35-10.1");
            example.replace("gpu", " io='io_uring'", "");
        },
        expected: &["disk-write-through-flushed gpu (defined): disk sda cache"],
    },
    Break {
        rule: "disk-iothread",
        change: |example| example.replace("db", r#" iothread='1'/><source dev"#, r#"/><source dev"#),
        expected: &["disk-iothread db: disk vda"],
    },
    Break {
        rule: "disk-iothread-vq-mapping",
        change: |example| {
            example.replace("db", "<vcpu>4<", "<vcpu>6<");
            example.replace("db", "cores='2'", "cores='3'");
            example.replace("db", "queues='4'", "queues='6'");
            example.replace(
                "db",
                "<emulatorpin",
                "<vcpupin vcpu='4' cpuset='6'/><vcpupin vcpu='5' cpuset='22'/><emulatorpin",
            );
            let mut more = example.process("db").threads[..2].to_vec();
            more[0].role = ThreadRole::Vcpu(4);
            more[1].role = ThreadRole::Vcpu(5);
            more[0].affinity = Some(CpuSet::one(6));
            more[1].affinity = Some(CpuSet::one(22));
            example.process("db").threads.extend(more);
        },
        expected: &["disk-iothread-vq-mapping db: disk vda"],
    },
    Break {
        rule: "disk-iothread-vq-mapping",
        change: |example| {
            let (one, two) = ("queues='8'><iothreads><iothread id='1'/>", "queues='1'><iothreads><iothread id='1'/>");
            example.replace("hpc", one, &format!("{two}<iothread id='2'/>"));
        },
        expected: &["disk-iothread-vq-mapping hpc (defined): disk vda", "disk-queues-auto hpc (defined): disk vda"],
    },
    Break {
        rule: "disk-queues-auto",
        change: |example| example.replace("web", r#"type='qcow2'"#, r#"type='qcow2' queues='1'"#),
        expected: &["disk-queues-auto web: disk vda"],
    },
    Break {
        rule: "disk-discard-unmap",
        change: |example| example.replace("web", r#" discard='unmap'"#, r#""#),
        expected: &["disk-discard-unmap web: disk vda discard"],
    },
    Break {
        rule: "disk-ioeventfd-eventidx-default",
        change: |example| example.replace("web", r#"type='qcow2'"#, r#"type='qcow2' ioeventfd='off'"#),
        expected: &["disk-ioeventfd-eventidx-default web: disk vda ioeventfd"],
    },
    Break {
        rule: "disk-iotune-known",
        change: |example| {
            example.replace(
                "db",
                r#"<source dev='/dev/nvme0n1'/>"#,
                r#"<source dev='/dev/nvme0n1'/><iotune><total_iops_sec>500</total_iops_sec></iotune>"#,
            )
        },
        expected: &["disk-iotune-known db: disk vda total_iops_sec"],
    },
    Break {
        rule: "disk-iothread-polling",
        change: |example| example.replace("vdi", r#"<poll max='0'/>"#, r#"<poll max='32768'/>"#),
        expected: &["disk-iothread-polling vdi (defined): iothread 1 polling"],
    },
    Break {
        rule: "net-model-virtio",
        change: |example| example.replace("web", r#"<model type='virtio'/>"#, r#"<model type='e1000e'/>"#),
        expected: &["net-model-virtio web: interface 52:54:00:00:00:01"],
    },
    Break {
        rule: "net-model-virtio",
        change: |example| example.replace("web", r#"<model type='virtio'/>"#, r#""#),
        expected: &["net-model-virtio web: interface 52:54:00:00:00:01"],
    },
    Break {
        rule: "net-driver-vhost",
        change: |example| {
            example.replace("web", r#"<model type='virtio'/>"#, r#"<model type='virtio'/><driver name='qemu'/>"#)
        },
        expected: &["net-driver-vhost web: interface 52:54:00:00:00:01"],
    },
    Break {
        rule: "net-queues-multi",
        change: |example| example.replace("db", r#"queues='4'"#, r#"queues='1'"#),
        expected: &["net-queues-multi db: interface 52:54:00:00:00:03"],
    },
    Break {
        rule: "net-queues-multi",
        change: |example| {
            example.replace("web", r#"<model type='virtio'/>"#, r#"<model type='virtio'/><driver queues='16'/>"#)
        },
        expected: &[
            "guest-mq-enabled web: queues of interface 52:54:00:00:00:01",
            "net-queues-multi web: interface 52:54:00:00:00:01",
        ],
    },
    Break {
        rule: "net-ring-size-nfv",
        change: |example| example.replace("nfv", r#"rx_queue_size='1024'"#, r#"rx_queue_size='256'"#),
        expected: &["net-ring-size-nfv nfv (defined): interface 52:54:00:00:00:08 receive ring"],
    },
    Break {
        rule: "net-ring-size-nfv",
        change: |example| example.replace("db", r#"queues='4'"#, r#"queues='4' tx_queue_size='1024'"#),
        expected: &["net-ring-size-nfv db: interface 52:54:00:00:00:03 transmit ring"],
    },
    Break {
        rule: "net-not-user-mode",
        change: |example| example.replace("hpc", r#"<interface type='bridge'>"#, r#"<interface type='user'>"#),
        expected: &["net-not-user-mode hpc (defined): interface 52:54:00:00:00:07"],
    },
    Break {
        rule: "net-guest-offloads-kept",
        change: |example| {
            example.replace(
                "web",
                r#"<model type='virtio'/>"#,
                r#"<model type='virtio'/><driver><host tso4='off'/></driver>"#,
            )
        },
        expected: &["net-guest-offloads-kept web: interface 52:54:00:00:00:01"],
    },
    Break {
        rule: "net-sriov-for-heavy",
        change: |example| {
            example.replace(
                "rt",
                "<interface type='hostdev' managed='yes'>",
                "<interface type='bridge'><model type='virtio'/>",
            );
            example.replace(
                "rt",
                "<source><address type='pci' domain='0' bus='0x02' slot='0' function='2'/></source>",
                "<source bridge='br0'/>",
            );
        },
        expected: &["net-sriov-for-heavy rt: interface 52:54:00:00:00:04"],
    },
    Break {
        rule: "transient-overlay-left",
        change: |example| {
            example.replace("vdi", "/images/vdi.qcow2", "/images/vdi.qcow2.TRANSIENT-vdi");
        },
        expected: &["transient-overlay-left vdi (defined): disk vda"],
    },
    Break {
        rule: "ovs-vhostuserclient",
        change: |example| example.replace("nfv", r#"mode='server'"#, r#"mode='client'"#),
        expected: &["ovs-vhostuserclient nfv (defined): interface 52:54:00:00:00:08"],
    },
    Break {
        rule: "backing-block-device",
        change: |example| {
            example.replace("hpc", "type='block' device", "type='file' device");
            example.replace("hpc", "<source dev=", "<source file=");
        },
        expected: &["backing-block-device hpc (defined): disk vda"],
    },
];
