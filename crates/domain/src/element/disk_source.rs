//! `<source>` of a disk: other storage for a copy, and a disk more that is only read.

use super::{devices, disk};
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

impl DiskSource {
    /// Type of the disk, attribute of its source, and the path.
    fn parts(&self) -> Result<(&'static str, &'static str, &str), DomainError> {
        let (kind, name, path) = match self {
            Self::Block(path) => ("block", "dev", path),
            Self::File(path) => ("file", "file", path),
        };
        match path.starts_with('/') {
            true => Ok((kind, name, path)),
            false => Err(DomainError::argument("a disk source", path, "an absolute path is needed")),
        }
    }
}

impl DomainXml {
    /// Points the disk with that target name at other storage. What described the old storage (its backing chain,
    /// pool, hosts, copy job) goes; driver, target and everything else stay.
    ///
    /// # Errors
    /// No such disk, or a path that does not start with `/`.
    pub fn replace_disk_source(&mut self, target: &str, source: &DiskSource) -> Result<bool, DomainError> {
        let (kind, name, path) = source.parts()?;
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

    /// Adds a virtio disk with a raw image that the guest may only read, and that its kernel knows by this serial number:
    /// virtio-blk carries 20 bytes of it (VIRTIO 1.2, 5.2.6). A file keeps its owner (`relabel='no'`, formatdomain.html, "Security
    /// label"), so everybody must be able to read it: libvirt would give it to QEMU's user, and would not take it back from a
    /// disk that is only read.
    ///
    /// # Errors
    /// No `<devices>`, no name left for a disk (`vda` to `vdz`), or a path that does not start with `/`.
    pub fn add_read_only_disk(&mut self, source: &DiskSource, serial: &str) -> Result<bool, DomainError> {
        let (kind, name, path) = source.parts()?;
        let taken: Vec<String> = self.facts()?.disks.into_iter().map(|disk| disk.target).collect();
        let target = devices::free_name("vd", &taken)?;
        let keeps_its_owner = Fragment::new("seclabel").attribute("model", "dac").attribute("relabel", "no");
        let labels = matches!(source, DiskSource::File(_)).then_some(keeps_its_owner);
        let element = Fragment::new("disk")
            .attribute("type", kind)
            .attribute("device", "disk")
            .child(Fragment::new("driver").attribute("name", "qemu").attribute("type", "raw"))
            .child(Fragment::new("source").attribute(name, path).children(labels))
            .child(Fragment::new("target").attribute("dev", target).attribute("bus", "virtio"))
            .child(Fragment::new("readonly"))
            .child(Fragment::new("serial").text(serial));
        self.rewrite(|document, edits| {
            edits.insert_all_behind(devices::of(document)?, &devices::BEFORE_DISKS, &[element]);
            Ok(())
        })
    }

    /// Adds a virtio disk with a raw image that the guest may only read, opened past the host's page cache by a file descriptor
    /// that libvirt is given (`fdgroup`, libvirt 9.0), and gives its target name. `path`: what libvirt calls it.
    ///
    /// # Errors
    /// No `<devices>`, no name left for a disk (`vda` to `vdz`), or a path that does not start with `/`.
    pub fn add_passed_disk(&mut self, path: &str, group: &str) -> Result<String, DomainError> {
        if !path.starts_with('/') {
            return Err(DomainError::argument("a disk source", path, "an absolute path is needed"));
        }
        let taken: Vec<String> = self.facts()?.disks.into_iter().map(|disk| disk.target).collect();
        let target = devices::free_name("vd", &taken)?;
        let driver =
            Fragment::new("driver").attribute("name", "qemu").attribute("type", "raw").attribute("cache", "none");
        let element = Fragment::new("disk")
            .attribute("type", "file")
            .attribute("device", "disk")
            .child(driver)
            .child(Fragment::new("source").attribute("file", path).attribute("fdgroup", group))
            // Its chain ends here: nothing is opened because its content says so.
            .child(Fragment::new("backingStore"))
            .child(Fragment::new("target").attribute("dev", &target).attribute("bus", "virtio"))
            .child(Fragment::new("readonly"));
        self.rewrite(|document, edits| {
            edits.insert_all_behind(devices::of(document)?, &devices::BEFORE_DISKS, &[element]);
            Ok(())
        })?;
        Ok(target)
    }

    /// Gives the disk with that target name this serial number.
    ///
    /// # Errors
    /// No such disk.
    pub fn set_disk_serial(&mut self, target: &str, serial: &str) -> Result<bool, DomainError> {
        self.rewrite(|document, edits| {
            let disk = disk::find(document, target)?;
            match tree::child(disk, "serial") {
                Some(present) if tree::text(present) == serial => {}
                Some(present) => edits.set_text(present, serial),
                None => edits.insert_last(disk, &Fragment::new("serial").text(serial)),
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: &str = "<domain type='kvm'><name>x</name><memory>1</memory><vcpu>1</vcpu><devices/></domain>";

    fn with(source: &DiskSource) -> String {
        let mut xml = DomainXml::parse(GUEST).unwrap();
        xml.add_read_only_disk(source, "loads").unwrap();
        assert!(xml.facts().unwrap().disks[0].readonly);
        xml.as_str().to_owned()
    }

    #[test]
    fn a_file_that_is_only_read_keeps_its_owner() {
        let label = |xml: &str| xml.contains("<seclabel model='dac' relabel='no'/>");
        let file = with(&DiskSource::File("/i/loads.erofs".into()));
        let source = &file[file.find("<source file='/i/loads.erofs'>").unwrap()..file.find("</source>").unwrap()];
        assert!(label(source), "{file}");
        // A device's node is QEMU's user's only while the guest runs.
        assert!(!label(&with(&DiskSource::Block("/dev/vdb".into()))));
    }
}
