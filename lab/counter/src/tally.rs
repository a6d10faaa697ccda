//! The counts of all PUs, and of all guests' vCPUs that ran on them.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nearmetal_counters::{
    Cache, Class, Count, GUESTS, MemoryMap, NODES, PUS, Place, first_words, guest_word, header, pu_word,
};

use crate::ffi::Scoreboard;
use crate::page::Page;

/// The classes of accesses and the misses.
const ROWS: usize = Class::ALL.len() + 1;
/// Bytes of the modelled cache: a mebibyte, between the L2 and a core's share of the L3 of the processor that the lab
/// emulates (EPYC 7002: 512 KiB and 4 MiB).
const CACHE: u64 = 1 << 20;
/// No guest runs on the PU.
const NOBODY: usize = usize::MAX;

/// Of so many accesses one is looked at, on average: asking where an access went costs more than the access.
const SAMPLED: u64 = 16;

/// How long accesses are counted at most, unless they always are: who asked for it may have died.
const LONGEST: Duration = Duration::from_secs(300);
/// Accesses of a PU that are looked at, between two looks at the clock.
const CLOCK: u64 = 1 << 16;

/// Whether accesses are still to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// They are.
    Lasts,
    /// They were counted long enough.
    Ended,
}

/// What one PU counts beside its instructions. Only its own thread writes.
struct Pu {
    /// Accesses until the next one that is looked at.
    wait: AtomicU64,
    /// Accesses that the next one stands for.
    gap: AtomicU64,
    /// State of the generator that draws the gaps.
    random: AtomicU64,
    /// Its instructions when the guest was entered.
    entered_at: AtomicU64,
    /// The guest's vCPU that it runs: a place in the table, [`GUESTS`] for one that has none, or [`NOBODY`].
    guest: AtomicUsize,
    /// Accesses that were looked at.
    looked_at: AtomicU64,
    in_guest: AtomicU64,
    world_switches: AtomicU64,
    accesses: [[AtomicU64; NODES]; ROWS],
    /// Never contended: a lock costs less than what calls it.
    cache: Mutex<Cache>,
}

impl Pu {
    fn new(number: usize) -> Self {
        Self {
            wait: AtomicU64::new(1),
            gap: AtomicU64::new(1),
            random: AtomicU64::new(0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1)),
            entered_at: AtomicU64::new(0),
            guest: AtomicUsize::new(NOBODY),
            looked_at: AtomicU64::new(0),
            in_guest: AtomicU64::new(0),
            world_switches: AtomicU64::new(0),
            accesses: Default::default(),
            cache: Mutex::new(Cache::new(CACHE)),
        }
    }

    /// How many accesses the present one stands for, if it is looked at. Gaps are drawn at random (xorshift64*, Vigna 2014),
    /// since a loop may have any period.
    fn stands_for(&self) -> Option<u64> {
        let wait = self.wait.load(Relaxed).wrapping_sub(1);
        self.wait.store(wait, Relaxed);
        if wait != 0 {
            return None;
        }
        let gap = self.gap.load(Relaxed);
        let mut state = self.random.load(Relaxed);
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.random.store(state, Relaxed);
        let next = 1 + (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % (2 * SAMPLED - 1);
        self.wait.store(next, Relaxed);
        self.gap.store(next, Relaxed);
        Some(gap)
    }
}

/// Adds where nobody else writes.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(value), Relaxed);
}

/// One vCPU of a guest.
#[derive(Default)]
struct Guest {
    /// Physical address of its control block; 0: the place is free.
    vmcb: AtomicU64,
    instructions: AtomicU64,
    world_switches: AtomicU64,
}

/// All counts.
pub(crate) struct Tally {
    score: Scoreboard,
    count: Count,
    map: MemoryMap,
    pus: Vec<Pu>,
    guests: Vec<Guest>,
    /// Whether accesses are counted. It changes while no PU runs.
    watching: AtomicBool,
    /// How often that began.
    watches: AtomicU64,
    /// When it began last.
    since: Mutex<Instant>,
    /// The page, and its sequence.
    page: Mutex<(Page, u64)>,
}

impl Tally {
    /// Counts for this many vCPUs, and writes the page's header.
    pub(crate) fn new(
        mut page: Page,
        score: Scoreboard,
        count: Count,
        map: MemoryMap,
        vcpus: c_int,
    ) -> Result<Self, String> {
        let pus = usize::try_from(vcpus).unwrap_or(0);
        if pus == 0 || pus > PUS {
            return Err(format!("{vcpus} PUs: 1 to {PUS} can be counted"));
        }
        let words = first_words(count, pus, map.nodes(), Cache::new(CACHE).bytes());
        words.into_iter().enumerate().for_each(|(word, value)| page.put(word, value));
        Ok(Self {
            score,
            count,
            map,
            pus: (0..pus).map(Pu::new).collect(),
            guests: (0..GUESTS).map(|_| Guest::default()).collect(),
            watching: AtomicBool::new(count == Count::Locality),
            watches: AtomicU64::new(u64::from(count == Count::Locality)),
            since: Mutex::new(Instant::now()),
            page: Mutex::new((page, 0)),
        })
    }

