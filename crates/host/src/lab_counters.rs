//! The counters of a lab whose processors count: a page of memory that the lab's machine sees as a device's.
//!
//! QEMU's ivshmem-plain (docs/specs/ivshmem-spec.rst): PCI 1af4:1110, the memory is BAR 2. What is in it: nearmetal-counters.
#![allow(unsafe_code, reason = "mapping a device's memory, and the instruction that asks for the counts")]

use std::ptr::null_mut;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nearmetal_counters::{CounterError, PAGE_BYTES, Reading, header};
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::{HostFs, ReadError};

/// What a lab's firmware tables (DMI) give as its vendor; the product name is then the machine definition's.
pub const LAB_VENDOR: &str = "nearmetal lab";

pub(crate) const DEVICES: &str = "/sys/bus/pci/devices";
/// Times the page is read before it counts as torn. It is written in microseconds.
const READINGS: u32 = 1000;
/// How long the lab may take to begin to count accesses: what it has translated is forgotten and translated again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks.
const STEP: Duration = Duration::from_millis(20);

/// Why a lab's counters say nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabCountersError {
    /// The device's memory cannot be read.
    #[error(transparent)]
    Device(#[from] ReadError),
    /// The page in it is of no use.
    #[error(transparent)]
    Page(#[from] CounterError),
}

/// The page of a lab that counts.
#[derive(Debug)]
pub(crate) struct LabCounters(Source);

#[derive(Debug)]
enum Source {
    /// Mapped, for as long as this program runs.
    Mapped(*const u64),
    /// A fixture's.
    Copied(Vec<u64>),
}

// SAFETY: the mapping is never undone, and only read.
unsafe impl Send for LabCounters {}
// SAFETY: as above.
unsafe impl Sync for LabCounters {}

impl LabCounters {
    /// The page of this machine; `None` where it is no lab, or a lab that does not count.
    pub(crate) fn find(fs: &HostFs) -> Option<Result<Self, LabCountersError>> {
        let vendor = fs.read("/sys/class/dmi/id/sys_vendor").ok()?;
        if vendor.trim() != LAB_VENDOR {
            return None;
        }
        let is = |device: &String, file: &str, id: &str| {
            fs.read(&format!("{DEVICES}/{device}/{file}")).is_ok_and(|text| text.trim() == id)
        };
        let found = fs
            .list(DEVICES)
            .ok()?
            .into_iter()
            .find(|one| is(one, "vendor", "0x1af4") && is(one, "device", "0x1110"))?;
        Some(Self::open(fs, &format!("{DEVICES}/{found}/resource2")))
    }

    fn open(fs: &HostFs, path: &str) -> Result<Self, LabCountersError> {
        if !fs.is_live() {
            return Ok(Self(Source::Copied(words(&fs.read_bytes(path)?))));
        }
        let failed = |errno| ReadError::from_errno(path, errno);
        let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        // SAFETY: a mapping where the kernel likes; it refuses one that is larger than the device's memory.
        let start = unsafe { mmap(null_mut(), PAGE_BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
        Ok(Self(Source::Mapped(start.map_err(failed)?.cast_const().cast())))
    }

    /// Has the counts written down, and reads them.
    ///
    /// # Errors
    /// Nothing counts, or the page is damaged.
    pub(crate) fn read(&self) -> Result<Reading, LabCountersError> {
        let start = match &self.0 {
            Source::Copied(words) => return Ok(Reading::parse(words)?),
            Source::Mapped(start) => *start,
        };
        // SAFETY: every index asked for is below WORDS, and the mapping has so many.
        let word = |index: usize| unsafe { start.add(index).read_volatile() };
        let before = word(header::SEQUENCE);
        publish();
        let asked = word(header::SEQUENCE) != before;
        for _ in 0..READINGS {
            let sequence = word(header::SEQUENCE);
            let reading = Reading::read(word);
            if reading == Err(CounterError::Torn) || word(header::SEQUENCE) != sequence {
                continue;
            }
            // A page of something else is said to be that, before it is said to stand still.
            return if asked { Ok(reading?) } else { Err(reading.err().unwrap_or(CounterError::Still).into()) };
        }
        Err(CounterError::Torn.into())
    }
}

/// Accesses of a lab's machine to memory are counted while this lives.
#[derive(Debug)]
pub struct LabWatch(());

impl LabCounters {
    /// Has accesses counted; `None`: they are already, and whoever asked for that ends it.
    ///
    /// # Errors
    /// They are not, however often they are asked for, or the page is damaged.
    pub(crate) fn watch(&self) -> Result<Option<LabWatch>, LabCountersError> {
        if self.read()?.watching {
            return Ok(None);
        }
        let began = Instant::now();
        // Asked for again: what another turn-over is under way for is not heard.
        while matches!(self.0, Source::Mapped(_)) && began.elapsed() < PATIENCE {
            watch();
            sleep(STEP);
            if self.read()?.watching {
                return Ok(Some(LabWatch(())));
            }
        }
        Err(CounterError::Unwatched.into())
    }
}

impl HostFs {
    /// What the processors of a lab have counted until now; `None` where nothing of the kind is there.
    ///
    /// # Errors
    /// It is there, and of no use: another version's, damaged, or nothing counts.
    pub fn lab_counters(&self) -> Option<Result<Reading, LabCountersError>> {
        self.ask_lab(LabCounters::read)
    }

    /// Has a lab count accesses to memory until what is returned is dropped; `None` where nothing counts. In it, `None`: they
    /// are counted already, and whoever asked for that ends it.
    ///
    /// # Errors
    /// As [`HostFs::lab_counters`], or it does not begin.
    pub fn watch_lab_memory(&self) -> Option<Result<Option<LabWatch>, LabCountersError>> {
        self.ask_lab(LabCounters::watch)
    }

    fn ask_lab<T>(
        &self,
        what: impl FnOnce(&LabCounters) -> Result<T, LabCountersError>,
    ) -> Option<Result<T, LabCountersError>> {
        let found = self.lab_counters.get_or_init(|| LabCounters::find(self)).as_ref()?;
        Some(found.as_ref().map_err(Clone::clone).and_then(what))
    }
}

impl Drop for LabWatch {
    fn drop(&mut self) {
        unwatch();
    }
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?))).collect()
}

