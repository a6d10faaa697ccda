//! Several guests at once through one port, against their bare slices at once through the same port.
//!
//! Either all guests have a card on the port's bridge ([`bridged`]), or each has a virtual function of it ([`functions`]).
//! What they run, and what is read of it, is the same.

mod bridged;
mod functions;
mod member_clone;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use nearmetal_host::{Host, HostFs, files};
use nearmetal_hypervisor::Hypervisor;
use nearmetal_place::Placement;
use nearmetal_units::Bytes;

use self::bridged::Bridged;
use self::functions::{Free, Functions, OnFunction, one_each};
use self::member_clone::MemberClone;
use super::check_address;
use super::guest::{ArmCard, appliance, mac_of_run, own_kernel};
use super::path::{Link, NetPath};
use super::port::{Port, TAP, why_not};
use super::request::port_functions;
use super::test::{NetTest, read};
use crate::appliance::{Appliance, PROBE_IN_GUEST, archive_of};
use crate::bench::{Event, new_uuid, slice};
use crate::cost::{Each, Middle};
use crate::error::MeasureError;
use crate::leftovers::{Leftovers, leaving_nothing};
use crate::results::Slice;
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
    /// The way their packets take: one over a bridge, or a virtual function for each.
    pub way: NetPath,
    /// What each runs.
    pub test: NetTest,
    /// Seconds of a sample.
    pub seconds: u32,
    /// Interface of the port; nobody else may use it.
    pub port: String,
    /// Where netserver answers.
    pub peer: IpAddr,
    /// The first guest's address, with its prefix; the others have the next ones, and bare metal those behind them all.
    pub address: String,
    /// How.
    pub terms: TogetherTerms,
}

