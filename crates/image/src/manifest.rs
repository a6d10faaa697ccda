//! The manifest: what proves each piece of an image, where it has data, and what its blocks are.
//!
//! ```text
//! "NMIMAGE1"  length: u64  flags: u8 (1: with fingerprints)
//! per piece:  value: 32 bytes  data: u64, a bit for each block that is not zero
//!             fingerprints: u64 for each such block, if there are any
//! ```
//! Numbers are little-endian. The values are proven by the image's name, and what the masks and fingerprints say is
//! proven by the values: a piece that was put together by them either has its value, or is fetched as a whole.

use std::io::{self, Read};

use crate::hash::{
    BLOCK, BLOCKS, ImageId, MOST_LENGTH, PIECE, fingerprint, nonzero, piece_length, piece_value, pieces, root,
};

const MAGIC: &[u8; 8] = b"NMIMAGE1";
const WITH_FINGERPRINTS: u8 = 1;
const HEAD: usize = 8 + 8 + 1;

/// One piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Its chaining value.
    pub(crate) value: [u8; 32],
    /// Its blocks that are not zero.
    pub(crate) data: u64,
}

/// What proves an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    length: u64,
    pieces: Vec<Piece>,
    /// For each piece, the fingerprints of its blocks that are not zero, in order.
    fingerprints: Option<Vec<Vec<u64>>>,
}

/// Bytes that are not a manifest of this image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// It does not begin as one.
    #[error("not a manifest: it begins with other bytes")]
    Magic,
    /// A length nothing here has.
    #[error("the image has {0} bytes, and {MOST_LENGTH} is the limit")]
    Length(u64),
    /// A flag that this version does not know.
    #[error("unknown flags {0:#x}")]
    Flags(u8),
    /// Too short or too long for what it says.
    #[error("{found} bytes, where the image's length asks for {wanted}")]
    Size {
        /// Bytes it has.
        found: usize,
        /// Bytes it must have, as far as that is known.
        wanted: usize,
    },
    /// A piece has data behind the image's end.
    #[error("piece {0} has data behind the end of the image")]
    BehindEnd(usize),
    /// It proves another image.
    #[error("it proves {found}, not {wanted}")]
    OtherImage {
        /// What its values merge into.
        found: ImageId,
        /// What was asked for.
        wanted: ImageId,
    },
}

impl Manifest {
    /// Reads an image to its end. `tick` hears how many bytes were read so far.
    ///
    /// # Errors
    /// The reader's own.
    pub fn of(mut reader: impl Read, length: u64, mut tick: impl FnMut(u64)) -> io::Result<Self> {
        let mut builder = Self { length, pieces: Vec::new(), fingerprints: Some(Vec::new()) };
        let mut buffer = vec![0; PIECE];
        for index in 0..pieces(length) {
            let bytes = &mut buffer[..piece_length(length, index)];
            reader.read_exact(bytes)?;
            builder.push(index, bytes);
            tick(index as u64 * PIECE as u64 + bytes.len() as u64);
        }
        Ok(builder)
    }

    fn push(&mut self, index: usize, bytes: &[u8]) {
        let data = nonzero(bytes);
        self.pieces.push(Piece { value: piece_value(self.length, index, bytes), data });
        if let Some(all) = &mut self.fingerprints {
            all.push(fingerprints(bytes, data));
        }
    }

    /// The image that it proves.
    pub fn id(&self) -> ImageId {
        root(self.length, &self.pieces.iter().map(|piece| piece.value).collect::<Vec<_>>())
    }

