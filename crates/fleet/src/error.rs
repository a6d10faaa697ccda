//! Fleets that cannot be planned at all.

/// A fleet that makes no sense; a VM that merely finds no place is a [`crate::Refusal`] instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// Two VMs or two hosts of one name.
    #[error("two {what} are named `{name}`: names must be unique in a fleet")]
    Twice {
        /// `VMs` or `hosts`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A number no VM or host can have.
    #[error("{whose}: {what} is {value}; {limit}")]
    OutOfRange {
        /// VM or host.
        whose: String,
        /// What number.
        what: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        limit: String,
    },
    /// More distinct values than the planner keeps apart.
    #[error("the fleet has {count} different {what}; {limit} at most")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A VM's `current` place does not exist or does not hold it.
    #[error("`{vm}` is said to run on `{host}`, but {reason}")]
    Current {
        /// The VM.
        vm: String,
        /// The host.
        host: String,
        /// Why not.
        reason: String,
    },
    /// A plan that is not one for this fleet.
    #[error("the plan is not for this fleet: {breach}; plan it again")]
    Plan {
        /// The first rule it breaks.
        breach: String,
    },
    /// A what-if names something the fleet does not have.
    #[error("the fleet has no {what} named `{name}`")]
    Unknown {
        /// `host` or `VM`.
        what: &'static str,
        /// The name.
        name: String,
    },
}
