//! What all commands about ways to a disk take.

use nearmetal_change::Journal;
use nearmetal_host::HostFs;
use nearmetal_load::FioJob;
use nearmetal_measure::{Conditions, MatrixRequest, path_words};

use crate::commands::bench::planned::{PlanArgs, Planned};
use crate::commands::bench::race::{RACE_SECONDS, WithoutArgs};
use crate::commands::bench::workload::{SPAN, USUAL_SIZE};
use crate::exit_status::WrongUse;

/// Fresh rounds of the winner: Student's factor is then near that of many, 2.26 against 1.96.
pub(super) const PAIRS: u32 = 10;

/// Of whom, and which ways.
#[derive(Debug, clap::Args)]
pub(super) struct WaysArgs {
    /// The VM; its plan must have been applied, or be named with --plan
    #[arg(value_name = "VM")]
    domain: String,
    #[command(flatten)]
    plan: PlanArgs,
    #[command(flatten)]
    without: WithoutArgs,
    /// Take cache=unsafe in too, which ignores the guest's flushes and so loses data when the host stops; it never wins
    #[arg(long)]
    unsafe_loses_data: bool,
}

impl WaysArgs {
    /// The VM in its plan, and what all commands ask of it.
    ///
    /// # Errors
    /// [`WrongUse`] of a word of `--without`, the plan or the VM's name; `conditions` may have its own.
    pub(super) fn request(
        &self,
        scratch: &[String],
        conditions: impl FnOnce(&HostFs, &Journal, &Planned) -> anyhow::Result<Conditions>,
    ) -> anyhow::Result<(HostFs, MatrixRequest)> {
        self.without.check(&path_words())?;
        if let Some(twice) = scratch.iter().enumerate().find(|(number, path)| scratch[..*number].contains(path)) {
            return Err(WrongUse(format!("--scratch: `{}` is named twice", twice.1)).into());
        }
        let (fs, journal) = (HostFs::live(), self.plan.journal());
        let planned = self.plan.pinned(&self.domain, &journal)?;
        let conditions = conditions(&fs, &journal, &planned)?;
        let Planned { change, placement, .. } = planned;
        let request = MatrixRequest {
            guest: self.domain.clone(),
            placement,
            xml: change.xml_after,
            scratch: scratch.to_vec(),
            unsafe_allowed: self.unsafe_loses_data,
            without: self.without.without.clone(),
            job: FioJob { span: Some(SPAN), ..FioJob::first_seed(USUAL_SIZE, RACE_SECONDS, 1) },
            files: None,
            budget: 0,
            error: 0.0,
            pairs: 0,
            conditions,
        };
        Ok((fs, request))
    }
}
