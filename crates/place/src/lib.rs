//! The pure planner: host and guests in, plan and reasons out. Knows no libvirt and no XML.
//!
//! Same input, same plan. A plan is complete: applying it makes no further choice.
//!
//! [`plan`] takes a [`Host`](nearmetal_host::Host), what running guests own of it ([`Occupied`]), the guests to place
//! and the operator's [`Policy`]. Every guest comes out either as a [`Placement`] with its reasons or as a [`Blocker`]
//! with the smallest remedy.

mod anchor;
mod blockers;
mod cells;
mod choices;
mod disks;
mod distances;
mod helpers;
mod measured;
mod memory;
mod occupied;
mod plan;
mod planner;
mod policy;
mod processors;
mod reasons;
mod report;
mod request;
mod slice;
mod sources;
mod text;
mod versions;

pub use choices::{Choices, Pins, UnknownChoices};
pub use disks::{disk_placements, wants_iothread};
pub use measured::{Measured, MeasuredDisk, MeasuredGuest, MeasuredNetwork, use_measured};
pub use occupied::{Occupied, Owner, Returning};
pub use plan::{
    Blocker, CacheMode, DevicePlacement, DiskEngine, DiskPlacement, FunctionKind, GuestCell, MemoryPlacement,
    NetworkBackend, NetworkPlacement, Placement, Plan, PoolChange, Reason, VcpuPin,
};
pub use planner::{plan, plan_running, plan_tuned};
pub use policy::{Allowed, HelperOn, Housekeeping, InterfaceQueues, PinTo, Policy, Polling, Siblings};
pub use report::{NodeReport, PlanReport, Planned};
pub use request::{DiskRequest, GuestRequest, NetworkRequest, Shown, ShownCell, UnknownClass, WorkloadClass};
pub use text::{explain, render};
pub use versions::{SHARED_QUEUES, major_minor, no_shared_queues};
