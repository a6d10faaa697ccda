//! Documents in libvirt's words.

use nearmetal_host::Host;

use super::*;

const CAPABILITIES: &str = r#"<capabilities><host><uuid>x</uuid>
  <cpu><arch>x86_64</arch><model>EPYC</model><pages unit='KiB' size='4'/></cpu>
  <topology><cells num='2'>
    <cell id='0'><memory unit='KiB'>1048576</memory><pages unit='KiB' size='4'>262144</pages>
      <pages unit='KiB' size='2048'>8</pages>
      <distances><sibling id='0' value='10'/><sibling id='2' value='20'/></distances>
      <cpus num='2'><cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0-1'/>
        <cpu id='1' socket_id='0' die_id='0' core_id='0' siblings='0-1'/></cpus></cell>
    <cell id='2'><memory unit='KiB'>2097152</memory>
      <distances><sibling id='0' value='20'/><sibling id='2' value='10'/></distances>
      <cpus num='1'><cpu id='2' socket_id='1' core_id='0' siblings='2'/></cpus></cell>
  </cells></topology>
  <cache><bank id='0' level='3' type='both' size='8' unit='MiB' cpus='0-1'/></cache>
</host></capabilities>"#;

fn devices() -> Vec<String> {
    let place = "/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.0";
    [
        format!(
            "<device><name>pci_0000_21_00_0</name><path>{place}</path><driver><name>nvme</name></driver>\
             <capability type='pci'><class>0x010802</class><domain>0</domain><bus>33</bus><slot>0</slot>\
             <function>0</function><product id='0x0010'>x</product><vendor id='0x1b36'>y</vendor>\
             <capability type='virt_functions' maxCount='4'>\
             <address domain='0x0000' bus='0x21' slot='0x00' function='0x1'/></capability>\
             <iommuGroup number='17'><address domain='0' bus='0' slot='0' function='0'/></iommuGroup>\
             <numa node='2'/></capability></device>"
        ),
        "<device><name>pci_0000_21_00_1</name><path>/sys/devices/pci0000:20/0000:20:00.0/0000:21:00.1</path>\
         <capability type='pci'><class>0x010802</class><domain>0</domain><bus>33</bus><slot>0</slot>\
         <function>1</function><capability type='phys_function'>\
         <address domain='0x0000' bus='0x21' slot='0x00' function='0x0'/></capability></capability></device>"
            .to_owned(),
        format!(
            "<device><name>block_nvme0n1</name><path>{place}/nvme/nvme0/nvme0n1</path><capability type='storage'>\
             <block>/dev/nvme0n1</block><size>4096</size></capability></device>"
        ),
        "<device><name>computer</name><capability type='system'><hardware><serial>S</serial></hardware></capability></device>"
            .to_owned(),
    ]
    .to_vec()
}

#[test]
fn capabilities_and_node_devices_are_a_host() {
    let found = from_libvirt("qemu+ssh://x/system", CAPABILITIES, &devices()).unwrap();
    let host = Host::read(&found.fs);
    assert_eq!(host.source, "qemu+ssh://x/system");
    assert_eq!((&host.unreadable, &host.denied), (&vec![], &vec![]));
    let summary = host.summary();
    assert_eq!((summary.packages, summary.numa_nodes, summary.cores, summary.pus), (Some(2), 2, 2, 3));
    assert_eq!(summary.memory, Some(Bytes::from_mib(3072)));
    assert_eq!((host.nodes[0].distance(2), host.nodes[1].index), (Some(20), 2));
    assert_eq!(host.processors[0].last_level_cache.as_ref().unwrap().to_string(), "0-1");
    assert_eq!((host.processors[2].last_level_cache.as_ref(), host.processors[0].package), (None, Some(0)));
    let [drive, function] = &host.pci_devices[..] else { panic!("{:?}", host.pci_devices) };
    assert_eq!((drive.node, drive.driver.as_deref(), drive.iommu_group), (Some(2), Some("nvme"), Some(17)));
    let sriov = drive.sriov.as_ref().unwrap();
    assert_eq!((sriov.total_vfs, sriov.vfs, sriov.functions.as_slice()), (4, 1, &[function.address][..]));
    assert_eq!((function.physical_function, function.vendor), (Some(drive.address), None));
    assert_eq!((host.block_devices[0].name.as_str(), host.block_devices[0].node), ("nvme0n1", Some(2)));
}

#[test]
fn security_models_come_with_the_label_of_kvm_guests() {
    // libvirt 11.3 on Debian 13.
    let models = "<secmodel><model>apparmor</model><doi>0</doi></secmodel><secmodel><model>dac</model><doi>0</doi>\
                  <baselabel type='qemu'>+1:+1</baselabel><baselabel type='kvm'>+64055:+64055</baselabel></secmodel>";
    let document = CAPABILITIES.replace("<host>", &format!("<host>{models}"));
    let model =
        |model: &str, label: Option<&str>| SecurityModel { model: model.to_owned(), label: label.map(str::to_owned) };
    let found = security_models("test", &document).unwrap();
    assert_eq!(found, [model("apparmor", None), model("dac", Some("+64055:+64055"))]);
    let off = CAPABILITIES.replace("<host>", "<host><secmodel><model>none</model><doi>0</doi></secmodel>");
    assert_eq!(security_models("test", &off).unwrap(), []);
    assert!(security_models("test", "<capabilities").is_err());
}

#[test]
fn documents_that_are_something_else_are_refused() {
    let good = devices();
    for (capabilities, device) in [
        ("<domain/>".to_owned(), &good[..]),
        ("<capabilities><host/></capabilities>".to_owned(), &good),
        (CAPABILITIES.replace("id='2'", "id='99999999'"), &good),
        (CAPABILITIES.replace("siblings='2'", "siblings='x'"), &good),
        (CAPABILITIES.to_owned(), &["<device".to_owned()][..]),
        (CAPABILITIES.to_owned(), &["<device><capability type='pci'/></device>".to_owned()][..]),
        (CAPABILITIES.to_owned(), &[good[0].replace("/sys/devices/pci0000:20", "/sys/devices/../../etc")][..]),
    ] {
        assert!(from_libvirt("test", &capabilities, device).is_err());
    }
}
