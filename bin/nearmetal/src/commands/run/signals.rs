//! Signals that tell a run to end.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nearmetal_run::RunError;
use nearmetal_run::course::End;
use nearmetal_run::service::{FromUser, receive};
use signal_hook::consts::SIGHUP;

use crate::signals::{ECHO, TO_END, hear};

/// Signals that were heard. A second one, [`ECHO`] or more after the first, ends this program at once; the guest goes with it.
pub(super) struct Signals {
    seen: Receiver<Heard>,
    sender: Sender<Heard>,
    /// Whether this process has got one.
    own: bool,
}

/// A signal, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// That this process has got.
    Own(i32),
    /// That a user has passed on.
    Users(i32),
}

impl Signals {
    /// Hears them from now on ([`hear`]).
    pub(super) fn listen() -> Result<Self, RunError> {
        let (sender, seen) = channel();
        let own = sender.clone();
        let send = move |signal| {
            // Whoever has gone away is ending.
            let _ = own.send(Heard::Own(signal));
        };
        hear(send).map_err(|error| RunError::Given(format!("cannot listen for signals: {error}")))?;
        Ok(Self { seen, sender, own: false })
    }

    /// Hears also the first that a user's run has got and passes on, or that it is gone. He cannot end this program at once, which
    /// would leave to others what his run has.
    pub(super) fn hear_from(&self, connection: UnixStream) {
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            let signal = match receive(&connection) {
                Ok(FromUser::Signal(signal)) => i32::from(signal),
                // Whatever else he sends is not what he may.
                _ => SIGHUP,
            };
            let known = TO_END.contains(&signal);
            let _ = sender.send(Heard::Users(if known { signal } else { SIGHUP }));
        });
    }

    /// Does something `pause` after this process has got a signal, where nobody asks any more; if it had one, after that time from now. What
    /// a user says does not count: he waits for what is on its way to him.
    pub(super) fn after_own(&mut self, pause: Duration, act: impl FnOnce() + Send + 'static) {
        while self.seen().is_some() {}
        let (had, seen) = (self.own, std::mem::replace(&mut self.seen, channel().1));
        std::thread::spawn(move || {
            if had || seen.into_iter().any(|heard| matches!(heard, Heard::Own(_))) {
                std::thread::sleep(pause);
                act();
            }
        });
    }

    /// How a run ends that failed before it had a guest. Who ends a job may send the signal to all of it at once, so what the run needs
    /// can fail before this program hears of it.
    ///
    /// # Errors
    /// The run's own, if no signal came.
    pub(super) fn or(&mut self, error: RunError) -> Result<End, RunError> {
        if let RunError::Interrupted(signal) = error {
            return Ok(End::Interrupted(signal));
        }
        std::thread::sleep(ECHO);
        self.seen().map_or(Err(error), |signal| Ok(End::Interrupted(signal)))
    }

    /// The next one, by its number.
    pub(super) fn seen(&mut self) -> Option<i32> {
        let heard = self.seen.try_recv().ok()?;
        self.own |= matches!(heard, Heard::Own(_));
        let (Heard::Own(signal) | Heard::Users(signal)) = heard;
        Some(signal)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use nearmetal_run::service::Frames;
    use signal_hook::consts::{SIGINT, SIGTERM};

    use super::*;

    #[test]
    fn a_signal_is_heard_once_by_its_number() {
        let mut signals = Signals::listen().unwrap();
        assert_eq!(signals.seen(), None);
        // As timeout(1) does. Were both counted, this process would be dead.
        signal_hook::low_level::raise(SIGTERM).unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        let began = Instant::now();
        let heard = loop {
            match signals.seen() {
                Some(signal) => break signal,
                None => assert!(began.elapsed() < Duration::from_secs(20), "it was not heard"),
            }
        };
        assert_eq!((heard, signals.seen()), (SIGTERM, None));
        assert!(matches!(signals.or(RunError::Interrupted(2)), Ok(End::Interrupted(2))));
        assert!(matches!(signals.or(RunError::RootHasNoSession), Err(RunError::RootHasNoSession)));
    }

    #[test]
    fn what_is_on_its_way_ends_by_this_process_signal_and_not_by_the_users() {
        for (heard, acts) in [(Heard::Own(SIGTERM), true), (Heard::Users(SIGTERM), false)] {
            for before in [true, false] {
                let (sender, seen) = channel();
                let mut signals = Signals { seen, sender: sender.clone(), own: false };
                let (done, acted) = channel();
                if before {
                    sender.send(heard).unwrap();
                }
                signals.after_own(Duration::ZERO, move || done.send(()).unwrap());
                if !before {
                    sender.send(heard).unwrap();
                }
                let wait = Duration::from_millis(if acts { 20_000 } else { 100 });
                assert_eq!(acted.recv_timeout(wait).is_ok(), acts, "{heard:?}, {before}");
            }
        }
    }

    #[test]
    fn a_users_signal_counts_and_so_does_that_he_is_gone_but_once() {
        for (sent, heard) in [(Some(SIGINT), SIGINT), (Some(64), SIGHUP), (None, SIGHUP)] {
            let (sender, seen) = channel();
            // Without a handler of this process, which other tests have.
            let signals = Signals { seen, sender, own: false };
            let (user, service) = UnixStream::pair().unwrap();
            signals.hear_from(service);
            // However often he says it.
            for signal in sent.into_iter().chain(sent) {
                FromUser::Signal(u8::try_from(signal).unwrap()).send(&user).unwrap();
            }
            drop(user);
            assert_eq!(signals.seen.recv_timeout(Duration::from_secs(20)), Ok(Heard::Users(heard)), "{sent:?}");
            assert!(signals.seen.recv_timeout(Duration::from_millis(200)).is_err(), "{sent:?}");
        }
    }
}
