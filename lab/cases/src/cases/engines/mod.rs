//! Guests under batch systems: two labs on a cable are a farm, with Debian's packages of the engine and what the package of
//! nearmetal brings as examples. `./dev farm slurm` and `./dev farm condor` run the same.

mod condor;
mod evidence;
mod farm;
mod jobs;
mod slurm;

use super::{Case, alone};

pub(super) fn cases() -> Vec<Case> {
    vec![
        alone("engines/slurm-a-queue-of-jobs-over-two-labs", slurm::a_queue),
        alone("engines/condor-a-queue-of-jobs-over-two-labs", condor::a_queue),
    ]
}
