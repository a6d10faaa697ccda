//! KVM's own counts of a virtual processor (binary statistics, Documentation/virt/kvm/api.rst, 4.132, Linux 5.14):
//! how often it exited, and how many instructions KVM emulated.
#![allow(unsafe_code, reason = "the ioctl that opens the statistics has no wrapper in kvm-ioctls")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use kvm_ioctls::VcpuFd;

/// `_IO(KVMIO, 0xce)`, include/uapi/linux/kvm.h.
const KVM_GET_STATS_FD: libc::c_ulong = 0xaece;
/// Bytes of `struct kvm_stats_desc` without its name.
const DESCRIPTOR_BYTES: usize = 16;
/// The kernel's file is some 10 KiB; more is not read.
const FILE_LIMIT: usize = 256 << 10;

/// Counts since the processor was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Exits from guest code to KVM.
    pub exits: u64,
    /// Instructions KVM emulated.
    pub emulated: u64,
}

impl Counts {
    /// What was counted since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            exits: self.exits.saturating_sub(earlier.exits),
            emulated: self.emulated.saturating_sub(earlier.emulated),
        }
    }
}

/// The open statistics of one virtual processor.
#[derive(Debug)]
pub struct Counters {
    file: OwnedFd,
    places: Places,
}

/// Offsets of the two counts in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    exits: u64,
    emulated: u64,
}

impl Counters {
    /// Opens the statistics; `None` where this KVM has none, or not these.
    pub fn open(processor: &VcpuFd) -> Option<Self> {
        // SAFETY: the ioctl takes no argument and returns a new file descriptor or a negative number.
        let descriptor = unsafe { libc::ioctl(processor.as_raw_fd(), KVM_GET_STATS_FD as _) };
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor is new and owned by nothing else.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let mut text = vec![0u8; FILE_LIMIT];
        let length = rustix::io::pread(&file, &mut text, 0).ok()?;
        let places = places(text.get(..length)?)?;
        Some(Self { file, places })
    }

    /// The counts now.
    pub fn read(&self) -> Option<Counts> {
        let at = |offset| {
            let mut word = [0u8; 8];
            let length = rustix::io::pread(&self.file, &mut word, offset).ok()?;
            (length == word.len()).then(|| u64::from_ne_bytes(word))
        };
        Some(Counts { exits: at(self.places.exits)?, emulated: at(self.places.emulated)? })
    }
}

/// Finds the two counts in the file's header and descriptors.
pub fn places(file: &[u8]) -> Option<Places> {
    let number = |offset: usize| {
        let bytes = file.get(offset..offset.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let name_bytes = number(4)? as usize;
    let descriptors = number(8)? as usize;
    let first = number(16)? as usize;
    let data = u64::from(number(20)?);
    let place = |wanted: &str| {
        (0..descriptors.min(FILE_LIMIT)).find_map(|index| {
            let start = first.checked_add(index.checked_mul(name_bytes.checked_add(DESCRIPTOR_BYTES)?)?)?;
            let name_start = start.checked_add(DESCRIPTOR_BYTES)?;
            let name = file.get(name_start..name_start.checked_add(name_bytes)?)?;
            let name = name.split(|byte| *byte == 0).next()?;
            (name == wanted.as_bytes()).then(|| number(start + 8))?.map(|offset| data + u64::from(offset))
        })
    };
    Some(Places { exits: place("exits")?, emulated: place("insn_emulation")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(names: &[(&str, u32)]) -> Vec<u8> {
        let numbers = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
        let mut file = numbers(&[0, 48, names.len() as u32, 24, 24, 4096]);
        for (name, offset) in names {
            // flags, exponent and size, offset, bucket size
            file.extend(numbers(&[0, 1 << 16, *offset, 0]));
            let mut padded = name.as_bytes().to_vec();
            padded.resize(48, 0);
            file.extend(padded);
        }
        file
    }

    #[test]
    fn the_two_counts_are_found_by_name() {
        let text = file(&[("pf_taken", 0), ("exits", 56), ("exits_other", 60), ("insn_emulation", 160)]);
        assert_eq!(places(&text), Some(Places { exits: 4152, emulated: 4256 }));
        assert_eq!(places(&file(&[("exits", 0)])), None);
        assert_eq!(places(&text[..100]), None);
    }

    proptest! {
        #[test]
        fn no_file_panics(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = places(&text);
        }
    }
}
