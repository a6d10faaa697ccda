//! Small topologies in the words of hwloc 3 and hwloc 1.

use nearmetal_host::{Host, HostFs};

use super::*;

fn host(text: &str) -> Host {
    Host::read(&HostFs::of_partial_tree(tree("test.xml", text.as_bytes()).unwrap(), "test.xml"))
}

/// Two packages of one core with two threads, node 0 and node 4, a card and a drive beside the second.
const THREE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="3.0">
  <object type="Machine" os_index="0" cpuset="0xf...f,,0x0000000f" complete_cpuset="0xf...f">
    <object type="Package" os_index="0" cpuset="0x00000005">
      <info name="CPUModel" value="Some CPU &amp; more"/>
      <object type="NUMANode" os_index="0" cpuset="0x00000005" local_memory="1073741824">
        <page_type size="4096" count="131072"/><page_type size="2097152" count="256"/>
      </object>
      <object type="L3Cache" cpuset="0x00000005" cache_size="8388608" depth="3" cache_type="0">
        <object type="L1iCache" cpuset="0x00000005" depth="1" cache_type="2">
        <object type="Core" os_index="0" cpuset="0x00000005">
          <object type="PU" os_index="0" cpuset="0x00000001"/><object type="PU" os_index="2" cpuset="0x00000004"/>
        </object></object>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x0000000a">
      <object type="MemCache" cpuset="0x0000000a" depth="1">
        <object type="NUMANode" os_index="4" cpuset=",,0x0000000a" local_memory="2147483648"/>
      </object>
      <object type="Core" os_index="0" cpuset="0x0000000a">
        <object type="PU" os_index="1" cpuset="0x00000002"/><object type="PU" os_index="3" cpuset="0x00000008"/>
      </object>
      <object type="Bridge" bridge_type="0-1" bridge_pci="0001:[00-02]">
        <object type="Bridge" pci_busid="0001:00:03.0" pci_type="0604 [8086:3c08] [00ff:0000] 07 00">
          <object type="PCIDev" pci_busid="0001:01:00.0" pci_type="0200 [8086:1521] [00ff:0000] 01 00">
            <object type="OSDev" name="eth0" osdev_type="16"/>
          </object>
        </object>
        <object type="PCIDev" pci_busid="0001:02:00.0" pci_type="0108 [8086:0953] [8086:3709] 01 02">
          <object type="OSDev" name="nvme0n1" subtype="Disk" osdev_type="1"><info name="Size" value="1000"/></object>
        </object>
      </object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">4 0 </indexes><u64values length="12">10 21 31 10 </u64values>
  </distances2>
  <info name="OSRelease" value="3.0.58"/><info name="HostName" value="uv"/>
</topology>"#;

#[test]
fn a_topology_of_hwloc_3_is_a_host() {
    let host = host(THREE);
    assert_eq!((&host.unreadable, &host.denied), (&vec![], &vec![]));
    let summary = host.summary();
    assert_eq!((summary.packages, summary.numa_nodes, summary.cores, summary.pus), (Some(2), 2, 2, 4));
    assert_eq!((summary.pci_devices, summary.memory), (2, Some(Bytes::from_mib(3072))));
    assert_eq!(host.cores.iter().map(|core| core.cpus.to_string()).collect::<Vec<_>>(), ["0,2", "1,3"]);
    assert_eq!(host.processors[0].last_level_cache.as_ref().unwrap().to_string(), "0,2");
    assert_eq!(host.processors[1].last_level_cache, None, "no cache is said there");
    assert_eq!(
        (host.nodes[0].distance(4), host.nodes[1].distance(0)),
        (Some(31), Some(21)),
        "rows are in the order said"
    );
    assert_eq!((host.nodes[1].index, host.nodes[1].cpus.to_string().as_str()), (4, "1,3"));
    assert_eq!(host.nodes[0].memory_free, None, "it is not said");
    assert!(host.pci_devices.iter().all(|device| device.node == Some(4) && device.driver.is_none()));
    assert_eq!(host.pci_devices[1].class, Some(0x01_0802));
    let drive = &host.block_devices[0];
    assert_eq!((drive.name.as_str(), drive.node, drive.size), ("nvme0n1", Some(4), Some(Bytes::from_kib(1000))));
    assert_eq!(host.network_interfaces[0].name, "eth0");
    assert_eq!(host.system.processor_model.as_deref(), Some("Some CPU & more"));
    assert_eq!((host.system.hostname.as_deref(), host.system.kernel.as_deref()), (Some("uv"), Some("3.0.58")));
}

#[test]
fn hwloc_1_puts_packages_below_nodes() {
    let text = r#"<topology>
      <object type="Machine" os_index="0" cpuset="0x00000003">
        <distances nbobjs="2" relative_depth="1" latency_base="10.000000">
          <latency value="1.000000"/><latency value="2.100000"/><latency value="2.100000"/><latency value="1.000000"/>
        </distances>
        <object type="NUMANode" os_index="0" cpuset="0x00000001" local_memory="1048576">
          <object type="Socket" os_index="0" cpuset="0x00000001">
            <object type="Cache" cpuset="0x00000001" depth="2" cache_size="1024">
              <object type="PU" os_index="0" cpuset="0x00000001"/></object></object>
        </object>
        <object type="NUMANode" os_index="1" cpuset="0x00000002" local_memory="1048576">
          <object type="Socket" os_index="1" cpuset="0x00000002"><object type="PU" os_index="1" cpuset="0x00000002"/></object>
        </object>
      </object></topology>"#;
    let host = host(text);
    assert_eq!((host.summary().packages, host.nodes[0].distance(1)), (Some(2), Some(21)));
    assert_eq!(host.nodes[1].cpus.to_string(), "1");
    assert_eq!(host.processors[0].siblings, None, "no core is said");
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (from, to) in [
        ("<topology version=\"3.0\">", "<domain>"),
        ("10 21 31 10", "10 21 31"),
        ("10 21 31 10", "10 21 x 10"),
        (">4 0 <", ">4 1 <"),
        ("0001:01:00.0", "banana"),
        ("[8086:1521]", "[8086]"),
        ("local_memory=\"2147483648\"", "local_memory=\"much\""),
        ("type=\"PU\" os_index=\"3\"", "type=\"PU\" os_index=\"70000\""),
        ("type=\"NUMANode\" os_index=\"4\"", "type=\"NUMANode\" os_index=\"0\""),
        ("cpuset=\"0x0000000a\"", "cpuset=\"zebra\""),
        ("type=\"PU\"", "type=\"XX\""),
    ] {
        let text = THREE.replace(from, to);
        assert_ne!(text, THREE, "{from}");
        assert!(tree("test.xml", text.as_bytes()).is_err(), "{from} -> {to}");
    }
}

#[test]
fn no_damage_panics() {
    let bytes = THREE.as_bytes();
    for at in 0..bytes.len() {
        let _ = tree("cut", &bytes[..at]);
        let mut damaged = bytes.to_vec();
        damaged[at] = b'9';
        let _ = tree("damaged", &damaged).map(|tree| Host::read(&HostFs::of_partial_tree(tree, "damaged")));
    }
}
