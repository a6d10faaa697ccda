//! A small server of our own: what the generator's ceiling is measured against. It is no server that anybody should use, and
//! measures nothing itself; a thread for each connection, and everything from memory.

mod http;
mod imap;

use std::io::{self, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::ProbeError;
use crate::load::mailbox::Mail;
use crate::load::site::Site;

/// How long a client may keep silent.
const SILENCE: Duration = Duration::from_secs(120);
/// Clients at once.
const CLIENTS: usize = 12_000;

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// A generated site.
    Site(Site),
    /// The same page of so many bytes for every path.
    Page(usize),
    /// Generated mail; what is appended is read and forgotten.
    Mail(Mail),
}

/// A running one; it ends when it is dropped.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Responder {
    /// Listens, and answers from then on.
    ///
    /// # Errors
    /// The address is in use, or is not this machine's.
    pub fn start(address: SocketAddr, served: Served) -> Result<Self, ProbeError> {
        let listen = || -> io::Result<(TcpListener, SocketAddr)> {
            let listener = TcpListener::bind(address)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) =
            listen().map_err(|source| ProbeError::kernel(format!("listen at {address}"), source))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let accepting = std::thread::spawn(move || accept(&listener, served, &over));
        Ok(Self { address, is_over, accepting: Some(accepting) })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the one who waits for clients.
        drop(TcpStream::connect_timeout(&self.address, Duration::from_secs(1)));
        self.accepting.take().map(JoinHandle::join);
    }
}

fn accept(listener: &TcpListener, served: Served, is_over: &AtomicBool) {
    let clients = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        if is_over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        if clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS {
            clients.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let own = Arc::clone(&clients);
        let serve = move || {
            // A client that leaves, or says what it should not, has its connection closed.
            let _ = serve(&client, served);
            own.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().stack_size(256 << 10).spawn(serve).is_err() {
            clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn serve(client: &TcpStream, served: Served) -> io::Result<()> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(SILENCE))?;
    client.set_write_timeout(Some(SILENCE))?;
    let mut from = BufReader::new(client);
    match served {
        Served::Site(site) => http::serve(&mut from, client, |path| http::of_site(&site, path)),
        Served::Page(bytes) => {
            let page = vec![b'x'; bytes];
            http::serve(&mut from, client, |_| Some(page.clone()))
        }
        Served::Mail(mail) => imap::serve(&mut from, client, &mail),
    }
}

/// A line of at most so many bytes; `None` at the end of the stream.
///
/// # Errors
/// The client broke off, kept silent, or sent a longer line.
fn line(from: &mut impl io::BufRead, limit: usize) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut limited = io::Read::take(&mut *from, limit as u64);
    io::BufRead::read_until(&mut limited, b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    let text = String::from_utf8(line).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}
