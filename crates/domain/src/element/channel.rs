//! `<channel>`: the way to the guest agent.

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
