//! Images of disks, and the inside of guests.

use nearmetal_host::TunedProfile;
use nearmetal_units::Bytes;

use crate::Break;
use crate::common::Example;

/// Ticks of 100,000 that were stolen.
fn stolen(example: &mut Example, name: &str, ticks: u64) {
    example.inside(name).system.processor_time.as_mut().unwrap().stolen = ticks;
}

pub(crate) const BREAKS: [Break; 29] = [
    Break {
        rule: "guest-nmi-watchdog-off",
        change: |example| {
            let sysctls = &mut example.inside("db").system.sysctls;
            sysctls.iter_mut().find(|sysctl| sysctl.name == "kernel.nmi_watchdog").unwrap().value = 1;
        },
        expected: &["guest-nmi-watchdog-off db: NMI watchdog of the guest"],
    },
    Break {
        rule: "image-raw-or-tuned-qcow2",
        change: |example| example.replace("db", "type='raw'", "type='vmdk'"),
        expected: &["image-raw-or-tuned-qcow2 db: disk vda"],
    },
    Break {
        rule: "image-raw-or-tuned-qcow2",
        change: |example| {
            let chain = example.images.get_mut("/dev/vg/hpc").unwrap().as_mut().unwrap();
            chain.below = vec![chain.top.clone()];
            chain.below[0].format = "vdi".to_owned();
            chain.top.backing = Some("/images/old.vdi".to_owned());
        },
        expected: &[
            "image-backing-chain-short hpc (defined): disk vda",
            "image-raw-or-tuned-qcow2 hpc (defined): disk vda",
        ],
    },
    Break {
        rule: "image-preallocated",
        change: |example| example.image("/images/gpu.raw").allocated = Some(Bytes::from_mib(90 << 10)),
        expected: &["image-preallocated gpu (defined): disk sda"],
    },
    Break {
        rule: "image-preallocated",
        change: |example| {
            example.replace("gpu", "type='raw'", "type='qcow2'");
            let mut image = example.image("/images/web.qcow2").clone();
            image.length = Some(Bytes::from_mib(10 << 10));
            *example.image("/images/gpu.raw") = image;
        },
        // A thin image that gives nothing back, too.
        expected: &["disk-discard-unmap gpu (defined): disk sda discard", "image-preallocated gpu (defined): disk sda"],
    },
    Break {
        rule: "image-qcow2-l2-cache",
        change: |example| example.image("/images/web.qcow2").virtual_size = Bytes::from_mib(257 << 10),
        expected: &["image-qcow2-l2-cache web: disk vda"],
    },
    Break {
        rule: "image-qcow2-l2-cache",
        change: |example| {
            let driver = "<driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap'";
            let cache = "><metadata_cache><max_size unit='MiB'>12</max_size></metadata_cache></driver>";
            example.replace("win", &format!("{driver}/>"), &format!("{driver}{cache}"));
        },
        expected: &["image-qcow2-l2-cache win (defined): disk vda"],
    },
    Break {
        rule: "image-backing-chain-short",
        change: |example| {
            let chain = example.images.get_mut("/images/vdi.qcow2").unwrap().as_mut().unwrap();
            chain.below = vec![chain.below[0].clone(); 4];
        },
        expected: &["image-backing-chain-short vdi (defined): disk vda"],
    },
    Break {
        rule: "image-compat-v3",
        change: |example| example.image("/images/web.qcow2").compat = Some("0.10".to_owned()),
        expected: &["image-compat-v3 web: disk vda, /images/web.qcow2"],
    },
    Break {
        rule: "image-compat-v3",
        change: |example| example.image("/images/win.qcow2").corrupt = Some(true),
        expected: &["image-compat-v3 win (defined): disk vda, /images/win.qcow2"],
    },
    Break {
        rule: "image-cluster-extended-l2",
        change: |example| example.image("/images/vdi.qcow2").extended_l2 = Some(false),
        expected: &["image-cluster-extended-l2 vdi (defined): disk vda"],
    },
    Break {
        rule: "image-no-internal-snapshots",
        change: |example| example.image("/images/win.qcow2").snapshots = vec!["before-update".to_owned()],
        expected: &["image-no-internal-snapshots win (defined): disk vda"],
    },
    Break {
        rule: "image-partition-aligned",
        change: |example| example.inside("web").block_devices[1].start = Some(Bytes::new(63 * 512)),
        expected: &["image-partition-aligned web: partition vda1"],
    },
    Break {
        rule: "guest-virtio-drivers",
        change: |example| example.inside("web").pci_devices[0].driver = None,
        expected: &["guest-virtio-drivers web: PCI function 0000:00:03.0 in the guest"],
    },
    Break {
        rule: "guest-virtio-drivers",
        change: |example| example.inside("web").network_interfaces.clear(),
        expected: &["guest-virtio-drivers web: PCI function 0000:00:04.0 in the guest"],
    },
    Break {
        rule: "guest-scheduler-none",
        change: |example| example.inside("db").block_devices[0].scheduler = Some("bfq".to_owned()),
        expected: &["guest-scheduler-none db: disk vda in the guest"],
    },
    Break {
        rule: "guest-scheduler-none",
        change: |example| example.inside("hpc").block_devices[0].scheduler = Some("mq-deadline".to_owned()),
        expected: &["guest-scheduler-none hpc (defined): disk vda in the guest"],
    },
    Break {
        rule: "guest-clocksource",
        change: |example| example.inside("web").system.clocksource = Some("acpi_pm".to_owned()),
        expected: &["guest-clocksource web: clock source of the guest"],
    },
    Break {
        rule: "guest-tuned-profile",
        change: |example| example.inside("web").system.tuned = Some(TunedProfile::Active("my-own balanced".to_owned())),
        expected: &["guest-tuned-profile web: tuned profile of the guest"],
    },
    Break {
        rule: "guest-tuned-profile",
        change: |example| example.inside("hpc").system.tuned = Some(TunedProfile::None),
        expected: &["guest-tuned-profile hpc (defined): tuned profile of the guest"],
    },
    Break {
        rule: "guest-steal-low",
        change: |example| stolen(example, "web", 5_000),
        expected: &["guest-steal-low web: stolen time"],
    },
    Break {
        rule: "guest-steal-low",
        change: |example| stolen(example, "db", 1_000),
        expected: &["guest-steal-low db: stolen time"],
    },
    Break {
        rule: "guest-mq-enabled",
        change: |example| example.inside("db").network_interfaces[0].receive_queues = Some(1),
        expected: &["guest-mq-enabled db: queues of interface 52:54:00:00:00:03"],
    },
    Break {
        rule: "guest-mq-enabled",
        change: |example| example.inside("hpc").block_devices[0].queues = Some(1),
        expected: &["guest-mq-enabled hpc (defined): queues of disk vda"],
    },
    Break {
        rule: "guest-thp",
        change: |example| example.inside("vdi").system.transparent_hugepage = Some("never".to_owned()),
        expected: &["guest-thp vdi (defined): transparent huge pages of the guest"],
    },
    Break {
        rule: "guest-haltpoll-governor",
        change: |example| example.inside("rt").system.idle_driver = Some("none".to_owned()),
        expected: &["guest-haltpoll-governor rt: idle of the guest"],
    },
    Break {
        rule: "guest-haltpoll-governor",
        change: |example| example.inside("rt").system.module_parameters[0].value = "0".to_owned(),
        expected: &["guest-haltpoll-governor rt: idle of the guest"],
    },
    Break {
        rule: "guest-rt-isolation",
        change: |example| example.inside("rt").system.isolated = Some("0-1".parse().unwrap()),
        expected: &["guest-rt-isolation rt: isolated CPUs of the guest"],
    },
    Break {
        rule: "guest-rt-isolation",
        change: |example| example.inside("rt").system.nohz_full = Some("".parse().unwrap()),
        expected: &["guest-rt-isolation rt: CPUs without a tick in the guest"],
    },
];
