//! The header of a qcow2 image (docs/interop/qcow2.rst of QEMU): its length, its backing file, and what else it leans on.

/// The longest name that QEMU writes.
const MOST_NAME: usize = 1023;
/// Bytes of a file's beginning in which the name lies: QEMU keeps it inside the first cluster, of 2 MiB at most.
pub(crate) const HEAD: usize = 2 << 20;

/// Why the backing file of a qcow2 image is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Qcow2Error {
    #[error("the header of the qcow2 image is cut off")]
    Short,
    #[error("the name of its backing file has {0} bytes, and {MOST_NAME} is QEMU's limit")]
    Long(usize),
}

/// What the header of a qcow2 image says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// The backing file it names.
    pub(crate) backing: Option<String>,
    /// Length of the disk that a guest sees, in bytes.
    pub(crate) disk: u64,
    /// Whether its data is in another file (incompatible feature 2).
    pub(crate) data_elsewhere: bool,
    /// Whether it is encrypted.
    pub(crate) encrypted: bool,
}

/// Reads the beginning of a file; `None` if it is not qcow2.
pub(crate) fn header(head: &[u8]) -> Result<Option<Header>, Qcow2Error> {
    let backing = backing(head)?;
    if head.get(..4) != Some(b"QFI\xfb") {
        return Ok(None);
    }
    let fixed = head.get(..72).ok_or(Qcow2Error::Short)?;
    // Version 2 has no features.
    let features = if big(&fixed[4..8]) < 3 { 0 } else { big(head.get(72..80).ok_or(Qcow2Error::Short)?) };
    Ok(Some(Header {
        backing,
        disk: big(&fixed[24..32]),
        data_elsewhere: features & 4 != 0,
        encrypted: big(&fixed[32..36]) != 0,
    }))
}

fn big(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// The backing file that an image names; `None` if it names none, or is not qcow2.
pub(crate) fn backing(head: &[u8]) -> Result<Option<String>, Qcow2Error> {
    if head.get(..4) != Some(b"QFI\xfb") {
        return Ok(None);
    }
    let header = head.get(..20).ok_or(Qcow2Error::Short)?;
    let (offset, size) = (big(&header[8..16]), big(&header[16..20]) as usize);
    if offset == 0 || size == 0 {
        return Ok(None);
    }
    if size > MOST_NAME {
        return Err(Qcow2Error::Long(size));
    }
    let begin = usize::try_from(offset).map_err(|_| Qcow2Error::Short)?;
    let name = begin.checked_add(size).and_then(|end| head.get(begin..end)).ok_or(Qcow2Error::Short)?;
    Ok(Some(String::from_utf8_lossy(name).into_owned()))
}

/// A header of version 3 with a backing file, for tests and the fuzzer.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn sample(name: &str) -> Vec<u8> {
    let mut head = b"QFI\xfb\0\0\0\x03".to_vec();
    head.extend_from_slice(&112_u64.to_be_bytes());
    head.extend_from_slice(&(name.len() as u32).to_be_bytes());
    head.resize(112, 0);
    head.extend_from_slice(name.as_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_backing_file_is_read_and_other_formats_have_none() {
        assert_eq!(backing(&sample("/base.qcow2")), Ok(Some("/base.qcow2".to_owned())));
        assert_eq!(backing(b"raw bytes of a disk"), Ok(None));
        assert_eq!(backing(b""), Ok(None));
        assert_eq!(backing(&sample("")), Ok(None));
    }

    #[test]
    fn length_encryption_and_a_data_file_are_read() {
        let mut head = sample("");
        head[24..32].copy_from_slice(&(5_u64 << 30).to_be_bytes());
        let plain = Header { backing: None, disk: 5 << 30, data_elsewhere: false, encrypted: false };
        assert_eq!(header(&head), Ok(Some(plain.clone())));
        (head[79], head[35]) = (4, 2);
        assert_eq!(header(&head), Ok(Some(Header { data_elsewhere: true, encrypted: true, ..plain })));
        assert_eq!(header(b"raw"), Ok(None));
        assert_eq!(header(&head[..60]), Err(Qcow2Error::Short));
    }

    #[test]
    fn a_header_that_points_behind_its_end_is_refused() {
        assert_eq!(backing(&sample("/base")[..115]), Err(Qcow2Error::Short));
        let mut long = sample("/base");
        long[16..20].fill(0xff);
        assert!(matches!(backing(&long), Err(Qcow2Error::Long(_))));
        let mut far = sample("/base");
        far[8..16].fill(0xff);
        assert_eq!(backing(&far), Err(Qcow2Error::Short));
    }

    proptest! {
        #[test]
        fn no_header_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [b"QFI\xfb".to_vec(), bytes].concat();
            let _ = (backing(&bytes), header(&bytes));
        }
    }
}
