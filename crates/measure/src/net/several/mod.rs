//! Several guests at once through one port, against their bare slices at once through the same port.
//!
//! Either all guests have a card on the port's bridge ([`bridged`]), or each has a virtual function of it ([`functions`]).
//! What they run, and what is read of it, is the same.

mod bridged;
mod functions;

use std::collections::BTreeSet;
use std::net::IpAddr;

use nearmetal_load::{NetJob, NetTest};
use nearmetal_results::{Link, NetPath};
use nearmetal_units::Bytes;

use self::bridged::Bridged;
pub(crate) use self::functions::{Free, one_each};
use self::functions::{Functions, OnFunction};
use super::check_address;
use super::guest::{ArmCard, mac_of_run, with_probe};
use super::member_clone::MemberClone;
use super::port::{Port, TAP, why_not};
use super::request::port_functions;
use crate::engine::{Path, Pus, Seat, Session, Tenant, slice_of};
use crate::error::MeasureError;
use crate::together::{Ready, TogetherRequest, make_room};

/// What the guests share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverPort<'a> {
    pub(crate) way: &'a NetPath,
    pub(crate) test: NetTest,
    pub(crate) seconds: u32,
    pub(crate) port: &'a str,
    pub(crate) peer: IpAddr,
    pub(crate) address: &'a str,
}

/// Which of the two works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Bare,
    Guests,
}

impl Side {
    /// Arm 1 is the guests; all others are bare metal.
    fn of(arm: usize) -> Self {
        if arm == 1 { Self::Guests } else { Self::Bare }
    }
}

/// Where bare metal runs: in a namespace, confined to the slice but in the arm of the ceiling.
fn bare_seat(space: &str, arm: usize) -> Seat {
    let around = ["ip", "netns", "exec", space].map(str::to_owned).to_vec();
    Seat { around, on: if arm > 1 { Pus::All } else { Pus::OfTheSlice }, ..Seat::default() }
}

/// What can be refused before anything is touched.
pub(crate) fn check(way: &NetPath, test: NetTest) -> Result<(), MeasureError> {
    if !matches!(way.link, Link::Bridge | Link::VfHostdev) {
        return Err(MeasureError::Asked(format!(
            "{} cannot be shared by several guests on one port: name a way over a bridge, such as bridge.vhost.q1, or vf-hostdev",
            way.id()
        )));
    }
    if test.server().is_some() {
        let known = NetTest::DEFAULT.map(NetTest::id).join(", ");
        return Err(MeasureError::Asked(format!(
            "`{}` cannot run in several guests at once, since only netperf says how far its runs overlap: name one of {known} (--test)",
            test.id()
        )));
    }
    Ok(())
}

