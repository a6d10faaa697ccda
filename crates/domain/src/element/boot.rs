//! `<os>`: machine type and what it boots.

use roxmltree::Document;
use serde::{Deserialize, Serialize};

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

/// Machine type and boot source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BootFacts {
    /// `x86_64`, ….
    pub architecture: Option<String>,
    /// `pc-q35-7.2`, ….
    pub machine: Option<String>,
    /// `bios` or `efi` where libvirt chooses the firmware.
    pub firmware: Option<String>,
    /// Firmware image.
    pub loader: Option<String>,
    /// File that keeps UEFI variables.
    pub nvram: Option<String>,
    /// Kernel booted directly.
    pub kernel: Option<String>,
    /// Its initial RAM disk.
    pub initrd: Option<String>,
    /// Its command line.
    pub command_line: Option<String>,
}

impl BootFacts {
    /// Whether the machine type is q35, the one of x86 with PCI Express.
    pub fn is_q35(&self) -> bool {
        self.machine.as_deref().is_some_and(|machine| machine == "q35" || machine.starts_with("pc-q35-"))
    }
}

pub(crate) fn read(document: &Document<'_>) -> BootFacts {
    let Some(os) = tree::find(document, &["os"]) else { return BootFacts::default() };
    let kind = tree::child(os, "type");
    let of_kind = |name| kind.and_then(|node| tree::attribute(node, name));
    BootFacts {
        architecture: of_kind("arch"),
        machine: of_kind("machine"),
        firmware: tree::attribute(os, "firmware"),
        loader: tree::child_text(os, "loader"),
        nvram: tree::child_text(os, "nvram"),
        kernel: tree::child_text(os, "kernel"),
        initrd: tree::child_text(os, "initrd"),
        command_line: tree::child_text(os, "cmdline"),
    }
}

impl DomainXml {
    /// Boots a kernel directly, without boot loader. Firmware settings stay: UEFI boots kernels given this way too.
    ///
    /// # Errors
    /// No `<os>`, or a path that is empty.
    pub fn set_direct_boot(
        &mut self,
        kernel: &str,
        initrd: Option<&str>,
        command_line: &str,
    ) -> Result<bool, DomainError> {
        if kernel.is_empty() || initrd == Some("") {
            return Err(DomainError::argument("a boot file", "", "its path is needed"));
        }
        self.rewrite(|document, edits| {
            let root = document.root_element();
            let missing = || DomainError::Missing { position: tree::position(root), what: "<os>".to_owned() };
            let os = tree::child(root, "os").ok_or_else(missing)?;
            let wanted = [
                ("kernel", Some(kernel)),
                ("initrd", initrd),
                ("cmdline", Some(command_line).filter(|text| !text.is_empty())),
            ];
            let mut new = Vec::new();
            for (name, value) in wanted {
                match (tree::child(os, name), value) {
                    (Some(node), Some(value)) if tree::text(node) == value.trim() => {}
                    (Some(node), Some(value)) => edits.set_text(node, value),
                    (Some(node), None) => edits.remove(node),
                    (None, Some(value)) => new.push(Fragment::new(name).text(value)),
                    (None, None) => {}
                }
            }
            edits.insert_all_behind(os, &["type", "loader", "nvram", "kernel", "initrd"], &new);
            Ok(())
        })
    }

    /// Removes the file of UEFI variables, so that a copy gets one of its own.
    pub fn remove_nvram(&mut self) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            tree::find_all(document, &["os", "nvram"]).into_iter().for_each(|node| edits.remove(node));
            Ok(())
        })
    }
}
