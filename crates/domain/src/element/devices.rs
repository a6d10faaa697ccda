//! `<devices>`: taking devices away from a copy.

use crate::document::DomainXml;
use crate::edit::is_plain;
use crate::error::DomainError;
use crate::tree;

impl DomainXml {
    /// Removes all devices of these elements (`interface`, `hostdev`, `graphics`, …).
    pub fn remove_devices(&mut self, elements: &[&str]) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            for devices in tree::find_all(document, &["devices"]) {
                for device in devices.children().filter(|node| is_plain(*node)) {
                    if elements.contains(&device.tag_name().name()) {
                        edits.remove(device);
                    }
                }
            }
            Ok(())
        })
    }
}
