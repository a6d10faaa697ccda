//! How large a guest is: `<vcpu>` and `<memory>` together, with what has to agree with them.

use nearmetal_units::Bytes;

use crate::document::DomainXml;
use crate::error::DomainError;
use crate::fragment::Fragment;
use crate::{order, tree};

impl DomainXml {
    /// Sets the number of vCPUs and the memory, all of both present from the start.
    ///
    /// What would contradict them goes: `<currentMemory>`, single `<vcpus>`, `<topology>` and `<numa>` of the CPU, whose
    /// counts libvirt wants to add up.
    ///
    /// # Errors
    /// No vCPU, or no memory.
    pub fn set_size(&mut self, vcpus: u32, memory: Bytes) -> Result<bool, DomainError> {
        if vcpus == 0 {
            return Err(DomainError::argument("a number of vCPUs", &vcpus.to_string(), "a guest has one at least"));
        }
        let kib = memory.get().div_ceil(1024);
        if kib == 0 {
            return Err(DomainError::argument("guest memory", &memory.to_string(), "a guest has 1 KiB at least"));
        }
        let now = self.facts().ok();
        let same_vcpus = now.as_ref().is_some_and(|now| (now.vcpus.maximum, now.vcpus.current) == (vcpus, vcpus));
        let same_memory = now.as_ref().is_some_and(|now| now.memory == Bytes::new(kib * 1024));
        self.rewrite(|document, edits| {
            let root = document.root_element();
            if !same_memory {
                match tree::child(root, "memory") {
                    Some(node) => {
                        edits.set_attribute(node, "unit", "KiB");
                        edits.set_text(node, &kib.to_string());
                    }
                    None => {
                        let memory = Fragment::new("memory").attribute("unit", "KiB").text(kib);
                        edits.insert_behind(root, order::before("domain", "memory").unwrap_or_default(), &memory);
                    }
                }
                tree::child(root, "currentMemory").into_iter().for_each(|node| edits.remove(node));
            }
            if !same_vcpus {
                match tree::child(root, "vcpu") {
                    Some(node) => {
                        edits.remove_attribute(node, "current");
                        edits.set_text(node, &vcpus.to_string());
                    }
                    None => edits.insert_behind(
                        root,
                        order::before("domain", "vcpu").unwrap_or_default(),
                        &Fragment::new("vcpu").text(vcpus),
                    ),
                }
                tree::child(root, "vcpus").into_iter().for_each(|node| edits.remove(node));
                tree::find_all(document, &["cpu", "topology"]).into_iter().for_each(|node| edits.remove(node));
            }
            if !same_vcpus || !same_memory {
                tree::find_all(document, &["cpu", "numa"]).into_iter().for_each(|node| edits.remove(node));
            }
            Ok(())
        })
    }
}
