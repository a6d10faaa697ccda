//! A host's own part: whom it is connected to, when it tries again, and what it says of itself.
//!
//! ```text
//! order ──▶ Connecting ──opened──▶ Open ──silent, lost, damaged──▶ Waiting ──time──▶ Connecting
//! ```
//! A connection has a number; what is heard of an earlier one is not heard.

use std::collections::VecDeque;
use std::time::Duration;

use super::{BEAT, SILENT};
use crate::control::{Doing, Status, Upstream};

/// How long a connection may take to open. Short, since a packet lost at the start is sent again only after a second.
const OPENING: Duration = Duration::from_millis(500);
/// Until it tries again: a predecessor that is not listening yet is not dead.
const AGAIN: Duration = Duration::from_millis(100);

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Do {
    /// Open connection `link`.
    Connect { link: u64, upstream: Upstream },
    /// Close it.
    HangUp { link: u64 },
    /// Ask for the manifest over it.
    AskManifest { link: u64 },
    /// Ask for the pieces that are lacking.
    AskPieces { link: u64 },
    /// Tell the coordinator.
    Report(Status),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Connecting { since: Duration },
    Open { heard: Duration },
    Waiting { until: Duration },
}

/// The state of a host.
#[derive(Debug)]
pub(crate) struct Puller {
    upstream: Option<Upstream>,
    generation: u64,
    link: u64,
    state: State,
    doing: Doing,
    has_manifest: bool,
    complete: bool,
    reached: bool,
    /// Since when it has no upstream under this order.
    without: Duration,
    reported: Option<Duration>,
    out: VecDeque<Do>,
}

impl Puller {
    pub(crate) fn new() -> Self {
        Self {
            upstream: None,
            generation: 0,
            link: 0,
            state: State::Idle,
            doing: Doing::Waiting,
            has_manifest: false,
            complete: false,
            reached: false,
            without: Duration::ZERO,
            reported: None,
            out: VecDeque::new(),
        }
    }

    /// What to do next, if anything.
    pub(crate) fn poll(&mut self) -> Option<Do> {
        self.out.pop_front()
    }

    /// The number of the current connection.
    pub(crate) fn link(&self) -> u64 {
        self.link
    }

    /// An order of the coordinator; one that is older than the last is not followed.
    pub(crate) fn order(&mut self, generation: u64, upstream: Upstream, now: Duration) {
        if generation <= self.generation {
            return;
        }
        self.generation = generation;
        self.upstream = Some(upstream);
        self.reached = false;
        self.without = now;
        self.hang_up();
        if !self.complete {
            self.connect(now);
        }
    }

    /// Connection `link` is open, and its peer knows the key.
    pub(crate) fn opened(&mut self, link: u64, now: Duration) {
        if link != self.link || !matches!(self.state, State::Connecting { .. }) {
            return;
        }
        self.state = State::Open { heard: now };
        self.reached = true;
        match (self.has_manifest, self.doing) {
            (false, _) => self.out.push_back(Do::AskManifest { link }),
            (true, Doing::Looking) => {}
            (true, _) => self.out.push_back(Do::AskPieces { link }),
        }
    }

    /// Something came over connection `link`.
    pub(crate) fn heard(&mut self, link: u64, now: Duration) {
        if let State::Open { heard } = &mut self.state {
            if link == self.link {
                *heard = now;
            }
        }
    }

    /// The manifest is there and proves the image; the host now looks for what it has.
    pub(crate) fn has_manifest(&mut self) {
        self.has_manifest = true;
        self.doing = Doing::Looking;
    }

    /// It knows what it lacks.
    pub(crate) fn looked(&mut self, now: Duration) {
        self.doing = Doing::Fetching;
        if let State::Open { heard } = &mut self.state {
            *heard = now;
            self.out.push_back(Do::AskPieces { link: self.link });
        }
    }

    /// A piece did not prove right, though nobody changed it on the way: it is asked for anew.
    pub(crate) fn ask_again(&mut self) {
        if matches!(self.state, State::Open { .. }) {
            self.out.push_back(Do::AskPieces { link: self.link });
        }
    }

    /// A piece that was there does not prove right any more: it is fetched like others.
    pub(crate) fn lacks_again(&mut self, now: Duration) {
        if self.complete {
            self.complete = false;
            self.doing = Doing::Fetching;
            if self.upstream.is_some() {
                self.connect(now);
            }
        } else {
            self.ask_again();
        }
    }

    /// Connection `link` did not open, ended, or brought what is not from its peer.
    pub(crate) fn lost(&mut self, link: u64, now: Duration) {
        if link == self.link && !matches!(self.state, State::Idle | State::Waiting { .. }) {
            if matches!(self.state, State::Open { .. }) {
                self.without = now;
            }
            self.hang_up();
            self.state = State::Waiting { until: now + AGAIN };
        }
    }

