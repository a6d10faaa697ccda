//! The gate, on trees built file by file.
#![allow(clippy::disallowed_methods, reason = "tests build the trees that HostFs reads")]

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("sys/devices/pci0000:00/0000:00:05.0")).unwrap();
    fs::create_dir_all(tree.path().join("sys/class/block")).unwrap();
    fs::create_dir_all(tree.path().join("proc")).unwrap();
    tree
}

#[test]
fn a_relative_link_inside_the_tree_works() {
    let tree = tree();
    fs::write(tree.path().join("sys/devices/pci0000:00/0000:00:05.0/vendor"), "0x8086\n\0\0\0").unwrap();
    symlink("../../devices/pci0000:00/0000:00:05.0", tree.path().join("sys/class/block/sda")).unwrap();
    let fs = HostFs::at(tree.path()).unwrap();
    assert_eq!(fs.read("/sys/class/block/sda/vendor").unwrap(), "0x8086\n");
    assert_eq!(fs.resolve("/sys/class/block/sda").unwrap(), "/sys/devices/pci0000:00/0000:00:05.0");
    assert_eq!(fs.link_name("/sys/class/block/sda").unwrap(), "0000:00:05.0");
    assert!(matches!(fs.link_target("/sys/class/block"), Err(ReadError::Missing { .. })));
    assert_eq!(fs.list("/sys").unwrap(), ["class", "devices"]);
}

#[test]
fn links_out_of_the_tree_are_refused() {
    let tree = tree();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret\n").unwrap();
    let secret = outside.path().join("secret");
    symlink(&secret, tree.path().join("sys/absolute")).unwrap();
    symlink(format!("../../../../../../../..{}", secret.display()), tree.path().join("sys/relative")).unwrap();
    symlink(outside.path(), tree.path().join("sys/directory")).unwrap();
    symlink("circle", tree.path().join("sys/circle")).unwrap();
    symlink("nowhere", tree.path().join("sys/dangling")).unwrap();
    let fs = HostFs::at(tree.path()).unwrap();
    for name in ["absolute", "relative", "directory/secret", "circle", "dangling"] {
        let error = fs.read(&format!("/sys/{name}")).unwrap_err();
        assert!(matches!(error, ReadError::Unreadable { .. }), "{name}: {error}");
    }
    for name in ["absolute", "relative", "circle"] {
        assert!(fs.resolve(&format!("/sys/{name}")).is_err(), "{name}");
    }
    assert!(fs.read(&format!("/sys/../..{}", secret.display())).is_err());
    assert!(matches!(fs.read("/sys/nothing"), Err(ReadError::Missing { .. })));
    assert!(fs.read("sys/relative-path").is_err());
}

