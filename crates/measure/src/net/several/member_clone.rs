//! The clone of one member: booted, its card read back, the peer reached.

use nearmetal_host::guests;

use super::OverPort;
use crate::appliance::Appliance;
use crate::engine::{Guest, Session, failed};
use crate::error::MeasureError;
use crate::net::effect::{PATIENCE, in_the_guest, on_the_host, seen};
use crate::net::guest::{ArmCard, UP, guest_with};
use crate::net::path::Link;
use crate::net::port::{BRIDGE, Port};

/// One member's clone, which is there or is not.
pub(super) struct MemberClone<'a> {
    pub(super) over: OverPort<'a>,
    /// The member's domain, and its definition as planned.
    pub(super) guest: &'a str,
    pub(super) xml: &'a str,
    pub(super) card: ArmCard,
    /// The host's driver of its function, which the guest's must be too.
    pub(super) driver: Option<String>,
    /// Its address, with the prefix.
    pub(super) address: String,
    pub(super) uuid: String,
    pub(super) appliance: Appliance,
    /// What was read back when it was last booted.
    pub(super) evidence: Vec<String>,
}

impl MemberClone<'_> {
    pub(super) fn name(&self) -> String {
        format!("{}-nearmetal-net", self.guest)
    }

    /// Boots it, reads its card back, makes the peer answer it, and pauses it.
    pub(super) fn boot(&mut self, session: &mut Session<'_>, port: &Port) -> Result<(), MeasureError> {
        let (name, bridged) = (self.name(), self.card.path.link == Link::Bridge);
        let xml = guest_with(self.xml, &name, &self.uuid, BRIDGE, &[&self.card], &self.appliance)?;
        let guest = Guest { name: name.clone(), xml, device: String::new(), floats: false };
        session.boot(&guest)?;
        if bridged {
            port.attach(&self.card.tap, &self.card.mac)?;
        }
        self.evidence = self.read_back(session, port)?;
        let peer = self.over.peer.to_string();
        let words = ["sh", "-c", UP, "up", &self.card.mac, &self.address, &peer];
        if let Err(error) = session.ask(&name, &words, PATIENCE) {
            return Err(MeasureError::Unfit(format!(
                "the peer does not answer `{}` at {}: {error}{}",
                self.guest,
                self.address,
                port.why_a_bridge_fails(bridged)
            )));
        }
        session.hypervisor.suspend(&name).map_err(failed(&name))
    }

    /// What the host and the guest say of its card.
    fn read_back(&self, session: &mut Session<'_>, port: &Port) -> Result<Vec<String>, MeasureError> {
        let amiss =
            |why: String| MeasureError::Unfit(format!("the card of `{}` is not what was asked for: {why}", self.guest));
        let pid = guests::pid_of(session.fs, &self.uuid)
            .map_err(|source| MeasureError::Kernel {
                what: format!("cannot find the process of `{}`", self.name()),
                source,
            })?
            .ok_or_else(|| amiss("its QEMU has no process in /proc".to_owned()))?;
        let on_host = on_the_host(session.fs, &self.card, &port.name, pid).map_err(amiss)?;
        let found = seen(session.hypervisor, &self.name())?;
        let mac = &self.card.mac;
        let own = found.get(mac).ok_or_else(|| amiss(format!("the guest has none with the address {mac}")))?;
        let inside = in_the_guest(&self.card.path, self.driver.as_deref(), own).map_err(amiss)?;
        Ok(vec![on_host, inside])
    }
}
