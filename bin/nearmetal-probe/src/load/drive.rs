//! One thread of the generator: requests go out when they are due, whatever became of those before, as far as connections
//! are free; their time counts from when they were due.
//!
//! A generator that waits for an answer before it asks again asks less the slower the server is, and leaves out just the times
//! that matter (coordinated omission; G. Tene, "How NOT to Measure Latency"). Here a server that stands still for a second
//! delays all requests of that second, and the figures show it. How late the generator itself is stands beside them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::ProbeError;
use crate::load::arrivals::{Arrival, Arrivals, Mix};
use crate::load::connection::{Connection, Event, State};
use crate::load::dialogue::{Answer, Dialogue};
use crate::load::failure::{Failure, Kind};
use crate::load::tally::{Request, Tally};
use crate::random::Random;
use crate::system::clock;

/// How long after a connection was lost another is tried, ns.
const RETRY: u64 = 10_000_000;
/// How long at most nobody looks at timeouts, ns.
const LOOK: u64 = 20_000_000;
/// Bytes read at once.
const BUFFER: usize = 64 << 10;

/// When the next request is due.
#[derive(Debug, Clone)]
pub enum Pace {
    /// At its own moment, drawn before: an open loop.
    Open(Arrivals),
    /// As soon as a connection has its answer: a closed loop, for the most that a server does.
    Closed(Mix),
}

/// What one thread does. Times in ns.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server.
    pub address: SocketAddr,
    /// When requests are due.
    pub pace: Pace,
    /// Classes of requests.
    pub classes: usize,
    /// Time before those that count.
    pub ramp: u64,
    /// Time of those that count.
    pub length: u64,
    /// How long after it was due a request may be without its answer.
    pub timeout: u64,
    /// How long the server may take to be there.
    pub patience: u64,
    /// Limits of time by which answers are counted.
    pub limits: Vec<u64>,
    /// Seed of what is asked for.
    pub seed: u64,
}

/// See the module.
pub struct Generator<'p, D> {
    plan: &'p Plan,
    connections: Vec<Connection<D>>,
    /// Connections that take requests, the one that waited longest first.
    idle: VecDeque<usize>,
    /// Requests that are due and wait for a connection.
    waiting: VecDeque<Request>,
    random: Random,
    tally: Tally,
    buffer: Vec<u8>,
    /// The moment from which times count, by the probe's clock.
    origin: u64,
    /// The last reason for which there was no connection.
    trouble: Option<Failure>,
}

