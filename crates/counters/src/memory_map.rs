//! Which node a physical address of the lab's machine belongs to.

use crate::layout::NODES;

/// Where memory goes on above the devices' window.
const ABOVE: u64 = 4 << 30;
/// QEMU's q35 keeps this much below 4 GiB of a machine that has less (hw/i386/pc_q35.c, pc_q35_init).
const SMALL: u64 = 0xb000_0000;
/// And this much of one that has more.
const BELOW: u64 = 0x8000_0000;

/// The nodes' memory as a q35 machine lays it out: node after node, from 0 to the devices' window below 4 GiB, and on above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryMap {
    below: u64,
    /// Where each node ends, were there no window.
    ends: Vec<u64>,
}

impl MemoryMap {
    /// The map of nodes with this much memory each, in MiB: `2048:2048:2048:2048`.
    ///
    /// # Errors
    /// The text is something else.
    pub fn parse(text: &str) -> Result<Self, MapError> {
        let mut ends = Vec::new();
        let mut end: u64 = 0;
        for word in text.split(':') {
            let mebibytes = word.parse::<u64>().ok().filter(|size| (1..=1 << 24).contains(size));
            let mebibytes = mebibytes.ok_or_else(|| MapError(text.chars().take(80).collect()))?;
            end += mebibytes << 20;
            ends.push(end);
        }
        if ends.len() > NODES {
            return Err(MapError(text.chars().take(80).collect()));
        }
        Ok(Self { below: if end >= SMALL { BELOW } else { end }, ends })
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.ends.len()
    }

    /// The node of an address; `None` where there is no memory.
    pub fn node(&self, address: u64) -> Option<usize> {
        let offset = match address {
            below if below < self.below => below,
            above if above >= ABOVE => above - ABOVE + self.below,
            _ => return None,
        };
        self.ends.iter().position(|end| offset < *end)
    }
}

/// A text that gives no memory of nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` gives no memory of nodes: write the MiB of 1 to {NODES} nodes, such as 2048:2048")]
pub struct MapError(String);

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn four_nodes_of_2_gib_lie_one_after_the_other() {
        let map = MemoryMap::parse("2048:2048:2048:2048").unwrap();
        assert_eq!(map.nodes(), 4);
        assert_eq!((map.node(0), map.node(2 * GIB - 1), map.node(2 * GIB)), (Some(0), Some(0), None));
        assert_eq!((map.node(4 * GIB - 1), map.node(4 * GIB), map.node(6 * GIB)), (None, Some(1), Some(2)));
        assert_eq!((map.node(10 * GIB - 1), map.node(10 * GIB)), (Some(3), None));
    }

    #[test]
    fn a_small_machine_is_all_below() {
        let map = MemoryMap::parse("512:512").unwrap();
        assert_eq!((map.node(GIB / 2), map.node(GIB)), (Some(1), None));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "x", "0", "1:", "-1", "1:2:3:4:5:6:7:8:9", "99999999999"] {
            assert!(MemoryMap::parse(text).is_err(), "{text}");
        }
    }
}
