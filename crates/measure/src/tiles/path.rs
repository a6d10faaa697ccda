//! Tiles of guests that serve, and programs on the host that ask them.
//!
//! The guests of one way are there at a time, as many tiles of them as are needed; the others' are ended first. Each runs its
//! server in the foreground, started through its agent, from its first sample on. Between samples they are paused.

use std::net::SocketAddr;
use std::time::Duration;

use nearmetal_hypervisor::agent::{self, Running};
use nearmetal_load::TileRole as Role;
use nearmetal_results::{Arm, Link, Slice};
use nearmetal_units::{CpuSet, NodeSet};

use super::way::{Drivers, TileWay};
use crate::engine::{Path, Pus, Seat, Session, Step, failed, stdout_of};
use crate::error::MeasureError;
use crate::net::member_clone::MemberClone;
use crate::net::port::Port;
use crate::record::record;

/// One guest.
pub(super) struct TileGuest<'a> {
    pub role: Role,
    pub clone: MemberClone<'a>,
    pub slice: Slice,
    /// What runs in it.
    pub server: Vec<String>,
    /// Where that answers.
    pub endpoint: SocketAddr,
    /// Whether it is there.
    pub is_up: bool,
    /// Its server, which has answered.
    pub serving: Option<Running>,
    /// What it is, as read when it was last booted.
    pub recorded: Option<Arm>,
}

/// The guests of one way, tile after tile.
pub(super) struct Arranged<'a> {
    pub way: TileWay,
    pub guests: Vec<TileGuest<'a>>,
}

/// See the module.
pub(super) struct Tiles<'a> {
    pub port: Port,
    pub arms: Vec<Arranged<'a>>,
    /// Guests of a tile.
    pub each: usize,
    pub drivers: Drivers,
    /// Where the programs run that ask.
    pub on: (CpuSet, NodeSet),
    /// How long a server may take until it answers.
    pub to_serve: Duration,
    /// The arm whose guests and network are there, and how many of its guests are asked.
    pub standing: Option<(usize, usize)>,
}

impl Tiles<'_> {
    /// Ends all guests and the network of whatever arm is there.
    fn clear(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.end_guests(session)?;
        if self.standing.is_some() {
            self.drivers.leave(session.fs)?;
        }
        self.standing = None;
        Ok(())
    }

    /// Ends the guests of whatever arm is there.
    fn end_guests(&mut self, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let Some((arm, _)) = self.standing else { return Ok(()) };
        for guest in &mut self.arms[arm].guests {
            (guest.is_up, guest.serving) = (false, None);
            session.end(&guest.clone.name())?;
        }
        Ok(())
    }

    /// Makes the machine what the first `count` guests of an arm need.
    fn stand(&mut self, arm: usize, count: usize, session: &mut Session<'_>) -> Result<(), MeasureError> {
        let way = self.arms[arm].way;
        match self.standing {
            Some((standing, guests)) if standing == arm => {
                // Each number of tiles begins with guests that were booted for it: mail that was appended is gone then, and
                // no tile is older than another.
                if guests != count {
                    self.end_guests(session)?;
                }
            }
            _ => {
                self.clear(session)?;
                self.port.make(way.role(), session.fs)?;
            }
        }
        // Before it is there in full, so that a failure half way is left as well.
        self.standing = Some((arm, count));
        if !self.drivers.is_entered {
            self.drivers.enter(way, &self.port, session.fs)?;
        }
        let Self { port, arms, each, to_serve, .. } = self;
        for tile in arms[arm].guests[..count].chunks_mut(*each) {
            restart_those_that_ask(tile, session);
            for guest in tile.iter_mut().filter(|guest| !guest.is_up) {
                session.stage(&format!("booting the clone of {}", guest.clone.guest));
                boot(guest, port, session)?;
            }
            if tile.iter().any(|guest| guest.serving.is_none()) {
                // All of them: a server may ask another one before it serves.
                let names: Vec<String> = tile.iter().map(|guest| guest.clone.name()).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                session.while_running(&names, |session| {
                    let mut waiting = tile.iter_mut().filter(|guest| guest.serving.is_none());
                    waiting.try_for_each(|guest| serve(guest, *to_serve, session))
                })?;
            }
        }
        Ok(())
    }
}

