//! Archives as people send them, and as nobody should open them.

use std::io::Write;

use nearmetal_host::{Host, HostFs, ReadError};

use super::*;
use crate::{from_bytes, write};

/// A tar made by hand, header by header: the crate's writer refuses what hostile archives hold.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn entry(mut self, path: &str, kind: u8, link: &str, data: &[u8]) -> Self {
        let mut header = [0u8; 512];
        header[..path.len()].copy_from_slice(path.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", data.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[148..156].copy_from_slice(b"        ");
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, path: &str, text: &str) -> Self {
        self.entry(path, b'0', "", text.as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn small() -> Vec<u8> {
    Tar::default()
        .entry("any name/", b'5', "", b"")
        .file("any name/sys/devices/system/cpu/online", "0-1\n\0\0\0")
        .entry("any name/sys/class/block/sda", b'2', "../../devices/pci0000:00/sda", b"")
        .file("any name/sys/devices/pci0000:00/sda/size", "8\n")
        .entry("any name/proc/version", b'1', "any name/sys/devices/pci0000:00/sda/size", b"")
        .entry("any name/dev/null", b'3', "", b"")
        .end()
}

fn host(data: &[u8]) -> HostFs {
    from_bytes("test", data).unwrap()
}

#[test]
fn a_tar_reads_whatever_its_folder_is_called() {
    let fs = host(&small());
    assert_eq!(fs.read("/sys/devices/system/cpu/online").unwrap(), "0-1\n", "NUL padding is dropped");
    assert_eq!(fs.read("/sys/class/block/sda/size").unwrap(), "8\n");
    assert_eq!(fs.read("/proc/version").unwrap(), "8\n", "a hard link is the file it links to");
    assert!(matches!(fs.read("/dev/null"), Err(ReadError::Unreadable { .. })), "no device is made");
    assert_eq!(fs.describe(), "test");
}

#[test]
fn all_five_compressions_give_the_same_host() {
    let plain = small();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&plain).unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let two_frames: Vec<u8> = plain
        .chunks(700)
        .flat_map(|part| ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest))
        .collect();
    let xz = include_bytes!("../../tests/data/small.tar.xz").to_vec();
    let expected = Host::read(&host(&plain));
    for (name, data) in [
        ("gzip", gzip.finish().unwrap()),
        ("bzip2", bzip2.finish().unwrap()),
        ("zstd", zstd),
        ("zstd in frames", two_frames),
        ("xz", xz),
    ] {
        assert_eq!(Host::read(&host(&data)), expected, "{name}");
    }
}

#[test]
fn paths_that_lead_out_are_refused() {
    for path in ["/etc/passwd", "../etc/passwd", "x/../../etc/passwd", "x/sys/../../../y"] {
        let data = Tar::default().file("x/sys/a", "1").file(path, "2").end();
        let error = from_bytes("mail.tar", &data).unwrap_err();
        assert!(matches!(error, CaptureError::Tree { .. }), "{path}: {error}");
    }
}

#[test]
fn links_that_lead_out_are_links_and_lead_nowhere() {
    let data = Tar::default()
        .entry("x/sys/out", b'2', "/etc/passwd", b"")
        .entry("x/sys/up", b'2', "../../../../etc/passwd", b"")
        .entry("x/sys/below", b'2', "/etc", b"")
        .entry("x/proc/hard", b'1', "/etc/passwd", b"")
        .end();
    let fs = host(&data);
    assert_eq!(fs.link_target("/sys/out").unwrap(), "/etc/passwd");
    for path in ["/sys/out", "/sys/up", "/sys/below/passwd", "/proc/hard"] {
        assert!(fs.read(path).is_err(), "{path}");
    }
    // Written through a link: `tar` itself once followed it.
    let data = Tar::default().entry("x/sys/up", b'2', "/tmp", b"").file("x/sys/up/file", "1").end();
    assert!(matches!(from_bytes("mail.tar", &data), Err(CaptureError::Tree { .. })));
}

#[test]
fn a_cut_or_scribbled_archive_is_an_error_and_no_panic() {
    let plain = small();
    for length in (0..plain.len() - 1024).step_by(97) {
        let _ = from_bytes("cut", &plain[..length]).map(|fs| Host::read(&fs));
    }
    assert!(matches!(
        from_bytes("cut", &plain[..600]),
        Err(CaptureError::Archive { .. } | CaptureError::Format { .. })
    ));
    for at in 0..plain.len() {
        let mut damaged = plain.clone();
        damaged[at] ^= 0xff;
        let _ = from_bytes("damaged", &damaged).map(|fs| Host::read(&fs));
    }
    for junk in [&b""[..], b"hello", &[0; 2048], &[0xff; 2048]] {
        assert!(matches!(from_bytes("junk", junk), Err(CaptureError::Format { .. } | CaptureError::Archive { .. })));
    }
}

#[test]
fn a_file_that_claims_to_be_huge_is_not_believed() {
    let mut data = Tar::default().file("x/sys/big", "1").end();
    data[124..135].copy_from_slice(b"77777777777");
    data[148..156].copy_from_slice(b"        ");
    let sum: u32 = data[..512].iter().map(|byte| u32::from(*byte)).sum();
    data[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    assert!(from_bytes("huge", &data).is_err());
}

#[test]
fn a_capture_reads_back_with_what_could_not_be_read() {
    let mut tree = MemoryTree::new();
    let long = format!("/sys/devices/{}/size", "a-very-long-name".repeat(12));
    for (path, entry) in [
        ("/sys/class/net/eth0", Entry::Link("../../devices/net/eth0".to_owned())),
        ("/sys/devices/net/eth0/speed", Entry::Failed("Invalid argument (os error 22)".to_owned())),
        ("/proc/9/smaps", Entry::Denied),
        ("/sys/empty", Entry::Directory),
        (long.as_str(), Entry::File(b"1\n".to_vec())),
    ] {
        tree.put(path, entry).unwrap();
    }
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    write(&tree, false, &mut once).unwrap();
    write(&tree, false, &mut twice).unwrap();
    assert_eq!(once, twice, "the same tree gives the same bytes");
    let fs = host(&once);
    assert!(matches!(fs.read("/proc/9/smaps"), Err(ReadError::Denied { .. })));
    assert!(fs.read("/sys/class/net/eth0/speed").unwrap_err().to_string().contains("Invalid argument"));
    assert_eq!(fs.read(&long).unwrap(), "1\n");
    assert_eq!(fs.list("/sys/empty").unwrap(), [""; 0]);
    assert!(fs.read("/about.txt").unwrap().contains("are masked"));
}
