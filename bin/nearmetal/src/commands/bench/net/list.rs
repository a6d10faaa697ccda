//! `nearmetal bench net list`.

use nearmetal_host::Host;
use nearmetal_measure::{NetMatrixRequest, net_arms, net_ground, net_least_seconds};

use super::tests::TestArgs;
use super::ways::{PAIRS, WaysArgs};
use crate::commands::bench::clones;
use crate::commands::bench::race::BudgetArgs;
use crate::exit_status::ExitStatus;
use crate::job::net_matrix::list_text;
use crate::printer::Printer;

/// List the ways to a network that would be measured, those left out and why, the time it takes, and what the peer must run
///
/// Measures nothing, changes nothing, and needs neither root nor libvirt.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  nearmetal bench net list web1 --port enp57s0 --test sockperf-udp")]
pub(super) struct Args {
    #[command(flatten)]
    ways: WaysArgs,
    #[command(flatten)]
    tests: TestArgs,
    #[command(flatten)]
    budget: BudgetArgs,
    /// Fresh rounds in which the winner is measured again
    #[arg(long, value_name = "NUMBER", default_value_t = PAIRS, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
}

/// Runs the command.
pub(super) fn list(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let (fs, request) = args.ways.request(|fs, journal, _| Ok(clones::none(1, fs, journal)))?;
    let request = NetMatrixRequest {
        tests: args.tests.tests(),
        seconds: args.budget.seconds(),
        budget: args.budget.budget,
        pairs: args.pairs,
        race: true,
        ..request
    };
    let (arms, left_out) = net_arms(&net_ground(&request, &fs, &Host::read(&fs)));
    let least = net_least_seconds(&request, &arms);
    printer.data(&list_text(&arms, &left_out, &request.tests, least, request.budget));
    Ok(ExitStatus::Done)
}
