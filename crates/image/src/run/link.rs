//! A host's connection to the one before it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::desk::{Arrived, Desk};
use super::serving::nonce;
use crate::control::ToHost;
use crate::frame::{Decoder, Frame, Seal};
use crate::handshake::{self, Key};

/// How long a connection, and each step of its greeting, may take.
const OPENING: Duration = Duration::from_millis(500);
/// How often a thread that reads looks whether its connection is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// What a host's main thread hears.
pub(crate) enum Input {
    /// A message of `push`.
    Control(ToHost),
    /// ssh has ended, or brought what makes no sense.
    Closed(String),
    /// A connection is open; frames may be written to it.
    Opened { link: u64, stream: TcpStream, seal: Seal },
    /// It ended or did not open. `changed`: what came was not what was sent.
    Lost { link: u64, changed: bool },
    /// All bytes of a manifest, unproven.
    Manifest(Vec<u8>),
    /// What is there of the image is known.
    Looked,
    /// A piece came.
    Arrived(Arrived),
    /// The image has its final name.
    Finished,
    /// It never will.
    Failed(String),
}

/// Puts the parts of a manifest together.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    bytes: Vec<u8>,
}

impl Parts {
    /// The whole, once its last part is there. Parts that do not follow each other begin anew.
    pub(crate) fn push(&mut self, offset: u64, total: u64, part: &[u8]) -> Option<Vec<u8>> {
        if offset == 0 {
            self.bytes.clear();
        }
        if offset != self.bytes.len() as u64 || offset + part.len() as u64 > total {
            self.bytes.clear();
            return None;
        }
        self.bytes.extend_from_slice(part);
        (self.bytes.len() as u64 == total).then(|| std::mem::take(&mut self.bytes))
    }
}

/// Acts on a frame from above.
pub(crate) fn on_frame(frame: Frame, parts: &mut Parts, desk: &Desk, inputs: &Sender<Input>) {
    let input = match frame {
        Frame::Manifest { offset, total, bytes } => parts.push(offset, total, &bytes).map(Input::Manifest),
        Frame::Piece { index, mask, bytes } => Some(match desk.take(index as usize, mask, &bytes) {
            Ok(arrived) => Input::Arrived(arrived),
            Err(error) => Input::Failed(error.to_string()),
        }),
        // A sign of life, or a question that goes the other way.
        _ => None,
    };
    if let Some(input) = input {
        let _ = inputs.send(input);
    }
}

/// A connection to open.
pub(crate) struct Link {
    /// Its number.
    pub(crate) number: u64,
    /// The number of the one that is wanted.
    pub(crate) current: Arc<AtomicU64>,
    /// When something was last heard, in microseconds of the shelf's clock.
    pub(crate) heard: Arc<AtomicU64>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) inputs: Sender<Input>,
}

impl Link {
    /// Opens it and reads from it until it ends or is no longer wanted.
    pub(crate) fn pull(self, address: (IpAddr, u16), key: &Key, host: u32) {
        let changed = match self.run(address, key, host) {
            Ok(()) => return,
            Err(error) => error.kind() == ErrorKind::InvalidData,
        };
        let _ = self.inputs.send(Input::Lost { link: self.number, changed });
    }

    fn is_wanted(&self) -> bool {
        self.current.load(Ordering::Relaxed) == self.number
    }

    fn run(&self, (address, port): (IpAddr, u16), key: &Key, host: u32) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), OPENING)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(OPENING))?;
        stream.set_write_timeout(Some(OPENING))?;
        let hello = handshake::hello(host, &nonce()?);
        stream.write_all(&hello)?;
        let mut answer = [0; handshake::ANSWER];
        stream.read_exact(&mut answer)?;
        let refused = |error| io::Error::new(ErrorKind::PermissionDenied, error);
        let (last, keys) = handshake::close(key, &hello, &answer).map_err(refused)?;
        stream.write_all(&last)?;
        stream.set_read_timeout(Some(LOOK))?;
        self.hear();
        let opened = Input::Opened { link: self.number, stream: stream.try_clone()?, seal: Seal::new(keys.up) };
        let _ = self.inputs.send(opened);
        let mut decoder = Decoder::new(Some(Seal::new(keys.down)));
        let mut parts = Parts::default();
        let mut buffer = vec![0; 256 << 10];
        while self.is_wanted() {
            let count = match stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.hear();
            decoder.push(&buffer[..count]);
            while let Some(frame) = decoder.next().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))? {
                on_frame(frame, &mut parts, &self.desk, &self.inputs);
            }
        }
        Ok(())
    }

    fn hear(&self) {
        self.heard.store(self.desk.shelf.now().as_micros() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_a_whole_only_in_their_order() {
        let mut parts = Parts::default();
        assert_eq!(parts.push(0, 4, &[1, 2]), None);
        assert_eq!(parts.push(2, 4, &[3, 4]), Some(vec![1, 2, 3, 4]));
        assert_eq!(parts.push(2, 4, &[3, 4]), None);
        assert_eq!(parts.push(0, 4, &[1, 2, 3, 4, 5]), None);
        assert_eq!(parts.push(0, 1, &[9]), Some(vec![9]));
    }
}
