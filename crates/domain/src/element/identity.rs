//! `<name>` and `<uuid>`.

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

impl DomainXml {
    /// Sets the domain's name.
    ///
    /// # Errors
    /// libvirt refuses an empty name, `/` and line breaks in it.
    pub fn set_name(&mut self, name: &str) -> Result<bool, DomainError> {
        if name.trim().is_empty() || name.contains('/') || name.chars().any(char::is_control) {
            return Err(DomainError::argument(
                "a domain name",
                name,
                "it is neither empty nor has `/` or control characters",
            ));
        }
        self.rewrite(|document, edits| {
            match tree::find(document, &["name"]) {
                Some(node) if tree::text(node) == name => {}
                Some(node) => edits.set_text(node, name),
                None => edits.insert_first(document.root_element(), &Fragment::new("name").text(name)),
            }
            Ok(())
        })
    }

    /// Sets the domain's UUID.
    ///
    /// # Errors
    /// Not 32 hex digits, with or without hyphens.
    pub fn set_uuid(&mut self, uuid: &str) -> Result<bool, DomainError> {
        let digits = uuid.chars().filter(|c| *c != '-').collect::<String>();
        if digits.len() != 32 || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(DomainError::argument("a UUID", uuid, "it is 32 hex digits, with or without hyphens"));
        }
        self.rewrite(|document, edits| {
            match tree::find(document, &["uuid"]) {
                Some(node) if tree::text(node) == uuid => {}
                Some(node) => edits.set_text(node, uuid),
                None => edits.insert_behind(document.root_element(), &["name"], &Fragment::new("uuid").text(uuid)),
            }
            Ok(())
        })
    }

    /// Removes the UUID: libvirt gives a new one when the domain is defined.
    pub fn remove_uuid(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            tree::find_all(document, &["uuid"]).into_iter().for_each(|node| edits.remove(node));
            Ok(())
        })
    }
}
