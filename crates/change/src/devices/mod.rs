//! Virtual functions made, set and removed, and functions given to guests and taken back: planned with everything in the
//! way named, journalled, read back, undone.
//!
//! Planning ([`plan_virtual_functions`], [`plan_bind`], [`plan_release`]) changes nothing. [`carry_out`] makes the changes,
//! [`held`] looks later whether they still hold.

mod bind;
pub(crate) mod card;
mod carry_out;
pub(crate) mod driver;
mod held;
pub(crate) mod ip;
pub(crate) mod link;
mod nvme;
mod request;
pub(crate) mod step;
mod turns;

pub use crate::device_state::{
    BoundDriver, Card, DriverState, NetworkSettings, NvmeResources, Rate, VfSettings, VfState, Vlan,
};
pub use bind::{plan_bind, plan_release};
pub use carry_out::{DeviceJob, carry_out};
pub use driver::{VFIO_PCI, user, vfio_files};
pub use held::{held, set_aside};
pub use request::{Macs, VfRequest, Vlans, plan_virtual_functions};
pub use turns::{function_now, hand_to, in_the_way};

use serde::{Deserialize, Serialize};

use crate::change::Change;

/// The schema of a [`DeviceTask`].
pub const DEVICES_SCHEMA: &str = "nearmetal.device-task/1";

/// What a transaction of devices was for: in the header of its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceTask {
    /// [`DEVICES_SCHEMA`].
    pub schema: String,
    /// What was asked for: `2 virtual functions of 0000:39:00.0`.
    pub task: String,
}

/// What there is to do.
#[derive(Debug, Clone, PartialEq)]
pub struct DevicePlan {
    /// What was asked for, in words.
    pub task: String,
    /// The changes, in the order in which they are made; none where all is so already.
    pub changes: Vec<Change>,
    /// What to know beforehand.
    pub notes: Vec<String>,
}