    /// Bytes of the image.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of its blocks that are not zero: what it takes on a disk.
    pub fn data_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.data.count_ones()) * BLOCK as u64).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn piece(&self, index: usize) -> Option<&Piece> {
        self.pieces.get(index)
    }

    pub(crate) fn piece_length(&self, index: usize) -> usize {
        piece_length(self.length, index)
    }

    /// Whether these bytes are that piece.
    pub(crate) fn proves(&self, index: usize, bytes: &[u8]) -> bool {
        self.piece(index).is_some_and(|piece| {
            bytes.len() == self.piece_length(index) && piece_value(self.length, index, bytes) == piece.value
        })
    }

    pub(crate) fn fingerprints(&self, index: usize) -> Option<&[u64]> {
        self.fingerprints.as_ref()?.get(index).map(Vec::as_slice)
    }

    pub(crate) fn has_fingerprints(&self) -> bool {
        self.fingerprints.is_some()
    }

    /// Makes room for fingerprints, which are then given piece by piece.
    pub(crate) fn set_fingerprints(&mut self, all: Vec<Vec<u64>>) {
        let fits = all.len() == self.pieces.len()
            && all.iter().zip(&self.pieces).all(|(own, piece)| own.len() == piece.data.count_ones() as usize);
        self.fingerprints = fits.then_some(all);
    }

    /// Where another manifest of the same length has other pieces, in bytes; where lengths differ, from the shorter's end.
    pub(crate) fn differing(&self, other: &Self) -> Vec<u64> {
        let most = self.count().max(other.count());
        let differs = |index: &usize| self.piece(*index) != other.piece(*index);
        (0..most).filter(differs).map(|index| index as u64 * PIECE as u64).collect()
    }

    /// As bytes; without fingerprints if they are not asked for, or not known.
    pub fn encode(&self, with_fingerprints: bool) -> Vec<u8> {
        let fingerprints = self.fingerprints.as_ref().filter(|_| with_fingerprints);
        let mut bytes = Vec::with_capacity(HEAD + self.pieces.len() * 40);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.push(if fingerprints.is_some() { WITH_FINGERPRINTS } else { 0 });
        for (index, piece) in self.pieces.iter().enumerate() {
            bytes.extend_from_slice(&piece.value);
            bytes.extend_from_slice(&piece.data.to_le_bytes());
            for fingerprint in fingerprints.and_then(|all| all.get(index)).into_iter().flatten() {
                bytes.extend_from_slice(&fingerprint.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads a manifest, and refuses one that does not prove this image.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn parse(bytes: &[u8], wanted: &ImageId) -> Result<Self, ManifestError> {
        let manifest = Self::parse_any(bytes)?;
        let found = manifest.id();
        if found != *wanted {
            return Err(ManifestError::OtherImage { found, wanted: *wanted });
        }
        Ok(manifest)
    }

    fn parse_any(bytes: &[u8]) -> Result<Self, ManifestError> {
        let (head, mut rest) = bytes.split_at_checked(HEAD).ok_or(ManifestError::Magic)?;
        if &head[..8] != MAGIC {
            return Err(ManifestError::Magic);
        }
        let length = number(&head[8..16]);
        if length > MOST_LENGTH {
            return Err(ManifestError::Length(length));
        }
        let with = match head[16] {
            0 => false,
            WITH_FINGERPRINTS => true,
            flags => return Err(ManifestError::Flags(flags)),
        };
        let count = pieces(length);
        let wanted = HEAD + count * 40;
        let size = || ManifestError::Size { found: bytes.len(), wanted };
        // Before anything is allocated for what it claims.
        if bytes.len() < wanted {
            return Err(size());
        }
        let mut all = Vec::with_capacity(count);
        let mut fingerprints = with.then(|| Vec::with_capacity(count));
        for index in 0..count {
            let (piece, after) = rest.split_at_checked(40).ok_or_else(size)?;
            let mut value = [0; 32];
            value.copy_from_slice(&piece[..32]);
            let data = number(&piece[32..]);
            if data & !blocks_of(piece_length(length, index)) != 0 {
                return Err(ManifestError::BehindEnd(index));
            }
            rest = after;
            if let Some(fingerprints) = &mut fingerprints {
                let (own, after) = rest.split_at_checked(data.count_ones() as usize * 8).ok_or_else(size)?;
                fingerprints.push(own.chunks_exact(8).map(number).collect::<Vec<_>>());
                rest = after;
            }
            all.push(Piece { value, data });
        }
        if !rest.is_empty() {
            return Err(ManifestError::Size { found: bytes.len(), wanted: bytes.len() - rest.len() });
        }
        Ok(Self { length, pieces: all, fingerprints })
    }
}

/// The fingerprints of a piece's blocks that are not zero.
pub(crate) fn fingerprints(bytes: &[u8], data: u64) -> Vec<u64> {
    let blocks = bytes.chunks(BLOCK).enumerate();
    blocks.filter(|(at, _)| data >> at & 1 == 1).map(|(_, block)| fingerprint(block)).collect()
}

/// All blocks that a piece of so many bytes has.
pub(crate) fn blocks_of(length: usize) -> u64 {
    match length.div_ceil(BLOCK) {
        BLOCKS.. => u64::MAX,
        some => (1 << some) - 1,
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// For the fuzzer.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::parse_any(bytes) {
        assert_eq!(manifest.encode(true), bytes);
        let _ = manifest.id();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image() -> Vec<u8> {
        let mut image: Vec<u8> = (0..3 * PIECE + 9000).map(|at| (at / 13) as u8).collect();
        image[PIECE..PIECE + 40 * BLOCK].fill(0);
        image
    }

    fn manifest() -> Manifest {
        let image = image();
        Manifest::of(image.as_slice(), image.len() as u64, |_| ()).unwrap()
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_names_the_image() {
        let manifest = manifest();
        assert_eq!(manifest.id().as_bytes(), blake3::hash(&image()).as_bytes());
        assert_eq!(Manifest::parse(&manifest.encode(true), &manifest.id()), Ok(manifest.clone()));
        let without = Manifest::parse(&manifest.encode(false), &manifest.id()).unwrap();
        assert!(!without.has_fingerprints());
        assert_eq!(without.data_bytes(), manifest.data_bytes());
        assert_eq!(manifest.piece(1).unwrap().data.count_ones(), 24);
    }

    #[test]
    fn a_manifest_with_one_value_changed_proves_another_image() {
        let manifest = manifest();
        let mut bytes = manifest.encode(true);
        bytes[HEAD + 3] ^= 1;
        let error = Manifest::parse(&bytes, &manifest.id()).unwrap_err();
        assert!(matches!(error, ManifestError::OtherImage { .. }), "{error}");
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&MOST_LENGTH.to_le_bytes());
        bytes.push(0);
        assert!(matches!(Manifest::parse_any(&bytes), Err(ManifestError::Size { .. })));
        bytes[15] = 0xff;
        assert!(matches!(Manifest::parse_any(&bytes), Err(ManifestError::Length(_))));
    }

    proptest! {
        #[test]
        fn a_damaged_manifest_is_refused_or_means_what_it_says(at in 0_usize..5000, bit in 0..8, cut in 0_usize..6000) {
            let mut bytes = manifest().encode(true);
            let place = at % bytes.len();
            bytes[place] ^= 1_u8 << bit;
            bytes.truncate(cut.max(place + 1));
            if let Ok(read) = Manifest::parse_any(&bytes) {
                prop_assert_eq!(read.encode(true), bytes);
            }
        }
    }
}
