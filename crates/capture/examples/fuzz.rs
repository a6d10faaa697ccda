//! Damages captures, archives and XML of hosts, millions of times, and expects each to be read or refused.
//!
//! Part of `./dev fuzz [COUNT] [NAME]`, with the rules of the host crate's example of this name.
#![allow(clippy::unwrap_used, reason = "the sound inputs are made here")]

use std::process::ExitCode;

use nearmetal_capture::{from_bytes, from_libvirt, security_models, write};
use nearmetal_host::fuzzing::{Target, campaign};
use nearmetal_host::{Entry, Host, MemoryTree};

const TOPOLOGY: &str = r#"<topology version="3.0"><object type="Machine" os_index="0" cpuset="0x00000003">
<object type="Package" os_index="0" cpuset="0x00000003"><object type="NUMANode" os_index="0" cpuset="0x00000003" local_memory="1073741824"/>
<object type="Core" os_index="0" cpuset="0x00000003"><object type="PU" os_index="0" cpuset="0x00000001"/></object></object></object></topology>"#;

const CAPABILITIES: &str = "<capabilities><host><cpu><arch>x86_64</arch><topology sockets='1' dies='1' cores='1' threads='1'/></cpu>
<topology><cells num='1'><cell id='0'><memory unit='KiB'>1048576</memory><pages unit='KiB' size='2048'>4</pages>
<distances><sibling id='0' value='10'/></distances><cpus num='1'><cpu id='0' socket_id='0' die_id='0' core_id='0' siblings='0'/></cpus>
</cell></cells></topology></host></capabilities>";

const DEVICE: &str = "<device><name>pci_0000_01_00_0</name><path>/sys/devices/pci0000:00/0000:01:00.0</path><driver><name>nvme</name></driver>
<capability type='pci'><class>0x010802</class><domain>0</domain><bus>1</bus><slot>0</slot><function>0</function>
<product id='0x0010'/><vendor id='0x1b36'/><iommuGroup number='3'/><numa node='0'/></capability></device>";

/// Reads what can be opened: a damaged description must not damage the reader behind it either.
fn read(name: &str, bytes: &[u8]) {
    if let Ok(fs) = from_bytes(name, bytes) {
        drop(Host::read(&fs));
    }
}

fn capture(compressed: bool) -> Vec<u8> {
    let mut tree = MemoryTree::new();
    for (path, text) in [
        ("/sys/devices/system/cpu/online", "0\n"),
        ("/sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
        ("/proc/meminfo", "MemTotal: 1024 kB\nMemFree: 512 kB\n"),
    ] {
        tree.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
    }
    let mut bytes = Vec::new();
    write(&tree, false, &mut bytes).unwrap();
    if compressed {
        return bytes;
    }
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes.as_slice()), &mut plain).unwrap();
    plain
}

fn main() -> ExitCode {
    let target = |name: &'static str, seed: Vec<u8>, run: fn(&[u8])| Target { name, seed, run: Box::new(run) };
    let libvirt = |bytes: &[u8]| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            let (capabilities, device) = text.split_once("<device>").unwrap_or((text, ""));
            drop(security_models("fuzz", capabilities));
            drop(from_libvirt("fuzz", capabilities, &[format!("<device>{device}")]));
        }
    };
    let targets = vec![
        target("hwloc XML", TOPOLOGY.into(), |bytes| read("fuzz.xml", bytes)),
        target("libvirt XML", format!("{CAPABILITIES}{DEVICE}").into_bytes(), libvirt),
        target("tar archive", capture(false), |bytes| read("fuzz.tar", bytes)),
        target("compressed capture", capture(true), |bytes| read("fuzz.tar.gz", bytes)),
    ];
    campaign(targets, std::env::args().skip(1))
}
