//! `nearmetal lab image`.

use nearmetal_lab::Places;
use nearmetal_lab::image::ensure;

use super::progress::Drawn;
use crate::exit_status::ExitStatus;
use crate::printer::Printer;

/// Build the labs' image if there is none, and print its directory
///
/// Boots nothing. The directory holds `appliance`: the kernel and the initramfs that the clones of `nearmetal bench` boot.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Builds the image, or finds it.
pub fn image(_: &Args, places: &Places, printer: &mut Printer) -> anyhow::Result<ExitStatus> {
    let image = ensure(places, &mut Drawn::new(printer))?;
    printer.data(&image.directory().display().to_string());
    Ok(ExitStatus::Done)
}