/// Runs the experiment and puts everything back, whatever came of it.
///
/// # Errors
/// Slices that share PUs, a way that several cannot take, too few virtual functions, a port that is somebody's, a peer that
/// does not answer; or several samples in a row that fail.
pub fn bench_net_together(
    request: &NetTogetherRequest,
    fs: &HostFs,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    apart(request.members.iter().map(|member| (member.guest.as_str(), &member.placement)))?;
    if !matches!(request.way.link, Link::Bridge | Link::VfHostdev) {
        return Err(MeasureError::Unfit(format!(
            "{} is no way for several guests through one port: name one over a bridge, such as bridge.vhost.q1, or vf-hostdev",
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

/// What joins the members to the port, and changes hands between the sides.
trait Setup<'a> {
    /// Makes the machine what the side needs. The guests that are there are paused before and after.
    ///
    /// # Errors
    /// The machine does not become that.
    fn turn_to(&mut self, turn: &mut Turn<'_>) -> Result<(), MeasureError>;
    /// The namespace that the bare member with this number runs in.
    fn space(&self, number: usize) -> String;
    /// The guests, whether they are there or not.
    fn clones(&self) -> Vec<&MemberClone<'a>>;
}

/// netperf, all members to one peer.
struct Netperf<'a, 'w> {
    request: &'a NetTogetherRequest,
    setup: &'w mut dyn Setup<'a>,
}

impl Load for Netperf<'_, '_> {
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
        self.setup.turn_to(turn)
    }

    fn around_bare(&self, number: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.setup.space(number)].map(str::to_owned).to_vec()
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
    if let Some(why) = why_not(&request.port, host) {
        return Err(MeasureError::Unfit(why));
    }
    let functions = match request.way.link {
        Link::VfHostdev => one_each(request.members.len(), &request.port, port_functions(&request.port, fs, host))?,
        _ => Vec::new(),
    };
    let guests = request.members.iter().map(|member| (member.guest.as_str(), &member.placement));
    pause_all(guests.clone(), &request.terms, hypervisor, leftovers)?;
    let slices: Vec<Slice> =
        request.members.iter().map(|member| slice(&member.placement, &request.port, Bytes::ZERO)).collect();
    make_room(guests, &slices, fs, host, leftovers, tell)?;
    let appliance = with_probe(request, host, &functions)?;

    let run = new_uuid(fs)?;
    let mut clones = Vec::new();
    for (number, (member, slice)) in request.members.iter().zip(&slices).enumerate() {
        let function = functions.get(number);
        clones.push(MemberClone {
            request,
            guest: &member.guest,
            xml: &member.xml_planned,
            card: card(request, &run, number, function),
            driver: function.and_then(|function| function.driver.clone()),
            slice,
            address: nth_address(request, number)?,
            uuid: new_uuid(fs)?,
            appliance: &appliance,
            evidence: Vec::new(),
            notes: Vec::new(),
        });
    }
    leftovers.clones = clones.iter().map(MemberClone::name).collect();
    let macs = match request.way.link {
        Link::Bridge => clones.iter().map(|clone| clone.card.mac.clone()).collect(),
        _ => Vec::new(),
    };
    let port = Port::take(&request.port, macs, host, fs, leftovers)?;
    // Bare metal has addresses that no guest has: the peer would go on sending to the hardware it knows behind one.
    let all = request.members.len();
    if functions.is_empty() {
        let mut setup = Bridged::new(port, clones, nth_address(request, all)?);
        return measured(&mut setup, request, fs, host, hypervisor, tell);
    }
    let mut members = Vec::new();
    for (number, (clone, function)) in clones.into_iter().zip(functions).enumerate() {
        let address = nth_address(request, all + number)?;
        members.push(OnFunction { clone, interface: function.interface, address });
    }
    measured(&mut Functions::new(port, members), request, fs, host, hypervisor, tell)
}

/// The experiment with what joins the members to the port.
fn measured<'a>(
    setup: &mut dyn Setup<'a>,
    request: &'a NetTogetherRequest,
    fs: &HostFs,
    host: &Host,
    hypervisor: &mut dyn Hypervisor,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<TogetherResults, MeasureError> {
    let versions = hypervisor.versions().ok();
    tell(Event::Stage("booting the clones"));
    setup.turn_to(&mut Turn { side: Side::Guests, count: request.members.len(), fs, hypervisor })?;
    let running = |clone: &MemberClone<'_>| Running {
        guest: clone.guest.to_owned(),
        clone: clone.name(),
        uuid: clone.uuid.clone(),
        slice: clone.slice.clone(),
    };
    let info = |clone: &MemberClone<'_>| MemberInfo {
        guest: clone.guest.to_owned(),
        slice: clone.slice.clone(),
        placement: clone.evidence.clone(),
    };
    let (members, infos) = setup.clones().into_iter().map(|clone| (running(clone), info(clone))).unzip();
    let mut load = Netperf { request, setup: &mut *setup };
    let ready = Ready { terms: &request.terms, members, infos, load: &mut load, versions, caveats: caveats(request) };
    let mut results = ready.measured(load_of(request), fs, host, hypervisor, tell)?;
    // Those of guests that are booted for their turn come as it goes on.
    results.caveats.extend(setup.clones().iter().flat_map(|clone| clone.notes.clone()));
    Ok(results)
}

/// The appliance with netperf, the probe, this host's kernel and the functions' drivers.
fn with_probe(request: &NetTogetherRequest, host: &Host, functions: &[Free]) -> Result<Appliance, MeasureError> {
    let conditions = &request.terms.conditions;
    let work = conditions.state.join("bench");
    let kernel = match own_kernel(host.system.kernel.as_deref()) {
        Ok(kernel) => Some(kernel),
        // The appliance's own kernel need not have the driver.
        Err(why) if !functions.is_empty() => return Err(MeasureError::Unfit(why)),
        Err(_) => None,
    };
    let drivers: BTreeSet<String> = functions.iter().filter_map(|function| function.driver.clone()).collect();
    let drivers: Vec<String> = drivers.into_iter().collect();
    let programs = NetTest::programs(&[request.test]);
    let mut appliance = appliance(&conditions.appliance, &programs, kernel.as_deref(), &drivers, &work)?;
    let mut archive = files::read(&appliance.initramfs)?;
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(archive_of(&[(PROBE_IN_GUEST.to_owned(), files::read(&conditions.probe)?)]));
    appliance.initramfs = work.join("appliance-with-netperf-and-probe.cpio");
    files::write(&appliance.initramfs, &archive)?;
    Ok(appliance)
}

/// The card of a member. `run` makes its address that of this run, since another host may measure beside this one.
fn card(request: &NetTogetherRequest, run: &str, number: usize, function: Option<&Free>) -> ArmCard {
    ArmCard {
        path: request.way,
        mac: mac_of_run(run, number),
        tap: if function.is_some() { String::new() } else { format!("{TAP}{number}") },
        lower: String::new(),
        function: function.map(|function| function.address),
    }
}

fn caveats(request: &NetTogetherRequest) -> Vec<String> {
    let mut caveats: Vec<String> = lab_caveat(&request.terms.conditions.environment).into_iter().collect();
    let (count, port) = (request.members.len(), &request.port);
    caveats.push(if request.way.link == Link::VfHostdev {
        format!(
            "{count} guests and {count} bare slices took turns on {count} virtual functions of {port}, one each; a guest is \
             booted for its turn"
        )
    } else {
        format!("{count} share the port {port}: guests through a bridge, the bare slices' processes with one address of their own")
    });
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
