//! Which pieces of an image there are.

/// A set of piece numbers below a fixed count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
    set: usize,
}

impl Bits {
    /// None of `count`.
    pub(crate) fn none(count: usize) -> Self {
        Self { words: vec![0; count.div_ceil(64)], count, set: 0 }
    }

    /// All of `count`.
    pub(crate) fn all(count: usize) -> Self {
        let mut bits = Self::none(count);
        (0..count).for_each(|at| bits.insert(at));
        bits
    }

    /// How many there may be.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.set
    }

    pub(crate) fn is_full(&self) -> bool {
        self.set == self.count
    }

    pub(crate) fn contains(&self, at: usize) -> bool {
        at < self.count && self.words[at / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn insert(&mut self, at: usize) {
        if at < self.count && !self.contains(at) {
            self.words[at / 64] |= 1 << (at % 64);
            self.set += 1;
        }
    }

    pub(crate) fn remove(&mut self, at: usize) {
        if self.contains(at) {
            self.words[at / 64] &= !(1 << (at % 64));
            self.set -= 1;
        }
    }

    /// The lowest number that both sets have.
    pub(crate) fn first_common(&self, other: &Self) -> Option<usize> {
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        both.enumerate().find(|(_, word)| *word != 0).map(|(at, word)| at * 64 + word.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_counts_what_is_in_it() {
        let mut bits = Bits::none(130);
        for at in [0, 64, 129, 129, 130, 1000] {
            bits.insert(at);
        }
        assert_eq!((bits.len(), bits.contains(129), bits.contains(130)), (3, true, false));
        bits.remove(0);
        bits.remove(0);
        assert_eq!(bits.first_common(&Bits::all(130)), Some(64));
        assert!(Bits::all(65).is_full());
        assert_eq!(Bits::none(130).first_common(&Bits::all(130)), None);
    }
}
