//! What passes between a user's run and the service: a letter, a length (u32, little endian), and so many bytes.
//!
//! Each side knows what the other may send, and how long it may be, before it takes room for it.

use std::io::{self, Read, Write};

use super::{LONGEST_FILE, LONGEST_REQUEST};

/// Bytes before a frame's own.
const HEAD: usize = 5;
/// Bytes of output in one frame at most.
pub const PIECE: usize = 1 << 18;

/// What a user sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromUser {
    /// A [`super::Request`], first.
    Request(Vec<u8>),
    /// His user data, if the request says that they follow.
    UserData(Vec<u8>),
    /// His meta-data, likewise.
    MetaData(Vec<u8>),
    /// A signal that his run got, by its number.
    Signal(u8),
}

/// What the service sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromService {
    /// Bytes for stdout.
    Stdout(Vec<u8>),
    /// Bytes for stderr.
    Stderr(Vec<u8>),
    /// Bytes of the guest's console.
    Console(Vec<u8>),
    /// A line of `--events`.
    Event(Vec<u8>),
    /// The exit code, last.
    End(u8),
}

/// Why a frame was not understood.
#[derive(Debug, thiserror::Error)]
pub enum WrongFrame {
    /// There is none: the other side has closed.
    #[error("the other side has closed the connection")]
    Closed,
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not one, or longer than it may be.
    #[error("a frame `{kind}` of {length} bytes, which nobody sends here", kind = kind.escape_ascii())]
    Unknown {
        /// Its letter.
        kind: u8,
        /// Its length.
        length: usize,
    },
}

/// Frames of one side.
pub trait Frames: Sized {
    /// Bytes of a frame with this letter at most; `None` for a letter that nobody sends.
    fn longest(kind: u8) -> Option<usize>;
    /// A frame of what was read.
    fn of(kind: u8, bytes: Vec<u8>) -> Option<Self>;
    /// Its letter and bytes.
    fn parts(&self) -> (u8, &[u8]);

