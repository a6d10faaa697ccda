//! `nearmetal bench`: one file for each of its commands; this file only lists them.

mod clones;
mod decisions;
mod disk;
mod drive;
mod history_output;
mod inside;
pub(crate) mod keep;
mod kit;
mod loads_image;
pub(crate) mod measuring;
mod modes;
mod net;
mod on_scratch;
mod pages;
mod planned;
mod race;
mod rounds;
mod slice;
mod stored;
mod tiles;
mod together;
pub(crate) mod tune;
mod workload;

pub(crate) use self::rounds::{one_of, percent, same_arm_pairs};

use clap::Parser as _;
use nearmetal_measure::Experiment;

use crate::exit_status::{ExitStatus, WrongUse};
use crate::printer::Printer;

/// Compare VMs with bare metal, and ways to a disk or a network with each other
///
/// Both sides run the same workload on the same PUs, node and device. They take turns in random order. Every ratio has a 95
/// % interval. Run these commands as root. All but `inside` measure in clones and leave the VM as it is; they need fio (for
/// networks netperf) and the appliance, which the clones boot.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  nearmetal bench slice web1 --scratch /dev/nvme1n1 --quick --pause
  nearmetal bench decisions web1 --scratch /dev/nvme1n1 --quick --pause
  nearmetal bench pages web1 --scratch /dev/nvme1n1 --workload oltp --quick --pause
  nearmetal bench modes web1 --quick --pause
  nearmetal bench inside web1 --pause --quick
  nearmetal bench drive db --pause --quick
  nearmetal bench disk race web1 --scratch /dev/nvme1n1 --pause
  nearmetal bench net race web1 --port enp57s0 --peer 192.0.2.1 --address 192.0.2.10/24 --pause
  nearmetal bench together w0 w1 --scratch /dev/nvme0n1 --scratch /dev/nvme1n1 --quick --pause
  nearmetal bench tiles --tile web=w1,idle=i1 --tile web=w2,idle=i2 --port enp57s0 --pause
  nearmetal bench history web1";

#[derive(Debug, clap::Subcommand)]
enum What {
    Slice(slice::Args),
    Decisions(decisions::Args),
    Pages(pages::Args),
    Modes(modes::Args),
    Inside(inside::Args),
    Drive(drive::Args),
    Disk(disk::Args),
    Net(net::Args),
    Together(together::Args),
    Tiles(tiles::Args),
    LoadsImage(loads_image::Args),
    History(stored::HistoryArgs),
    Show(stored::ShowArgs),
    Resume(stored::ResumeArgs),
    Compare(stored::CompareArgs),
}

/// One command of `bench`, without the words before it.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true)]
struct Alone {
    #[command(subcommand)]
    what: What,
}

fn alone(words: &[String]) -> Result<Alone, WrongUse> {
    // clap's text begins with `error: ` and ends with a usage that is of no use here.
    let first = |error: clap::Error| error.to_string().lines().next().unwrap_or_default().replacen("error: ", "", 1);
    Alone::try_parse_from(words)
        .map_err(|error| WrongUse(format!("`nearmetal bench {}`: {}", words.join(" "), first(error))))
}

/// Whether these are words of a command of `bench`.
#[cfg(test)]
pub(crate) fn parses(words: &[String]) -> Result<(), WrongUse> {
    alone(words).map(drop)
}

/// What `nearmetal bench WORDS` would measure, and where it would be kept; nothing runs.
///
/// # Errors
/// The words are wrong, or what the command refuses before it measures: no plan, no such device, not root.
pub(crate) fn asked(words: &[String]) -> anyhow::Result<Experiment> {
    let alone = alone(words)?;
    let asked = match &alone.what {
        What::Slice(args) => Some(slice::asked(args)),
        What::Modes(args) => Some(modes::asked(args)),
        What::Drive(args) => Some(drive::asked(args)),
        What::Disk(args) => disk::asked(args),
        What::Net(args) => net::asked(args),
        What::Together(args) => Some(together::asked(args)),
        What::Tiles(args) => Some(tiles::asked(args)),
        What::Decisions(args) => Some(decisions::asked(args)),
        What::Pages(args) => Some(pages::asked(args)),
        What::Inside(args) => Some(inside::asked(args)),
        What::LoadsImage(_) | What::History(_) | What::Show(_) | What::Resume(_) | What::Compare(_) => None,
    };
    let nothing = || WrongUse(format!("`nearmetal bench {}` measures nothing", words.join(" ")));
    asked.unwrap_or_else(|| Err(nothing().into()))
}

/// Runs one of them.
pub fn bench(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::Slice(args) => slice::slice(&args, printer),
        What::Decisions(args) => decisions::decisions(&args, printer),
        What::Pages(args) => pages::pages(&args, printer),
        What::Modes(args) => modes::modes(&args, printer),
        What::Inside(args) => inside::inside(&args, printer),
        What::Drive(args) => drive::drive(&args, printer),
        What::Disk(args) => disk::disk(&args, printer),
        What::Net(args) => net::net(&args, printer),
        What::Together(args) => together::together(&args, printer),
        What::Tiles(args) => tiles::tiles(&args, printer),
        What::LoadsImage(args) => loads_image::loads_image(&args, printer),
        What::History(args) => stored::history(&args, printer),
        What::Show(args) => stored::show(&args, printer),
        What::Resume(args) => stored::resume(&args, printer),
        What::Compare(args) => stored::compare_two(&args, printer),
    }
}
