//! An image's name, and the hashes that prove it piece by piece.
//!
//! BLAKE3 is a tree over 1 KiB chunks. The subtree over an aligned 256 KiB has a *chaining value*, and the values of all
//! of them merge into the file's own hash (BLAKE3 paper, section 2.1; `blake3::hazmat`). So a list of 32 bytes per piece
//! is proven by the name alone, and each piece by the list, before a byte of it is kept.

use blake3::hazmat::{HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root};

/// Bytes of a piece: what is proven, kept and passed on at once. A chain of N hosts is N pieces long, so that larger ones
/// cost time at its end; smaller ones cost hashes.
pub const PIECE: usize = 256 << 10;
/// Bytes of a block: the unit of holes and of what is reused from other images. File systems in guests align to it.
pub const BLOCK: usize = 4 << 10;
/// Blocks of a piece: a mask of them is one `u64`.
pub(crate) const BLOCKS: usize = PIECE / BLOCK;
/// The longest image in bytes: 16 TiB, QEMU's own order of magnitude; its list of hashes has 2.5 GiB.
pub const MOST_LENGTH: u64 = 16 << 40;

/// The BLAKE3 of an image's content: its name, as `b3sum` prints it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId([u8; 32]);

impl ImageId {
    /// From the 32 bytes of the hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 digits, for tables.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl std::fmt::Display for ImageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ImageId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// A text that is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the name of an image: 64 hexadecimal digits, as `b3sum` prints them")]
pub struct NotAnImageId(String);

impl std::str::FromStr for ImageId {
    type Err = NotAnImageId;

    fn from_str(text: &str) -> Result<Self, NotAnImageId> {
        let refused = || NotAnImageId(text.chars().take(80).collect());
        let digits = text.as_bytes();
        if digits.len() != 64 || digits.iter().any(|digit| !matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(refused());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

impl serde::Serialize for ImageId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ImageId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// How many pieces an image of this length has; an empty one has one, which is empty.
pub(crate) fn pieces(length: u64) -> usize {
    length.div_ceil(PIECE as u64).max(1) as usize
}

/// Bytes of one piece of an image.
pub(crate) fn piece_length(length: u64, index: usize) -> usize {
    let begin = index as u64 * PIECE as u64;
    length.saturating_sub(begin).min(PIECE as u64) as usize
}

/// The value of a piece: the chaining value of its subtree, or the file's hash if it is all of the file.
pub(crate) fn piece_value(length: u64, index: usize, bytes: &[u8]) -> [u8; 32] {
    if pieces(length) == 1 {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(index as u64 * PIECE as u64);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The file's hash, of the values of all its pieces.
pub(crate) fn root(length: u64, values: &[[u8; 32]]) -> ImageId {
    match values {
        [] => ImageId(*blake3::hash(&[]).as_bytes()),
        [all] => ImageId(*all),
        _ => {
            let middle = left_subtree_len(length);
            let (left, right) = values.split_at((middle / PIECE as u64) as usize);
            let merged = merge_subtrees_root(&subtree(middle, left), &subtree(length - middle, right), Mode::Hash);
            ImageId(*merged.as_bytes())
        }
    }
}

fn subtree(length: u64, values: &[[u8; 32]]) -> [u8; 32] {
    match values {
        [one] => *one,
        // Not reached: a subtree has a piece at least.
        [] => [0; 32],
        _ => {
            let middle = left_subtree_len(length);
            let (left, right) = values.split_at((middle / PIECE as u64) as usize);
            merge_subtrees_non_root(&subtree(middle, left), &subtree(length - middle, right), Mode::Hash)
        }
    }
}

/// The blocks of a piece that are not all zero; blocks behind its end count as zero.
pub(crate) fn nonzero(bytes: &[u8]) -> u64 {
    let mut mask = 0;
    for (at, block) in bytes.chunks(BLOCK).enumerate() {
        // Eight bytes at a time: unoptimised builds would otherwise spend more on this than on the hash.
        if any_word(block) || block.len() % 8 != 0 && block.iter().any(|byte| *byte != 0) {
            mask |= 1 << at;
        }
    }
    mask
}

fn any_word(block: &[u8]) -> bool {
    let mut any = 0_u64;
    for word in block.chunks_exact(8) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        any |= u64::from_ne_bytes(bytes);
    }
    any != 0
}

/// Eight bytes that tell one block's content from another's. A collision is caught by the piece's value.
pub(crate) fn fingerprint(block: &[u8]) -> u64 {
    let hash = blake3::hash(block);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn the_values_of_all_pieces_merge_into_the_hash_that_b3sum_prints() {
        for length in [0, 1, 1024, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 77, 7 * PIECE, 9 * PIECE + 1025]
        {
            let all = content(length);
            let values: Vec<_> = (0..pieces(length as u64))
                .map(|at| piece_value(length as u64, at, &all[at * PIECE..all.len().min((at + 1) * PIECE)]))
                .collect();
            assert_eq!(root(length as u64, &values).as_bytes(), blake3::hash(&all).as_bytes(), "{length}");
        }
    }

    #[test]
    fn a_name_is_read_as_it_is_printed_and_junk_is_refused() {
        let id = ImageId(*blake3::hash(b"x").as_bytes());
        assert_eq!(id.to_string().parse(), Ok(id));
        for junk in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"0".repeat(63), &"é".repeat(32)] {
            assert!(junk.parse::<ImageId>().is_err(), "{junk}");
        }
    }

    #[test]
    fn blocks_of_zeros_are_seen_wherever_the_last_byte_is() {
        let mut bytes = vec![0; PIECE - 5];
        assert_eq!(nonzero(&bytes), 0);
        bytes[BLOCK] = 1;
        *bytes.last_mut().unwrap() = 1;
        assert_eq!(nonzero(&bytes), 1 << 63 | 2);
    }
}
