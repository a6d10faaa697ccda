//! The world in which the machines run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use crate::bits::Bits;
use crate::chain::coordinator::{Coordinator, Directive, From, Part};
use crate::chain::puller::{Do, Puller};
use crate::chain::serve::{Next, Serve};
use crate::control::{Outcome, Upstream};
use crate::frame::Run;

const TICK: Duration = Duration::from_millis(50);
const CONNECTING: Duration = Duration::from_millis(1);
const NO_ANSWER: Duration = Duration::from_millis(500);

/// How a host's program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Runs,
    /// Stopped, with its connections open.
    Frozen,
    Dead,
}

/// What happens from outside.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Becomes(usize, Life),
    /// The source's network is cut, or not any more.
    Cut(bool),
}

#[derive(Debug, Clone, Copy)]
enum What {
    Tick,
    Fault(Fault),
    Connected { host: usize, link: u64 },
    NoAnswer { host: usize, link: u64 },
    Manifest { host: usize, link: u64 },
    Piece { host: usize, link: u64, index: usize },
    Pump { node: usize },
}

/// A connection, at the end that sends.
struct Connection {
    host: usize,
    link: u64,
    serve: Serve,
    wants_manifest: bool,
    free: Duration,
}

/// Hosts are 0 to N − 1; the source is the node N.
struct Node {
    life: Life,
    up: Duration,
    down: Duration,
    have: Bits,
    has_manifest: bool,
    connections: Vec<Connection>,
    free: Duration,
    upstream: BTreeMap<u64, usize>,
    stored: Option<Duration>,
    closed_port: bool,
}

/// All of it.
pub(super) struct World {
    now: Duration,
    pieces: usize,
    pullers: Vec<Puller>,
    nodes: Vec<Node>,
    coordinator: Coordinator,
    cut: bool,
    queue: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    happenings: Vec<What>,
    pub(super) told: Vec<Directive>,
    finished: bool,
}

impl World {
    /// A fleet of equal hosts; a piece takes `piece` to pass a link.
    pub(super) fn new(hosts: usize, pieces: usize, piece: Duration) -> Self {
        let node = |whole: bool| Node {
            life: Life::Runs,
            up: piece,
            down: piece,
            have: if whole { Bits::all(pieces) } else { Bits::none(pieces) },
            has_manifest: whole,
            connections: Vec::new(),
            free: Duration::ZERO,
            upstream: BTreeMap::new(),
            stored: None,
            closed_port: false,
        };
        let mut world = Self {
            now: Duration::ZERO,
            pieces,
            pullers: (0..hosts).map(|_| Puller::new()).collect(),
            nodes: (0..hosts).map(|_| node(false)).chain([node(true)]).collect(),
            coordinator: Coordinator::new(hosts, false, Duration::ZERO),
            cut: false,
            queue: BinaryHeap::new(),
            happenings: Vec::new(),
            told: Vec::new(),
            finished: false,
        };
        world.at(Duration::ZERO, What::Tick);
        world
    }

    pub(super) fn fault(&mut self, at: Duration, fault: Fault) {
        self.at(at, What::Fault(fault));
    }

    /// A host whose link is so many times slower.
    pub(super) fn slow(&mut self, host: usize, times: u32) {
        self.nodes[host].up *= times;
        self.nodes[host].down *= times;
    }

    /// A host whose data port, or the source's, nobody reaches.
    pub(super) fn close_port(&mut self, node: usize) {
        self.nodes[node].closed_port = true;
    }

    pub(super) fn source(&self) -> usize {
        self.pullers.len()
    }

    /// Runs until all have ended, and says when each had the image.
    pub(super) fn run(&mut self, limit: Duration) -> Vec<Option<Duration>> {
        for host in 0..self.pullers.len() {
            self.coordinator.ready(host, Part::Chain, None, self.now);
        }
        self.carry_out();
        while let Some(Reverse((time, _, number))) = self.queue.pop() {
            assert!(time <= limit, "not over after {limit:?}: {} hosts of {}", self.stored(), self.pullers.len());
            self.now = time;
            self.happen(self.happenings[number]);
            self.carry_out();
            if self.finished {
                break;
            }
        }
        self.nodes[..self.pullers.len()].iter().map(|node| node.stored).collect()
    }

    fn stored(&self) -> usize {
        self.nodes.iter().filter(|node| node.stored.is_some()).count()
    }

    fn at(&mut self, time: Duration, what: What) {
        let number = self.happenings.len();
        self.happenings.push(what);
        self.queue.push(Reverse((time, number as u64, number)));
    }

