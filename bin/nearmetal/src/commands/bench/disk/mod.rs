//! `nearmetal bench disk`: one file for each of its commands.

mod list;
mod race;
mod read_back;

use nearmetal_host::HostFs;
use nearmetal_measure::{Conditions, FioJob, MatrixRequest, path_words};

use super::planned::{PlanArgs, Planned};
use super::race::WithoutArgs;
use super::workload::{SPAN, USUAL_SIZE};
use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// Find the fastest way for a VM to reach its disk: cache, I/O engine, iothreads, queues, bus, container
///
/// The ways are disks of a clone of the VM. `list` shows which there are, `read-back` makes each and sees that it took
/// effect, `race` measures them and says which to use; `nearmetal plan` then uses it. docs/guides/disk-matrix.md takes you
/// through them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nearmetal bench disk list web1
  nearmetal bench disk read-back web1 --scratch /dev/nvme1n1 --scratch /srv/scratch --pause
  nearmetal bench disk race web1 --scratch /dev/nvme1n1 --pause --budget 1800")]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    List(list::Args),
    ReadBack(read_back::Args),
    Race(race::Args),
}

/// Runs one of them.
pub(super) fn disk(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match &args.what {
        What::List(args) => list::list(args, printer),
        What::ReadBack(args) => read_back::read_back(args, printer),
        What::Race(args) => race::race(args, printer),
    }
}

/// Of whom, and which ways.
#[derive(Debug, clap::Args)]
struct WaysArgs {
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
    fn request(
        &self,
        scratch: &[String],
        conditions: impl FnOnce(&HostFs, &nearmetal_change::Journal) -> anyhow::Result<Conditions>,
    ) -> anyhow::Result<(HostFs, MatrixRequest)> {
        self.without.check(&path_words())?;
        if let Some(twice) = scratch.iter().enumerate().find(|(number, path)| scratch[..*number].contains(path)) {
            return Err(WrongUse(format!("--scratch: `{}` is named twice", twice.1)).into());
        }
        let (fs, journal) = (HostFs::live(), self.plan.journal());
        let Planned { change, placement } = self.plan.pinned(&self.domain, &journal)?;
        let request = MatrixRequest {
            guest: self.domain.clone(),
            placement,
            xml: change.xml_after,
            scratch: scratch.to_vec(),
            unsafe_allowed: self.unsafe_loses_data,
            without: self.without.without.clone(),
            job: FioJob { span: Some(SPAN), ..FioJob::first_seed(USUAL_SIZE, SECONDS, 1) },
            files: None,
            budget: 0,
            error: 0.0,
            pairs: 0,
            conditions: conditions(&fs, &journal)?,
        };
        Ok((fs, request))
    }
}

/// Seconds of one sample.
const SECONDS: u32 = 3;
/// Fresh rounds of the winner: Student's factor is then near that of many, 2.26 against 1.96.
const PAIRS: u32 = 10;