    /// All pieces are there.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
        self.doing = Doing::Syncing;
        self.hang_up();
    }

    /// Time passes. `have`: pieces that are there.
    pub(crate) fn tick(&mut self, have: usize, now: Duration) {
        match self.state {
            State::Open { heard } if self.doing != Doing::Looking && now.saturating_sub(heard) > SILENT => {
                self.without = heard;
                self.hang_up();
                self.connect(now);
            }
            State::Connecting { since } if now.saturating_sub(since) > OPENING + AGAIN => {
                self.hang_up();
                self.connect(now);
            }
            State::Waiting { until } if now >= until => self.connect(now),
            _ => {}
        }
        if self.reported.is_none_or(|last| now.saturating_sub(last) >= BEAT) {
            self.reported = Some(now);
            let without = match self.state {
                State::Idle | State::Open { .. } => Duration::ZERO,
                _ => now.saturating_sub(self.without),
            };
            let status = Status {
                generation: self.generation,
                have: have as u64,
                doing: self.doing,
                without,
                reached: self.reached,
            };
            self.out.push_back(Do::Report(status));
        }
    }

    fn connect(&mut self, now: Duration) {
        let Some(upstream) = self.upstream.clone() else { return };
        self.link += 1;
        self.state = State::Connecting { since: now };
        self.out.push_back(Do::Connect { link: self.link, upstream });
    }

    fn hang_up(&mut self) {
        if matches!(self.state, State::Connecting { .. } | State::Open { .. }) {
            self.out.push_back(Do::HangUp { link: self.link });
        }
        self.state = State::Idle;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn all(puller: &mut Puller) -> Vec<Do> {
        std::iter::from_fn(|| puller.poll()).filter(|what| !matches!(what, Do::Report(_))).collect()
    }

    fn fetching() -> Puller {
        let mut puller = Puller::new();
        puller.order(1, Upstream::Ssh, at(0));
        puller.opened(1, at(1));
        puller.has_manifest();
        puller.looked(at(2));
        all(&mut puller);
        puller
    }

    #[test]
    fn a_host_asks_for_the_manifest_first_and_then_for_pieces() {
        let mut puller = Puller::new();
        puller.order(1, Upstream::Ssh, at(0));
        puller.opened(1, at(1));
        puller.has_manifest();
        puller.looked(at(2));
        let connect = Do::Connect { link: 1, upstream: Upstream::Ssh };
        assert_eq!(all(&mut puller), [connect, Do::AskManifest { link: 1 }, Do::AskPieces { link: 1 }]);
    }

    #[test]
    fn a_predecessor_that_does_not_listen_yet_is_tried_again_for_as_long_as_it_takes() {
        let mut puller = Puller::new();
        puller.order(1, Upstream::Ssh, at(0));
        for round in 0..100 {
            puller.lost(round + 1, at(round * 200 + 10));
            puller.tick(0, at(round * 200 + 120));
        }
        assert_eq!(puller.link(), 101);
        puller.opened(101, at(20_000));
        assert!(all(&mut puller).contains(&Do::AskManifest { link: 101 }));
    }

    #[test]
    fn a_silent_connection_is_opened_anew_and_what_comes_over_the_old_one_is_not_heard() {
        let mut puller = fetching();
        puller.heard(1, at(500));
        puller.tick(0, at(1050));
        assert_eq!(all(&mut puller), []);
        puller.tick(0, at(1101));
        assert_eq!(all(&mut puller), [Do::HangUp { link: 1 }, Do::Connect { link: 2, upstream: Upstream::Ssh }]);
        puller.opened(1, at(1102));
        puller.lost(1, at(1103));
        assert_eq!(all(&mut puller), []);
    }

    #[test]
    fn a_host_that_looks_through_its_disk_takes_no_silence_amiss() {
        let mut puller = Puller::new();
        puller.order(1, Upstream::Ssh, at(0));
        puller.opened(1, at(1));
        puller.has_manifest();
        all(&mut puller);
        puller.tick(0, at(60_000));
        assert_eq!(all(&mut puller), []);
    }

    #[test]
    fn an_order_that_was_overtaken_is_not_followed() {
        let mut puller = fetching();
        puller.order(3, Upstream::Ssh, at(10));
        all(&mut puller);
        puller.order(2, Upstream::Ssh, at(11));
        assert_eq!(all(&mut puller), []);
    }

    #[test]
    fn a_host_that_has_all_connects_to_nobody_until_a_piece_of_it_goes_bad() {
        let mut puller = fetching();
        puller.complete();
        assert_eq!(all(&mut puller), [Do::HangUp { link: 1 }]);
        puller.order(2, Upstream::Ssh, at(10));
        assert_eq!(all(&mut puller), []);
        puller.lacks_again(at(20));
        assert_eq!(all(&mut puller), [Do::Connect { link: 2, upstream: Upstream::Ssh }]);
    }
}
