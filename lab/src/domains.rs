//! Domains for the lab, as people write them by hand.

/// `web1`: the whole first namespace of the NVMe drive as its virtio disk, and nothing tuned. Its system is the small
/// Debian on that namespace; the kernel and initramfs are the appliance's.
pub const FOUND: &str = include_str!("../domains/found.xml");
