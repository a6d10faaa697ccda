//! Signals that tell this program to end: what everything that hears them has in common.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nearmetal_host::HostFs;
use nearmetal_measure::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::printer::Printer;

/// A signal that comes sooner after the first is the same one: timeout(1) sends its own to the program and to its group, and a
/// batch system to all processes of a job, one of which may pass it on.
pub(crate) const ECHO: Duration = Duration::from_secs(1);

/// Those that ask a program to end.
pub(crate) const TO_END: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Hears the signals that ask this program to end from now on, but for those that whoever started it has set to be ignored: nohup(1)
/// does so with SIGHUP, a shell with the SIGINT of what it runs in the background. `first` is called with the number of the
/// first one. A second one, [`ECHO`] or more after it, ends this program at once.
///
/// # Errors
/// The system takes no handlers.
pub(crate) fn hear(first: impl Fn(i32) + Send + 'static) -> std::io::Result<()> {
    let status = HostFs::live().read("/proc/self/status").map_err(std::io::Error::other)?;
    let wanted = TO_END.into_iter().filter(|signal| !is_ignored(&status, *signal));
    let mut signals = signal_hook::iterator::Signals::new(wanted)?;
    std::thread::spawn(move || {
        let mut began = None;
        for signal in signals.forever() {
            match kind(&mut began, Instant::now()) {
                Kind::First => first(signal),
                Kind::Echo => {}
                Kind::Second => drop(signal_hook::low_level::emulate_default_handler(signal)),
            }
        }
    });
    Ok(())
}

/// Something comes once the first was heard.
///
/// # Errors
/// The system takes no handlers.
pub(crate) fn heard() -> std::io::Result<Receiver<()>> {
    let (sender, receiver) = channel();
    hear(move |_| {
        // Whoever has gone away is ending.
        let _ = sender.send(());
    })?;
    Ok(receiver)
}

/// While this lives, the first signal asks for the end of what is measured; before and after, it ends this program at once.
pub(crate) struct Measuring {
    /// The wish, which stands for all that this program measures afterwards.
    pub(crate) stop: Stop,
}

/// How many live.
static MEASURING: AtomicUsize = AtomicUsize::new(0);
/// The wish of all of them.
static STOP: OnceLock<Stop> = OnceLock::new();

/// Whether somebody asked for the end while something was measured.
pub(crate) fn stop_was_asked() -> bool {
    STOP.get().is_some_and(Stop::is_asked)
}

impl Measuring {
    /// From now on.
    ///
    /// # Errors
    /// The system takes no handlers.
    pub(crate) fn begins() -> std::io::Result<Self> {
        let stop = match STOP.get() {
            Some(stop) => stop.clone(),
            None => {
                let stop = STOP.get_or_init(Stop::default).clone();
                ask_by_signal(stop.clone())?;
                stop
            }
        };
        MEASURING.fetch_add(1, Ordering::SeqCst);
        Ok(Self { stop })
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        MEASURING.fetch_sub(1, Ordering::SeqCst);
    }
}

fn ask_by_signal(stop: Stop) -> std::io::Result<()> {
    hear(move |signal| {
        if MEASURING.load(Ordering::SeqCst) == 0 {
            // What then runs never promised to come to an end of its own.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
        stop.ask();
        // Whoever waits with the finger on Ctrl-C must know it even if prose was silenced.
        Printer::new(false).important(
            "stopping: the sample that runs comes to its end, then guests, pools and devices are put back as they were. Again \
             to end at once: `nearmetal rollback` puts back what is then left",
        );
    })
}

/// Which of several signals one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    First,
    Echo,
    Second,
}

/// Notes the time of the first.
fn kind(first: &mut Option<Instant>, now: Instant) -> Kind {
    match first {
        None => {
            *first = Some(now);
            Kind::First
        }
        Some(first) if now.duration_since(*first) < ECHO => Kind::Echo,
        Some(_) => Kind::Second,
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

    #[test]
    fn what_nohup_and_a_shell_ignore_is_known() {
        let ignored = |mask: &str| {
            let status = format!("Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\nSigCgt:\tffffffffffffffff\n");
            TO_END.map(|signal| is_ignored(&status, signal))
        };
        assert_eq!(ignored("0000000000000001"), [true, false, false]);
        assert_eq!(ignored("0000000000000006"), [false, true, false]);
        assert_eq!(ignored("0000000000004000"), [false, false, true]);
        assert_eq!(ignored("x"), [false, false, false]);
    }

    #[test]
    fn a_second_signal_counts_a_second_after_the_first_and_no_sooner() {
        let (mut first, began) = (None, Instant::now());
        let mut at = |ms| kind(&mut first, began + Duration::from_millis(ms));
        assert_eq!([at(0), at(1), at(999)], [Kind::First, Kind::Echo, Kind::Echo]);
        // From the first on: echoes do not put it off.
        assert_eq!([at(1000), at(5000)], [Kind::Second, Kind::Second]);
    }
}
