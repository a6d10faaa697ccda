//! Sets of CPUs and of NUMA nodes: one implementation, two types that cannot be mixed up.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// Tag of [`CpuSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cpu {}

/// Tag of [`NodeSet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {}

/// What the members of an [`IndexSet`] are.
pub trait Kind: Copy + Ord {
    /// With its article, for messages.
    const NAME: &'static str;
}

impl Kind for Cpu {
    const NAME: &'static str = "a CPU list";
}

impl Kind for Node {
    const NAME: &'static str = "a node list";
}

/// PUs (one hardware thread each; libvirt's and Linux's "cpu"), by operating-system index.
pub type CpuSet = IndexSet<Cpu>;
/// NUMA nodes, by operating-system index.
pub type NodeSet = IndexSet<Node>;

/// The largest index accepted. Linux allows 8192 CPUs on x86 and 1024 nodes; a larger one is a damaged text, and
/// expanding it would cost memory.
const LIMIT: u32 = 65_535;

/// A set of indices, printed as the kernel's list format (`0-3,8`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IndexSet<K: Kind> {
    members: BTreeSet<u32>,
    kind: PhantomData<K>,
}

impl<K: Kind> Default for IndexSet<K> {
    fn default() -> Self {
        Self { members: BTreeSet::new(), kind: PhantomData }
    }
}

impl<K: Kind> IndexSet<K> {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of one member.
    pub fn one(index: u32) -> Self {
        Self::from_iter([index])
    }

    /// Whether the index is in the set.
    pub fn contains(&self, index: u32) -> bool {
        self.members.contains(&index)
    }

    /// Adds a member; true if it was not there.
    pub fn insert(&mut self, index: u32) -> bool {
        self.members.insert(index)
    }

    /// Removes a member; true if it was there.
    pub fn remove(&mut self, index: u32) -> bool {
        self.members.remove(&index)
    }

    /// How many members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The smallest member.
    pub fn first(&self) -> Option<u32> {
        self.members.first().copied()
    }

    /// Members in rising order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.members.iter().copied()
    }

    /// Members of either.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Members of both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|index| other.contains(*index)).collect()
    }

    /// Members of this set that are not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|index| !other.contains(*index)).collect()
    }

    /// Whether every member is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.members.is_subset(&other.members)
    }

    /// Whether no member is shared.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.members.is_disjoint(&other.members)
    }

    /// The kernel's mask format, as files that take a mask want it: every group but the first has 8 digits.
    pub fn to_mask(&self) -> String {
        let mut words = vec![0u32; self.iter().last().map_or(0, |last| last as usize / 32) + 1];
        for index in self.iter() {
            words[index as usize / 32] |= 1 << (index % 32);
        }
        let mut mask = String::new();
        for (position, word) in words.iter().rev().enumerate() {
            mask.push_str(&if position == 0 { format!("{word:x}") } else { format!(",{word:08x}") });
        }
        mask
    }

    /// Parses the kernel's mask format: `ff`, `00000000,0000ffff`.
    pub fn parse_mask(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new("a CPU mask", text, "groups of up to 8 hex digits, split by commas");
        let mut set = Self::new();
        for (word, digits) in text.trim().rsplit(',').enumerate() {
            if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(error());
            }
            let bits = u32::from_str_radix(digits, 16).map_err(|_| error())?;
            for bit in (0..32).filter(|bit| (bits >> bit) & 1 == 1) {
                let index = (word as u32) * 32 + bit;
                if index > LIMIT {
                    return Err(error());
                }
                set.insert(index);
            }
        }
        Ok(set)
    }
}

impl<K: Kind> FromIterator<u32> for IndexSet<K> {
    fn from_iter<I: IntoIterator<Item = u32>>(members: I) -> Self {
        Self { members: members.into_iter().collect(), kind: PhantomData }
    }
}

impl<K: Kind> FromStr for IndexSet<K> {
    type Err = ParseError;

    /// Parses the kernel's list format, `0-3,8,16-30:2`; an empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError::new(K::NAME, text, "write indices and ranges, such as 0-3,8 (65535 at most)");
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            digits.parse::<u32>().ok().filter(|value| plain && *value <= LIMIT).ok_or_else(error)
        };
        let mut set = Self::new();
        let text = text.trim();
        if text.is_empty() {
            return Ok(set);
        }
        for part in text.split(',') {
            let (range, stride) = match part.trim().split_once(':') {
                Some((range, stride)) => (range, number(stride)?.max(1)),
                None => (part.trim(), 1),
            };
            let (low, high) = match range.split_once('-') {
                Some((low, high)) => (number(low)?, number(high)?),
                None => (number(range)?, number(range)?),
            };
            if low > high {
                return Err(error());
            }
            set.members.extend((low..=high).step_by(stride as usize));
        }
        Ok(set)
    }
}

impl<K: Kind> fmt::Display for IndexSet<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut members = self.iter().peekable();
        while let Some(low) = members.next() {
            let mut high = low;
            while members.peek() == Some(&(high + 1)) {
                high += 1;
                members.next();
            }
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&low.to_string());
            if high > low {
                text.push('-');
                text.push_str(&high.to_string());
            }
        }
        formatter.pad(&text)
    }
}

impl<K: Kind> fmt::Debug for IndexSet<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{{{self}}}")
    }
}

impl<K: Kind> TryFrom<String> for IndexSet<K> {
    type Error = ParseError;
    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl<K: Kind> From<IndexSet<K>> for String {
    fn from(set: IndexSet<K>) -> Self {
        set.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_read_as_the_kernel_writes_them() {
        for (text, members) in [
            ("", vec![]),
            ("0\n", vec![0]),
            ("0-3,8", vec![0, 1, 2, 3, 8]),
            ("0-6:2", vec![0, 2, 4, 6]),
            (" 5 , 7 ", vec![5, 7]),
        ] {
            assert_eq!(text.parse::<CpuSet>().unwrap().iter().collect::<Vec<_>>(), members, "{text}");
        }
        for junk in ["a", "1-", "-1", "3-1", "1,,2", "99999999", "0-70000", "1 2", "+1"] {
            assert!(junk.parse::<NodeSet>().is_err(), "{junk}");
        }
    }

    #[test]
    fn masks_read_as_the_kernel_writes_them() {
        assert_eq!(CpuSet::parse_mask("00000001,80000003\n").unwrap().to_string(), "0-1,31-32");
        let two_words: CpuSet = "0-1,31-32".parse().unwrap();
        assert_eq!((two_words.to_mask().as_str(), CpuSet::new().to_mask().as_str()), ("1,80000003", "0"));
        for junk in ["", "g", "123456789", "1,,2"] {
            assert!(CpuSet::parse_mask(junk).is_err(), "{junk}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_set_reads_back(members in proptest::collection::btree_set(0u32..2000, 0..60)) {
            let set: CpuSet = members.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(CpuSet::parse_mask(&set.to_mask()).unwrap(), set);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::parse_mask(&text);
        }
    }
}