    fn runs(&self, node: usize) -> bool {
        self.nodes[node].life == Life::Runs
    }

    /// Whether packets pass between two nodes.
    fn reach(&self, a: usize, b: usize) -> bool {
        !self.cut || (a != self.source() && b != self.source())
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Tick => {
                for host in 0..self.pullers.len() {
                    self.tick_host(host);
                }
                self.coordinator.tick(self.now);
                self.at(self.now + TICK, What::Tick);
            }
            What::Fault(Fault::Cut(cut)) => {
                self.cut = cut;
                let source = self.source();
                self.pump(source);
            }
            What::Fault(Fault::Becomes(host, life)) => self.becomes(host, life),
            What::Connected { host, link } => self.connected(host, link),
            What::NoAnswer { host, link } => {
                self.pullers[host].lost(link, self.now);
                self.work(host);
            }
            What::Manifest { host, link } if self.is_open(host, link) => {
                self.pullers[host].heard(link, self.now);
                self.nodes[host].has_manifest = true;
                self.pullers[host].has_manifest();
                self.pullers[host].looked(self.now);
                self.work(host);
                self.pump(host);
            }
            What::Piece { host, link, index } if self.is_open(host, link) => {
                self.pullers[host].heard(link, self.now);
                self.nodes[host].have.insert(index);
                if self.nodes[host].have.is_full() && self.nodes[host].stored.is_none() {
                    self.nodes[host].stored = Some(self.now);
                    self.pullers[host].complete();
                    let outcome = Outcome::Stored { received: 0, reused: 0 };
                    self.coordinator.ended(host, &outcome, self.now);
                    self.work(host);
                }
                self.pump(host);
            }
            // Of a connection that is no more.
            What::Manifest { .. } | What::Piece { .. } => {}
            What::Pump { node } => self.pump(node),
        }
    }

    fn tick_host(&mut self, host: usize) {
        if !self.runs(host) {
            return;
        }
        let link = self.pullers[host].link();
        if let Some(&above) = self.nodes[host].upstream.get(&link) {
            // A peer that has nothing to send still says so.
            if self.runs(above) && self.reach(above, host) && self.is_open(host, link) {
                self.pullers[host].heard(link, self.now);
            }
        }
        let have = self.nodes[host].have.len();
        self.pullers[host].tick(have, self.now);
        self.work(host);
    }

    fn is_open(&self, host: usize, link: u64) -> bool {
        let above = self.nodes[host].upstream.get(&link);
        self.runs(host)
            && self.pullers[host].link() == link
            && above.is_some_and(|above| {
                let connections = &self.nodes[*above].connections;
                connections.iter().any(|connection| (connection.host, connection.link) == (host, link))
            })
    }

    fn becomes(&mut self, host: usize, life: Life) {
        self.nodes[host].life = life;
        match life {
            Life::Dead => {
                let below = std::mem::take(&mut self.nodes[host].connections);
                for connection in below {
                    self.pullers[connection.host].lost(connection.link, self.now);
                    self.work(connection.host);
                }
                self.coordinator.gone(host, "killed", self.now);
            }
            Life::Runs => (0..self.nodes.len()).for_each(|node| self.pump(node)),
            Life::Frozen => {}
        }
    }

    fn connected(&mut self, host: usize, link: u64) {
        let Some(&above) = self.nodes[host].upstream.get(&link) else { return };
        let answers = self.runs(above) && self.reach(host, above) && !self.nodes[above].closed_port;
        if !answers {
            let wait = if self.nodes[above].life == Life::Dead { Duration::ZERO } else { NO_ANSWER };
            self.at(self.now + wait, What::NoAnswer { host, link });
            return;
        }
        let serve = Serve::new(self.pieces, self.now);
        let connection = Connection { host, link, serve, wants_manifest: false, free: self.now };
        self.nodes[above].connections.push(connection);
        self.pullers[host].opened(link, self.now);
        self.work(host);
    }

    /// Does what a host's machine asks for.
    fn work(&mut self, host: usize) {
        while let Some(what) = self.pullers[host].poll() {
            match what {
                Do::Connect { link, upstream } => {
                    let above = match upstream {
                        Upstream::Port { port, .. } => usize::from(port),
                        Upstream::Ssh => self.source(),
                    };
                    self.nodes[host].upstream.insert(link, above);
                    if upstream == Upstream::Ssh {
                        let closed = std::mem::take(&mut self.nodes[above].closed_port);
                        self.connected(host, link);
                        self.nodes[above].closed_port = closed;
                    } else {
                        self.at(self.now + CONNECTING, What::Connected { host, link });
                    }
                }
                Do::HangUp { link } => {
                    if let Some(&above) = self.nodes[host].upstream.get(&link) {
                        self.nodes[above].connections.retain(|one| (one.host, one.link) != (host, link));
                        self.pump(above);
                    }
                }
                Do::AskManifest { link } => {
                    if let Some((above, connection)) = self.connection(host, link) {
                        connection.wants_manifest = true;
                        self.pump(above);
                    }
                }
                Do::AskPieces { link } => {
                    let have = &self.nodes[host].have;
                    let lacking = (0..self.pieces).filter(|index| !have.contains(*index));
                    let run = |index: usize| Run { first: index as u32, count: 1, mask: u64::MAX };
                    let runs: Vec<Run> = lacking.map(run).collect();
                    if let Some((above, connection)) = self.connection(host, link) {
                        connection.serve.want(&runs);
                        self.pump(above);
                    }
                }
                Do::Report(status) => {
                    if !self.cut {
                        self.coordinator.status(host, &status, self.now);
                    }
                }
            }
        }
    }

    fn connection(&mut self, host: usize, link: u64) -> Option<(usize, &mut Connection)> {
        let above = *self.nodes[host].upstream.get(&link)?;
        let all = self.nodes[above].connections.iter_mut();
        let mut own = all.filter(|connection| (connection.host, connection.link) == (host, link));
        own.next().map(|connection| (above, connection))
    }

    /// Sends what a node can send now. Its uplink takes pieces one after the other; a connection takes as long as the
    /// slower of its two ends, without holding up the others.
    fn pump(&mut self, node: usize) {
        if !self.runs(node) || self.cut && node == self.source() {
            return;
        }
        loop {
            if self.nodes[node].free > self.now {
                return;
            }
            let (now, up) = (self.now, self.nodes[node].up);
            // What a stopped program does not read fills its window, and no more is sent.
            let stopped: Vec<bool> = self.nodes[node].connections.iter().map(|one| !self.runs(one.host)).collect();
            let Node { connections, have, has_manifest, .. } = &mut self.nodes[node];
            let mut sent = None;
            let mut soonest: Option<Duration> = None;
            for (at, connection) in connections.iter_mut().enumerate() {
                if stopped[at] {
                    continue;
                }
                if connection.free > now {
                    soonest = Some(soonest.map_or(connection.free, |time| time.min(connection.free)));
                    continue;
                }
                if connection.wants_manifest && *has_manifest {
                    connection.wants_manifest = false;
                    sent = Some((at, None));
                    break;
                }
                if let Next::Piece { index, .. } = connection.serve.next(have, now) {
                    sent = Some((at, Some(index)));
                    break;
                }
            }
            let Some((at, piece)) = sent else {
                if let Some(time) = soonest {
                    self.at(time, What::Pump { node });
                }
                return;
            };
            let (host, link) = (self.nodes[node].connections[at].host, self.nodes[node].connections[at].link);
            // A piece's 40 bytes of the manifest against its 256 KiB.
            let share = if piece.is_some() { 1.0 } else { self.pieces as f64 * 40.0 / 262_144.0 };
            let takes = up.max(self.nodes[host].down).mul_f64(share);
            self.nodes[node].free = now + up.mul_f64(share);
            self.nodes[node].connections[at].free = now + takes;
            self.nodes[node].connections.rotate_left(at + 1);
            let arrives = match piece {
                Some(index) => What::Piece { host, link, index },
                None => What::Manifest { host, link },
            };
            self.at(now + takes, arrives);
            self.at(self.nodes[node].free, What::Pump { node });
        }
    }

    fn carry_out(&mut self) {
        while let Some(directive) = self.coordinator.poll() {
            match &directive {
                Directive::Order { host, generation, from } => {
                    let upstream = match from {
                        From::Source => Upstream::Port { address: None, port: self.source() as u16 },
                        From::Host(other) => Upstream::Port { address: None, port: *other as u16 },
                        From::Ssh => Upstream::Ssh,
                    };
                    let (host, generation) = (*host, *generation);
                    if self.runs(host) {
                        self.pullers[host].order(generation, upstream, self.now);
                        self.work(host);
                    }
                }
                Directive::Finish => self.finished = true,
                _ => {}
            }
            self.told.push(directive);
        }
    }
}
