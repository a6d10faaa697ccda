//! Serving one connection: on a data port, or through ssh.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::bucket::SLICE;
use super::shelf::Shelf;
use crate::chain::serve::{Next, Serve};
use crate::frame::{Decoder, Frame, MANIFEST_PART, Run, Seal};
use crate::handshake::{self, Key};
use crate::hash::BLOCK;
use crate::store::incoming::blocks_in;

/// How long a stranger may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// What a peer asked for and was not yet given.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) manifest: Option<bool>,
    pub(crate) runs: Vec<Run>,
    pub(crate) closed: bool,
}

impl Requests {
    /// Takes a frame in; one that goes the other way is not for us.
    pub(crate) fn take(&mut self, frame: Frame) {
        match frame {
            Frame::AskManifest { fingerprints } => self.manifest = Some(fingerprints),
            Frame::Want(runs) => self.runs.extend(runs),
            _ => {}
        }
    }
}

/// Sends what is asked for until the connection ends.
pub(crate) fn serve(
    shelf: &Shelf,
    requests: &Mutex<Requests>,
    mut seal: Option<Seal>,
    send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut serve = Serve::new(0, shelf.now());
    let mut sized = false;
    loop {
        let contents = shelf.lock();
        let mut asked = requests.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.closed {
            return Ok(());
        }
        let mut manifest_for = None;
        if let Some(manifest) = &contents.manifest {
            manifest_for = asked.manifest.take().map(|with| (Arc::clone(manifest), with));
            if !sized {
                sized = true;
                serve = Serve::new(manifest.count(), shelf.now());
            }
            serve.want(&std::mem::take(&mut asked.runs));
        }
        drop(asked);
        if let Some((manifest, with)) = manifest_for {
            drop(contents);
            send_manifest(&manifest.encode(with), seal.as_mut(), send)?;
            continue;
        }
        match serve.next(&contents.have, shelf.now()) {
            Next::Wait(time) => shelf.wait(contents, time),
            Next::Alive => {
                drop(contents);
                send(&Frame::Alive.encode(seal.as_mut()))?;
            }
            Next::Piece { index, mask } => {
                let data =
                    contents.manifest.as_ref().and_then(|manifest| manifest.piece(index)).map(|piece| piece.data);
                drop(contents);
                // Not there any more: it is sent when it has been fetched anew.
                let (Some(data), Some(bytes)) = (data, shelf.piece(index)) else {
                    serve.want(&[Run { first: index as u32, count: 1, mask }]);
                    continue;
                };
                let mask = mask & data;
                let mut blocks = Vec::with_capacity(mask.count_ones() as usize * BLOCK);
                for (begin, end) in blocks_in(mask, bytes.len()) {
                    blocks.extend_from_slice(&bytes[begin..end]);
                }
                let frame = Frame::Piece { index: index as u32, mask, bytes: blocks }.encode(seal.as_mut());
                for slice in frame.chunks(SLICE) {
                    shelf.bucket.take(slice.len());
                    send(slice)?;
                    shelf.sent.fetch_add(slice.len() as u64, Ordering::Relaxed);
                }
            }
        }
    }
}

fn send_manifest(
    all: &[u8],
    mut seal: Option<&mut Seal>,
    send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let total = all.len() as u64;
    for (at, part) in all.chunks(MANIFEST_PART).enumerate() {
        let frame = Frame::Manifest { offset: (at * MANIFEST_PART) as u64, total, bytes: part.to_vec() };
        send(&frame.encode(seal.as_deref_mut()))?;
    }
    Ok(())
}

/// Opens a data port; 0 lets the kernel choose.
pub(crate) fn listen(port: u16) -> io::Result<TcpListener> {
    // Both families where there are two.
    TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)))
}

/// Serves everybody who comes to a port and knows the key, each in a thread of its own.
pub(crate) fn accept_all(listener: TcpListener, key: Key, shelf: Arc<Shelf>) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, above all: others end sooner or later.
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let shelf = Arc::clone(&shelf);
            // A connection that breaks is opened anew from below; nothing is to be done about it here.
            thread::spawn(move || drop(serve_stream(stream, &key, &shelf)));
        }
    });
}

fn serve_stream(mut stream: TcpStream, key: &Key, shelf: &Arc<Shelf>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    let mut hello = [0; handshake::HELLO];
    stream.read_exact(&mut hello)?;
    let Some((answer, expected, keys)) = handshake::answer(key, &hello, &nonce()?) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    stream.write_all(&answer)?;
    let mut last = [0; handshake::CLOSE];
    stream.read_exact(&mut last)?;
    handshake::same(&last, &expected).map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
    stream.set_read_timeout(None)?;
    let requests = Arc::new(Mutex::new(Requests::default()));
    let (reader, theirs, waker) = (stream.try_clone()?, Arc::clone(&requests), Arc::clone(shelf));
    thread::spawn(move || {
        read_requests(reader, Seal::new(keys.up), &theirs, &waker);
        theirs.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        waker.wake();
    });
    let mut writer = stream.try_clone()?;
    let ended = serve(shelf, &requests, Some(Seal::new(keys.down)), &mut |bytes| writer.write_all(bytes));
    // Ends the thread that reads.
    let _ = stream.shutdown(std::net::Shutdown::Both);
    ended
}

fn read_requests(mut stream: TcpStream, seal: Seal, requests: &Mutex<Requests>, shelf: &Shelf) {
    let mut decoder = Decoder::new(Some(seal));
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        decoder.push(&buffer[..count]);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => requests.lock().unwrap_or_else(PoisonError::into_inner).take(frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        shelf.wake();
    }
}

/// 32 random bytes.
pub(crate) fn nonce() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if filled == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
