//! `push`: the source of an image, and the coordinator of those who take it.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nearmetal_host::Piped;
use nearmetal_host::files::{self, FileError};

use super::event::{Event, EventKind};
use super::serving::{self, Requests, serve};
use super::shelf::Shelf;
use crate::chain::coordinator::{Coordinator, Directive, From, Part};
use crate::control::{self, FromHost, Outcome, ToHost, Upstream, VERSION};
use crate::frame::{Decoder, Frame};
use crate::handshake::Key;
use crate::hash::{ImageId, MOST_LENGTH};
use crate::manifest::Manifest;

const TICK: Duration = Duration::from_millis(20);
/// Bytes that wait for ssh before pieces wait too.
const MOST_QUEUED: usize = 512 << 10;
/// How long programs on hosts may take to end once all is over.
const ENDING: Duration = Duration::from_secs(2);
/// Progress is told so often.
const TOLD: Duration = Duration::from_millis(500);

/// A host that is to have the image.
#[derive(Debug, Clone)]
pub struct HostToPush {
    /// Its name, for people.
    pub name: String,
    /// The words that start its receiver, with ssh in front of them if it is another machine.
    pub words: Vec<OsString>,
    /// Whether it is this machine.
    pub local: bool,
}

/// What to push, and how.
#[derive(Debug, Clone)]
pub struct Push {
    /// The image.
    pub file: PathBuf,
    /// Its readable name.
    pub name: String,
    /// Who is to have it, in the order of the chain.
    pub hosts: Vec<HostToPush>,
    /// Send all of it through ssh.
    pub star: bool,
    /// Bytes per second that the source, and each host, may send on.
    pub bandwidth: Option<u64>,
    /// The source's data port; 0 lets the kernel choose.
    pub port: u16,
}

/// How a host ended: what it received and had, or why it does not have the image.
pub type HostEnd = Result<(u64, u64), String>;

/// What came of it.
#[derive(Debug, Clone)]
pub struct Pushed {
    /// The image's name.
    pub image: ImageId,
    /// Each host's end, in the order given.
    pub hosts: Vec<(String, HostEnd)>,
    /// From the first order to the last host that has it.
    pub transfer: Option<Duration>,
}

