//! Where notices come from: a thread each for libvirt, the kernel and signals.

use std::thread;
use std::time::{Duration, Instant};

use nearmetal_host::{Heard, Uevents};
use nearmetal_hypervisor::{Events, HypervisorError};

use super::Notice;
use super::mailbox::Sender;
use crate::signals::heard;

/// How long one wait for an event lasts; nothing depends on it.
const LONG: Duration = Duration::from_secs(3600);

/// When a lost connection is tried again: soon, then ever more rarely. One that lasts makes it soon again.
#[derive(Debug)]
struct Retry {
    next: Duration,
}

impl Retry {
    const FIRST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(30);
    const LASTS: Duration = Duration::from_secs(10);

    fn new() -> Self {
        Self { next: Self::FIRST }
    }

    /// How long to wait now; `connected` is how long there was a connection.
    fn after(&mut self, connected: Duration) -> Duration {
        if connected >= Self::LASTS {
            self.next = Self::FIRST;
        }
        let wait = self.next;
        self.next = (self.next * 2).min(Self::LONGEST);
        wait
    }
}

/// Begins to hear signals and the kernel, and to try libvirt.
///
/// # Errors
/// libvirt will never be reached from here (the helper is missing, or not permitted), or signals cannot be heard.
pub(super) fn listen(sender: &Sender) -> anyhow::Result<()> {
    let stop = heard()?;
    let stopped = sender.clone();
    thread::spawn(move || {
        if stop.recv().is_ok() {
            let _ = stopped.send(Notice::Stop);
        }
    });
    let first = Events::open(None);
    if let Err(error) = &first {
        if never(error) {
            return Err(first.err().map_or_else(|| anyhow::anyhow!("no libvirt"), Into::into));
        }
    }
    let told = sender.clone();
    thread::spawn(move || follow_libvirt(first, &told));
    follow_devices(sender.clone());
    Ok(())
}

/// Whether another try is in vain.
pub(super) fn never(error: &HypervisorError) -> bool {
    matches!(
        error,
        HypervisorError::HelperMissing { .. }
            | HypervisorError::HelperIncompatible { .. }
            | HypervisorError::LibvirtMissing { .. }
            | HypervisorError::NotPermitted { .. }
    )
}

/// Ends when nobody listens any more.
fn follow_libvirt(mut attempt: Result<Events, HypervisorError>, sender: &Sender) {
    let mut retry = Retry::new();
    // The same trouble is told once.
    let mut last_error = String::new();
    loop {
        let mut connected = Duration::ZERO;
        let error = match attempt {
            Err(error) => error,
            Ok(mut events) => {
                let began = Instant::now();
                if sender.send(Notice::Connected).is_err() {
                    return;
                }
                last_error.clear();
                let error = loop {
                    match events.wait(LONG) {
                        Ok(None) => {}
                        Ok(Some(event)) => {
                            if sender.send(Notice::Domain(event)).is_err() {
                                return;
                            }
                        }
                        Err(error) => break error,
                    }
                };
                connected = began.elapsed();
                error
            }
        };
        if never(&error) {
            let _ = sender.send(Notice::Never(error.to_string()));
            return;
        }
        let wait = retry.after(connected);
        let error = error.to_string();
        if error != last_error {
            let text =
                format!("{error}; trying again in {} s; everything is checked once libvirt answers", wait.as_secs());
            if sender.send(Notice::Lost(text)).is_err() {
                return;
            }
            last_error = error;
        }
        thread::sleep(wait);
        attempt = Events::open(None);
    }
}

/// Where the kernel's messages cannot be heard, that is said once, and rounds find what changed.
fn follow_devices(sender: Sender) {
    thread::spawn(move || {
        let deaf = |error: std::io::Error| {
            let text = format!("cannot hear of devices of the host ({error}): what comes and goes is found in rounds");
            let _ = sender.send(Notice::Deaf(text));
        };
        let mut uevents = match Uevents::open() {
            Ok(uevents) => uevents,
            Err(error) => return deaf(error),
        };
        loop {
            let heard = match uevents.wait() {
                Ok(heard) => heard,
                Err(error) => return deaf(error),
            };
            let matters = match heard {
                Heard::Uevent(uevent) => uevent.concerns_guests(),
                Heard::Overflow => true,
            };
            if matters && sender.send(Notice::Devices).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_tried_ever_more_rarely_until_one_lasts() {
        let mut retry = Retry::new();
        let short = Duration::from_millis(200);
        let waits: Vec<u64> = (0..7).map(|_| retry.after(short).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(retry.after(Duration::from_secs(60)).as_secs(), 1);
        assert_eq!(retry.after(Duration::ZERO).as_secs(), 2);
    }
}