    /// Whether accesses are counted now.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching.load(Relaxed)
    }

    /// Whether they are, and may cease to be.
    pub(crate) fn may_stop(&self) -> bool {
        self.is_watching() && self.count == Count::Work
    }

    /// From now on they are counted, or no longer; called while no PU runs.
    pub(crate) fn turn(&self) {
        if self.is_watching() {
            return self.watching.store(false, Relaxed);
        }
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        add(&self.watches, 1);
        self.watching.store(true, Relaxed);
    }

    fn patience(&self) -> Patience {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.may_stop() && since.elapsed() > LONGEST { Patience::Ended } else { Patience::Lasts }
    }

    /// Where blocks add their instructions.
    pub(crate) fn score(&self) -> Scoreboard {
        self.score
    }

    /// A PU is about to enter a guest.
    pub(crate) fn enter(&self, vcpu: c_uint, vmcb: Option<u64>) {
        // Left without the block behind its VMRUN having been seen: its time until now was the guest's or the host's, and
        // nobody knows where it ended.
        self.leave(vcpu);
        let Some(pu) = self.pus.get(vcpu as usize) else { return };
        add(&pu.world_switches, 1);
        pu.entered_at.store(self.score.get(vcpu), Relaxed);
        pu.guest.store(vmcb.and_then(|vmcb| self.place(vmcb)).unwrap_or(GUESTS), Relaxed);
    }

    /// A PU has left its guest, if it was in one.
    pub(crate) fn leave(&self, vcpu: c_uint) {
        let Some(pu) = self.pus.get(vcpu as usize) else { return };
        let guest = pu.guest.load(Relaxed);
        if guest == NOBODY {
            return;
        }
        let executed = self.score.get(vcpu).wrapping_sub(pu.entered_at.load(Relaxed));
        pu.guest.store(NOBODY, Relaxed);
        add(&pu.in_guest, executed);
        if let Some(guest) = self.guests.get(guest) {
            // Another PU may run it next, never at the same time.
            add(&guest.instructions, executed);
            add(&guest.world_switches, 1);
        }
    }

    /// The place of a guest's vCPU in the table; `None` when the table is full.
    fn place(&self, vmcb: u64) -> Option<usize> {
        let start = (vmcb >> 12) as usize % GUESTS;
        (start..GUESTS).chain(0..start).find(|place| {
            let own = &self.guests[*place].vmcb;
            let taken = own.compare_exchange(0, vmcb, Relaxed, Relaxed);
            taken.is_ok() || taken == Err(vmcb)
        })
    }

    /// A PU has accessed memory; `physical` tells where, `None` for a device.
    pub(crate) fn access(&self, vcpu: c_uint, address: u64, physical: impl FnOnce() -> Option<u64>) -> Patience {
        let Some(pu) = self.pus.get(vcpu as usize) else { return Patience::Lasts };
        let stands_for = pu.stands_for();
        let in_cache = Cache::is_modelled(address);
        if stands_for.is_none() && !in_cache {
            return Patience::Lasts;
        }
        let Some(physical) = physical() else { return Patience::Lasts };
        let Some(node) = self.map.node(physical) else { return Patience::Lasts };
        if in_cache && pu.cache.lock().unwrap_or_else(PoisonError::into_inner).misses(physical) {
            add(&pu.accesses[ROWS - 1][node], Cache::SAMPLED);
        }
        let Some(stands_for) = stands_for else { return Patience::Lasts };
        let class = if pu.guest.load(Relaxed) != NOBODY {
            Class::Guest
        } else if address >> 47 == 0 {
            Class::User
        } else {
            Class::Kernel
        };
        add(&pu.accesses[class as usize][node], stands_for);
        add(&pu.looked_at, 1);
        if pu.looked_at.load(Relaxed) % CLOCK == 0 { self.patience() } else { Patience::Lasts }
    }

    /// Writes everything to the page.
    pub(crate) fn publish(&self) {
        let mut guard = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        let (page, sequence) = &mut *guard;
        page.put(header::SEQUENCE, *sequence + 1);
        Page::barrier();
        for (index, pu) in self.pus.iter().enumerate() {
            let instructions = self.score.get(index as c_uint);
            let mut in_guest = pu.in_guest.load(Relaxed);
            if pu.guest.load(Relaxed) != NOBODY {
                in_guest = in_guest.wrapping_add(instructions.saturating_sub(pu.entered_at.load(Relaxed)));
            }
            page.put(pu_word(index, Place::Instructions), instructions);
            page.put(pu_word(index, Place::InGuest), in_guest);
            page.put(pu_word(index, Place::WorldSwitches), pu.world_switches.load(Relaxed));
            if self.watches.load(Relaxed) == 0 {
                continue;
            }
            for node in 0..self.map.nodes() {
                for class in Class::ALL {
                    let count = pu.accesses[class as usize][node].load(Relaxed);
                    page.put(pu_word(index, Place::Accesses(class, node)), count);
                }
                page.put(pu_word(index, Place::Misses(node)), pu.accesses[ROWS - 1][node].load(Relaxed));
            }
        }
        page.put(header::WATCHES, self.watches.load(Relaxed));
        page.put(header::WATCHING, u64::from(self.is_watching()));
        let mut shown = 0;
        for guest in self.guests.iter().filter(|guest| guest.vmcb.load(Relaxed) != 0) {
            let word = guest_word(shown);
            page.put(word, guest.vmcb.load(Relaxed));
            page.put(word + 1, guest.instructions.load(Relaxed));
            page.put(word + 2, guest.world_switches.load(Relaxed));
            shown += 1;
        }
        page.put(header::GUESTS, shown as u64);
        Page::barrier();
        *sequence += 2;
        page.put(header::SEQUENCE, *sequence);
    }
}