/// Why nothing was begun.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The image cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// As [`PushError::File`], further inside.
    #[error("cannot read `{}` to its end", path.display())]
    Read {
        /// The image.
        path: PathBuf,
        /// The system's own answer.
        #[source]
        source: std::io::Error,
    },
    /// Not a file that can be an image.
    #[error("`{}` {problem}", path.display())]
    NotAnImage {
        /// What was named.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// No data port, no randomness.
    #[error("cannot open a data port")]
    Port(#[source] std::io::Error),
}

enum Input {
    From(usize, FromHost),
    Asks(usize, Frame),
    Said(usize, String),
    Gone(usize, String),
}

/// One host's program.
struct Started {
    child: Child,
    queue: Sender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
    requests: Option<Arc<Mutex<Requests>>>,
    address: Option<(Option<std::net::IpAddr>, u16)>,
}

/// Sends an image to all hosts. `tell` hears what happens; `reading` how many bytes of the image were read.
///
/// # Errors
/// The image cannot be read, or no port opened. What becomes of each host is in the result.
pub fn push(options: &Push, reading: &mut dyn FnMut(u64), tell: &mut dyn FnMut(&Event)) -> Result<Pushed, PushError> {
    let begun = Instant::now();
    let not_an_image =
        |problem: &str| PushError::NotAnImage { path: options.file.clone(), problem: problem.to_owned() };
    let metadata = files::metadata(&options.file)?;
    if !metadata.is_file() {
        return Err(not_an_image("is not a file: write a block device into one first"));
    }
    if metadata.len() > MOST_LENGTH {
        return Err(not_an_image("is longer than the 16 TiB that an image may have"));
    }
    let file = files::open(&options.file)?;
    let read = |source| PushError::Read { path: options.file.clone(), source };
    let manifest = Manifest::of(&file, metadata.len(), reading).map_err(read)?;
    // Whether it ends where it did: an image that grows is being written to.
    if file.read_at(&mut [0], metadata.len()).map_err(read)? != 0 {
        return Err(not_an_image("grew while it was read: stop the program that writes to it"));
    }
    let image = manifest.id();
    let key = Key(serving::nonce().map_err(PushError::Port)?);
    let shelf = Arc::new(Shelf::new(options.bandwidth));
    let manifest = Arc::new(manifest);
    shelf.set_manifest(Arc::clone(&manifest), Arc::new(file), true);
    let listener = serving::listen(options.port).map_err(PushError::Port)?;
    let port = listener.local_addr().map_err(PushError::Port)?.port();
    serving::accept_all(listener, key, Arc::clone(&shelf));

    let (sender, inputs) = mpsc::channel();
    let mut pushing = Pushing {
        options,
        begun,
        tell,
        shelf: Arc::clone(&shelf),
        port,
        reuse: false,
        started: Vec::new(),
        ends: options.hosts.iter().map(|_| None).collect(),
        coordinator: Coordinator::new(options.hosts.len(), options.star, shelf.now()),
        first_order: None,
        last_stored: None,
        told: vec![(Duration::ZERO, 0); options.hosts.len()],
    };
    pushing.tell(
        None,
        EventKind::Named {
            image,
            name: options.name.clone(),
            length: manifest.length(),
            data_bytes: manifest.data_bytes(),
            pieces: manifest.count() as u64,
        },
    );
    for (at, host) in options.hosts.iter().enumerate() {
        let started = start(at, host, &sender);
        let begin = ToHost::Begin {
            version: VERSION,
            host: at as u32,
            image,
            name: options.name.clone(),
            length: manifest.length(),
            data_bytes: manifest.data_bytes(),
            key: control::digits(&key.0),
            bandwidth: options.bandwidth,
        };
        match started {
            Ok(started) => {
                pushing.started.push(Some(started));
                pushing.send(at, &begin);
            }
            Err(reason) => {
                pushing.started.push(None);
                let _ = sender.send(Input::Gone(at, reason));
            }
        }
    }
    pushing.run(&inputs);
    Ok(pushing.end(image))
}

struct Pushing<'a> {
    options: &'a Push,
    begun: Instant,
    tell: &'a mut dyn FnMut(&Event),
    shelf: Arc<Shelf>,
    port: u16,
    reuse: bool,
    started: Vec<Option<Started>>,
    ends: Vec<Option<HostEnd>>,
    coordinator: Coordinator,
    first_order: Option<Instant>,
    last_stored: Option<Instant>,
    told: Vec<(Duration, u64)>,
}

