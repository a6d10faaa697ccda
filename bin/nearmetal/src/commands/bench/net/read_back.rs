//! `nearmetal bench net read-back`.

use nearmetal_hypervisor::Libvirt;
use nearmetal_measure::{NetMatrixRequest, read_back_net};
use nearmetal_results::Effect;

use super::ways::{PeerArgs, WaysArgs};
use crate::commands::bench::clones::CloneArgs;
use crate::commands::bench::measuring::{need_root, watch, written};
use crate::commands::bench::race::ShowArgs;
use crate::exit_status::ExitStatus;
use crate::job::net_matrix::paths_text;
use crate::printer::Printer;
use crate::style::Format;

/// Bring up every way to a network, read each back, and take it down again
///
/// Prints one table with what shows that each way took effect: which thread moves the packets, in which bridge or macvtap
/// mode the tap is, what the guest negotiates, who drives the function. Nothing is raced. Exit code 1 if a way did not
/// take effect.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  nearmetal bench net read-back web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause")]
pub(super) struct Args {
    #[command(flatten)]
    ways: WaysArgs,
    #[command(flatten)]
    peer: PeerArgs,
    #[command(flatten)]
    clones: CloneArgs,
    #[command(flatten)]
    show: ShowArgs,
}

/// Runs the command. A way that did not take effect is a failed verification.
pub(super) fn read_back(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    args.peer.check()?;
    let (fs, request) = args.ways.request(|fs, journal, _| args.clones.conditions(1, fs, journal))?;
    need_root("starts guests and takes a port", ", or see what it would do with `nearmetal bench net list`")?;
    let mut request = NetMatrixRequest { peer: args.peer.peer, address: args.peer.address.clone(), ..request };
    let mut libvirt = Libvirt::open(None)?;
    let results = watch(printer, |stop, tell| {
        request.conditions.stop = stop;
        read_back_net(&request, &fs, &mut libvirt, tell)
    })?;
    let document = written(&results, args.show.output.as_deref())?;
    match args.show.format {
        Format::Json => printer.data(&document),
        Format::Text => printer.data(&paths_text(&results)),
    }
    let amiss = results.arms.iter().any(|arm| matches!(arm.effect, Effect::NotShown { .. }));
    Ok(if amiss { ExitStatus::Findings } else { ExitStatus::Done })
}
