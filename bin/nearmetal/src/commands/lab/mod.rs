//! `nearmetal lab …`: a server in software. One file a verb.

mod console;
mod down;
mod exec;
mod image;
mod progress;
mod pull;
mod push;
mod ssh_config;
mod status;
mod up;

use nearmetal_lab::{Lab, LabError, LabName, Places};

pub(crate) use self::progress::Drawn;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Run an emulated server: four sockets, four nodes, an IOMMU, a network card and an NVMe drive with virtual functions
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Up(up::Args),
    Status(status::Args),
    Exec(exec::Args),
    Push(push::Args),
    Pull(pull::Args),
    Console(console::Args),
    SshConfig(ssh_config::Args),
    Down(down::Args),
    Image(image::Args),
}

/// Runs one verb. A wrong name or machine is wrong use; everything else a lab refuses is the machine's refusal.
pub fn lab(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let places = Places::standard();
    let result = match args.verb {
        Verb::Up(args) => up::up(args, &places, printer),
        Verb::Status(args) => status::status(args, &places, printer),
        Verb::Exec(args) => exec::exec(args, &places, printer),
        Verb::Push(args) => push::push(args, &places),
        Verb::Pull(args) => pull::pull(args, &places),
        Verb::Console(args) => console::console(args, &places, printer),
        Verb::SshConfig(args) => ssh_config::ssh_config(&args, &places, printer),
        Verb::Down(args) => down::down(args, &places, printer),
        Verb::Image(args) => image::image(&args, &places, printer),
    };
    result.or_else(|error| match error.downcast_ref::<LabError>() {
        Some(LabError::Name { .. } | LabError::Machine(_)) => {
            printer.important(&format!("error: {error:#}"));
            Ok(ExitStatus::WrongUse)
        }
        _ => Err(error),
    })
}

fn open(places: &Places, name: &str) -> Result<Lab, LabError> {
    Lab::open(places, &name.parse::<LabName>()?)
}
