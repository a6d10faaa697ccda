//! The page as a reader understands it. It comes from outside: everything in it is checked.

use serde::Serialize;

use crate::count::Count;
use crate::layout::{Class, GUESTS, MAGIC, NODES, PUS, Place, VERSION, WORDS, guest_word, header, pu_word};

/// Counts since the machine was switched on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// What is counted.
    pub count: Count,
    /// Whether accesses to memory are being counted.
    pub watching: bool,
    /// How often that began.
    pub watches: u64,
    /// Size of the modelled cache of each PU, in bytes; `None` where accesses were never counted.
    pub cache_bytes: Option<u64>,
    /// By PU, numbered as the machine's processors are.
    pub pus: Vec<PuCounts>,
    /// By guest's vCPU.
    pub guests: Vec<GuestCounts>,
}

/// Counts of one PU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PuCounts {
    /// Instructions, those of guests included.
    pub instructions: u64,
    /// Instructions of guests.
    pub in_guest: u64,
    /// Entries into guests.
    pub world_switches: u64,
    /// By node; `None` where accesses were not counted all the time.
    pub memory: Option<Vec<MemoryCounts>>,
}

/// Accesses of one PU to one node's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryCounts {
    /// By programs on the host.
    pub user: u64,
    /// By its kernel.
    pub kernel: u64,
    /// By guests.
    pub guest: u64,
    /// Of all these, what a cache of the stated size would have missed.
    pub misses: u64,
}

/// Counts of one guest's vCPU on all PUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct GuestCounts {
    /// Physical address of its control block (VMCB), by which it is told from others.
    pub vmcb: u64,
    /// Its instructions.
    pub instructions: u64,
    /// Times it was entered.
    pub world_switches: u64,
}

/// Why a page says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CounterError {
    /// Too short, or it begins with something else.
    #[error("the lab's counters are damaged: they do not begin as they should; start the lab again")]
    NotCounters,
    /// Another version's.
    #[error(
        "the lab's counters have layout {found}, and this program reads layout {VERSION}: start the lab again with this program"
    )]
    Version {
        /// The page's.
        found: u64,
    },
    /// A number that cannot be.
    #[error("the lab's counters are damaged: {what} is {value}, {limit} at most; start the lab again")]
    Damaged {
        /// Which.
        what: &'static str,
        /// The page's.
        value: u64,
        /// The most it can be.
        limit: u64,
    },
    /// The page was being written whenever it was looked at.
    #[error("the lab's counters were being written each time they were read")]
    Torn,
    /// They went on not to count accesses.
    #[error("the lab did not begin to count accesses to memory when it was asked to: start it with `--count locality`")]
    Unwatched,
    /// Nothing was written when it was asked for.
    #[error(
        "the lab's counters stand still: nothing counts in this lab; start it with `nearmetal lab up --count work`"
    )]
    Still,
}

impl Reading {
    /// What the words of a page say.
    ///
    /// # Errors
    /// They are not a page of this layout, or hold what cannot be.
    pub fn parse(words: &[u64]) -> Result<Self, CounterError> {
        if words.len() != WORDS {
            return Err(CounterError::NotCounters);
        }
        Self::read(|index| words.get(index).copied().unwrap_or_default())
    }

