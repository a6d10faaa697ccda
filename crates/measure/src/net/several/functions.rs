//! A virtual function for each guest, and for each bare slice the same one.
//!
//! Host and guest take turns on a function: a guest is booted for its turn and ended after it, by which libvirt gives it the
//! function and takes it back. On bare metal every function is in a namespace of its own, with an address of its own.

use nearmetal_host::HostFs;
use nearmetal_hypervisor::Hypervisor;

use super::Ways;
use super::clone::Clone;
use crate::error::MeasureError;
use crate::net::interface::{exists, until};
use crate::net::path::Link;
use crate::net::port::Port;
use crate::net::space;
use crate::together::{Side, Turn};

/// The port, its functions and their guests.
pub(super) struct Functions<'a> {
    port: Port,
    clones: Vec<Clone<'a>>,
    /// Of each member the function's interface on the host, and the address it has there.
    bare: Vec<(String, String)>,
    /// The side that is there and its number of members; `None` where a turn failed half way.
    standing: Option<(Side, usize)>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(port: Port, clones: Vec<Clone<'a>>, bare: Vec<(String, String)>) -> Self {
        Self { port, clones, bare, standing: None }
    }
}

impl<'a> Ways<'a> for Functions<'a> {
    fn turn_to(&mut self, turn: &mut Turn<'_>) -> Result<(), MeasureError> {
        let wanted = Some((turn.side, turn.count));
        if self.standing == wanted {
            return Ok(());
        }
        self.end(turn.fs, turn.hypervisor)?;
        // Its functions have a link when the port has, and the port serves nobody else meanwhile.
        self.port.make(Link::Bare.role(), turn.fs)?;
        for number in 0..turn.count {
            match turn.side {
                Side::Bare => {
                    let (interface, address) = &self.bare[number];
                    let space = space::numbered(number);
                    space::enter(&space, interface, address, turn.fs)?;
                    // Its first packets may be lost while the link comes up, and netperf would begin late for it.
                    space::greet(&space, self.clones[number].request.peer)?;
                }
                Side::Guests => self.clones[number].boot(turn.fs, turn.hypervisor, &self.port)?,
            }
        }
        self.standing = wanted;
        Ok(())
    }

    fn space(&self, number: usize) -> String {
        space::numbered(number)
    }

    fn clones(&self) -> &[Clone<'a>] {
        &self.clones
    }

    /// Ends whatever guests and namespaces there are, and waits until the host has its functions back.
    fn end(&mut self, fs: &HostFs, hypervisor: &mut dyn Hypervisor) -> Result<(), MeasureError> {
        self.standing = None;
        let wrap = |arm: &str| {
            let arm = arm.to_owned();
            move |source| MeasureError::Hypervisor { arm, source }
        };
        let there = hypervisor.domains().map_err(wrap("all"))?;
        for name in self.clones.iter().map(Clone::name).filter(|name| there.iter().any(|one| one.name == *name)) {
            hypervisor.destroy(&name).map_err(wrap(&name))?;
        }
        for (number, (interface, _)) in self.bare.iter().enumerate() {
            space::leave(&space::numbered(number), interface, fs)?;
            if !until(|| exists(fs, interface)) {
                return Err(MeasureError::Unfit(format!("`{interface}` did not come back to the host")));
            }
        }
        Ok(())
    }
}
