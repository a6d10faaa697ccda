//! The clone of one member: booted, its card read back, the peer reached.

use std::collections::BTreeMap;

use nearmetal_host::{HostFs, guests};
use nearmetal_hypervisor::{Hypervisor, agent};

use super::NetTogetherRequest;
use crate::appliance::Appliance;
use crate::error::MeasureError;
use crate::executor::{GuestArm, Machine};
use crate::net::effect::{PATIENCE, in_the_guest, on_the_host, seen};
use crate::net::guest::{ArmCard, UP, guest_with};
use crate::net::path::Link;
use crate::net::port::{BRIDGE, Port};
use crate::results::{ArmKind, Slice};

/// One member's clone, which is there or is not.
pub(super) struct MemberClone<'a> {
    pub(super) request: &'a NetTogetherRequest,
    /// The member's domain, and its definition as planned.
    pub(super) guest: &'a str,
    pub(super) xml: &'a str,
    pub(super) card: ArmCard,
    /// The host's driver of its function, which the guest's must be too.
    pub(super) driver: Option<String>,
    pub(super) slice: &'a Slice,
    /// Its address, with the prefix.
    pub(super) address: String,
    pub(super) uuid: String,
    pub(super) appliance: &'a Appliance,
    /// What was read back when it was last booted.
    pub(super) evidence: Vec<String>,
    /// What a reader must know of its boots.
    pub(super) notes: Vec<String>,
}

impl MemberClone<'_> {
    pub(super) fn name(&self) -> String {
        format!("{}-nearmetal-net", self.guest)
    }

    /// Boots it, reads its card back, makes the peer answer it, and pauses it.
    pub(super) fn boot(
        &mut self,
        fs: &HostFs,
        hypervisor: &mut dyn Hypervisor,
        port: &Port,
    ) -> Result<(), MeasureError> {
        let (name, bridged) = (self.name(), self.card.path.link == Link::Bridge);
        let xml = guest_with(self.xml, &name, &self.uuid, BRIDGE, &[&self.card], self.appliance)?;
        let guest = GuestArm { name: name.clone(), xml, device: String::new() };
        let guests = BTreeMap::from([(ArmKind::Planned, guest)]);
        let conditions = &self.request.terms.conditions;
        let mut machine = Machine::of_clones(&mut *hypervisor, fs, conditions, self.slice, "", guests);
        let booted = machine.boot(&[ArmKind::Planned]);
        for note in std::mem::take(&mut machine.notes) {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        booted?;
        let wrap = |source| MeasureError::Hypervisor { arm: name.clone(), source };
        hypervisor.resume(&name).map_err(wrap)?;
        if bridged {
            port.attach(&self.card.tap, &self.card.mac)?;
        }
        self.evidence = self.read_back(fs, hypervisor, port)?;
        let words = ["sh", "-c", UP, "up", &self.card.mac, &self.address, &self.request.peer.to_string()];
        let up = agent::exec(hypervisor, &name, &words, None, PATIENCE).map_err(wrap)?;
        if !up.status.is_success() {
            let why = String::from_utf8_lossy(&up.stderr).trim().chars().take(300).collect::<String>();
            return Err(MeasureError::Unfit(format!(
                "the peer does not answer `{}` at {}: {why}{}",
                self.guest,
                self.address,
                port.why_a_bridge_fails(bridged)
            )));
        }
        hypervisor.suspend(&name).map_err(wrap)
    }

    /// What the host and the guest say of its card.
    fn read_back(
        &self,
        fs: &HostFs,
        hypervisor: &mut dyn Hypervisor,
        port: &Port,
    ) -> Result<Vec<String>, MeasureError> {
        let amiss =
            |why: String| MeasureError::Unfit(format!("the card of `{}` is not what was asked for: {why}", self.guest));
        let pid = guests::pid_of(fs, &self.uuid)
            .map_err(|source| MeasureError::Kernel {
                what: format!("cannot find the process of `{}`", self.name()),
                source,
            })?
            .ok_or_else(|| amiss("its QEMU has no process in /proc".to_owned()))?;
        let on_host = on_the_host(fs, &self.card, &port.name, pid).map_err(amiss)?;
        let found = seen(hypervisor, &self.name())?;
        let mac = &self.card.mac;
        let own = found.get(mac).ok_or_else(|| amiss(format!("the guest has none with the address {mac}")))?;
        let inside = in_the_guest(&self.card.path, self.driver.as_deref(), own).map_err(amiss)?;
        Ok(vec![on_host, inside])
    }
}
