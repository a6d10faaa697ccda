//! What is read from the domains people have.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::facts;
use nearmetal_domain::{DomainXml, DriverFacts};
use nearmetal_units::{Bytes, PageSize};

#[test]
fn a_domain_of_virt_install() {
    let facts = facts("virt-install");
    assert_eq!((facts.name.as_str(), facts.kind.as_str()), ("debian12", "kvm"));
    assert_eq!(facts.uuid.as_deref(), Some("4b1d6c52-6d6e-4f0c-8a38-0f4d6f2c9b11"));
    assert_eq!((facts.memory, facts.current_memory), (Bytes::from_mib(4096), Bytes::from_mib(4096)));
    assert_eq!((facts.vcpus.maximum, facts.vcpus.placement.as_deref()), (4, Some("static")));
    assert!(facts.vcpu_pins.is_empty() && facts.emulator_pin.is_none() && facts.iothreads.ids.is_empty());
    assert!(facts.numatune.is_none() && facts.hugepages.is_none() && facts.cells.is_empty() && facts.has_agent_channel);
    let disk = &facts.disks[0];
    assert_eq!(
        (disk.target.as_str(), disk.kind.as_str(), disk.source.as_deref()),
        ("vda", "block", Some("/dev/nvme0n1"))
    );
    assert_eq!((disk.driver.cache.as_deref(), disk.driver.io.as_deref()), (Some("none"), Some("native")));
    assert!(disk.is_virtio_blk() && !disk.readonly);
    let cdrom = &facts.disks[1];
    assert_eq!((cdrom.device.as_str(), cdrom.source.as_deref(), cdrom.readonly, cdrom.index), ("cdrom", None, true, 1));
    let interface = &facts.interfaces[0];
    assert_eq!((interface.kind.as_str(), interface.source.as_deref()), ("network", Some("default")));
    assert_eq!((facts.boot.machine.as_deref(), facts.boot.kernel.as_deref()), (Some("pc-q35-7.2"), None));
}

#[test]
fn a_domain_written_by_hand() {
    let facts = facts("hand-written-minimal");
    assert_eq!((facts.memory, facts.vcpus.maximum, facts.uuid), (Bytes::from_mib(512), 2, None));
    assert_eq!(facts.disks[0].driver, DriverFacts::default());
    assert!(!facts.has_agent_channel && facts.class.is_none());
    assert_eq!(facts.interfaces[0].mac, None);
}

#[test]
fn a_windows_domain() {
    let facts = facts("windows-hyperv");
    assert_eq!((facts.memory, facts.current_memory), (Bytes::from_mib(16 << 10), Bytes::from_mib(8 << 10)));
    assert_eq!((facts.vcpus.maximum, facts.vcpus.current), (8, 4));
    assert_eq!(facts.class.as_deref(), Some("windows"));
    assert_eq!(facts.numatune.and_then(|tune| tune.placement).as_deref(), Some("auto"));
    assert_eq!(facts.disks[0].serial.as_deref(), Some("WIN-0001"));
    assert!(!facts.disks[0].is_virtio_blk());
    assert_eq!((facts.interfaces[0].queues, facts.interfaces[0].driver_name.as_deref()), (Some(4), Some("vhost")));
    assert_eq!(facts.boot.nvram.as_deref(), Some("/var/lib/libvirt/qemu/nvram/win2022_VARS.fd"));
}

#[test]
fn a_domain_with_devices_handed_through() {
    let facts = facts("passthrough-commandline");
    let addresses: Vec<String> = facts.hostdevs.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["0000:41:00.0", "0000:3b:02.1", "0000:c1:00.0", "0000:c1:00.1"]);
    assert_eq!(facts.disks[0].source.as_deref(), Some("0000:41:00.0"));
    assert_eq!(facts.interfaces[0].source.as_deref(), Some("0000:3b:02.1"));
    assert_eq!(facts.vcpus.cpuset.map(|set| set.to_string()).as_deref(), Some("0-2,4-15"));
    assert_eq!(facts.emulator_pin.map(|set| set.to_string()).as_deref(), Some("2"));
    assert_eq!(facts.vcpu_pins.len(), 2);
    let pages = facts.hugepages.unwrap();
    assert_eq!((pages[0].size, &pages[0].cells), (PageSize::HUGE_1G, &None));
}

