//! What is run against the peer, as data: which program, with what, and how its output is read.

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sockperf::Protocol;
use super::{netperf, sockperf};
use crate::cost::Each;
use crate::error::LoadError;
use crate::metric::Metric;

/// What is run against the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetTest {
    /// One byte there and back over TCP, one at a time: latency.
    TcpRr,
    /// A stream from the guest to the peer.
    TcpStream,
    /// A stream from the peer to the guest.
    TcpMaerts,
    /// One byte there and back over UDP, one at a time: latency without TCP's own work.
    UdpRr,
    /// sockperf's smallest message there and back over TCP, each one timed: the far percentiles.
    SockperfTcp,
    /// The same over UDP.
    SockperfUdp,
}

/// The program of a test, and what distinguishes the test from its others.
enum Program {
    Netperf { name: &'static str, stream: bool },
    Sockperf(Protocol),
}

impl NetTest {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::TcpRr, Self::TcpStream, Self::TcpMaerts, Self::UdpRr, Self::SockperfTcp, Self::SockperfUdp];

    /// What is run if nobody says: every one more costs half a minute, and sockperf a server more on the peer.
    pub const DEFAULT: [Self; 4] = [Self::TcpRr, Self::TcpStream, Self::TcpMaerts, Self::UdpRr];

    fn program(self) -> Program {
        match self {
            Self::TcpRr => Program::Netperf { name: "TCP_RR", stream: false },
            Self::TcpStream => Program::Netperf { name: "TCP_STREAM", stream: true },
            Self::TcpMaerts => Program::Netperf { name: "TCP_MAERTS", stream: true },
            Self::UdpRr => Program::Netperf { name: "UDP_RR", stream: false },
            Self::SockperfTcp => Program::Sockperf(Protocol::Tcp),
            Self::SockperfUdp => Program::Sockperf(Protocol::Udp),
        }
    }

    /// The word in options, and the first part of its metrics' names.
    pub fn id(self) -> &'static str {
        match self {
            Self::TcpRr => "tcp-rr",
            Self::TcpStream => "tcp-stream",
            Self::TcpMaerts => "tcp-maerts",
            Self::UdpRr => "udp-rr",
            Self::SockperfTcp => "sockperf-tcp",
            Self::SockperfUdp => "sockperf-udp",
        }
    }

    /// What a person calls it.
    pub fn label(self) -> &'static str {
        match self {
            Self::TcpRr => "TCP request and response, 1 byte",
            Self::TcpStream => "TCP stream to the peer",
            Self::TcpMaerts => "TCP stream from the peer",
            Self::UdpRr => "UDP request and response, 1 byte",
            Self::SockperfTcp => "sockperf ping-pong, TCP, 14 bytes",
            Self::SockperfUdp => "sockperf ping-pong, UDP, 14 bytes",
        }
    }

    /// Whether it moves a stream; else requests.
    pub fn is_stream(self) -> bool {
        matches!(self.program(), Program::Netperf { stream: true, .. })
    }

    /// What its costs are given for.
    pub fn each(self) -> Each {
        if self.is_stream() { Each::Gigabit } else { Each::Transaction }
    }

    /// Name of the metric that says how fast it was: bits or transactions each second.
    pub fn rate(self) -> String {
        format!("{}.rate", self.id())
    }

    /// The command that must run on the peer for it, beside `netserver`, which every measurement greets; `None` for
    /// netperf's own tests.
    pub fn server(self) -> Option<String> {
        match self.program() {
            Program::Netperf { .. } => None,
            Program::Sockperf(protocol) => Some(protocol.server()),
        }
    }

    /// What tests need of this host. netperf is always one: it shows that the peer answers, and who moves the packets.
    pub fn programs(tests: &[Self]) -> Vec<&'static str> {
        let sockperf = tests.iter().any(|test| matches!(test.program(), Program::Sockperf(_)));
        [Some(netperf::PROGRAM), sockperf.then_some(sockperf::PROGRAM)].into_iter().flatten().collect()
    }

    /// Seconds its program takes beyond those it is told to measure and one to start.
    pub fn beside(self) -> u32 {
        match self.program() {
            Program::Netperf { .. } => 0,
            Program::Sockperf(_) => sockperf::BESIDE,
        }
    }

    /// How long its program waits before it begins to move anything.
    pub fn ramp(self) -> Duration {
        match self.program() {
            Program::Netperf { .. } => Duration::ZERO,
            Program::Sockperf(_) => sockperf::RAMP,
        }
    }

    /// The command, program first.
    pub fn command(self, peer: IpAddr, seconds: u32) -> Vec<String> {
        match self.program() {
            Program::Netperf { name, stream } => netperf::command(name, stream, peer, seconds),
            Program::Sockperf(protocol) => sockperf::command(protocol, peer, seconds),
        }
    }
}

/// Reads what the program of a test printed.
///
/// # Errors
/// The program failed, or this is not what it prints.
pub(super) fn read(test: NetTest, text: &str) -> Result<Vec<Metric>, LoadError> {
    match test.program() {
        Program::Netperf { stream, .. } => netperf::read(test, stream, text),
        Program::Sockperf(protocol) => sockperf::read(test, protocol, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_run_the_same_command() {
        let peer = "192.0.2.1".parse().unwrap();
        let command = |test: NetTest| test.command(peer, 3).join(" ");
        assert_eq!(
            command(NetTest::TcpMaerts),
            "netperf -H 192.0.2.1 -t TCP_MAERTS -l 3 -P 0 -f m -- -k THROUGHPUT,THROUGHPUT_UNITS,ELAPSED_TIME"
        );
        let round = command(NetTest::TcpRr);
        assert!(round.ends_with("P90_LATENCY,P99_LATENCY") && !round.contains("-f m"), "{round}");
        assert_eq!(command(NetTest::SockperfUdp), "sockperf ping-pong -i 192.0.2.1 -p 11111 -t 3 --full-rtt");
        assert_eq!(command(NetTest::SockperfTcp), "sockperf ping-pong -i 192.0.2.1 -p 11111 -t 3 --full-rtt --tcp");
    }

    #[test]
    fn sockperf_is_needed_only_where_it_is_asked_for() {
        assert_eq!(NetTest::programs(&NetTest::DEFAULT), ["netperf"]);
        assert_eq!(NetTest::programs(&[NetTest::SockperfUdp]), ["netperf", "sockperf"]);
        assert!(NetTest::DEFAULT.iter().all(|test| test.server().is_none()));
        let servers: Vec<_> = NetTest::ALL.into_iter().filter_map(NetTest::server).collect();
        assert_eq!(servers, ["sockperf server --tcp -p 11111 --daemonize", "sockperf server -p 11111 --daemonize"]);
    }

    #[test]
    fn a_tests_word_is_the_same_in_options_and_files() {
        for test in NetTest::ALL {
            assert_eq!(serde_json::to_value(test).unwrap(), test.id());
        }
    }
}
