//! Which labs cases share, and which of them are up.
//!
//! A boot takes a minute or two, so cases that want the same machine follow each other in one boot. Each finds its lab clean
//! ([`Bench::found`], [`Bench::cleared`]), since what the case before left is not known.

use nearmetal_lab::machine::Count;

use crate::context::{Bench, Boot};

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
    /// Name of the lab.
    fn name(self) -> &'static str {
        match self {
            Self::Counting => "cases",
            Self::Plain => "cases-plain",
            Self::FourDrives => "cases-four",
            Self::Cabled => "cases-net",
            Self::Loads => "cases-loads",
        }
    }

    /// How it is booted.
    fn boot(self) -> Boot {
        let work = Some(Count::Work);
        match self {
            Self::Counting => Boot { count: work, ..Boot::default() },
            Self::Plain => Boot::default(),
            Self::FourDrives => Boot { machine: Some("quad-4nvme"), ..Boot::default() },
            Self::Cabled => Boot { cable: Some("cases:a"), ..Boot::default() },
            Self::Loads => Boot { count: work, loads: true, ..Boot::default() },
        }
    }

    /// Boots them, or takes those that run already.
    fn up(self) -> anyhow::Result<Bench> {
        if self != Self::Cabled {
            return Bench::attach_or_up(self.name(), &self.boot());
        }
        let peer = peer()?;
        match Bench::attach_or_up(self.name(), &self.boot()) {
            Ok(server) => Ok(Bench { peer: Some(Box::new(peer)), ..server }),
            Err(error) => {
                peer.lab.down()?;
                Err(error)
            }
        }
    }
}

/// Address of the other end of the cable.
pub const PEER: &str = "192.0.2.1";

/// The machine at the other end of the cable, which answers netperf.
fn peer() -> anyhow::Result<Bench> {
    let boot = Boot { machine: Some("peer"), cable: Some("cases:b"), ..Boot::default() };
    let peer = Bench::attach_or_up("cases-peer", &boot)?;
    peer.sh(&format!(
        "port=$(basename $(dirname $(dirname $(ls /sys/class/net/*/device/sriov_totalvfs))))
         ip address replace {PEER}/24 dev $port; ip link set $port up; pgrep -x netserver >/dev/null || netserver"
    ))?;
    Ok(peer)
}

/// The labs that are up: of one kind at a time, since two kinds at once would each be half as fast.
#[derive(Default)]
pub struct Shared(Option<(Labs, Bench)>);

impl Shared {
    /// The labs of this kind, booted unless they are up.
    pub fn of(&mut self, labs: Labs) -> anyhow::Result<&Bench> {
        if !matches!(&self.0, Some((up, bench)) if *up == labs && bench.is_alive()) {
            self.take_down();
            self.0 = Some((labs, labs.up()?));
        }
        self.0.as_ref().map(|(_, bench)| bench).ok_or_else(|| anyhow::anyhow!("no lab"))
    }

    /// Takes down what is up.
    pub fn take_down(&mut self) {
        let Some((_, Bench { lab, peer })) = self.0.take() else { return };
        for lab in [Some(lab), peer.map(|peer| peer.lab)].into_iter().flatten() {
            let name = lab.name().clone();
            if let Err(error) = lab.down() {
                crate::say(&format!("the shared lab `{name}` was not taken down: {error}"));
            }
        }
    }
}
