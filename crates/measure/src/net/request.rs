//! What a network matrix is asked to measure, what this machine has for it, and the seconds it takes.

use std::net::IpAddr;
use std::process::Command;

use nearmetal_host::{Host, HostFs, assignable, ledger};
use nearmetal_load::{NetJob, NetTest, Workload};
use nearmetal_place::Placement;
use nearmetal_results::{Link, NetPath};
use nearmetal_units::PciAddress;
use serde::{Deserialize, Serialize};

use super::arms::{Function, NetGround};
use super::guest::own_kernel;
use crate::conditions::Conditions;
use crate::error::MeasureError;
use crate::program::run;

/// Rounds before the first look, as in the disk's matrix.
pub(super) const FIRST_LOOK: u32 = crate::matrix::FIRST_LOOK;
/// Looks, likewise.
pub(super) const LOOKS: u32 = crate::matrix::LOOKS;
/// Seconds of a run beyond its own: the card up, a greeting, the card down.
const BESIDE_A_RUN: u32 = 4;
/// Seconds to boot a guest, as an estimate before any was booted.
const BOOT: u32 = 30;
/// Samples of the peer's ceiling, each way and test.
pub(super) const CEILING_RUNS: u32 = 3;

/// What to measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetMatrixRequest {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: the slice.
    pub placement: Placement,
    /// Its XML as planned: pins and memory are the same for every arm.
    pub xml: String,
    /// Interface of the port; nobody else may use it.
    pub port: String,
    /// Where netserver answers.
    pub peer: IpAddr,
    /// The address every arm has in its turn, with its prefix, checked by [`super::check_address`].
    pub address: String,
    /// What to run; the first decides the race.
    pub tests: Vec<NetTest>,
    /// Measured seconds of a run.
    pub seconds: u32,
    /// Words whose arms are not wanted.
    pub without: Vec<String>,
    /// Seconds for all of it.
    pub budget: u32,
    /// Probability with which the best arm may be lost.
    pub error: f64,
    /// Fresh rounds of the winner.
    pub pairs: u32,
    /// Under what.
    pub conditions: Conditions,
    /// Whether the arms are measured; else they are only read back.
    pub race: bool,
}

impl NetMatrixRequest {
    /// What one run runs.
    pub(super) fn job(&self, test: NetTest) -> Workload {
        NetJob { test, peer: self.peer, seconds: self.seconds }.into()
    }

    /// The test that decides the race.
    pub(super) fn decided_by(&self) -> NetTest {
        self.tests.first().copied().unwrap_or(NetTest::TcpRr)
    }

    /// The network driver a function has on the host.
    pub(super) fn function_driver(&self, host: &Host, function: Option<PciAddress>) -> Option<String> {
        let device = host.pci_devices.iter().find(|device| Some(device.address) == function)?;
        device.driver.clone().filter(|driver| !driver.starts_with("vfio"))
    }
}

/// What decides which arms there are.
pub fn net_ground(request: &NetMatrixRequest, fs: &HostFs, host: &Host) -> NetGround {
    let has_module = |name: &str| {
        fs.exists(&format!("/sys/module/{name}"))
            || run(Command::new("modprobe").args(["--quiet", "--dry-run", "--", name])).is_ok()
    };
    NetGround {
        port: request.port.clone(),
        functions: port_functions(&request.port, fs, host),
        vcpus: request.placement.vcpus.len() as u32,
        vhost: fs.exists("/dev/vhost-net"),
        macvtap: has_module("macvtap"),
        own_kernel: own_kernel(fs, host.system.kernel.as_deref()).map(drop),
        without: request.without.clone(),
    }
}

/// The virtual functions of a port, in their order.
pub fn port_functions(port: &str, fs: &HostFs, host: &Host) -> Vec<Function> {
    let pci = host.network_interfaces.iter().find(|interface| interface.name == port).and_then(|found| found.pci);
    let sriov =
        host.pci_devices.iter().find(|device| Some(device.address) == pci).and_then(|found| found.sriov.clone());
    let found = assignable::examine(host, &ledger::read(fs, host));
    let function = |address: PciAddress| {
        let device = host.pci_devices.iter().find(|device| device.address == address);
        let interface = host.network_interfaces.iter().find(|interface| interface.pci == Some(address));
        let able = found.iter().find(|one| one.function == address);
        let held = able.and_then(|one| one.guest.as_ref()).map(|_| format!("a guest has {address}"));
        let obstacle = able.and_then(|one| one.obstacles.first()).map(ToString::to_string);
        Function {
            address,
            interface: interface.map(|interface| interface.name.clone()),
            driver: device.and_then(|device| device.driver.clone()),
            obstacle: held.or(obstacle),
        }
    };
    sriov.map(|sriov| sriov.functions.into_iter().map(function).collect()).unwrap_or_default()
}

/// Seconds without which there is no answer: the ceiling, every arm in the first rung, the winner's fresh rounds.
pub fn net_least_seconds(request: &NetMatrixRequest, arms: &[NetPath]) -> u32 {
    let run = request.seconds + request.decided_by().beside() + BESIDE_A_RUN;
    let mut roles: Vec<_> = arms.iter().map(|arm| arm.link.role()).filter(|role| *role != Link::Bare.role()).collect();
    roles.sort();
    roles.dedup();
    let boots = if roles.len() > 1 { roles.len() as u32 } else { 0 };
    // Each guest is booted once for the read-back, which takes about a run for each arm.
    let reading = roles.len() as u32 * BOOT + arms.len() as u32 * run;
    if !request.race {
        return reading;
    }
    let rung = FIRST_LOOK * (arms.len() as u32 * run + boots * BOOT);
    ceiling_seconds(request).saturating_add(reading).saturating_add(rung).saturating_add(confirming(request))
}

/// Seconds of one run of each test, a second to start each included.
fn each_once(request: &NetMatrixRequest) -> u32 {
    request.tests.iter().fold(0, |sum, test| sum.saturating_add(request.seconds).saturating_add(test.beside() + 1))
}

fn ceiling_seconds(request: &NetMatrixRequest) -> u32 {
    (2 * CEILING_RUNS).saturating_mul(each_once(request))
}

/// Seconds of the winner's fresh rounds: two boots and three arms each.
pub(super) fn confirming(request: &NetMatrixRequest) -> u32 {
    let arm = each_once(request).saturating_add(BESIDE_A_RUN);
    request.pairs.saturating_mul(arm.saturating_mul(3).saturating_add(2 * BOOT))
}

/// Refuses a budget that gives no answer; what is only read back has none.
pub(super) fn affordable(request: &NetMatrixRequest, paths: &[NetPath]) -> Result<(), MeasureError> {
    let least = net_least_seconds(request, paths);
    if !request.race || request.budget >= least {
        return Ok(());
    }
    Err(MeasureError::Asked(format!(
        "{} arms, {FIRST_LOOK} rounds each, and the winner again take at least {least} s, and the budget is {} s: raise --budget, or leave arms out (--without WORD)",
        paths.len(),
        request.budget
    )))
}
