//! One whole network matrix on this machine: the port, the peer's ceiling, read-back, race, the winner again, everything
//! put back.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nearmetal_host::{Host, HostFs, assignable, ledger};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use nearmetal_stats::{Race, doubling_looks, ratio};
use nearmetal_units::{Bytes, PciAddress};

use super::arms::{Function, NetGround, net_arms};
use super::guest::{ArmCard, appliance, own_kernel};
use super::lane::{confirm, race, read_back_all};
use super::netperf::NetTest;
use super::path::{Link, NetPath};
use super::port::{Port, TAP, why_not};
use super::results::{
    Ceiling, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetMatrixResults, bound, median, medians, pairs,
};
use super::rig::{Confinement, NetRig};
use crate::bench::{Event, grow_pools, new_uuid, pause_original, slice, stay_off};
use crate::compare::CONFIDENCE;
use crate::error::MeasureError;
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::matrix::{Effect, GroundKey, Turn};
use crate::metric::Unit;
use crate::record::provenance;
use crate::results::{Environment, Slice};
use crate::schedule::Design;

/// Rounds before the first look, as in the disk's matrix.
pub(super) const FIRST_LOOK: u32 = crate::matrix::FIRST_LOOK;
/// Looks, likewise.
pub(super) const LOOKS: u32 = crate::matrix::LOOKS;
/// Seconds of a run beyond its own: the card up, a greeting, the card down.
const BESIDE_A_RUN: u32 = 4;
/// Seconds to boot a guest, as an estimate before any was booted.
const BOOT: u32 = 30;
/// Samples of the peer's ceiling, each way and test.
const CEILING_RUNS: u32 = 3;

/// What to measure.
#[derive(Debug, Clone)]
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
    /// Seed of order and bootstrap.
    pub seed: u64,
    /// Directory of the appliance.
    pub appliance: PathBuf,
    /// The probe.
    pub probe: PathBuf,
    /// State directory.
    pub state: PathBuf,
    /// Lab or silicon.
    pub environment: Environment,
    /// Whether the user allows the running original to be paused.
    pub pause: bool,
    /// Whether the arms are measured; else they are only read back.
    pub race: bool,
}

impl NetMatrixRequest {
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
        let known = Command::new("modprobe").args(["--quiet", "--dry-run", "--", name]).status();
        fs.exists(&format!("/sys/module/{name}")) || known.is_ok_and(|status| status.success())
    };
    NetGround {
        port: request.port.clone(),
        functions: functions(&request.port, fs, host),
        vcpus: request.placement.vcpus.len() as u32,
        vhost: Path::new("/dev/vhost-net").exists(),
        macvtap: has_module("macvtap"),
        own_kernel: own_kernel(host.system.kernel.as_deref()).map(drop),
        without: request.without.clone(),
    }
}

