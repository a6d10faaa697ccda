//! Frames: what hosts say to each other on a data port, and what passes through ssh.
//!
//! ```text
//! length of the payload: u32  kind: u8  payload  tag: 16 bytes, on data ports only
//! ```
//! The tag is keyed BLAKE3 over the frame's number, its kind and its payload, with a key for each direction that the
//! handshake made of the transfer's key. A flipped, repeated or missing frame ends the connection.

use crate::hash::{BLOCK, PIECE};

/// The longest payload: a piece and what is said of it.
const MOST_PAYLOAD: usize = PIECE + 64;
const TAG: usize = 16;
const HEAD: usize = 5;
/// Bytes of a manifest in one frame.
pub(crate) const MANIFEST_PART: usize = 64 << 10;
/// Runs in one frame.
pub(crate) const MOST_RUNS: usize = 8192;

/// Neighbouring pieces of which the same blocks are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) mask: u64,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// "Send me the manifest as soon as you have it."
    AskManifest { fingerprints: bool },
    /// A part of it.
    Manifest { offset: u64, total: u64, bytes: Vec<u8> },
    /// "Send me these pieces as you get them"; adds to what was asked before.
    Want(Vec<Run>),
    /// Blocks of a piece.
    Piece { index: u32, mask: u64, bytes: Vec<u8> },
    /// Nothing to send, and still there.
    Alive,
    /// A message in JSON; through ssh only.
    Message(Vec<u8>),
}

/// Bytes that no peer of ours sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame of {0} bytes, and {MOST_PAYLOAD} is the limit")]
    TooLong(usize),
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("a frame of kind {0} whose content makes no sense")]
    Content(u8),
    #[error("a frame that was changed on its way, or is not from our peer")]
    Tag,
}

/// Numbers and authenticates the frames of one direction.
#[derive(Clone)]
pub(crate) struct Seal {
    key: [u8; 32],
    number: u64,
}