/// Has those of a tile booted again that lean on a server which is about to be started again: what they had open there is
/// lost, and they would answer with errors from then on.
fn restart_those_that_ask(tile: &mut [TileGuest<'_>], session: &mut Session<'_>) {
    let anew: Vec<Role> = tile.iter().filter(|guest| guest.serving.is_none()).map(|guest| guest.role).collect();
    let leans = |guest: &&mut TileGuest<'_>| guest.role.needs().is_some_and(|needed| anew.contains(&needed));
    for guest in tile.iter_mut().filter(leans).filter(|guest| guest.serving.is_some()) {
        session.note(format!(
            "the clone `{}` was started again, since the {} that it asks was",
            guest.clone.name(),
            guest.role.needs().unwrap_or(guest.role).title()
        ));
        (guest.is_up, guest.serving) = (false, None);
    }
}

/// Boots a guest and notes what it is.
fn boot(guest: &mut TileGuest<'_>, port: &Port, session: &mut Session<'_>) -> Result<(), MeasureError> {
    let name = guest.clone.name();
    // What a failure half way left is in the way of the next try.
    session.end(&name)?;
    guest.serving = None;
    guest.clone.boot(session, port)?;
    if guest.clone.card.path.link == Link::Bridge {
        port.hold(&guest.clone.card.tap, &guest.clone.card.mac)?;
    }
    let arm = nearmetal_results::ArmName::planned();
    guest.recorded = Some(record(session, &arm, "", "", Some(&name), &guest.slice)?);
    guest.is_up = true;
    Ok(())
}

/// Starts the server of a guest that runs, and waits until it answers the drivers.
fn serve(guest: &mut TileGuest<'_>, limit: Duration, session: &mut Session<'_>) -> Result<(), MeasureError> {
    let (name, role) = (guest.clone.name(), guest.role);
    session.stage(&format!("starting the {} in {}", role.title(), guest.clone.guest));
    let words: Vec<&str> = guest.server.iter().map(String::as_str).collect();
    let running = agent::start(session.hypervisor, &name, &words, None).map_err(failed(&name))?;
    let probe = session.conditions.probe.display().to_string();
    let (endpoint, seconds) = (guest.endpoint.to_string(), limit.as_secs().to_string());
    let reached = Drivers::run(&[&probe, "reach", "--address", &endpoint, "--seconds", &seconds]);
    let Err(error) = reached else {
        guest.serving = Some(running);
        return Ok(());
    };
    // It is ended, so that the next try finds its port free; one that has ended says why.
    let ended = running.wait(session.hypervisor, Duration::ZERO).ok();
    let why = ended.and_then(|output| stdout_of(&output, || format!("the {} in `{name}`", role.title())).err());
    Err(MeasureError::Unfit(format!(
        "the {} of `{}` does not answer at {endpoint}: {}",
        role.title(),
        guest.clone.guest,
        crate::engine::chain(why.as_ref().unwrap_or(&error))
    )))
}

/// Whether the server of a paused guest has ended, and its last words.
fn ended(guest: &TileGuest<'_>, session: &mut Session<'_>) -> Result<Option<String>, MeasureError> {
    let (Some(running), name) = (&guest.serving, guest.clone.name()) else { return Ok(None) };
    let asked = session.while_running(&[&name], |session| running.ended(session.hypervisor).map_err(failed(&name)))?;
    let Some(output) = asked else { return Ok(None) };
    let what = || format!("the {} in `{name}`", guest.role.title());
    let words = stdout_of(&output, what).map_or_else(|error| crate::engine::chain(&error), |_| "it ended".to_owned());
    Ok(Some(words))
}

impl Tiles<'_> {
    /// Whether a guest of this arm was booted, so that what it is was read.
    pub(super) fn was_read(&self, arm: usize) -> bool {
        self.arms.get(arm).is_some_and(|arm| arm.guests.iter().any(|guest| guest.recorded.is_some()))
    }
}

impl Path for Tiles<'_> {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.stand(step.arm, step.count, session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        Seat {
            asks: Some(self.arms[arm].guests[tenant].clone.name()),
            around: Drivers::words().map(str::to_owned).to_vec(),
            on: Pus::These(self.on.0.clone(), self.on.1.clone()),
            ..Seat::default()
        }
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let mut any = false;
        if self.standing.is_none_or(|(arm, _)| arm != step.arm) {
            return Ok(any);
        }
        for guest in self.arms[step.arm].guests[..step.count].iter_mut().filter(|guest| guest.is_up) {
            let name = guest.clone.name();
            if !session.answers(&name)? {
                session.note(format!("the clone `{name}` stopped answering and was started again"));
                (guest.is_up, guest.serving) = (false, None);
                session.end(&name)?;
                any = true;
            } else if let Some(words) = ended(guest, session)? {
                session
                    .note(format!("the {} in `{name}` had ended and was started again: {words}", guest.role.title()));
                guest.serving = None;
                any = true;
            }
        }
        Ok(any)
    }

    fn read_back(&self, arms: &mut [Arm]) {
        for (arm, Arranged { guests, .. }) in arms.iter_mut().zip(&self.arms) {
            let recorded = || guests.iter().filter_map(|guest| Some((guest, guest.recorded.as_ref()?)));
            let Some((_, first)) = recorded().next() else { continue };
            (arm.xml, arm.command_line) = (first.xml.clone(), first.command_line.clone());
            let lines = recorded().flat_map(|(guest, of)| {
                let lines = guest.clone.evidence.iter().chain(&of.placement);
                lines.map(|line| format!("{}: {line}", guest.clone.guest))
            });
            arm.placement = lines.collect();
        }
    }
}
