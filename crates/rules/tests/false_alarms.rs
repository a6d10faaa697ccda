//! What must not be found: definitions libvirt's own tests and documentation call sound, and what a rule itself says it
//! does not apply to.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use nearmetal_domain::DomainXml;
use nearmetal_host::Host;
use nearmetal_host::synthetic::Synthetic;
use nearmetal_rules::{Domain, Input, RULES, Settings, WorkloadClass, class_of, examine};

/// Whether a rule finds something in a KVM domain of 8 GiB with these parts, on a machine of two nodes.
fn finds(rule: &str, class: WorkloadClass, machine: &str, parts: &str, devices: &str) -> bool {
    let text = domain(machine, parts, devices);
    let facts = DomainXml::parse(&text).unwrap().facts().unwrap();
    let host: Host = Synthetic::new().packages(2).cores_per_node(8).build();
    let domains = [Domain::new(Some(facts), None, Some(class)).unwrap()];
    let settings = Settings::default();
    let result = examine(&Input { host: Some(&host), domains: &domains, settings: &settings }, RULES);
    result.findings.iter().any(|finding| finding.rule == rule)
}

fn domain(machine: &str, parts: &str, devices: &str) -> String {
    format!(
        "<domain type='kvm'><name>a</name><memory unit='GiB'>8</memory><vcpu>2</vcpu>
         <os><type arch='x86_64' machine='{machine}'>hvm</type></os>{parts}<devices>{devices}</devices></domain>"
    )
}

const Q35: &str = "pc-q35-9.2";

#[test]
fn pages_of_the_systems_own_size_are_no_huge_pages() {
    let pages =
        |size: &str| format!("<memoryBacking><hugepages><page size='{size}' unit='KiB'/></hugepages></memoryBacking>");
    let short = |size: &str| finds("hugetlb-pool-sized-per-node", WorkloadClass::General, Q35, &pages(size), "");
    assert!(short("2048"), "the pools are empty");
    assert!(!short("4"));
    // Such a guest is as eligible for same-page merging as one without the element.
    assert!(finds("mem-nosharepages", WorkloadClass::Latency, Q35, &pages("4"), ""));
    assert!(!finds("mem-nosharepages", WorkloadClass::Latency, Q35, &pages("2048"), ""));
}

#[test]
fn enlightenments_that_are_all_off_make_no_windows_guest_and_passthrough_has_the_clock() {
    let class = |hyperv: &str| {
        let text = domain(Q35, &format!("<features>{hyperv}</features>"), "");
        class_of(&DomainXml::parse(&text).unwrap().facts().unwrap()).0
    };
    assert_eq!(class("<hyperv><relaxed state='off'/></hyperv>"), WorkloadClass::General);
    assert_eq!(class("<hyperv><relaxed state='on'/></hyperv>"), WorkloadClass::Windows);
    assert_eq!(class("<hyperv mode='passthrough'/>"), WorkloadClass::Windows);
    let missing = |hyperv: &str| {
        let parts = format!("<features>{hyperv}</features>");
        finds("hyperv-enlightenments", WorkloadClass::Windows, Q35, &parts, "")
    };
    assert!(missing("<hyperv><relaxed state='on'/></hyperv>") && !missing("<hyperv mode='passthrough'/>"));
}

#[test]
fn an_interface_of_a_network_without_a_model_is_a_function_of_a_card() {
    let emulated = |kind: &str| {
        let device = format!("<interface type='{kind}'><source {kind}='x'/></interface>");
        finds("net-model-virtio", WorkloadClass::General, Q35, "", &device)
    };
    assert!(emulated("bridge") && !emulated("network"));
}

#[test]
fn a_vhost_user_client_that_calls_again_and_passt_are_no_lost_switches() {
    let lost = |inside: &str| {
        let source = format!("<source type='unix' path='/run/a' mode='client'>{inside}</source>");
        let device = format!("<interface type='vhostuser'>{source}<model type='virtio'/></interface>");
        finds("ovs-vhostuserclient", WorkloadClass::General, Q35, "", &device)
    };
    assert!(lost("") && lost("<reconnect enabled='no'/>") && !lost("<reconnect enabled='yes' timeout='10'/>"));
    let passt = "<interface type='vhostuser'><backend type='passt'/><model type='virtio'/></interface>";
    for rule in ["ovs-vhostuserclient", "net-ring-size-nfv"] {
        assert!(!finds(rule, WorkloadClass::General, Q35, "", passt), "{rule}");
    }
}

