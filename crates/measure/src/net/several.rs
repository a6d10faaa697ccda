//! Several guests at once through one port, against their bare slices at once through the same port.
//!
//! Every guest has one card on the port's bridge and an address of its own. The port is in the bridge while guests are
//! measured, and in a namespace of its own while the slices are: all of their processes then share its address. The guests
//! stay up, paused, and their taps go back into the bridge.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::{Hypervisor, agent};
use nearmetal_place::Placement;
use nearmetal_units::Bytes;

use super::check_address;
use super::effect::{PATIENCE, in_the_guest, seen};
use super::guest::{ArmCard, UP, appliance, guest_with, own_kernel};
use super::path::{Link, NetPath};
use super::port::{BRIDGE, NAMESPACE, Port, TAP};
use super::test::{NetTest, read};
use crate::appliance::{Appliance, PROBE_IN_GUEST, archive_of};
use crate::bench::{Event, new_uuid, slice};
use crate::cost::{Each, Middle};
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::results::{ArmKind, Slice};
use crate::together::{
    Load, MemberInfo, Ready, Running, Side, TogetherLoad, TogetherResults, TogetherTerms, Turn, Window, apart,
    lab_caveat, make_room, of_netperf, pause_all,
};

/// How long netperf takes at most to begin and to end, beside what it measures.
const AROUND: Duration = Duration::from_secs(2);

/// One guest.
#[derive(Debug, Clone)]
pub struct NetMember {
    /// Domain.
    pub guest: String,
    /// Where the plan puts it: its slice.
    pub placement: Placement,
    /// Its XML as planned.
    pub xml_planned: String,
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct NetTogetherRequest {
    /// The guests, in the order in which they join.
    pub members: Vec<NetMember>,
    /// The way their packets take: one over a bridge.
    pub way: NetPath,
    /// What each runs.
    pub test: NetTest,
    /// Seconds of a sample.
    pub seconds: u32,
    /// Interface of the port; nobody else may use it.
    pub port: String,
    /// Where netserver answers.
    pub peer: IpAddr,
    /// The first guest's address, with its prefix; the others have the next ones, and bare metal the one behind them all.
    pub address: String,
    /// How.
    pub terms: TogetherTerms,
}

/// Runs the experiment and puts everything back, whatever came of it.
///
/// # Errors
/// Slices that share PUs, a way that is not over a bridge, a port that is somebody's, a peer that does not answer; or
/// several samples in a row that fail.
pub fn bench_net_together(
    request: &NetTogetherRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    apart(request.members.iter().map(|member| (member.guest.as_str(), &member.placement)))?;
    if request.way.link != Link::Bridge {
        return Err(MeasureError::Unfit(format!(
            "{} is no way several guests share with this port: name one over a bridge, such as bridge.vhost.q1",
            request.way.id()
        )));
    }
    if request.test.server().is_some() {
        let known = NetTest::DEFAULT.map(NetTest::id).join(", ");
        return Err(MeasureError::Unfit(format!(
            "`{}` is no test for several guests at once: how far runs overlap is known of netperf's alone; name one of {known} (--test)",
            request.test.id()
        )));
    }
    leaving_nothing(&request.terms.conditions.state, fs, hypervisor, tell, |host, hypervisor, leftovers, tell| {
        measure(request, fs, host, hypervisor, leftovers, tell)
    })
}

/// The address `number` behind the first, with the same prefix, if it is one the peer reaches.
fn nth_address(request: &NetTogetherRequest, number: usize) -> Result<String, MeasureError> {
    let first = &request.address;
    let unfit = |why: &str| MeasureError::Unfit(format!("{first} and {number} addresses behind it: {why}"));
    let address = address_of(first, number).ok_or_else(|| unfit("there are not as many; begin with a smaller one"))?;
    check_address(&address, request.peer).map_err(|why| unfit(&why))?;
    Ok(address)
}

/// The address `number` further on, with the same prefix; `None` behind the last there is.
fn address_of(first: &str, number: usize) -> Option<String> {
    let (address, prefix) = first.split_once('/')?;
    let next = match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => IpAddr::from(u32::from(address).checked_add(number as u32)?.to_be_bytes()),
        IpAddr::V6(address) => IpAddr::from(u128::from(address).checked_add(number as u128)?.to_be_bytes()),
    };
    Some(format!("{next}/{prefix}"))
}