    /// Writes it, in pieces where it is longer than a frame may be.
    ///
    /// # Errors
    /// The other side is gone, or does not read.
    fn send(&self, mut to: impl Write) -> io::Result<()> {
        let (kind, bytes) = self.parts();
        let longest = Self::longest(kind).unwrap_or(usize::MAX);
        let mut pieces = bytes.chunks(longest.max(1));
        let first = pieces.next().unwrap_or_default();
        for piece in std::iter::once(first).chain(pieces) {
            let length = u32::try_from(piece.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
            // One write, so that two threads' frames are not mixed where the caller holds no lock, and no small packet waits.
            let mut whole = Vec::with_capacity(HEAD + piece.len());
            whole.push(kind);
            whole.extend_from_slice(&length.to_le_bytes());
            whole.extend_from_slice(piece);
            to.write_all(&whole)?;
        }
        to.flush()
    }
}

/// Reads the next frame.
///
/// # Errors
/// There is none, or what comes is not one.
pub fn receive<F: Frames>(mut from: impl Read) -> Result<F, WrongFrame> {
    let mut head = [0; HEAD];
    let mut read = 0;
    while read < HEAD {
        match from.read(&mut head[read..]) {
            Ok(0) if read == 0 => return Err(WrongFrame::Closed),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    let unknown = || WrongFrame::Unknown { kind, length };
    if F::longest(kind).is_none_or(|longest| length > longest) {
        return Err(unknown());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    F::of(kind, bytes).ok_or_else(unknown)
}

impl Frames for FromUser {
    fn longest(kind: u8) -> Option<usize> {
        match kind {
            b'r' => Some(LONGEST_REQUEST),
            b'u' | b'm' => Some(LONGEST_FILE),
            b's' => Some(1),
            _ => None,
        }
    }

    fn of(kind: u8, bytes: Vec<u8>) -> Option<Self> {
        match (kind, bytes.as_slice()) {
            (b'r', _) => Some(Self::Request(bytes)),
            (b'u', _) => Some(Self::UserData(bytes)),
            (b'm', _) => Some(Self::MetaData(bytes)),
            (b's', [signal]) => Some(Self::Signal(*signal)),
            _ => None,
        }
    }

    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Request(bytes) => (b'r', bytes),
            Self::UserData(bytes) => (b'u', bytes),
            Self::MetaData(bytes) => (b'm', bytes),
            Self::Signal(signal) => (b's', std::slice::from_ref(signal)),
        }
    }
}

impl Frames for FromService {
    fn longest(kind: u8) -> Option<usize> {
        match kind {
            b'o' | b'e' | b'c' | b'j' => Some(PIECE),
            b'x' => Some(1),
            _ => None,
        }
    }

    fn of(kind: u8, bytes: Vec<u8>) -> Option<Self> {
        match (kind, bytes.as_slice()) {
            (b'o', _) => Some(Self::Stdout(bytes)),
            (b'e', _) => Some(Self::Stderr(bytes)),
            (b'c', _) => Some(Self::Console(bytes)),
            (b'j', _) => Some(Self::Event(bytes)),
            (b'x', [code]) => Some(Self::End(*code)),
            _ => None,
        }
    }

    fn parts(&self) -> (u8, &[u8]) {
        match self {
            Self::Stdout(bytes) => (b'o', bytes),
            Self::Stderr(bytes) => (b'e', bytes),
            Self::Console(bytes) => (b'c', bytes),
            Self::Event(bytes) => (b'j', bytes),
            Self::End(code) => (b'x', std::slice::from_ref(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_sent_is_received_and_long_output_comes_in_pieces() {
        let mut wire = Vec::new();
        FromService::Stdout(vec![7; PIECE + 1]).send(&mut wire).unwrap();
        FromService::Stderr(Vec::new()).send(&mut wire).unwrap();
        FromService::End(124).send(&mut wire).unwrap();
        let mut wire = wire.as_slice();
        let mut next = || receive::<FromService>(&mut wire);
        assert!(matches!(next(), Ok(FromService::Stdout(bytes)) if bytes.len() == PIECE));
        assert!(matches!(next(), Ok(FromService::Stdout(bytes)) if bytes == [7]));
        assert!(matches!(next(), Ok(FromService::Stderr(bytes)) if bytes.is_empty()));
        assert!(matches!(next(), Ok(FromService::End(124))));
        assert!(matches!(next(), Err(WrongFrame::Closed)));
    }

    #[test]
    fn a_frame_of_the_other_side_and_one_that_is_too_long_take_no_room() {
        let mut wire = Vec::new();
        FromService::End(0).send(&mut wire).unwrap();
        assert!(matches!(receive::<FromUser>(wire.as_slice()), Err(WrongFrame::Unknown { kind: b'x', length: 1 })));
        let long = [b'r', 0xff, 0xff, 0xff, 0xff];
        let refused = receive::<FromUser>(long.as_slice()).unwrap_err();
        assert_eq!(refused.to_string(), "a frame `r` of 4294967295 bytes, which nobody sends here");
        // A signal has one number, and a frame its whole length.
        assert!(matches!(receive::<FromUser>([b's', 0, 0, 0, 0].as_slice()), Err(WrongFrame::Unknown { .. })));
        assert!(matches!(receive::<FromUser>([b's', 1, 0, 0, 0].as_slice()), Err(WrongFrame::Io(_))));
        assert!(matches!(receive::<FromUser>([b's', 1].as_slice()), Err(WrongFrame::Io(_))));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_frame_that_is_sent_so_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(frame) = receive::<FromUser>(bytes.as_slice()) {
                let mut wire = Vec::new();
                frame.send(&mut wire).unwrap();
                prop_assert_eq!(&bytes[..wire.len()], wire.as_slice());
            }
        }
    }
}