#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_target() -> crate::fuzzing::Target {
    use nearmetal_counters::{Count, empty_page};

    let mut page = empty_page(Count::Locality, 4, 4);
    page[header::GUESTS] = 3;
    let bytes: Vec<u8> = page.into_iter().flat_map(u64::to_le_bytes).collect();
    crate::fuzzing::Target::bytes("counters of a lab", &bytes, |bytes| {
        if let Ok(reading) = Reading::parse(&words(bytes)) {
            let _ = reading.clone().since(&reading);
        }
    })
}

/// A function that executes a NOP whose displacement begins with this byte.
macro_rules! nop {
    ($name:ident, $byte:literal, $what:literal) => {
        #[doc = $what]
        fn $name() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a NOP, on every x86 processor since the Pentium Pro.
            unsafe {
                std::arch::asm!(
                    concat!(".byte 0x0f, 0x1f, 0x80, ", $byte, ", 0x6d, 0x6e, 0x6d"),
                    options(nostack, preserves_flags)
                );
            }
        }
    };
}

nop!(publish, "0x6e", "Executes [`nearmetal_counters::PUBLISH`]: the page is written before the next instruction.");
nop!(watch, "0x77", "Executes [`nearmetal_counters::WATCH`].");
nop!(unwatch, "0x75", "Executes [`nearmetal_counters::UNWATCH`].");

#[cfg(test)]
mod tests {
    use nearmetal_counters::{Count, PUBLISH, Place, UNWATCH, WATCH, WORDS, empty_page, pu_word};

    use super::*;
    use crate::MemoryTree;
    use crate::synthetic::counting_lab;

    fn lab(vendor: &str, words: &[u64]) -> HostFs {
        HostFs::of_tree(counting_lab(vendor, words).unwrap(), "a lab")
    }

    fn page() -> Vec<u64> {
        let mut words = empty_page(Count::Work, 1, 1);
        words[pu_word(0, Place::Instructions)] = 42;
        words
    }

    #[test]
    fn a_lab_that_counts_is_read() {
        let reading = lab(LAB_VENDOR, &page()).lab_counters().unwrap().unwrap();
        assert_eq!(reading.pus[0].instructions, 42);
    }

    #[test]
    fn shared_memory_of_another_machine_is_none_of_our_business() {
        assert!(lab("QEMU", &page()).lab_counters().is_none());
        assert!(HostFs::of_tree(MemoryTree::new(), "nothing").lab_counters().is_none());
    }

    #[test]
    fn a_damaged_page_is_an_error_with_a_remedy() {
        for (words, what) in [(vec![0; WORDS], "damaged"), (page()[..9].to_vec(), "damaged")] {
            let error = lab(LAB_VENDOR, &words).lab_counters().unwrap().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("start the lab again"), "{error}");
        }
    }

    #[test]
    fn the_instructions_are_those_that_the_plugin_looks_for() {
        // Both are written down, since assembly takes no constants of Rust's.
        for (bytes, own) in [(PUBLISH, 0x6e), (WATCH, 0x77), (UNWATCH, 0x75)] {
            assert_eq!(bytes, [0x0f, 0x1f, 0x80, own, 0x6d, 0x6e, 0x6d]);
        }
        [publish, watch, unwatch].iter().for_each(|nop| nop());
    }

    #[test]
    fn accesses_that_cannot_be_counted_are_an_error() {
        let watch = |watching: u64| {
            let mut words = page();
            (words[header::WATCHES], words[header::WATCHING]) = (watching, watching);
            lab(LAB_VENDOR, &words).watch_lab_memory().unwrap()
        };
        assert!(watch(1).unwrap().is_none(), "they are counted anyway");
        let error = watch(0).unwrap_err().to_string();
        assert!(error.contains("--count locality"), "{error}");
    }
}