impl Pushing<'_> {
    fn tell(&mut self, host: Option<usize>, kind: EventKind) {
        let name = host.and_then(|host| self.options.hosts.get(host)).map(|host| host.name.as_str());
        (self.tell)(&Event::new(self.begun.elapsed(), name, kind));
    }

    fn send(&self, host: usize, message: &ToHost) {
        if let Some(Some(started)) = self.started.get(host) {
            started.send(Frame::Message(control::encode(message)).encode(None));
        }
    }

    fn run(&mut self, inputs: &Receiver<Input>) {
        loop {
            match inputs.recv_timeout(TICK) {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // All that waits, before silence is judged: it may be this program that was not run for a while.
            inputs.try_iter().for_each(|input| self.take(input));
            let spoilt = std::mem::take(&mut self.shelf.lock().spoilt);
            if !spoilt.is_empty() {
                let reason = format!("`{}` changed while it was pushed", self.options.file.display());
                for host in 0..self.ends.len() {
                    self.coordinator.gone(host, &reason, self.shelf.now());
                }
            }
            self.coordinator.tick(self.shelf.now());
            while let Some(directive) = self.coordinator.poll() {
                if self.carry_out(directive) {
                    return;
                }
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::From(host, message) => self.hear(host, message),
            Input::Asks(host, frame) => self.serve_over_ssh(host, frame),
            Input::Said(host, text) => self.tell(Some(host), EventKind::Note { text }),
            Input::Gone(host, reason) => self.coordinator.gone(host, &reason, self.shelf.now()),
        }
    }

    fn hear(&mut self, host: usize, message: FromHost) {
        let now = self.shelf.now();
        match message {
            FromHost::Ready { version, .. } if version != VERSION => {
                let reason =
                    format!("it speaks version {version}, this program {VERSION}: install the same nearmetal there");
                self.coordinator.gone(host, &reason, now);
            }
            FromHost::Ready { port, address, speed, reuse, .. } => {
                self.reuse |= reuse;
                if let Some(Some(started)) = self.started.get_mut(host) {
                    started.address = Some((address, port));
                }
                self.tell(Some(host), EventKind::Ready { port });
                // Others cannot reach a host whose address nobody knows.
                let local = self.options.hosts[host].local || address.is_none();
                self.coordinator.ready(host, if local { Part::Leaf } else { Part::Chain }, speed, now);
            }
            FromHost::Status(status) => {
                self.coordinator.status(host, &status, now);
                let (when, pieces) = self.told[host];
                if status.have != pieces && now.saturating_sub(when) >= TOLD {
                    self.told[host] = (now, status.have);
                    self.tell(Some(host), EventKind::Progress { pieces: status.have });
                }
            }
            FromHost::Note { text } => self.tell(Some(host), EventKind::Note { text }),
            FromHost::Ended { outcome } => {
                self.coordinator.ended(host, &outcome, now);
                match outcome {
                    // A host that had it may find it damaged.
                    Outcome::Failed { reason } if matches!(self.ends[host], Some(Ok(_))) => {
                        self.ends[host] = None;
                        self.fail(host, reason);
                    }
                    _ if self.ends[host].is_some() => {}
                    Outcome::Stored { received, reused } => {
                        self.ends[host] = Some(Ok((received, reused)));
                        self.last_stored = Some(Instant::now());
                        self.tell(Some(host), EventKind::Stored { received, reused });
                    }
                    Outcome::Failed { reason } => self.fail(host, reason),
                }
            }
        }
    }

    fn fail(&mut self, host: usize, reason: String) {
        if self.ends[host].is_none() {
            self.ends[host] = Some(Err(reason.clone()));
            self.tell(Some(host), EventKind::Failed { reason });
        }
    }

    /// Whether this was the last.
    fn carry_out(&mut self, directive: Directive) -> bool {
        match directive {
            Directive::Order { host, generation, from } => {
                self.first_order.get_or_insert_with(Instant::now);
                let (upstream, name) = match from {
                    From::Source => (Upstream::Port { address: None, port: self.port }, "source".to_owned()),
                    From::Ssh => (Upstream::Ssh, "ssh".to_owned()),
                    From::Host(other) => {
                        let place = self.started[other].as_ref().and_then(|started| started.address);
                        let Some((address, port)) = place else { return false };
                        (Upstream::Port { address, port }, self.options.hosts[other].name.clone())
                    }
                };
                self.send(host, &ToHost::Order { generation, upstream, fingerprints: self.reuse });
                self.tell(Some(host), EventKind::Order { from: name });
            }
            Directive::Silent { host, for_ } => {
                self.tell(Some(host), EventKind::Silent { silent_seconds: for_.as_millis() as f64 / 1000.0 });
            }
            Directive::Back { host } => self.tell(Some(host), EventKind::Back),
            Directive::Aside { host, got, predecessor } => {
                self.tell(Some(host), EventKind::Aside { got, predecessor });
            }
            Directive::OverSsh { host } => self.tell(Some(host), EventKind::OverSsh),
            Directive::Lost { host, reason } => {
                self.fail(host, reason);
                if let Some(Some(started)) = self.started.get_mut(host) {
                    let _ = started.child.kill();
                }
            }
            Directive::Finish => return true,
        }
        false
    }

    fn serve_over_ssh(&mut self, host: usize, frame: Frame) {
        let Some(Some(started)) = self.started.get_mut(host) else { return };
        if let Some(requests) = &started.requests {
            requests.lock().unwrap_or_else(PoisonError::into_inner).take(frame);
            self.shelf.wake();
            return;
        }
        let requests = Arc::new(Mutex::new(Requests::default()));
        requests.lock().unwrap_or_else(PoisonError::into_inner).take(frame);
        started.requests = Some(Arc::clone(&requests));
        let (queue, queued, shelf) = (started.queue.clone(), Arc::clone(&started.queued), Arc::clone(&self.shelf));
        thread::spawn(move || {
            let mut whole = Vec::new();
            serve(&shelf, &requests, None, &mut |bytes| {
                while queued.load(Ordering::Relaxed) > MOST_QUEUED {
                    thread::sleep(Duration::from_millis(2));
                }
                // Messages go the same way: a frame must reach the queue in one piece.
                whole.extend_from_slice(bytes);
                let length = 5 + u32::from_le_bytes([whole[0], whole[1], whole[2], whole[3]]) as usize;
                if whole.len() >= length {
                    queued.fetch_add(whole.len(), Ordering::Relaxed);
                    let sent = queue.send(std::mem::take(&mut whole));
                    sent.map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe))?;
                }
                Ok(())
            })
        });
    }

    fn end(mut self, image: ImageId) -> Pushed {
        for host in 0..self.options.hosts.len() {
            self.fail(host, "the reason is unknown".to_owned());
            self.send(host, &ToHost::Finish);
        }
        let transfer =
            self.first_order.zip(self.last_stored).map(|(first, last)| last.saturating_duration_since(first));
        let stored = self.ends.iter().flatten().filter(|end| end.is_ok()).count();
        let source_sent = self.shelf.sent.load(Ordering::Relaxed);
        self.tell(
            None,
            EventKind::Finished {
                stored: stored as u64,
                failed: (self.ends.len() - stored) as u64,
                transfer_seconds: transfer.map(|transfer| transfer.as_millis() as f64 / 1000.0),
                source_sent,
            },
        );
        let deadline = Instant::now() + ENDING;
        for started in self.started.iter_mut().flatten() {
            while matches!(started.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
            let _ = started.child.kill();
            let _ = started.child.wait();
        }
        let ends = self.ends.into_iter().map(|end| end.unwrap_or_else(|| Err("the reason is unknown".to_owned())));
        let hosts = self.options.hosts.iter().map(|host| host.name.clone()).zip(ends).collect();
        Pushed { image, hosts, transfer }
    }
}

