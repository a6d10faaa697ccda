//! `device list` of a captured machine, and wrong words to the other verbs: this machine's own devices are not looked at.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::process::{Command, Output};

use nearmetal_host::tree_text::unpack;
use serde_json::Value;

/// A card with two VFs and the default route on a bridge above it, a drive with the root file system, an idle drive in a
/// group with a controller of the host.
const TREE: &str = r"[/proc]
uptime = 1.0 1.0
[/proc/1]
mountinfo =
| 27 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
[/proc/net]
route =
| Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
| br0	00000000	0100A8C0	0003	0	0	0	00000000	0	0	0
[/sys/devices/system/cpu]
online = 0
[/sys/kernel/iommu_groups/1]
type = identity
[/sys/kernel/iommu_groups/2]
type = DMA-FQ
[/sys/bus/pci/devices]
0000:10:00.0 -> ../../../devices/pci0000:10/0000:10:00.0
0000:10:00.1 -> ../../../devices/pci0000:10/0000:10:00.1
0000:20:00.0 -> ../../../devices/pci0000:20/0000:20:00.0
0000:30:00.0 -> ../../../devices/pci0000:30/0000:30:00.0
0000:30:00.1 -> ../../../devices/pci0000:30/0000:30:00.1
[/sys/devices/pci0000:10/0000:10:00.0]
class = 0x020000
vendor = 0x8086
device = 0x10c9
numa_node = 1
reset_method = flr
sriov_totalvfs = 7
sriov_numvfs = 1
virtfn0 -> ../0000:10:00.1
driver -> ../../../bus/pci/drivers/igb
iommu_group -> ../../../kernel/iommu_groups/1
[/sys/devices/pci0000:10/0000:10:00.1]
class = 0x020000
vendor = 0x8086
device = 0x10ca
numa_node = 1
reset_method = flr
physfn -> ../0000:10:00.0
iommu_group -> ../../../kernel/iommu_groups/2
[/sys/devices/pci0000:10/0000:10:00.0/net/eth0]
operstate = up
address = 02:00:00:00:00:01
master -> ../../../../virtual/net/br0
[/sys/devices/virtual/net/br0]
operstate = up
uevent = DEVTYPE=bridge
[/sys/class/net]
eth0 -> ../../devices/pci0000:10/0000:10:00.0/net/eth0
br0 -> ../../devices/virtual/net/br0
[/sys/devices/pci0000:20/0000:20:00.0]
class = 0x010802
vendor = 0x1b36
device = 0x0010
numa_node = 0
reset_method = flr
driver -> ../../../bus/pci/drivers/nvme
iommu_group -> ../../../kernel/iommu_groups/3
[/sys/devices/pci0000:20/0000:20:00.0/nvme/nvme0/nvme0n1]
size = 2048
dev = 259:0
[/sys/devices/pci0000:20/0000:20:00.0/nvme/nvme0/nvme0n1/nvme0n1p1]
size = 1024
dev = 259:1
partition = 1
[/sys/class/block]
nvme0n1 -> ../../devices/pci0000:20/0000:20:00.0/nvme/nvme0/nvme0n1
nvme0n1p1 -> ../../devices/pci0000:20/0000:20:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
[/sys/devices/pci0000:30/0000:30:00.0]
class = 0x010802
vendor = 0x1b36
device = 0x0010
numa_node = -1
driver -> ../../../bus/pci/drivers/nvme
iommu_group -> ../../../kernel/iommu_groups/4
[/sys/devices/pci0000:30/0000:30:00.1]
class = 0x0c0330
vendor = 0x8086
device = 0x1234
driver -> ../../../bus/pci/drivers/xhci_hcd
iommu_group -> ../../../kernel/iommu_groups/4
";

fn device(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nearmetal")).arg("device").args(arguments).output().unwrap()
}

fn list(more: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    unpack(TREE, directory.path()).unwrap();
    let path = directory.path().to_str().unwrap().to_owned();
    let output = device(&[&["list", "--capture", &path], more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_capture_shows_what_could_be_given_away_by_node_and_why_not_the_rest() {
    let text = list(&[]);
    let order: Vec<usize> =
        ["NODE 0", "NODE 1", "NODE UNKNOWN"].iter().map(|title| text.find(title).unwrap()).collect();
    assert!(order.is_sorted(), "{text}");
    for line in [
        "0000:20:00.0: the host's root file system is on `nvme0n1p1`",
        "0000:10:00.0: the host's default route leads through `br0`, and `eth0` is a port of it",
        "0000:10:00.0: it has 1 virtual functions",
        "0000:30:00.0: its IOMMU group 4 is shared with 0000:30:00.1 (xhci_hcd)",
        "0000:30:00.0: the kernel knows no way to reset it",
    ] {
        assert!(text.contains(line), "`{line}` is not in:\n{text}");
    }
    let row = text.lines().find(|line| line.contains("VF 0 0000:10:00.1")).unwrap();
    assert!(row.trim_end().ends_with("yes") && row.contains("DMA-FQ"), "{row}");
}

#[test]
fn the_list_is_narrowed_and_made_for_programs() {
    let free = list(&["--free"]);
    assert!(free.contains("0000:10:00.1") && !free.contains("0000:20:00.0"), "{free}");
    assert!(list(&["--free", "--node", "0"]).contains("none of 4 functions matches"));
    let document: Value = serde_json::from_str(&list(&["--format", "json"])).unwrap();
    assert_eq!(document["schema"], "nearmetal.devices/1");
    let devices = document["devices"].as_array().unwrap();
    let card = devices.iter().find(|one| one["function"] == "0000:10:00.0").unwrap();
    assert_eq!((&card["free"], &card["obstacles"][0]["kind"]), (&Value::Bool(false), &"default-route".into()));
    assert!(card["reasons"][0].as_str().unwrap().contains("default route"), "{card}");
}

#[test]
fn wrong_words_are_wrong_use() {
    for arguments in [
        &["vfs", "eth0"][..],
        &["vfs", "eth0", "-1"],
        &["vfs", "eth0", "2", "--mac-base", "01:00:00:00:00:01"],
        &["vfs", "eth0", "2", "--vlan", "4095"],
        &["vfs", "eth0", "2", "--trust", "yes"],
        &["vfs", "eth0", "2", "--keep-driver", "--no-autoprobe"],
        &["bind", "0000:10:00.0", "uio_pci_generic"],
        &["release"],
        &["list", "--capture", "/no/such/capture"],
    ] {
        assert_eq!(device(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
