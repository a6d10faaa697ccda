//! `nearmetal lab image`.

use nearmetal_lab::Places;
use nearmetal_lab::image::{Release, ensure};

use super::progress::Drawn;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Build the labs' image if there is none, and print its directory
///
/// Boots nothing. The directory holds `appliance`: the kernel and the initramfs that the clones of `nearmetal bench` boot.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Release of Debian: 13 or 12
    #[arg(long, value_name = "13|12", default_value_t)]
    debian: Release,
}

/// Builds the image, or finds it.
pub fn image(args: &Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let image = ensure(places, args.debian, &mut Drawn::new(printer))?;
    printer.data(&image.directory().display().to_string());
    Ok(ExitStatus::Done)
}