impl Started {
    fn send(&self, bytes: Vec<u8>) {
        self.queued.fetch_add(bytes.len(), Ordering::Relaxed);
        let _ = self.queue.send(bytes);
    }
}

fn start(at: usize, host: &HostToPush, inputs: &Sender<Input>) -> Result<Started, String> {
    let (program, rest) = host.words.split_first().ok_or("no program named")?;
    let cannot = |error| format!("cannot start `{}`: {error}", program.to_string_lossy());
    let Piped { child, stdin, stdout, stderr } = Piped::start(Command::new(program).args(rest)).map_err(cannot)?;
    let (queue, from_queue) = mpsc::channel::<Vec<u8>>();
    let queued = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&queued);
    thread::spawn(move || write_all(stdin, &from_queue, &counted));
    let last_said = Arc::new(Mutex::new(String::new()));
    let (to_main, last) = (inputs.clone(), Arc::clone(&last_said));
    let prose = thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line: String = String::from_utf8_lossy(&line).chars().filter(|c| !c.is_control()).take(500).collect();
            *last.lock().unwrap_or_else(PoisonError::into_inner) = line.clone();
            let _ = to_main.send(Input::Said(at, line));
        }
    });
    let (to_main, last) = (inputs.clone(), Arc::clone(&last_said));
    thread::spawn(move || {
        let why = read_host(at, stdout, &to_main);
        let _ = prose.join();
        let said = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = if said.is_empty() { why } else { format!("{why}: {said}") };
        let _ = to_main.send(Input::Gone(at, reason));
    });
    Ok(Started { child, queue, queued, requests: None, address: None })
}

fn write_all(mut stdin: ChildStdin, queue: &Receiver<Vec<u8>>, queued: &AtomicUsize) {
    while let Ok(bytes) = queue.recv() {
        // A program that ended is told by the thread that reads from it.
        let written = stdin.write_all(&bytes).and_then(|()| stdin.flush());
        queued.fetch_sub(bytes.len(), Ordering::Relaxed);
        if written.is_err() {
            return;
        }
    }
}

fn read_host(at: usize, mut stdout: impl Read, inputs: &Sender<Input>) -> String {
    let mut decoder = Decoder::new(None);
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = match stdout.read(&mut buffer) {
            Ok(0) => return "its program ended early".to_owned(),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return format!("lost its program ({error})"),
        };
        decoder.push(&buffer[..count]);
        loop {
            let input = match decoder.next() {
                Ok(Some(Frame::Message(bytes))) => match control::parse(&bytes) {
                    Ok(message) => Input::From(at, message),
                    Err(error) => return format!("its program sent {error}"),
                },
                Ok(Some(frame)) => Input::Asks(at, frame),
                Ok(None) => break,
                Err(error) => return format!("its program sent {error} (a login script that prints?)"),
            };
            let _ = inputs.send(input);
        }
    }
}
