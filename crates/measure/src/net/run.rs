//! One whole network matrix on this machine: the port, the peer's ceiling, read-back, race, the winner again, everything
//! put back.

use std::time::Instant;

use nearmetal_host::{Host, HostFs};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_load::NetTest;
use nearmetal_results::{
    CONFIDENCE, Ceiling, Effect, GroundKey, Link, NET_MATRIX_SCHEMA, NetArmResult, NetConfirmation, NetMatrixResults,
    NetPath, Slice, Turn, is_peer_bound, net_medians,
};
use nearmetal_stats::{Race, doubling_looks, ratio};
use nearmetal_units::Bytes;

use super::arms::{Function, NetGround, net_arms};
use super::guest::{ArmCard, appliance, mac_of_run, own_kernel};
use super::lane::{ceiling, confirm, race, read_back_all};
use super::port::{Port, TAP, why_not};
use super::request::{FIRST_LOOK, LOOKS, NetMatrixRequest, affordable, confirming, net_ground};
use super::rig::NetRig;
use crate::conditions::Conditions;
use crate::engine::{Session, Site, slice_of};
use crate::error::MeasureError;
use crate::event::Event;
use crate::finish::{Request, lab_caveat, on_top_caveat};

impl Request for NetMatrixRequest {
    type Outcome = NetMatrixResults;

    fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    fn guests(&self) -> Vec<String> {
        vec![self.guest.clone()]
    }

    fn device(&self, session: &Session<'_>) -> Option<String> {
        Some(port_model(&self.port, &session.host))
    }

    fn winner(results: &NetMatrixResults) -> Option<&str> {
        results.winner.and_then(|winner| results.arms.get(winner)).map(|arm| arm.id.as_str())
    }

    /// Runs a network matrix and puts everything back, whatever came of it.
    ///
    /// # Errors
    /// The port is somebody's or has no link, the peer does not answer, the budget is less than [`net_least_seconds`],
    /// fewer than two arms took effect, or four runs in a row failed.
    fn measure(&self, session: &mut Session<'_>) -> Result<NetMatrixResults, MeasureError> {
        measure(self, session)
    }
}

