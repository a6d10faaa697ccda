//! Guests on the port's bridge, and bare slices that share the port.
//!
//! Every guest has one card on the bridge and an address of its own. The port is in the bridge while guests are measured, and
//! in a namespace of its own while the slices are: all of their processes then share its address. The guests stay up, paused,
//! and their taps go back into the bridge.

use super::Setup;
use super::member_clone::MemberClone;
use crate::error::MeasureError;
use crate::net::path::Link;
use crate::net::port::Port;
use crate::net::space::NAMESPACE;
use crate::together::{Side, Turn};

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
}

impl<'a> Setup<'a> for Bridged<'a> {
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
        if side == Side::Bare {
            return self.port.enter(&name, &self.bare, fs);
        }
        self.port.make(Link::Bridge.role(), fs)?;
        for clone in &mut self.clones {
            if self.booted {
                self.port.attach(&clone.card.tap, &clone.card.mac)?;
            } else {
                clone.boot(fs, turn.hypervisor, &self.port)?;
            }
        }
        self.booted = true;
        Ok(())
    }

    fn space(&self, _: usize) -> String {
        NAMESPACE.to_owned()
    }

    fn clones(&self) -> Vec<&MemberClone<'a>> {
        self.clones.iter().collect()
    }
}
