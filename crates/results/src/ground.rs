//! What a race was run on, of disks and of networks alike.

use serde::{Deserialize, Serialize};

/// What a recorded winner holds for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroundKey {
    /// Model of the drive, by the kernel; of a port its driver and ids.
    pub device: String,
    /// Release of the host's kernel.
    pub kernel: String,
    /// QEMU's version.
    pub qemu: String,
}
