//! Who is asked when, and what each host answered last. Hosts are asked one by one: one that is silent holds up nobody else.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Hosts asked at a time: each is a process of ssh and three threads, and most of the time is waiting.
const AT_ONCE: usize = 48;
/// How long a worker sleeps at most before it looks whether all is over.
const NAP: Duration = Duration::from_millis(200);

/// What is known of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen<T> {
    /// What it said when it was asked last, or why it did not.
    pub(crate) answer: Result<T, String>,
    /// When it answered last; `None`: never.
    pub(crate) answered: Option<String>,
}

struct Slot<T> {
    seen: Option<Seen<T>>,
    asking: bool,
    due: Instant,
}

/// All hosts, by their place in the list, and how it stands with them all.
struct State<T> {
    slots: Vec<Slot<T>>,
    /// Answers so far, and failures to answer.
    answers: u64,
    over: bool,
}

/// The same, for all who ask and look.
pub(crate) struct Board<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    every: Duration,
}

impl<T: Clone + Send> Board<T> {
    /// So many hosts, of which nothing is known. Each is asked again so long after it was asked last.
    pub(crate) fn of(hosts: usize, every: Duration) -> Self {
        let slot = || Slot { seen: None, asking: false, due: Instant::now() };
        let slots = std::iter::repeat_with(slot).take(hosts).collect();
        Self { state: Mutex::new(State { slots, answers: 0, over: false }), changed: Condvar::new(), every }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Each change is whole before the lock is let go.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all hosts again and again in threads of the scope, until [`Board::stop`]. `now` tells the time.
    pub(crate) fn keep_asking<'scope, 'env: 'scope>(
        &'env self,
        scope: &'scope thread::Scope<'scope, 'env>,
        ask: &'env (dyn Fn(usize) -> Result<T, String> + Sync),
        now: &'env (dyn Fn() -> String + Sync),
    ) {
        let hosts = self.lock().slots.len();
        for _ in 0..AT_ONCE.min(hosts) {
            scope.spawn(move || {
                while let Some(at) = self.next() {
                    let answer = ask(at);
                    self.put(at, answer, now());
                }
            });
        }
    }

    /// The host whose turn it is, once there is one; `None`: all is over.
    fn next(&self) -> Option<usize> {
        let mut guard = self.lock();
        loop {
            if guard.over {
                return None;
            }
            let idle = guard.slots.iter().enumerate().filter(|(_, slot)| !slot.asking);
            let first = idle.min_by_key(|(_, slot)| slot.due).map(|(at, slot)| (at, slot.due));
            let now = Instant::now();
            let nap = match first {
                Some((at, due)) if due <= now => {
                    guard.slots[at].asking = true;
                    return Some(at);
                }
                Some((_, due)) => due.saturating_duration_since(now).min(NAP),
                None => NAP,
            };
            guard = self.changed.wait_timeout(guard, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn put(&self, at: usize, answer: Result<T, String>, now: String) {
        let mut guard = self.lock();
        let slot = &mut guard.slots[at];
        let before = slot.seen.take().and_then(|seen| seen.answered);
        let answered = if answer.is_ok() { Some(now) } else { before };
        slot.seen = Some(Seen { answer, answered });
        slot.asking = false;
        slot.due = Instant::now() + self.every;
        guard.answers += 1;
        self.changed.notify_all();
    }

    /// What is known now, in the order of the hosts; `None` where no answer came yet.
    pub(crate) fn look(&self) -> Vec<Option<Seen<T>>> {
        self.lock().slots.iter().map(|slot| slot.seen.clone()).collect()
    }

    /// How many answers, and failures to answer, there were: another number means that there is something new.
    pub(crate) fn answers(&self) -> u64 {
        self.lock().answers
    }

    /// Waits until something is known of every host, for so long at most; whether it is.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut guard = self.lock();
        loop {
            let all = guard.slots.iter().all(|slot| slot.seen.is_some());
            let left = until.saturating_duration_since(Instant::now());
            if all || left.is_zero() {
                return all;
            }
            guard = self.changed.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nobody is asked any more.
    pub(crate) fn stop(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_silent_host_holds_up_nobody_and_what_it_said_last_is_remembered_by_its_time() {
        let board: Board<usize> = Board::of(3, Duration::from_millis(5));
        let (release, held) = mpsc::channel::<()>();
        let (held, asked) = (Mutex::new(held), AtomicUsize::new(0));
        let ask = |at: usize| match at {
            // Silent until the end.
            1 => {
                let _ = held.lock().unwrap().recv();
                Err("silent".to_owned())
            }
            // Answers once, and fails from then on.
            2 => match asked.fetch_add(1, Ordering::Relaxed) {
                0 => Ok(2),
                _ => Err("broken".to_owned()),
            },
            _ => Ok(at),
        };
        let now = || "now".to_owned();
        thread::scope(|scope| {
            board.keep_asking(scope, &ask, &now);
            assert!(!board.wait(Duration::from_millis(100)), "one is silent");
            while asked.load(Ordering::Relaxed) < 3 {
                thread::sleep(Duration::from_millis(1));
            }
            let seen = board.look();
            assert_eq!(seen[0], Some(Seen { answer: Ok(0), answered: Some("now".to_owned()) }));
            assert_eq!(seen[1], None);
            assert_eq!(seen[2], Some(Seen { answer: Err("broken".to_owned()), answered: Some("now".to_owned()) }));
            release.send(()).unwrap();
            assert!(board.wait(Duration::from_secs(60)));
            drop(release);
            board.stop();
        });
        assert_eq!(board.look()[1], Some(Seen { answer: Err("silent".to_owned()), answered: None }));
    }

    #[test]
    fn a_thousand_hosts_are_asked_by_a_few_threads() {
        let board: Board<usize> = Board::of(1000, Duration::from_secs(3600));
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let ask = |at: usize| {
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_micros(200));
            at_once.fetch_sub(1, Ordering::SeqCst);
            Ok(at)
        };
        let now = String::new;
        thread::scope(|scope| {
            board.keep_asking(scope, &ask, &now);
            assert!(board.wait(Duration::from_secs(300)));
            board.stop();
        });
        assert!(most.load(Ordering::SeqCst) <= AT_ONCE);
        assert!(board.look().into_iter().enumerate().all(|(at, seen)| seen.is_some_and(|seen| seen.answer == Ok(at))));
    }
}
