//! What goes down one connection: the lowest piece that is wanted, there, and not yet sent.

use std::collections::BTreeMap;
use std::time::Duration;

use super::BEAT;
use crate::bits::Bits;
use crate::frame::Run;

/// What to send next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// These blocks of a piece.
    Piece { index: usize, mask: u64 },
    /// A sign of life.
    Alive,
    /// Nothing before this much time has passed, or a piece arrives.
    Wait(Duration),
}

/// One connection, as seen from above.
#[derive(Debug)]
pub(crate) struct Serve {
    wanted: Bits,
    /// Pieces of which not all blocks are wanted.
    masks: BTreeMap<usize, u64>,
    sent: Duration,
}

impl Serve {
    /// A connection over which nothing is wanted yet.
    pub(crate) fn new(count: usize, now: Duration) -> Self {
        Self { wanted: Bits::none(count), masks: BTreeMap::new(), sent: now }
    }

    /// Adds what a peer wants. Pieces that the image does not have are passed over: a peer can only harm itself.
    pub(crate) fn want(&mut self, runs: &[Run]) {
        for run in runs {
            let first = run.first as usize;
            let end = first.saturating_add(run.count as usize).min(self.wanted.count());
            for index in first..end {
                self.wanted.insert(index);
                match run.mask {
                    u64::MAX => drop(self.masks.remove(&index)),
                    mask => drop(self.masks.insert(index, mask)),
                }
            }
        }
    }

    /// What to send now; it counts as sent.
    pub(crate) fn next(&mut self, have: &Bits, now: Duration) -> Next {
        if let Some(index) = self.wanted.first_common(have) {
            self.wanted.remove(index);
            self.sent = now;
            return Next::Piece { index, mask: self.masks.remove(&index).unwrap_or(u64::MAX) };
        }
        let quiet = now.saturating_sub(self.sent);
        if quiet >= BEAT {
            self.sent = now;
            return Next::Alive;
        }
        Next::Wait(BEAT - quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pieces_go_in_order_as_they_arrive_and_each_goes_once() {
        let mut serve = Serve::new(10, at(0));
        serve.want(&[Run { first: 2, count: 3, mask: u64::MAX }, Run { first: 9, count: u32::MAX, mask: 6 }]);
        let mut have = Bits::none(10);
        have.insert(0);
        assert_eq!(serve.next(&have, at(10)), Next::Wait(at(90)));
        have.insert(9);
        have.insert(3);
        assert_eq!(serve.next(&have, at(10)), Next::Piece { index: 3, mask: u64::MAX });
        have.insert(2);
        assert_eq!(serve.next(&have, at(10)), Next::Piece { index: 2, mask: u64::MAX });
        assert_eq!(serve.next(&have, at(10)), Next::Piece { index: 9, mask: 6 });
        assert_eq!(serve.next(&have, at(110)), Next::Alive);
        assert_eq!(serve.next(&have, at(111)), Next::Wait(at(99)));
    }

    #[test]
    fn what_was_sent_and_did_not_prove_right_may_be_asked_for_again() {
        let mut serve = Serve::new(2, at(0));
        for _ in 0..2 {
            serve.want(&[Run { first: 1, count: 1, mask: 1 }]);
            assert_eq!(serve.next(&Bits::all(2), at(1)), Next::Piece { index: 1, mask: 1 });
        }
    }
}
