//! System calls, and the only places (beside the measuring loops) where the probe is unsafe.

pub mod affinity;
pub mod alarm;
pub mod clock;
pub mod mapping;
pub mod memory_policy;
