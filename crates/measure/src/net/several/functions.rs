//! A virtual function for each guest, and for each bare slice the same one.
//!
//! Host and guest take turns on a function: a guest is booted for its turn and ended after it, by which libvirt gives it the
//! function and takes it back. On bare metal every function is in a namespace of its own, with an address of its own.

use std::net::IpAddr;
use std::process::Command;

use nearmetal_results::Link;
use nearmetal_units::PciAddress;

use super::{Side, bare_seat};
use crate::engine::{Path, Seat, Session, Step};
use crate::error::MeasureError;
use crate::net::arms::Function;
use crate::net::greet::greeted;
use crate::net::interface::{exists, until};
use crate::net::member_clone::MemberClone;
use crate::net::port::Port;
use crate::net::space;
use crate::program::run;

/// A function that nobody has and the host drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) address: PciAddress,
    /// Its interface on the host.
    pub(crate) interface: String,
    pub(crate) driver: Option<String>,
}

/// One for each of `count` guests: the first that are free.
pub(crate) fn one_each(count: usize, port: &str, functions: Vec<Function>) -> Result<Vec<Free>, MeasureError> {
    let (all, mut why) = (functions.len(), Vec::new());
    let mut free = Vec::new();
    for Function { address, interface, driver, obstacle } in functions {
        match (obstacle, interface) {
            (None, Some(interface)) => free.push(Free { address, interface, driver }),
            (Some(obstacle), _) => why.push(obstacle),
            (None, None) => why.push(format!(
                "no network driver has {address}: `nearmetal device release {address}` gives it back to the host"
            )),
        }
    }
    if free.len() < count {
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        return Err(MeasureError::Unfit(format!(
            "`{port}` has {all} virtual functions, {} of them free{why}, and {count} guests need one each: \
             `nearmetal device vfs {port} {} --keep-driver` makes as many as that takes",
            free.len(),
            all + count - free.len()
        )));
    }
    free.truncate(count);
    Ok(free)
}

/// One member.
pub(super) struct OnFunction<'a> {
    pub(super) clone: MemberClone<'a>,
    /// The function's interface on the host.
    pub(super) interface: String,
    /// The address it has there, with the prefix.
    pub(super) address: String,
    /// Who must answer there.
    pub(super) peer: IpAddr,
}

/// The port, its functions and their guests.
pub(super) struct Functions<'a> {
    port: Port,
    members: Vec<OnFunction<'a>>,
    /// The side that is there and its number of members; `None` where a turn failed half way.
    standing: Option<(Side, usize)>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(port: Port, members: Vec<OnFunction<'a>>) -> Self {
        Self { port, members, standing: None }
    }

    /// The guests, whether they are there or not.
    pub(super) fn clones(&self) -> impl Iterator<Item = &MemberClone<'a>> {
        self.members.iter().map(|member| &member.clone)
    }

    /// Ends whatever guests and namespaces there are, and waits until the host has its functions back.
    fn clear(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.standing = None;
        self.members.iter().try_for_each(|member| session.end(&member.clone.name()))?;
        for (number, OnFunction { interface, .. }) in self.members.iter().enumerate() {
            space::leave(&space::numbered(number), interface, session.fs)?;
            if !until(|| exists(session.fs, interface)) {
                return Err(MeasureError::Unfit(format!("`{interface}` did not come back to the host")));
            }
        }
        Ok(())
    }

    /// Makes the machine what the first `count` of a side need.
    pub(super) fn stand(&mut self, side: Side, count: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        if self.standing == Some((side, count)) {
            return Ok(());
        }
        self.clear(session)?;
        // Its functions have a link when the port has, and the port serves nobody else meanwhile.
        self.port.make(Link::Bare.role(), session.fs)?;
        for (number, member) in self.members.iter_mut().take(count).enumerate() {
            if side == Side::Guests {
                member.clone.boot(session, &self.port)?;
                continue;
            }
            let space = space::numbered(number);
            space::enter(&space, &member.interface, &member.address, session.fs)?;
            // Its first packets may be lost while the link comes up, and netperf would begin late for it.
            let words = nearmetal_load::greeting(member.peer);
            greeted(|| run(Command::new("ip").args(["netns", "exec", &space]).args(&words)))?;
        }
        self.standing = Some((side, count));
        Ok(())
    }
}

impl Path for Functions<'_> {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.stand(Side::of(step.arm), step.count, session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        match Side::of(arm) {
            Side::Bare => bare_seat(&space::numbered(tenant), arm),
            Side::Guests => Seat::guest(&self.members[tenant].clone.name(), ""),
        }
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let guests = Side::of(step.arm) == Side::Guests;
        let mut is_whole = self.standing.is_some();
        for member in self.members.iter().take(if guests && is_whole { step.count } else { 0 }) {
            let name = member.clone.name();
            if !session.answers(&name)? {
                session.note(format!("the clone `{name}` stopped answering and was started again"));
                is_whole = false;
            }
        }
        // What failed then was the sample, and the record says so.
        if is_whole {
            return Ok(false);
        }
        // Whatever state they are in: the next turn begins with new ones.
        self.clear(session)?;
        Ok(guests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_gets_a_function_that_is_free_and_driven() {
        let function = |number: u8, interface: Option<&str>, obstacle: Option<&str>| Function {
            address: format!("0000:39:10.{number}").parse().unwrap(),
            interface: interface.map(str::to_owned),
            driver: interface.map(|_| "igbvf".to_owned()),
            obstacle: obstacle.map(str::to_owned),
        };
        let functions = vec![
            function(0, Some("v0"), Some("a guest has 0000:39:10.0")),
            function(2, Some("v1"), None),
            function(4, None, None),
            function(6, Some("v3"), None),
        ];
        let taken = one_each(2, "enp57s0", functions.clone()).unwrap();
        assert_eq!(taken.iter().map(|one| one.interface.as_str()).collect::<Vec<_>>(), ["v1", "v3"]);
        let why = one_each(3, "enp57s0", functions).unwrap_err().to_string();
        // Five make three free ones while two are not to be had.
        for words in
            ["4 virtual functions, 2 of them", "a guest has 0000:39:10.0", "release 0000:39:10.4", "vfs enp57s0 5"]
        {
            assert!(why.contains(words), "{why}");
        }
    }
}
