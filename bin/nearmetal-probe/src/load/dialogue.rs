//! What a protocol must know to be driven: pure state, from bytes to bytes; sockets and clocks are the driver's.

use crate::load::failure::Failure;
use crate::random::Random;

/// What bytes from the server amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Nothing whole yet, or something nobody asked for that the protocol allows.
    More,
    /// The connection is open for requests.
    Ready,
    /// The answer is there.
    Answered(Answer),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Why it is none, where the server refused or answered something else; the connection may go on.
    pub failure: Option<Failure>,
    /// Whether the connection takes another request.
    pub reusable: bool,
    /// Bytes of it, everything counted.
    pub bytes: u64,
}

/// One connection's side of a protocol.
pub trait Dialogue {
    /// A connection was made: what is said first. Whether requests may follow at once.
    fn open(&mut self, out: &mut Vec<u8>) -> bool;

    /// Whether a request of this class begins with a connection of its own, whose opening is the request.
    fn is_opening(&self, _class: usize) -> bool {
        false
    }

    /// Writes a request of this class.
    fn request(&mut self, class: usize, random: &mut Random, out: &mut Vec<u8>);

    /// Takes what the server sent, and may answer it.
    ///
    /// # Errors
    /// It is nothing the protocol allows here; the connection is of no use any more.
    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Said, Failure>;

    /// The server closed the connection while it owed an answer.
    ///
    /// # Errors
    /// That was not the answer's end.
    fn closed(&mut self) -> Result<Answer, Failure>;
}