/// netperf through one port, and the port itself.
struct ThroughPort<'a> {
    request: &'a NetTogetherRequest,
    port: Port,
    cards: Vec<ArmCard>,
    /// Address of bare metal: one that no guest has, since the peer would go on sending to the hardware it knows behind it.
    bare: String,
    standing: Option<Side>,
}

impl Load for ThroughPort<'_> {
    fn program(&self) -> &'static str {
        "netperf"
    }

    fn length(&self) -> Duration {
        Duration::from_secs(self.request.seconds.into()) + AROUND
    }

    fn middle(&self) -> Middle {
        Middle::after(Duration::ZERO, Duration::from_secs(self.request.seconds.into()))
    }

    fn turn_to(&mut self, turn: &mut Turn<'_>) -> Result<(), MeasureError> {
        let (side, fs) = (turn.side, turn.fs);
        if self.standing == Some(side) {
            return Ok(());
        }
        let name = self.port.name.clone();
        if self.standing.take() == Some(Side::Bare) {
            self.port.leave(&name, fs)?;
        }
        // Before it is there in full, so that a failure half way is left as well.
        self.standing = Some(side);
        match side {
            Side::Bare => self.port.enter(&name, &self.bare, fs),
            Side::Guests => {
                self.port.make(Link::Bridge.role(), fs)?;
                self.cards.iter().try_for_each(|card| self.port.attach(&card.tap, &card.mac))
            }
        }
    }

    fn around_bare(&self) -> Vec<String> {
        ["ip", "netns", "exec", NAMESPACE].map(str::to_owned).to_vec()
    }

    fn stamp(&self) -> bool {
        true
    }

    fn command(&self, _: Side, _: usize, _: u64) -> Vec<String> {
        self.request.test.command(self.request.peer, self.request.seconds)
    }

    fn each(&self) -> Each {
        self.request.test.each()
    }

    fn read(&self, output: &str, ahead: f64) -> Result<(f64, Window), MeasureError> {
        let name = self.request.test.rate();
        let moved = read(self.request.test, output)?;
        let rate = moved.metrics.into_iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value);
        Ok((rate, of_netperf(output, ahead)?))
    }
}

/// A clone of one member, to be booted.
struct Clone<'a> {
    request: &'a NetTogetherRequest,
    member: &'a NetMember,
    card: &'a ArmCard,
    slice: &'a Slice,
    /// Its address, with the prefix.
    address: String,
    appliance: &'a Appliance,
}

impl Clone<'_> {
    fn name(member: &NetMember) -> String {
        format!("{}-nearmetal-net", member.guest)
    }

    /// Boots it, reads its card back, makes the peer answer it, and pauses it.
    fn boot(
        self,
        fs: &HostFs,
        hypervisor: &mut dyn Hypervisor,
        port: &Port,
        caveats: &mut Vec<String>,
    ) -> Result<(Running, MemberInfo), MeasureError> {
        let Self { request, member, card, slice, address, appliance } = self;
        let (clone, uuid) = (Self::name(member), new_uuid(fs)?);
        let xml = guest_with(&member.xml_planned, &clone, &uuid, BRIDGE, &[card], appliance)?;
        let guest = GuestArm { name: clone.clone(), xml, device: String::new() };
        let guests = BTreeMap::from([(ArmKind::Planned, guest)]);
        let mut machine = Machine::of_clones(&mut *hypervisor, fs, &request.terms.conditions, slice, "", guests);
        machine.boot(&[ArmKind::Planned])?;
        caveats.append(&mut machine.notes);
        let wrap = |source| MeasureError::Hypervisor { arm: clone.clone(), source };
        hypervisor.resume(&clone).map_err(wrap)?;
        port.attach(&card.tap, &card.mac)?;
        let found = seen(hypervisor, &clone)?;
        let amiss =
            |why| MeasureError::Unfit(format!("the card of `{}` is not what was asked for: {why}", member.guest));
        let evidence = match found.get(&card.mac) {
            Some(seen) => in_the_guest(&card.path, None, seen).map_err(amiss)?,
            None => return Err(amiss(format!("the guest has none with the address {}", card.mac))),
        };
        let words = ["sh", "-c", UP, "up", &card.mac, &address, &request.peer.to_string()];
        let up = agent::exec(hypervisor, &clone, &words, None, PATIENCE).map_err(wrap)?;
        if !up.status.is_success() {
            let why = String::from_utf8_lossy(&up.stderr).trim().chars().take(300).collect::<String>();
            return Err(MeasureError::Unfit(format!(
                "the peer does not answer `{}` at {address}: {why}{}",
                member.guest,
                port.why_a_bridge_fails(true)
            )));
        }
        hypervisor.suspend(&clone).map_err(wrap)?;
        let info = MemberInfo { guest: member.guest.clone(), slice: slice.clone(), placement: vec![evidence] };
        Ok((Running { guest: member.guest.clone(), clone, uuid, slice: slice.clone() }, info))
    }
}