/// The virtual functions of a port, in their order.
fn functions(port: &str, fs: &HostFs, host: &Host) -> Vec<Function> {
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
    let run = request.seconds + BESIDE_A_RUN;
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

fn ceiling_seconds(request: &NetMatrixRequest) -> u32 {
    2 * CEILING_RUNS * request.tests.len() as u32 * (request.seconds + 1)
}

/// Seconds of the winner's fresh rounds: two boots and three arms each.
fn confirming(request: &NetMatrixRequest) -> u32 {
    let tests = request.tests.len() as u32;
    request.pairs.saturating_mul(2 * BOOT + 3 * (tests * (request.seconds + 1) + BESIDE_A_RUN))
}

/// Runs a network matrix and puts everything back, whatever came of it.
///
/// # Errors
/// The port is somebody's or has no link, the peer does not answer, the budget is less than [`net_least_seconds`],
/// libvirt's default cannot be read back, or four runs in a row failed.
pub fn net_matrix(
    request: &NetMatrixRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<NetMatrixResults, MeasureError> {
    leaving_nothing(&request.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
        measure(request, fs, host, hypervisor, leftovers, tell)
    })
}

fn measure(
    request: &NetMatrixRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<NetMatrixResults, MeasureError> {
    let began = Instant::now();
    if let Some(why) = why_not(&request.port, host) {
        return Err(MeasureError::Unfit(why));
    }
    let versions = hypervisor.versions().ok();
    let ground = net_ground(request, fs, host);
    let (paths, left_out) = net_arms(&ground);
    affordable(request, &paths)?;
    pause_original(&request.guest, request.pause, hypervisor, leftovers)?;
    let slice = slice(&request.placement, &request.port, Bytes::new(0));
    stay_off(host, &slice)?;
    grow_pools(&request.placement, 1, host, fs, leftovers)?;

    let kernel = own_kernel(host.system.kernel.as_deref()).ok();
    let drivers: Vec<String> = ground.given().and_then(|function| function.driver.clone()).into_iter().collect();
    let given = paths.iter().any(|path| path.link == Link::VfHostdev);
    let drivers = if given { drivers } else { Vec::new() };
    let appliance = appliance(&request.appliance, kernel.as_deref(), &drivers, &request.state.join("bench"))?;
    let cards = cards(&paths, &ground, &new_uuid(fs)?);
    let bare = match ground.given() {
        Some(Function { interface: Some(interface), driver, .. }) => (interface.clone(), driver.clone()),
        _ => {
            let port = host.network_interfaces.iter().find(|interface| interface.name == request.port);
            (request.port.clone(), port.and_then(|port| port.driver.clone()))
        }
    };
    leftovers.clones = vec![NetRig::name(request)];
    let macs = cards.iter().filter(|card| card.path.link == Link::Bridge).map(|card| card.mac.clone()).collect();
    let port = Port::take(&request.port, macs, host, fs, leftovers)?;
    let mut rig = NetRig::new(request, fs, host, hypervisor, appliance, slice.clone(), port, bare, cards);

    let ceiling = if request.race {
        tell(Event::Stage("measuring what this machine and the peer get without a guest"));
        ceiling(&mut rig)?
    } else {
        Vec::new()
    };
    tell(Event::Stage("reading back what each arm really is"));
    let effects = read_back_all(&mut rig, tell)?;
    if let Some(Effect::NotShown { why }) = effects.first().filter(|_| request.race) {
        return Err(MeasureError::Unfit(format!(
            "libvirt's default, which all is compared with, cannot be read back: {why}"
        )));
    }
    let running: Vec<usize> = (0..effects.len()).filter(|arm| matches!(effects[*arm], Effect::Shown { .. })).collect();
    let cannot: Vec<Option<String>> = paths.iter().map(cannot_win).collect();
    let can_win: Vec<bool> = running.iter().map(|arm| cannot[*arm].is_none()).collect();
    if request.race && can_win.iter().filter(|can| **can).count() < 2 {
        return Err(MeasureError::Unfit(format!(
            "{} of {} arms took effect, and fewer than two of them could win: {}",
            running.len(),
            effects.len(),
            not_shown(&paths, &effects)
        )));
    }
    let (race, turns) = if request.race {
        tell(Event::Stage("racing"));
        let left = f64::from(request.budget.saturating_sub(confirming(request))) - began.elapsed().as_secs_f64();
        let (race, turns) = race(&mut rig, &running, &can_win, left, tell)?;
        (Some(race), turns)
    } else {
        (None, Vec::new())
    };
    // The file speaks of arms by their place in the list, and arms without effect are in it too.
    let turns: Vec<Turn> = turns.into_iter().map(|turn| Turn { arm: running[turn.arm], ..turn }).collect();

    let winner = race.as_ref().and_then(Race::leader).map(|leader| running[leader]);
    let bare_arm = running.iter().copied().find(|arm| paths[*arm].link == Link::Bare);
    let confirmation = match winner {
        Some(winner) => {
            tell(Event::Stage("measuring the winner again"));
            let mut arms = vec![0];
            arms.extend([Some(winner), bare_arm].into_iter().flatten().filter(|arm| *arm != 0));
            let fresh = confirm(&mut rig, &arms, tell)?;
            Some(NetConfirmation::of(fresh, winner, bare_arm, &ceiling, request.seed))
        }
        None => None,
    };
    rig.clear()?;
    let notes = std::mem::take(&mut rig.notes);
    let cards = std::mem::take(&mut rig.cards);
    let design =
        Design { arms: vec![], paired: vec![], rounds: 0, same_arm: vec![], same_arm_pairs: 0, single_shot: vec![] };
    let mut provenance = provenance(host, versions.as_ref(), request.seed, &design);
    provenance.retain(|name, _| !name.starts_with("fio"));
    for test in &request.tests {
        provenance.insert(format!("{} command", test.id()), test.command(request.peer, request.seconds).join(" "));
    }
    let arms = arm_results(&cards, effects, cannot, &running, race.as_ref(), &turns, &ceiling, request);
    let port_node = host.network_interfaces.iter().find(|found| found.name == request.port).and_then(|port| port.node);
    let mut caveats = caveats(request, &slice, port_node, kernel.is_some());
    caveats.extend(notes);
    Ok(NetMatrixResults {
        schema: NET_MATRIX_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.environment.clone(),
        ground: GroundKey {
            device: model(&request.port, host),
            kernel: host.system.kernel.clone().unwrap_or_else(|| "unknown".to_owned()),
            qemu: versions.map_or_else(|| "unknown".to_owned(), |versions| versions.hypervisor),
        },
        guest: request.guest.clone(),
        slice,
        port: request.port.clone(),
        port_node,
        peer: request.peer,
        tests: request.tests.clone(),
        seconds: request.seconds,
        seed: request.seed,
        budget: request.budget,
        took: began.elapsed().as_secs_f64(),
        error: request.error,
        looks: doubling_looks(FIRST_LOOK, LOOKS),
        ceiling,
        arms,
        left_out,
        turns,
        winner,
        slack: race.as_ref().and_then(Race::slack),
        confirmation,
        caveats,
        provenance,
    })
}

fn affordable(request: &NetMatrixRequest, paths: &[NetPath]) -> Result<(), MeasureError> {
    let least = net_least_seconds(request, paths);
    if request.budget >= least {
        return Ok(());
    }
    Err(MeasureError::Unfit(format!(
        "{} arms, {FIRST_LOOK} rounds each, and the winner again take at least {least} s, and the budget is {} s: raise --budget, or leave arms out (--without WORD)",
        paths.len(),
        request.budget
    )))
}

/// The cards of the arms. `uuid` makes their addresses those of this run, since another host may measure beside this one.
fn cards(paths: &[NetPath], ground: &NetGround, uuid: &str) -> Vec<ArmCard> {
    let digits: Vec<char> = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let pair = |place: usize| digits.get(2 * place..2 * place + 2).map_or_else(|| "00".to_owned(), String::from_iter);
    let one = |(arm, path): (usize, &NetPath)| {
        let under = ground.under_macvtap().and_then(|function| function.interface.clone());
        let lower = match path.link {
            Link::VfMacvtapPassthrough => under.unwrap_or_default(),
            link if link.macvtap_mode().is_some() => ground.port.clone(),
            _ => String::new(),
        };
        ArmCard {
            path: *path,
            mac: format!("52:54:00:{}:{}:{arm:02x}", pair(0), pair(1)).to_ascii_lowercase(),
            tap: format!("{TAP}{arm}"),
            lower,
            function: (path.link == Link::VfHostdev).then(|| ground.given().map(|given| given.address)).flatten(),
        }
    };
    paths.iter().enumerate().map(one).collect()
}

/// Bare metal, on all PUs and on the slice, in turn: no arm can be shown to do more.
fn ceiling(rig: &mut NetRig<'_>) -> Result<Vec<Ceiling>, MeasureError> {
    rig.stand_bare()?;
    let reached = rig.read_back(0);
    if let Effect::NotShown { why } = reached {
        return Err(MeasureError::Unfit(format!(
            "{} is out of reach from {}: {why}. Does netserver run there?",
            rig.request.peer, rig.request.port
        )));
    }
    let mut found = Vec::new();
    for test in rig.request.tests.clone() {
        let unit = if test.is_stream() { Unit::BitsPerSecond } else { Unit::TransactionsPerSecond };
        let mut ceiling = Ceiling { test, unit, unconfined: Vec::new(), confined: Vec::new() };
        for _ in 0..CEILING_RUNS {
            for confinement in [Confinement::None, Confinement::Slice] {
                let metrics = rig.measured(0, test, confinement)?;
                let rate = metrics.into_iter().find(|metric| metric.name == test.rate()).map(|metric| metric.value);
                match confinement {
                    Confinement::None => ceiling.unconfined.extend(rate),
                    Confinement::Slice => ceiling.confined.extend(rate),
                }
            }
        }
        found.push(ceiling);
    }
    Ok(found)
}

/// Why an arm is measured and cannot win.
fn cannot_win(path: &NetPath) -> Option<String> {
    (path.link == Link::Bare).then(|| "no guest: what the others are measured against".to_owned())
}

fn not_shown(paths: &[NetPath], effects: &[Effect]) -> String {
    let one = |(path, effect): (&NetPath, &Effect)| match effect {
        Effect::NotShown { why } => Some(format!("{}: {why}", path.title())),
        Effect::Shown { .. } => None,
    };
    let all: Vec<String> = paths.iter().zip(effects).filter_map(one).collect();
    if all.is_empty() { "see --list for what each needs".to_owned() } else { all.join("; ") }
}

#[allow(clippy::too_many_arguments, reason = "one line of the result from all that is known of an arm")]
fn arm_results(
    cards: &[ArmCard],
    effects: Vec<Effect>,
    cannot: Vec<Option<String>>,
    running: &[usize],
    race: Option<&Race>,
    turns: &[Turn],
    ceiling: &[Ceiling],
    request: &NetMatrixRequest,
) -> Vec<NetArmResult> {
    let metric = request.decided_by().rate();
    let one = |(number, ((card, effect), cannot_win)): (usize, ((&ArmCard, Effect), Option<String>))| {
        let place = race.zip(running.iter().position(|arm| *arm == number));
        let median = median(turns, &metric, number);
        let function = card.function.map(|function| function.to_string());
        let lower = if card.lower.is_empty() { request.port.clone() } else { card.lower.clone() };
        NetArmResult {
            id: card.path.id(),
            path: card.path,
            source: function.unwrap_or(lower),
            effect,
            cannot_win,
            fate: place.map(|(race, place)| race.fates()[place]),
            rounds: place.map_or(0, |(race, place)| race.measured(place)),
            median,
            medians: medians(turns, number),
            peer_bound: bound(ceiling, &metric, median),
            to_default: ratio(&pairs(turns, &metric, number, 0), CONFIDENCE, request.seed).ok().filter(|_| number != 0),
        }
    };
    cards.iter().zip(effects).zip(cannot).enumerate().map(one).collect()
}

/// Driver and ids of the port's card: what a recorded winner holds for.
fn model(port: &str, host: &Host) -> String {
    let interface = host.network_interfaces.iter().find(|interface| interface.name == port);
    let device = interface.and_then(|found| host.pci_devices.iter().find(|device| Some(device.address) == found.pci));
    let id = |id: Option<u16>| id.map_or_else(|| "?".to_owned(), |id| format!("{id:04x}"));
    let driver = interface.and_then(|found| found.driver.clone()).unwrap_or_else(|| "unknown".to_owned());
    match device {
        Some(device) => format!("{driver} {}:{}", id(device.vendor), id(device.device)),
        None => driver,
    }
}

fn caveats(request: &NetMatrixRequest, slice: &Slice, port_node: Option<u32>, own_kernel: bool) -> Vec<String> {
    let mut caveats = Vec::new();
    if let Environment::Lab { machine } = &request.environment {
        caveats.push(format!(
            "lab: emulated time. The machine `{machine}` is software; its figures show instruction paths, not silicon"
        ));
    }
    match port_node {
        Some(node) if !slice.nodes.contains(node) => caveats.push(format!(
            "the port is on node {node} and the guest on node {}: every packet crosses nodes",
            slice.nodes
        )),
        _ => {}
    }
    if !own_kernel {
        caveats.push("the guest runs the appliance's kernel, since this host's own was not found".to_owned());
    }
    if !slice.cpus_on_top.is_empty() {
        caveats.push(format!(
            "the guest also uses PUs {} for its emulator thread and vhost workers: what virtualization costs on top of the slice",
            slice.cpus_on_top
        ));
    }
    caveats.push(
        "interrupts of the port stay where the host has them, for every arm: bare metal's are outside its confinement too"
            .to_owned(),
    );
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_addresses_of_this_run_and_lie_where_their_arm_says() {
        let function = |address: &str, name: &str| Function {
            address: address.parse().unwrap(),
            interface: Some(name.into()),
            driver: Some("igbvf".into()),
            obstacle: None,
        };
        let ground = NetGround {
            port: "enp57s0".into(),
            functions: vec![function("0000:39:10.0", "v0"), function("0000:39:10.2", "v1")],
            vcpus: 2,
            vhost: true,
            macvtap: true,
            own_kernel: Ok(()),
            without: vec![],
        };
        let (paths, _) = net_arms(&ground);
        let cards = cards(&paths, &ground, "AB12cd34-0000-0000-0000-000000000000");
        assert_eq!(cards[0].mac, "52:54:00:ab:12:00");
        let of = |link| cards.iter().find(|card| card.path.link == link).unwrap();
        assert_eq!(of(Link::VfMacvtapPassthrough).lower, "v1", "the guest has the first");
        assert_eq!(of(Link::VfHostdev).function.map(|address| address.to_string()).as_deref(), Some("0000:39:10.0"));
        assert_eq!((of(Link::MacvtapPrivate).lower.as_str(), of(Link::Bridge).lower.as_str()), ("enp57s0", ""));
        let names: std::collections::BTreeSet<_> = cards.iter().map(|card| &card.tap).collect();
        assert_eq!(names.len(), cards.len());
    }
}
