//! `<source>` of a disk: other storage for a copy.

use super::disk;
use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::tree;

/// Storage a disk is pointed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskSource {
    /// A block device.
    Block(String),
    /// A file.
    File(String),
}

/// An image below another one, opened by a file descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedBacking {
    /// What libvirt calls it.
    pub path: String,
    /// `raw` or `qcow2`.
    pub format: &'static str,
    /// The group of its descriptor.
    pub group: String,
}

impl DomainXml {
    /// Points the disk with that target name at other storage. What described the old storage (its backing chain,
    /// pool, hosts, copy job) goes; driver, target and everything else stay.
    ///
    /// # Errors
    /// No such disk, or a path that does not start with `/`.
    pub fn replace_disk_source(&mut self, target: &str, source: &DiskSource) -> Result<bool, DomainError> {
        let (kind, name, path) = match source {
            DiskSource::Block(path) => ("block", "dev", path),
            DiskSource::File(path) => ("file", "file", path),
        };
        if !path.starts_with('/') {
            return Err(DomainError::argument("a disk source", path, "an absolute path is needed"));
        }
        self.rewrite(|document, edits| {
            let disk = disk::find(document, target)?;
            let fragment = Fragment::new("source").attribute(name, path);
            let present = tree::child(disk, "source");
            if present.and_then(|source| source.attribute(name)) == Some(path) && disk.attribute("type") == Some(kind) {
                return Ok(());
            }
            edits.set_attribute(disk, "type", kind);
            if let Some(source) = present {
                edits.remove(source);
                edits.insert_after(source, &fragment);
            } else {
                edits.insert_behind(disk, &["driver", "auth"], &fragment);
            }
            for stale in ["backingStore", "mirror"] {
                tree::children(disk, stale).for_each(|node| edits.remove(node));
            }
            Ok(())
        })
    }

    /// Has the disk with that target name opened by file descriptors that libvirt is given (`fdgroup`, libvirt 9.0), and
    /// names all of its backing chain, so that nothing is opened because an image says so.
    ///
    /// # Errors
    /// No such disk, a disk without a file, or a path that does not start with `/`.
    pub fn pass_disk(&mut self, target: &str, group: &str, backing: &[PassedBacking]) -> Result<bool, DomainError> {
        if let Some(relative) = backing.iter().find(|layer| !layer.path.starts_with('/')) {
            return Err(DomainError::argument("a disk source", &relative.path, "an absolute path is needed"));
        }
        self.rewrite(|document, edits| {
            let disk = disk::find(document, target)?;
            let missing = || DomainError::Missing { position: tree::position(disk), what: "<source file>".to_owned() };
            let source = tree::child(disk, "source").filter(|source| source.has_attribute("file"));
            let source = source.ok_or_else(missing)?;
            edits.set_attribute(source, "fdgroup", group);
            tree::children(disk, "backingStore").for_each(|node| edits.remove(node));
            // The innermost first; an empty one says that the chain ends.
            let chain = backing.iter().rev().fold(Fragment::new("backingStore"), |below, layer| {
                let source = Fragment::new("source").attribute("file", &layer.path).attribute("fdgroup", &layer.group);
                Fragment::new("backingStore")
                    .attribute("type", "file")
                    .child(Fragment::new("format").attribute("type", layer.format))
                    .child(source)
                    .child(below)
            });
            edits.insert_after(source, &chain);
            Ok(())
        })
    }

    /// Removes the disk with that target name.
    ///
    /// # Errors
    /// No such disk.
    pub fn remove_disk(&mut self, target: &str) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            edits.remove(disk::find(document, target)?);
            Ok(())
        })
    }
}