fn load_of(request: &NetTogetherRequest) -> TogetherLoad {
    TogetherLoad::Net {
        test: request.test,
        way: request.way.id(),
        port: request.port.clone(),
        peer: request.peer,
        seconds: request.seconds,
    }
}

fn measure(
    request: &NetTogetherRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    leftovers: &mut Leftovers,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    let guests = request.members.iter().map(|member| (member.guest.as_str(), &member.placement));
    pause_all(guests.clone(), &request.terms, hypervisor, leftovers)?;
    let slices: Vec<Slice> =
        request.members.iter().map(|member| slice(&member.placement, &request.port, Bytes::ZERO)).collect();
    make_room(guests, &slices, fs, host, leftovers, tell)?;
    let work = request.terms.conditions.state.join("bench");
    let kernel = own_kernel(host.system.kernel.as_deref()).ok();
    let mut appliance = appliance(
        &request.terms.conditions.appliance,
        &NetTest::programs(&[request.test]),
        kernel.as_deref(),
        &[],
        &work,
    )?;
    let mut archive = files::read(&appliance.initramfs)?;
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(archive_of(&[(PROBE_IN_GUEST.to_owned(), files::read(&request.terms.conditions.probe)?)]));
    appliance.initramfs = work.join("appliance-with-netperf-and-probe.cpio");
    files::write(&appliance.initramfs, &archive)?;

    let cards = cards(request, &new_uuid(fs)?);
    let macs = cards.iter().map(|card| card.mac.clone()).collect();
    leftovers.clones = request.members.iter().map(Clone::name).collect();
    let port = Port::take(&request.port, macs, host, fs, leftovers)?;
    let bare = nth_address(request, request.members.len())?;
    let mut load = ThroughPort { request, port, cards: Vec::new(), bare, standing: None };
    load.turn_to(&mut Turn { side: Side::Guests, count: request.members.len(), fs, hypervisor })?;

    let versions = hypervisor.versions().ok();
    let mut caveats = caveats(request, &cards);
    let (mut members, mut infos) = (Vec::new(), Vec::new());
    for ((number, member), (card, slice)) in request.members.iter().enumerate().zip(cards.iter().zip(&slices)) {
        tell(Event::Stage(&format!("booting the clone of {}", member.guest)));
        let one = Clone { request, member, card, slice, address: nth_address(request, number)?, appliance: &appliance };
        let (running, info) = one.boot(fs, hypervisor, &load.port, &mut caveats)?;
        members.push(running);
        infos.push(info);
    }
    load.cards = cards;

    let ready = Ready { terms: &request.terms, members, infos, load: &mut load, versions, caveats };
    ready.measured(load_of(request), fs, host, hypervisor, tell)
}

/// The cards of the members. `uuid` makes their addresses those of this run, since another host may measure beside this one.
fn cards(request: &NetTogetherRequest, uuid: &str) -> Vec<ArmCard> {
    let paths = vec![request.way; request.members.len()];
    paths
        .into_iter()
        .enumerate()
        .map(|(number, path)| ArmCard {
            path,
            mac: super::guest::mac_of_run(uuid, number),
            tap: format!("{TAP}{number}"),
            lower: String::new(),
            function: None,
        })
        .collect()
}

fn caveats(request: &NetTogetherRequest, cards: &[ArmCard]) -> Vec<String> {
    let mut caveats: Vec<String> = lab_caveat(&request.terms.conditions.environment).into_iter().collect();
    caveats.push(format!(
        "{} share the port {}: guests through a bridge, the bare slices' processes with one address of their own",
        cards.len(),
        request.port
    ));
    caveats.push("overlap is the least there can have been: netperf says how long it measured and not when".to_owned());
    caveats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_each_other_with_the_same_prefix() {
        assert_eq!(address_of("192.0.2.10/24", 0).as_deref(), Some("192.0.2.10/24"));
        assert_eq!(address_of("192.0.2.10/24", 3).as_deref(), Some("192.0.2.13/24"));
        assert_eq!(address_of("2001:db8::ff/64", 1).as_deref(), Some("2001:db8::100/64"));
        assert_eq!(address_of("255.255.255.255/24", 1), None);
        assert_eq!(address_of("nonsense", 1), None);
    }
}
