//! Signals that tell a run to end.

use std::sync::mpsc::{Receiver, channel};

use nearmetal_host::HostFs;
use nearmetal_run::RunError;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that were heard. The second one ends this program at once; the guest goes with it.
pub(super) struct Signals {
    seen: Receiver<i32>,
}

impl Signals {
    /// Hears them from now on, but for those that whoever started this program has set to be ignored: nohup(1) does so with
    /// SIGHUP, a shell with the SIGINT of what it runs in the background.
    pub(super) fn listen(fs: &HostFs) -> Result<Self, RunError> {
        let status = fs.read("/proc/self/status").map_err(|error| RunError::Given(error.to_string()))?;
        let wanted = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(&status, *signal));
        let (sender, seen) = channel();
        let mut signals = signal_hook::iterator::Signals::new(wanted)
            .map_err(|error| RunError::Given(format!("cannot listen for signals: {error}")))?;
        std::thread::spawn(move || {
            for (count, signal) in signals.forever().enumerate() {
                if count > 0 {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                let _ = sender.send(signal);
            }
        });
        Ok(Self { seen })
    }

    /// The next one, by its number.
    pub(super) fn seen(&mut self) -> Option<i32> {
        self.seen.try_recv().ok()
    }
}

/// Whether a process with this status ignores a signal: `SigIgn` has a bit for each, the first for signal 1 (proc.rst).
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    u32::try_from(signal - 1).is_ok_and(|bit| mask.checked_shr(bit).unwrap_or(0) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn what_nohup_and_a_shell_ignore_is_known() {
        let ignored = |mask: &str| {
            let status = format!("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\nSigCgt:\tffffffffffffffff\n");
            [SIGHUP, SIGINT, SIGTERM].map(|signal| is_ignored(&status, signal))
        };
        assert_eq!(ignored("0000000000000001"), [true, false, false]);
        assert_eq!(ignored("0000000000000006"), [false, true, false]);
        assert_eq!(ignored("0000000000004000"), [false, false, true]);
        assert_eq!(ignored("x"), [false, false, false]);
    }

    #[test]
    fn a_signal_is_heard_once_by_its_number() {
        let mut signals = Signals::listen(&HostFs::live()).unwrap();
        assert_eq!(signals.seen(), None);
        signal_hook::low_level::raise(SIGTERM).unwrap();
        let began = Instant::now();
        let heard = loop {
            match signals.seen() {
                Some(signal) => break signal,
                None => assert!(began.elapsed() < Duration::from_secs(20), "it was not heard"),
            }
        };
        assert_eq!((heard, signals.seen()), (SIGTERM, None));
    }
}
