use super::*;
use std::os::unix::fs::{FileExt, MetadataExt};

const UUID: &str = "11111111-2222-4333-8444-555555555555";

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn data(user_data: &[u8]) -> UserData {
    UserData { user_data: user_data.to_vec(), meta_data: None }
}

#[test]
fn files_of_the_user_are_read_whatever_they_are_called_and_no_further_than_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["-i", "a\nb", "x=y", "$(touch x)", "::user-data"] {
        let path = directory.path().join(name);
        files::write(&path, "#cloud-config\n").unwrap();
        assert_eq!(UserData::read(&path, None).unwrap(), data(b"#cloud-config\n"));
    }
    let path = directory.path().join("long");
    files::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let refused = UserData::read(&path, None).unwrap_err();
    assert!(matches!(&refused, RunError::File(error) if error.source.to_string() == "longer than 1048576 bytes"));
    assert!(refused.is_wrong_use());
    let missing = UserData::read(&directory.path().join("missing"), None).unwrap_err();
    assert!(missing.is_wrong_use() && missing.to_string().contains("missing"), "{missing}");
    let meta = directory.path().join("meta");
    files::write(&meta, "instance-id: x\n").unwrap();
    let refused = UserData::read(&directory.path().join("-i"), Some(&meta)).unwrap_err();
    assert!(refused.is_wrong_use() && refused.to_string().contains("every run has an `instance-id`"), "{refused}");
}

/// What FAT says (ECMA-107): the boot sector's fields, and a file's bytes by its chain of clusters. Written here so that another
/// program than the one that made the disk reads it, wherever the tests run.
fn read_fat12(image: &[u8]) -> Vec<(String, Vec<u8>)> {
    let number = |at: usize| usize::from(image[at]) | usize::from(image[at + 1]) << 8;
    let (sector, cluster, reserved) = (number(11), usize::from(image[13]), number(14));
    let (fats, entries, fat_sectors) = (usize::from(image[16]), number(17), number(22));
    let root = (reserved + fats * fat_sectors) * sector;
    let clusters = root + entries * 32;
    let next = |at: usize| {
        let pair = number(reserved * sector + at + at / 2);
        if at % 2 == 0 { pair & 0xfff } else { pair >> 4 }
    };
    let (mut found, mut long) = (Vec::new(), String::new());
    for entry in image[root..clusters].chunks(32).take_while(|entry| entry[0] != 0) {
        if entry[11] == 0x0f {
            // A part of a long name in UTF-16; the last part comes first.
            let units = [&entry[1..11], &entry[14..26], &entry[28..32]].concat();
            let units: Vec<u16> = units.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
            let part = units.iter().take_while(|unit| **unit != 0).map(|unit| char::from(*unit as u8));
            long = part.chain(long.chars()).collect();
            continue;
        }
        let name = std::mem::take(&mut long);
        if entry[11] & 0x08 != 0 {
            found.push((format!("label {}", String::from_utf8_lossy(&entry[..11]).trim()), Vec::new()));
            continue;
        }
        let length = u32::from_le_bytes([entry[28], entry[29], entry[30], entry[31]]) as usize;
        let mut at = usize::from(u16::from_le_bytes([entry[26], entry[27]]));
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let begin = clusters + (at - 2) * cluster * sector;
            bytes.extend_from_slice(&image[begin..begin + cluster * sector]);
            at = next(at);
        }
        bytes.truncate(length);
        found.push((name, bytes));
    }
    found
}

#[test]
fn the_disk_holds_what_was_given_byte_by_byte_and_has_no_name() {
    if !is_there("mformat") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let largest: Vec<u8> = (0..1_u32 << 20).map(|byte| (byte * 7 + (byte >> 9)) as u8).collect();
    for given in [b"#cloud-config\n".as_slice(), b"\x1f\x8b\0not text\r\n\x1a", b"", &largest] {
        let seed = make(directory.path(), &data(given), "run-job-1", UUID).unwrap();
        assert!(files::list(directory.path()).unwrap().is_empty());
        let about = seed.metadata().unwrap();
        assert_eq!((about.nlink(), about.size()), (0, SIZE.get()));
        let mut image = vec![0; SIZE.get() as usize];
        seed.read_exact_at(&mut image, 0).unwrap();
        let meta_data = format!("instance-id: {UUID}\nlocal-hostname: run-job-1\n").into_bytes();
        let wanted = [("label CIDATA", Vec::new()), ("user-data", given.to_vec()), ("meta-data", meta_data)];
        let found = read_fat12(&image);
        assert!(
            found
                .iter()
                .map(|(name, bytes)| (name.as_str(), bytes))
                .eq(wanted.iter().map(|(name, bytes)| (*name, bytes)))
        );
        if is_there("blkid") {
            let asked = Command::new("blkid").args(["-p", "-o", "export"]).arg(path_of(&seed)).output().unwrap();
            let said = String::from_utf8(asked.stdout).unwrap();
            for line in ["LABEL=CIDATA", "TYPE=vfat"] {
                assert!(said.lines().any(|said| said == line), "{line}: {said}");
            }
        }
    }
}

#[test]
fn a_program_that_is_missing_or_refuses_is_told_with_what_to_do() {
    assert_eq!(mtools("nearmetal-mformat", &[]).unwrap_err(), "`nearmetal-mformat` is missing: apt install mtools");
    let refused = mtools("false", &[]).unwrap_err();
    assert!(refused.contains("`false` ended with exit status: 1"), "{refused}");
}

#[test]
fn a_definition_without_the_disk_or_with_one_to_write_to_is_found() {
    let disk = "<disk type='file' device='disk'><source file='/x'/><target dev='vdb' bus='virtio'/><readonly/></disk>";
    let look = |disk: &str| {
        let head = "<domain type='kvm'><name>run-job-1</name><memory>1</memory><vcpu>1</vcpu>";
        in_definition(&format!("{head}<devices>{disk}</devices></domain>"), "vdb")
    };
    look(disk).unwrap();
    for (disk, says) in [("", "no such disk"), (&disk.replace("<readonly/>", ""), "may write"), ("<", "found ")] {
        let found = look(disk).unwrap_err();
        assert!(found.contains(says) && found.contains("(vdb): planned"), "{found}");
    }
}