    /// The same of a page that is where its words are: only those that are used are read. `word` is asked for those below
    /// [`WORDS`] alone.
    ///
    /// # Errors
    /// As [`Reading::parse`].
    pub fn read(word: impl Fn(usize) -> u64) -> Result<Self, CounterError> {
        if word(header::MAGIC) != MAGIC {
            return Err(CounterError::NotCounters);
        }
        if word(header::VERSION) != VERSION {
            return Err(CounterError::Version { found: word(header::VERSION) });
        }
        if word(header::SEQUENCE) % 2 == 1 {
            return Err(CounterError::Torn);
        }
        let count = |what, index: usize, most: usize| {
            let (value, limit) = (word(index), most as u64);
            let fits = usize::try_from(value).ok().filter(|value| *value <= most);
            fits.ok_or(CounterError::Damaged { what, value, limit })
        };
        let pus = count("the number of PUs", header::PUS, PUS)?;
        let nodes = count("the number of nodes", header::NODES, NODES)?;
        let guests = count("the number of guests' vCPUs", header::GUESTS, GUESTS)?;
        let value = word(header::COUNT);
        let what = CounterError::Damaged { what: "what is counted", value, limit: Count::Locality.word() };
        let counted = Count::of_word(value).ok_or(what)?;
        let watches = word(header::WATCHES);
        let watching = match word(header::WATCHING) {
            0 => false,
            1 => true,
            value => return Err(CounterError::Damaged { what: "whether accesses are counted", value, limit: 1 }),
        };
        let memory = |pu: usize| {
            let at = |place| word(pu_word(pu, place));
            let counts = |node| MemoryCounts {
                user: at(Place::Accesses(Class::User, node)),
                kernel: at(Place::Accesses(Class::Kernel, node)),
                guest: at(Place::Accesses(Class::Guest, node)),
                misses: at(Place::Misses(node)),
            };
            (0..nodes).map(counts).collect()
        };
        let of_pu = |pu| PuCounts {
            instructions: word(pu_word(pu, Place::Instructions)),
            in_guest: word(pu_word(pu, Place::InGuest)),
            world_switches: word(pu_word(pu, Place::WorldSwitches)),
            memory: (watches > 0).then(|| memory(pu)),
        };
        let of_guest = |guest| {
            let first = guest_word(guest);
            GuestCounts { vmcb: word(first), instructions: word(first + 1), world_switches: word(first + 2) }
        };
        Ok(Self {
            count: counted,
            watching,
            watches,
            cache_bytes: (watches > 0).then(|| word(header::CACHE)),
            pus: (0..pus).map(of_pu).collect(),
            guests: (0..guests).map(of_guest).collect(),
        })
    }
}

