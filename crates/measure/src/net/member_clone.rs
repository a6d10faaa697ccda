//! The clone of one of several guests on a port: booted, its card read back, its network up.

use std::net::IpAddr;

use nearmetal_host::guests;
use nearmetal_results::Link;

use super::effect::{PATIENCE, in_the_guest, on_the_host, seen};
use super::guest::{ArmCard, CARRIER, UP, guest_with};
use super::port::{BRIDGE, Port};
use crate::appliance::Appliance;
use crate::clones::clone_name;
use crate::engine::{Guest, Session, failed};
use crate::error::MeasureError;

/// One member's clone, which is there or is not.
pub(crate) struct MemberClone<'a> {
    /// The member's domain, and its definition as planned.
    pub(crate) guest: &'a str,
    pub(crate) xml: &'a str,
    /// What tells its name from that of the guest's other clones.
    pub(crate) arm: &'a str,
    /// Who must answer it before it counts as up; `None`: its link is enough, since it is the one that answers.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) card: ArmCard,
    /// The host's driver of its function, which the guest's must be too.
    pub(crate) driver: Option<String>,
    /// Its address, with the prefix.
    pub(crate) address: String,
    pub(crate) uuid: String,
    pub(crate) appliance: Appliance,
    /// What was read back when it was last booted.
    pub(crate) evidence: Vec<String>,
}

impl MemberClone<'_> {
    pub(crate) fn name(&self) -> String {
        clone_name(self.guest, self.arm)
    }

    /// Boots it, reads its card back, brings that up until the peer answers, and pauses it.
    pub(crate) fn boot(&mut self, session: &mut Session<'_>, port: &Port) -> Result<(), MeasureError> {
        let (name, bridged) = (self.name(), self.card.path.link == Link::Bridge);
        let xml = guest_with(self.xml, &name, &self.uuid, BRIDGE, &[&self.card], &self.appliance)?;
        let guest = Guest { name: name.clone(), xml, device: String::new() };
        session.boot(&guest)?;
        if bridged {
            port.attach(&self.card.tap, &self.card.mac)?;
        }
        self.evidence = self.read_back(session, port)?;
        match self.peer {
            Some(peer) => {
                let peer = peer.to_string();
                let words = ["sh", "-c", UP, "up", &self.card.mac, &self.address, &peer];
                if let Err(error) = session.ask(&name, &words, PATIENCE) {
                    return Err(MeasureError::Unfit(format!(
                        "the peer does not answer `{}` at {}: {error}{}",
                        self.guest,
                        self.address,
                        port.why_a_bridge_fails(bridged)
                    )));
                }
            }
            None => {
                session.ask(&name, &["sh", "-c", CARRIER, "carrier", &self.card.mac, &self.address], PATIENCE)?;
            }
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
