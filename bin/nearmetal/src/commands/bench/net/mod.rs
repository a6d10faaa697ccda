//! `nearmetal bench net`: one file for each of its commands.

mod list;
mod race;
mod read_back;
mod tests;

use std::net::IpAddr;

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_measure::{Conditions, NetMatrixRequest, NetTest, check_address, net_words};

use super::planned::{PlanArgs, Planned};
use super::race::WithoutArgs;
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

pub(super) use tests::test;

/// Seconds of one sample.
const SECONDS: u32 = 3;
/// Fresh rounds of the winner, each with two boots.
const PAIRS: u32 = 6;

/// Find the fastest way for a VM to reach a network: vhost-net, user space, macvtap, virtual functions
///
/// The ways are cards of a clone of the VM, on one port, against a *peer*: a machine at the other end of the port's cable.
/// `list` shows which ways there are and what the peer must run, `read-back` makes each and sees that it took effect,
/// `race` measures them and says which to use; `nearmetal plan` then uses it. docs/guides/net-matrix.md begins at the
/// beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench net list web1 --port enp57s0
  nearmetal bench net read-back web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause
  nearmetal bench net race web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    List(list::Args),
    ReadBack(read_back::Args),
    Race(race::Args),
}

/// Runs one of them.
pub(super) fn net(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match &args.what {
        What::List(args) => list::list(args, printer),
        What::ReadBack(args) => read_back::read_back(args, printer),
        What::Race(args) => race::race(args, printer),
    }
}

/// Of whom, over which port, and which ways.
#[derive(Debug, clap::Args)]
struct WaysArgs {
    /// The VM; its plan must have been applied, or be named with --plan
    #[arg(value_name = "VM")]
    domain: String,
    /// The port that is measured; nobody may use it meanwhile, so it must have no address
    #[arg(long, value_name = "INTERFACE")]
    port: String,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    without: WithoutArgs,
}

impl WaysArgs {
    /// The VM in its plan, and what all commands ask of it: a read-back without a peer.
    ///
    /// # Errors
    /// [`WrongUse`] of a word of `--without`, the plan or the VM's name; `conditions` may have its own.
    fn request(
        &self,
        conditions: impl FnOnce(&HostFs, &Journal) -> anyhow::Result<Conditions>,
    ) -> anyhow::Result<(HostFs, NetMatrixRequest)> {
        self.without.check(&net_words())?;
        let (fs, journal) = (HostFs::live(), self.plan.journal());
        let Planned { change, placement } = self.plan.pinned(&self.domain, &journal)?;
        let request = NetMatrixRequest {
            guest: self.domain.clone(),
            placement,
            xml: change.xml_after,
            port: self.port.clone(),
            peer: IpAddr::from([0, 0, 0, 0]),
            address: String::new(),
            tests: NetTest::DEFAULT.to_vec(),
            seconds: SECONDS,
            without: self.without.without.clone(),
            budget: 0,
            error: 0.0,
            pairs: 0,
            conditions: conditions(&fs, &journal)?,
            race: false,
        };
        Ok((fs, request))
    }
}

/// Who answers.
#[derive(Debug, clap::Args)]
struct PeerArgs {
    /// Address of the machine at the other end of the port's cable; start `netserver` there, and what `nearmetal bench net
    /// list` names for other tests
    #[arg(long, value_name = "ADDRESS")]
    peer: IpAddr,
    /// A free address in the peer's network, with its prefix; each way has it in its turn
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    address: String,
}

impl PeerArgs {
    fn check(&self) -> Result<(), WrongUse> {
        checked_address(&self.address, self.peer)
    }
}

/// Refuses an address from which the peer is not reached without a route.
pub(super) fn checked_address(address: &str, peer: IpAddr) -> Result<(), WrongUse> {
    check_address(address, peer).map_err(|why| WrongUse(format!("--address: {why}")))
}