impl Seal {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key, number: 0 }
    }

    fn next(&mut self, kind: u8, payload: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.number.to_le_bytes()).update(&[kind]).update(payload);
        self.number += 1;
        hasher.finalize()
    }
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Self::AskManifest { .. } => 1,
            Self::Manifest { .. } => 2,
            Self::Want(_) => 3,
            Self::Piece { .. } => 4,
            Self::Alive => 5,
            Self::Message(_) => 6,
        }
    }

    /// As bytes to send.
    pub(crate) fn encode(&self, seal: Option<&mut Seal>) -> Vec<u8> {
        let mut out = vec![0; HEAD];
        match self {
            Self::AskManifest { fingerprints } => out.push(u8::from(*fingerprints)),
            Self::Manifest { offset, total, bytes } => {
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&total.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Want(runs) => {
                for run in runs {
                    out.extend_from_slice(&run.first.to_le_bytes());
                    out.extend_from_slice(&run.count.to_le_bytes());
                    out.extend_from_slice(&run.mask.to_le_bytes());
                }
            }
            Self::Piece { index, mask, bytes } => {
                out.reserve_exact(12 + bytes.len() + TAG);
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(&mask.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Alive => {}
            Self::Message(text) => out.extend_from_slice(text),
        }
        let length = (out.len() - HEAD) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out[4] = self.kind();
        if let Some(seal) = seal {
            let tag = seal.next(out[4], &out[HEAD..]);
            out.extend_from_slice(&tag.as_bytes()[..TAG]);
        }
        out
    }

    fn parse(kind: u8, payload: &[u8]) -> Result<Self, FrameError> {
        let wrong = FrameError::Content(kind);
        Ok(match kind {
            1 => match payload {
                [flag @ (0 | 1)] => Self::AskManifest { fingerprints: *flag == 1 },
                _ => return Err(wrong),
            },
            2 => {
                let (head, bytes) = payload.split_at_checked(16).ok_or(wrong)?;
                Self::Manifest { offset: long(&head[..8]), total: long(&head[8..]), bytes: bytes.to_vec() }
            }
            3 => {
                let runs = payload.chunks_exact(16);
                if !runs.remainder().is_empty() {
                    return Err(wrong);
                }
                let run = |run: &[u8]| Run { first: short(run), count: short(&run[4..]), mask: long(&run[8..16]) };
                Self::Want(runs.map(run).collect())
            }
            4 => {
                let (head, bytes) = payload.split_at_checked(12).ok_or(wrong.clone())?;
                let mask = long(&head[4..]);
                // The last block of an image may be short.
                let most = mask.count_ones() as usize * BLOCK;
                if bytes.len() > most || bytes.len() + BLOCK <= most || mask == 0 && !bytes.is_empty() {
                    return Err(wrong);
                }
                Self::Piece { index: short(head), mask, bytes: bytes.to_vec() }
            }
            5 if payload.is_empty() => Self::Alive,
            5 => return Err(wrong),
            6 => Self::Message(payload.to_vec()),
            _ => return Err(FrameError::Kind(kind)),
        })
    }
}

/// Takes frames apart as bytes come in.
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    begin: usize,
    seal: Option<Seal>,
}

impl Decoder {
    pub(crate) fn new(seal: Option<Seal>) -> Self {
        Self { buffer: Vec::new(), begin: 0, seal }
    }

    /// Takes in what was received.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.begin > 0 {
            self.buffer.drain(..self.begin);
            self.begin = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` until more is received. After an error nothing further is to be read.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.begin..];
        let Some((head, after)) = rest.split_at_checked(HEAD) else { return Ok(None) };
        let length = short(head) as usize;
        if length > MOST_PAYLOAD {
            return Err(FrameError::TooLong(length));
        }
        let tag_length = if self.seal.is_some() { TAG } else { 0 };
        let Some(body) = after.get(..length + tag_length) else { return Ok(None) };
        let (payload, tag) = body.split_at(length);
        let kind = head[4];
        if let Some(seal) = &mut self.seal {
            let mut whole = [0; 32];
            let expected = seal.next(kind, payload);
            whole.copy_from_slice(expected.as_bytes());
            whole[..TAG].copy_from_slice(tag);
            // blake3's own comparison takes the same time wherever they differ.
            if expected != blake3::Hash::from_bytes(whole) {
                return Err(FrameError::Tag);
            }
        }
        let frame = Frame::parse(kind, payload)?;
        self.begin += HEAD + length + tag_length;
        Ok(Some(frame))
    }
}

fn short(bytes: &[u8]) -> u32 {
    bytes[..4].iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

fn long(bytes: &[u8]) -> u64 {
    bytes[..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// For the fuzzer: what is understood is written as it was read.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz(bytes: &[u8]) {
    let mut decoder = Decoder::new(None);
    let mut read = 0;
    // In two parts, as a network may deliver it.
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for part in [first, second] {
        decoder.push(part);
        while let Ok(Some(frame)) = decoder.next() {
            let again = frame.encode(None);
            assert_eq!(again, &bytes[read..read + again.len()]);
            read += again.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::AskManifest { fingerprints: true },
            Frame::Manifest { offset: 3, total: 9, bytes: vec![1, 2, 3] },
            Frame::Want(vec![Run { first: 1, count: 2, mask: 3 }, Run { first: 9, count: 1, mask: u64::MAX }]),
            Frame::Piece { index: 7, mask: 5, bytes: vec![8; 2 * BLOCK - 100] },
            Frame::Alive,
            Frame::Message(b"{}".to_vec()),
        ]
    }

    fn sent(key: Option<[u8; 32]>) -> Vec<u8> {
        let mut seal = key.map(Seal::new);
        frames().iter().flat_map(|frame| frame.encode(seal.as_mut())).collect()
    }

    fn received(bytes: &[u8], part: usize, key: Option<[u8; 32]>) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::new(key.map(Seal::new));
        let mut frames = Vec::new();
        for bytes in bytes.chunks(part) {
            decoder.push(bytes);
            while let Some(frame) = decoder.next()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_arrive_as_they_were_sent_however_the_network_cuts_them() {
        for part in [1, 7, 4096, 1 << 20] {
            assert_eq!(received(&sent(None), part, None), Ok(frames()));
            assert_eq!(received(&sent(Some([7; 32])), part, Some([7; 32])), Ok(frames()));
        }
    }

    #[test]
    fn a_frame_that_is_repeated_or_sealed_with_another_key_is_refused() {
        let one = Frame::Alive.encode(Some(&mut Seal::new([7; 32])));
        assert_eq!(received(&[one.clone(), one].concat(), 4096, Some([7; 32])), Err(FrameError::Tag));
        assert_eq!(received(&sent(Some([7; 32])), 4096, Some([8; 32])), Err(FrameError::Tag));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_kept() {
        let error = received(&[0xff, 0xff, 0xff, 0x7f, 4], 5, None);
        assert_eq!(error, Err(FrameError::TooLong(0x7fff_ffff)));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_of_a_sealed_stream_never_gets_through(at in 0_usize..20_000, bit in 0..8) {
            let mut bytes = sent(Some([7; 32]));
            let at = at % bytes.len();
            bytes[at] ^= 1_u8 << bit;
            if let Ok(read) = received(&bytes, 4096, Some([7; 32])) {
                prop_assert!(read.len() < frames().len() && frames().starts_with(&read));
            }
        }

        #[test]
        fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = received(&bytes, 16, None);
        }
    }
}