#[test]
fn a_domain_with_cells() {
    let facts = facts("guest-cells");
    assert_eq!(facts.iothreads.ids, [2, 7]);
    assert_eq!(facts.iothreads.pins.len(), 1);
    assert_eq!(facts.cells.len(), 2);
    assert_eq!((facts.cells[1].vcpus.to_string().as_str(), facts.cells[1].memory), ("4-7", Bytes::from_mib(4096)));
    let tune = facts.numatune.unwrap();
    assert_eq!((tune.mode.as_deref(), tune.cells[1].mode.as_deref()), (Some("strict"), Some("preferred")));
    assert_eq!(facts.disks[0].driver.iothread_mapping, [2, 7]);
    assert_eq!(
        (facts.disks[0].source.as_deref(), facts.disks[1].source.as_deref()),
        (Some("default/wide.img"), Some("rbd/wide"))
    );
    assert_eq!(facts.hugepages.unwrap()[1].cells.as_ref().map(ToString::to_string).as_deref(), Some("1"));
    assert_eq!(facts.boot.command_line.as_deref(), Some("root=/dev/vda1 console=ttyS0 quiet"));
}

#[test]
fn old_domains_and_one_liners() {
    let old = facts("old-style");
    assert_eq!(
        (old.kind.as_str(), old.memory, old.current_memory),
        ("qemu", Bytes::from_mib(512), Bytes::from_mib(256))
    );
    assert_eq!((old.disks[0].bus.as_deref(), old.disks[1].bus.as_deref()), (Some("ide"), Some("fdc")));
    // 1 GB is 10^9 bytes, rounded up to whole KiB.
    assert_eq!(facts("one-line").memory, Bytes::from_kib(976_563));
}

#[test]
fn a_domain_without_memory_has_that_of_its_cells() {
    let text = "<domain type='kvm'><name>a</name><cpu><numa><cell cpus='0' memory='1' unit='GiB'/>\
                <cell cpus='1' memory='2' unit='GiB'/></numa></cpu></domain>";
    let facts = DomainXml::parse(text).unwrap().facts().unwrap();
    assert_eq!((facts.memory, facts.cells[1].id), (Bytes::from_mib(3 << 10), 1));
}

#[test]
fn facts_survive_json() {
    for (name, _) in common::FIXTURES {
        let facts = facts(name);
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<nearmetal_domain::DomainFacts>(&text).unwrap(), facts, "{name}");
    }
}

#[test]
fn what_rules_ask_of_a_domain() {
    let windows = facts("windows-hyperv");
    let hyperv = windows.features.hyperv.unwrap();
    assert!(hyperv.has("relaxed") && hyperv.has("stimer") && !hyperv.has("vpindex"));
    assert_eq!(windows.cpu.topology.as_ref().map(nearmetal_domain::TopologyFacts::vcpus), Some(8));
    let scsi = windows.peripherals.iter().find(|device| device.kind.as_deref() == Some("scsi")).unwrap();
    assert_eq!((scsi.model.as_deref(), scsi.queues, scsi.iothread), (Some("virtio-scsi"), Some(8), Some(1)));
    let debian = facts("virt-install");
    assert_eq!(debian.operating_system.as_deref(), Some("http://debian.org/debian/12"));
    assert_eq!(debian.timers[2].present.as_deref(), Some("no"));
    assert_eq!(debian.cpu.mode.as_deref(), Some("host-passthrough"));
}

