//! What the figures say about /dev/kvm.

use std::io;

use serde::Serialize;

/// Guests slower than this part of the host's instruction rate are called emulated. Hardware runs the loop at the
/// host's own rate (ratio near 1, also when nested); emulators are 20 to 10 000 times slower.
pub const THRESHOLD: f64 = 0.1;

/// The verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Guest code runs on the processor.
    #[serde(rename = "accelerates")]
    Accelerates,
    /// Guests run, more than ten times slower than the host.
    #[serde(rename = "emulates")]
    Emulates,
    /// No /dev/kvm, or nothing behind it.
    #[serde(rename = "absent")]
    Absent,
    /// /dev/kvm is there, and this user may not open it.
    #[serde(rename = "not permitted")]
    NotPermitted,
}

impl Verdict {
    /// From guest rate over host rate.
    pub fn of_ratio(ratio: f64) -> Self {
        if ratio >= THRESHOLD { Self::Accelerates } else { Self::Emulates }
    }

    /// From a failed open of /dev/kvm; `None` for answers that mean neither.
    pub fn of_open_error(error: &io::Error) -> Option<Self> {
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV | libc::ENOTDIR) => Some(Self::Absent),
            Some(libc::EACCES | libc::EPERM) => Some(Self::NotPermitted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_a_tenth() {
        for (ratio, verdict) in [
            (1.0, Verdict::Accelerates),
            (0.1, Verdict::Accelerates),
            (0.099, Verdict::Emulates),
            (0.0, Verdict::Emulates),
        ] {
            assert_eq!(Verdict::of_ratio(ratio), verdict);
        }
    }

    #[test]
    fn answers_to_open() {
        let of = |errno| Verdict::of_open_error(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ENOENT), Some(Verdict::Absent));
        assert_eq!(of(libc::ENODEV), Some(Verdict::Absent));
        assert_eq!(of(libc::EACCES), Some(Verdict::NotPermitted));
        assert_eq!(of(libc::EMFILE), None);
    }
}
