//! `push` on the other end: the program that it starts on each host.
//!
//! A little over 500 lines, since it is one conversation, from the greeting to the end.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver as Inputs, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nearmetal_host::HostFs;

use super::desk::{Arrived, Desk};
use super::link::{Input, Link, Parts, on_frame};
use super::notes::Notes;
use super::shelf::Shelf;
use super::{port, serving};
use crate::chain::puller::{Do, Puller};
use crate::control::{self, FromHost, Outcome, ToHost, Upstream, VERSION};
use crate::frame::{Decoder, Frame, Seal};
use crate::handshake::Key;
use crate::hash::ImageId;
use crate::manifest::Manifest;
use crate::store::incoming::{Incoming, put_aside};
use crate::store::transfers::{EVERY, Progress, Stage};
use crate::store::users::users;
use crate::store::{Store, is_name};

/// How often a host says that it lives while it reads.
const ALIVE: Duration = Duration::from_secs(1);
/// How often time passes for the state machine.
const TICK: Duration = Duration::from_millis(20);

/// What a receiver is told on its command line.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// Where it keeps images.
    pub store: Store,
    /// Its data port; 0 lets the kernel choose.
    pub port: u16,
    /// The value of `SSH_CONNECTION`.
    pub connection: Option<String>,
}

/// Why a receiver ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// ssh ended, or its other end is not a `push` of this version.
    #[error("lost `nearmetal image push`: {0}")]
    Push(String),
    /// The image is not stored; `push` was told why.
    #[error("cannot store the image: {0}")]
    NotStored(String),
    /// Nothing can be said to `push`.
    #[error("cannot answer `nearmetal image push`")]
    Answer(#[source] std::io::Error),
    /// No data port.
    #[error("cannot listen on a data port")]
    Port(#[source] std::io::Error),
}

/// Takes an image from a chain, until all hosts have it. `input` and `output` lead to `push`.
///
/// # Errors
/// See [`ReceiveError`].
pub fn receive(
    options: &Receiver,
    fs: &HostFs,
    input: impl Read + Send + 'static,
    output: impl Write,
) -> Result<(), ReceiveError> {
    let (sender, inputs) = mpsc::channel();
    let (desks, desk_for_reader) = mpsc::channel();
    let to_main = sender.clone();
    thread::spawn(move || read_control(input, &to_main, &desk_for_reader));
    let mut host = Host { output, sender, inputs, desks };
    host.run(options, fs)
}

struct Host<W> {
    output: W,
    sender: Sender<Input>,
    inputs: Inputs<Input>,
    desks: Sender<Arc<Desk>>,
}

/// What `push` said in the beginning.
struct Begun {
    host: u32,
    image: ImageId,
    name: String,
    length: u64,
    data_bytes: u64,
    key: Key,
    bandwidth: Option<u64>,
}

/// A connection that frames are written to.
struct Open {
    link: u64,
    stream: TcpStream,
    seal: Seal,
}

impl<W: Write> Host<W> {
    fn tell(&mut self, message: &FromHost) -> Result<(), ReceiveError> {
        self.send(&Frame::Message(control::encode(message)))
    }

    fn send(&mut self, frame: &Frame) -> Result<(), ReceiveError> {
        let written = self.output.write_all(&frame.encode(None)).and_then(|()| self.output.flush());
        written.map_err(ReceiveError::Answer)
    }

    fn fail(&mut self, reason: String) -> Result<(), ReceiveError> {
        self.tell(&FromHost::Ended { outcome: Outcome::Failed { reason: reason.clone() } })?;
        Err(ReceiveError::NotStored(reason))
    }

    fn run(&mut self, options: &Receiver, fs: &HostFs) -> Result<(), ReceiveError> {
        let begun = self.begin()?;
        let store = &options.store;
        let shelf = Arc::new(Shelf::new(begun.bandwidth));
        let reuse = store.list().is_ok_and(|images| images.iter().any(|image| image.image != begun.image));
        let mut whole = None;
        if store.has(&begun.image) {
            match self.check(store, &begun, fs)? {
                Ok(manifest) => whole = manifest,
                Err(reason) => return self.fail(reason),
            }
        }
        let listener = serving::listen(options.port).map_err(ReceiveError::Port)?;
        let port = listener.local_addr().map_err(ReceiveError::Port)?.port();
        serving::accept_all(listener, begun.key, Arc::clone(&shelf));
        let connection = options.connection.as_deref().and_then(port::connection);
        let address = connection.map(|(_, here)| here);
        let speed = address.and_then(|address| port::speed(fs, address));
        let desk = match &whole {
            Some(_) => None,
            None => match Incoming::open(store, &begun.image, begun.length, begun.data_bytes) {
                Ok(incoming) => Some(incoming),
                Err(error) => return self.fail(error.to_string()),
            },
        };
        let reuse = reuse || desk.as_ref().is_some_and(Incoming::is_resumed);
        self.tell(&FromHost::Ready { version: VERSION, port, address, speed, reuse })?;
        match (whole, desk) {
            (Some(manifest), _) => {
                let file = nearmetal_host::files::open(&store.path(&begun.image));
                let file = file.map_err(|error| ReceiveError::NotStored(error.to_string()))?;
                let reused = manifest.data_bytes();
                let count = manifest.count() as u64;
                shelf.set_manifest(Arc::new(manifest), Arc::new(file), true);
                self.tell(&FromHost::Ended { outcome: Outcome::Stored { received: 0, reused } })?;
                self.serve_only(count, &shelf)
            }
            (None, Some(incoming)) => {
                let desk = Arc::new(Desk::new(Arc::clone(&shelf), incoming));
                let _ = self.desks.send(Arc::clone(&desk));
                let source = connection.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(source, _)| source);
                let notes = Notes::begin(Arc::clone(&desk), Progress::begun(&begun.name, begun.length));
                let state = Puller::new();
                Pulling { host: self, desk, begun, source, state, late: Vec::new(), notes: Some(notes), noted: None }
                    .run()
            }
            (None, None) => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<Begun, ReceiveError> {
        match self.inputs.recv() {
            Ok(Input::Control(ToHost::Begin { version, host, image, name, length, data_bytes, key, bandwidth })) => {
                if version != VERSION {
                    let words =
                        format!("it speaks version {version} and this host {VERSION}: install the same nearmetal");
                    return Err(ReceiveError::Push(words));
                }
                if !is_name(&name) || length > crate::hash::MOST_LENGTH {
                    return Err(ReceiveError::Push("the image's name or length makes no sense".to_owned()));
                }
                let key =
                    key.parse::<ImageId>().map_err(|_| ReceiveError::Push("its key makes no sense".to_owned()))?;
                let key = Key(*key.as_bytes());
                Ok(Begun { host, image, name, length, data_bytes, key, bandwidth })
            }
            Ok(Input::Closed(why)) => Err(ReceiveError::Push(why)),
            _ => Err(ReceiveError::Push("it did not begin with what it sends".to_owned())),
        }
    }

    /// Reads an image that is there under its final name: right, or put aside to be mended, or in use and left alone.
    fn check(
        &mut self,
        store: &Store,
        begun: &Begun,
        fs: &HostFs,
    ) -> Result<Result<Option<Manifest>, String>, ReceiveError> {
        // Reading a large image takes minutes: `push` hears meanwhile that this host lives.
        let (mut last, mut told) = (Instant::now(), Ok(()));
        let found = store.read_through(&begun.image, |_| {
            if last.elapsed() >= ALIVE && told.is_ok() {
                last = Instant::now();
                told = self.tell(&FromHost::Status(waiting(0)));
            }
        });
        told?;
        match found {
            Ok(manifest) if manifest.id() == begun.image => return Ok(Ok(Some(manifest))),
            Ok(_) => {}
            // Not damaged, as far as anybody knows: it stays.
            Err(problem) => return Ok(Err(format!("the image is there and cannot be read: {problem}"))),
        }
        let users = match users(fs, &begun.image, &[store.directory().to_owned()]) {
            Ok(users) => users,
            Err(error) => return Ok(Err(format!("the image is there, damaged: {error}"))),
        };
        if let Some(user) = users.first() {
            return Ok(Err(format!(
                "the image is there, damaged, and in use ({user}): it is left as it is; stop its users and push again"
            )));
        }
        if let Err(error) = put_aside(store, &begun.image) {
            return Ok(Err(format!("the image is there, damaged, and cannot be put aside: {error}: {}", error.source)));
        }
        let text = "the image was there, damaged and unused: what is wrong of it is fetched".to_owned();
        self.tell(&FromHost::Note { text })?;
        Ok(Ok(None))
    }

    /// A host that had the image before lets others have it.
    fn serve_only(&mut self, count: u64, shelf: &Shelf) -> Result<(), ReceiveError> {
        loop {
            match self.inputs.recv_timeout(crate::chain::BEAT) {
                Ok(Input::Control(ToHost::Finish)) => return Ok(()),
                Ok(Input::Closed(why)) => return Err(ReceiveError::Push(why)),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                _ => {}
            }
            // Who fetches from here would wait for it for ever.
            if let Some(index) = shelf.lock().spoilt.first() {
                return self.fail(damaged_since(*index));
            }
            self.tell(&FromHost::Status(waiting(count)))?;
        }
    }
}

/// A host that fetches nothing, and has so many pieces.
fn waiting(have: u64) -> control::Status {
    let doing = control::Doing::Waiting;
    control::Status { generation: 0, have, doing, without: Duration::ZERO, reached: false }
}

fn damaged_since(index: usize) -> String {
    format!("piece {index} was damaged on the disk after the image was stored: look after that disk, then push again")
}

struct Pulling<'a, W> {
    host: &'a mut Host<W>,
    desk: Arc<Desk>,
    begun: Begun,
    /// Where ssh came from.
    source: IpAddr,
    state: Puller,
    /// Pieces that were found damaged after all had been there.
    late: Vec<usize>,
    /// Who tells people who look at this host, until the image is being named: that leaves no note behind.
    notes: Option<Notes>,
    /// When that was last told, and what it did then.
    noted: Option<(Duration, Stage)>,
}

impl<W: Write> Pulling<'_, W> {
    fn run(mut self) -> Result<(), ReceiveError> {
        let current = Arc::new(AtomicU64::new(0));
        let heard = Arc::new(AtomicU64::new(0));
        let (mut open, mut by_ssh, mut fingerprints): (Option<Open>, Option<u64>, bool) = (None, None, false);
        let (mut finishing, mut stored, mut synced) = (false, false, 0);
        loop {
            let input = self.host.inputs.recv_timeout(TICK);
            let now = self.desk.shelf.now();
            match input {
                Ok(Input::Control(ToHost::Order { generation, upstream, fingerprints: with })) => {
                    fingerprints = with;
                    self.state.order(generation, upstream, now);
                }
                Ok(Input::Control(ToHost::Finish)) => return Ok(()),
                Ok(Input::Closed(why)) => return Err(ReceiveError::Push(why)),
                Ok(Input::Opened { link, stream, seal }) => {
                    open = Some(Open { link, stream, seal });
                    self.state.opened(link, now);
                }
                Ok(Input::Lost { link, changed }) => {
                    if changed && link == self.state.link() {
                        let text = "what came was changed on its way; it is asked for again".to_owned();
                        self.host.tell(&FromHost::Note { text })?;
                    }
                    self.state.lost(link, now);
                }
                Ok(Input::Manifest(bytes)) if self.desk.shelf.manifest().is_none() => {
                    self.take_manifest(&bytes, now)?
                }
                Ok(Input::Looked) => self.state.looked(now),
                Ok(Input::Arrived(Arrived::Wrong)) => {
                    let text = "a piece did not prove right; it is asked for again".to_owned();
                    self.host.tell(&FromHost::Note { text })?;
                    self.state.ask_again();
                }
                // The end is told below, unless a piece was found damaged meanwhile.
                Ok(Input::Finished) if !self.late.is_empty() => stored = true,
                Ok(Input::Finished) => {
                    stored = true;
                    let (received, reused) = (&self.desk.received, &self.desk.reused);
                    let (received, reused) = (received.load(Ordering::Relaxed), reused.load(Ordering::Relaxed));
                    self.host.tell(&FromHost::Ended { outcome: Outcome::Stored { received, reused } })?;
                }
                Ok(Input::Failed(reason)) => return self.host.fail(reason),
                Ok(Input::Control(ToHost::Begin { .. }) | Input::Arrived(Arrived::Kept) | Input::Manifest(_)) => {}
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.fetch_what_was_spoilt(finishing, now)?;
            if let (true, Some(index)) = (stored, self.late.first()) {
                // What is known to be wrong does not keep its final name.
                let aside = put_aside(&self.desk.store(), &self.begun.image);
                let more = aside.err().map(|error| format!("; it cannot be put aside: {error}: {}", error.source));
                return self.host.fail(damaged_since(*index) + &more.unwrap_or_default());
            }
            let (have, whole) = self.desk.shelf.progress();
            if whole && !finishing {
                finishing = true;
                self.state.complete();
                let (desk, name, notes) = (Arc::clone(&self.desk), self.begun.name.clone(), self.notes.take());
                notes.iter().for_each(|notes| notes.tell(Stage::Syncing, have as u64));
                in_thread(&self.host.sender, move || {
                    notes.into_iter().for_each(Notes::end);
                    desk.finish(&name).map(|()| Input::Finished)
                });
            } else if self.desk.sync_is_due(&mut synced) {
                let desk = Arc::clone(&self.desk);
                in_thread(&self.host.sender, move || desk.sync().map(|()| Input::Arrived(Arrived::Kept)));
            }
            let last = Duration::from_micros(heard.load(Ordering::Relaxed));
            if by_ssh.is_some_and(|link| link == self.state.link()) {
                // ssh looks after its own connection.
                self.state.heard(self.state.link(), now);
            } else if current.load(Ordering::Relaxed) == self.state.link() {
                self.state.heard(self.state.link(), last.min(now));
            }
            self.state.tick(have, now);
            while let Some(what) = self.state.poll() {
                match what {
                    Do::Connect { link, upstream: Upstream::Ssh } => {
                        current.store(link, Ordering::Relaxed);
                        by_ssh = Some(link);
                        self.state.opened(link, now);
                    }
                    Do::Connect { link, upstream: Upstream::Port { address, port } } => {
                        current.store(link, Ordering::Relaxed);
                        let connection = Link {
                            number: link,
                            current: Arc::clone(&current),
                            heard: Arc::clone(&heard),
                            desk: Arc::clone(&self.desk),
                            inputs: self.host.sender.clone(),
                        };
                        let (key, host, address) = (self.begun.key, self.begun.host, address.unwrap_or(self.source));
                        thread::spawn(move || connection.pull((address, port), &key, host));
                    }
                    Do::HangUp { link } => {
                        current.store(0, Ordering::Relaxed);
                        if let Some(open) = open.take_if(|open| open.link == link) {
                            let _ = open.stream.shutdown(Shutdown::Both);
                        }
                    }
                    Do::AskManifest { link } => {
                        self.ask(link, by_ssh, &mut open, &[Frame::AskManifest { fingerprints }])?;
                    }
                    Do::AskPieces { link } => {
                        let frames: Vec<Frame> = self.desk.wanted().into_iter().map(Frame::Want).collect();
                        self.ask(link, by_ssh, &mut open, &frames)?;
                    }
                    Do::Report(status) => {
                        self.note(&status, now);
                        self.host.tell(&FromHost::Status(status))?;
                    }
                }
            }
        }
    }

    /// Tells whoever looks at this host, now and then.
    fn note(&mut self, status: &control::Status, now: Duration) {
        let Some(notes) = &self.notes else { return };
        let stage = match status.doing {
            control::Doing::Waiting => Stage::Waiting,
            control::Doing::Looking => Stage::Looking,
            control::Doing::Fetching => Stage::Fetching,
            control::Doing::Syncing => Stage::Syncing,
        };
        let fresh = self.noted.is_some_and(|(at, then)| then == stage && now.saturating_sub(at) < EVERY);
        if !fresh {
            self.noted = Some((now, stage));
            notes.tell(stage, status.have);
        }
    }

    /// Writes questions to whatever the connection is.
    fn ask(
        &mut self,
        link: u64,
        by_ssh: Option<u64>,
        open: &mut Option<Open>,
        frames: &[Frame],
    ) -> Result<(), ReceiveError> {
        if by_ssh == Some(link) {
            return frames.iter().try_for_each(|frame| self.host.send(frame));
        }
        let Some(open) = open.as_mut().filter(|open| open.link == link) else { return Ok(()) };
        for frame in frames {
            // One that breaks is told by the thread that reads.
            let _ = open.stream.write_all(&frame.encode(Some(&mut open.seal)));
        }
        Ok(())
    }

    fn take_manifest(&mut self, bytes: &[u8], now: Duration) -> Result<(), ReceiveError> {
        let manifest = match Manifest::parse(bytes, &self.begun.image) {
            Ok(manifest) if manifest.length() == self.begun.length => Arc::new(manifest),
            Ok(_) => return self.host.fail("the manifest is of an image of another length".to_owned()),
            Err(error) => {
                let text = format!("the manifest that came is damaged ({error}); it is asked for again");
                self.host.tell(&FromHost::Note { text })?;
                self.state.lost(self.state.link(), now);
                return Ok(());
            }
        };
        self.desk.begin(&manifest);
        self.state.has_manifest();
        let desk = Arc::clone(&self.desk);
        in_thread(&self.host.sender, move || desk.look(&manifest).map(|()| Input::Looked));
        Ok(())
    }

    fn fetch_what_was_spoilt(&mut self, finishing: bool, now: Duration) -> Result<(), ReceiveError> {
        let spoilt = std::mem::take(&mut self.desk.shelf.lock().spoilt);
        // What is being named, or has its name, is no longer written to.
        if finishing {
            self.late.extend(spoilt);
            return Ok(());
        }
        for index in spoilt {
            self.desk.lacks(index);
            let text = format!("piece {index} was damaged on the disk after it had been written; it is fetched again");
            self.host.tell(&FromHost::Note { text })?;
            self.state.lacks_again(now);
        }
        Ok(())
    }
}

fn in_thread<E: std::fmt::Display>(to: &Sender<Input>, work: impl FnOnce() -> Result<Input, E> + Send + 'static) {
    let to = to.clone();
    thread::spawn(move || {
        let _ = to.send(work().unwrap_or_else(|error| Input::Failed(error.to_string())));
    });
}

/// Reads what `push` says; pieces that come through ssh are put where others are.
fn read_control(mut input: impl Read, to: &Sender<Input>, desks: &Inputs<Arc<Desk>>) {
    let mut decoder = Decoder::new(None);
    let mut buffer = vec![0; 256 << 10];
    let mut parts = Parts::default();
    let mut desk: Option<Arc<Desk>> = None;
    let why = 'read: loop {
        let count = match input.read(&mut buffer) {
            Ok(0) => break "it closed the connection".to_owned(),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => break error.to_string(),
        };
        decoder.push(&buffer[..count]);
        loop {
            match decoder.next() {
                Ok(Some(Frame::Message(bytes))) => match control::parse(&bytes) {
                    Ok(message) => drop(to.send(Input::Control(message))),
                    Err(error) => break 'read error.to_string(),
                },
                Ok(Some(frame)) => {
                    desk = desk.or_else(|| desks.try_recv().ok());
                    if let Some(desk) = &desk {
                        on_frame(frame, &mut parts, desk, to);
                    }
                }
                Ok(None) => break,
                Err(error) => break 'read error.to_string(),
            }
        }
    };
    let _ = to.send(Input::Closed(why));
}
