//! Ways into the guest: `<channel>` of the guest agent, `<serial>`.

use roxmltree::{Document, Node};

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

/// The port name the QEMU guest agent listens on.
const AGENT: &str = "org.qemu.guest_agent.0";

fn is_agent(channel: Node<'_, '_>) -> bool {
    tree::children(channel, "target").any(|target| target.attribute("name") == Some(AGENT))
}

/// Whether the domain has a channel for the guest agent.
pub(crate) fn has_agent(document: &Document<'_>) -> bool {
    tree::find_all(document, &["devices", "channel"]).into_iter().any(is_agent)
}

impl DomainXml {
    /// The pseudo-terminal of the host that the first serial port of a guest that runs is; `None`: it has none, or is off.
    ///
    /// # Errors
    /// It is not XML any more.
    pub fn serial_terminal(&self) -> Result<Option<String>, DomainError> {
        self.with_tree(|document| {
            let serial =
                tree::find(document, &["devices", "serial"]).filter(|port| port.attribute("type") == Some("pty"));
            Ok(serial.and_then(|port| tree::attribute(tree::child(port, "source")?, "path")))
        })
    }

    /// Replaces serial ports and consoles by one serial port, a pseudo-terminal that libvirt chooses and that nothing logs. A
    /// domain without any gets none.
    pub fn replace_consoles(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let mut ports = tree::find_all(document, &["devices", "serial"]);
            ports.extend(tree::find_all(document, &["devices", "console"]));
            if let Some(first) = ports.first() {
                edits.insert_after(*first, &Fragment::new("serial").attribute("type", "pty"));
            }
            ports.into_iter().for_each(|port| edits.remove(port));
            Ok(())
        })
    }

    /// Adds the guest agent's channel where there is none; libvirt chooses its socket.
    ///
    /// # Errors
    /// No `<devices>`.
    pub fn add_agent_channel(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            if has_agent(document) {
                return Ok(());
            }
            let root = document.root_element();
            let missing = || DomainError::Missing { position: tree::position(root), what: "<devices>".to_owned() };
            let devices = tree::child(root, "devices").ok_or_else(missing)?;
            let target = Fragment::new("target").attribute("type", "virtio").attribute("name", AGENT);
            let channel = Fragment::new("channel").attribute("type", "unix").child(target);
            let before = ["emulator", "disk", "controller", "interface", "serial", "console", "channel"];
            edits.insert_behind(devices, &before, &channel);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_terminal_of_the_first_serial_port_is_known_while_the_guest_runs() {
        let of = |serial: &str| {
            let text = format!("<domain><devices><disk/>{serial}</devices></domain>");
            DomainXml::parse(&text).unwrap().serial_terminal().unwrap()
        };
        let first = "<serial type='pty'><source path='/dev/pts/3'/><target port='0'/></serial>";
        assert_eq!(
            of(&format!("{first}<serial type='pty'><source path='/dev/pts/4'/></serial>")).unwrap(),
            "/dev/pts/3"
        );
        assert_eq!(of("<serial type='pty'><target port='0'/></serial>"), None);
        assert_eq!(of("<serial type='unix'><source path='/dev/pts/3'/></serial>"), None);
        assert_eq!(of(""), None);
    }
}
