//! One connection that never blocks, and what its dialogue makes of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with, sockopt};

use crate::load::dialogue::{Answer, Dialogue, Said};
use crate::load::failure::{Failure, Kind};
use crate::load::tally::Request;
use crate::random::Random;

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is none; the next try is at this moment.
    Down(u64),
    /// The kernel is making it.
    Connecting,
    /// The dialogue opens it.
    Opening,
    /// It takes requests.
    Idle,
    /// It has one.
    Busy,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// Nothing to act on.
    Nothing,
    /// It takes requests now.
    Ready,
    /// Its request was answered.
    Answered(Answer),
    /// The server closed it while nothing was asked.
    Left,
}

/// See the module.
#[derive(Debug)]
pub struct Connection<D> {
    stream: Option<TcpStream>,
    /// Where it is.
    pub state: State,
    /// When its opening or its request began, ns since the run's beginning.
    pub since: u64,
    /// The request it has; one that is opened for a request has it from the beginning.
    pub request: Option<Request>,
    dialogue: D,
    out: Vec<u8>,
    sent: usize,
}

impl<D: Dialogue> Connection<D> {
    /// One that is not made yet.
    pub fn new(dialogue: D) -> Self {
        Self { stream: None, state: State::Down(0), since: 0, request: None, dialogue, out: Vec::new(), sent: 0 }
    }

    /// The socket, and whether there is something to be written; `None` while there is no connection.
    pub fn wants(&self) -> Option<(&TcpStream, bool)> {
        let writes = self.state == State::Connecting || self.sent < self.out.len();
        self.stream.as_ref().map(|stream| (stream, writes))
    }

    /// Begins to connect.
    ///
    /// # Errors
    /// The kernel refused at once: no route, no more files, no more ports.
    pub fn begin(&mut self, address: SocketAddr, now: u64) -> Result<(), Failure> {
        self.close(State::Connecting);
        self.since = now;
        let refused = |error: rustix::io::Errno| {
            Failure::new(Kind::Connect, format!("cannot connect to {address}: {}", io::Error::from(error)))
        };
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(refused)?;
        match connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(refused(error)),
        }
        // A request is one write: waiting for more to send would be the generator's own delay.
        sockopt::set_tcp_nodelay(&socket, true).map_err(refused)?;
        self.stream = Some(TcpStream::from(socket));
        Ok(())
    }

    /// Ends it.
    pub fn close(&mut self, state: State) {
        self.stream = None;
        self.out.clear();
        (self.sent, self.state) = (0, state);
    }

    /// Whether a request of this class begins with a connection of its own.
    pub fn is_opening(&self, class: usize) -> bool {
        self.dialogue.is_opening(class)
    }

    /// Sends a request; the connection is idle.
    ///
    /// # Errors
    /// The connection broke.
    pub fn ask(&mut self, request: Request, random: &mut Random, now: u64) -> Result<(), Failure> {
        self.dialogue.request(request.class, random, &mut self.out);
        (self.request, self.state, self.since) = (Some(request), State::Busy, now);
        self.write()
    }

    /// The socket is ready for something.
    ///
    /// # Errors
    /// The connection could not be made, broke, or brought nonsense: it is of no use any more.
    pub fn advance(&mut self, buffer: &mut [u8], now: u64) -> Result<Event, Failure> {
        if self.state == State::Connecting {
            let Some(stream) = &self.stream else { return Ok(Event::Nothing) };
            let answer = sockopt::socket_error(stream).and_then(|answer| answer);
            answer
                .map_err(|error| Failure::new(Kind::Connect, format!("cannot connect: {}", io::Error::from(error))))?;
            if stream.peer_addr().is_err() {
                // Woken before it was made.
                return Ok(Event::Nothing);
            }
            (self.state, self.since) = (State::Opening, now);
            if self.dialogue.open(&mut self.out) {
                self.state = State::Idle;
                return Ok(Event::Ready);
            }
        }
        self.write()?;
        self.read(buffer)
    }

    fn write(&mut self) -> Result<(), Failure> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(Failure::new(Kind::Closed, "the server takes no more bytes")),
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<Event, Failure> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(Event::Nothing) };
            let came = match stream.read(buffer) {
                Ok(0) => return self.ended(),
                Ok(came) => came,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Event::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A server that closes a connection before it has read all of a request resets it.
                Err(_) if self.state == State::Idle => return Ok(Event::Left),
                Err(error) => return Err(broken(&error)),
            };
            let said = self.dialogue.receive(&buffer[..came], &mut self.out)?;
            self.write()?;
            match said {
                Said::More => {}
                Said::Ready => {
                    self.state = State::Idle;
                    return Ok(Event::Ready);
                }
                Said::Answered(answer) => {
                    self.state = State::Idle;
                    return Ok(Event::Answered(answer));
                }
            }
        }
    }

    /// The server closed it.
    fn ended(&mut self) -> Result<Event, Failure> {
        match self.state {
            State::Busy => Ok(Event::Answered(Answer { reusable: false, ..self.dialogue.closed()? })),
            State::Idle => Ok(Event::Left),
            _ => Err(Failure::new(Kind::Closed, "the server closed the connection as soon as it was made")),
        }
    }
}

fn broken(error: &io::Error) -> Failure {
    Failure::new(Kind::Closed, format!("the connection broke: {error}"))
}