/// The address `number` behind the first, with the same prefix, if it is one the peer reaches.
fn nth_address(over: &OverPort<'_>, number: usize) -> Result<String, MeasureError> {
    let first = over.address;
    let unfit = |why: &str| MeasureError::Asked(format!("{first} and {number} addresses behind it: {why}"));
    let address = address_of(first, number).ok_or_else(|| unfit("there are not as many; begin with a smaller one"))?;
    check_address(&address, over.peer).map_err(|why| unfit(&why))?;
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

/// Makes the guests ready: booted once and read back.
pub(crate) fn ready<'p>(
    request: &'p TogetherRequest,
    over: OverPort<'p>,
    session: &mut Session<'_>,
) -> Result<Ready<'p>, MeasureError> {
    if let Some(why) = why_not(over.port, &session.host) {
        return Err(MeasureError::Asked(why));
    }
    session.without_fio();
    let functions = match over.way.link {
        Link::VfHostdev => {
            one_each(request.members.len(), over.port, port_functions(over.port, session.fs, &session.host))?
        }
        _ => Vec::new(),
    };
    let tenant = |member: &crate::together::Member| {
        Tenant::new(&member.guest, slice_of(&member.placement, over.port, Bytes::ZERO))
    };
    let mut tenants: Vec<Tenant> = request.members.iter().map(tenant).collect();
    make_room(&request.members, &tenants, session)?;
    let appliance = with_probe(&NetTest::programs(&[over.test]), drivers_of(&functions), session)?;

    let run = session.new_uuid()?;
    let mut clones = Vec::new();
    for (number, member) in request.members.iter().enumerate() {
        let function = functions.get(number);
        clones.push(MemberClone {
            guest: &member.guest,
            xml: &member.xml_planned,
            arm: "net",
            peer: Some(over.peer),
            card: card(&over, &run, number, function),
            driver: function.and_then(|function| function.driver.clone()),
            address: nth_address(&over, number)?,
            uuid: session.new_uuid()?,
            appliance: appliance.clone(),
            evidence: Vec::new(),
        });
    }
    session.will_clone(clones.iter().map(MemberClone::name))?;
    let macs = match over.way.link {
        Link::Bridge => clones.iter().map(|clone| clone.card.mac.clone()).collect(),
        _ => Vec::new(),
    };
    let (host, fs) = (session.host.clone(), session.fs);
    let port = Port::take(over.port, macs, &host, fs, &mut session.leftovers)?;
    // Bare metal has addresses that no guest has: the peer would go on sending to the hardware it knows behind one.
    let all = request.members.len();
    session.stage("booting the clones");
    let path: Box<dyn Path + 'p> = if functions.is_empty() {
        let mut path = Bridged::new(port, clones, nth_address(&over, all)?);
        path.stand(Side::Guests, session)?;
        let evidence = path.clones().iter().map(|clone| clone.evidence.clone());
        tenants.iter_mut().zip(evidence).for_each(|(tenant, evidence)| tenant.placement = evidence);
        Box::new(path)
    } else {
        let mut members = Vec::new();
        for (number, (clone, function)) in clones.into_iter().zip(functions).enumerate() {
            let address = nth_address(&over, all + number)?;
            members.push(OnFunction { clone, interface: function.interface, address, peer: over.peer });
        }
        let mut path = Functions::new(port, members);
        path.stand(Side::Guests, all, session)?;
        let evidence: Vec<Vec<String>> = path.clones().map(|clone| clone.evidence.clone()).collect();
        tenants.iter_mut().zip(evidence).for_each(|(tenant, evidence)| tenant.placement = evidence);
        Box::new(path)
    };
    let workload = NetJob { test: over.test, peer: over.peer, seconds: over.seconds }.into();
    Ok(Ready { path, tenants, workload, caveats: caveats(&over, all), ceiling: true })
}

/// The drivers that guests with these functions need.
pub(crate) fn drivers_of(functions: &[Free]) -> Vec<String> {
    let drivers: BTreeSet<String> = functions.iter().filter_map(|function| function.driver.clone()).collect();
    drivers.into_iter().collect()
}

/// The card of a member. `run` makes its address that of this run, since another host may measure beside this one.
fn card(over: &OverPort<'_>, run: &str, number: usize, function: Option<&Free>) -> ArmCard {
    ArmCard {
        path: *over.way,
        mac: mac_of_run(run, number),
        tap: if function.is_some() { String::new() } else { format!("{TAP}{number}") },
        lower: String::new(),
        function: function.map(|function| function.address),
    }
}

fn caveats(over: &OverPort<'_>, count: usize) -> Vec<String> {
    let port = over.port;
    let shared = if over.way.link == Link::VfHostdev {
        format!(
            "{count} guests and {count} bare slices took turns on {count} virtual functions of {port}, one each; a guest is \
             booted for its turn"
        )
    } else {
        format!(
            "{count} share the port {port}: guests through a bridge, the bare slices' processes with one address of their own"
        )
    };
    let overlap = "overlap is the least there can have been: netperf says how long it measured and not when";
    vec![format!("the guests' packets took the way {}", over.way.id()), shared, overlap.to_owned()]
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