/// Makes every way to the network once, reads it back and removes it; nothing is measured, and nothing goes into a store.
///
/// # Errors
/// The port is somebody's or has no link, or the peer does not answer.
pub fn read_back_net(
    request: &NetMatrixRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<NetMatrixResults, MeasureError> {
    Session::run(&request.conditions, Site { fs, hypervisor, tell }, |session| measure(request, session))
}

fn measure(request: &NetMatrixRequest, session: &mut Session<'_>) -> Result<NetMatrixResults, MeasureError> {
    let began = Instant::now();
    let host = &session.host.clone();
    if let Some(why) = why_not(&request.port, host) {
        return Err(MeasureError::Asked(why));
    }
    session.without_fio();
    let versions = session.versions();
    let ground = net_ground(request, session.fs, host);
    let (paths, left_out) = net_arms(&ground);
    affordable(request, &paths)?;
    session.pause_original(&request.guest)?;
    let slice = slice_of(&request.placement, &request.port, Bytes::new(0));
    session.stay_off(std::slice::from_ref(&slice))?;
    session.grow_pools(&request.placement, 1)?;

    let kernel = own_kernel(session.fs, host.system.kernel.as_deref()).ok();
    let drivers: Vec<String> = ground.given().and_then(|function| function.driver.clone()).into_iter().collect();
    let given = paths.iter().any(|path| path.link == Link::VfHostdev);
    let drivers = if given { drivers } else { Vec::new() };
    let programs = NetTest::programs(&request.tests);
    let work = request.conditions.place_for_guest_files()?;
    let appliance =
        appliance(session.fs, &request.conditions.appliance, &programs, kernel.as_deref(), &drivers, &work)?;
    let cards = cards(&paths, &ground, &session.new_uuid()?);
    let bare = match ground.given() {
        Some(Function { interface: Some(interface), driver, .. }) => (interface.clone(), driver.clone()),
        _ => {
            let port = host.network_interfaces.iter().find(|interface| interface.name == request.port);
            (request.port.clone(), port.and_then(|port| port.driver.clone()))
        }
    };
    session.will_clone([NetRig::name(request)])?;
    let macs = cards.iter().filter(|card| card.path.link == Link::Bridge).map(|card| card.mac.clone()).collect();
    let port = Port::take(&request.port, macs, host, session.fs, &mut session.leftovers)?;
    let mut rig = NetRig::new(request, appliance, slice.clone(), port, bare, cards);

    let ceiling = if request.race {
        session.stage("measuring what this machine and the peer get without a guest");
        ceiling(&mut rig, session)?
    } else {
        Vec::new()
    };
    session.stage("reading back what each arm really is");
    let effects = read_back_all(&mut rig, session)?;
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
    let reference = reference(&effects, &cannot);
    let (race, turns) = if request.race {
        session.stage("racing");
        let budget = f64::from(request.budget.saturating_sub(confirming(request)));
        let left = session.times(|| Ok(budget - began.elapsed().as_secs_f64()))?;
        let (race, turns) = race(&mut rig, &running, &can_win, reference, left, session)?;
        (Some(race), turns)
    } else {
        (None, Vec::new())
    };
    let winner = race.as_ref().and_then(Race::leader).map(|leader| running[leader]);
    let bare_arm = running.iter().copied().find(|arm| paths[*arm].link == Link::Bare);
    let confirmation = match winner {
        Some(winner) => {
            session.stage("measuring the winner again");
            let mut arms = vec![reference];
            arms.extend([Some(winner), bare_arm].into_iter().flatten().filter(|arm| *arm != reference));
            let fresh = confirm(&mut rig, &arms, session)?;
            Some(NetConfirmation::of(fresh, (winner, reference), bare_arm, &ceiling, request.conditions.seed))
        }
        None => None,
    };
    rig.clear(session)?;
    let cards = std::mem::take(&mut rig.cards);
    let workloads: Vec<_> = request.tests.iter().map(|test| request.job(*test)).collect();
    let arms = arm_results(&cards, effects, cannot, &running, reference, race.as_ref(), &turns, &ceiling, request);
    let port_node = host.network_interfaces.iter().find(|found| found.name == request.port).and_then(|port| port.node);
    let mut caveats = caveats(request, &slice, port_node, kernel.is_some());
    if request.race && reference != 0 {
        caveats.push(format!(
            "libvirt's default took no effect here, so all is compared with the first arm that did: {}",
            paths[reference].title()
        ));
    }
    caveats.append(&mut session.notes);
    let results = NetMatrixResults {
        schema: NET_MATRIX_SCHEMA.to_owned(),
        created: nearmetal_change::timestamp::now(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        environment: request.conditions.environment.clone(),
        ground: GroundKey {
            device: port_model(&request.port, host),
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
        seed: request.conditions.seed,
        budget: request.budget,
        took: began.elapsed().as_secs_f64(),
        error: request.error,
        looks: doubling_looks(FIRST_LOOK, LOOKS),
        ceiling,
        arms,
        reference,
        left_out,
        turns,
        winner,
        slack: race.as_ref().and_then(Race::slack),
        confirmation,
        caveats,
        provenance: session.provenance(&workloads),
    };
    Ok(results)
}

/// The cards of the arms. `uuid` makes their addresses those of this run, since another host may measure beside this one.
fn cards(paths: &[NetPath], ground: &NetGround, uuid: &str) -> Vec<ArmCard> {
    let one = |(arm, path): (usize, &NetPath)| {
        let under = ground.under_macvtap().and_then(|function| function.interface.clone());
        let lower = match path.link {
            Link::VfMacvtapPassthrough => under.unwrap_or_default(),
            link if link.macvtap_mode().is_some() => ground.port.clone(),
            _ => String::new(),
        };
        ArmCard {
            path: *path,
            mac: mac_of_run(uuid, arm),
            tap: format!("{TAP}{arm}"),
            lower,
            function: (path.link == Link::VfHostdev).then(|| ground.given().map(|given| given.address)).flatten(),
        }
    };
    paths.iter().enumerate().map(one).collect()
}

/// The arm that all others are compared with: libvirt's default, or where that took no effect the first a guest can use.
fn reference(effects: &[Effect], cannot: &[Option<String>]) -> usize {
    let able =
        |(effect, cannot): (&Effect, &Option<String>)| matches!(effect, Effect::Shown { .. }) && cannot.is_none();
    effects.iter().zip(cannot).position(able).unwrap_or(0)
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
    if all.is_empty() { "`nearmetal bench net list` says what each needs".to_owned() } else { all.join("; ") }
}

#[allow(clippy::too_many_arguments, reason = "one line of the result from all that is known of an arm")]
fn arm_results(
    cards: &[ArmCard],
    effects: Vec<Effect>,
    cannot: Vec<Option<String>>,
    running: &[usize],
    reference: usize,
    race: Option<&Race>,
    turns: &[Turn],
    ceiling: &[Ceiling],
    request: &NetMatrixRequest,
) -> Vec<NetArmResult> {
    let metric = request.decided_by().rate();
    let bare = running.iter().copied().find(|arm| cards[*arm].path.link == Link::Bare);
    let one = |(number, ((card, effect), cannot_win)): (usize, ((&ArmCard, Effect), Option<String>))| {
        let against = |other: Option<usize>| {
            let other = other.filter(|other| *other != number)?;
            ratio(&Turn::pairs(turns, &metric, number, other), CONFIDENCE, request.conditions.seed).ok()
        };
        let place = race.zip(running.iter().position(|arm| *arm == number));
        let median = Turn::median(turns, &metric, number);
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
            medians: net_medians(turns, number),
            peer_bound: is_peer_bound(ceiling, &metric, median),
            to_default: against(Some(reference)),
            to_bare: against(bare),
        }
    };
    cards.iter().zip(effects).zip(cannot).enumerate().map(one).collect()
}

/// Driver and ids of a port's card: what a recorded winner holds for. What is not known of them is `unknown` or `?`.
pub fn port_model(port: &str, host: &Host) -> String {
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
    let mut caveats: Vec<String> = lab_caveat(&request.conditions.environment).into_iter().collect();
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
    caveats.extend(on_top_caveat(slice, "vhost workers"));
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
