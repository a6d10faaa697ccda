//! What the watch has not heard yet. A look takes seconds, and a guest can make events as fast as it likes: what says no more than
//! something later is dropped, so that a storm takes no more room than its guests and kinds of events.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Notice;

/// A way into a mailbox, and the mailbox.
pub(super) fn mailbox() -> (Sender, Mailbox) {
    let shared = Arc::new(Shared { waiting: Mutex::new(Waiting::default()), came: Condvar::new() });
    (Sender(Arc::clone(&shared)), Mailbox(shared))
}

/// Puts notices in, from any thread.
#[derive(Debug, Clone)]
pub(super) struct Sender(Arc<Shared>);

/// Nobody listens any more.
#[derive(Debug)]
pub(super) struct Closed;

/// Gives notices out, in the order in which the last of each kind came.
#[derive(Debug)]
pub(super) struct Mailbox(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    notices: Vec<Notice>,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Puts a notice in.
    ///
    /// # Errors
    /// Nobody listens any more.
    pub(super) fn send(&self, notice: Notice) -> Result<(), Closed> {
        let mut waiting = self.0.lock();
        if waiting.closed {
            return Err(Closed);
        }
        waiting.notices.retain(|earlier| !says_no_more(earlier, &notice));
        waiting.notices.push(notice);
        self.0.came.notify_one();
        Ok(())
    }
}

impl Mailbox {
    /// All that has come; waits for something until then, or for ever.
    pub(super) fn wait(&self, limit: Option<Duration>) -> Vec<Notice> {
        let nothing = |waiting: &mut Waiting| waiting.notices.is_empty();
        let waiting = self.0.lock();
        let mut waiting = match limit {
            None => self.0.came.wait_while(waiting, nothing).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                self.0.came.wait_timeout_while(waiting, limit, nothing).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        std::mem::take(&mut waiting.notices)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.0.lock().closed = true;
    }
}

/// Whether an earlier notice need not be heard once a later one is.
fn says_no_more(earlier: &Notice, later: &Notice) -> bool {
    match (earlier, later) {
        (Notice::Domain(one), Notice::Domain(other)) => one == other,
        (Notice::Connected, Notice::Connected)
        | (Notice::Lost(_), Notice::Lost(_))
        | (Notice::Never(_), Notice::Never(_))
        | (Notice::Devices, Notice::Devices)
        | (Notice::Deaf(_), Notice::Deaf(_))
        | (Notice::Findings(_), Notice::Findings(_))
        | (Notice::Stop, Notice::Stop) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nearmetal_hypervisor::{DomainEvent, EventKind};

    use super::*;

    fn event(domain: &str, kind: EventKind) -> Notice {
        Notice::Domain(DomainEvent { domain: domain.to_owned(), kind })
    }

    fn words(notices: &[Notice]) -> Vec<String> {
        let word = |notice: &Notice| match notice {
            Notice::Domain(event) => format!("{} {}", event.domain, event.kind),
            other => format!("{other:?}"),
        };
        notices.iter().map(word).collect()
    }

    #[test]
    fn a_guest_that_restarts_ten_thousand_times_leaves_one_notice_of_each_kind_and_the_last_is_last() {
        let (sender, mailbox) = mailbox();
        sender.send(event("web2", EventKind::Defined)).unwrap();
        for _ in 0..10_000 {
            for kind in [EventKind::Stopped, EventKind::Started, EventKind::Resumed] {
                sender.send(event("web1", kind)).unwrap();
            }
            sender.send(Notice::Devices).unwrap();
        }
        sender.send(event("web1", EventKind::Suspended)).unwrap();
        let heard = words(&mailbox.wait(None));
        let expected = ["web2 redefined", "web1 stopped", "web1 started", "web1 resumed", "Devices", "web1 suspended"];
        assert_eq!(heard, expected);
        assert!(mailbox.wait(Some(Duration::ZERO)).is_empty(), "each is heard once");
    }

    #[test]
    fn that_libvirt_went_and_came_is_heard_in_the_order_of_the_last_of_both() {
        let (sender, mailbox) = mailbox();
        for notice in [Notice::Connected, Notice::Lost("gone".to_owned()), Notice::Connected] {
            sender.send(notice).unwrap();
        }
        assert_eq!(words(&mailbox.wait(None)), ["Lost(\"gone\")", "Connected"]);
    }

    #[test]
    fn who_waits_is_woken_and_who_sends_learns_that_nobody_listens() {
        let (sender, mailbox) = mailbox();
        let other = sender.clone();
        let sending = thread::spawn(move || other.send(Notice::Stop).is_ok());
        assert_eq!(words(&mailbox.wait(None)), ["Stop"]);
        assert!(sending.join().unwrap());
        drop(mailbox);
        assert!(sender.send(Notice::Stop).is_err());
    }
}