impl Reading {
    /// What was counted since an earlier reading of the same machine. Guests' vCPUs that were idle are left out, and so are
    /// accesses that were not counted all the time.
    pub fn since(mut self, before: &Self) -> Self {
        let watched = self.watching && before.watching && self.watches == before.watches;
        if !watched {
            self.cache_bytes = None;
            self.pus.iter_mut().for_each(|pu| pu.memory = None);
        }
        for (now, then) in self.pus.iter_mut().zip(&before.pus) {
            now.instructions = now.instructions.saturating_sub(then.instructions);
            now.in_guest = now.in_guest.saturating_sub(then.in_guest);
            now.world_switches = now.world_switches.saturating_sub(then.world_switches);
            for (now, then) in now.memory.iter_mut().flatten().zip(then.memory.iter().flatten()) {
                now.user = now.user.saturating_sub(then.user);
                now.kernel = now.kernel.saturating_sub(then.kernel);
                now.guest = now.guest.saturating_sub(then.guest);
                now.misses = now.misses.saturating_sub(then.misses);
            }
        }
        for now in &mut self.guests {
            let then = before.guests.iter().find(|then| then.vmcb == now.vmcb).copied().unwrap_or_default();
            now.instructions = now.instructions.saturating_sub(then.instructions);
            now.world_switches = now.world_switches.saturating_sub(then.world_switches);
        }
        self.guests.retain(|guest| guest.world_switches > 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::empty_page;

    fn page(count: Count) -> Vec<u64> {
        let mut words = empty_page(count, 2, 2);
        (words[header::SEQUENCE], words[header::GUESTS]) = (8, 1);
        words[pu_word(1, Place::Instructions)] = 1000;
        words[pu_word(1, Place::InGuest)] = 300;
        words[pu_word(1, Place::WorldSwitches)] = 7;
        words[pu_word(1, Place::Accesses(Class::Guest, 0))] = 90;
        words[pu_word(1, Place::Misses(1))] = 5;
        words[guest_word(0)..][..3].copy_from_slice(&[0x1000, 300, 7]);
        words
    }

    #[test]
    fn a_page_reads_as_it_was_written() {
        let reading = Reading::parse(&page(Count::Locality)).unwrap();
        let pu = &reading.pus[1];
        assert_eq!((pu.instructions, pu.in_guest, pu.world_switches), (1000, 300, 7));
        let memory = pu.memory.as_ref().unwrap();
        assert_eq!((memory[0].guest, memory[1].misses, reading.cache_bytes), (90, 5, Some(1 << 20)));
        assert_eq!(reading.guests, [GuestCounts { vmcb: 0x1000, instructions: 300, world_switches: 7 }]);
        assert_eq!(reading.pus[0], PuCounts { memory: Some(vec![MemoryCounts::default(); 2]), ..PuCounts::default() });
    }

    #[test]
    fn accesses_that_nobody_counted_are_unknown_and_not_0() {
        let reading = Reading::parse(&page(Count::Work)).unwrap();
        assert_eq!((reading.pus[1].memory.clone(), reading.cache_bytes), (None, None));
    }

    #[test]
    fn a_difference_leaves_idle_guests_out() {
        let before = Reading::parse(&page(Count::Locality)).unwrap();
        let mut words = page(Count::Locality);
        words[pu_word(1, Place::Instructions)] = 1500;
        words[pu_word(1, Place::Accesses(Class::Guest, 0))] = 100;
        let after = Reading::parse(&words).unwrap().since(&before);
        assert_eq!((after.pus[1].instructions, after.pus[1].in_guest), (500, 0));
        assert_eq!(after.pus[1].memory.as_ref().unwrap()[0].guest, 10);
        assert!(after.guests.is_empty());
        assert_eq!(before.clone().since(&after).pus[1].instructions, 500, "a page that began anew is no huge number");
    }

    #[test]
    fn accesses_count_only_where_they_were_counted_all_the_time() {
        let at = |watches: u64, watching: u64, guest: u64| {
            let mut words = page(Count::Work);
            (words[header::WATCHES], words[header::WATCHING]) = (watches, watching);
            words[pu_word(1, Place::Accesses(Class::Guest, 0))] = guest;
            Reading::parse(&words).unwrap()
        };
        let memory = |now: Reading, then: &Reading| now.since(then).pus[1].memory.as_ref().map(|nodes| nodes[0].guest);
        assert_eq!(memory(at(1, 1, 9), &at(1, 1, 2)), Some(7));
        for (now, then) in [((0, 0), (0, 0)), ((1, 1), (0, 0)), ((1, 0), (1, 1)), ((2, 1), (1, 1))] {
            assert_eq!(memory(at(now.0, now.1, 9), &at(then.0, then.1, 2)), None, "{now:?} {then:?}");
        }
    }

    #[test]
    fn damage_is_named() {
        let with = |index: usize, value: u64| {
            let mut words = page(Count::Work);
            words[index] = value;
            Reading::parse(&words).unwrap_err()
        };
        assert_eq!(with(header::MAGIC, 0), CounterError::NotCounters);
        assert_eq!(with(header::VERSION, 9), CounterError::Version { found: 9 });
        assert_eq!(with(header::SEQUENCE, 3), CounterError::Torn);
        for index in [header::PUS, header::NODES, header::GUESTS, header::COUNT, header::WATCHING] {
            assert!(matches!(with(index, u64::MAX), CounterError::Damaged { value: u64::MAX, .. }), "{index}");
        }
        assert_eq!(Reading::parse(&page(Count::Work)[1..]), Err(CounterError::NotCounters));
    }

    proptest! {
        #[test]
        fn no_page_panics(damage in prop::collection::vec((0..80_usize, any::<u64>()), 0..6)) {
            let mut words = page(Count::Locality);
            for (index, value) in damage {
                words[index] = value;
            }
            if let Ok(reading) = Reading::parse(&words) {
                prop_assert!(reading.pus.len() <= PUS && reading.guests.len() <= GUESTS);
            }
        }
    }
}
