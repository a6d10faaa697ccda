//! What all commands about ways to a network take.

use std::net::IpAddr;

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_load::NetTest;
use nearmetal_measure::{Conditions, NetMatrixRequest, check_address, net_words};

use crate::commands::bench::planned::{PlanArgs, Planned};
use crate::commands::bench::race::{RACE_SECONDS, WithoutArgs};
use crate::exit_status::WrongUse;

/// Fresh rounds of the winner, each with two boots.
pub(super) const PAIRS: u32 = 6;

/// Of whom, over which port, and which ways.
#[derive(Debug, clap::Args)]
pub(super) struct WaysArgs {
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
    pub(super) fn request(
        &self,
        conditions: impl FnOnce(&HostFs, &Journal, &Planned) -> anyhow::Result<Conditions>,
    ) -> anyhow::Result<(HostFs, NetMatrixRequest)> {
        self.without.check(&net_words())?;
        let (fs, journal) = (HostFs::live(), self.plan.journal());
        let planned = self.plan.pinned(&self.domain, &journal)?;
        let conditions = conditions(&fs, &journal, &planned)?;
        let Planned { change, placement, .. } = planned;
        let request = NetMatrixRequest {
            guest: self.domain.clone(),
            placement,
            xml: change.xml_after,
            port: self.port.clone(),
            peer: IpAddr::from([0, 0, 0, 0]),
            address: String::new(),
            tests: NetTest::DEFAULT.to_vec(),
            seconds: RACE_SECONDS,
            without: self.without.without.clone(),
            budget: 0,
            error: 0.0,
            pairs: 0,
            conditions,
            race: false,
        };
        Ok((fs, request))
    }
}

/// Who answers.
#[derive(Debug, clap::Args)]
pub(super) struct PeerArgs {
    /// Address of the machine at the other end of the port's cable; start `netserver` there, and what `nearmetal bench net
    /// list` names for other tests
    #[arg(long, value_name = "ADDRESS")]
    pub(super) peer: IpAddr,
    /// A free address in the peer's network, with its prefix; each way has it in its turn
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    pub(super) address: String,
}

impl PeerArgs {
    /// Refuses an address from which the peer is not reached.
    pub(super) fn check(&self) -> Result<(), WrongUse> {
        checked_address(&self.address, self.peer)
    }
}

/// Refuses an address from which the peer is not reached without a route.
pub(in super::super) fn checked_address(address: &str, peer: IpAddr) -> Result<(), WrongUse> {
    check_address(address, peer).map_err(|why| WrongUse(format!("--address: {why}")))
}