#[test]
fn odd_files_are_reported_not_waited_for() {
    let tree = tree();
    let fifo = tree.path().join("sys/fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::write(tree.path().join("sys/binary"), [0xff, 0xfe, b'\n']).unwrap();
    let fs = HostFs::at(tree.path()).unwrap();
    for path in ["/sys/fifo", "/sys/class", "/sys/binary"] {
        assert!(matches!(fs.read(path), Err(ReadError::Unreadable { .. })), "{path}");
    }
}

#[test]
fn a_capture_refuses_writes_loudly() {
    let tree = tree();
    fs::write(tree.path().join("sys/nr_hugepages"), "0\n").unwrap();
    let fs = HostFs::at(tree.path()).unwrap();
    let error = fs.write("/sys/nr_hugepages", "8").unwrap_err().to_string();
    assert!(error.contains("nr_hugepages") && error.contains("capture"), "{error}");
    assert_eq!(fs.read("/sys/nr_hugepages").unwrap(), "0\n");
}

#[test]
fn live_writes_stay_in_the_kernels_trees() {
    for path in ["/etc/passwd", "/sys/../etc/passwd", "etc"] {
        assert!(matches!(HostFs::live().write(path, "x"), Err(WriteError::Outside { .. })), "{path}");
    }
}

#[test]
fn a_directory_that_is_no_capture_is_refused() {
    let empty = tempfile::tempdir().unwrap();
    assert!(HostFs::at(empty.path()).unwrap_err().to_string().contains("neither"));
    assert!(matches!(HostFs::at(empty.path().join("none")), Err(ReadError::Missing { .. })));
}

#[test]
fn names_sort_by_the_numbers_in_them() {
    let mut names = ["cpu10", "cpu2", "cpu", "cpu1", "0000:00:10.0", "0000:00:02.0"];
    names.sort_by_key(|name| natural_key(name));
    assert_eq!(names, ["0000:00:02.0", "0000:00:10.0", "cpu", "cpu1", "cpu2", "cpu10"]);
}

#[test]
fn a_tree_in_memory_answers_as_a_directory_does() {
    let on_disk = tree();
    let mut in_memory = MemoryTree::new();
    in_memory.put("/proc", Entry::Directory).unwrap();
    in_memory.put("/sys/devices/pci0000:00/0000:00:05.0", Entry::Directory).unwrap();
    in_memory.put("/sys/class/block", Entry::Directory).unwrap();
    for (path, text) in [("sys/devices/pci0000:00/0000:00:05.0/vendor", "0x8086\n\0\0"), ("sys/binary", "\u{1}x")] {
        fs::write(on_disk.path().join(path), text).unwrap();
        in_memory.put(path, Entry::File(text.as_bytes().to_vec())).unwrap();
    }
    for (path, target) in [
        ("sys/class/block/sda", "../../devices/pci0000:00/0000:00:05.0"),
        ("sys/out", "../../../etc/passwd"),
        ("sys/absolute", "/etc/passwd"),
        ("sys/circle", "circle"),
        ("sys/dangling", "nowhere"),
    ] {
        symlink(target, on_disk.path().join(path)).unwrap();
        in_memory.put(path, Entry::Link(target.to_owned())).unwrap();
    }
    let (disk, memory) = (HostFs::at(on_disk.path()).unwrap(), HostFs::of_tree(in_memory, "memory"));
    for path in [
        "/sys",
        "/sys/class/block/sda",
        "/sys/class/block/sda/.",
        "/sys/class/block/sda/vendor",
        "/sys/class/block/sda/vendor/x",
        "/sys/binary",
        "/sys/out",
        "/sys/absolute",
        "/sys/circle",
        "/sys/dangling",
        "/sys/dangling/x",
        "/sys/nothing",
        "/sys/../proc",
        "/sys/../../etc/passwd",
        "sys",
    ] {
        assert_eq!(disk.read(path), memory.read(path), "{path}");
        assert_eq!(disk.read_head(path, 3), memory.read_head(path, 3), "{path}");
        assert_eq!(disk.list(path), memory.list(path), "{path}");
        assert_eq!(disk.link_target(path).ok(), memory.link_target(path).ok(), "{path}");
        assert_eq!(disk.resolve(path).ok(), memory.resolve(path).ok(), "{path}");
        assert_eq!(disk.exists(path), memory.exists(path), "{path}");
    }
    assert!(matches!(memory.write("/sys/binary", "1"), Err(WriteError::Capture { .. })));
}

#[test]
fn what_could_not_be_read_cannot_be_read_in_its_record_either() {
    let mut tree = MemoryTree::new();
    tree.put("/sys/secret", Entry::Denied).unwrap();
    tree.put("/sys/speed", Entry::Failed("Invalid argument (os error 22)".to_owned())).unwrap();
    let fs = HostFs::of_tree(tree, "record");
    assert!(matches!(fs.read("/sys/secret"), Err(ReadError::Denied { .. })));
    assert!(fs.exists("/sys/secret") && fs.exists("/sys/speed"));
    assert!(fs.read("/sys/speed").unwrap_err().to_string().contains("Invalid argument"));
}