#[test]
fn limits_and_schedulers_are_read_as_libvirt_means_them() {
    let text = "<domain type='kvm'><name>a</name><memory unit='GiB'>1</memory><vcpu>2</vcpu>
      <memtune><hard_limit unit='GiB'>2</hard_limit></memtune>
      <memoryBacking><nosharepages/><locked/><allocation mode='immediate' threads='4'/></memoryBacking>
      <cputune><quota>-1</quota><emulator_quota>50000</emulator_quota>
        <vcpusched vcpus='0-1' scheduler='fifo' priority='1'/></cputune>
      <devices>
        <disk><driver name='qemu' ioeventfd='off'/><source file='/a'/><target dev='vda'/><transient/>
          <iotune><total_iops_sec>100</total_iops_sec><group_name>g</group_name><read_bytes_sec>0</read_bytes_sec></iotune>
        </disk>
        <interface type='bridge'><source bridge='br0'/><model type='virtio'/>
          <driver rx_queue_size='1024'><host tso4='off' gso='on'/></driver></interface>
      </devices></domain>";
    let facts = DomainXml::parse(text).unwrap().facts().unwrap();
    assert_eq!(facts.scheduling.quotas, [("emulator_quota".to_owned(), 50_000)]);
    assert!(facts.scheduling.schedulers[0].is_real_time());
    let policy = &facts.memory_policy;
    assert_eq!((policy.hard_limit, policy.allocation_threads), (Some(Bytes::from_mib(2048)), Some(4)));
    assert!(policy.no_share_pages && policy.locked && facts.disks[0].transient);
    assert_eq!(facts.disks[0].limits, [("total_iops_sec".to_owned(), 100)]);
    assert_eq!(facts.interfaces[0].offloads_off, ["host/tso4"]);
    assert_eq!((facts.interfaces[0].receive_ring, facts.interfaces[0].transmit_ring), (Some(1024), None));
}

#[test]
fn what_the_narrower_rules_ask_of_a_domain() {
    let text = "<domain type='kvm'><name>a</name><memory unit='GiB'>1</memory><vcpu>4</vcpu>
      <cputune>
        <cachetune vcpus='0-1'><cache id='0' level='3' type='both' size='3' unit='MiB'/></cachetune>
        <cachetune vcpus='2'><monitor level='3' vcpus='2'/></cachetune>
      </cputune>
      <features><pmu/></features>
      <devices>
        <disk type='vhostuser'><driver name='qemu' queue_size='512'/>
          <source type='unix' path='/run/a'><reconnect enabled='yes' timeout='5'/></source><target dev='vda'/></disk>
        <interface type='vdpa'><source dev='/dev/vhost-vdpa-0'/><mtu size='9000'/>
          <driver page_per_vq='on' packed='on'/>
          <bandwidth><inbound average='1000' peak='5000'/><outbound average='0'/></bandwidth></interface>
        <interface type='vhostuser'><backend type='passt'/>
          <source type='unix' path='/run/b' mode='client'><reconnect enabled='yes' timeout='5'/></source></interface>
      </devices></domain>";
    let facts = DomainXml::parse(text).unwrap().facts().unwrap();
    assert_eq!(facts.cache_parts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["0-1"], "monitors cut nothing");
    assert_eq!(facts.features.pmu.as_deref(), Some("on"));
    assert_eq!((facts.disks[0].reconnect.as_deref(), facts.disks[0].driver.queue_size), (Some("yes"), Some(512)));
    let interface = &facts.interfaces[0];
    assert_eq!((interface.mtu, interface.packed.as_deref()), (Some(9000), Some("on")));
    assert_eq!((interface.page_per_vq.as_deref(), interface.bandwidth.len()), (Some("on"), 1));
    assert_eq!(interface.bandwidth[0], ("inbound".to_owned(), 1000));
    let user = &facts.interfaces[1];
    assert_eq!((user.backend.as_deref(), user.reconnect.as_deref()), (Some("passt"), Some("yes")));
}

#[test]
fn the_free_controller_is_the_one_behind_the_largest() {
    let with = |devices: &str| {
        let text = format!(
            "<domain type='kvm'><name>a</name><memory>1</memory><vcpu>1</vcpu><devices>{devices}</devices></domain>"
        );
        DomainXml::parse(&text).unwrap().free_controller("scsi").unwrap()
    };
    assert_eq!(with(""), 0);
    assert_eq!(with("<controller type='sata' index='4'/>"), 0);
    assert_eq!(with("<controller type='scsi' index='0'/><controller type='scsi' index='2' model='virtio-scsi'/>"), 3);
    assert_eq!(with("<controller type='scsi' index='a lot'/>"), 0, "what is no number is none");
}
