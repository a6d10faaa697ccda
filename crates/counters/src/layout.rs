//! Where each count stands in the page: 64-bit words in the machine's own order.
//!
//! | words | what |
//! |---|---|
//! | 0 to 9 | header: magic, version, what is counted, PUs, nodes, sequence, guests' vCPUs seen, size of the modelled cache in bytes, times that accesses began to be counted, whether they are |
//! | 64 and on | 64 words for each PU: see [`Place`] |
//! | 4160 and on | 4 words for each guest's vCPU: address of its VMCB, instructions, world switches, 0 |
//!
//! The sequence is odd while the page is written. A reader takes a copy between two equal even ones.

use crate::Count;

/// Bytes of the page; a power of two, as a PCI BAR must be.
pub const PAGE_BYTES: usize = 64 << 10;
/// Words of the page.
pub const WORDS: usize = PAGE_BYTES / 8;
/// What the page begins with: `nmcounts`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nmcounts");
/// The layout that this crate describes.
pub const VERSION: u64 = 2;
/// PUs that the page has room for, as many as a lab's machine may have.
pub const PUS: usize = 64;
/// Nodes that the page has room for, as many as a lab's machine may have.
pub const NODES: usize = 8;
/// Guests' vCPUs that the page has room for.
pub const GUESTS: usize = 1008;

/// The instruction that asks for the page to be written: `nopl 0x6d6e6d6e(%rax)`, in the long form of 7 bytes (Intel SDM vol. 2,
/// NOP; AMD APM vol. 3, NOP). No compiler emits this displacement, and a processor that nobody counts does nothing.
pub const PUBLISH: [u8; 7] = [0x0f, 0x1f, 0x80, 0x6e, 0x6d, 0x6e, 0x6d];
/// The same with another displacement: count accesses to memory from now on. It takes effect when all PUs have stopped for a
/// moment, and the page says when.
pub const WATCH: [u8; 7] = [0x0f, 0x1f, 0x80, 0x77, 0x6d, 0x6e, 0x6d];
/// And this one: count them no longer.
pub const UNWATCH: [u8; 7] = [0x0f, 0x1f, 0x80, 0x75, 0x6d, 0x6e, 0x6d];

/// Words of the header.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// [`super::VERSION`].
    pub const VERSION: usize = 1;
    /// [`crate::Count::word`].
    pub const COUNT: usize = 2;
    /// PUs of the machine.
    pub const PUS: usize = 3;
    /// Nodes of the machine.
    pub const NODES: usize = 4;
    /// Odd while the page is written.
    pub const SEQUENCE: usize = 5;
    /// Guests' vCPUs that were seen.
    pub const GUESTS: usize = 6;
    /// Size of the cache whose misses are counted, in bytes.
    pub const CACHE: usize = 7;
    /// How often accesses to memory began to be counted: 1 from the beginning where they always are.
    pub const WATCHES: usize = 8;
    /// 1 while they are counted, else 0.
    pub const WATCHING: usize = 9;
}

/// Words of the header that have a meaning.
const HEADER: usize = header::WATCHING + 1;

/// The header of a page on which nothing was counted yet. `count` says whether accesses are counted from the beginning.
pub fn first_words(count: Count, pus: usize, nodes: usize, cache_bytes: u64) -> Vec<u64> {
    let watches = u64::from(count == Count::Locality);
    let mut words = vec![0; HEADER];
    for (word, value) in [
        (header::MAGIC, MAGIC),
        (header::VERSION, VERSION),
        (header::COUNT, count.word()),
        (header::PUS, pus as u64),
        (header::NODES, nodes as u64),
        (header::CACHE, cache_bytes),
        (header::WATCHES, watches),
        (header::WATCHING, watches),
    ] {
        words[word] = value;
    }
    words
}

/// The whole page of that moment, with a modelled cache of a mebibyte: what tests begin with.
pub fn empty_page(count: Count, pus: usize, nodes: usize) -> Vec<u64> {
    let mut words = first_words(count, pus, nodes, 1 << 20);
    words.resize(WORDS, 0);
    words
}

const FIRST_PU: usize = 64;
const WORDS_OF_A_PU: usize = 64;
const FIRST_GUEST: usize = FIRST_PU + PUS * WORDS_OF_A_PU;
const WORDS_OF_A_GUEST: usize = 4;

/// Who accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A program on the host.
    User,
    /// The host's kernel.
    Kernel,
    /// A guest, whatever runs in it.
    Guest,
}

impl Class {
    /// All of them, in the page's order.
    pub const ALL: [Self; 3] = [Self::User, Self::Kernel, Self::Guest];
}

/// A count of a PU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Instructions, those of guests included.
    Instructions,
    /// Instructions of guests.
    InGuest,
    /// Entries into guests (VMRUN).
    WorldSwitches,
    /// Accesses that went to a node's memory.
    Accesses(Class, usize),
    /// Accesses to a node's memory that a cache of the stated size would have missed.
    Misses(usize),
}

/// The word of a count.
pub const fn pu_word(pu: usize, place: Place) -> usize {
    let within = match place {
        Place::Instructions => 0,
        Place::InGuest => 1,
        Place::WorldSwitches => 2,
        Place::Accesses(class, node) => 8 + class as usize * NODES + node,
        Place::Misses(node) => 8 + 3 * NODES + node,
    };
    FIRST_PU + pu * WORDS_OF_A_PU + within
}

/// The first word of a guest's vCPU.
pub const fn guest_word(guest: usize) -> usize {
    FIRST_GUEST + guest * WORDS_OF_A_GUEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_counts_share_a_word_and_all_are_within_the_page() {
        let mut words: Vec<usize> = (0..HEADER).collect();
        for pu in 0..PUS {
            words.extend([Place::Instructions, Place::InGuest, Place::WorldSwitches].map(|place| pu_word(pu, place)));
            for node in 0..NODES {
                words.extend(Class::ALL.map(|class| pu_word(pu, Place::Accesses(class, node))));
                words.push(pu_word(pu, Place::Misses(node)));
            }
        }
        words.extend((0..GUESTS).flat_map(|guest| (0..3).map(move |word| guest_word(guest) + word)));
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(words.last().is_some_and(|last| *last < WORDS));
        assert!(PAGE_BYTES.is_power_of_two());
    }
}