#[test]
fn rings_of_the_latency_class_stay_small_and_vdpa_may_have_large_ones() {
    let device = |kind: &str, driver: &str| {
        format!(
            "<interface type='{kind}'><source type='unix' path='/a' mode='server'/><model type='virtio'/>{driver}</interface>"
        )
    };
    let small = |class| finds("net-ring-size-nfv", class, Q35, "", &device("vhostuser", ""));
    assert!(small(WorkloadClass::Throughput) && !small(WorkloadClass::Latency));
    let large = |kind| {
        finds("net-ring-size-nfv", WorkloadClass::General, Q35, "", &device(kind, "<driver tx_queue_size='1024'/>"))
    };
    assert!(large("bridge") && !large("vdpa"));
}

#[test]
fn merged_receive_buffers_may_be_off_for_vhost_user_and_are_no_offload() {
    let device = |kind: &str| {
        format!("<interface type='{kind}'><model type='virtio'/><driver><host mrg_rxbuf='off'/></driver></interface>")
    };
    let finds = |rule, kind| finds(rule, WorkloadClass::General, Q35, "", &device(kind));
    assert!(finds("net-mrgrxbuf-dpdk", "bridge") && !finds("net-mrgrxbuf-dpdk", "vhostuser"));
    assert!(!finds("net-guest-offloads-kept", "bridge"));
}

#[test]
fn what_comes_over_the_network_is_not_in_the_hosts_page_cache() {
    let cached = |kind: &str, source: &str, cache: &str| {
        let device = format!(
            "<disk type='{kind}'><driver name='qemu' type='raw'{cache}/>{source}<target dev='vda' bus='virtio'/></disk>"
        );
        finds("disk-cache-none", WorkloadClass::Throughput, Q35, "", &device)
    };
    let network = "<source protocol='rbd' name='pool/image'/>";
    assert!(cached("file", "<source file='/a'/>", "") && !cached("network", network, ""));
    assert!(!cached("network", network, " cache='writeback'"));
    assert!(cached("network", network, " cache='unsafe'"), "flushes are ignored wherever it is");
}

#[test]
fn locked_memory_is_there_from_the_start() {
    let late = |backing: &str| {
        let parts = format!("<memoryBacking>{backing}</memoryBacking>");
        finds("mem-allocation-immediate", WorkloadClass::Latency, Q35, &parts, "")
    };
    assert!(late("<nosharepages/>") && !late("<locked/>"));
}

#[test]
fn a_small_test_guest_with_a_card_needs_no_huge_pages() {
    let hostdev = "<hostdev type='pci'><source><address bus='1'/></source></hostdev>";
    let asks = |memory: &str| {
        let text = domain(Q35, "", hostdev).replace("'GiB'>8<", memory);
        let facts = DomainXml::parse(&text).unwrap().facts().unwrap();
        let domains = [Domain::new(Some(facts), None, None).unwrap()];
        let settings = Settings::default();
        let result = examine(&Input { host: None, domains: &domains, settings: &settings }, RULES);
        result.findings.iter().any(|finding| finding.rule == "vfio-guest-hugepage-backed")
    };
    assert!(asks("'GiB'>8<") && !asks("'MiB'>512<"));
}

#[test]
fn a_microvm_has_no_hpet_and_an_old_system_keeps_its_board() {
    let hpet = |machine| finds("timers-hpet-off", WorkloadClass::General, machine, "", "");
    assert!(hpet(Q35) && !hpet("microvm"));
    let board = |system: &str| {
        let metadata = format!(
            "<metadata><libosinfo:libosinfo xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'><libosinfo:os \
             id='{system}'/></libosinfo:libosinfo></metadata>"
        );
        finds("machine-type-current-q35", WorkloadClass::General, "pc-i440fx-9.2", &metadata, "")
    };
    assert!(board("http://debian.org/debian/12") && board("http://microsoft.com/win/2k19"));
    assert!(!board("http://microsoft.com/win/xp") && !board("http://microsoft.com/win/2k3"));
}

#[test]
fn a_desktop_of_the_density_class_keeps_its_tablet_and_sound() {
    let finds = |class, screen: &str| {
        let devices = format!("<input type='tablet' bus='usb'/><sound model='ich9'/>{screen}");
        finds("unused-emulated-devices-removed", class, Q35, "", &devices)
    };
    let screen = "<graphics type='spice'/>";
    assert!(!finds(WorkloadClass::Density, screen));
    assert!(finds(WorkloadClass::Density, "") && finds(WorkloadClass::Throughput, screen));
}
