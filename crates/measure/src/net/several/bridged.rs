//! Guests on the port's bridge, and bare slices that share the port.
//!
//! Every guest has one card on the bridge and an address of its own. The port is in the bridge while guests are measured, and
//! in a namespace of its own while the slices are: all of their processes then share its address. The guests stay up, paused,
//! and their taps go back into the bridge.

use nearmetal_results::Link;

use super::{Side, bare_seat};
use crate::engine::{Path, Seat, Session, Step};
use crate::error::MeasureError;
use crate::net::member_clone::MemberClone;
use crate::net::port::Port;
use crate::net::space::NAMESPACE;

/// The port and its guests.
pub(super) struct Bridged<'a> {
    port: Port,
    clones: Vec<MemberClone<'a>>,
    /// Address of bare metal.
    bare: String,
    standing: Option<Side>,
    booted: bool,
}

impl<'a> Bridged<'a> {
    pub(super) fn new(port: Port, clones: Vec<MemberClone<'a>>, bare: String) -> Self {
        Self { port, clones, bare, standing: None, booted: false }
    }

    /// The guests, whether they are there or not.
    pub(super) fn clones(&self) -> &[MemberClone<'a>] {
        &self.clones
    }

    /// Makes the machine what the side needs.
    pub(super) fn stand(&mut self, side: Side, session: &mut Session<'_>) -> Result<(), MeasureError> {
        if self.standing == Some(side) {
            return Ok(());
        }
        let name = self.port.name.clone();
        if self.standing.take() == Some(Side::Bare) {
            self.port.leave(&name, session.fs)?;
        }
        // Before it is there in full, so that a failure half way is left as well.
        self.standing = Some(side);
        if side == Side::Bare {
            return self.port.enter(&name, &self.bare, session.fs);
        }
        self.port.make(Link::Bridge.role(), session.fs)?;
        for clone in &mut self.clones {
            if self.booted {
                self.port.attach(&clone.card.tap, &clone.card.mac)?;
            } else {
                clone.boot(session, &self.port)?;
            }
        }
        self.booted = true;
        Ok(())
    }
}

impl Path for Bridged<'_> {
    fn turn_to(&mut self, step: &Step, session: &mut Session<'_>) -> Result<(), MeasureError> {
        self.stand(Side::of(step.arm), session)
    }

    fn seat(&self, arm: usize, tenant: usize) -> Seat {
        match Side::of(arm) {
            Side::Bare => bare_seat(NAMESPACE, arm),
            Side::Guests => Seat::guest(&self.clones[tenant].name(), ""),
        }
    }

    fn revive(&mut self, step: &Step, session: &mut Session<'_>) -> Result<bool, MeasureError> {
        let mut any = false;
        for clone in self.clones.iter_mut().take(if Side::of(step.arm) == Side::Bare { 0 } else { step.count }) {
            if !session.answers(&clone.name())? {
                session.note(format!("the clone `{}` stopped answering and was started again", clone.name()));
                session.end(&clone.name())?;
                clone.boot(session, &self.port)?;
                any = true;
            }
        }
        Ok(any)
    }
}
