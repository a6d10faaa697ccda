//! `nearmetal run`.

mod ask;
mod caller;
mod course;
mod events;
mod here;
mod list;
mod mode;
mod places;
mod prepare;
pub(crate) mod serve;
mod service;
mod signals;

pub(crate) use course::with_users;

use std::path::PathBuf;
use std::time::Duration;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;
use crate::style::Format;

/// Run one command in a guest of its own, which is gone afterwards
///
/// Takes a slice of what this process was given (its allowed PUs and nodes, and the limit of memory above it), starts a
/// guest of the flavour there, reads back that it runs as planned, runs the command in it through the guest agent, and ends
/// it. The guest writes to a delta that never has a name; the image stays as it is. Two runs never share a PU.
///
/// The command's output and its exit code are passed on when it has ended: up to 64 MiB of stdout and of stderr, which the
/// guest's /bin/sh sends into files of the guest. What it leaves behind ends with the guest. SIGTERM, SIGINT and SIGHUP
/// shut the guest down, which may take the flavour's grace, and end it then. If this program, QEMU or libvirt's daemon is
/// killed, the guest, delta, slice and pools are still given back: at once, or by the next run.
///
/// A user without root, in the group that may use /dev/kvm, gets session mode: a libvirt daemon of the run's own, with QEMU inside the
/// job's control group and charged to the job. Root gets system mode: qemu:///system, huge pages, bridges and virtual functions of
/// network cards, with QEMU outside of the job's control group; a user gets it with `--mode system`, if root has enabled
/// nearmetal-run.socket and opened the flavour to a group of his (`open-to`).
#[derive(Debug, clap::Args)]
#[command(after_help = CODES, after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Flavour of the guest, from the flavours file
    #[arg(required_unless_present = "list")]
    flavour: Option<String>,
    /// Base image of its disk, by hash, first digits of it, or readable name [default: the flavour's]
    #[arg(long)]
    image: Option<String>,
    /// Read the whole image first, and refuse one whose content does not have its hash
    #[arg(long)]
    verify_image: bool,
    /// Give cloud-init this file as its user data, on a read-only disk with the label CIDATA (NoCloud); 1 MiB at most
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    user_data: Option<PathBuf>,
    /// Give cloud-init these lines `key: value` as well; `instance-id` is always the run's own [default: a `local-hostname`]
    #[arg(long, value_name = "FILE", requires = "user_data")]
    meta_data: Option<PathBuf>,
    #[command(flatten)]
    places: places::Places,
    /// Whose libvirt starts the guest [default: session, and system for root]
    #[arg(long, value_enum, conflicts_with = "list")]
    mode: Option<mode::Mode>,
    /// End the command after this time (30s, 10m, 2h); the exit code is then 124 [default: the flavour's, or no limit]
    #[arg(long, value_name = "TIME", value_parser = time)]
    time_limit: Option<Duration>,
    /// Show what the run would take and where, and start nothing
    #[arg(long, conflicts_with = "list")]
    dry_run: bool,
    /// Show the runs in progress, what they have, and what dead runs left
    #[arg(long, conflicts_with_all = ["flavour", "command"])]
    list: bool,
    /// Write a line of JSON for each step to this file, or to stderr for `-` (docs/reference/runs.md)
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    events: Option<PathBuf>,
    /// Write what the guest says on its serial console to this file as it comes, or to stderr for `-`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "dry_run"])]
    console: Option<PathBuf>,
    /// Output format of --list and --dry-run
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The command and its arguments, after `--`; there is no shell unless you name one
    #[arg(last = true, required_unless_present_any = ["list", "dry_run"])]
    command: Vec<String>,
}

const CODES: &str = "\
Exit codes: the command's own; 128 and the signal's number if a signal ended it; 124 at the time limit; 2 and 3 are also
nearmetal's own (wrong use; the machine refused), with a sentence on stderr: the last line of --events tells them apart.";

const EXAMPLES: &str = "\
Exit codes: the command's own; 128 and the signal's number if a signal ended it; 124 at the time limit; 2 and 3 are also
nearmetal's own (wrong use; the machine refused), with a sentence on stderr: the last line of --events tells them apart.

Examples:
  nearmetal run batch --dry-run                          what a guest of the flavour `batch` would take, and where
  nearmetal run batch --image debian-13.qcow2 -- /opt/job/run --all
  nearmetal run tiny --time-limit 10m -- sh -c 'dmesg | tail'
  nearmetal run batch --console boot.log -- make         what its kernel says, as it boots
  taskset -c 8-15 nearmetal run batch -- make -j8        inside PUs 8-15, as under a batch system's cpuset
  nearmetal run --list                                   the runs in progress, and what they have";

fn time(text: &str) -> Result<Duration, String> {
    match nearmetal_units::seconds(text) {
        Ok(0) => Err("give one second at least".to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    if args.list {
        return list::list(args, printer);
    }
    let mut events = events::Events::to(args.events.as_deref())?;
    if mode::Mode::asks(args) {
        return Ok(ask::run(args, events, printer));
    }
    let ended = caller::Caller::own(args).and_then(|caller| course::run(args, caller, &mut events, printer));
    Ok(end(&ended, &mut events, printer).status)
}

/// Says how a run ended.
fn end(ended: &events::Ended, events: &mut events::Events, printer: &mut Printer) -> events::End {
    let mut end = events::End::of(ended);
    if printer.lost().is_some() {
        end = events::End::output_lost();
    }
    if let Some(reason) = &end.reason {
        printer.important(&end.sentence(reason));
    }
    events.ended(&end);
    end
}
