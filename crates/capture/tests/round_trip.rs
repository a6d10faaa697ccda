//! A capture gives the model it was made from.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::Path;

use nearmetal_capture::{collect, from_bytes, open, write};
use nearmetal_host::{Entry, Host, HostFs, MemoryTree, files, ledger, tree_text};
use tempfile::TempDir;

/// Every fixture of the host crate, unpacked: one text file each, as its README says.
fn fixtures() -> Vec<TempDir> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
    let texts = files::list(&root).unwrap().into_iter().map(|path| path.join("tree.txt")).filter(|path| path.exists());
    texts
        .map(|path| {
            let tree = tempfile::tempdir().unwrap();
            tree_text::unpack(&files::read_to_string(&path).unwrap(), tree.path()).unwrap();
            tree
        })
        .collect()
}

fn through_a_file(fs: HostFs, unmasked: bool) -> (Host, Host) {
    let (tree, before) = collect(fs, unmasked).unwrap();
    let mut bytes = Vec::new();
    write(&tree, unmasked, &mut bytes).unwrap();
    let fs = from_bytes("capture", &bytes).unwrap();
    (before, Host::read(&fs))
}

fn same(before: &Host, after: &Host) {
    assert_eq!(Host { source: String::new(), ..before.clone() }, Host { source: String::new(), ..after.clone() });
}

#[test]
fn every_fixture_survives_a_capture() {
    assert!(!fixtures().is_empty());
    for tree in fixtures() {
        let path = tree.path();
        let (before, after) = through_a_file(HostFs::at(path).unwrap(), false);
        same(&before, &after);
        same(&Host::read(&open(path).unwrap()), &after);
        // A capture of a capture is the same again.
        let (_, again) = through_a_file(open(path).unwrap(), true);
        same(&before, &again);
    }
}

#[test]
fn what_could_not_be_read_is_told_in_the_capture_too() {
    let mut tree = MemoryTree::new();
    let cpu = "/sys/devices/system/cpu/cpu0/topology";
    for (path, entry) in [
        ("/sys/devices/system/cpu/online", Entry::File(b"0\n".to_vec())),
        (&format!("{cpu}/physical_package_id"), Entry::Denied),
        (&format!("{cpu}/core_id"), Entry::Failed("Input/output error (os error 5)".to_owned())),
        (&format!("{cpu}/core_cpus_list"), Entry::File(b"junk\n".to_vec())),
        ("/sys/class/net/eth0", Entry::Link("../../../../../etc".to_owned())),
        ("/sys/class/block/sda", Entry::Link("../../devices/gone".to_owned())),
    ] {
        tree.put(path, entry).unwrap();
    }
    let (before, after) = through_a_file(HostFs::of_tree(tree, "odd"), false);
    assert_eq!(before.denied, [format!("{cpu}/physical_package_id")]);
    assert!(before.unreadable.len() >= 3, "{:?}", before.unreadable);
    same(&before, &after);
}

#[test]
fn facts_outside_sys_and_proc_and_what_is_not_there_are_in_the_capture() {
    let mut tree = MemoryTree::new();
    for (path, entry) in [
        ("/sys/devices/system/cpu/online", Entry::File(b"0\n".to_vec())),
        ("/proc/sys/net/ipv4", Entry::Directory),
        ("/proc/self", Entry::Link("77".to_owned())),
        ("/proc/77/mountinfo", Entry::File(b"27 1 253:0 / / rw shared:1 - xfs /dev/dm-0 rw\n".to_vec())),
        ("/dev/cpu_dma_latency", Entry::File(3i32.to_ne_bytes().to_vec())),
        ("/etc/tuned/active_profile", Entry::File(b"virtual-host\n".to_vec())),
    ] {
        tree.put(path, entry).unwrap();
    }
    let (before, after) = through_a_file(HostFs::of_tree(tree.clone(), "all"), false);
    assert_eq!((before.system.idle_latency_limit, before.mounts.as_ref().unwrap().len()), (Some(3), 1));
    assert_eq!(before.system.bridge_filters, Some(Vec::new()));
    same(&before, &after);
    tree.remove("/etc/tuned/active_profile");
    tree.remove("/etc/tuned");
    let (before, after) = through_a_file(HostFs::of_tree(tree, "no tuned"), false);
    assert_eq!(before.system.tuned, Some(nearmetal_host::TunedProfile::Absent));
    same(&before, &after);
}

#[test]
fn who_holds_which_function_is_in_the_capture() {
    let mut tree = MemoryTree::new();
    let file = |text: &str| Entry::File(text.as_bytes().to_vec());
    let link = |target: &str| Entry::Link(target.to_owned());
    let function = "/sys/bus/pci/devices/0000:41:00.1";
    for (path, entry) in [
        ("/proc/9/cmdline", file("qemu-system-x86_64\0-name\0guest=db\0")),
        ("/proc/9/task/9/comm", file("qemu-system-x86\n")),
        ("/proc/9/fd/7", link("/dev/vfio/devices/vfio3")),
        ("/proc/9/fdinfo/7", file("flags:\t02\n")),
        ("/proc/9/fd/8", link("socket:[4711]")),
        ("/proc/9/fdinfo/8", file("flags:\t02\n")),
        (&format!("{function}/class"), file("0x020000\n")),
        (&format!("{function}/vendor"), file("0x8086\n")),
        (&format!("{function}/device"), file("0x10ca\n")),
        (&format!("{function}/driver"), link("../../../../bus/pci/drivers/vfio-pci")),
        (&format!("{function}/iommu_group"), link("../../../../kernel/iommu_groups/17")),
        (&format!("{function}/vfio-dev/vfio3/dev"), file("511:3\n")),
    ] {
        tree.put(path, entry).unwrap();
    }
    let held = |fs: &HostFs| {
        let ledger = ledger::read(fs, &Host::read(fs));
        assert_eq!(ledger.unseen, []);
        ledger.held_by(9).map(|function| function.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(held(&HostFs::of_tree(tree.clone(), "machine")), ["0000:41:00.1"]);
    let (captured, _) = collect(HostFs::of_tree(tree, "machine"), false).unwrap();
    let mut bytes = Vec::new();
    write(&captured, false, &mut bytes).unwrap();
    assert_eq!(held(&from_bytes("capture", &bytes).unwrap()), ["0000:41:00.1"]);
}

#[test]
fn a_directory_with_one_folder_of_any_name_is_opened() {
    let outer = tempfile::tempdir().unwrap();
    nearmetal_host::files::create_dir_all(&outer.path().join("whatever/sys/devices")).unwrap();
    assert!(open(outer.path()).is_ok());
    nearmetal_host::files::create_dir_all(&outer.path().join("another")).unwrap();
    assert!(open(outer.path()).is_err(), "two folders: nobody knows which");
    assert!(open(&outer.path().join("nothing")).unwrap_err().to_string().contains("nothing"));
}
