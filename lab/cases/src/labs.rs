//! Which labs cases share, and which of them are up.
//!
//! A boot takes a minute or two, so cases that want the same machine follow each other in one boot. Each finds its lab clean
//! ([`Bench::found`], [`Bench::cleared`]), since what the case before left is not known. Where two lanes run cases, each has labs
//! of its own.

use std::time::Instant;

use nearmetal_lab::machine::Count;

use crate::context::{self, Bench, Boot};

/// The labs that a case shares with others of its kind, in the order in which they are booted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Labs {
    /// `quad` as the demo boots it, so that what users see first is what is tried: its processors count.
    Counting,
    /// `quad`, whose processors count nothing. A measurement is shorter there, having no rounds in which accesses are counted.
    Plain,
    /// `quad-4nvme`: a drive on each node.
    FourDrives,
    /// `quad` with its network card on a cable; at the other end of it [`Bench::peer`], where netserver runs.
    Cabled,
    /// `quad` as the demo boots it, with the loads image.
    Loads,
}

impl Labs {
    /// All kinds.
    const ALL: [Self; 5] = [Self::Counting, Self::Plain, Self::FourDrives, Self::Cabled, Self::Loads];

    /// Name of the first lane's lab, by which records know the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counting => "cases",
            Self::Plain => "cases-plain",
            Self::FourDrives => "cases-four",
            Self::Cabled => "cases-net",
            Self::Loads => "cases-loads",
        }
    }

    /// The kind whose lab has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|labs| labs.name() == name)
    }

    /// Names of all its labs in a lane.
    fn names(self, lane: Lane) -> Vec<String> {
        let peer = (self == Self::Cabled).then_some(PEER_NAME);
        [self.name()].into_iter().chain(peer).map(|name| lane.own(name)).collect()
    }

    /// Whether all its labs run.
    fn are_up(self, lane: Lane) -> bool {
        self.names(lane).iter().all(|name| context::is_up(name))
    }

    /// Takes down those that run, also what hangs and what only half came up.
    fn down(self, lane: Lane) {
        for name in self.names(lane) {
            if let Err(error) = context::down(&name) {
                crate::say(&format!("the shared lab `{name}` was not taken down: {error:#}"));
            }
        }
    }

    /// How it is booted.
    fn boot(self, lane: Lane) -> Boot {
        let work = Some(Count::Work);
        match self {
            Self::Counting => Boot { count: work, ..Boot::default() },
            Self::Plain => Boot::default(),
            Self::FourDrives => Boot { machine: Some("quad-4nvme"), ..Boot::default() },
            Self::Cabled => Boot { cable: Some(lane.cable('a')), ..Boot::default() },
            Self::Loads => Boot { count: work, loads: true, ..Boot::default() },
        }
    }

    /// Boots them, or takes those that run already.
    fn up(self, lane: Lane) -> anyhow::Result<Bench> {
        let peer = if self == Self::Cabled { Some(Box::new(peer(lane)?)) } else { None };
        Ok(Bench { peer, ..Bench::attach_or_up(&lane.own(self.name()), &self.boot(lane))? })
    }
}

/// Which of the cases that run at a time; each lane boots labs of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The only one, or the first.
    First,
    /// Beside it.
    Second,
}

impl Lane {
    /// The lane's own lab or cable of that name.
    fn own(self, name: &str) -> String {
        match self {
            Self::First => name.to_owned(),
            Self::Second => format!("{name}-b"),
        }
    }

    /// An end of its cable.
    fn cable(self, end: char) -> String {
        format!("{}:{end}", self.own("cases"))
    }
}

/// Name of the lab at the other end of the cable.
const PEER_NAME: &str = "cases-peer";
/// Address of the other end of the cable.
pub const PEER: &str = "192.0.2.1";

/// The machine at the other end of the cable, which answers netperf.
fn peer(lane: Lane) -> anyhow::Result<Bench> {
    let boot = Boot { machine: Some("peer"), cable: Some(lane.cable('b')), ..Boot::default() };
    let peer = Bench::attach_or_up(&lane.own(PEER_NAME), &boot)?;
    peer.sh(&format!(
        "port=$(basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_totalvfs))))
         ip address replace {PEER}/24 dev $port; ip link set $port up; pgrep -x netserver >/dev/null || netserver"
    ))?;
    Ok(peer)
}

/// The labs of a lane that are up, of one kind at a time.
pub struct Shared {
    lane: Lane,
    /// The kind, and its lab unless an earlier run left it and nothing has used it yet.
    up: Option<(Labs, Option<Bench>)>,
    /// The kind that was booted last and how many seconds that took, until somebody asks.
    booted: Option<(Labs, f64)>,
}

impl Shared {
    /// Of a lane, with the labs that an earlier run left running.
    pub fn left(lane: Lane, kind: Option<Labs>) -> Self {
        Self { lane, up: kind.map(|labs| (labs, None)), booted: None }
    }

    /// Takes down all labs of a lane that nobody uses.
    pub fn take_down_lane(lane: Lane) {
        Labs::ALL.into_iter().for_each(|labs| labs.down(lane));
    }

    /// The kind that is up.
    pub fn kind(&self) -> Option<Labs> {
        self.up.as_ref().map(|(labs, _)| *labs)
    }

    /// The boot since the last question: of which kind, and how many seconds it took.
    pub fn booted(&mut self) -> Option<(Labs, f64)> {
        self.booted.take()
    }

    /// The labs of this kind, booted unless they are up.
    pub fn of(&mut self, labs: Labs) -> anyhow::Result<&Bench> {
        let is_good = |bench: &Option<Bench>| bench.as_ref().is_none_or(Bench::is_alive);
        let bench = match self.up.take_if(|(up, bench)| *up == labs && is_good(bench)) {
            Some((_, Some(bench))) => bench,
            _ => {
                self.take_down();
                self.boot(labs)?
            }
        };
        self.up.insert((labs, Some(bench))).1.as_ref().ok_or_else(|| anyhow::anyhow!("no lab"))
    }

    /// What does not come up whole is taken down again, so that nothing finds it.
    fn boot(&mut self, labs: Labs) -> anyhow::Result<Bench> {
        let (clock, boots) = (Instant::now(), !labs.are_up(self.lane));
        let bench = labs.up(self.lane).inspect_err(|_| labs.down(self.lane))?;
        self.booted = boots.then(|| (labs, clock.elapsed().as_secs_f64()));
        Ok(bench)
    }

    /// Takes down what is up.
    pub fn take_down(&mut self) {
        if let Some((labs, _)) = self.up.take() {
            labs.down(self.lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_name_and_no_two_share_a_lab() {
        let lanes = [Lane::First, Lane::Second];
        let mut names: Vec<String> =
            lanes.into_iter().flat_map(|lane| Labs::ALL.into_iter().flat_map(move |labs| labs.names(lane))).collect();
        assert!(Labs::ALL.into_iter().all(|labs| Labs::named(labs.name()) == Some(labs)));
        assert_eq!((Labs::named(PEER_NAME), Labs::named("somebody-else")), (None, None));
        assert_eq!(Labs::Cabled.names(Lane::Second), ["cases-net-b", "cases-peer-b"]);
        assert!(Lane::First.cable('a') != Lane::Second.cable('a'));
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
