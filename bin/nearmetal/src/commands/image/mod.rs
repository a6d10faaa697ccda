//! `nearmetal image …`.

mod list;
mod push;
mod receive;
mod remove;
mod verify;

use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Bring base images to all hosts of a fleet, and look after them there
///
/// An image is called by the BLAKE3 hash of its content, as `b3sum` prints it, so that a name never means two contents.
/// Guests write to deltas (`qemu-img create -b`) and leave the image as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    Push(push::Args),
    List(list::Args),
    Verify(verify::Args),
    Remove(remove::Args),
    #[command(hide = true)]
    Receive(receive::Args),
}

/// Runs one of them.
pub(crate) fn image(args: Args, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    match args.action {
        Action::Push(args) => push::push(&args, printer),
        Action::List(args) => list::list(&args, printer),
        Action::Verify(args) => verify::verify(&args, printer),
        Action::Remove(args) => remove::remove(&args, printer),
        Action::Receive(args) => receive::receive(args),
    }
}