impl<'p, D: Dialogue> Generator<'p, D> {
    /// With a connection for each of these dialogues.
    pub fn new(plan: &'p Plan, dialogues: impl IntoIterator<Item = D>) -> Self {
        // A timer is 50 µs late by default (prctl(2), PR_SET_TIMERSLACK); a kernel that refuses shows in the lag.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        Self {
            plan,
            connections: dialogues.into_iter().map(Connection::new).collect(),
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            random: Random::new(plan.seed),
            tally: Tally::new(plan.classes, &plan.limits),
            buffer: vec![0; BUFFER],
            origin: clock::nanoseconds(),
            trouble: None,
        }
    }

    fn now(&self) -> u64 {
        clock::nanoseconds().saturating_sub(self.origin)
    }

    /// Makes all connections, trying until the server is there.
    ///
    /// # Errors
    /// It is not there in time; the last reason is in the error.
    pub fn open(&mut self) -> Result<(), ProbeError> {
        while self.idle.len() < self.connections.len() {
            let now = self.now();
            self.turn(now, now + LOOK)?;
            if now > self.plan.patience && self.idle.len() < self.connections.len() {
                let why = self.trouble.take().map_or_else(|| "it keeps silent".to_owned(), |failure| failure.why);
                let (open, all) = (self.idle.len(), self.connections.len());
                let address = self.plan.address;
                return Err(ProbeError::Server {
                    address,
                    open,
                    all,
                    seconds: self.plan.patience / 1_000_000_000,
                    why,
                });
            }
        }
        Ok(())
    }

    /// Runs from `start` of the probe's clock on, and gives what was counted.
    ///
    /// # Errors
    /// The kernel refused to wait for the connections.
    pub fn run(mut self, start: u64) -> Result<Tally, ProbeError> {
        (self.origin, self.tally.reconnects) = (start, 0);
        // While the server was awaited, it was not there.
        self.tally.lost.clear();
        let end = self.plan.ramp + self.plan.length;
        let plan = self.plan;
        let mut arrivals = match &plan.pace {
            Pace::Open(arrivals) => Some(arrivals.clone().take_while(|arrival| arrival.at < end).peekable()),
            Pace::Closed(_) => None,
        };
        loop {
            let now = self.now();
            if let Some(arrivals) = &mut arrivals {
                while let Some(arrival) = arrivals.next_if(|arrival| arrival.at <= now) {
                    self.due(arrival, now);
                }
            }
            self.expire(now);
            match &plan.pace {
                Pace::Open(_) => self.hand_out(now),
                Pace::Closed(mix) if now < end => self.ask_again(mix, now),
                Pace::Closed(_) => break,
            }
            let next = arrivals.as_mut().and_then(|arrivals| arrivals.peek().map(|arrival| arrival.at));
            if arrivals.is_some() && next.is_none() && self.is_done() {
                break;
            }
            self.turn(now, next.unwrap_or(u64::MAX).min(now + LOOK))?;
        }
        Ok(self.tally)
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.connections.iter().all(|connection| connection.request.is_none())
    }

    fn counts(&self, at: u64) -> bool {
        (self.plan.ramp..self.plan.ramp + self.plan.length).contains(&at)
    }

    /// A request is due, and it is seen now.
    fn due(&mut self, arrival: Arrival, now: u64) {
        let request = Request { class: arrival.class, intended: arrival.at, counts: self.counts(arrival.at) };
        if request.counts {
            self.tally.lag.record(now.saturating_sub(arrival.at));
        }
        self.tally.offer(&request);
        if self.waiting.len() >= self.idle.len() {
            self.tally.wait(&request);
        }
        self.waiting.push_back(request);
    }

    /// Gives waiting requests to idle connections.
    fn hand_out(&mut self, now: u64) {
        while !self.waiting.is_empty() {
            let Some(place) = self.idle.pop_front() else { return };
            let Some(request) = self.waiting.pop_front() else { return };
            self.ask(place, request, now);
        }
    }

    /// The closed loop: every idle connection asks.
    fn ask_again(&mut self, mix: &Mix, now: u64) {
        while let Some(place) = self.idle.pop_front() {
            let class = mix.draw(&mut self.random);
            let request = Request { class, intended: now, counts: self.counts(now) };
            self.tally.offer(&request);
            self.ask(place, request, now);
        }
    }

    fn ask(&mut self, place: usize, request: Request, now: u64) {
        let connection = &mut self.connections[place];
        let asked = if connection.is_opening(request.class) {
            connection.request = Some(request);
            connection.begin(self.plan.address, now)
        } else {
            connection.ask(request, &mut self.random, now)
        };
        if let Err(failure) = asked {
            self.lost(place, failure, now);
        }
    }

    /// Gives up what took too long.
    fn expire(&mut self, now: u64) {
        let timeout = self.plan.timeout;
        while let Some(request) = self.waiting.front().copied().filter(|request| now > request.intended + timeout) {
            self.waiting.pop_front();
            self.tally.drop(&request);
        }
        for place in 0..self.connections.len() {
            let connection = &self.connections[place];
            let since = match (connection.state, &connection.request) {
                (State::Down(_) | State::Idle, _) => continue,
                (_, Some(request)) => request.intended,
                (_, None) => connection.since,
            };
            if now > since.saturating_add(timeout) {
                let why = format!("no answer within {} ms", timeout / 1_000_000);
                self.lost(place, Failure::new(Kind::Timeout, why), now);
            }
        }
    }

    /// A connection is of no use any more.
    fn lost(&mut self, place: usize, failure: Failure, now: u64) {
        let connection = &mut self.connections[place];
        // Where the server closes a connection again and again there is no hurry.
        let pause =
            if failure.kind == Kind::Connect || connection.state == State::Opening { 10 * RETRY } else { RETRY };
        connection.close(State::Down(now + pause));
        match connection.request.take() {
            Some(request) => self.tally.fail(&request, &failure),
            None => self.tally.lose(&failure),
        }
        self.trouble = Some(failure);
    }

    /// Makes connections that are down, waits until something happens or it is `until`, and acts on it.
    fn turn(&mut self, now: u64, until: u64) -> Result<(), ProbeError> {
        for place in 0..self.connections.len() {
            if matches!(self.connections[place].state, State::Down(retry) if retry <= now) {
                self.tally.reconnects += 1;
                if let Err(failure) = self.connections[place].begin(self.plan.address, now) {
                    self.lost(place, failure, now);
                }
            }
        }
        let (mut places, mut sockets) = (Vec::new(), Vec::new());
        for (place, connection) in self.connections.iter().enumerate() {
            let Some((socket, writes)) = connection.wants() else { continue };
            let writes = if writes { PollFlags::OUT } else { PollFlags::empty() };
            places.push(place);
            sockets.push(PollFd::new(socket, PollFlags::IN | writes));
        }
        let left = until.saturating_sub(self.now());
        let left = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        match poll(&mut sockets, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ProbeError::kernel("wait for the connections", error)),
        }
        let ready: Vec<usize> = places
            .into_iter()
            .zip(&sockets)
            .filter(|(_, socket)| !socket.revents().is_empty())
            .map(|(place, _)| place)
            .collect();
        drop(sockets);
        for place in ready {
            let now = self.now();
            let state = self.connections[place].state;
            match self.connections[place].advance(&mut self.buffer, now) {
                Ok(Event::Nothing) => {}
                Ok(Event::Ready) => self.ready(place),
                Ok(Event::Answered(answer)) => self.answered(place, answer),
                Ok(Event::Left) => {
                    self.idle.retain(|idle| *idle != place);
                    self.connections[place].close(State::Down(now));
                }
                Err(failure) => {
                    if state == State::Idle {
                        self.idle.retain(|idle| *idle != place);
                    }
                    self.lost(place, failure, now);
                }
            }
        }
        Ok(())
    }

    /// A connection takes requests; where it was opened for one, that is its answer.
    fn ready(&mut self, place: usize) {
        if self.connections[place].request.is_some() {
            return self.answered(place, Answer { failure: None, reusable: true, bytes: 0 });
        }
        self.idle.push_back(place);
    }

    fn answered(&mut self, place: usize, answer: Answer) {
        let now = self.now();
        let connection = &mut self.connections[place];
        let Some(request) = connection.request.take() else { return };
        if answer.reusable {
            self.idle.push_back(place);
        } else {
            connection.close(State::Down(now));
        }
        match answer.failure {
            Some(failure) => self.tally.fail(&request, &failure),
            None => {
                self.tally.answer(&request, now);
                if self.counts(now) {
                    self.tally.finished += 1;
                    self.tally.bytes += answer.bytes;
                }
            }
        }
    }
}
