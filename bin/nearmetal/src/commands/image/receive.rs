//! `nearmetal image receive`: what `nearmetal image push` starts on each host.

use std::path::PathBuf;

use nearmetal_host::HostFs;
use nearmetal_image::Receiver;

use crate::exit_status::ExitStatus;
use crate::image::store_of;

/// Take an image from `nearmetal image push`, which starts this
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where images are kept
    #[arg(long, value_name = "DIR", default_value = nearmetal_image::DIRECTORY)]
    directory: PathBuf,
    /// The data port; 0 lets the kernel choose
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// Runs the command.
pub(crate) fn receive(args: Args) -> anyhow::Result<ExitStatus> {
    let connection = std::env::var("SSH_CONNECTION").ok();
    let options = Receiver { store: store_of(&args.directory), port: args.port, connection };
    nearmetal_image::receive(&options, &HostFs::live(), std::io::stdin(), std::io::stdout())?;
    Ok(ExitStatus::Done)
}
